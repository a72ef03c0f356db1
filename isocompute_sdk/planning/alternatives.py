"""Other allocations worth knowing about: near-ties, the limits of the plan, best per rollout and per GPU-hour."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from isocompute_sdk.planning.candidates import Candidate, Rejection, ends_batch
from isocompute_sdk.planning.preference import LawPreference, RewardPreference
from isocompute_sdk.planning.pricing import Pricing
from isocompute_sdk.planning.request import ResolvedRequest
from isocompute_sdk.planning.setups import Setup, choose_setup
from isocompute_sdk.specs import Budget
from isocompute_sdk.specs.sweep import Sized
from isocompute_sdk.tolerances import EQUAL, Tolerances


@dataclass(frozen=True)
class Alternative(Sized):
    """Another allocation worth knowing about, at the same budget."""

    kind: str
    """`near-tie`; `close`: within a tie too, but never run, or ahead or behind by the 80 % interval of the difference;
    `on-grid`, `beyond-grid`, `conservative`, `best-by-curves`, `next-power-of-two` or `other`; of a plan that a person
    changed `before-change`."""
    group_size: int
    problems_per_batch: int
    update_steps: int
    predicted_reward: float | None = None
    """Predicted reward; None if the fits cannot predict it."""
    expected_loss: float | None = None
    """Predicted loss of reward against the plan (for a prior, of a share of the gain); negative if it is better."""

    @classmethod
    def of(cls, kind: str, c: Candidate, reward: float | None, loss: float | None) -> Alternative:
        """A candidate as an alternative."""
        return cls(kind, c.group_size, c.problems_per_batch, c.update_steps, reward, loss)


@dataclass(frozen=True)
class Optimum:
    """The configuration with the highest predicted reward for what the plan spends of one unit."""

    per: Literal["rollout", "gpu_hour"]
    """`rollout`: for the plan's rollouts, whatever time they take; `gpu_hour`: for the plan's GPU-hours."""
    group_size: int
    problems_per_batch: int
    gpus: int
    reward_at_equal_rollouts: float
    """Predicted reward with the plan's rollouts."""
    gpu_hours_at_equal_rollouts: float
    """GPU-hours of those rollouts."""
    wall_hours_at_equal_rollouts: float
    reward_at_equal_gpu_hours: float | None
    """Predicted reward with the plan's GPU-hours; None if they do not pay for one update."""
    rollouts_at_equal_gpu_hours: int
    """Rollouts in the plan's GPU-hours."""


def alternatives(
    request: ResolvedRequest, chosen: Candidate, candidates: Sequence[Candidate]
) -> tuple[Alternative, ...]:
    """Near-ties, the best n by the curves alone, the on-grid and the conservative answer."""
    rest = [c for c in request.landmarks(candidates) if c.group_size != chosen.group_size]
    if request.fits.method == "prior":
        return _by_regret(request, chosen, rest)
    found: list[Alternative] = []
    reward = request.reward(chosen)
    if reward is not None:
        known = [(c, r) for c in rest if (r := request.reward(c)) is not None]
        tie = Tolerances(request.span).equal
        for c, r in known:
            if abs(r - reward) <= tie:
                # These runs cannot show that an n above the grid is as good.
                unequal = c.group_size > request.largest or request.apart(chosen, c)
                found.append(Alternative.of("close" if unequal else "near-tie", c, r, reward - r))
        best = max(known, key=lambda pair: pair[1], default=None)
        if best is not None and best[1] > reward + tie:
            kind = "beyond-grid" if best[0].group_size > request.largest else "best-by-curves"
            found.append(Alternative.of(kind, best[0], best[1], reward - best[1]))
    else:
        # Without rewards: the neighbouring size, if rounding the law's n to a power of two was a close call.
        distance = request.preference.distance
        close = [c for c in rest if distance(c.group_size, chosen) <= 0.75]
        found += [Alternative.of("next-power-of-two", c, None, None) for c in close]
    on_grid = [c for c in candidates if request.smallest <= c.group_size <= request.largest]
    if chosen.group_size > request.largest and on_grid:
        best_on_grid = request.preference.best(on_grid)
        found.append(Alternative.of("on-grid", best_on_grid, request.reward(best_on_grid), None))
    careful = request.preference.careful().best(candidates)
    if careful.group_size not in (chosen.group_size, *(a.group_size for a in found if a.kind == "on-grid")):
        r = request.reward(careful)
        found.append(Alternative.of("conservative", careful, r, None if r is None or reward is None else reward - r))
    return tuple(found)


def _by_regret(request: ResolvedRequest, chosen: Candidate, rest: Sequence[Candidate]) -> tuple[Alternative, ...]:
    distance = request.preference.distance
    losses = [(c, distance(c.group_size, chosen) - distance(chosen.group_size, chosen)) for c in rest]
    return tuple(Alternative.of("near-tie" if loss <= EQUAL else "other", c, None, loss) for c, loss in losses)


