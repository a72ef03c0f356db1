"""A run folder that an earlier release wrote, and left at a checkpoint, is read and trained to its end."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from isocompute_sdk.records import RunSet
from isocompute_torch.runner.configuration import load_configuration

EARLIER = Path(__file__).with_name("earlier_run")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The run folder of a copy: PPO on a model of 700 weights, stopped after step 2 of 4."""
    shutil.copytree(EARLIER, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "run"


def test_its_measurements_are_read(folder: Path) -> None:
    assert load_configuration(folder).run.recipe.algorithm == "ppo"
    (series,) = RunSet.read(folder).series("avg@2", "validation")
    assert series.rollouts_T.tolist() == [0, 32]


def test_it_resumes_from_its_checkpoint(
    folder: Path, start: Callable[..., tuple[int, str]], records: Callable[..., list[dict[str, Any]]]
) -> None:
    before = records(folder)[1:]
    status, output = start(folder)
    assert status == 0, output
    after = records(folder)
    assert after[1 : len(before) + 1] == before
    assert [record["step"] for record in after if record["kind"] == "step"] == [1, 2, 3, 4]
    assert after[-1]["status"] == "finished"
    assert after[0]["attempt"] == 2
