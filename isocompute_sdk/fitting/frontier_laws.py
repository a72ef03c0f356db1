"""Laws through the best sizes along the frontier (n*(C); n*(M), B_p*(M) at a fixed batch), and notes on limits."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator
from dataclasses import replace

import numpy as np

from isocompute_sdk.errors import FitError
from isocompute_sdk.fitting.allocation import AllocationLaw
from isocompute_sdk.fitting.arrays import Array, FitStatus
from isocompute_sdk.fitting.fit_parts import frontier, log_grid, span
from isocompute_sdk.fitting.fits import Fits
from isocompute_sdk.fitting.paper.reward_curve import PLATEAU_SEEN, RewardCurve
from isocompute_sdk.fitting.surface.answers import best_size_interval
from isocompute_sdk.fitting.surface.surface import SEEN
from isocompute_sdk.notes import Note
from isocompute_sdk.phrases import joined
from isocompute_sdk.tolerances import FAR, LEVEL

LAW_POINTS_PER_DECADE = 60
"""Samples of the frontier to which laws are fitted."""
MONOTONE_SHARE = 0.8
"""No law in steps is fitted if the best monotone step function explains a smaller share of log2 n*. On simulated
sweeps with a monotone truth it explained at least .94 at an evaluation noise of .01."""
FALLING_SHARE = 0.95
"""n*(C) falls only if the best falling step function explains this share of log2 n*. Noise makes frontiers of two
levels fall where the true best n rises: laws that fell whenever least squares asked for it lost .02 more at 10x, on 240
simulated sweeps."""


def with_group_size_law(fits: Fits, curves: list[RewardCurve]) -> Fits:
    """The fits with n*(C), or with the reason for its absence.

    The law rises, as in the paper (section 4), unless the best n clearly falls with compute.
    """
    low, high = span(curves)
    if high <= low:
        return replace(fits, unsupported={"group_size": "all evaluations were made at the same budget"})
    grid = log_grid(low, high, LAW_POINTS_PER_DECADE)
    # The envelope of whole curves: if they only counted from their first evaluation on, the law would follow the
    # schedule of evaluations.
    best_T = np.argmax(np.stack([curve.predict(grid) for curve in curves]), axis=0)
    sizes_T = np.array([curve.group_size for curve in curves], dtype=float)[best_T]
    octaves_T = np.log2(sizes_T)
    # Over three levels or more, with hardly a rise between.
    falls = len(np.unique(octaves_T)) > 2 and _explained(octaves_T, increasing=False) >= FALLING_SHARE
    law = AllocationLaw.fit(grid, sizes_T, fits.compute, rising=not falls)
    return replace(fits, laws={**fits.laws, "group_size": law})


def with_step_laws(fits: Fits, rollouts_per_batch: int | None) -> Fits:
    """The fits with n*(M) and B_p*(M) at one fixed batch B = n B_p, or with the reason for their absence.

    Args:
        fits: fits with curves.
        rollouts_per_batch: the batch B; None for the one with most configurations.
    """
    names = ("group_size_vs_steps", "problems_per_batch_vs_steps")
    by_batch: dict[int, list[RewardCurve]] = defaultdict(list)
    for curve in fits.select():
        if curve.problems_per_batch is not None:
            by_batch[curve.group_size * curve.problems_per_batch].append(curve)
    shared = {batch: curves for batch, curves in by_batch.items() if len(curves) > 1}
    if rollouts_per_batch not in (None, *shared):
        raise FitError(
            f"rollouts_per_batch = {rollouts_per_batch}: fewer than two configurations have it; "
            f"shared by two or more: {sorted(shared) or 'none'}",
            "Choose one of these batches, or leave <--rollouts-per-batch | rollouts_per_batch=> out.",
        )

    def without(reason: str) -> Fits:
        return replace(fits, unsupported={**fits.unsupported, **dict.fromkeys(names, reason)})

    if fits.compute != "log10_rollouts":
        return without("laws in steps need compute in rollouts, and these fits count tokens")
    if not shared:
        return without("no two configurations share one rollouts_per_batch = n * B_p")
    batch = rollouts_per_batch or max(shared, key=lambda b: (len(shared[b]), b))
    curves = shared[batch]
    grid = log_grid(*span(curves), LAW_POINTS_PER_DECADE)
    best = frontier(curves, grid)
    seen = ~best.extrapolated
    steps = grid[seen] / batch
    if len(np.unique(steps)) < 2:
        return without(f"at B = {batch} the best curve has no evaluations near any budget")
    if not monotone(steps, np.log2(best.group_size[seen])):
        return without(f"at B = {batch} the best n rises and falls with M, as on the paper's Hard set")
    values = (best.group_size[seen].astype(float), best.problems_per_batch[seen])
    laws = {name: AllocationLaw.fit(steps, sizes, "update_steps") for name, sizes in zip(names, values, strict=True)}
    return replace(fits, laws={**fits.laws, **laws}, rollouts_per_batch=batch)


def monotone(x: Array, octaves: Array) -> bool:
    """Whether a rising or falling curve explains most of the variance of the best size."""
    ordered = octaves[np.argsort(x)]
    return max(_explained(ordered, increasing=up) for up in (True, False)) >= MONOTONE_SHARE


def _explained(octaves: Array, *, increasing: bool) -> float:
    """Share of the variance that the best rising (or falling) step function explains; 1 without variance."""
    total = float(np.sum((octaves - octaves.mean()) ** 2))
    if total == 0:
        return 1.0
    rising = octaves if increasing else -octaves
    return 1 - float(np.sum((rising - nearest_rising(rising)) ** 2)) / total


def nearest_rising(values: Array) -> Array:
    """The values that never fall and are nearest by least squares.

    scipy's `isotonic_regression` is the same; its import takes as long as a fit.
    """
    # At each place the largest, over first points, of the least mean, over last points.
    to, place = np.append(0.0, np.cumsum(values)), np.arange(len(values))
    count = place[None, :] - place[:, None] + 1
    mean = np.where(count > 0, (to[None, 1:] - to[:-1, None]) / np.maximum(count, 1), np.inf)
    least = np.minimum.accumulate(mean[:, ::-1], axis=1)[:, ::-1]
    return np.max(np.where(count > 0, least, -np.inf), axis=0)


POINTS_PER_DECADE = 24
SURFACE_LAW_POINTS = 6
ROUNDS = 8
INSIDE = 0.05
"""Rounds in which a law is drawn into the set of n*, and octaves by which it is to keep inside."""


def with_law(fits: Fits) -> Fits:
    """The fits with a law through n*(C) of the data and `FAR` times beyond, or with the reason for its absence."""
    if len(fits.group_sizes) < 2:
        return replace(fits, unsupported={"group_size": "only one group size was run"})
    low, high = span(fits.select())
    if high <= low:
        return replace(fits, unsupported={"group_size": "all evaluations are at one compute"})
    compute_T = log_grid(low, high, POINTS_PER_DECADE)
    if not monotone(compute_T, np.log2(frontier(fits.select(), compute_T).group_size)):
        reason = "the best n rises and falls with compute, which no sigmoid describes; plans use the surface itself"
        return replace(fits, unsupported={"group_size": reason})
    return replace(fits, laws={"group_size": _through(fits, log_grid(low, FAR * high, SURFACE_LAW_POINTS))})


def _through(fits: Fits, compute_T: Array) -> AllocationLaw:
    """The sigmoid nearest to n*(C) that keeps within its set as far as a sigmoid can (alternating projections)."""
    octave_T = np.log2(fits.best_group_size(compute_T))
    assert fits.surface is not None, "checked by the caller"
    smallest, largest = fits.group_size_range
    ends = [best_size_interval(fits.surface, float(c), (smallest, 2 * largest), LEVEL) for c in compute_T]
    low_T, high_T = np.log2(np.array(ends, dtype=float)).T
    low_T, high_T = np.minimum(low_T, octave_T), np.maximum(high_T, octave_T)
    margin_T = np.minimum(INSIDE, (high_T - low_T) / 2)
    law = AllocationLaw.fit(compute_T, 2.0**octave_T, fits.compute)
    for _ in range(ROUNDS):
        drawn_T = law.log2(compute_T)
        wanted_T = np.clip(drawn_T, low_T + margin_T, high_T - margin_T)
        if np.max(np.abs(wanted_T - drawn_T)) <= INSIDE:
            break
        law = AllocationLaw.fit(compute_T, 2.0**wanted_T, fits.compute)
    return law


def about_curves(fits: Fits) -> Iterator[Note]:
    """Notes on unknown B_p, plateaus that no data show, and too few levels."""
    if any(bp is None for _, bp in fits.curves):
        yield Note(
            "sizes-unknown",
            "info",
            "The runs do not record their problems per batch, so the B_p of a plan comes from the recipe. Add the "
            "column, or --set problems_per_batch=...",
            {"columns": ["problems_per_batch"]},
        )
    # A passport says so of all curves together.
    if "plateau-unidentified" not in fits.doubts:
        yield from unseen_plateaus(fits, fits.group_sizes)
    # A passport says so of a surface, which has a prior between and beyond the levels.
    if len(fits.group_sizes) == 2 and fits.surface is None:
        yield Note(
            "few-group-sizes",
            "warning",
            f"Only two group sizes were run ({fits.group_sizes[0]} and {fits.group_sizes[1]}): the law is a step "
            "between them and gives no answer for other n. Four levels, 4x apart, are a good pilot.",
            {"group_sizes": list(fits.group_sizes)},
        )


def unseen_plateaus(fits: Fits, group_sizes: Collection[int]) -> Iterator[Note]:
    """Of which curves of these n no data show the plateau."""
    unseen = [c for c in fits.curves.values() if not c.plateau_identified and c.group_size in group_sizes]
    if not unseen:
        return
    why = (
        f"data below {PLATEAU_SEEN:g} x their half-way compute, a parameter on its bound, or too few evaluations"
        if fits.surface is None
        else f"less than {SEEN:.0%} of their predicted rise was measured"
    )
    listed = "; ".join(f"n = {c.group_size}, B_p = {c.problems_per_batch or 'unknown'}" for c in unseen)
    yield Note(
        "plateau-unidentified",
        "warning",
        f"The plateau of these curves is an extrapolation ({why}): {listed}. Longer runs at these n would show it.",
        {
            "configurations": [[c.group_size, c.problems_per_batch] for c in unseen],
            "status": [c.status.value for c in unseen],
        },
    )


def about_laws(fits: Fits) -> Iterator[Note]:
    """Notes on laws on a bound, and on a best n that the grid or the batch limit may end."""
    yield from (_law_at_bound(name, fits) for name, law in fits.laws.items() if law.status is FitStatus.AT_BOUND)
    if len(fits.group_sizes) < 2 or ("group_size" not in fits.laws and fits.surface is None):
        return
    best, largest, limit = _best_at_end(fits, None), fits.group_sizes[-1], _batch_limit(fits)
    near: list[tuple[int, int]] = []
    if limit is not None:
        sizes = [(_best_at_end(fits, bp), bp) for bp in fits.problems_per_batch]
        near = [(n, bp) for n, bp in sizes if 2 * n * bp >= limit]
    if best != largest and not near:
        return
    parts = [f"is the largest that was run ({largest})"] if best == largest else []
    limits = [f"{(limit or 0) / bp:g} (n = {n}, B_p = {bp})" for n, bp in near]
    parts += [f"lies within one octave of B_max / B_p = {joined(limits)}"] if near else []
    yield Note(
        "best-group-size-at-grid-edge",
        "warning",
        f"At the largest compute the best n {' and '.join(parts)}: a larger n may be better. A run there would tell.",
        {"group_size": best, "near_limit": [list(pair) for pair in near], "max_rollouts_per_batch": limit},
    )


def _best_at_end(fits: Fits, problems_per_batch: int | None) -> int:
    """The best n at the largest compute, over all B_p or at one."""
    curves = fits.select(problems_per_batch)
    return int(frontier(curves, span(curves)[1]).group_size[0])


def _batch_limit(fits: Fits) -> int | None:
    """B_max: as given, else the largest n * B_p if two B_p or more end their grid there; None if unknown."""
    largest: dict[int, int] = {}
    for n, bp in fits.curves:
        if bp is not None:
            largest[bp] = max(largest.get(bp, 0), n * bp)
    tops = list(largest.values())
    shared = max(tops) if tops and tops.count(max(tops)) > 1 else None
    return fits.max_rollouts_per_batch or shared


def _law_at_bound(name: str, fits: Fits) -> Note:
    law = fits.laws[name]
    if law.at_bound == ("L",) and law.L == 0:
        best = f"{law.lower_plateau:g} is best at every budget in the data"
        text = f"{name}: {best}, so this law is flat; beyond the data a plan may choose another."
    elif "k" in law.at_bound:
        step = f"M = {law.midpoint:.3g}" if law.x == "update_steps" else f"C = {10**law.midpoint:.3g}"
        what, over = ("B_p", "steps") if "problems" in name else ("n", "the budget" if step[0] == "C" else "steps")
        text = (
            f"these runs do not show how fast the best {what} grows with {over}, only that it does near {step}; "
            f"runs at more levels of {what} would ({name}: k = {law.k:.3g} is a lower limit)."
        )
    else:
        text = f"{name}: {', '.join(law.at_bound)} stopped on a bound: limits, not estimates."
    return Note("law-at-bound", "warning", text, {"law": name, "at_bound": list(law.at_bound)})
