"""What a closed loop showed, in words that the numbers bear: measured against predicted, and what is a near-tie."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from isocompute_sdk.planner.question import TIE

if TYPE_CHECKING:
    from isocompute_sdk.campaign import Outcome
    from isocompute_sdk.fitting.fits import Fits


def describe_outcome(outcome: Outcome) -> Iterator[str]:
    """Plan, prediction, measurement, and how the group sizes compare once the new run is known."""
    plan, seen = outcome.plan, outcome.comparison
    times = plan.rollouts / seen.largest_compute
    yield (
        f"plan: n = {plan.group_size}, B_p = {plan.problems_per_batch}, M = {plan.update_steps:,}: "
        f"{plan.rollouts:,} rollouts, {times:.1f} x the largest of the pilot"
    )
    yield (
        f"predicted {seen.metric} {seen.predicted:.3f} (80 % interval of one run {seen.low:.3f} to {seen.high:.3f}), "
        f"measured {seen.measured:.3f}: {_verdict(outcome)}"
    )
    yield from _group_sizes(outcome)


def noise(fits: Fits) -> float:
    """Typical distance of one evaluation from its curve."""
    return float(np.median([curve.rms for curve in fits.curves.values()]))


def tolerance(fits: Fits) -> float:
    """Rewards closer than this are near-ties: the planner's tie, or the noise of one evaluation where that is more."""
    return max(TIE * (fits.bounds[1] - fits.bounds[0]), noise(fits))


def _verdict(outcome: Outcome) -> str:
    seen = outcome.comparison
    if seen.inside:
        return f"inside the interval ({seen.error:+.3f})"
    side = "above" if seen.error > 0 else "below"
    return f"{side} the interval ({seen.error:+.3f}); such intervals are too narrow, more so beyond the data"


def _group_sizes(outcome: Outcome) -> Iterator[str]:
    """Every group size at the plan's compute, with near-ties called so."""
    fits, plan = outcome.refitted, outcome.plan
    at, bp = float(plan.rollouts), plan.problems_per_batch
    sizes = np.array(fits.group_sizes)
    rewards = fits.predict(np.full(len(sizes), at), sizes, bp).mean
    best = int(np.argmax(rewards))
    near = tolerance(fits)
    told = ", ".join(f"n = {n}: {reward:.3f}" for n, reward in zip(sizes, rewards, strict=True))
    extrapolated = [str(n) for n in sizes if not _measured_at(fits, int(n), bp, at)]
    yield f"after the refit, at {plan.rollouts:,} rollouts: {told}" + (
        f" (extrapolated for n = {', '.join(extrapolated)})" if extrapolated else ""
    )
    ties = [int(n) for n, reward in zip(sizes, rewards, strict=True) if rewards[best] - reward <= near]
    if len(ties) > 1:
        yield (
            f"near-tie: n = {' and '.join(map(str, ties))} lie within {near:.3f} of each other, the noise of one "
            "evaluation: take either"
        )
    else:
        yield f"n = {ties[0]} leads by more than the noise of one evaluation ({near:.3f})"
    yield _trend(fits, bp, at)


def _trend(fits: Fits, bp: int, at: float) -> str:
    """Whether larger n was seen to win at larger C; on a task this small it need not."""
    passes = [h for h in fits.handovers(fits.nearest_problems_per_batch(bp)) if h.compute <= at]
    smallest = min(fits.group_sizes)
    if not passes:
        return (
            f"no budget was seen at which a larger n than {smallest} wins: the growth of n* with C that the paper "
            "reports does not show on this small task"
        )
    told = ", ".join(f"{h.from_group_size} -> {h.to_group_size} at {h.compute:,.3g} rollouts" for h in passes)
    return f"the best curve changes hands ({told}); read it with the near-ties above: it can be noise"


def _measured_at(fits: Fits, n: int, bp: int, at: float) -> bool:
    curve = fits.curves.get((n, fits.nearest_problems_per_batch(bp)))
    return curve is not None and curve.last_compute >= at * (1 - 1e-9)
