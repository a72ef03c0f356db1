"""The whole script, run by bash and the real Python, up to and including OpenRLHF's parser and executor.

OpenRLHF's own `train` needs GPUs; fake_train.py stands in for it and says what it imitates.
"""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from isocompute_openrlhf import OpenRLHFBackend
from isocompute_sdk.specs import Data, Evaluation, RunSpec
from tests.backends.openrlhf import fake_train
from tests.backends.openrlhf.real_parser import RealParser, main_block

MakeRun = Callable[..., RunSpec]
REWARD = "def reward(prompt, response, answer):\n    return float(response == str(answer))\n"


@pytest.fixture
def site(tmp_path: Path, real_parser: RealParser) -> Path:
    """A package `openrlhf` of the wheel's own files, with `train` replaced."""
    package = tmp_path / "site" / "openrlhf"
    block = ast.Module(main_block(real_parser.source["cli/train_ppo_ray.py"]), type_ignores=[])
    program = "import argparse\nfrom datetime import datetime\n" + ast.unparse(block)
    files = {name: real_parser.source[name] for name in ("utils/config.py", "utils/agent.py", "utils/logging_utils.py")}
    files |= {"cli/train_ppo_ray.py": Path(fake_train.__file__).read_text() + program}
    files |= {"__init__.py": "", "cli/__init__.py": "", "utils/__init__.py": "", "../aiohttp.py": ""}
    files |= {"../openrlhf-0.11.2.dist-info/METADATA": "Metadata-Version: 2.1\nName: openrlhf\nVersion: 0.11.2\n"}
    for name, text in files.items():
        path = package / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return package.parent


@pytest.fixture
def small(make_run: MakeRun) -> RunSpec:
    return make_run(
        run_id="tiny",
        data=Data(train="train $(x).jsonl", validation="val'.jsonl", reward="my reward.py"),
        group_size=2,
        problems_per_batch=3,
        update_steps=7,
        evaluation=Evaluation(every_steps=3, samples=4, n_problems=2),
        output_dir="out $(put) 'here'",
        options={"save_every_steps": 2},
    )


def start(run: RunSpec, site: Path, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    (folder / "launch.sh").write_text(OpenRLHFBackend().script(run))
    env = {**os.environ, "PYTHON": sys.executable, "PYTHONPATH": str(site), **environment}
    return subprocess.run(["bash", "launch.sh"], cwd=folder, env=env, capture_output=True, text=True, check=False)


@pytest.fixture
def work(tmp_path: Path, small: RunSpec) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    for name, count in ((small.data.train, 5), (small.data.validation, 4)):
        rows = [{"id": f"{name[:3]}{i}", "question": f"{i} + {i}?", "answer": 2 * i} for i in range(count)]
        (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / small.data.reward).write_text(REWARD)
    return folder


def samples(work: Path) -> list[dict[str, Any]]:
    files = sorted(work.glob("out*/tiny/samples.*.jsonl"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def summary(work: Path) -> dict[str, Any]:
    (path,) = work.glob("out*/tiny/model/summary.json")
    return json.loads(path.read_text())


def test_a_run_makes_exactly_m_steps_and_records_every_sample(small: RunSpec, site: Path, work: Path) -> None:
    finished = start(small, site, work)
    assert finished.returncode == 0, finished.stderr
    result = summary(work)
    assert (result["steps"], result["rows"]) == (7, 21)
    assert result["rewards"] == [[1.0, 0.0] * 3] * 7
    found = samples(work)
    train = [record for record in found if record["split"] == "train"]
    validation = [record for record in found if record["split"] == "validation"]
    assert len(train) == small.rollouts == 2 * 3 * 7
    assert Counter(record["id"] for record in validation) == {"val0": 8, "val1": 8}  # two evaluations of four samples
    assert {record["id"] for record in train} == {f"tra{i}" for i in range(5)}
    assert sum(record["score"] for record in found) == len(found) / 2
    assert all(record["error"] is None for record in found)
    assert not (work / "x").exists()


def test_the_same_script_goes_on_after_a_kill(small: RunSpec, site: Path, work: Path) -> None:
    killed = start(small, site, work, STOP_AFTER_STEP="5")
    assert killed.returncode == 9
    finished = start(small, site, work)
    assert finished.returncode == 0, finished.stderr
    assert "training goes on after update step 4" in finished.stderr
    assert (summary(work)["started"], summary(work)["steps"]) == (4, 7)
    by_attempt = Counter(record["attempt"] for record in samples(work) if record["split"] == "train")
    assert by_attempt == {1: 5 * 6, 2: 3 * 6}


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("train $(x).jsonl", '{"question": "a"}\n', "no answer key"),
        ("val'.jsonl", '{"question": "a", "prompt": "b", "answer": 1}\n', "several prompt keys"),
        ("my reward.py", "def reward(prompt): return 1.0\n", "cannot be called with"),
        ("my reward.py", "def reward(p, r, a): return a.missing\n", "every sample would score 0.0"),
    ],
)
def test_bad_input_stops_the_script_before_training(
    small: RunSpec, site: Path, work: Path, name: str, text: str, message: str
) -> None:
    (work / name).write_text(text)
    finished = start(small, site, work)
    assert finished.returncode == 2
    assert message in finished.stderr
    assert not list(work.glob("out*/tiny/model"))


def test_an_openrlhf_of_another_version_stops_the_script(small: RunSpec, site: Path, work: Path) -> None:
    (site / "openrlhf-0.11.2.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: openrlhf\nVersion: 0.11.3\n"
    )
    finished = start(small, site, work)
    assert finished.returncode == 2
    assert "OpenRLHF 0.11.3 is installed" in finished.stderr


def test_a_working_folder_that_openrlhf_would_misread_stops_the_script(
    small: RunSpec, site: Path, work: Path, tmp_path: Path
) -> None:
    odd = work.rename(tmp_path / "a,b")
    finished = start(small, site, odd)
    assert finished.returncode == 2
    assert "OpenRLHF would split the path there" in finished.stderr
