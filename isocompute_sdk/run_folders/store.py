"""Run folders: what a run was asked for, how far it has got, what it measured.

A run folder holds `spec.json` (the run, written before it starts), `job.json` (the last attempt that an executor meant
to start), `handle.json` (what the executor started), `beat.json` (renewed while that attempt lives), `exit.json` (how
it ended), `log.txt` and, unless its framework has a log of its own, `metrics.jsonl` (one record a line, appended by
the training process). `wrapper.py` writes the beat and the exit record.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from shlex import quote
from typing import Any, Literal

from isocompute_sdk import files
from isocompute_sdk.documents import Document
from isocompute_sdk.errors import IsoComputeError, RecordError
from isocompute_sdk.metrics import average_of
from isocompute_sdk.records import RunSet
from isocompute_sdk.run_folders import journal_records, wrapper
from isocompute_sdk.run_folders.locks import find_process, is_running
from isocompute_sdk.run_folders.progress import JOURNAL, Progress, journal_progress, record_of
from isocompute_sdk.run_folders.wrapper import EXIT_FILE, JOB_FILE, LOG_FILE, STOP_FILE, WRAPPER_FILE
from isocompute_sdk.specs import RunSpec

SPEC_FILE, METRICS_FILE, STARTED_FILE = "spec.json", "metrics.jsonl", "handle.json"
SCRIPT = "launch.sh"
"""File that starts a run; every executor runs it, and running it again resumes the run."""
LOCAL = "local"
"""Name of the executor whose references are those of `wrapper.process_ref`."""
_LONGER_FILE = ".longer"
"""Present once a run has been made longer: only then does an end short of its length not count."""
EARLY_FILE = "stopped-early.txt"
"""Why a pilot run was made no longer, although more was planned."""
_ABANDONED_FILE = "abandoned.txt"
OUTPUT = "the terminal or job that ran its script"
"""Where the output of a script without a log went."""
LOCKING_SECONDS = 2.0
"""How long a launch script may take until its next program locks the folder."""
RUN_SPEC = Document("run-spec", 1, RunSpec, remedy="Prepare the run again (`isocompute run`).")
"""Content of spec.json."""
RUNNER_SPEC_FILE = "run.json"
"""From which the built-in runner starts; other tools write files of that name too."""
RUNNER_SPEC = Document("torch-run", 1, RunSpec, signed=False, remedy=RUN_SPEC.remedy)
REQUEST_FILE = "request.json"
"""What launch scripts of training frameworks write first, with a whole run in it; other tools write such files too."""

State = Literal["waiting", "running", "stopped", "finished", "failed"]
"""`waiting`: nothing measured yet; `stopped`: ended early, goes on when started again."""


BEST_FILE = "best.json"
"""The best checkpoint, by the programs that train."""


@dataclass(frozen=True)
class BestCheckpoint:
    """Content of best.json."""

    step: int
    """Its update step."""
    metric: str
    """What was compared, such as avg@4 of the validation problems."""
    reward: float
    """Its value: the largest of many noisy ones, so above the true one."""
    checkpoint: str
    """Where it lies, below the run folder."""
    reported: float | None = None
    """Its reward on samples drawn after it was chosen; None if there are none."""


@dataclass(frozen=True)
class RunStatus:
    """How far a run has got."""

    folder: Path
    run_id: str
    group_size: int | None
    """n; None if unknown."""
    problems_per_batch: int | None
    """B_p; None if unknown."""
    update_steps: int | None
    """M, the length of the run; None if unknown."""
    step: int
    """Update steps done."""
    rollouts: int
    """Rollouts sampled so far."""
    metrics: Mapping[str, float]
    """Last evaluation on the validation problems; empty before the first."""
    state: State
    message: str = ""
    """Why it failed, in the run's own words."""
    train_reward: float | None = None
    """Mean reward of the last update's rollouts; None if unknown."""
    devices: tuple[str, ...] = ()
    """GPUs that it has now, as in CUDA_VISIBLE_DEVICES; empty if none or unknown."""
    engine: str = ""
    """Name of the executor that has the run now; empty if none has."""
    job: str = ""
    """The executor's name for it: a process id, or the id of a job."""
    best: BestCheckpoint | None = None
    """Its best checkpoint at that moment; None if there is none."""

    @property
    def headline(self) -> tuple[str, float] | None:
        """The metric to show where there is room for one: avg@k with the largest k, else the first, else the reward."""
        largest = max(self.metrics, key=lambda name: average_of(name) or 0, default=None)
        name = largest if largest is not None and average_of(largest) else next(iter(self.metrics), None)
        if name is not None:
            return name, self.metrics[name]
        return None if self.train_reward is None else ("train_reward", self.train_reward)


