"""Causes that would end every run, found before the first one starts."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from isocompute_sdk.campaigns.carrying_out import carry_out, check_place
from isocompute_sdk.campaigns.executors import LocalExecutor
from isocompute_sdk.errors import BackendError
from isocompute_sdk.specs import Study
from isocompute_torch import TorchBackend

REWARD = "def score(prompt, response, answer):\n    return 0.0\n"


def runner(*packages: str) -> TorchBackend:
    """The built-in runner, with packages that every interpreter has, and these."""
    backend = TorchBackend()
    backend.packages = ("json", *packages)
    return backend


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Study:
    """A study whose files are all in `tmp_path`."""
    monkeypatch.setenv("PYTHON", sys.executable)
    for name in ("train", "validation"):
        (tmp_path / f"{name}.jsonl").write_text(json.dumps({"prompt": "1 + 1", "answer": "2"}) + "\n")
    (tmp_path / "reward.py").write_text(REWARD)
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    return Study.model_validate(
        {
            "name": "place",
            "model": "model",
            "data": {"train": "train.jsonl", "validation": "validation.jsonl", "reward": "reward.py:score"},
            "recipe": "hard",
            "sweep": {"group_size": [4, 8], "problems_per_batch": 64, "rollouts": 20_000},
            "backend": "torch",
            "options": {"device": "cpu"},
        }
    )


def problems(study: Study, root: Path, backend: TorchBackend | None = None) -> list[str]:
    """What is wrong, one line each; empty if nothing is."""
    try:
        check_place(backend or runner(), study.expand(), root, here=True)
    except BackendError as error:
        return error.message.splitlines()[1:]
    return []


def test_every_problem_is_named_once_for_all_runs(study: Study, tmp_path: Path) -> None:
    (tmp_path / "train.jsonl").unlink()
    (tmp_path / "validation.jsonl").unlink()
    (tmp_path / "validation.jsonl").mkdir()
    (tmp_path / "reward.py").unlink()
    (tmp_path / "model" / "config.json").unlink()
    found = problems(study, tmp_path, TorchBackend())
    assert len(found) == len(set(found)) >= 4
    for name in ("train.jsonl", "validation.jsonl", "reward.py", "config.json"):
        assert sum(name in line for line in found) == 1


def test_a_missing_package_is_named_with_the_interpreter(
    study: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = runner("no_such_framework")
    (line,) = problems(study, tmp_path, elsewhere)
    assert "no_such_framework" in line
    assert "json" not in line
    assert sys.executable in line
    check_place(elsewhere, study.expand(), tmp_path, here=False)
    monkeypatch.setenv("PYTHON", "/no/such/python")
    assert "/no/such/python" in problems(study, tmp_path)[0]


@pytest.mark.parametrize("model", ["./gone", "/no/such/model"])
def test_a_local_model_must_be_there(study: Study, tmp_path: Path, model: str) -> None:
    assert len(problems(study.replace(model=model), tmp_path)) == 1


def test_nothing_is_written_or_started_where_a_cause_is_found(study: Study, tmp_path: Path) -> None:
    (tmp_path / "reward.py").unlink()
    with pytest.raises(BackendError, match=r"reward\.py"):
        carry_out(study.expand(), runner(), LocalExecutor(1), tmp_path)
    assert not (tmp_path / "runs").exists()
