"""Runs to launch, the real parser, and a `python3` that records instead of running."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from isocompute_openrlhf import OpenRLHFBackend, payload
from isocompute_openrlhf.flags import MISREAD_IN_PATHS
from isocompute_sdk.specs import Data, Evaluation, RunSpec
from tests.backends.framework_runs import Recorder, run_maker
from tests.backends.openrlhf.inputs import REWARD, problems, write_inputs, write_jsonl, write_site
from tests.backends.openrlhf.real_parser import RealParser
from tests.backends.programs import load

claim_folder, problem_rows, prepare_rows = load("claim_folder"), load("problem_rows"), load("prepare_rows", payload)


@pytest.fixture(scope="session")
def openrlhf() -> OpenRLHFBackend:
    return OpenRLHFBackend()


@pytest.fixture(scope="session")
def make_run() -> Callable[..., RunSpec]:
    return run_maker()


@pytest.fixture
def record_script(tmp_path: Path) -> Recorder:
    return Recorder(tmp_path / "stub-bin")


@pytest.fixture
def prepare(tmp_path: Path) -> Callable[..., Path]:
    """Write inputs and a request, claim and prepare the run folder, and return it."""
    folder = tmp_path / "run"

    def run(train: Any = None, validation: Any = None, *, reward: str = REWARD, **request: Any) -> Path:
        folder.mkdir(exist_ok=True)
        for name, rows in {"train": train or problems(6), "validation": validation or problems(3, "v")}.items():
            path = tmp_path / f"{name}.jsonl"
            path.write_text(rows) if isinstance(rows, str) else write_jsonl(path, rows)
        (tmp_path / "reward.py").write_text(reward)
        data = {"train": "train.jsonl", "validation": "validation.jsonl", "reward": "reward.py"}
        data |= {"prompt_key": None, "answer_key": None, "n_problems": None} | request.pop("data", {})
        settings = {"problems_per_batch": 4, "update_steps": 5, "seed": 0}
        settings = {name: request.pop(name, value) for name, value in settings.items()}
        settings |= {"data": data, "evaluation": {"n_problems": request.pop("validation_problems", None)}}
        own = {"chat_template": True, "nodes": 1} | request
        framework = {"framework": "OpenRLHF", "version": "0.11.2"}
        framework |= {"misread_in_paths": MISREAD_IN_PATHS}
        document = {**framework, "run": settings, "identity": settings | own, **own}
        (folder / ".request.json.new").write_text(json.dumps(document))
        claim_folder.claim(folder, tmp_path)
        problem_rows.prepare(folder, prepare_rows.row)
        return folder

    return run


@pytest.fixture(scope="session")
def small(make_run: Callable[..., RunSpec]) -> RunSpec:
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


@pytest.fixture
def site(tmp_path: Path, real_parser: RealParser) -> Path:
    return write_site(tmp_path / "site", real_parser)


@pytest.fixture
def work(tmp_path: Path, small: RunSpec) -> Path:
    return write_inputs(tmp_path / "work", small)
