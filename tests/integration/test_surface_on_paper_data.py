"""The surface on the paper's raw points (fig. 6 left): what it must predict, and how it stands against the law."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

import isocompute_sdk as iso
from isocompute_sdk import Fits, RunSet
from isocompute_sdk.laws import measured_easy


@cache
def fitted(largest: float) -> Fits:
    """Surface on the dots up to a compute."""
    table, context = measured_easy()
    keep = table["C"] <= largest
    return iso.fit(RunSet.from_columns({k: v[keep] for k, v in table.items()}, metric="avg@4", **context))


@pytest.mark.parametrize("n", [256, 512])
def test_dots_at_twice_the_pilot_are_predicted(n: int) -> None:
    table, _ = measured_easy()
    late = (table["n"] == n) & (table["C"] >= 3e6) & (table["C"] <= 4e6)
    measured = float(table["reward"][late].mean())
    compute = float(np.exp(np.log(table["C"][late]).mean()))
    predicted = fitted(1.5e6).predict(compute, n, level=0.8)
    assert predicted.low <= measured <= predicted.high
    assert predicted.high - predicted.low <= 0.10


def test_the_best_group_size_follows_the_published_law_where_both_are_seen() -> None:
    compute = np.geomspace(1.3e6, 4e6, 30)
    found = fitted(np.inf).best_group_size(compute)
    published = iso.published("qwen2.5-7b-instruct/guru-math-easy").law().predict(compute)
    assert np.max(np.abs(np.log2(found / published))) <= 1.0


@pytest.mark.parametrize(("compute", "n"), [(0.5e6, 32), (0.8e6, 32), (0.9e6, 128), (1.25e6, 128)])
def test_the_envelope_of_the_drawn_curves_is_nearly_best(compute: float, n: int) -> None:
    odds = fitted(np.inf).group_size_odds(compute)
    reward = dict(zip(odds.group_size.tolist(), odds.reward.tolist(), strict=True))
    # Up to the noise of one evaluation in the figure.
    assert max(reward.values()) - reward[n] <= 0.012


def test_the_plan_for_the_paper_budget_is_the_grids_top() -> None:
    plan = iso.Planner(fitted(np.inf), recipe=iso.Recipe.preset("easy")).allocate("3M", problems_per_batch=32)
    assert plan.group_size in (256, 512)
    assert plan.predicted_reward is not None
    assert 0.63 < plan.predicted_reward < 0.69
