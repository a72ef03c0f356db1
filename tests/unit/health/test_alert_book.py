"""Alerts given once are remembered in a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from isocompute_sdk.errors import IsoComputeError
from isocompute_sdk.health.alerts import ATTEMPTS, Alert, AlertBook
from isocompute_sdk.notes import Note

DRIFT = Alert(Note("kl-drift", "warning", "m", {"step": 3.0, "rollouts": 96.0}), "run", "folder")


def test_a_failed_delivery_is_tried_again_a_few_times_across_restarts(tmp_path: Path) -> None:
    path = tmp_path / "alerts.json"
    for _ in range(ATTEMPTS):
        book = AlertBook(path)
        assert book.is_due(DRIFT)
        book.record(DRIFT, delivered=False)
    assert not AlertBook(path).is_due(DRIFT)


def test_a_run_that_began_again_is_alerted_again(tmp_path: Path) -> None:
    book = AlertBook(tmp_path / "alerts.json")
    book.record(DRIFT, delivered=True)
    book.forget_restarted({"run": 96.0}, "folder")
    assert not book.is_due(DRIFT)
    book.forget_restarted({"run": 32.0}, "folder")
    assert book.is_due(DRIFT)


def test_a_changed_file_is_refused_with_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "alerts.json"
    AlertBook(path).record(DRIFT, delivered=True)
    assert not AlertBook(path).is_new(DRIFT)
    path.write_text(path.read_text().replace("true", "false"))
    with pytest.raises(IsoComputeError, match="Remove the file"):
        AlertBook(path)
