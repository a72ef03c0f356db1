"""What runs have taken, by purpose, lost attempts included."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from isocompute_sdk.run_folders.starts import START, Start
from isocompute_sdk.timing.spending import Spending, spending


def write(folder: Path, records: list[dict[str, Any]], started: list[float]) -> Path:
    folder.mkdir()
    (folder / "metrics.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))
    starts = [START.to_text(Start(attempt=i + 1, started=at)) for i, at in enumerate(started)]
    (folder / "attempts.jsonl").write_text("".join(starts))
    return folder


def test_every_second_is_counted_once_and_a_killed_attempt_is_lost(tmp_path: Path) -> None:
    first = {"attempt": 1, "rollouts": 0}
    second = {"attempt": 2}
    records: list[dict[str, Any]] = [
        # The second attempt went on from step 1; what the first did after it is gone.
        {**second, "kind": "run", "wall_seconds": 0.0},
        {**first, "kind": "evaluation", "wall_seconds": 30.0, "seconds": {"evaluation": 10}, "sample_counts": [4, 4]},
        {**first, "kind": "step", "rollouts": 64, "wall_seconds": 50.0, "seconds": {"sampling": 12, "training": 7}},
        {**second, "kind": "step", "rollouts": 128, "wall_seconds": 25.0, "seconds": {"sampling": 12, "training": 8}},
        {**second, "kind": "step", "rollouts": 192, "wall_seconds": 46.0, "seconds": {"sampling": 12, "training": 8}},
    ]
    run = write(tmp_path / "a", records, [1000.0, 1100.0])
    found = spending([run])
    assert 3600 * found.training_hours == pytest.approx(20 + 20 + 21)
    assert 3600 * found.evaluation_hours == pytest.approx(10)
    assert 3600 * found.start_hours == pytest.approx(20 + 5)
    assert 3600 * found.lost_hours == pytest.approx(50)
    assert 3600 * found.hours == pytest.approx(100 + 46)
    assert (found.rollouts, found.evaluation_rollouts) == (192, 8)
    assert spending([run, run]) == found + found
    assert spending([tmp_path / "nothing"]) == Spending()
