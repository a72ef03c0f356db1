"""The built-in runner behind the SDK: runs carried out, read, resumed; and the quickstart as a newcomer meets it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from isocompute_sdk.campaigns.campaign import Campaign
from isocompute_sdk.campaigns.carrying_out import carry_out
from isocompute_sdk.campaigns.executors import LocalExecutor
from isocompute_sdk.records import RunSet
from isocompute_sdk.run_folders import journal_records, store
from isocompute_sdk.specs import Data, Evaluation, Recipe, Study, Sweep
from isocompute_sdk.training import registry
from isocompute_torch.tasks.arithmetic import build_model, build_tokenizer
from tests.processes import wait_for

REWARD = """
def reward(prompt, response, answer):
    return float(response[:1] == answer)
"""
WALL_CLOCK = {"wall_seconds", "seconds", "attempt", "versions"}


def made(folder: Path) -> Path:
    """The folder with a random tiny model and problems whose answer is one digit."""
    folder.mkdir(exist_ok=True)
    tokenizer = build_tokenizer()
    build_model(0, hidden_size=32, layers=1).save_pretrained(folder / "model")
    tokenizer.save_pretrained(folder / "model")
    for name, numbers in (("train", range(100, 132)), ("validation", range(200, 208))):
        rows = [{"prompt": f"{n}*2=", "answer": "7"} for n in numbers]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "reward.py").write_text(REWARD)
    return folder


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the study was carried out."""
    folder = made(tmp_path_factory.mktemp("whole"))
    results = carry_out(make_study().expand(), registry.load("torch"), LocalExecutor(2), folder)
    assert [(result.exit_code, result.started) for result in results] == [(0, True), (0, True)]
    return folder


def make_study() -> Study:
    return Study(
        name="small",
        model="model",
        data=Data(train="train.jsonl", validation="validation.jsonl", reward="reward.py"),
        recipe=Recipe.preset(
            "hard", learning_rate_anchor=3e-2, temperature=1.0, max_response_tokens=2, min_problems_per_batch=4
        ),
        sweep=Sweep(group_size=(2, 8), problems_per_batch=(4,), rollouts=320),
        evaluation=Evaluation(every_steps=5, temperature=1.0),
        backend="torch",
        options={"threads": 1, "device": "cpu", "probe_problems": 4, "save_every_steps": 5},
    )


def records(folder: Path) -> list[dict[str, object]]:
    return [
        {k: v for k, v in one.items() if k not in WALL_CLOCK} for one in journal_records.read(folder / "metrics.jsonl")
    ]


@pytest.mark.slow
def test_a_campaign_fits_best_at_k_beside_its_reward(place: Path, tmp_path: Path) -> None:
    root, study = shutil.copytree(place, tmp_path / "copy"), make_study().replace(budget=2_000)
    fits = Campaign(study, root, executor=LocalExecutor(1), fit_options={"pool": ("learning_rate",)}).fit()
    assert fits.metric == "avg@4"
    assert fits.runs is not None
    # What it logs besides says its speed.
    assert {"avg@4", "best@2", "best@4", "step_seconds"} <= {*RunSet.from_dict(fits.runs).metrics}


@pytest.mark.slow
def test_the_quickstart_survives_kills_and_reports_what_it_measured(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "from isocompute_sdk.cli import main; main()", "quickstart", "--json"]

    def start() -> subprocess.Popen[str]:
        return subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)

    out = tmp_path / "isocompute-quickstart"
    for reached in ("runs/pilot/n8-bp16-seed0/metrics.jsonl", "plan.json"):
        process = start()
        wait_for((out / reached).exists, process)
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
    process = start()
    document = json.loads(process.communicate()[0])
    assert process.returncode == 0
    plan, comparison = document["plan"], document["comparison"]
    assert plan["rollouts"] > 2 * comparison["largest_compute"]
    assert comparison["measured"] > 0.8
    assert abs(comparison["error"]) < 0.15
    for name in ("study.yaml", "fits.json", "plan.json", "comparison.json", "refit.json", "launch_openrlhf.sh"):
        assert (out / name).stat().st_size > 100, name
    assert len(list(out.glob("pictures/*/*.png"))) == 4
    states = {store.RunWatch(run).status().state for run in store.find_runs(out)}
    assert states == {"finished"}
    # Nothing is trained again, and the answer is the same.
    process = start()
    again = json.loads(process.communicate()[0])
    assert (again["plan"], again["comparison"]) == (plan, comparison)
