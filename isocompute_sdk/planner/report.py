"""Plans as text and as a small HTML table."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from isocompute_sdk.notes import by_severity
from isocompute_sdk.planner.pricing import amount_text

if TYPE_CHECKING:
    from isocompute_sdk.planner.plan import Alternative, Plan
    from isocompute_sdk.specs import Sweep


def rows(plan: Plan) -> list[tuple[str, str]]:
    """The plan as (label, text) pairs, in reading order."""
    unit = plan.budget.unit
    used = f"{amount_text(plan.cost, unit)} of {amount_text(plan.budget.amount, unit)} ({1 - plan.unused_share:.1%})"
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
    found += [
        ("is also", amount_text(cost, other)) for other, cost in plan.costs.items() if other not in ("rollouts", unit)
    ]
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
