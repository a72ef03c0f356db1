"""`isocompute audit` on the kind of logs that people have."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.parameters import few
from tests.processes import ok

Command = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """A sweep with a column of remarks, a file without n, a packed one, a model with one short run."""
    folder = tmp_path / "logs"
    folder.mkdir()
    rng = np.random.default_rng(0)
    lines = ["run,num_generations,Bp,step,reward,model,remarks"]
    for n in (8, 64):
        for step in (0, *np.unique(np.geomspace(4, 2e6 / n / 32, 12).astype(int)).tolist()):
            reward = 0.3 + (0.1 + 0.03 * np.log2(n)) * -np.expm1(-step * n * 32 / (4e3 * n)) + 0.004 * rng.normal()
            lines.append(f"a{n},{n},32,{step},{reward:.4f},Qwen,new cluster")
    (folder / "qwen.csv").write_text("\n".join(lines) + "\n")
    (folder / "short.csv").write_text("num_generations,Bp,step,reward,model\n16,32,0,.1,Llama\n16,32,9,.2,Llama\n")
    (folder / "broken.csv").write_text("step,reward\n0,.1\n1,.2\n")
    (folder / "more.csv.zst").write_bytes(b"")
    return folder


def test_messy_logs_are_audited_and_what_takes_no_part_is_named(isocompute: Command, logs: Path) -> None:
    done = ok(isocompute("audit", "logs", "--rename", "num_generations=n", "--plot", "p", "--output", "audit.json"))
    text = " ".join(done.stdout.split())
    assert "n = 64 is best of those that were run" in text or "n = 64 is ahead" in text
    assert "Not fitted: 1 evaluation" in text
    assert "groups 2 and 1 differ in model (Llama and Qwen)" in text
    assert "broken.csv: no column group_size" in text
    assert "more.csv.zst" in text
    assert "column remarks" in text
    assert (logs.parent / "p" / "audit_1.png").stat().st_size > 10_000
    again = isocompute("audit", "logs", "--rename", "num_generations=n", "--json")
    document = json.loads(again.stdout)
    assert document == json.loads((logs.parent / "audit.json").read_text())
    assert [len(group["runs"]) for group in document["groups"]] == [2, 1]


def test_a_long_run_name_is_printed_whole_at_80_columns(isocompute: Command, logs: Path) -> None:
    name = "qwen2.5-7b_grpo_easy_n64_bp32_lr1e-6_kl0.001_2026-03-01"
    (logs / "qwen.csv").write_text((logs / "qwen.csv").read_text().replace("a64,", f"{name},"))
    done = isocompute("audit", "logs/qwen.csv", "--rename", "num_generations=n", columns=80)
    lines = done.stdout.splitlines()
    assert lines[lines.index(f"  {name}") + 1].split()[:3] == ["64", "x", "32"]
    assert max(map(len, lines)) <= 80


def test_the_doctor_leads_to_a_fit_of_runs_that_average_over_other_samples(isocompute: Command, tmp_path: Path) -> None:
    rows = [f"{n},32,{step},avg@{n},{0.1 + 0.01 * step}" for n in (8, 16) for step in range(0, 40, 4)]
    (tmp_path / "runs.csv").write_text("\n".join(["n,Bp,step,metric,value", *rows]) + "\n")
    asked = ok(isocompute("doctor", "runs.csv", "--output", "runs.parquet")).stdout.split("isocompute ")[-1]
    assert asked.split() == ["fit", "runs.parquet", "--metric", "avg@16"]


@pytest.mark.parametrize("n", few([1, 8], 1))
def test_what_to_run_next_is_asked_only_of_runs_with_groups(isocompute: Command, logs: Path, n: int) -> None:
    rows = [f"{n},32,{step},{0.1 + 0.01 * step}" for step in range(0, 40, 4)]
    (logs / "one.csv").write_text("\n".join(["num_generations,Bp,step,reward", *rows]) + "\n")
    # With n = 1 the doctor says at once that nothing can be planned, and leads to what can be asked.
    looked = json.loads(ok(isocompute("doctor", "logs/one.csv", "--json")).stdout)
    assert bool(looked["remarks"]) is (n == 1)
    asked = ok(isocompute("doctor", "logs/one.csv", "--output", "one.parquet")).stdout.split("isocompute ")[-1]
    assert ok(isocompute(*asked.split())).stdout
    assert asked.startswith("forecast") is (n == 1)
    done = ok(isocompute("audit", "logs/one.csv"))
    printed = [words.split() for words in done.stdout.split("isocompute next")[1:]]
    assert [words[0] for words in printed] == ["logs/one.csv"] * (n > 1)
    assert all(isocompute("next", *words).returncode == 0 for words in printed)
    assert isocompute("next", "logs/one.csv", "--budget", "1M").returncode == (n == 1)
