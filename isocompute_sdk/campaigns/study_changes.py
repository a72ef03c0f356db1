"""What was edited in a study since its runs began, field by field, and whether that spoils what was run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

from isocompute_sdk.documents import Document
from isocompute_sdk.errors import RecordError, show
from isocompute_sdk.run_folders import store
from isocompute_sdk.specs import Study
from isocompute_sdk.training.backend import Backend, run_folder, speed_options_of

STUDY_FILE = "study.json"
STUDY = Document("study", 1, Study, remedy="Remove the file: the runs are then compared with the study one by one.")
"""Content of study.json: the study as `isocompute run` last carried it out."""
FREE = frozenset({"executor", "supervision", "throughput", "pilot", "problems", "budget", "sweep", "runs"})
"""Sections that change no measurement. Scripts compare the problem files themselves, and each run folder takes no other
length than its run can have (`store.write_spec`)."""


def study_changes(
    earlier: Study, now: Study, backend: Backend, folders: Sequence[Path], where: Path
) -> dict[str, tuple[Any, Any]]:
    """Every field that differs, with its old and new value in JSON form.

    Raises:
        RecordError: a change that would spoil what was run; the message lists every change.
    """
    old, new = (study.model_dump(mode="json") for study in (earlier, now))
    changes = {
        field: (before, after) for name in new for field, before, after in _differences(name, old.get(name), new[name])
    }
    speed = {f"options.{name}" for name in speed_options_of(backend) or ()}
    refused = [field for field in changes if field.partition(".")[0] not in FREE and field not in speed]
    if speed_options_of(backend) is None:
        refused = [field for field in refused if not field.startswith("options.")]
    if refused and any(store.has_begun(folder) for folder in folders if folder.is_dir()):
        listed = "\n".join(f"  {describe(field, *changes[field])}" for field in changes)
        raise RecordError(
            f"the study was edited since its runs in {where} began, in a way that would spoil them:\n{listed}",
            f"Restore {', '.join(refused)}, or give the study another name to start afresh.",
        )
    return changes


def describe(field: str, old: Any, new: Any) -> str:
    """One change on one line."""
    return f"{field}: {_shown(old)} -> {_shown(new)}"


def update_study(study: Study, folder: Path, root: Path, backend: Backend) -> dict[str, tuple[Any, Any]]:
    """Compare a sweep with what `folder` holds of it, keep it there, and return what was changed.

    Raises:
        RecordError: a change that would spoil what was run.
    """
    path = folder / STUDY_FILE
    changes: dict[str, tuple[Any, Any]] = {}
    if STUDY.holds(path):
        earlier = STUDY.load(path)
        runs = earlier.expand() if earlier.has_runs else ()
        changes = study_changes(earlier, study, backend, [root / run_folder(run) for run in runs], folder)
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


def _shown(value: Any) -> str:
    return "none" if value is None else show(value)
