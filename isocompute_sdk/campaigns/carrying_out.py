"""Runs of a study, checked together, written into their folders, and trained on an executor."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from isocompute_sdk.campaigns.control import controlling
from isocompute_sdk.campaigns.executors import ClusterExecutor, Executor, Job, Result, run_jobs
from isocompute_sdk.campaigns.preflight import check_place
from isocompute_sdk.campaigns.run_health import early_end
from isocompute_sdk.errors import BackendError
from isocompute_sdk.notes import Note
from isocompute_sdk.run_folders import store
from isocompute_sdk.specs import RunSpec, Supervision
from isocompute_sdk.training.backend import Backend, Needs, extends_runs, follow, needs_of, run_folder


def prepare(
    runs: Sequence[RunSpec],
    backend: Backend,
    root: Path,
    executor: Executor | None = None,
    supervision: Supervision | None = None,
) -> tuple[Job, ...]:
    """Write the folder of every run below `root`. All runs are checked before the first file is written.

    Args:
        runs: the runs.
        backend: writes their scripts.
        root: folder to which all paths of the runs are relative.
        executor: also checks what the runs need, and what they require. None: the runs start elsewhere.
        supervision: time limit, and what ends runs early. None: the defaults.

    Raises:
        BackendError: the backend or the executor refuses a run.
        RecordError: a folder holds measurements of another run.
    """
    return _write(_checked(runs, backend, root, executor, supervision), backend, root, executor)


@dataclass(frozen=True)
class _Checked:
    """A run that may start."""

    run: RunSpec
    folder: Path
    needs: Needs
    rules: Supervision
    early: Callable[[], str] | None


def _checked(
    runs: Sequence[RunSpec],
    backend: Backend,
    root: Path,
    executor: Executor | None,
    supervision: Supervision | None,
) -> list[_Checked]:
    """All checks of `prepare` that need no lock; nothing is written."""
    for run in runs:
        backend.script(run)
    needs = [needs_of(backend, run) for run in runs]
    rules = supervision if supervision is not None else Supervision()
    folders = [(root / run_folder(run)).absolute() for run in runs]
    if executor is not None:
        executor.check(needs)
        waiting = [run for run, folder in zip(runs, folders, strict=True) if not store.is_finished(folder)]
        check_place(backend, waiting, root, here=executor.name == store.LOCAL)
    return [
        _Checked(run, folder, needed, rules, early_end(backend, folder, rules.stop_on))
        for run, folder, needed in zip(runs, folders, needs, strict=True)
    ]


def _write(checked: Sequence[_Checked], backend: Backend, root: Path, executor: Executor | None) -> tuple[Job, ...]:
    """Write the folders of checked runs."""
    spec = executor.spec if isinstance(executor, ClusterExecutor) else None
    jobs: list[Job] = []
    for one in checked:
        run, folder, rules = one.run, one.folder, one.rules
        store.write_spec(folder, run, longer=extends_runs(backend))
        jobs.append(
            Job(
                run.run_id,
                backend.prepare(run, folder),
                root.absolute(),
                one.needs,
                grace_seconds=None if spec is None else spec.grace_seconds,
                limit_seconds=None if rules.max_hours is None else 3600 * rules.max_hours,
                executor=spec,
                follow=follow(backend, folder),
                check=one.early,
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

    Args:
        runs: the runs.
        backend: writes their scripts.
        executor: starts the scripts.
        root: folder to which all paths of the runs are relative.
        watch: called repeatedly with the status of every run.
        supervision: what to do about signals and runs that hang, are killed or learn nothing. None: the defaults.
        before: called once the runs are checked and no other controller is at work, before anything is written.

    Raises:
        BackendError: a run is refused, needs more than the executor has, failed, or was stopped on request, all were
            given up, or another controller is at work on these runs; the message names every failed run with its last
            output.
    """
    checked = _checked(runs, backend, root, executor, supervision)
    with controlling(*(one.folder.parent for one in checked)):
        if before is not None:
            before()
        jobs = _write(checked, backend, root, executor)
        return _run(jobs, backend, executor, watch, supervision)


def _run(
    jobs: Sequence[Job],
    backend: Backend,
    executor: Executor,
    watch: Callable[[tuple[store.RunStatus, ...]], None] | None,
    supervision: Supervision | None,
) -> tuple[Result, ...]:
    watches = [follow(backend, job.launch.folder) for job in jobs]

    def look() -> None:
        if watch is not None:
            watch(tuple(one.status() for one in watches))

    results = run_jobs(executor, jobs, look, supervision)
    look()
    failed = [result for result in results if result.exit_code and not result.reason]
    if failed:
        listed = "\n".join(f"  {_failure(result)}" for result in failed)
        raise BackendError(
            f"{len(failed)} of {len(results)} runs failed:\n{listed}",
            "Fix the cause and start again: finished runs are kept, the others resume from their checkpoints.",
        )
    given_up = {result.job.name: result.reason for result in results if result.reason}
    if len(given_up) == len(results):
        (note,) = given_up_notes(given_up, len(results))
        raise BackendError(note.message, "See log.txt in the run's folder; start again to retry from the checkpoints.")
    stopped = [result.job.name for result in results if result.exit_code is None and not result.reason]
    if stopped:
        raise BackendError(
            f"{len(stopped)} of {len(results)} runs were stopped on request: {', '.join(stopped)}",
            "Start again to resume them from their checkpoints.",
        )
    return results


def given_up_notes(reasons: Mapping[str, str], runs: int) -> list[Note]:
    """`runs-given-up`, if there are any."""
    if not reasons:
        return []
    listed = "; ".join(f"{name} ({why})" for name, why in reasons.items())
    message = f"{len(reasons)} of {runs} runs were given up, and the others went on without them: {listed}"
    return [Note("runs-given-up", "warning", message, {"runs": dict(reasons)})]


def _failure(result: Result) -> str:
    status = store.RunWatch(result.job.launch.folder).status()
    return f"{result.job.name} (exit code {result.exit_code}): {status.message}"
