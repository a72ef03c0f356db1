"""Executable allocations (n, B_p, M) for a budget, one or a reason against it per n; which of them a law prefers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from isocompute_sdk.fitting.allocation import sigmoid
from isocompute_sdk.fitting.fits import Fits
from isocompute_sdk.planning.pricing import Pricing, amount_text
from isocompute_sdk.specs import Hardware
from isocompute_sdk.specs.sweep import Sized


@dataclass(frozen=True)
class Fixed:
    """The values that the caller fixed; None leaves one free (the paper's settings fix B_p, B and M, or none)."""

    problems_per_batch: int | None = None
    update_steps: int | None = None
    rollouts_per_batch: int | None = None

    @property
    def free(self) -> bool:
        """Whether nothing is fixed."""
        return self.problems_per_batch is None and self.update_steps is None and self.rollouts_per_batch is None


@dataclass(frozen=True)
class Limits:
    """The limits of every candidate."""

    pricing: Pricing
    hardware: Hardware
    fixed: Fixed
    floor: int
    """Smallest B_p."""
    min_update_steps: int
    problems_from_runs: bool = False
    """Whether B_p is chosen among those that were run."""
    n_problems: int | None = None
    """Distinct training problems D, which no batch exceeds; None if unknown."""
    continued: Mapping[tuple[int, int], float] = field(default_factory=dict[tuple[int, int], float])
    """By (n, B_p): cost of the pilot run from whose checkpoint such an allocation goes on."""

    def pricing_of(self, n: int, problems: int) -> Pricing:
        """Prices of one allocation: the cost of the pilot run that it continues is part of its own."""
        return self.pricing.with_pilot_back(self.continued.get((n, problems), 0.0))


@dataclass(frozen=True)
class Candidate(Sized):
    """One executable allocation."""

    group_size: int
    problems_per_batch: int
    update_steps: int
    ends_by: str
    """What limits M: `budget`, `deadline`, `update_steps` (fixed) or `worthwhile` (more steps add almost nothing)."""


@dataclass(frozen=True)
class Rejection:
    """Why a group size has no executable allocation."""

    group_size: int
    constraint: str
    """Name of the constraint: `budget`, `deadline`, `min_update_steps`, `max_rollouts_per_batch`, `divisible_by`,
    `rollouts_per_batch`, `problems_per_batch`, `n_problems`, `throughput` (seconds for this batch would be a guess)."""
    reason: str
    smallest_budget: float | None = None
    """Smallest amount, in the budget's unit, that pays for one; None if no budget helps."""


def enumerate_candidates(group_sizes: Sequence[int], limits: Limits) -> tuple[list[Candidate], list[Rejection]]:
    """Candidates for the group sizes that have one, and rejections for the others."""
    found = [candidate(n, limits) for n in group_sizes]
    return (
        [c for c in found if isinstance(c, Candidate)],
        [r for r in found if isinstance(r, Rejection)],
    )


def candidate(n: int, limits: Limits) -> Candidate | Rejection:
    """The allocation for one group size: the smallest B_p allowed and the most steps that the budget buys.

    If M is fixed and B free, B_p is the largest that the budget buys instead.
    """
    problems = _problems_per_batch(n, limits)
    if isinstance(problems, Rejection):
        return problems
    if limits.n_problems is not None and problems > limits.n_problems:
        return Rejection(n, "n_problems", f"B_p = {problems} is more than the {limits.n_problems} training problems")
    limits = replace(limits, pricing=limits.pricing_of(n, problems))
    return _refused_by_hardware(n, problems, limits) or _steps(n, problems, limits)


def _problems_per_batch(n: int, limits: Limits) -> int | Rejection:
    fixed = limits.fixed
    if fixed.rollouts_per_batch is not None:
        return _from_fixed_batch(n, fixed.rollouts_per_batch, limits)
    if fixed.problems_per_batch is not None:
        return fixed.problems_per_batch
    unit = _unit_problems(n, limits.hardware)
    smallest = math.ceil(limits.floor / unit) * unit
    if limits.n_problems is not None:
        smallest = min(smallest, limits.n_problems // unit * unit) or smallest
    if fixed.update_steps is None:
        return smallest
    refused = _refused_by_hardware(n, smallest, limits) or _unaffordable(n, smallest, fixed.update_steps, limits)
    return refused or _largest_problems(n, fixed.update_steps, limits) // unit * unit


def _from_fixed_batch(n: int, batch: int, limits: Limits) -> int | Rejection:
    problems, rest = divmod(batch, n)
    wanted = limits.fixed.problems_per_batch
    if rest or problems < 1:
        return Rejection(n, "rollouts_per_batch", f"n = {n} does not divide rollouts_per_batch = {batch}")
    if wanted is not None and wanted != problems:
        return Rejection(n, "rollouts_per_batch", f"n = {n} gives B_p = {batch} / {n} = {problems}, not {wanted}")
    if wanted is None and problems < limits.floor:
        return Rejection(
            n,
            "problems_per_batch",
            f"n = {n} leaves B_p = {batch} / {n} = {problems}, below the recipe's floor of {limits.floor}",
        )
    return problems


def _unit_problems(n: int, hardware: Hardware) -> int:
    """Smallest B_p for which n * B_p is a multiple of the hardware's divisor."""
    return hardware.divisor // math.gcd(n, hardware.divisor)


def _largest_problems(n: int, steps: int, limits: Limits) -> int:
    """Largest B_p with which `steps` steps fit the budget and the batch fits the hardware."""
    limit = limits.hardware.max_rollouts_per_batch
    if limits.n_problems is not None:
        limit = min(limit or limits.n_problems * n, limits.n_problems * n)
    high = 1
    while limits.pricing.within(2 * high * n, steps) and (limit is None or 2 * high * n <= limit):
        high *= 2
    if high == 1 and not limits.pricing.within(n, steps):
        return 0
    low, high = high, 2 * high
    if limit is not None:
        high = min(high, limit // n + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if limits.pricing.within(middle * n, steps) else (low, middle)
    return low


def ends_batch(n: int, problems: int, steps: int, limits: Limits) -> str:
    """What limits B_p if M is fixed: `max_rollouts_per_batch`, `deadline` or `budget`."""
    larger = n * (problems + _unit_problems(n, limits.hardware))
    limit = limits.hardware.max_rollouts_per_batch
    if limit is not None and larger > limit:
        return "max_rollouts_per_batch"
    return "budget" if limits.pricing.in_time(larger, steps) else "deadline"


def _refused_by_hardware(n: int, problems: int, limits: Limits) -> Rejection | None:
    batch, limit = n * problems, limits.hardware.max_rollouts_per_batch
    throughput, timed = limits.pricing.throughput, limits.pricing.budget.timed
    unknown = throughput.refusal(batch) if throughput is not None and timed else None
    if unknown is not None:
        return Rejection(n, "throughput", unknown)
    refusal = limits.hardware.refusal(batch)
    if refusal is None:
        return None
    return Rejection(n, "max_rollouts_per_batch" if limit is not None and batch > limit else "divisible_by", refusal)


def _unaffordable(n: int, problems: int, needed: int, limits: Limits) -> Rejection | None:
    """Why `needed` steps exceed budget or deadline; None if they do not."""
    pricing, batch = limits.pricing, n * problems
    steps = f"{needed} steps of n * B_p = {n} * {problems} = {batch} rollouts"
    if not pricing.in_time(batch, needed):
        wall = pricing.cost_in("wall_hours", batch, needed)
        latest = pricing.budget.deadline_hours
        return Rejection(n, "deadline", f"{steps} take {wall:,.2f} hours, past the deadline of {latest:,g} hours")
    if pricing.within(batch, needed):
        return None
    cost, unit = pricing.cost(batch, needed), pricing.budget.unit
    constraint = "min_update_steps" if limits.fixed.update_steps is None else "budget"
    reason = f"{steps} cost {amount_text(cost, unit)}, more than {amount_text(pricing.budget.available, unit)}"
    return Rejection(n, constraint, reason, cost + pricing.budget.committed)


def _steps(n: int, problems: int, limits: Limits) -> Candidate | Rejection:
    wanted = limits.fixed.update_steps
    refused = _unaffordable(n, problems, limits.min_update_steps if wanted is None else wanted, limits)
    if refused is not None:
        return refused
    if wanted is not None:
        return Candidate(n, problems, wanted, "update_steps")
    steps, ends_by = limits.pricing.affordable_steps(n * problems)
    return Candidate(n, problems, steps, ends_by)


Mode = Literal["expected", "conservative"]

CONSERVATIVE_QUANTILE = 0.1
"""Conservative, by a prior: the n whose 90 % worst regret is least."""
_LOSS_OCTAVES = (0.0, 1.0, 2.0, 4.0, 6.0)
_LOSS_SHARE = (0.0, 0.03, 0.17, 0.28, 0.33)
"""Share of the reward gain lost when n is that many octaves off: fitted Easy curves of the paper's fig. 6 at 3 M
rollouts, n = 256, 128, 32, 8 against 512. Taken as symmetric, which is an assumption."""


@dataclass(frozen=True)
class LawPreference:
    """By a law, or for a prior by expected regret; `distance` is in octaves, or in shares of the gain."""

    fits: Fits
    law: str
    """The deciding law: `group_size` or `group_size_vs_steps`."""
    mode: Mode
    pricing: Pricing

    def best(self, candidates: Sequence[Candidate], fixed: Fixed | None = None) -> Candidate:
        """The candidate nearest to the law, the smaller n of two equal ones.

        The law is evaluated at the largest compute of any candidate: at its own compute, an n that spends little
        would look right for that little. If B_p and M are fixed, n alone decides how much is spent: then it is the
        largest n that the law calls best at any compute.
        """
        at = max(candidates, key=lambda c: c.rollouts)
        if fixed is not None and fixed.problems_per_batch is not None and fixed.update_steps is not None:
            useful = [c for c in candidates if c.group_size <= self.fits.law(self.law).saturation * 2**0.5]
            return max(useful or candidates, key=lambda c: c.group_size)
        return min(candidates, key=lambda c: (round(self.distance(c.group_size, at), 9), c.group_size))

    def distance(self, n: int, at: Candidate) -> float:
        """Octaves from the law's n at that candidate's compute; for a prior, the expected regret."""
        value, octave, law = self.value(at), float(np.log2(n)), self.fits.law(self.law)
        if self.fits.method != "prior":
            return abs(octave - float(law.log2(value)))
        draws_D4 = self.fits.law_draws[self.law]
        apart_D = np.abs(octave - sigmoid(law.to_x(value), *(draws_D4[:, i] for i in range(4))))
        regret_D = np.interp(apart_D, _LOSS_OCTAVES, _LOSS_SHARE)
        careful = self.mode == "conservative"
        return float(np.quantile(regret_D, 1.0 - CONSERVATIVE_QUANTILE)) if careful else float(np.mean(regret_D))

    def value(self, at: Candidate) -> float:
        """The law's raw x for a candidate: compute, or steps."""
        in_steps = self.law == "group_size_vs_steps"
        return float(at.update_steps) if in_steps else self.pricing.compute(at.rollouts, self.fits.compute)

    def wanted(self, at: Candidate) -> float | None:
        """The law's n; None for a prior, which has many."""
        return None if self.fits.method == "prior" else float(self.fits.law(self.law).predict(self.value(at)))
