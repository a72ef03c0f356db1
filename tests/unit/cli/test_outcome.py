"""The words about a closed loop follow from its numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from isocompute_sdk import api
from isocompute_sdk.campaigns.campaign import Outcome
from isocompute_sdk.campaigns.prediction_check import Comparison, compare
from isocompute_sdk.cli.quickstart.outcome import describe_outcome, tolerance
from isocompute_sdk.planning import Planner, change_plan
from isocompute_sdk.records import RunSet
from isocompute_sdk.specs import Recipe

PILOT = np.geomspace(1e3, 1e5, 20)
LONG = np.geomspace(1e3, 4e5, 24)
MakeRuns = Callable[..., RunSet]


def loop(make_runs: MakeRuns, gap: float, noise: float = 0.003, surprise: float = 0.0) -> Outcome:
    """Two group sizes whose rewards differ by `gap`; the planned run is `surprise` above what n = 4 does."""

    def reward(n: int, bp: int, compute: float) -> float:
        wobble = noise * np.random.default_rng([n, round(compute)]).normal()
        return 0.4 + (0.4 - gap * np.log2(n / 4) / 4) * compute / (compute + 2e4) + wobble

    fits = api.fit(make_runs(reward, [(4, 16), (64, 16)], PILOT), points="all", draws=20, method="paper")
    recipe = Recipe.preset("hard", min_problems_per_batch=16)
    plan = change_plan(Planner(fits, recipe=recipe).allocate(400_000, spend="all"), {"group_size": 4})
    new = make_runs(lambda n, bp, c: reward(n, bp, c) + surprise, [(4, 16)], LONG, run_id="plan")
    return Outcome(fits, plan, compare(fits, new), api.refit(fits, new))


def test_a_clear_lead_is_called_one_and_the_extrapolated_part_is_named(make_runs: MakeRuns) -> None:
    text = "\n".join(describe_outcome(loop(make_runs, gap=0.2)))
    assert "400,000 rollouts, 4.0 x the largest of the pilot" in text
    assert "inside the interval" in text
    assert "at 100,000 rollouts, where all n were measured: n = 4: 0.7" in text
    assert "n = 4 leads by more than the noise of one evaluation (0.010)" in text
    assert "at 400,000 rollouts, where the curves of n = 64 are extrapolated" in text
    assert "no run of n = 64 went that far" in text
    assert "no budget was seen at which another n than 4 wins" in text
    assert "near-tie" not in text


def test_a_difference_within_the_noise_is_a_near_tie(make_runs: MakeRuns) -> None:
    outcome = loop(make_runs, gap=0.005, noise=0.015)
    assert tolerance(outcome.refitted) == pytest.approx(0.014, abs=0.004)
    text = "\n".join(describe_outcome(outcome))
    assert "near-tie between n = 4 and 64, within the noise of one evaluation (0.01" in text
    # Where n = 64 was not measured its interval is wide: then the answer is that it is not settled.
    assert "is ahead; not settled for n = " in text
    assert "whose intervals overlap" in text
    assert "leads" not in text


def test_another_batch_size_that_does_as_well_is_a_near_tie(make_runs: MakeRuns) -> None:
    def reward(n: int, bp: int, compute: float) -> float:
        worse = 0.1 if bp == 64 else 0.0
        return 0.4 + (0.4 - worse - 0.1 * np.log2(n / 4) / 4) * compute / (compute + 2e4)

    pairs = [(n, bp) for n in (4, 64) for bp in (16, 32, 64)]
    fits = api.fit(make_runs(reward, pairs, PILOT), points="all", draws=20, method="paper")
    recipe = Recipe.preset("hard", min_problems_per_batch=16)
    planned = Planner(fits, recipe=recipe).allocate(400_000, spend="all")
    plan = replace(change_plan(planned, {"group_size": 4, "problems_per_batch": 16}), alternatives=())
    new = make_runs(reward, [(4, 16)], LONG, run_id="plan")
    lines = [
        line for line in describe_outcome(Outcome(fits, plan, compare(fits, new), fits)) if "near-tie with" in line
    ]
    assert [line.partition(" at the same")[0] for line in lines] == [
        "near-tie with that plan: n = 4, B_p = 32, predicted 0.781"
    ]


@pytest.mark.parametrize(("surprise", "side"), [(0.2, "above"), (-0.2, "below")])
def test_a_prediction_that_failed_is_said_to_have_failed(make_runs: MakeRuns, surprise: float, side: str) -> None:
    outcome = loop(make_runs, gap=0.2, surprise=surprise)
    assert not outcome.comparison.inside
    assert f"{side} the interval ({outcome.comparison.error:+.3f}); 80 % intervals miss one in five" in "\n".join(
        describe_outcome(outcome)
    )


def test_a_larger_n_that_overtakes_is_reported_with_its_budget(make_runs: MakeRuns) -> None:
    def reward(n: int, bp: int, compute: float) -> float:
        return 0.4 + (0.1 + 0.05 * np.log2(n)) * compute / (compute + 2e3 * n)

    fits = api.fit(make_runs(reward, [(4, 16), (64, 16)], PILOT), points="all", draws=20, method="paper")
    recipe = Recipe.preset("hard", min_problems_per_batch=16)
    plan = Planner(fits, recipe=recipe).allocate(400_000, spend="all")
    new = make_runs(reward, [(plan.group_size, 16)], LONG, run_id="plan")
    text = "\n".join(describe_outcome(Outcome(fits, plan, compare(fits, new), api.refit(fits, new))))
    assert "the best curve passes from n = 4 to 64 at" in text


def test_a_comparison_is_inside_on_the_edge_and_outside_beyond() -> None:
    seen = Comparison("r", "avg@4", 1.0, 0.5, 0.45, 0.4, 0.5, 0.3)
    assert seen.inside
    assert not replace(seen, measured=0.501).inside
    assert seen.to_dict()["error"] == pytest.approx(0.05)
