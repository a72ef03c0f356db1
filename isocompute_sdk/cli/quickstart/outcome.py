"""Summary of a closed loop: measured against predicted, and near-ties between group sizes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from isocompute_sdk.tolerances import Tolerances

if TYPE_CHECKING:
    from isocompute_sdk.campaigns.campaign import Outcome
    from isocompute_sdk.fitting.fits import Fits


def describe_outcome(outcome: Outcome) -> Iterator[str]:
    """Plan, prediction, measurement, and how the group sizes compare once the new run is known."""
    plan, seen = outcome.plan, outcome.comparison
    times = plan.rollouts / seen.largest_compute
    yield (
        f"plan: n = {plan.group_size}, B_p = {plan.problems_per_batch}, M = {plan.update_steps:,}: "
        f"{plan.rollouts:,} rollouts, {times:.1f} x the largest of the pilot"
    )
    yield from _near_ties(outcome)
    yield seen.summary()
    yield from _group_sizes(outcome)
    yield _trend(outcome)


def _near_ties(outcome: Outcome) -> Iterator[str]:
    """Plans with another n or B_p that the pilot could not distinguish from the chosen one."""
    plan, fits = outcome.plan, outcome.fits
    for other in plan.alternatives:
        if other.kind == "near-tie":
            reward = "" if other.predicted_reward is None else f", predicted {other.predicted_reward:.3f}"
            yield f"near-tie with that plan: n = {other.group_size}, B_p = {other.problems_per_batch}{reward}"
    chosen = fits.nearest_problems_per_batch(plan.problems_per_batch)
    here = float(fits.predict(plan.rollouts, plan.group_size, chosen).mean)
    measured = {c.problems_per_batch for c in fits.curves.values() if c.group_size == plan.group_size}
    for bp in sorted(bp for bp in measured if bp is not None and bp != chosen):
        there = float(fits.predict(plan.rollouts, plan.group_size, bp).mean)
        if abs(there - here) <= tolerance(fits):
            yield (
                f"near-tie with that plan: n = {plan.group_size}, B_p = {bp}, predicted {there:.3f} at the same "
                f"rollouts ({there - here:+.3f})"
            )


def noise(fits: Fits) -> float:
    """Typical distance of one evaluation from its curve."""
    return float(np.median([curve.rms for curve in fits.curves.values()]))


def tolerance(fits: Fits) -> float:
    """Rewards closer than this are near-ties: the planner's tie or the noise of one evaluation, whichever is larger."""
    return max(Tolerances(fits.bounds[1] - fits.bounds[0]).equal, noise(fits))


def _group_sizes(outcome: Outcome) -> Iterator[str]:
    """Ranking of the group sizes at the largest common compute, then at the plan's compute."""
    fits, plan, seen = outcome.refitted, outcome.plan, outcome.comparison
    bp = fits.nearest_problems_per_batch(plan.problems_per_batch)
    curves = fits.select(bp)
    common = min(curve.last_compute for curve in curves)
    listed, verdict = _ranking(fits, common, bp)
    yield f"at {common:,.0f} rollouts, where all n were measured: {listed}; {verdict}"
    beyond = [curve.group_size for curve in curves if curve.last_compute < seen.rollouts * (1 - 1e-9)]
    if beyond:
        listed, verdict = _ranking(fits, seen.rollouts, bp)
        short = ", ".join(map(str, sorted(set(beyond))))
        yield (
            f"at {seen.rollouts:,.0f} rollouts, where the curves of n = {short} are extrapolated: {listed}; {verdict}; "
            f"no run of n = {short} went that far: a forecast, not a finding"
        )


def _ranking(fits: Fits, at: float, bp: int | None) -> tuple[str, str]:
    """Rewards by group size after the refit, and how clearly the best one leads."""
    sizes, near = np.array(fits.group_sizes), tolerance(fits)
    found = fits.predict(np.full(len(sizes), at), sizes, bp)
    best = int(np.argmax(found.mean))
    listed = ", ".join(f"n = {n}: {reward:.3f}" for n, reward in zip(sizes, found.mean, strict=True))
    near_C = found.mean[best] - found.mean <= near
    open_C = (found.high >= found.low[best]) & ~near_C
    if np.count_nonzero(near_C) > 1:
        verdict = f"near-tie between n = {_listed(sizes[near_C])}, within the noise of one evaluation ({near:.3f})"
    elif open_C.any():
        verdict = f"n = {sizes[best]} is ahead"
    else:
        verdict = f"n = {sizes[best]} leads by more than the noise of one evaluation ({near:.3f})"
    # An extrapolated curve has a wide interval, which says more than the noise of one evaluation.
    rest = f"; not settled for n = {_listed(sizes[open_C])}, whose intervals overlap" if open_C.any() else ""
    return listed, verdict + rest


def _listed(sizes: np.ndarray) -> str:
    return " and ".join(map(str, sizes))


def _trend(outcome: Outcome) -> str:
    """Whether a larger n wins at larger C; on a task this small it may not."""
    fits = outcome.refitted
    passes = fits.handovers(fits.nearest_problems_per_batch(outcome.plan.problems_per_batch))
    if not passes:
        return (
            f"no budget was seen at which another n than {_best(outcome)} wins: the growth of the best n with C that "
            "the paper reports does not show on this small task"
        )
    listed = ", ".join(f"{h.from_group_size} to {h.to_group_size} at {h.compute:,.3g} rollouts" for h in passes)
    return f"the best curve passes from n = {listed}; with near-ties as above this can be noise"


def _best(outcome: Outcome) -> int:
    fits = outcome.refitted
    bp = fits.nearest_problems_per_batch(outcome.plan.problems_per_batch)
    return int(fits.frontier(outcome.comparison.largest_compute, bp).group_size[0])
