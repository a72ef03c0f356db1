"""Sections on the budget: reward against cost, and n against budget with the slider."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from isocompute_sdk.errors import IsoComputeError
from isocompute_sdk.planning import Plan
from isocompute_sdk.planning.summary import VERDICTS, learning_rate
from isocompute_sdk.reporting import wording as say
from isocompute_sdk.reporting.drawing import charts
from isocompute_sdk.reporting.ladder import Ladder, Rung
from isocompute_sdk.reporting.material import Material
from isocompute_sdk.reporting.page import Block, Chart, Command, Missing, Paragraph, Position, Section, Slider, Table

FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0)
"""Budgets of the table of marginal rewards, over that of the page."""
FIT_FIRST = "isocompute allocate RUNS --budget 3M --output plan.json"


def reward_against_cost(material: Material) -> Section:
    """What each budget buys, and what a little more of it adds."""
    name, title = "cost", "Reward against cost"
    plan, ladder = material.plan, material.ladder
    if plan is None or ladder is None or not ladder.rewards:
        text = "No reward is predicted here"
        if plan is not None and plan.fits is not None and plan.fits.method not in ("surface", "paper"):
            text += ": published laws say which n is best, not what reward a budget buys. Fit runs of your own"
        elif plan is not None and plan.fits is None:
            text += ": this plan was saved without its fits"
        elif plan is not None and plan.predicted_reward is None:
            ran = plan.fits.model if plan.fits is not None else None
            text += f": the plan is for {plan.model}, and the runs are of {ran or 'a model that they do not record'}"
        return Section(name, title, (Missing(f"{text}.", FIT_FIRST),))
    blocks: list[Block] = [_reward_chart(material, plan, ladder)]
    try:
        found = material.planner.marginal(plan.budget, **_without_spend(material)) if material.planner else None
    except IsoComputeError:
        found = None
    if found is not None:
        twice = found.summary().splitlines()[0]
        blocks.append(Paragraph(f"{twice[:1].upper()}{twice[1:]}."))
    blocks.append(_marginal_table(plan, ladder))
    if "gpu_hours" not in plan.costs:
        blocks.append(
            Missing(
                "Rewards per hour and per dollar need the speed of your machines.",
                "isocompute run --help",
            )
        )
    elif "usd" not in plan.costs:
        blocks.append(Missing("Rewards per dollar need a price.", material.again("--usd-per-gpu-hour 2.5")))
    return Section(name, title, tuple(blocks))


def _without_spend(material: Material) -> dict[str, Any]:
    return {name: value for name, value in material.options.items() if name != "spend"}


def _unit_name(unit: str) -> str:
    return {"usd": "US dollars"}.get(unit, say.UNITS.get(unit, unit))


def _reward_chart(material: Material, plan: Plan, ladder: Ladder) -> Chart:
    rungs, unit = ladder.rungs, ladder.unit
    x = [rung.amount for rung in rungs]
    mean = [float(rung.plan.predicted_reward or 0.0) for rung in rungs]
    hover = [_reward_hover(rung) for rung in rungs]
    series = []
    ends = [rung.plan.reward_interval for rung in rungs]
    low, high = list(mean), list(mean)
    if all(end is not None for end in ends):
        low, high = [end[0] for end in ends if end], [end[1] for end in ends if end]
        series += charts.band("80 % interval", x, low, high)
    series.append(charts.line("plan for each budget", list(zip(x, mean, strict=True)), "ink", hover, width=2.5))
    here = plan.budget.amount, float(plan.predicted_reward or 0.0)
    bounds = (-math.inf, math.inf) if plan.fits is None else plan.fits.bounds
    series.append(
        charts.dots(
            "this plan", [here], "second", [_reward_hover(rungs[ladder.start])], symbolSize=14, symbol="diamond", z=5
        )
    )
    marks = {"this budget": here[0]}
    seen = amount_at_compute(ladder, None if plan.fits is None else plan.fits.largest_compute)
    if seen is not None:
        marks["largest run"] = seen
    series.append(charts.upright(marks))
    option = charts.chart(
        charts.Axis(_unit_name(unit), x[0], x[-1], log=True),
        charts.linear(plan.metric, [*low, *high], within=bounds),
        series,
        legend={"plan for each budget": "roundRect", "80 % interval": "roundRect", "this plan": "diamond"},
    )
    caption = (
        "Each point is the best plan for that budget. Right of the line of the largest run everything is extrapolated."
        " Where the plan stops early, the rest of the budget stays unspent."
    )
    return Chart("reward-cost", f"Predicted {plan.metric} by budget", option, caption)


def amount_at_compute(ladder: Ladder, compute: float | None) -> float | None:
    """Budget whose plan spends this compute; None outside the budgets of the ladder."""
    if compute is None:
        return None
    spent = np.log([rung.plan.compute for rung in ladder.rungs])
    if not spent[0] <= math.log(compute) <= spent[-1]:
        return None
    return float(np.exp(np.interp(math.log(compute), spent, np.log([rung.amount for rung in ladder.rungs]))))


def _reward_hover(rung: Rung) -> str:
    plan = rung.plan
    lines = [
        say.amount(rung.amount, plan.budget.unit),
        f"{plan.metric} {say.reward(plan.predicted_reward)}",
        f"80 % interval {say.interval(plan.reward_interval)}" if plan.reward_interval else "",
        f"n = {plan.group_size}, B_p = {plan.problems_per_batch}, M = {plan.update_steps:,}",
    ]
    return "\n".join(line for line in lines if line)


def _marginal_table(plan: Plan, ladder: Ladder) -> Table:
    """Rewards at a few budgets and what each more unit adds between them."""
    picked = [_nearest(ladder, plan.budget.amount * factor) for factor in FACTORS]
    rungs = list({rung.amount: rung for rung in picked}.values())
    timed, priced = "gpu_hours" in plan.costs, "usd" in plan.costs
    header = ["Budget", "n", f"Expected {plan.metric}", "Gain on the row above", "per million rollouts"]
    header += ["per 100 GPU-hours"] * timed + ["per $1,000"] * priced
    rows: list[tuple[str, ...]] = []
    for i, rung in enumerate(rungs):
        row = [say.amount(rung.amount, ladder.unit), str(rung.plan.group_size), say.reward(rung.plan.predicted_reward)]
        if i == 0:
            row += [""] * (2 + timed + priced)
        else:
            before = rungs[i - 1].plan
            gain = float(rung.plan.predicted_reward or 0) - float(before.predicted_reward or 0)
            row.append(f"{gain:+.3f}")
            row.append(_slope(gain, rung.plan.rollouts - before.rollouts, 1e6))
            if timed:
                row.append(_slope(gain, rung.plan.costs["gpu_hours"] - before.costs["gpu_hours"], 100.0))
            if priced:
                row.append(_slope(gain, rung.plan.costs["usd"] - before.costs["usd"], 1000.0))
        rows.append(tuple(row))
    marked = next((i for i, rung in enumerate(rungs) if rung.amount == plan.budget.amount), None)
    return Table(tuple(header), tuple(rows), "What a larger budget adds (means)", size_column=1, marked=marked)


def _slope(gain: float, spent: float, unit: float) -> str:
    """Reward gained per unit spent; a dash where nothing more is spent."""
    return "-" if spent <= 0 else f"{gain / spent * unit:+.3g}"


def _nearest(ladder: Ladder, amount: float) -> Rung:
    return min(ladder.rungs, key=lambda rung: abs(math.log(rung.amount / amount)))


def n_against_budget(material: Material) -> Section:
    """Which n each budget wants, with the plan of every budget to be picked with a slider."""
    name, title = "budget", "The plan for every budget"
    plan, ladder = material.plan, material.ladder
    if plan is None or ladder is None:
        text = "There is no planner behind this page, so only one budget is known."
        if material.plan is None:
            text = "There is no plan."
        return Section(name, title, (Missing(text, FIT_FIRST),))
    note = Paragraph(
        f"Move the slider: {len(ladder.rungs)} budgets, each planned like the one above. The numbers are those that "
        "allocate gives for that budget with the same settings.",
        quiet=True,
    )
    return Section(name, title, (note, _size_chart(plan, ladder), _slider(ladder), *_command(material, plan)))


def _size_chart(plan: Plan, ladder: Ladder) -> Chart:
    rungs = ladder.rungs
    x = [rung.amount for rung in rungs]
    sizes = [math.log2(rung.plan.group_size) for rung in rungs]
    hover = [
        f"{say.amount(rung.amount, ladder.unit)}\nn = {rung.plan.group_size}"
        + (
            f", 80 % band {rung.plan.group_size_interval[0]} to {rung.plan.group_size_interval[1]}"
            if rung.plan.group_size_interval
            else ""
        )
        for rung in rungs
    ]
    series = []
    bands = [rung.plan.group_size_interval for rung in rungs]
    low, high = list(sizes), list(sizes)
    if all(found is not None for found in bands):
        low = [math.log2(found[0]) for found in bands if found]
        high = [math.log2(found[1]) for found in bands if found]
        series += charts.band("80 % band", x, low, high, step="middle")
    series.append(charts.line("n of the plan", list(zip(x, sizes, strict=True)), "ink", hover, width=3, step="middle"))
    start = rungs[ladder.start]
    here = start.amount, math.log2(start.plan.group_size)
    series.append(charts.dots("slider", [here], "second", id="here", symbolSize=16, symbol="diamond", z=6))
    limits = {}
    if plan.fits is not None and plan.fits.method != "prior":
        smallest, largest = plan.fits.group_size_range
        limits = {f"smallest n run, {smallest}": math.log2(smallest), f"largest n run, {largest}": math.log2(largest)}
        if smallest == largest:
            limits = {f"the only n run, {largest}": math.log2(largest)}
    shown = [*low, *high, *sizes, *limits.values()]
    series.append(charts.level(limits))
    seen = amount_at_compute(ladder, None if plan.fits is None else plan.fits.largest_compute)
    series.append(charts.upright({"this budget": plan.budget.amount} | ({} if seen is None else {"largest run": seen})))
    option = charts.chart(
        charts.Axis(_unit_name(ladder.unit), x[0], x[-1], log=True),
        charts.Axis(
            "n (rollouts per problem)", max(math.floor(min(shown)) - 1, 0), math.ceil(max(shown)) + 1, power2=True
        ),
        series,
        legend={"n of the plan": "roundRect", "80 % band": "roundRect"},
    )
    return Chart("size-budget", "Best n by budget", option, height=320)


LABELS = (
    "Group size n",
    "80 % band of n",
    "Problems per batch B_p",
    "Update steps M",
    "Rollouts C",
    "Cost",
    "Learning rate",
    "Expected reward",
    "80 % interval",
    "Verdict",
)
"""What the slider shows, in order."""


def numbers(plan: Plan) -> tuple[str, ...]:
    """The numbers of a plan in the order of `LABELS`, as the page writes them."""
    band = plan.group_size_interval
    return (
        str(plan.group_size),
        "" if band is None else f"{band[0]} to {band[1]}",
        str(plan.problems_per_batch),
        f"{plan.update_steps:,}",
        f"{plan.rollouts:,}",
        say.costs(plan.costs, briefly=True),
        learning_rate(plan),
        say.reward(plan.predicted_reward),
        say.interval(plan.reward_interval),
        f"{VERDICTS.get(plan.verdict.kind, plan.verdict.kind)}: {plan.verdict.sentence}",
    )


def _slider(ladder: Ladder) -> Slider:
    positions = tuple(
        Position(
            say.amount(rung.amount, ladder.unit), numbers(rung.plan), (rung.amount, math.log2(rung.plan.group_size))
        )
        for rung in ladder.rungs
    )
    return Slider("size-budget", LABELS, positions, ladder.start)


def _command(material: Material, plan: Plan) -> tuple[Block, ...]:
    """The command that gives the same numbers, where the source is one that it takes."""
    fits = plan.fits
    if material.study is not None or material.plan_file or fits is None:
        return ()
    if fits.method == "prior" or fits.source is not None:
        which = "--prior" if fits.source is None else f"--published {fits.source}"
        words = ["isocompute plan", which]
    else:
        words = ["isocompute allocate", *[material.typed] * bool(material.typed)]
    return (
        Command(
            " ".join([*words, say.budget_option(plan.budget), *material.asked.words]), "The same on the command line:"
        ),
    )
