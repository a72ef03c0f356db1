"""Whole runs that sample with vLLM, as processes: what they record, and that they go on after being killed."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from isocompute_sdk.run_folders import journal_records
from isocompute_torch.runner.checkpoint import latest_step

pytestmark = pytest.mark.vllm


def start(folder: Path) -> subprocess.Popen[bytes]:
    with (folder / "output").open("wb") as output:
        return subprocess.Popen(
            [sys.executable, "-m", "isocompute_torch.train", str(folder)], stdout=output, stderr=subprocess.STDOUT
        )


def finish(folder: Path) -> None:
    assert start(folder).wait(timeout=300) == 0, (folder / "output").read_text()[-4000:]


def what_was_recorded(folder: Path) -> list[tuple[Any, ...]]:
    records = journal_records.read(folder / "metrics.jsonl")
    return [(r["kind"], r.get("step"), r.get("rollouts"), r.get("eval_set")) for r in records]


def test_a_killed_run_goes_on_to_the_same_steps_and_records_as_a_whole_one(
    prepared: Callable[[str, str], Path], model_folder: Path
) -> None:
    whole, killed = prepared("whole", str(model_folder)), prepared("killed", str(model_folder))
    finish(whole)
    records = journal_records.read(whole / "metrics.jsonl")
    first, steps = records[0], [record for record in records if record["kind"] == "step"]
    assert "vllm" in first["versions"]
    assert [record["step"] for record in steps] == [1, 2, 3, 4, 5, 6]
    for record in steps:
        assert record["seconds"]["sync"] > 0
        # Engine and trainer hold the same weights in every step, or this would not be 1.
        assert record["metrics"]["importance_weight_mean"] == pytest.approx(1.0, abs=1e-3)
    assert len([record for record in records if record["kind"] == "evaluation"]) == 3 * 2
    assert records[-1]["status"] == "finished"

    process = start(killed)
    deadline = time.monotonic() + 300
    while latest_step(killed) is None and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.001)
    process.kill()
    assert process.wait() == -signal.SIGKILL
    finish(killed)
    assert what_was_recorded(killed) == what_was_recorded(whole)
    assert (killed / "model" / "model.safetensors").stat().st_size > 0