@dataclass(frozen=True)
class ExitRecord:
    """Content of exit.json."""

    exit_code: int
    """0 on success; minus the signal number if a signal ended the process."""
    attempt: int | None = None
    """The attempt that ended; None for a script that was started by hand."""
    stopped: bool = False
    """Whether the attempt was asked to end, so that the exit code says nothing about the run."""
    reason: str = ""
    """Why it was asked to end, if that was not a request from outside."""


EXIT = Document("run-exit", 2, ExitRecord, signed=False)


@dataclass(frozen=True)
class JobRecord:
    """Content of job.json: an attempt that an executor is about to start, as its wrapper reads it."""

    attempt: int
    """1 for the first."""
    argv: tuple[str, ...]
    """Command."""
    cwd: str
    """Its working directory."""
    env: Mapping[str, str]
    """Environment variables to add."""
    grace_seconds: float
    """Time between SIGTERM and SIGKILL."""
    limit_seconds: float | None = None
    """Wall-clock limit. None: no limit."""
    executor: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Name and options of the executor; empty if it has none that could be kept."""


JOB = Document("run-job", 1, JobRecord)


@dataclass(frozen=True)
class Started:
    """Content of handle.json: the last attempt that an executor started."""

    attempt: int
    """1 for the first."""
    engine: str
    """Name of the executor, such as `local`."""
    ref: str
    """The engine's name for it; for `local` see `wrapper.process_ref`."""
    devices: tuple[str, ...] = ()
    """Its GPUs, as in CUDA_VISIBLE_DEVICES."""


STARTED = Document("run-started", 1, Started)


def write_spec(folder: str | Path, run: RunSpec, *, longer: bool = False) -> Path:
    """Keep the run beside its measurements; with `longer` its end may move, but not behind its last step."""
    target = Path(folder)
    earlier = read_spec(target)
    if earlier is not None and earlier != run and has_begun(target):
        extended = longer and run.update_steps >= min(earlier.update_steps, RunWatch(target).status().step)
        same = earlier
        if extended:
            # A longer run may be evaluated less often: what was measured stays comparable.
            rarer = earlier.evaluation.replace(every_steps=run.evaluation.every_steps)
            same = earlier.replace(update_steps=run.update_steps, evaluation=rarer)
        changed = another(same, run)
        if changed is not None:
            raise RecordError(
                f"{target} holds measurements of a run with another {changed}",
                "Give the study another name or output_dir, or remove that folder to start again.",
            )
        if extended and run.update_steps > earlier.update_steps:
            (target / _LONGER_FILE).touch()
    return RUN_SPEC.save(target / SPEC_FILE, run)


def another(earlier: RunSpec, run: RunSpec) -> str | None:
    """What makes `run` another run than the earlier one, with the first difference; None if it is the same."""
    old, new = earlier.model_dump(), run.model_dump()
    changed = [name for name in old if old[name] != new[name] and name not in ("options", "output_dir")]
    if not changed:
        return None
    return f"{', '.join(changed)} ({changed[0]} was {old[changed[0]]!r}, now {new[changed[0]]!r})"


def has_begun(folder: Path) -> bool:
    """Whether the folder holds measurements, or may soon, or a run that ended without any account of itself."""
    if is_running(folder):
        return True
    if (folder / METRICS_FILE).exists():
        return any(record["kind"] not in ("run", "end") for record in journal_records.read(folder / METRICS_FILE))
    return (folder / EXIT_FILE).exists()


def read_spec(folder: str | Path) -> RunSpec | None:
    """The run that a folder was prepared for, or that its launch script carries out; None if it does not say.

    Raises:
        IsoComputeError: a file that should hold the run is damaged, or of another release.
    """
    path = Path(folder) / SPEC_FILE
    if path.exists():
        return RUN_SPEC.load(path)
    path = Path(folder) / RUNNER_SPEC_FILE
    kind: object = None
    if path.exists():
        text = files.read_text(path, what="a run's specification")
        kind = RUNNER_SPEC.kind
        with suppress(ValueError):
            raw = files.parse_json(text)
            kind = raw.get("kind") if isinstance(raw, dict) else None
    return RUNNER_SPEC.load(path) if kind == RUNNER_SPEC.kind else _requested(Path(folder))


