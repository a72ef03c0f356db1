"""Speeds: measured in short runs, or read from logs."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from isocompute_sdk import Throughput
from isocompute_sdk.specs import load_spec
from tests.processes import ok

Command = Callable[..., subprocess.CompletedProcess[str]]
STUDY = """\
name: mine
model: simulation
data: {train: t.jsonl, validation: v.jsonl, reward: r.py}
recipe: {preset: easy}
backend: simulator
options: {clock: true}
hardware: {gpus: 8}
evaluation: {n_problems: 100}
"""


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "study.yaml"
    path.write_text(STUDY)
    return path


def test_a_probe_that_is_run_becomes_a_file_that_a_plan_in_hours_reads(isocompute: Command, study: Path) -> None:
    done = ok(isocompute("run", study, "--probe", "--steps", 30, "--usd-per-gpu-hour", 2))
    for word in ("overhead", "latency floor", "rollouts/s on 8 GPUs", "system batch size", "evaluation"):
        assert word in done.stdout
    found = load_spec(study.parent / "throughput.yaml", Throughput)
    assert found.step_overhead_seconds == pytest.approx(20, rel=0.15)
    assert found.rollouts_per_second == pytest.approx(60, rel=0.15)
    assert found.evaluation_rollouts_per_second is not None
    assert found.measured is not None
    assert found.measured.rollouts_per_batch == (256, 1024, 4096)
    planned = ok(
        isocompute(
            "plan", "--budget", "600 gpu_hours", "--throughput", "throughput.yaml", "--spent", "pilot=100", "--json"
        )
    )
    plan = json.loads(planned.stdout)
    assert plan["cost"] <= 500
    assert plan["gpus"] == 8
    assert plan["usd"] == pytest.approx(2 * plan["gpu_hours"])
    assert plan["breakdown"]["evaluation"]["gpu_hours"] <= 0.05 * plan["breakdown"]["training"]["gpu_hours"]


@pytest.mark.slow
def test_a_probe_that_is_written_is_started_elsewhere_and_read_back(isocompute: Command, study: Path) -> None:
    written = ok(
        isocompute(
            "run", study, "--probe", "--prepare", "--batch", "8x32", "--batch", "8x256", "--batch", "64x128", "--json"
        )
    )
    document = json.loads(written.stdout)
    assert [(run["group_size"], run["problems_per_batch"]) for run in document["runs"]] == [
        (8, 32),
        (8, 256),
        (64, 128),
    ]
    assert {run["update_steps"] for run in document["runs"]} == {10}
    subprocess.run(["bash", document["script"]], check=True, capture_output=True)
    read = ok(isocompute("doctor", "--speed", "runs/mine-probe", "--gpus", 8, "--output", "speed.yaml", "--json"))
    assert json.loads(read.stdout)["measured"]["rollouts_per_batch"] == [256, 2048, 8192]
    assert load_spec(study.parent / "speed.yaml", Throughput).gpus == 8
    for budget in ("3M", "5 gpu_hours"):
        told = isocompute("plan", "--budget", budget, "--throughput", "speed.yaml", "--gpus", 4)
        assert told.returncode == 1
        assert "--gpus 8" in told.stderr
        ok(isocompute("plan", "--budget", budget, "--throughput", "speed.yaml", "--gpus", 8))
        ok(isocompute("plan", "--budget", budget, "--throughput", "speed.yaml", "--gpus", 4, "--gpu-exponent", 1))


def test_a_speed_that_holds_for_one_batch_only_is_no_speed_to_plan_with(isocompute: Command, study: Path) -> None:
    ok(isocompute("run", study, "--probe", "--prepare", "--batch", "2x4"))
    subprocess.run(["bash", "runs/mine-probe/probe.sh"], check=True, capture_output=True)
    shown = ok(isocompute("doctor", "--speed", "runs/mine-probe", "--gpus", 8)).stdout
    assert "isocompute plan" not in shown
    refused = isocompute("plan", "--budget", "5 gpu_hours", "--throughput", "throughput.yaml", "--gpus", 8)
    assert refused.returncode == 1
    options = ["--rollouts-per-second", "--step-overhead-seconds"]
    assert all(option in text for option in options for text in (shown, refused.stderr))
    stated = [word for option in options for word in (option, 10)]
    ok(isocompute("plan", "--budget", "5 gpu_hours", "--gpus", 8, *stated))
