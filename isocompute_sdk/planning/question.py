"""One call of `allocate` with everything resolved, and what the fits predict for its candidates."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from isocompute_sdk.errors import PlanError
from isocompute_sdk.fitting.fits import Fits
from isocompute_sdk.fitting.paper.reward_curve import RewardCurve
from isocompute_sdk.notes import Note
from isocompute_sdk.planning import caveats
from isocompute_sdk.planning.candidates import Candidate, Limits, Rejection
from isocompute_sdk.planning.choice import Preference
from isocompute_sdk.planning.pricing import Pricing, amount_text

TIE = 0.01
"""Rewards closer than this share of the metric's range cannot be told apart (second-best n was within it at 88 %
of simulated budgets)."""
WORTHWHILE = 0.005
"""The last half of a budget must be predicted to add at least this share of the metric's range."""


@dataclass(frozen=True)
class Question:
    """One call of `allocate`, with everything resolved."""

    pricing: Pricing
    limits: Limits
    preference: Preference
    fits: Fits
    can_predict: bool
    largest: int
    """Largest n that was run."""
    smallest: int

    def reward(self, c: Candidate) -> float | None:
        """Predicted reward, None outside the levels that were run at the nearest B_p."""
        if not self.can_predict:
            return None
        at = self.pricing.compute(c.rollouts, self.fits.compute)
        if self.fits.surface is not None:
            return float(self.fits.predict(at, c.group_size, c.problems_per_batch).mean)
        sizes = [curve.group_size for curve in self.curves(c)]
        if not min(sizes) <= c.group_size <= max(sizes):
            return None
        return float(self.fits.predict(at, c.group_size, c.problems_per_batch).mean)

    def curves(self, c: Candidate) -> list[RewardCurve]:
        """The curves that answer for a candidate: those at the nearest B_p that was run."""
        return self.fits.select(self.fits.nearest_problems_per_batch(c.problems_per_batch))

    def landmarks(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """Those at powers of two and at the levels that were run: where any n is allowed, a handful of hundreds."""
        levels = set(self.fits.group_sizes)
        return [c for c in candidates if c.group_size in levels or c.group_size.bit_count() == 1]

    @property
    def span(self) -> float:
        """Range of the metric."""
        return self.fits.bounds[1] - self.fits.bounds[0]


def worthwhile(
    question: Question, chosen: Candidate, candidates: Sequence[Candidate], spend: str
) -> tuple[Candidate, list[Note]]:
    """Fewer steps where the last half of the budget is predicted to add almost nothing, and that was seen."""
    full = question.reward(chosen)
    if spend == "all" or full is None or chosen.ends_by == "update_steps":
        return chosen, []
    tolerance = WORTHWHILE * question.span
    if not _flat(question.curves(chosen), chosen.group_size):
        return chosen, []
    # Where another n would still gain, the rest is worth something, though not with the n that the law chose.
    rewards = [question.reward(c) for c in question.landmarks(candidates)]
    if max((r for r in rewards if r is not None), default=full) - full >= tolerance:
        return chosen, []

    def gain(steps: int) -> float:
        reward = question.reward(replace(chosen, update_steps=steps))
        return 0.0 if reward is None else full - reward

    low, high = question.limits.min_update_steps, chosen.update_steps
    if high // 2 < low or gain(high // 2) >= tolerance:
        return chosen, []
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if gain(middle) < tolerance else (middle, high)
    trimmed = replace(chosen, update_steps=high, ends_by="worthwhile")
    cost = question.pricing.cost(trimmed.rollouts_per_batch, trimmed.update_steps)
    budget = question.pricing.budget
    return trimmed, [caveats.rest_not_worthwhile(gain(high), tolerance, cost, budget.available, budget.unit)]


def _flat(curves: Sequence[RewardCurve], n: int) -> bool:
    """Whether the plateaus are identified of the curves that predict this n, and of those within an octave."""
    sizes = [c.group_size for c in curves]
    below = max((size for size in sizes if size <= n), default=n)
    above = min((size for size in sizes if size >= n), default=n)
    if n > max(sizes):
        return False
    return all(c.plateau_identified for c in curves if min(below, n / 2) <= c.group_size <= max(above, 2 * n))


def reward_with_interval(question: Question, chosen: Candidate) -> tuple[float | None, tuple[float, float] | None]:
    """Predicted reward of a candidate with its 80 % interval, None where the fits cannot give it."""
    mean = question.reward(chosen)
    if mean is None:
        return None, None
    at = question.pricing.compute(chosen.rollouts, question.fits.compute)
    predicted = question.fits.predict(at, chosen.group_size, chosen.problems_per_batch)
    low, high = float(predicted.low), float(predicted.high)
    return mean, None if np.isnan(low) else (low, high)


def band(fits: Fits, preference: Preference, value: float, chosen: int) -> tuple[int, int] | None:
    """80 % band of the best n; that of a law rounded outward to powers of two; None without draws.

    A surface's band always holds the chosen n, which may be the best executable one outside it.
    """
    interval = fits.law_interval(value, name=preference.law)
    if interval is None:
        return None
    low, high = float(interval[0][0]), float(interval[1][0])
    if fits.surface is not None:
        return max(2, int(np.floor(min(low, chosen) + 1e-6))), max(2, int(np.ceil(max(high, chosen) - 1e-6)))
    return max(2, int(2 ** np.floor(np.log2(low) + 1e-6))), max(2, int(2 ** np.ceil(np.log2(high) - 1e-6)))


def refusal(question: Question, rejections: Sequence[Rejection]) -> PlanError:
    """Why nothing fits, and the smallest budget that would."""
    costs = [r.smallest_budget for r in rejections if r.smallest_budget is not None]
    budget = question.pricing.budget
    listed = "; ".join(f"n = {r.group_size}: {r.reason}" for r in rejections[:3])
    if costs:
        smallest = min(costs)
        return PlanError(
            f"a budget of {amount_text(budget.amount, budget.unit)} is too small for any plan ({listed})",
            f"The smallest budget that works here is {_rounded_up(smallest, budget.unit)}; or lower min_update_steps "
            f"(now {question.limits.min_update_steps}) or the recipe's min_problems_per_batch "
            f"(now {question.limits.floor}).",
            smallest,
        ).in_shell(
            f"The smallest budget that works here is {_rounded_up(smallest, budget.unit)}; or lower "
            f"--min-update-steps (now {question.limits.min_update_steps}), or min_problems_per_batch in the file of "
            f"--recipe (now {question.limits.floor})."
        )
    if not rejections:
        return PlanError(
            "the fits offer no group size of 2 or more to choose from",
            "Run group sizes of 2 or more: one rollout has no group to be compared with.",
        )
    return PlanError(f"no group size satisfies the constraints together: {listed}", "Relax the constraint named.")


def _rounded_up(amount: float, unit: str) -> str:
    """Never less than the amount: who copies the number gets a plan."""
    digits = 0 if unit in ("rollouts", "tokens") else 4
    return f"{math.ceil(amount * 10**digits) / 10**digits:.{digits}f} {unit.replace('_', '-')}"
