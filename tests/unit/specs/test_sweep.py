"""A sweep is the grid within its batch limits, once per seed."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isocompute_sdk.errors import SpecError
from isocompute_sdk.specs import Sweep


def levels(low: int, high: int) -> st.SearchStrategy[tuple[int, ...]]:
    return st.lists(st.integers(low, high), min_size=1, max_size=5, unique=True).map(tuple)


@settings(deadline=None)
@given(levels(2, 64), levels(1, 64), st.integers(1, 4096), st.integers(4096, 10**6), levels(0, 99))
def test_expansion_is_every_allowed_pair_once_per_seed_within_the_length(
    group_size: tuple[int, ...], problems: tuple[int, ...], limit: int, rollouts: int, seeds: tuple[int, ...]
) -> None:
    kept = {(n, bp, s) for n in group_size for bp in problems for s in seeds if n * bp <= limit}
    form = {
        "group_size": group_size,
        "problems_per_batch": problems,
        "rollouts": rollouts,
        "max_rollouts_per_batch": limit,
        "seeds": seeds,
    }
    if not kept:
        with pytest.raises(SpecError):
            Sweep.model_validate(form)
        return
    runs = Sweep.model_validate(form).expand()
    assert len(runs) == len(kept)
    assert {(run.group_size, run.problems_per_batch, run.seed) for run in runs} == kept
    assert all(0 <= rollouts - run.rollouts < run.rollouts_per_batch for run in runs)


def test_a_fixed_batch_keeps_only_pairs_with_that_product() -> None:
    sweep = Sweep(group_size=(8, 16, 32), problems_per_batch=(8, 16, 32), rollouts_per_batch=(256,), update_steps=1)
    assert sweep.pairs == ((32, 8), (16, 16), (8, 32))


def test_runs_keep_the_order_of_the_levels() -> None:
    sweep = Sweep(group_size=(16, 8), problems_per_batch=(64, 32), update_steps=1, seeds=(3, 1))
    cells = [(run.problems_per_batch, run.group_size, run.seed) for run in sweep.expand()]
    assert cells[:3] == [(64, 16, 3), (64, 16, 1), (64, 8, 3)]


@pytest.mark.parametrize(
    ("length", "received"),
    [
        ({}, "neither rollouts nor update_steps"),
        ({"rollouts": 10**6, "update_steps": 5}, "both rollouts and update_steps"),
    ],
)
def test_the_length_is_given_in_exactly_one_way(length: dict[str, int], received: str) -> None:
    with pytest.raises(SpecError, match=f"Sweep: received {received};"):
        Sweep.model_validate({"group_size": 8, "problems_per_batch": 32, **length})


@pytest.mark.parametrize("seed", [-1, 2**32, 1.5, True])
def test_seeds_fit_the_generators_of_the_frameworks(seed: object) -> None:
    with pytest.raises(SpecError, match=r"seeds\[0\]"):
        Sweep.model_validate({"group_size": 8, "problems_per_batch": 32, "update_steps": 5, "seeds": [seed]})


@pytest.mark.parametrize("value", [2, "2", 0])
def test_a_bare_number_of_seeds_is_refused(value: object) -> None:
    with pytest.raises(SpecError, match=r"seeds: .*a list"):
        Sweep.model_validate({"group_size": 8, "problems_per_batch": 32, "update_steps": 5, "seeds": value})
