"""Training and validation problems of a wanted difficulty, never shared."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from isocompute_torch.configuration import RunFailed
from isocompute_torch.tasks import KINDS, Kind
from isocompute_torch.tasks.build import choose


def pool(seed: int, problems: int = 400) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {"passes_P": rng.integers(0, 12, problems), "samples": 16, "held_out_P": rng.random(problems) < 0.5}


@given(seed=st.integers(0, 10_000), kind=st.sampled_from(KINDS), validation=st.sampled_from([2, 10]))
def test_validation_problems_are_never_trained_on_and_all_have_the_wanted_difficulty(
    seed: int, kind: Kind, validation: int
) -> None:
    counts = pool(seed)
    chosen = choose(**counts, kind=kind, validation=validation, rng=np.random.default_rng(seed))
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


def test_a_set_takes_every_problem_of_its_band_that_is_not_held_out_for_validation() -> None:
    counts = pool(0)
    chosen = choose(**counts, kind="easy", validation=30, rng=np.random.default_rng(0))
    easy = np.flatnonzero((counts["passes_P"] >= 5) & (counts["passes_P"] <= 9))
    assert sorted([*chosen.train_P, *chosen.validation_P]) == easy.tolist()
    assert chosen.train_P.tolist() != sorted(chosen.train_P)


def test_too_few_problems_held_out_of_the_warm_up_are_counted_in_the_message() -> None:
    counts = {"passes_P": np.full(20, 8), "samples": 16, "held_out_P": np.arange(20) < 3}
    with pytest.raises(RunFailed, match=r"20 easy problems, 3 .* 4 "):
        choose(**counts, kind="easy", validation=4, rng=np.random.default_rng(0))
