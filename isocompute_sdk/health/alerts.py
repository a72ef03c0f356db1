"""`AlertBook`: which alerts have been given, so that each is given once, also after a restart of who watches."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from isocompute_sdk import files
from isocompute_sdk.fitting.fits import Fits
from isocompute_sdk.health.detectors import detect
from isocompute_sdk.health.diagnosis import notes_by_run
from isocompute_sdk.health.predicted_band import band_findings
from isocompute_sdk.health.traces import RunTraces
from isocompute_sdk.notes import Note, Severity

SCHEMA_VERSION = 1
Key = tuple[str, str, str, str]
"""Folder, run, code and severity."""
ATTEMPTS = 3
"""Times an alert is handed to a command that fails."""


@dataclass(frozen=True)
class PlannedRun:
    """What runs of a plan are known by, and what predicts them."""

    group_size: int
    problems_per_batch: int
    fits: Fits

    def is_it(self, run: RunTraces) -> bool:
        """Whether a run has the plan's n and B_p, as far as it says."""
        return run.group_size == self.group_size and run.problems_per_batch in (None, self.problems_per_batch)


@dataclass(frozen=True)
class Alert:
    """One note on one run, the first time it is seen."""

    note: Note
    run_id: str
    folder: str = ""
    """Where the run's log is: runs of one name in several folders are several runs."""

    def to_dict(self) -> dict[str, Any]:
        """For programs: what a command gets on its standard input."""
        data = dict(self.note.data)
        return {
            "kind": "alert",
            "code": self.note.code,
            "severity": self.note.severity,
            "run_id": self.run_id,
            "folder": self.folder,
            "step": data.get("step"),
            "rollouts": data.get("rollouts"),
            "message": self.note.message,
            "data": data,
        }


@dataclass
class AlertBook:
    """Alerts given so far; kept in a file between starts."""

    path: Path | None
    """None keeps nothing."""
    _given: dict[Key, dict[str, Any]] = field(init=False, default_factory=dict[Key, dict[str, Any]])

    def __post_init__(self) -> None:
        if self.path is not None and self.path.exists():
            raw = files.read_json(self.path, kind="alerts", schema_version=SCHEMA_VERSION)
            for entry in raw["given"]:
                self._given[entry["folder"], entry["run_id"], entry["code"], entry["severity"]] = entry

    def due(self, notes: Mapping[str, Iterable[Note]], folder: str, least: Severity = "warning") -> list[Alert]:
        """Alerts to give: new ones, and those whose command has failed fewer than `ATTEMPTS` times.

        Args:
            notes: notes by run.
            folder: where the logs of these runs are.
            least: `warning`, or `info` for these as well.
        """
        wanted = ("refuse", "warning", "info") if least == "info" else ("refuse", "warning")
        found = [Alert(note, run, folder) for run, some in notes.items() for note in some if note.severity in wanted]
        return [alert for alert in found if self.is_due(alert)]

    def is_new(self, alert: Alert) -> bool:
        """Whether the alert was never given before, by a command or in print."""
        return _key(alert) not in self._given

    def record(self, alert: Alert, *, delivered: bool) -> None:
        """Remember an alert, at once: a kill right after must not give it twice."""
        entry = self._given.get(_key(alert), {"failures": 0})
        self._given[_key(alert)] = {
            "folder": alert.folder,
            "run_id": alert.run_id,
            "code": alert.note.code,
            "severity": alert.note.severity,
            "rollouts": alert.note.data.get("rollouts"),
            "delivered": delivered,
            "failures": entry["failures"] + (not delivered),
        }
        self.save()

    def forget_restarted(self, reached: Mapping[str, float], folder: str) -> None:
        """Forget alerts on runs that have less behind them than when it was given: they began again.

        Args:
            reached: compute of the last measurement by run.
            folder: where the logs of these runs are.
        """
        for where, run_id, *_ in list(self._given):
            told = [e["rollouts"] for k, e in self._given.items() if k[:2] == (where, run_id)]
            if where == folder and any(c is not None and reached.get(run_id, c) < c for c in told):
                self.forget(where, run_id)

    def forget(self, folder: str, run_id: str) -> None:
        """Forget what was told of a run."""
        gone = [key for key in self._given if key[:2] == (folder, run_id)]
        for key in gone:
            del self._given[key]
        if gone:
            self.save()

    def is_due(self, alert: Alert) -> bool:
        """Whether the alert is new, or its command failed and may be tried again."""
        entry = self._given.get(_key(alert))
        return entry is None or (not entry["delivered"] and entry["failures"] < ATTEMPTS)

    def save(self) -> None:
        """Write the file.

        Raises:
            OSError: it cannot be written.
        """
        if self.path is not None:
            document = {"kind": "alerts", "schema_version": SCHEMA_VERSION, "given": list(self._given.values())}
            files.write_json(self.path, document)


def notes_now(runs: Iterable[RunTraces], planned: PlannedRun | None) -> dict[str, tuple[Note, ...]]:
    """What is to be said about runs as they are now, by run."""
    found = {
        run.run_id: (*detect(run), *(band_findings(run, planned.fits) if planned and planned.is_it(run) else ()))
        for run in runs
    }
    return notes_by_run(found)


def _key(alert: Alert) -> Key:
    return alert.folder, alert.run_id, alert.note.code, alert.note.severity
