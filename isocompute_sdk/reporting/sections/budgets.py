"""The plan for every budget: reward and n against it, what more of it adds, and a slider that picks a plan."""

from __future__ import annotations

import math
from collections.abc import Sequence

from isocompute_sdk import plots
from isocompute_sdk.planning import Plan
from isocompute_sdk.planning.plan import best_sizes
from isocompute_sdk.planning.pricing import bare
from isocompute_sdk.reporting import wording as say
from isocompute_sdk.reporting.drawing.pictures import panel, picture
from isocompute_sdk.reporting.material import Material
from isocompute_sdk.reporting.page import Block, Grid, Missing, Paragraph, Section, Slider, Table

FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0)
"""Budgets of the table of marginal rewards, over that of the page."""
LABELS = (
    "Group size n",
    "About the best n",
    "Problems per batch B_p",
    "Update steps M",
    "Rollouts C",
    "Cost",
    "Learning rate",
    "Expected reward",
    "80 % interval",
    "This n is best with probability",
)
"""What the slider shows, in order."""


def by_budget(material: Material) -> Section:
    """What each budget buys, and the plan of every budget to be picked with a slider."""
    plan, ladder = material.plan, () if material.flat else material.ladder
    if material.flat:
        text = "No run's reward rises beyond noise, so nothing is predicted for other budgets."
        return Section("budget", "The plan for every budget", (Missing(text),))
    if plan is None or not ladder:
        text = (
            "There is no plan." if plan is None else "Only one budget is shown: this page was made without a planner."
        )
        return Section("budget", "The plan for every budget", (Missing(text, material.with_runs),))
    one_n = plan.fits is not None and plan.fits.only_size
    drawn = [] if one_n else [picture("size-budget", plots.allocation(plan, plans=ladder, ax=panel()))]
    rewards = all(one.predicted_reward is not None for one in ladder)
    if rewards:
        drawn.insert(0, picture("reward-cost", plots.reward_by_budget(plan, ladder, ax=panel())))
    blocks: list[Block] = [Grid(tuple(drawn))] if drawn else []
    if rewards:
        blocks.append(_marginal_table(plan, ladder))
    else:
        blocks.append(Missing("No reward is predicted here: that needs runs of this model.", material.with_runs))
    values = [numbers(one) for one in ladder]
    known = [i for i in range(len(LABELS)) if any(row[i] for row in values)]
    labels = tuple(LABELS[i] for i in known)
    positions = tuple(
        (say.amount(one.budget.amount, plan.budget.unit), tuple(row[i] for i in known))
        for one, row in zip(ladder, values, strict=True)
    )
    start = next(i for i, one in enumerate(ladder) if one.budget.amount == plan.budget.amount)
    text = f"Move the slider: {len(positions)} budgets, each planned like the one above."
    if material.comparison is not None:
        text = f"All of this was predicted before the plan was trained. {text}"
    blocks += [Paragraph(text, quiet=True), Slider(labels, positions, start), *_command(material, plan)]
    return Section("budget", "The plan for every budget", tuple(blocks))


def _marginal_table(plan: Plan, ladder: Sequence[Plan]) -> Table:
    """Rewards at a few budgets, and what each adds to the one before."""
    amounts = [plan.budget.amount * factor for factor in FACTORS]
    nearest = [min(ladder, key=lambda one: abs(math.log(one.budget.amount / amount))) for amount in amounts]
    plans = list({one.budget.amount: one for one in nearest}.values())
    named = {"gpu_hours": "GPU-hours", "usd": "Dollars"}
    units = [name for name in named if name in plan.costs and name != plan.budget.unit]
    header = ["Budget", "n", f"Expected {plan.metric}", "Gain over the row above", *(named[unit] for unit in units)]
    rows: list[tuple[str, ...]] = []
    for i, one in enumerate(plans):
        before, here = plans[i - 1].predicted_reward or 0.0, one.predicted_reward or 0.0
        cut = "; the deadline allows less" if "deadline" in one.binding else ""
        row = [say.amount(one.budget.amount, plan.budget.unit) + cut, str(one.group_size), say.reward(here)]
        row += [
            "" if i == 0 else say.difference(here, before),
            *(bare(one.costs[unit], unit) if unit in one.costs else "unknown" for unit in units),
        ]
        rows.append(tuple(row))
    marked = next((i for i, one in enumerate(plans) if one.budget.amount == plan.budget.amount), None)
    return Table(tuple(header), tuple(rows), "What a larger budget adds", marked=marked)


def numbers(plan: Plan) -> tuple[str, ...]:
    """The numbers of a plan in the order of `LABELS`, as the page writes them."""
    return (
        str(plan.group_size),
        _best(plan),
        str(plan.problems_per_batch),
        f"{plan.update_steps:,}",
        f"{plan.rollouts:,}",
        say.costs(plan.costs, plan.budget.unit),
        f"{plan.learning_rate:.3g}" + (", assumed" if "learning_rate" in plan.assumed else ""),
        say.reward(plan.predicted_reward),
        say.interval(plan.reward_interval),
        ""
        if plan.odds is None or (plan.fits is not None and plan.fits.only_size)
        else say.chance(plan.odds.probability_best),
    )


def _best(plan: Plan) -> str:
    """The best n: the plan's with those about equal to it, or a better one and by how much."""
    better = [one for one in plan.alternatives if one.kind in ("beyond-grid", "best-by-curves")]
    return f"{better[0].group_size} ({say.signed(-(better[0].expected_loss or 0.0))})" if better else best_sizes(plan)


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
    command = " ".join([*words, material.asked_for(plan.budget), *material.asked.words])
    return (Paragraph("The same on the command line:", command=command),)