def _requested(folder: Path) -> RunSpec | None:
    """The run in the request of a launch script that was started by hand; None if there is no such request."""
    try:
        raw = files.parse_json(files.read_text(folder / REQUEST_FILE, what="a run's request"))
    except (IsoComputeError, ValueError):
        return None
    if not isinstance(raw, dict) or "framework" not in raw or not isinstance(raw.get("run"), dict):
        return None
    return RunSpec.model_validate(raw["run"])


def find_runs(folder: str | Path) -> tuple[Path, ...]:
    """Run folders at or below `folder`, in natural order (n4 before n16)."""
    top = Path(folder)
    if not top.is_dir():
        told = f"{top} is a file; accepted: a folder" if top.exists() else f"no such folder: {top}"
        raise RecordError(told, "Give the folder of a run, a study or a campaign.")
    found: list[Path] = []
    for here, below, names in os.walk(top):
        own = SPEC_FILE in names or (METRICS_FILE in names and _holds_journal(Path(here)))
        if own or (REQUEST_FILE in names and _requested(Path(here)) is not None):
            found.append(Path(here))
            below.clear()
    if not found:
        raise RecordError(
            f"{top} holds no runs; accepted: folders with {SPEC_FILE}, {METRICS_FILE} or {REQUEST_FILE} of a launch "
            "script, at any depth",
            "`isocompute run STUDY` makes some.",
        )
    return tuple(sorted(found, key=natural))


def _holds_journal(folder: Path) -> bool:
    """Whether the metrics.jsonl of a folder is a journal: other trainers give their logs that name too."""
    with suppress(RecordError):
        return _opening(folder).get("kind") in journal_records.KINDS
    return False


def read_journals(folder: str | Path, file: str = METRICS_FILE, format: str = "isocompute") -> RunSet:
    """Everything measured so far by the runs at or below a folder; a half-written last line is left out."""
    journals = [run / file for run in find_runs(folder)]
    begun = [path for path in journals if path.exists()]
    if not begun:
        raise RecordError(f"no {file} at or below {folder}", "The run has not measured anything yet.")
    return RunSet.read(begun, format=format)


def write_job(folder: str | Path, job: JobRecord) -> Path:
    """Note an attempt that is about to start, and forget how the last one ended; returns the wrapper's program."""
    place = Path(folder)
    program = Path(wrapper.__file__).read_text(encoding="utf-8")
    target = place / WRAPPER_FILE
    if not target.is_file() or target.read_text(encoding="utf-8") != program:
        files.write_text(target, program)
    JOB.save(place / JOB_FILE, job)
    for name in (EXIT_FILE, _ABANDONED_FILE):
        (place / name).unlink(missing_ok=True)
    return target


def read_job(folder: str | Path) -> JobRecord | None:
    """The last attempt that was about to start; None if there is no record of one.

    Raises:
        IsoComputeError: the record is damaged.
    """
    path = Path(folder) / JOB_FILE
    return JOB.load(path) if path.exists() else None


def write_started(folder: str | Path, started: Started) -> None:
    """Note what an executor has started."""
    STARTED.save(Path(folder) / STARTED_FILE, started)


def read_started(folder: str | Path) -> Started | None:
    """The last attempt that an executor started; None if there is no record of one.

    Raises:
        IsoComputeError: the record is damaged.
    """
    path = Path(folder) / STARTED_FILE
    return STARTED.load(path) if path.exists() else None


def last_attempt(folder: str | Path) -> int:
    """Number of the last attempt that an executor started or meant to start; 0 before the first."""
    job, started = read_job(folder), read_started(folder)
    return max(job.attempt if job is not None else 0, started.attempt if started is not None else 0)


def read_exit(folder: str | Path) -> ExitRecord | None:
    """How the last attempt ended; None if there is no record of it.

    Raises:
        IsoComputeError: the record is damaged.
    """
    path = Path(folder) / EXIT_FILE
    return EXIT.load(path) if path.exists() else None


