"""Databases of Trackio, written by TRL's own callback."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

import pytest

from isocompute_sdk import RunSet
from isocompute_sdk.errors import RecordError

WRITTEN = Path(__file__).parents[1] / "data" / "trackio" / "letters.db"


def test_runs_have_the_trainers_steps_and_the_sizes_of_their_configuration() -> None:
    runs = RunSet.read(WRITTEN.parent)
    found = {run.run_id: (run.group_size, run.problems_per_batch, run.rollouts) for run in runs.runs()}
    # Trackio's own step counts calls of `log`: 64 rows, of which 20 updates were trained.
    assert found == {"letters-g4": (4, 4, 320.0), "letters-g8": (8, 4, 640.0)}
    (one,) = runs.series("avg@8")
    assert one.step_T.tolist() == [0.0, 10.0, 20.0]
    assert one.value_T == pytest.approx([0.0869140625, 0.08203125, 0.1083984375])


def test_databases_of_early_releases_tell_runs_apart_by_name(tmp_path: Path) -> None:
    shutil.copy(WRITTEN, tmp_path / "letters.db")
    with sqlite3.connect(tmp_path / "letters.db") as connection:
        connection.executescript(
            "CREATE TABLE old (id INTEGER PRIMARY KEY, timestamp TEXT, run_name TEXT, step INTEGER, metrics TEXT);"
            "INSERT INTO old SELECT id, timestamp, run_name, step, metrics FROM metrics;"
            "DROP TABLE metrics; ALTER TABLE old RENAME TO metrics;"
            "CREATE TABLE named (id INTEGER PRIMARY KEY, run_name TEXT, config TEXT, created_at TEXT);"
            "INSERT INTO named SELECT id, run_name, config, created_at FROM configs;"
            "DROP TABLE configs; ALTER TABLE named RENAME TO configs;"
        )
    early, now = (RunSet.read(path).to_polars() for path in (tmp_path, WRITTEN.parent))
    assert early.sort("run_id", "metric", "step").equals(now.sort("run_id", "metric", "step"))


def test_a_row_that_is_no_json_is_named_with_its_file(tmp_path: Path) -> None:
    shutil.copy(WRITTEN, tmp_path / "letters.db")
    with sqlite3.connect(tmp_path / "letters.db") as connection:
        connection.execute("UPDATE metrics SET metrics = '{' WHERE id = (SELECT MAX(id) FROM metrics)")
    with pytest.raises(RecordError, match=r"letters\.db"):
        RunSet.read(tmp_path)
