"""The tutorial's log format: its files as written there, found through a distribution that isocompute does not know."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.backends.third_party.tutorials import contract, install

Command = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def site(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the tutorial's package, in which our command finds it."""
    written = install(repository / "tutorials" / "03_add_a_log_format.md", tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    assert written == {"pyproject.toml", "coin_logs/__init__.py"}
    return tmp_path


def write_run(folder: Path, n: int, attempts: tuple[range, ...] = (range(1, 41),)) -> None:
    """What CoinRL leaves: settings, and one line for each update, those of a resumed attempt behind the others."""
    folder.mkdir(parents=True)
    settings = {"samples_per_question": n, "questions": 32, "base_model": "coin", "optimizer": {"lr": 1e-6}}
    settings |= {"sampler": {"temperature": 0.7}, "drop_equal_groups": True}
    (folder / "config.json").write_text(json.dumps(settings))
    with (folder / "progress.ndjson").open("w") as log:
        for steps in attempts:
            for step in steps:
                row: dict[str, Any] = {"update": step, "reward": step / 100, "reward/accuracy": 0.9}
                row |= {"tokens_per_response": 100.0, "update_ms": 2000.0 + 8 * n * 32, "sampling_ms": 1000.0}
                if step % 4 == 0:
                    row |= {"heldout/mean_of_4": 0.3 + step / 200, "heldout/max_of_4": 0.6}
                log.write(json.dumps(row) + "\n")


def test_it_meets_the_contract_of_every_format(site: Path, repository: Path) -> None:
    assert contract(site, repository, "coinrl", "tests/unit/ingest/formats/test_log_formats.py") >= 5


def test_its_runs_are_read_stitched_and_timed(site: Path, isocompute: Command) -> None:
    for n in (2, 8, 32):
        write_run(site / "runs" / f"n{n}", n)
    write_run(site / "resumed" / "a", 8, (range(1, 31), range(21, 41)))
    read = isocompute("doctor", "runs", "resumed", "--output", "runs.jsonl", "--json")
    assert read.returncode == 0, read.stderr
    rows = [json.loads(line) for line in (site / "runs.jsonl").read_text().splitlines()]
    assert {row["metric"] for row in rows} == {
        "avg@4",
        "best@4",
        "train_reward",
        "response_length",
        "step_seconds",
        "sampling_seconds",
    }
    last = next(row for row in rows if row["run_id"] == "a" and row["step"] == 40)
    assert (last["rollouts"], last["rollouts_spent"]) == (40 * 256, 50 * 256)
    assert (last["model"], last["temperature"], last["filter"]) == ("coin", 0.7, "zero-variance")
    (seconds,) = {row["value"] for row in rows if row["run_id"] == "n2" and row["metric"] == "step_seconds"}
    assert seconds == pytest.approx(2.512)
    timed = isocompute("doctor", "--speed", "runs", "--json")
    assert timed.returncode == 0, timed.stderr
    assert json.loads(timed.stdout)["rollouts_per_second"] == pytest.approx(125.0, rel=0.01)
    looked = isocompute("doctor", "runs", "--json")
    assert [run["group_size"] for run in json.loads(looked.stdout)["runs"]] == ["2", "32", "8"]