def write_abandoned(folder: str | Path, reason: str) -> None:
    """Note why a run was given up."""
    files.write_text(Path(folder) / _ABANDONED_FILE, reason + "\n")


def read_abandoned(folder: str | Path) -> str:
    """Why a run was given up; empty if it was not."""
    path = Path(folder) / _ABANDONED_FILE
    return path.read_text(encoding="utf-8").strip() if path.is_file() else ""


def request_stop(folder: str | Path) -> None:
    """Ask whoever starts this run not to start it again."""
    os.close(wrapper.open_own(Path(folder) / STOP_FILE))


def stop_requested(folder: str | Path) -> bool:
    """Whether the run is not to be started."""
    return (Path(folder) / STOP_FILE).exists()


def clear_stop(folder: str | Path) -> None:
    """Allow the run to be started again, also if it was given up."""
    for name in (STOP_FILE, _ABANDONED_FILE):
        (Path(folder) / name).unlink(missing_ok=True)


def read_best(folder: str | Path) -> BestCheckpoint | None:
    """The best checkpoint of a run; None if there is none or its file cannot be read."""
    try:
        text = (Path(folder) / BEST_FILE).read_bytes()
    except OSError:
        return None
    from pydantic import TypeAdapter, ValidationError

    try:
        return TypeAdapter(BestCheckpoint).validate_json(text)
    except ValidationError:
        return None


def is_finished(folder: str | Path) -> bool:
    """Whether the run has done all it was asked for, so that it need not be started again."""
    place = Path(folder)
    progress = _journal(place)
    return _ended(place, progress, _asked_steps(place, progress))[0] == "finished"


def _journal(folder: Path) -> Progress | None:
    return journal_progress(folder / METRICS_FILE)


@dataclass
class RunWatch:
    """Follows one run; every call of `status` reads no more than the end of what the run writes."""

    folder: str | Path
    look: Callable[[Path], Progress | None] = _journal
    """Returns how far the run is; if None, its metrics.jsonl is read."""
    remark: str = ""
    """Message about a run of which nothing is known."""
    _spec: RunSpec | None = field(init=False, repr=False, default=None)

    def status(self) -> RunStatus:
        """How far the run has got."""
        folder = Path(self.folder)
        best = read_best(folder)  # First, so that it is none of a step that is not read yet.
        progress = self.look(folder) or _journal(folder)
        # A run that has ended may have been made longer.
        if self._spec is None or (progress is not None and progress.ended is not None):
            self._spec = read_spec(folder)
        spec = self._spec
        asked = _asked_steps(folder, progress)
        state, message = ("running", "") if is_running(folder) else _ended(folder, progress, asked)
        run: Mapping[str, Any] = {} if spec is not None else _opening(folder)
        n = spec.group_size if spec is not None else run.get("group_size")
        problems = spec.problems_per_batch if spec is not None else run.get("problems_per_batch")
        started = _current(folder, state)
        step = progress.step if progress is not None else 0
        rollouts = progress.rollouts if progress is not None else 0
        return RunStatus(
            folder=folder,
            run_id=spec.run_id if spec is not None else str(run.get("run_id", folder.name)),
            group_size=n,
            problems_per_batch=problems,
            update_steps=spec.update_steps if spec is not None else run.get("update_steps"),
            step=step,
            rollouts=rollouts if rollouts is not None else step * (n or 0) * (problems or 0),
            metrics=progress.metrics if progress is not None else {},
            state=state,
            message=message or _early(folder, state) or ("" if progress is not None else self.remark),
            train_reward=progress.train_reward if progress is not None else None,
            devices=started.devices if started is not None else (),
            engine=started.engine if started is not None else "",
            job=started.ref.partition(" ")[0] if started is not None else "",
            best=best,
        )


def _current(folder: Path, state: State) -> Started | None:
    """What an executor has started and not seen end; None if another program has the run, or none."""
    started = read_started(folder)
    if started is None or state in ("finished", "failed"):
        return None
    if started.engine == LOCAL:
        return started if state == "running" and find_process(started.ref) is not None else None
    ended = read_exit(folder)
    return None if started.attempt != last_attempt(folder) or ended is not None else started


def _early(folder: Path, state: State) -> str:
    path = folder / EARLY_FILE
    return f"stopped early, {path.read_text(encoding='utf-8').strip()}" if state == "finished" and path.exists() else ""


