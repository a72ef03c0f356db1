"""Best per rollout and best per GPU-hour: two answers to two questions, and what each costs in the other's unit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from isocompute_sdk.planning.candidates import Candidate
from isocompute_sdk.planning.pricing import Pricing
from isocompute_sdk.planning.question import Question
from isocompute_sdk.planning.settings import Setting, choose_setting
from isocompute_sdk.specs import Budget


@dataclass(frozen=True)
class Optimum:
    """The configuration that reaches most with what the plan spends of one unit."""

    per: Literal["rollout", "gpu_hour"]
    """`rollout`: with the plan's rollouts, however long they take; `gpu_hour`: with the plan's GPU-hours."""
    group_size: int
    problems_per_batch: int
    gpus: int
    reward_at_equal_rollouts: float
    """Predicted reward with the plan's rollouts."""
    gpu_hours_at_equal_rollouts: float
    """GPU-hours that those take."""
    wall_hours_at_equal_rollouts: float
    reward_at_equal_gpu_hours: float | None
    """Predicted reward with the plan's GPU-hours; None where they do not buy one update."""
    rollouts_at_equal_gpu_hours: int
    """Rollouts that those buy."""


def find_optima(
    question: Question, pricing: Pricing, chosen: Candidate, sizes: Sequence[int], gpu_counts: Sequence[int | None]
) -> tuple[Optimum, ...]:
    """Both optima at what the chosen candidate spends; none without a surface, a throughput or freedom to choose.

    Nor are there any where seconds are known near one batch only: the two differ in their batches.

    Args:
        question: what was asked, at the recipe's floor of B_p.
        pricing: what prices the chosen candidate, with its number of GPUs.
        chosen: the candidate.
        sizes: group sizes to choose from.
        gpu_counts: numbers of GPUs to choose from, as for `choose_setting`.
    """
    throughput, budget = pricing.throughput, pricing.budget
    known = throughput is not None and (throughput.measured is None or throughput.measured.separates_batches)
    if question.fits.surface is None or not question.can_predict or not known or not question.limits.fixed.free:
        return ()
    batch, steps = chosen.rollouts_per_batch, chosen.update_steps
    hours = pricing.cost_in("gpu_hours", batch, steps)
    here = gpu_counts if throughput is None or None in gpu_counts else [throughput.gpus]
    same_hours = Budget(gpu_hours=hours * (1 + 1e-9), deadline_hours=budget.deadline_hours)
    same_rollouts = Budget(rollouts=chosen.rollouts)
    by_rollouts = choose_setting(_asked(question, same_rollouts), sizes, here)
    by_hours = choose_setting(_asked(question, same_hours), sizes, gpu_counts)
    if not by_rollouts.candidates or not by_hours.candidates:
        return ()
    return (
        _optimum("rollout", by_rollouts, same_hours, chosen.rollouts),
        _optimum("gpu_hour", by_hours, same_hours, chosen.rollouts),
    )


def _asked(question: Question, budget: Budget) -> Question:
    pricing = replace(question.pricing, budget=budget)
    return replace(question, pricing=pricing, limits=replace(question.limits, pricing=pricing))


def _optimum(per: Literal["rollout", "gpu_hour"], setting: Setting, same_hours: Budget, rollouts: int) -> Optimum:
    best, question = setting.best(), setting.question
    pricing: Pricing = replace(question.pricing, budget=same_hours)
    batch = best.rollouts_per_batch
    steps = max(1, round(rollouts / batch))
    affordable = pricing.affordable_steps(batch)[0]
    at_rollouts = question.reward(replace(best, update_steps=steps))
    at_hours = question.reward(replace(best, update_steps=affordable)) if affordable else None
    throughput = pricing.throughput
    assert throughput is not None, "asked for without a throughput"
    assert at_rollouts is not None, "asked for without rewards"
    return Optimum(
        per=per,
        group_size=best.group_size,
        problems_per_batch=best.problems_per_batch,
        gpus=throughput.gpus,
        reward_at_equal_rollouts=at_rollouts,
        gpu_hours_at_equal_rollouts=pricing.cost_in("gpu_hours", batch, steps),
        wall_hours_at_equal_rollouts=pricing.cost_in("wall_hours", batch, steps),
        reward_at_equal_gpu_hours=at_hours,
        rollouts_at_equal_gpu_hours=affordable * batch,
    )
