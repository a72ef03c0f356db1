"""Plans from fitted runs: many B_p, odd levels, flat curves, several metrics, other units."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest

import isocompute_sdk as iso
from isocompute_sdk import Budget, Fits, FitsSet, Hardware, PlanError, Planner, Recipe, Throughput, fit
from isocompute_sdk.specs.recipe import PresetName
from tests.unit.sweeps import Make, codes, saturating

SPEED = Throughput(
    step_overhead_seconds=20, rollouts_per_second=64, tokens_per_rollout=1500, gpus=8, usd_per_gpu_hour=2.5
)


@pytest.mark.parametrize("bp", [8, 32, 100, 128, 500, 1024, 4096])
def test_every_b_p_can_be_planned_though_large_groups_were_run_at_small_ones_only(fitted_many: Fits, bp: int) -> None:
    for budget in ("20M", "300M"):
        plan = Planner(fitted_many).allocate(budget, problems_per_batch=bp)
        assert plan.problems_per_batch == bp
        levels = [n for n, at in fitted_many.curves if at == fitted_many.nearest_problems_per_batch(bp)]
        assert (plan.predicted_reward is not None) == (min(levels) <= plan.group_size <= max(levels))


def test_free_b_p_is_the_smallest_that_was_run_at_the_floor_of_a_named_preset_or_above(fitted_many: Fits) -> None:
    assert fitted_many.problems_per_batch == (32, 128, 1024)
    floors: dict[PresetName, int] = {"easy": 32, "hard": 128, "mixture": 128}
    for preset, smallest in floors.items():
        plan = Planner(fitted_many, recipe=Recipe.preset(preset)).allocate("10M")
        assert plan.problems_per_batch == smallest
    assert (
        Planner(fitted_many, Hardware(divisible_by=9), Recipe.preset("easy")).allocate("10M").problems_per_batch == 36
    )


@pytest.mark.parametrize(
    ("levels", "between"), [((5, 12, 48, 100), {8, 16, 32, 64}), ((5, 6, 7), set[int]()), ((1, 2, 3), {2})]
)
def test_a_plan_takes_powers_of_two_or_what_was_run(
    make_runs: Make, levels: tuple[int, ...], between: set[int]
) -> None:
    fits = fit(make_runs(levels=[(n, 32) for n in levels]), draws=0, method="paper")
    for budget in ("50k", "1M", "20M"):
        assert Planner(fits).allocate(budget).group_size in between | {*levels} - {1}
    assert set(fits.candidate_sizes(0)) == between | {*levels} - {1}


def test_what_an_unused_column_of_the_runs_may_hold_is_said_where_it_lacks(make_runs: Make) -> None:
    frame = make_runs().to_polars()
    others = {
        "mean_response_length": 800 + pl.int_range(pl.len()) * 7 % 5,
        "sampled_so_far": pl.col("rollouts") * 800,
        "rng_state": pl.lit(7),
    }
    columns = [frame.with_columns(metric=pl.lit(name), value=one.cast(float)) for name, one in others.items()]
    fits = fit(iso.RunSet(pl.concat([frame, *columns])), "avg@4", draws=0, method="paper")
    for budget, flag, ours, total in (
        ("1B tokens", "--tokens-per-rollout", "response_length", "tokens"),
        ("9 gpu_hours", "--rollouts-per-second", "step_seconds", "timestamp"),
    ):
        with pytest.raises(PlanError, match=f"mean_response_length.*{ours}") as refused:
            Planner(fits).allocate(budget)
        told = str(refused.value.shell_hint)
        assert f"--rename mean_response_length={ours}" in told
        assert f"--rename sampled_so_far={total}" in told
        assert "rng_state" not in told
        assert any(option.startswith(flag) for option in refused.value.options)
    # A total that was taken for the length of one response is no length.
    wrong = pl.concat([frame, columns[1].with_columns(metric=pl.lit("response_length"))])
    with pytest.raises(iso.FitError, match="tokens per rollout"):
        Planner(fit(iso.RunSet(wrong), "avg@4", draws=0, method="paper")).allocate("1B tokens")


def test_a_group_of_one_is_never_planned(make_runs: Make) -> None:
    def reward(n: int, bp: int, c: Any) -> Any:
        return (0.5 if n == 1 else 0.4) - 0.1 * np.exp(-c / 1e5)

    fits = fit(
        make_runs(reward, [(1, 32), (2, 32)]),
        draws=0,
        method="paper",
    )
    assert fits.law().saturation == 1
    assert Planner(fits).allocate("1M").group_size == 2


def test_the_same_budget_in_any_unit_is_the_same_plan(fitted: Fits) -> None:
    planner = Planner(fitted, throughput=SPEED)
    reference = planner.allocate("10M")
    for unit in ("tokens", "gpu_hours", "usd"):
        plan = planner.allocate(Budget.model_validate({unit: reference.costs[unit]}))
        assert (plan.group_size, plan.problems_per_batch, plan.update_steps) == (
            reference.group_size,
            reference.problems_per_batch,
            reference.update_steps,
        )
        assert plan.cost == reference.costs[unit]
        assert plan.costs == reference.costs
    assert planner.allocate("10M") == planner.allocate(1e7) == planner.allocate(Budget(rollouts=10_000_000))


def test_a_token_law_plans_on_the_token_axis() -> None:
    fits = iso.published("qwen2.5-7b-instruct/guru-math-easy:tokens")
    plan = Planner(fits, throughput=SPEED).allocate("1M")
    assert plan.law_group_size == pytest.approx(float(fits.law().predict(1500 * plan.rollouts)))
    short = Planner(fits, throughput=SPEED.model_copy(update={"tokens_per_rollout": 150.0})).allocate("1M")
    assert short.group_size < plan.group_size


def test_flat_curves_say_how_much_is_worth_spending(fitted: Fits) -> None:
    plan, everything = (Planner(fitted).allocate("60M", spend=spend) for spend in ("worthwhile", "all"))
    assert plan.stopping is not None
    assert everything.stopping is None
    assert plan.binding[-1] == "worthwhile"
    assert plan.cost < 0.6 * 60e6
    assert plan.group_size == everything.group_size
    assert plan.predicted_reward is not None
    assert everything.predicted_reward is not None
    gain = everything.predicted_reward - plan.predicted_reward
    assert gain == pytest.approx(plan.stopping.gain, abs=1e-9)
    assert gain < 0.005
    assert everything.cost >= 0.97 * 60e6
    # A step less would lose more than the tolerance.
    less = fitted.predict(plan.group_size * 32 * (plan.update_steps - 1), plan.group_size).mean
    assert everything.predicted_reward - float(less) >= 0.005


def test_the_rest_is_worth_something_where_another_n_would_still_gain(make_runs: Make) -> None:
    # The law saturates at 32 within the data; the curve of 512 takes over beyond.
    reward = saturating({8: 0.50, 32: 0.55, 512: 0.75}, {8: 5e4, 32: 1e5, 512: 3e6}, 0.4)
    fits = fit(
        make_runs(reward, [(8, 32), (32, 32), (512, 32)], np.geomspace(2e4, 1.5e6, 30)),
        points="all",
        draws=0,
        method="paper",
    )
    plan = Planner(fits).allocate("30M")
    assert plan.group_size == 32
    assert "law-and-curves-disagree" in codes(plan)
    assert plan.stopping is None
    assert plan.cost >= 0.97 * 30e6
    (better,) = [a for a in plan.alternatives if a.kind == "best-by-curves"]
    assert better.group_size == 512
    assert better.predicted_reward is not None
    assert plan.predicted_reward is not None
    assert better.predicted_reward > plan.predicted_reward + 0.1


def test_plateaus_that_were_not_seen_are_no_reason_to_stop(make_runs: Make) -> None:
    def reward(n: int, bp: int, c: Any) -> Any:
        return 0.3 + 0.05 * np.log2(n) * -np.expm1(-c / 1e7)

    runs = make_runs(reward, [(8, 32), (64, 32)], np.geomspace(2e4, 4e6, 25))
    fits = fit(runs, points="all", draws=0, method="paper")
    assert "plateau-unidentified" in {n.code for n in fits.notes}
    plan = Planner(fits).allocate("1G")
    assert plan.cost >= 0.97 * 1e9


def test_a_second_metric_without_a_law_does_not_stop_the_first(fitted: Fits) -> None:
    bare = replace(fitted, metric="best@4", laws={}, unsupported={"group_size": "nothing was observed"})
    plan = Planner(FitsSet({"avg@4": fitted, "best@4": bare})).allocate("5M")
    assert "nothing was observed" in str(plan.other_metrics["best@4"])
    assert not [n for n in plan.notes if n.code == "metrics-disagree"]
    with pytest.raises(PlanError):
        Planner(FitsSet({"best@4": bare, "avg@4": fitted})).allocate("5M")


def test_the_smallest_budget_printed_is_one_that_works(fitted: Fits) -> None:
    import re

    for machine, budget in ((Hardware(), 1000), (Hardware(divisible_by=7), 1000)):
        with pytest.raises(PlanError) as caught:
            Planner(fitted, machine, throughput=SPEED).allocate(budget)
        assert caught.value.hint is not None
        printed = re.search(r"([\d,.]+ rollouts)", caught.value.hint)
        assert printed is not None
        assert Planner(fitted, machine).allocate(printed[1]).cost >= caught.value.smallest_budget  # type: ignore[operator]
    for unit in ("usd", "gpu_hours", "tokens"):
        planner = Planner(fitted, throughput=SPEED)
        with pytest.raises(PlanError) as caught:
            planner.allocate(Budget.model_validate({unit: 1e-3}))
        assert caught.value.hint is not None
        printed = re.search(r" is ([^;]+);", caught.value.hint)
        assert printed is not None
        assert planner.allocate(printed[1]).update_steps >= 20


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"problems_per_batch": 0}, "problems_per_batch = 0"),
        ({"problems_per_batch": 32.0}, "problems_per_batch = 32.0"),
        ({"update_steps": True}, "update_steps = True"),
        ({"rollouts_per_batch": "8192"}, "rollouts_per_batch = '8192'"),
        ({"n_problems": 0}, "n_problems = 0"),
        ({"n_problems": -5}, "n_problems = -5"),
        ({"n_problems": "6k"}, "n_problems = '6k'"),
        ({"min_update_steps": 0}, "min_update_steps = 0"),
        ({"mode": "bold"}, "mode = 'bold'.*'expected', 'conservative'"),
        ({"spend": "half"}, "spend = 'half'.*'worthwhile', 'all'"),
        ({"beyond_grid": -1}, "beyond_grid = -1.*'auto'"),
        ({"beyond_grid": 1.5}, "beyond_grid = 1.5"),
        ({"beyond_grid": None}, "beyond_grid = None"),
        ({"evaluation_share": "a"}, "evaluation_share = 'a'"),
        ({"evaluation_share": float("nan")}, "evaluation_share = nan"),
        ({"evaluation_share": 0.0}, r"evaluation_share = 0\.0"),
        ({"deadline": "Friday"}, "received deadline"),
        ({"update_steps": 19}, "update_steps = 19.*20.*10"),
        ({"update_steps": 19, "min_update_steps": 50}, "update_steps = 19.*min_update_steps = 50"),
    ],
)
def test_bad_arguments_are_refused_with_what_is_accepted(
    fitted: Fits, arguments: dict[str, object], message: str
) -> None:
    with pytest.raises(PlanError, match=message):
        Planner(fitted).allocate("10M", **arguments)  # type: ignore[arg-type]


def test_fixed_steps_and_batch_of_b_p_buy_the_largest_useful_group(fitted: Fits) -> None:
    plan = Planner(fitted).allocate("100M", problems_per_batch=32, update_steps=500)
    assert plan.group_size == 512
    small = Planner(fitted).allocate("3M", problems_per_batch=32, update_steps=500)
    assert small.group_size == 128
    assert small.binding == ("budget", "update_steps")
    limited = Planner(fitted, Hardware(max_rollouts_per_batch=2048)).allocate(
        "100M", problems_per_batch=32, update_steps=500
    )
    assert limited.binding == ("max_rollouts_per_batch", "update_steps")
    # A law that tends to 400 would use 512 and not 256; one that tends to 300 would not.
    for saturation, better in ((400, True), (300, False)):
        law = replace(fitted.law(), L=0.0, b=float(np.log2(saturation)))
        levelling = replace(fitted, laws={**fitted.laws, "group_size": law}, law_draws={})
        planner = Planner(levelling, Hardware(max_rollouts_per_batch=32 * 256))
        plan = planner.allocate("100M", problems_per_batch=32, update_steps=500)
        assert (plan.group_size, "max_rollouts_per_batch" in plan.binding) == (256, better)