def _asked_steps(folder: Path, progress: Progress | None) -> int | None:
    """The length that a finished run is asked for now; None if it is not finished, or was never made longer."""
    if progress is None or progress.ended != "finished" or not (folder / _LONGER_FILE).exists():
        return None
    return RUN_SPEC.load(folder / SPEC_FILE).update_steps


def _ended(folder: Path, progress: Progress | None, asked: int | None) -> tuple[State, str]:
    """How the last attempt ended, with its message; `stopped` or `waiting` if it left no exit code.

    A run that finished and is now asked for more steps is `stopped`.
    """
    said = progress.ended if progress is not None else None
    if said == "finished" and progress is not None and asked is not None and progress.step < asked:
        return "stopped", read_abandoned(folder)
    ended = read_exit(folder)
    code = None if ended is None or ended.stopped else ended.exit_code
    given_up = read_abandoned(folder)
    if said == "finished" or code == 0:
        return "finished", ""
    if given_up:
        return "stopped" if code is None else "failed", given_up
    if said == "failed" or code is not None:
        own = progress.message if progress is not None else ""
        return "failed", own or f"exit code {code}: {_where(folder)}"
    if progress is None and _start_ended(folder):
        return "failed", _where(folder)
    return ("stopped" if progress is not None else "waiting"), ""


def _start_ended(folder: Path) -> bool:
    """Whether a launch script was started by hand here, and its next program has had the time to lock the folder.

    Nothing holds the folder for a moment before the script prepares its rows, and after it, when `started.json` is new.
    """
    begun = folder / journal_records.ATTEMPTS_FILE
    if not begun.exists() or (folder / JOB_FILE).exists():
        return False
    steps = [path.stat().st_mtime for path in (begun, folder / "started.json") if path.exists()]
    return time.time() - max(steps) > LOCKING_SECONDS


def unmeasured(folder: Path) -> tuple[str, str]:
    """Why the run in a folder has measured nothing yet, and what to do about it."""
    state, message = ("running", "") if is_running(folder) else _ended(folder, _journal(folder), None)
    if state == "failed":
        why = message.partition("\n")[0]
        return (
            f"failed before its first update: {why}",
            f"Correct that and start it again{_script(folder)}; see {_log(folder) or OUTPUT}.",
        )
    if state == "waiting" and not any((folder / name).exists() for name in (journal_records.ATTEMPTS_FILE, JOB_FILE)):
        return "has not been trained yet", f"Start its script{_script(folder)}, or leave the folder out."
    return "has not measured anything yet", "Wait for its first update; its console log says what is happening."


def _script(folder: Path) -> str:
    """How to start the script of a run, which lies in its folder, or beside it or the folder around it by its name."""
    beside = [one.with_name(f"{one.name}.sh") for one in (folder, folder.parent) if one.name]
    found = next((path for path in (folder / SCRIPT, *beside) if path.is_file()), None)
    return "" if found is None else f": bash {quote(str(found))}"


def _opening(folder: Path) -> Mapping[str, Any]:
    """The first record of a run's metrics.jsonl; empty if there is no such file."""
    path = folder / METRICS_FILE
    if not path.exists():
        return {}
    with files.open_input(path, what=JOURNAL, error=RecordError) as file:
        return record_of(file.readline())


def _log(folder: Path) -> Path | None:
    """The run's log, or the last console that its script captured; None if neither is there."""
    found = [path for path in (folder / LOG_FILE, *folder.glob("console.*.log")) if path.is_file()]
    return max(found, key=lambda path: path.stat().st_mtime, default=None)


def last_words(folder: str | Path) -> str:
    """Last line of a run's log; empty if there is none."""
    path = _log(Path(folder))
    text = "" if path is None else path.read_text(encoding="utf-8", errors="replace").strip()
    return text.splitlines()[-1].strip() if text else ""


def _where(folder: Path) -> str:
    """Last line of the log, and where the log is."""
    words, place = last_words(folder), _log(folder) or OUTPUT
    return f"{words} (see {place})" if words else f"see {place}"


def natural(path: Path | str) -> list[tuple[int, int, str]]:
    """A key that orders the numbers in a name as numbers: `run2` before `run10`."""
    parts = re.split(r"(\d+)", str(path))
    return [(1, int(part), "") if part.isdigit() else (0, 0, part) for part in parts]