def binding(request: ResolvedRequest, chosen: Candidate, rejections: Sequence[Rejection]) -> tuple[str, ...]:
    """Constraints that excluded a better n or a larger batch, then what limits M."""
    preference, fixed, limits = request.preference, request.limits.fixed, request.limits
    found = [r.constraint for r in [_best_rejected(request, chosen, rejections)] if r is not None]
    if fixed.update_steps is not None and fixed.problems_per_batch is None and fixed.rollouts_per_batch is None:
        found.append(ends_batch(chosen.group_size, chosen.problems_per_batch, fixed.update_steps, limits))
    wanted = preference.wanted(chosen)
    if wanted is not None and wanted > request.largest * 2**0.5 and chosen.group_size <= request.largest:
        found.append("group_size_grid")
    return (*dict.fromkeys(found), chosen.ends_by)


def _best_rejected(request: ResolvedRequest, chosen: Candidate, rejections: Sequence[Rejection]) -> Rejection | None:
    """The rejected group size that the preference likes most, if it likes it better than the chosen one."""
    fixed, preference = request.limits.fixed, request.preference
    if isinstance(preference, LawPreference) and None not in (fixed.problems_per_batch, fixed.update_steps):
        useful = request.fits.law(preference.law).saturation * 2**0.5
        larger = [r for r in rejections if chosen.group_size < r.group_size <= useful]
        return max(larger, key=lambda r: r.group_size, default=None)
    reach = preference.distance(chosen.group_size, chosen) - 1e-9
    if isinstance(preference, RewardPreference):
        rejections = [r for r in rejections if request.smallest <= r.group_size <= request.largest]
    better = [r for r in rejections if preference.distance(r.group_size, chosen) < reach]
    return min(better, key=lambda r: preference.distance(r.group_size, chosen), default=None)


def find_optima(
    request: ResolvedRequest,
    pricing: Pricing,
    chosen: Candidate,
    sizes: Sequence[int],
    gpu_counts: Sequence[int | None],
) -> tuple[Optimum, ...]:
    """Best per rollout and best per GPU-hour for what the chosen candidate spends.

    Args:
        request: the resolved request, at the recipe's floor of B_p.
        pricing: prices of the chosen candidate, with its number of GPUs.
        chosen: the candidate.
        sizes: group sizes to choose from.
        gpu_counts: numbers of GPUs to choose from, as for `choose_setup`.

    Returns:
        Both, or none without a surface, without a throughput that converts other batches (the two differ in their
        batches), or with a fixed B_p, M or B.
    """
    throughput, budget = pricing.throughput, pricing.budget
    known = throughput is not None and (throughput.measured is None or throughput.measured.separates_batches)
    if request.fits.surface is None or not request.can_predict or not known or not request.limits.fixed.free:
        return ()
    batch, steps = chosen.rollouts_per_batch, chosen.update_steps
    hours = pricing.cost_in("gpu_hours", batch, steps)
    here = gpu_counts if throughput is None or None in gpu_counts else [throughput.gpus]
    same_hours = Budget(gpu_hours=hours * (1 + 1e-9), deadline_hours=budget.deadline_hours)
    same_rollouts = Budget(rollouts=chosen.rollouts)
    by_rollouts = choose_setup(with_budget(request, same_rollouts), sizes, here)
    by_hours = choose_setup(with_budget(request, same_hours), sizes, gpu_counts)
    if not by_rollouts.candidates or not by_hours.candidates:
        return ()
    return (
        _optimum("rollout", by_rollouts, same_hours, chosen.rollouts),
        _optimum("gpu_hour", by_hours, same_hours, chosen.rollouts),
    )


def with_budget(request: ResolvedRequest, budget: Budget) -> ResolvedRequest:
    """The same request for another budget."""
    pricing = replace(request.pricing, budget=budget)
    return replace(request, pricing=pricing, limits=replace(request.limits, pricing=pricing))


def _optimum(per: Literal["rollout", "gpu_hour"], setup: Setup, same_hours: Budget, rollouts: int) -> Optimum:
    best, request = setup.best(), setup.request
    pricing = replace(request.pricing, budget=same_hours)
    batch = best.rollouts_per_batch
    steps = max(1, round(rollouts / batch))
    affordable = pricing.affordable_steps(batch)[0]
    at_rollouts = request.reward(replace(best, update_steps=steps))
    at_hours = request.reward(replace(best, update_steps=affordable)) if affordable else None
    throughput = pricing.throughput
    assert throughput is not None, "checked by find_optima"
    assert at_rollouts is not None, "checked by find_optima"
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
