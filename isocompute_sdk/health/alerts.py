"""`AlertBook`: the alerts given so far, kept in a file so that each is given once across restarts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from isocompute_sdk.documents import Document
from isocompute_sdk.fitting.fits import Fits
from isocompute_sdk.health.detectors import detect
from isocompute_sdk.health.findings import notes_by_run
from isocompute_sdk.health.rewards import band_findings
from isocompute_sdk.health.traces import RunTraces
from isocompute_sdk.notes import Note, Severity

Key = tuple[str, str, str, Severity]
"""Folder, run, code and severity."""
ATTEMPTS = 3
"""Times that an alert is passed to a command that fails."""


@dataclass(frozen=True)
class PlannedRun:
    """How a plan's run is recognised, and the fits that predict it."""

    group_size: int
    problems_per_batch: int
    fits: Fits

    def is_it(self, run: RunTraces) -> bool:
        """Whether a run has the plan's n and B_p; an unknown B_p matches."""
        return run.group_size == self.group_size and run.problems_per_batch in (None, self.problems_per_batch)


@dataclass(frozen=True)
class Alert:
    """One note on one run."""

    note: Note
    run_id: str
    folder: str = ""
    """Folder of the run's log: runs of one name in two folders are two runs."""

    def to_dict(self) -> dict[str, Any]:
        """The alert as JSON for programs, such as the command of `status --on-alert`."""
        place = {name: self.note.data.get(name) for name in ("step", "rollouts")}
        return {"kind": "alert", "run_id": self.run_id, "folder": self.folder, **place, **self.note.to_dict()}

    @property
    def key(self) -> Key:
        """What makes two alerts the same."""
        return self.folder, self.run_id, self.note.code, self.note.severity


@dataclass(frozen=True)
class GivenAlert:
    """An alert that was given."""

    folder: str
    run_id: str
    code: str
    severity: Severity
    rollouts: float | None
    """Compute at which the trouble began; None if unknown."""
    delivered: bool
    """Whether the command succeeded; True without a command."""
    failures: Annotated[int, Field(ge=0)]
    """Times that the command failed."""


@dataclass(frozen=True)
class GivenAlerts:
    """Content of the file of an `AlertBook`."""

    given: tuple[GivenAlert, ...]


ALERTS = Document("alerts", 1, GivenAlerts, remedy="Remove the file: every alert is then reported again.")


@dataclass
class AlertBook:
    """The alerts given so far."""

    path: Path | None
    """File in which they are kept. None: they are forgotten at the end of the process."""
    _given: dict[Key, GivenAlert] = field(init=False, default_factory=dict[Key, GivenAlert])

    def __post_init__(self) -> None:
        if self.path is not None and self.path.exists():
            given = ALERTS.load(self.path).given
            self._given = {(one.folder, one.run_id, one.code, one.severity): one for one in given}

    def due(self, notes: Mapping[str, Iterable[Note]], folder: str, least: Severity = "warning") -> list[Alert]:
        """Alerts to give: new ones, and those whose command failed fewer than `ATTEMPTS` times."""
        wanted = ("refuse", "warning", "info") if least == "info" else ("refuse", "warning")
        found = [Alert(note, run, folder) for run, some in notes.items() for note in some if note.severity in wanted]
        return [alert for alert in found if self.is_due(alert)]

    def is_new(self, alert: Alert) -> bool:
        """Whether the alert was never given before."""
        return alert.key not in self._given

    def record(self, alert: Alert, *, delivered: bool) -> None:
        """Remember an alert and write the file, so that a kill right after does not repeat it.

        Raises:
            IsoComputeError: the file cannot be written.
        """
        earlier = self._given.get(alert.key)
        failures = (0 if earlier is None else earlier.failures) + (not delivered)
        self._given[alert.key] = GivenAlert(*alert.key, alert.note.data.get("rollouts"), delivered, failures)
        self.save()

    def forget_restarted(self, reached: Mapping[str, float], folder: str) -> None:
        """Forget alerts on runs that began again: those with less compute now than when the alert was given."""
        for where, run_id, *_ in list(self._given):
            alerted = [one.rollouts for key, one in self._given.items() if key[:2] == (where, run_id)]
            if where == folder and any(c is not None and reached.get(run_id, c) < c for c in alerted):
                self.forget(where, run_id)

    def forget(self, folder: str, run_id: str) -> None:
        """Forget all alerts on a run."""
        gone = [key for key in self._given if key[:2] == (folder, run_id)]
        for key in gone:
            del self._given[key]
        if gone:
            self.save()

    def is_due(self, alert: Alert) -> bool:
        """Whether the alert is new, or its command failed and may be tried again."""
        given = self._given.get(alert.key)
        return given is None or (not given.delivered and given.failures < ATTEMPTS)

    def save(self) -> None:
        """Write the file.

        Raises:
            IsoComputeError: it cannot be written.
        """
        if self.path is not None:
            ALERTS.save(self.path, GivenAlerts(tuple(self._given.values())))


def notes_now(
    runs: Iterable[RunTraces], planned: PlannedRun | None, unsized: Sequence[str] = ()
) -> dict[str, tuple[Note, ...]]:
    """Notes on runs as they are now, by run id; those on runs in `unsized`, whose n or B_p is unknown, name no C."""
    found = {
        run.run_id: (
            *detect(run, live=True),
            *(band_findings(run, planned.fits) if planned and planned.is_it(run) else ()),
        )
        for run in runs
    }
    blank = {"rollouts": None, "noticed_rollouts": None}
    return {
        run: tuple(replace(note, data={**note.data, **blank}) for note in notes) if run in unsized else notes
        for run, notes in notes_by_run(found).items()
    }
