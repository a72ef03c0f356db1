"""What was changed in a study since its runs began, field by field, and whether that spoils what was run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from isocompute_sdk.documents import Document
from isocompute_sdk.errors import RecordError, show
from isocompute_sdk.run_folders import store
from isocompute_sdk.specs import Budget, RunSpec, Study
from isocompute_sdk.training.backend import Backend, extends_runs, run_folder, speed_options_of

STUDY_FILE = "study.json"
STUDY = Document("study", 1, Study, remedy="Remove the file: the runs are then compared with the study one by one.")
"""Content of study.json: the study as `isocompute run` last carried it out."""
FREE = frozenset({"executor", "supervision", "throughput", "pilot", "problems"})
"""Sections that change no measurement; scripts compare the problem files themselves."""


@dataclass(frozen=True)
class Change:
    """One field that was edited."""

    field: str
    """Such as `budget.rollouts`."""
    old: Any
    """JSON form; None for a field that was not there."""
    new: Any
    refused: str = ""
    """Why it would spoil what was run; empty if it does not."""

    def describe(self) -> str:
        """Field, old and new value on one line."""
        line = f"{self.field}: {_shown(self.old)} -> {_shown(self.new)}"
        return f"{line}: {self.refused}" if self.refused else line


def study_changes(
    earlier: Study, now: Study, backend: Backend, begun: Mapping[str, RunSpec], *, spends: bool = True
) -> tuple[Change, ...]:
    """Every field that differs, with a reason for each that must not change.

    Args:
        earlier: the study as it was.
        now: the study as it is.
        backend: says whether runs can be made longer, and which options change no result.
        begun: runs with measurements, by name. Without any, every change is accepted.
        spends: whether what was run was chosen for the study's budget.
    """
    old, new = (study.model_dump(mode="json") for study in (earlier, now))
    found: list[Change] = []
    for name in new:
        for field, before, after in _differences(name, old.get(name), new[name]):
            why = "" if not begun or name in FREE else _refusal(field, earlier, now, backend, begun, spends=spends)
            found.append(Change(field, before, after, why))
    return tuple(found)


def refuse_spoiling(changes: Sequence[Change], folder: Path) -> None:
    """Raise on changes that would spoil what was run.

    Raises:
        RecordError: the message lists every change, those that are fine too.
    """
    refused = [change for change in changes if change.refused]
    if not refused:
        return
    fine = [change.describe() for change in changes if not change.refused]
    lines = [*(change.describe() for change in refused), *(f"{line} (accepted)" for line in fine)]
    listed = "\n".join(f"  {line}" for line in lines)
    raise RecordError(
        f"the study was edited since its runs in {folder} began, in a way that would spoil them:\n{listed}",
        f"Restore {', '.join(change.field for change in refused)}, or give the study another name to start afresh.",
    )


def begun_runs(folders: Sequence[Path]) -> dict[str, RunSpec]:
    """The runs of these folders that have measurements, or may soon, by name."""
    specs = {folder: store.read_spec(folder) for folder in folders if folder.is_dir()}
    return {spec.run_id: spec for folder, spec in specs.items() if spec is not None and store.has_begun(folder)}


def update_study(study: Study, folder: Path, root: Path, backend: Backend) -> tuple[Change, ...]:
    """Compare a sweep with what `folder` holds of it, keep it there, and return what was changed.

    Args:
        study: the study, with a sweep.
        folder: its folder.
        root: folder to which its paths are relative.
        backend: its backend.

    Raises:
        RecordError: a change that would spoil what was run.
    """
    path = folder / STUDY_FILE
    changes: tuple[Change, ...] = ()
    if STUDY.holds(path):
        earlier = STUDY.load(path)
        runs = earlier.expand() if earlier.has_runs else ()
        begun = begun_runs([root / run_folder(run) for run in runs])
        changes = study_changes(earlier, study, backend, begun, spends=False)
        refuse_spoiling(changes, folder)
    STUDY.save(path, study)
    return changes


def _differences(field: str, old: Any, new: Any) -> Iterator[tuple[str, Any, Any]]:
    """(field, old, new) of every leaf that differs."""
    if old == new:
        return
    if isinstance(old, dict) and isinstance(new, dict):
        before, after = cast("dict[str, Any]", old), cast("dict[str, Any]", new)
        for name in dict.fromkeys((*before, *after)):
            yield from _differences(f"{field}.{name}", before.get(name), after.get(name))
    else:
        yield field, old, new


def _refusal(
    field: str, earlier: Study, now: Study, backend: Backend, begun: Mapping[str, RunSpec], *, spends: bool
) -> str:
    section = field.partition(".")[0]
    if section == "budget":
        return _budget_refusal(earlier.budget, now.budget) if spends else ""
    if section in ("sweep", "runs"):
        return _sweep_refusal(now, backend, begun)
    if section == "options":
        speed, name = speed_options_of(backend), field.partition(".")[2]
        return "" if speed is None or name in speed else f"changes what the {len(begun)} runs so far measure"
    return f"the {len(begun)} runs so far were made with the old value"


def _budget_refusal(old: Budget | None, new: Budget | None) -> str:
    if old is None:
        return ""
    if new is None:
        return "what was run was chosen for a budget"
    if new.unit != old.unit:
        return f"what was run was chosen for a budget in {old.unit}"
    return "what was run was chosen for a larger budget" if new.amount < old.amount else ""


def _sweep_refusal(now: Study, backend: Backend, begun: Mapping[str, RunSpec]) -> str:
    """Every run that has begun has to stay, and keep its length where it cannot be made longer."""
    if not now.has_runs:
        return "" if now.designed is not None else f"the {len(begun)} runs so far belong to the sweep"
    asked = {run.run_id: run for run in now.expand()}
    lost = [name for name in begun if name not in asked and not name.startswith("plan-")]
    if lost:
        return f"leaves out {', '.join(lost[:3])}{' and others' if len(lost) > 3 else ''}, which have measurements"
    for name, run in begun.items():
        steps = asked[name].update_steps if name in asked else run.update_steps
        if steps < run.update_steps:
            return f"shortens {name}, which was asked for {run.update_steps} steps"
        if steps > run.update_steps and not extends_runs(backend):
            return f"lengthens {name}, and backend {backend.name} cannot make a run longer"
    return ""


def _shown(value: Any) -> str:
    return "none" if value is None else show(value)
