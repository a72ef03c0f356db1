"""specs/paper_*.yaml start: problems from a folder that stands in for the hub, scripts, and their first steps."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from typer.testing import CliRunner

from isocompute_sdk.cli.app import app
from isocompute_sdk.specs import load_study
from isocompute_sdk.training import registry
from isocompute_sdk.training.backend import run_folder
from tests.processes import ok

SPECS = Path(__file__).parents[2] / "specs"
pytestmark = pytest.mark.slow
PAPERS = ("paper_easy", "paper_hard")
FRAMEWORKS = ("openrlhf", "trl", "verl")
FILE = "train/math__combined_54.4k.parquet"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A current folder with the data set, a model and no hub."""
    place = tmp_path_factory.mktemp("paper")
    draw, rows = random.Random(0), list[dict[str, Any]]()
    for i in range(1600):
        rate = draw.choice([0.0, 0.0625, 0.125, 0.25, 0.3125, 0.5, 0.5625, 0.75, 1.0, None])
        rows.append(
            {
                "data_source": "math__merged",
                "prompt": [{"role": "user", "content": f"What is {i} + {i}? Put the final answer in \\boxed{{}}."}],
                "ability": "math",
                "apply_chat_template": True,
                "reward_model": {"ground_truth": str(2 * i), "style": "rule"},
                "extra_info": {"index": i, "split": "train"},
                "qwen2.5_7b_pass_rate": rate,
                "qwen3_30b_pass_rate": 1.0,
            }
        )
    table = place / "LLM360" / "guru-RL-92k" / FILE
    table.parent.mkdir(parents=True)
    pl.DataFrame(rows).write_parquet(table)
    (place / "hub" / "models--Qwen--Qwen2.5-7B-Instruct").mkdir(parents=True)
    return place


PROBLEMS = """
import sys
from isocompute_sdk.cli import main
for spec in sys.argv[1:]:
    sys.argv = ["isocompute", "problems", spec]
    try:
        main()
    except SystemExit as ended:
        if ended.code:
            raise
"""


def write_problems(place: Path, *names: str) -> subprocess.CompletedProcess[str]:
    """`isocompute problems` of these studies, without a hub."""
    env = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(place / "hf"), "HF_HUB_CACHE": str(place / "hub")}
    program = [sys.executable, "-c", PROBLEMS, *(str(SPECS / f"{name}.yaml") for name in names)]
    return subprocess.run(program, cwd=place, env=env, capture_output=True, text=True, check=False)


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture(scope="module")
def written(place: Path) -> Path:
    """The place after `isocompute problems` of every study."""
    ok(write_problems(place, *PAPERS))
    return place


@pytest.mark.parametrize("name", PAPERS)
def test_the_problems_are_those_that_the_study_names(written: Path, name: str) -> None:
    study = load_study(SPECS / f"{name}.yaml")
    assert study.problems is not None
    (low, high) = study.problems.keep["qwen2.5_7b_pass_rate"]
    table = pl.read_parquet(written / "LLM360" / "guru-RL-92k" / FILE)
    kept = table.filter(pl.col("qwen2.5_7b_pass_rate").is_between(low, high))
    right = {row["prompt"][0]["content"]: row["reward_model"]["ground_truth"] for row in kept.iter_rows(named=True)}
    train, held_out = (lines(written / path) for path in (study.data.train, study.data.validation))
    assert len(held_out) == 300
    assert len(train) == len(kept) - 300
    given = {row["prompt"][0]["content"]: row["answer"] for row in (*train, *held_out)}
    assert given == right


@pytest.mark.parametrize("backend", FRAMEWORKS)
@pytest.mark.parametrize("name", PAPERS)
def test_every_backend_takes_the_study_and_its_scripts_start(
    written: Path, name: str, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (SPECS / f"{name}.yaml").read_text()
    spec = written / f"{name}_{backend}.yaml"
    spec.write_text(f"{text}backend: {backend}\noutput_dir: runs_{backend}\n")
    monkeypatch.chdir(written)
    done = CliRunner().invoke(app, ["run", "--prepare", spec.name, "--dry-run", "--json"])
    assert done.exit_code == 0, done.output
    run = next(one for one in load_study(spec).expand() if one.run_id.startswith("n8-bp64"))
    run = run.replace(update_steps=10)
    launch = registry.load(backend).prepare(run, written / run_folder(run))
    stub = written / f"python-{backend}"
    stub.write_text(
        '#!/bin/sh\ncase "$1" in */train.py|-m|*/start_training.py|*/supervise.py) echo "trains" && exit 0;; esac\n'
        f'exec {sys.executable} "$@"\n'
    )
    stub.chmod(0o755)
    environment = {**os.environ, "PYTHON": str(stub), "PYTHONPATH": ""}
    started = subprocess.run(launch.argv, cwd=written, env=environment, capture_output=True, text=True, check=False)
    assert started.returncode == 0, started.stderr
    assert "trains" in started.stdout
    assert len(lines(launch.folder / "train_rows.jsonl")) == 64 * 10
    assert len(lines(launch.folder / "evaluation_rows.jsonl")) == 300


def test_what_is_missing_is_named_with_the_command_that_writes_it(
    isocompute: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    spec = str(SPECS / "paper_easy.yaml")
    refused = isocompute("run", spec)
    assert refused.returncode == 1
    assert f"isocompute problems {spec}" in refused.stderr
    offline = write_problems(tmp_path, "paper_easy")
    assert offline.returncode == 1
    assert f"hf download LLM360/guru-RL-92k {FILE} --repo-type dataset" in " ".join(offline.stderr.split())
    assert not (tmp_path / "data").exists()
