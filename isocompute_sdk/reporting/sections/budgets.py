"""Sections on the budget: reward against cost, and n against budget with the slider."""

from __future__ import annotations

import math
from typing import Any

from isocompute_sdk import plots
from isocompute_sdk.errors import IsoComputeError
from isocompute_sdk.planning import Plan
from isocompute_sdk.planning.plan import VERDICTS, learning_rate
from isocompute_sdk.reporting import wording as say
from isocompute_sdk.reporting.ladder import Ladder, Rung
from isocompute_sdk.reporting.material import Material
from isocompute_sdk.reporting.page import Block, Command, Missing, Paragraph, Picture, Position, Section, Slider, Table

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
    caption = (
        "Each point is the best plan for that budget. Where the plan stops early, the rest of the budget stays unspent."
    )
    drawn = plots.reward_by_budget(plan, [rung.plan for rung in ladder.rungs])
    blocks: list[Block] = [Picture("reward-cost", plots.as_svg(drawn), caption)]
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
    return Table(tuple(header), tuple(rows), "What a larger budget adds (means)", marked=marked)


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
    drawn = plots.allocation(plan, plans=[rung.plan for rung in ladder.rungs])
    picture = Picture("size-budget", plots.as_svg(drawn))
    return Section(name, title, (note, picture, _slider(ladder), *_command(material, plan)))


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
    positions = tuple(Position(say.amount(rung.amount, ladder.unit), numbers(rung.plan)) for rung in ladder.rungs)
    return Slider(LABELS, positions, ladder.start)


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
