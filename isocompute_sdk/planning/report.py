"""Plans as text and as a small HTML table."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from isocompute_sdk.notes import by_severity
from isocompute_sdk.planning.pricing import amount_text

if TYPE_CHECKING:
    from isocompute_sdk.planning.optima import Optimum
    from isocompute_sdk.planning.plan import Alternative, Plan
    from isocompute_sdk.specs import Sweep


def rows(plan: Plan) -> list[tuple[str, str]]:
    """The plan as (label, text) pairs, in reading order."""
    unit = plan.budget.unit
    used = f"{amount_text(plan.cost, unit)} of {amount_text(plan.budget.available, unit)} ({1 - plan.unused_share:.1%})"
    found = [
        ("group size n", _group_size(plan)),
        ("problems per batch B_p", f"{plan.problems_per_batch}"),
        ("update steps M", f"{plan.update_steps:,}"),
        (
            "rollouts C",
            f"{plan.rollouts:,} = {plan.group_size} x {plan.problems_per_batch} x {plan.update_steps:,}",
        ),
        ("rollouts per batch B", f"{plan.rollouts_per_batch:,}"),
        (
            "learning rate",
            f"{plan.learning_rate:.3g} ({plan.recipe.learning_rate_rule} rule, {plan.recipe.name})",
        ),
        ("cost", used),
    ]
    found += expenses(plan)
    if plan.epochs is not None:
        found.append(("epochs", f"{plan.epochs:.2f} over {plan.n_problems:,} problems"))
    found.append((f"predicted {plan.metric}", _reward(plan)))
    if plan.extrapolation is not None:
        found.append(("extrapolation", f"{plan.extrapolation:.2g} x the largest compute seen"))
    found.append(("ends by", ", ".join(plan.binding)))
    found += [(f"best n for {metric}", str(n)) for metric, n in plan.other_metrics.items()]
    told = () if plan.passport is None else plan.passport.lines()
    found += [("passport" if i == 0 else "", line) for i, line in enumerate(told)]
    # What the plan amounts to comes first.
    return [("verdict", f"{plan.verdict.kind}: {plan.verdict.sentence}"), *found]


def expenses(plan: Plan) -> list[tuple[str, str]]:
    """Time, GPU-hours, money and rollouts together, then by purpose, then both optima; as (label, text)."""
    found: list[tuple[str, str]] = []
    if plan.wall_hours is not None:
        units = [unit for unit in ("gpu_hours", "usd", "rollouts", "tokens") if unit in plan.costs]
        together = [f"{amount_text(plan.wall_hours, 'wall_hours')} on {plan.gpus} GPU(s)"]
        found.append(("in all", ", ".join(together + [amount_text(plan.costs[unit], unit) for unit in units])))
    if plan.evaluation is not None and "evaluation" in plan.breakdown:
        found.append(("evaluation", _evaluation(plan)))
    parts = {part: a for part, a in plan.breakdown.items() if part not in ("training", "evaluation")}
    found += [
        (label, ", ".join(amount_text(value, unit) for unit, value in amounts.items()))
        for label, amounts in parts.items()
    ]
    told = [_optimum(o) for o in plan.optima]
    if told and len(set(told)) == 1:
        return [*found, ("best per both", f"rollout and GPU-hour: {told[0]}")]
    return found + [(f"best per {o.per.replace('_', '-')}", text) for o, text in zip(plan.optima, told, strict=True)]


def _evaluation(plan: Plan) -> str:
    evaluation, spent = plan.evaluation, plan.breakdown["evaluation"]
    assert evaluation is not None, "asked for without a schedule"
    unit = "gpu_hours" if "gpu_hours" in spent else "rollouts"
    share = spent[unit] / plan.breakdown["training"][unit]
    problems = "all problems" if evaluation.n_problems is None else f"{evaluation.n_problems} problems"
    placed = "counted above" if plan.evaluation_counted else "beside the above"
    return (
        f"every {evaluation.every_steps:,} steps, {problems} x {evaluation.samples}: {amount_text(spent[unit], unit)}, "
        f"{share:.1%} of training, {placed}"
    )


def _optimum(optimum: Optimum) -> str:
    o = optimum
    reached = "none" if o.reward_at_equal_gpu_hours is None else f"{o.reward_at_equal_gpu_hours:.3f}"
    return (
        f"n = {o.group_size}, B_p = {o.problems_per_batch}, {o.gpus} GPU(s): {o.reward_at_equal_rollouts:.3f} with the "
        f"plan's rollouts ({amount_text(o.gpu_hours_at_equal_rollouts, 'gpu_hours')}), {reached} in its GPU-hours "
        f"({o.rollouts_at_equal_gpu_hours:,} rollouts)"
    )


def summarise(plan: Plan) -> str:
    """Table of the plan, its alternatives, notes and, where there is one, a pilot."""
    lines = [f"{label:<24} {text}" for label, text in rows(plan)]
    shown = [a for a in plan.alternatives if a.kind != "other"]
    lines += [f"{a.kind:<24} {describe(a)}" for a in shown]
    lines += [f"[{note.severity}] {note.code}: {note.message}" for note in by_severity(plan.notes)]
    if plan.pilot is not None:
        lines.append(describe_pilot(plan.pilot))
    return "\n".join(lines)


def describe(alternative: Alternative) -> str:
    """One alternative on one line."""
    a = alternative
    text = f"n = {a.group_size}, B_p = {a.problems_per_batch}, M = {a.update_steps:,}"
    if a.predicted_reward is not None:
        text += f", predicted {a.predicted_reward:.3f}"
    if a.expected_loss is not None:
        text += f" ({-a.expected_loss:+.3f})"
    return text


def describe_pilot(pilot: Sweep) -> str:
    """A pilot sweep in one sentence."""
    sizes = ", ".join(map(str, pilot.group_size))
    return (
        f"A pilot that would narrow this: n = {sizes} at B_p = {pilot.problems_per_batch[0]}, "
        f"{pilot.rollouts:,} rollouts each, then fit and plan again."
    )


def to_html(plan: Plan) -> str:
    """The table for notebooks."""
    table = "".join(
        f"<tr><th style='text-align:left'>{escape(label)}</th><td>{escape(text)}</td></tr>"
        for label, text in rows(plan)
    )
    notes = "".join(
        f"<li><b>{escape(n.code)}</b> ({n.severity}): {escape(n.message)}</li>" for n in by_severity(plan.notes)
    )
    return f"<table>{table}</table><ul>{notes}</ul>"


def _group_size(plan: Plan) -> str:
    text = str(plan.group_size)
    if plan.law_group_size is not None:
        text += f" (law: {plan.law_group_size:.0f})"
    if plan.group_size_interval is not None:
        low, high = plan.group_size_interval
        text += f", 80 % band {low} to {high}"
    return text


def _reward(plan: Plan) -> str:
    if plan.predicted_reward is None:
        return "not predicted: no reward curve for this n, model and metric"
    text = f"{plan.predicted_reward:.3f}"
    if plan.reward_interval is not None:
        low, high = plan.reward_interval
        text += f" (80 % interval {low:.3f} to {high:.3f}, see notes)"
    return text
