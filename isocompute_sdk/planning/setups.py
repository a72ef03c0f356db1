"""Setups: the smallest B_p and the number of GPUs that a plan may have, each with the allocations it can afford.

If time decides, a larger B_p may use the hardware better and more GPUs may keep a deadline; a budget in rollouts
depends on neither. Setups are compared by the predicted reward of their best candidate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from isocompute_sdk.planning.candidates import Candidate, Rejection, enumerate_candidates
from isocompute_sdk.planning.request import ResolvedRequest
from isocompute_sdk.tolerances import Tolerances


@dataclass(frozen=True)
class Setup:
    """One smallest B_p on one number of GPUs, with its candidates."""

    request: ResolvedRequest
    candidates: list[Candidate]
    rejections: list[Rejection]

    def best(self) -> Candidate:
        """The preferred candidate."""
        return self.request.preference.best(self.candidates, self.request.limits.fixed)

    @property
    def reward(self) -> float:
        """The surface's reward of the preferred candidate, also if the plan is for another model."""
        best, fits = self.best(), self.request.fits
        at = self.request.pricing.compute(best.rollouts, fits.compute)
        return float(fits.expected_reward(at, best.group_size, best.problems_per_batch))


def choose_setup(request: ResolvedRequest, sizes: Sequence[int], gpu_counts: Sequence[int | None]) -> Setup:
    """The smallest B_p and fewest GPUs that are predicted to lose no more than the tolerance.

    Args:
        request: the resolved request, at the recipe's floor of B_p.
        sizes: group sizes to choose from.
        gpu_counts: numbers of GPUs to choose from; None for that of the throughput.

    Returns:
        The setup; if nothing fits, one without candidates and with every rejection.
    """
    floors = _floors(request, sizes)
    tried = [_setup(request, sizes, floor, gpus) for floor in floors for gpus in gpu_counts]
    able = [setup for setup in tried if setup.candidates]
    if not able:
        return replace(tried[0], rejections=[r for setup in tried for r in setup.rejections])
    if len(able) == 1:
        return able[0]
    if request.fits.surface is None:
        return max(able, key=lambda setup: setup.best().rollouts)
    rewards = [setup.reward for setup in able]
    tolerances = Tolerances(request.span)
    # If time decides, B_p is chosen for speed, which is measured.
    enough = max(rewards) - (tolerances.nothing if request.pricing.budget.timed else tolerances.small)
    return next(setup for setup, reward in zip(able, rewards, strict=True) if reward >= enough)


def _setup(request: ResolvedRequest, sizes: Sequence[int], floor: int, gpus: int | None) -> Setup:
    limits, pricing = replace(request.limits, floor=floor), request.pricing
    if gpus is not None:
        pricing = pricing.at_gpus(gpus)
        limits = replace(limits, pricing=pricing, hardware=limits.hardware.replace(gpus=gpus))
    one = replace(request, limits=limits, pricing=pricing)
    return Setup(one, *enumerate_candidates(sizes, limits))


def _floors(request: ResolvedRequest, sizes: Sequence[int]) -> list[int]:
    """Smallest B_p to try, increasing: the recipe's floor, then stable larger ones that runs or speed suggest."""
    limits, fits, passport = request.limits, request.fits, request.fits.passport
    fixed, floor = limits.fixed, limits.floor
    if passport is None or not fixed.free:
        return [floor]
    levels = [bp for bp in fits.problems_per_batch if bp > floor]
    if request.pricing.budget.timed:
        levels += _for_speed(request, sizes)
    stable = [bp for bp in [floor, *sorted(set(levels))] if bp not in passport.unstable_problems_per_batch]
    return stable or [max([floor, *levels])]


def _for_speed(request: ResolvedRequest, sizes: Sequence[int]) -> list[int]:
    """B_p in octaves, up to one above the largest that was run, and those near the only batch that was timed.

    No octaves where B_p is chosen among those that were run.
    """
    floor, seen = request.limits.floor, request.fits.problems_per_batch
    most = 2 * max(seen, default=floor)
    octaves = () if request.limits.problems_from_runs else range(1, 31)
    found = [floor * 2**i for i in octaves if floor * 2**i <= most]
    throughput = request.pricing.throughput
    if throughput is not None and throughput.measured is not None and not throughput.measured.separates_batches:
        batches = throughput.measured.rollouts_per_batch
        found += [bp for n in sizes for batch in batches if floor < (bp := round(batch / n)) <= most]
    return found
