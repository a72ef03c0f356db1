"""Problems of reasoning-gym: different ones, their seed, its scorer; with the real package where it is installed."""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from isocompute_sdk.errors import BackendError
from isocompute_sdk.specs import Data, ProblemSource
from isocompute_sdk.training import problem_sets
from isocompute_sdk.training import problem_sets as generators
from tests.packages import note_installed
from tests.processes import ok

PACKAGE = """
import random
from dataclasses import dataclass


@dataclass
class Config:
    seed: int
    size: int
    largest: int = 9
    spoiled: bool = False


class Sums:
    def __init__(self, config):
        assert config.largest > 0, "largest must be positive"
        self.config = config

    def __getitem__(self, i):
        draw = random.Random(self.config.seed + i)
        a, b = draw.randint(0, self.config.largest), draw.randint(0, self.config.largest)
        terms = (a, b) if self.config.spoiled else [a, b]
        return {"question": f"{a} + {b} =", "answer": str(a + b), "metadata": {"terms": terms}}

    def score_answer(self, answer, entry):
        terms = entry["metadata"]["terms"]
        return float(answer == entry["answer"] and isinstance(terms, tuple if self.config.spoiled else list))


DATASETS = {"sums": (Sums, Config)}


def create_dataset(name, seed=0, size=1, **settings):
    return Sums(Config(seed=seed, size=size, **settings))
"""
Command = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A package with the interface of reasoning-gym, whose own pins keep it out of this environment."""
    place = tmp_path / "site" / "reasoning_gym"
    place.mkdir(parents=True)
    (place / "factory.py").write_text(PACKAGE)
    (place / "__init__.py").write_text("from .factory import create_dataset\n")
    note_installed(tmp_path / "site", "reasoning-gym", "9")
    monkeypatch.syspath_prepend(tmp_path / "site")
    forget()
    yield
    forget()


def forget() -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "reasoning_gym"]:
        del sys.modules[name]


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_train_and_held_out_problems_differ_and_are_drawn_again_the_same(
    package: None, isocompute: Command, tmp_path: Path
) -> None:
    words = ["problems", "--from=reasoning-gym:sums", "--limit=80", "--held-out=20", "--seed=3", "--set", "largest=20"]
    ok(isocompute(*words, "--template", "Work out {prompt}"))
    train, validation = rows(tmp_path / "train.jsonl"), rows(tmp_path / "validation.jsonl")
    assert (len(train), len(validation)) == (80, 20)
    assert len({row["prompt"] for row in train + validation}) == 100
    assert all(row["id"].startswith("sums-seed3-") for row in train + validation)
    reward = runpy.run_path(str(tmp_path / "reward.py"))["reward"]
    for row in train:
        assert row["prompt"] == f"Work out {row['answer']['question']}"
        right = row["answer"]["answer"]
        said = [right, f" {right}\n", f"so <answer>0</answer> <answer>{right}</answer>", f"1</think>{right}", "-1"]
        assert [reward(row["prompt"], one, row["answer"]) for one in said] == [1.0, 1.0, 1.0, 1.0, 0.0]
    before = (tmp_path / "train.jsonl").read_bytes()
    ok(isocompute(*words, "--template", "Work out {prompt}"))
    assert (tmp_path / "train.jsonl").read_bytes() == before
    other = isocompute(*words[:-1], "largest=30")
    assert other.returncode == 1
    assert "reward.py holds another reward function" in other.stderr


def test_a_generator_that_has_fewer_problems_gives_those_and_says_so(
    package: None, isocompute: Command, tmp_path: Path
) -> None:
    done = isocompute("problems", "--from", "reasoning-gym:sums", "--set", "largest=3", "--limit=50", "--held-out=4")
    assert len(rows(tmp_path / "train.jsonl")) == 12
    assert "note: " in done.stdout


@pytest.mark.parametrize(
    ("source", "settings", "said"),
    [
        ("reasoning-gym:products", {}, "no generator 'products'; accepted: sums"),
        ("reasoning-gym:sums", {"digits": 2}, "no setting 'digits'; accepted: largest, spoiled"),
        ("reasoning-gym:sums", {"largest": 0}, "largest must be positive"),
        ("reasoning-gym:sums", {"spoiled": True}, "saved as JSON"),
    ],
)
def test_what_cannot_be_drawn_is_refused(
    package: None, tmp_path: Path, source: str, settings: dict[str, Any], said: str
) -> None:
    data = Data(train="train.jsonl", validation="validation.jsonl", reward="reward.py")
    with pytest.raises(BackendError, match=said):
        problem_sets.write_files(ProblemSource(dataset=source, settings=settings, validation=2), data, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["site"]


@pytest.mark.skipif(find_spec("reasoning_gym") is None, reason=generators.INSTALL)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["chain_sum", "letter_counting", "number_sorting", "countdown", "knights_knaves"])
def test_the_real_scorer_rates_the_real_answers(tmp_path: Path, name: str) -> None:
    data = Data(train="train.jsonl", validation="validation.jsonl", reward="reward.py", n_problems=8)
    problem_sets.write_files(ProblemSource(dataset=f"reasoning-gym:{name}", validation=4), data, tmp_path)
    reward = runpy.run_path(str(tmp_path / "reward.py"))["reward"]
    train = rows(tmp_path / "train.jsonl")
    assert [reward("", row["answer"]["answer"], row["answer"]) for row in train] == [1.0] * 8
    assert all(reward("", "no idea", row["answer"]) < 1 for row in train)
