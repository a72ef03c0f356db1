"""A plan as labelled lines: the answer in the order in which people read it, and the details behind it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from isocompute_sdk.phrases import small
from isocompute_sdk.planning.inheritance import assumed, shown
from isocompute_sdk.planning.pricing import amount_text

if TYPE_CHECKING:
    from isocompute_sdk.planning.plan import Alternative, Plan

VERDICTS = {
    "clear": "Decided",
    "tie": "A tie",
    "hardly-matters": "The choice hardly matters",
    "likely": "Best bet",
    "measure-first": "Measure first",
    "undecided": "Not decided by these runs",
    "stop-spending": "Stop early",
    "borrowed": "Not from your runs",
}
"""Kinds of verdicts in words."""
ALTERNATIVES = {
    "near-tie": "counts as equal",
    "close": "close",
    "on-grid": "best of those that were run",
    "beyond-grid": "predicted better, never run",
    "conservative": "cautious choice",
    "best-by-curves": "best by the curves alone",
    "next-power-of-two": "next power of two",
    "before-change": "before the change",
    "other": "another n",
}
"""Kinds of alternatives in words."""
LIMITS = {
    "budget": "the budget",
    "deadline": "the deadline",
    "update_steps": "M, which is fixed",
    "worthwhile": "the reward: more steps add almost nothing",
    "min_update_steps": "the fewest update steps allowed",
    "max_rollouts_per_batch": "the largest batch allowed",
    "divisible_by": "batches that the GPUs divide",
    "rollouts_per_batch": "the batch, which is fixed",
    "problems_per_batch": "B_p, which is fixed",
    "throughput": "the batches that were timed",
    "group_size_grid": "the group sizes that were run",
}
"""What ends or limits a plan, in words."""


def answer(plan: Plan) -> list[tuple[str, str]]:
    """What decides, as (label, text): verdict, n, B_p and M, cost, reward, what else was close."""
    n, problems, steps = plan.group_size, plan.problems_per_batch, plan.update_steps
    found = [
        ("verdict", f"{VERDICTS.get(plan.verdict.kind, plan.verdict.kind)}: {plan.verdict.sentence}"),
        ("plan", f"n = {n} rollouts for each of B_p = {problems} problems, M = {steps:,} steps"),
        ("rollouts", f"{plan.rollouts:,} = {n} x {problems} x {steps:,}; {plan.rollouts_per_batch:,} per batch"),
        ("learning rate", learning_rate(plan)),
        *([("assumed", text)] if (text := assumed_values(plan)) else []),
        ("cost", _cost(plan)),
        *_total(plan),
        (f"predicted {plan.metric}", _reward(plan)),
    ]
    if plan.next_runs is not None:
        found[1:1] = [("run first", run.describe(plan.next_runs.unit)) for run in plan.next_runs.runs]
    if plan.group_size_interval is not None:
        found.append(("near-best n", "80 % band {} to {} (others may be as good)".format(*plan.group_size_interval)))
    found += [(f"best n for {metric}", str(size)) for metric, size in plan.other_metrics.items()]
    close: dict[str, list[str]] = {}
    for one in plan.alternatives:
        if one.kind != "other":
            close.setdefault(describe(one), []).append(ALTERNATIVES.get(one.kind, one.kind))
    texts = [", ".join([text, *kinds]) for text, kinds in close.items()]
    return found + [("also close" if i == 0 else "", text) for i, text in enumerate(texts)]


def learning_rate(plan: Plan) -> str:
    """The learning rate and where it comes from; that it is unknown where neither the runs nor a person gave one."""
    whence = {row.name: row.source for row in plan.settings}.get("learning_rate", "assumed")
    if whence == "assumed":
        return "unknown: use your runs' (--recipe-value learning_rate=RATE)"
    origin = {"runs": "from the runs", "given": "given", "preset": plan.recipe.name}[whence]
    return f"{plan.learning_rate:.3g} ({plan.recipe.learning_rate_rule} rule, {origin})"


def assumed_values(plan: Plan) -> str:
    """Settings of the plan that neither its runs nor a person gave; empty without any."""
    named = [f"{row.name} = {shown((row.plan,))}" for row in assumed(plan.settings) if row.name != "learning_rate"]
    return ", ".join(named)


def details(plan: Plan) -> list[tuple[str, str]]:
    """The rest, as (label, text): what limits the plan, evaluations and other costs, recipe, passport."""
    found = [("limited by", ", ".join(LIMITS.get(name, name.replace("_", " ")) for name in plan.binding))]
    if plan.law_group_size is not None:
        found.append(("n by the law", f"{plan.law_group_size:.0f}"))
    if plan.epochs is not None:
        found.append(("epochs", f"{plan.epochs:.2f} over {plan.n_problems:,} problems"))
    found.append(("evaluation", _evaluation(plan)))
    parts = {part: a for part, a in plan.breakdown.items() if part not in ("training", "evaluation")}
    found += [
        (label, ", ".join(amount_text(value, unit) for unit, value in amounts.items()))
        for label, amounts in parts.items()
    ]
    unlike = [row for row in plan.settings if row.differs]
    found += [("unlike the runs" if i == 0 else "", f"{row.name}: {row.described}") for i, row in enumerate(unlike)]
    lines = () if plan.passport is None else plan.passport.lines()
    return found + [("passport" if i == 0 else "", line) for i, line in enumerate(lines)]


def describe(alternative: Alternative) -> str:
    """One alternative on one line."""
    a = alternative
    text = f"n = {a.group_size}, B_p = {a.problems_per_batch}, M = {a.update_steps:,}"
    if a.predicted_reward is not None:
        text += f": {a.predicted_reward:.3f}"
    if a.expected_loss is not None:
        text += f" ({-a.expected_loss:+.3f}" + (")" if a.predicted_reward is not None else " of the gain)")
    return text


def _cost(plan: Plan) -> str:
    budget, unit = plan.budget, plan.budget.unit
    spent, available = (amount_text(part, unit) for part in (plan.cost, budget.available))
    text = f"{spent.partition(' ')[0]} of {available}"
    if budget.spent:
        return f"{text} left ({amount_text(budget.amount, unit)} less {amount_text(budget.committed, unit)} spent)"
    share = 1 - plan.unused_share
    if plan.stopping is not None:
        return f"{text} ({share:.0%}); the rest adds {small(plan.stopping.gain)}"
    return f"{text}, {share:.1%} of the budget"


def _total(plan: Plan) -> list[tuple[str, str]]:
    """Time, and the cost in every unit; nothing without a throughput."""
    if plan.wall_hours is None:
        return []
    units = [unit for unit in ("gpu_hours", "usd", "rollouts", "tokens") if unit in plan.costs]
    together = [f"{amount_text(plan.wall_hours, 'wall_hours')} on {plan.gpus} GPU(s)"]
    return [("in total", ", ".join(together + [amount_text(plan.costs[unit], unit) for unit in units]))]


def _reward(plan: Plan) -> str:
    if plan.predicted_reward is None:
        return "not predicted: no reward curve for this n, model and metric"
    text = f"{plan.predicted_reward:.3f}"
    if plan.reward_interval is not None:
        text += " (80 % interval {:.3f} to {:.3f})".format(*plan.reward_interval)
    if plan.extrapolation is not None:
        text += f", at {plan.extrapolation:.2g} x the largest run"
    return text


def _evaluation(plan: Plan) -> str:
    evaluation, spent = plan.evaluation, plan.breakdown["evaluation"]
    unit = "gpu_hours" if "gpu_hours" in spent else "rollouts"
    share = spent[unit] / plan.breakdown["training"][unit]
    problems = "all problems" if evaluation.n_problems is None else f"{evaluation.n_problems} problems"
    placed = "included in the cost" if plan.evaluation_counted else "not included in the cost"
    return (
        f"every {evaluation.every_steps:,} steps, {problems} x {evaluation.samples}: {amount_text(spent[unit], unit)}, "
        f"{share:.1%} of training, {placed}"
    )
