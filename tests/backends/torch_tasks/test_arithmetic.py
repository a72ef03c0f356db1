"""The arithmetic task: the same files for the same settings, whole or not there, and sets of the wanted difficulty."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from isocompute_torch.configuration import InputError, RunFailed
from isocompute_torch.tasks import arithmetic, prepare
from isocompute_torch.tasks.folder import KINDS, MANIFEST, Kind, make_whole


def hasty(folder: Path, seed: int) -> Path:
    """A hard set from a model of one layer that saw twenty batches: the shortest way to a whole task."""
    shape = {"hidden_size": 32, "layers": 1, "feed_forward": 16}
    make_whole(folder, lambda partial: arithmetic.make_task(partial, "mul31", "hard", seed, pass_rate=0.0, **shape))
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_seed_decides_the_files_and_no_validation_prompt_is_trained_on(tmp_path: Path) -> None:
    first, again, other = (hasty(tmp_path / name, seed) for name, seed in (("a", 3), ("b", 3), ("c", 4)))
    assert contents(first) == contents(again)
    changed = contents(other)
    assert {name for name, data in contents(first).items() if data != changed[name]} == {
        "model/model.safetensors",
        "train.jsonl",
        "validation.jsonl",
        "task.json",
    }
    train, validation = (
        [json.loads(line) for line in (first / f"{name}.jsonl").read_text().splitlines()]
        for name in ("train", "validation")
    )
    task = json.loads((first / MANIFEST).read_text())
    assert (len(train), len(validation)) == (task["measured"]["train"]["problems"], 200)
    assert len({row["prompt"] for row in train + validation}) == len(train) + len(validation)
    assert prepare(first, kind="hard", seed=3) == task
    with pytest.raises(InputError, match="other settings"):
        prepare(first, kind="easy", seed=3)


def test_a_folder_with_anything_else_in_it_is_left_alone_and_half_a_task_is_never_there(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    for place in (tmp_path, tmp_path / "notes.txt"):
        with pytest.raises(InputError, match=r"task\.json"):
            prepare(place)

    def stopped(partial: Path) -> dict[str, Any]:
        (partial / "train.jsonl").touch()
        raise RunFailed("stopped", "")

    with pytest.raises(RunFailed):
        make_whole(tmp_path / "task", stopped)
    assert contents(tmp_path) == {"notes.txt": b"mine"}
    with pytest.raises(InputError, match="mul32"):
        prepare(tmp_path / "task", family="mul32")


def pool(seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {"passes_P": rng.integers(0, 12, 400), "held_out_P": rng.random(400) < 0.5}


@given(seed=st.integers(0, 10_000), kind=st.sampled_from(KINDS), validation=st.sampled_from([2, 10]))
def test_validation_problems_are_never_trained_on_and_all_have_the_wanted_difficulty(
    seed: int, kind: Kind, validation: int
) -> None:
    counts = pool(seed)
    chosen = arithmetic.choose(**counts, kind=kind, rng=np.random.default_rng(seed), validation=validation)
    easy_P = (counts["passes_P"] >= 5) & (counts["passes_P"] <= 9)
    hard_P = counts["passes_P"] <= 1
    assert not set(chosen.train_P) & set(chosen.validation_P)
    assert len(set(chosen.train_P)) == len(chosen.train_P)
    assert len(chosen.validation_P) == len(set(chosen.validation_P)) == validation
    assert counts["held_out_P"][chosen.validation_P].all()
    for positions in (chosen.train_P, chosen.validation_P):
        shares = {"easy": easy_P[positions].mean(), "hard": hard_P[positions].mean()}
        wanted = {"easy": (1, 0), "hard": (0, 1), "mixed": (0.5, 0.5)}[kind]
        assert (shares["easy"], shares["hard"]) == pytest.approx(wanted, abs=0.5 / len(positions) + 1e-9)
    if kind == "easy":
        # Every problem of the band that is not held out for validation is trained on.
        assert len(chosen.train_P) + validation == easy_P.sum()


def test_too_few_problems_held_out_of_the_warm_up_are_counted_in_the_message() -> None:
    counts = {"passes_P": np.full(20, 8), "held_out_P": np.arange(20) < 3}
    with pytest.raises(RunFailed, match=r"20 easy problems, 3 .* 4 "):
        arithmetic.choose(**counts, kind="easy", validation=4, rng=np.random.default_rng(0))
