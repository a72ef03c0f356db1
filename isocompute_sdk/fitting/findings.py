"""Notes on the limits of reward curves and laws, for both methods."""

from __future__ import annotations

from collections.abc import Iterator

from isocompute_sdk.fitting.arrays import FitStatus
from isocompute_sdk.fitting.fits import Fits
from isocompute_sdk.fitting.frontier import frontier, span
from isocompute_sdk.fitting.paper.reward_curve import PLATEAU_SEEN, RewardCurve
from isocompute_sdk.fitting.surface.curves import SEEN
from isocompute_sdk.notes import Note


def about_curves(fits: Fits) -> Iterator[Note]:
    """Notes on unknown B_p, plateaus without data, parameters on bounds, and too few points or levels."""
    if any(bp is None for _, bp in fits.curves):
        yield Note(
            "problems-per-batch-unknown",
            "info",
            "The runs do not record their problems per batch, so the B_p of a plan comes from the recipe.",
        )
    unseen = [c for c in fits.curves.values() if not c.plateau_identified]
    if unseen:
        why = (
            f"data below {PLATEAU_SEEN:g} x their half-way compute, or a parameter on its bound"
            if fits.surface is None
            else f"less than {SEEN:.0%} of their predicted rise was measured"
        )
        yield Note(
            "plateau-unidentified",
            "warning",
            f"The plateau of these curves is an extrapolation ({why}): {_names(unseen)}. "
            "Longer runs at these n would show it.",
            {"configurations": [[c.group_size, c.problems_per_batch] for c in unseen]},
        )
    bound = [c for c in fits.curves.values() if c.status is FitStatus.AT_BOUND]
    if bound:
        yield Note(
            "curve-at-bound",
            "warning",
            "Curve parameters stopped on a bound and are limits, not estimates: "
            + "; ".join(f"{_name(c)}: {', '.join(c.at_bound)}" for c in bound),
            {"configurations": [[c.group_size, c.problems_per_batch, list(c.at_bound)] for c in bound]},
        )
    few = [c for c in fits.curves.values() if c.status is FitStatus.TOO_FEW_POINTS]
    if few:
        yield Note(
            "curve-too-few-points",
            "warning",
            f"As many parameters as evaluations, or more: {_names(few)}. These curves pass through any data.",
            {"configurations": [[c.group_size, c.problems_per_batch] for c in few]},
        )
    # A passport says so of a surface, which has a prior between and beyond the levels.
    if len(fits.group_sizes) == 2 and fits.surface is None:
        yield Note(
            "few-group-sizes",
            "warning",
            f"Only two group sizes were run ({fits.group_sizes[0]} and {fits.group_sizes[1]}): the law is a step "
            "between them and gives no answer for other n. Four levels, 4x apart, are a good pilot.",
            {"group_sizes": list(fits.group_sizes)},
        )


def about_laws(fits: Fits) -> Iterator[Note]:
    """Notes on laws on a bound, and on a saturation set by the grid or by the batch limit."""
    yield from (_law_at_bound(name, fits) for name, law in fits.laws.items() if law.status is FitStatus.AT_BOUND)
    if len(fits.group_sizes) < 2 or ("group_size" not in fits.laws and fits.surface is None):
        return
    curves = fits.select()
    top = frontier(curves, span(curves)[1])
    best = int(top.group_size[0])
    largest = fits.group_sizes[-1]
    if best == largest:
        yield Note(
            "best-group-size-at-grid-edge",
            "warning",
            f"At the largest compute the best n is the largest that was run ({largest}): the data do not show "
            "where n* saturates, and the grid sets the plateau of a law. isocompute next says whether a run of a "
            "larger n is worth its cost.",
            {"group_size": best},
        )
    yield from _censored(fits)


def _censored(fits: Fits) -> Iterator[Note]:
    """Levels of B_p at which the best n ends within one octave of B_max / B_p."""
    limit = fits.max_rollouts_per_batch or _shared_limit(fits)
    if limit is None:
        return
    close: list[tuple[int, int]] = []
    for bp in fits.problems_per_batch:
        curves = fits.select(bp)
        best = int(frontier(curves, span(curves)[1]).group_size[0])
        close += [(best, bp)] if 2 * best * bp >= limit else []
    if not close:
        return
    listed = "; ".join(f"n* = {n} at B_p = {bp} (B_max / B_p = {limit / bp:g})" for n, bp in close)
    yield Note(
        "plateau-censored-by-batch-limit",
        "warning",
        f"Within one octave of the batch limit: {listed}. The limit, not the reward, may end the growth of n* "
        "there (an open question of the paper, appendix B).",
        {"configurations": [list(pair) for pair in close], "max_rollouts_per_batch": int(limit)},
    )


def _law_at_bound(name: str, fits: Fits) -> Note:
    law = fits.laws[name]
    if law.at_bound == ("L",) and law.L == 0:
        text = f"{name}: the best value is {law.lower_plateau:g} at every budget in the data, so the law is flat."
    elif "k" in law.at_bound:
        text = (
            f"{name}: k = {law.k:.3g} is a lower limit, the law is a step at {_position(law.midpoint, law.x)}; "
            "more levels of n or budgets near the step would show how steep it is."
        )
    else:
        text = f"{name}: {', '.join(law.at_bound)} stopped on a bound: limits, not estimates."
    return Note("law-at-bound", "warning", text, {"law": name, "at_bound": list(law.at_bound)})


def _position(midpoint: float, x: str) -> str:
    return f"M = {midpoint:.3g}" if x == "update_steps" else f"C = {10**midpoint:.3g}"


def _shared_limit(fits: Fits) -> int | None:
    """The largest n * B_p if two B_p or more end their grid there, which suggests a batch limit; else None."""
    largest: dict[int, int] = {}
    for n, bp in fits.curves:
        if bp is not None:
            largest[bp] = max(largest.get(bp, 0), n * bp)
    tops = list(largest.values())
    return max(tops) if tops and tops.count(max(tops)) > 1 else None


def _bp(value: int | None) -> str:
    return "unknown" if value is None else str(value)


def _name(curve: RewardCurve) -> str:
    return f"n = {curve.group_size}, B_p = {_bp(curve.problems_per_batch)}"


def _names(curves: list[RewardCurve]) -> str:
    return "; ".join(_name(c) for c in curves)
