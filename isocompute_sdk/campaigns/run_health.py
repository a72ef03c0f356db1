"""Health of the runs of a study: at their end, and while they train for those that are to end early."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path

from isocompute_sdk.errors import IsoComputeError, SpecError
from isocompute_sdk.health import Health
from isocompute_sdk.health.advice import ADVICE
from isocompute_sdk.health.batch_quality import nothing_learned
from isocompute_sdk.health.detectors import detect
from isocompute_sdk.health.traces import gather
from isocompute_sdk.records import RunSet
from isocompute_sdk.training.backend import Backend

NOTHING_LEARNED = "nothing-learned"
"""Code of the note that makes a finished run no success."""
EARLY_UPDATES = 50
"""Logged updates without any gradient after which a run that goes on counts as learning nothing."""


FEWEST_UPDATES = 10
"""The same in the short runs that check a recipe."""


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
    """A function that returns why a run is to end early, "" if it is not; None without codes.

    Raises:
        SpecError: a code that no detector gives.
    """
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
        found = [one for run in gather(records) for one in (*detect(run), *nothing_learned(run, EARLY_UPDATES))]
        bad = next((one for one in found if one.code in codes and one.severity != "info"), None)
        return "" if bad is None else f"ended early [{bad.code}]: {ADVICE[bad.code].title}; {bad.seen}"

    return look


def records_of(backend: Backend, folder: Path) -> RunSet | None:
    """What a run has logged; None if it cannot be read."""
    try:
        return backend.read_records(folder)
    except IsoComputeError:
        return None


def checked_early(records: RunSet, codes: Collection[str]) -> dict[str, str]:
    """Warnings with these codes in one short run: code -> what was seen."""
    found = [one for run in gather(records) for one in (*detect(run), *nothing_learned(run, FEWEST_UPDATES))]
    return {one.code: one.seen for one in found if one.code in codes and one.severity != "info"}
