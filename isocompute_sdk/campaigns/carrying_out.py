"""Runs of a study, checked together, written into their folders, trained on an executor, and looked at.

What would end every run is found once, before the first one starts.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from isocompute_sdk import files
from isocompute_sdk.campaigns.control import controlling
from isocompute_sdk.campaigns.executors import ClusterExecutor, Executor, Job, Result, run_jobs
from isocompute_sdk.errors import BackendError, IsoComputeError, SpecError
from isocompute_sdk.health import Health
from isocompute_sdk.health.detectors import detect, nothing_learned
from isocompute_sdk.health.findings import ADVICE
from isocompute_sdk.health.traces import gather
from isocompute_sdk.notes import Note
from isocompute_sdk.phrases import counted
from isocompute_sdk.records import RunSet
from isocompute_sdk.run_folders import store
from isocompute_sdk.specs import RunSpec, Supervision
from isocompute_sdk.training.backend import (
    Backend,
    Requires,
    extends_runs,
    follow,
    needs_of,
    requires_of,
    run_folder,
)
from isocompute_sdk.training.payload.run_files import split_target

IMPORT_SECONDS = 60
"""Time limit of the interpreter that looks for packages; a cold network file system is slow."""
_MISSING = """
import importlib.util, sys
print(*(name for name in sys.argv[1:] if importlib.util.find_spec(name) is None))
"""
"""Prints the packages that are not there."""
NOTHING_LEARNED = "nothing-learned"
"""Code of the note that makes a finished run no success."""
AGAIN = "Run the study again with the same command: finished runs are kept, the others resume from their checkpoints."
"""What to do after any end of a controller."""
EARLY_UPDATES = 50
"""Logged updates without any gradient after which a run that goes on counts as learning nothing."""


def prepare(
    runs: Sequence[RunSpec],
    backend: Backend,
    root: Path,
    executor: Executor | None = None,
    supervision: Supervision | None = None,
) -> tuple[Job, ...]:
    """Write the folder of every run below `root`. All runs are checked before the first file is written.

    Raises:
        BackendError: the backend or the executor refuses a run.
        RecordError: a folder holds measurements of another run.
    """
    rules = supervision if supervision is not None else Supervision()
    _check(runs, backend, root, executor, rules)
    return _write(runs, backend, root, executor, rules)


def _check(
    runs: Sequence[RunSpec], backend: Backend, root: Path, executor: Executor | None, rules: Supervision
) -> None:
    """All checks of `prepare` that need no lock; nothing is written."""
    for run in runs:
        backend.script(run)
    early_end(backend, root, rules.stop_on)
    if executor is not None:
        executor.check([needs_of(backend, run) for run in runs])
        waiting = [run for run in runs if not store.is_finished(root / run_folder(run))]
        check_place(backend, waiting, root, here=executor.name == store.LOCAL)


def _write(
    runs: Sequence[RunSpec], backend: Backend, root: Path, executor: Executor | None, rules: Supervision
) -> tuple[Job, ...]:
    """Write the folders of checked runs."""
    spec = executor.spec if isinstance(executor, ClusterExecutor) else None
    jobs: list[Job] = []
    for run in runs:
        folder = (root / run_folder(run)).absolute()
        store.write_spec(folder, run, longer=extends_runs(backend))
        jobs.append(
            Job(
                run.run_id,
                backend.prepare(run, folder),
                root.absolute(),
                needs_of(backend, run),
                grace_seconds=None if spec is None else spec.grace_seconds,
                limit_seconds=None if rules.max_hours is None else 3600 * rules.max_hours,
                executor=spec,
                follow=follow(backend, folder),
                check=early_end(backend, folder, rules.stop_on),
            )
        )
    return tuple(jobs)


def carry_out(
    runs: Sequence[RunSpec],
    backend: Backend,
    executor: Executor,
    root: Path,
    watch: Callable[[tuple[store.RunStatus, ...]], None] | None = None,
    supervision: Supervision | None = None,
    before: Callable[[], object] | None = None,
) -> tuple[Result, ...]:
    """Prepare and train runs; finished runs are skipped.

    Runs that were given up, see `supervision`, have a `reason` in their results; the others go on without them.

    Raises:
        BackendError: a run is refused, needs more than the executor has, failed, or was stopped on request, all were
            given up, or another controller is at work on these runs; the message names every failed run with its last
            output.
    """
    rules = supervision if supervision is not None else Supervision()
    _check(runs, backend, root, executor, rules)
    with controlling(*((root / run_folder(run)).absolute().parent for run in runs)):
        if before is not None:
            before()
        jobs = _write(runs, backend, root, executor, rules)
        return _run(jobs, backend, executor, watch, rules)


def _run(
    jobs: Sequence[Job],
    backend: Backend,
    executor: Executor,
    watch: Callable[[tuple[store.RunStatus, ...]], None] | None,
    rules: Supervision,
) -> tuple[Result, ...]:
    watches = [follow(backend, job.launch.folder) for job in jobs]

    def look() -> None:
        if watch is not None:
            watch(tuple(one.status() for one in watches))

    results = run_jobs(executor, jobs, look, rules)
    look()
    failed = [result for result in results if result.exit_code and not result.reason]
    if failed:
        listed = "\n".join(map(_failure, failed))
        raise BackendError(
            f"{len(failed)} of {counted(len(results), 'run')} failed:\n{listed}", f"Fix the cause. {AGAIN}"
        )
    given_up = {result.job.name: result.reason for result in results if result.reason}
    if len(given_up) == len(results):
        (note,) = given_up_notes(given_up, len(results))
        raise BackendError(note.message, f"See log.txt in their folders. {AGAIN}")
    stopped = [result.job.name for result in results if result.exit_code is None and not result.reason]
    if stopped:
        names = ", ".join(stopped)
        were = "was" if len(stopped) == 1 else "were"
        raise BackendError(
            f"{len(stopped)} of {counted(len(results), 'run')} {were} stopped on request: {names}", AGAIN
        )
    return results


def _failure(result: Result) -> str:
    """How a run failed: its exit code, and its last words."""
    said = store.RunWatch(result.job.launch.folder).status().message
    return f"  {result.job.name} (exit code {result.exit_code}): {said.removeprefix(f'exit code {result.exit_code}: ')}"


def given_up_notes(reasons: Mapping[str, str], runs: int) -> list[Note]:
    """`runs-given-up`, if there are any."""
    if not reasons:
        return []
    listed = "; ".join(f"{name} ({why})" for name, why in reasons.items())
    others = ", and the others went on without them" if len(reasons) < runs else ""
    message = f"{len(reasons)} of {counted(runs, 'run')} were given up{others}: {listed}"
    return [Note("runs-given-up", "warning", message, {"runs": dict(reasons)})]


def check_place(backend: Backend, runs: Sequence[RunSpec], root: Path, *, here: bool) -> None:
    """Refuse runs whose data, reward function, local model or packages are missing.

    A model on a hub is not looked up. What the files hold and which release is installed is left to the scripts, which
    say so before they train.
    """
    required = dict.fromkeys(found for found in (requires_of(backend, run) for run in runs) if found is not None)
    problems = dict.fromkeys(problem for one in required for problem in _problems(one, root, here=here))
    if problems:
        listed = "\n".join(f"  {problem}" for problem in problems)
        raise BackendError(f"no run was started, since all would fail:\n{listed}", "Correct them all.")


def _problems(required: Requires, root: Path, *, here: bool) -> Iterator[str]:
    inputs = dict.fromkeys(required.files, "problems (JSON lines)")
    if required.reward is not None:
        inputs[split_target(required.reward, root)[0]] = "a Python file with the reward function"
    for name, what in inputs.items():
        try:
            files.check_input(root / name, what=what, error=BackendError)
        except BackendError as error:
            yield error.message
    if required.model is not None:
        place = root / required.model
        if place.is_dir() and not (place / "config.json").is_file():
            yield f"model {place}: a folder without config.json; accepted: a model in Hugging Face's format"
        elif not place.is_dir() and required.model.startswith(("/", "./", "../")):
            yield f"model {place}: no such folder"
    if here and required.packages:
        yield from _packages(required)


def _packages(required: Requires) -> Iterator[str]:
    stated = os.environ.get("PYTHON")
    python = stated or (sys.executable if required.beside_sdk else "python3")
    if shutil.which(python) is None:
        yield f"interpreter {python}: not found{' (from PYTHON)' if stated else ''}"
        return
    try:
        done = subprocess.run(
            [python, "-c", _MISSING, *required.packages],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=IMPORT_SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return  # An interpreter of its own kind: the run will say what is wrong with it.
    missing = done.stdout.split()
    if missing:
        yield f"interpreter {python}: no package {', '.join(missing)}; install it, or set PYTHON to one that has it"


def health_of(backend: Backend, folders: Iterable[Path]) -> Health:
    """What the detectors find in the runs of these folders; runs without readable measurements are left out."""
    found = [records for records in (records_of(backend, folder) for folder in folders) if records is not None]
    if not found:
        return Health((), {}, 0)
    traces = gather(found[0].concat(*found[1:]))
    return Health.of(traces, {run.run_id: (*detect(run), *nothing_learned(run)) for run in traces})


def learned_nothing(health: Health) -> tuple[str, ...]:
    """Names of the runs that have learned nothing."""
    return tuple(run for run, notes in health.by_run.items() if any(note.code == NOTHING_LEARNED for note in notes))


def early_end(backend: Backend, folder: Path, codes: Sequence[str]) -> Callable[[], str] | None:
    """A function that returns why a run is to end early, "" if it is not; None without codes."""
    unknown = sorted(set(codes) - set(ADVICE))
    if unknown:
        raise SpecError(
            f"supervision.stop_on: received {unknown[0]!r}; accepted: {', '.join(ADVICE)}",
            "Use codes of docs/health.md.",
        )
    if not codes:
        return None

    def look() -> str:
        records = records_of(backend, folder)
        if records is None:
            return ""
        found = [
            one for run in gather(records) for one in (*detect(run, live=True), *nothing_learned(run, EARLY_UPDATES))
        ]
        bad = next((one for one in found if one.code in codes and one.severity != "info"), None)
        return "" if bad is None else f"ended early [{bad.code}]: {ADVICE[bad.code].title}; {bad.seen}"

    return look


def records_of(backend: Backend, folder: Path) -> RunSet | None:
    """What a run has logged; None if it cannot be read."""
    try:
        return backend.read_records(folder)
    except IsoComputeError:
        return None
