"""What was run, looked up: the curves at a B_p, the level that lies nearest, a law by name, or why there is none."""

from __future__ import annotations

from collections.abc import Sequence
from math import log2
from typing import TYPE_CHECKING

from isocompute_sdk.errors import FitError
from isocompute_sdk.fitting.allocation import AllocationLaw
from isocompute_sdk.fitting.arguments import check_problems
from isocompute_sdk.fitting.curves import RewardCurve

if TYPE_CHECKING:
    from isocompute_sdk.fitting.fits import Fits

LAWS = ("group_size", "group_size_vs_steps", "problems_per_batch_vs_steps")


def law_named(fits: Fits, name: str) -> AllocationLaw:
    """See `Fits.law`."""
    check_law_name(name)
    if name in fits.laws:
        return fits.laws[name]
    reason = fits.unsupported.get(name, "it is not part of these fits")
    have = ", ".join(fits.laws) or "none"
    raise FitError(f"there is no law {name!r} here: {reason}", f"Laws at hand: {have}.")


def check_law_name(name: object) -> None:
    """Refuse a law that there is not.

    Raises:
        FitError: another name.
    """
    if not isinstance(name, str) or name not in LAWS:
        raise FitError(f"unknown law {name!r}; accepted: {', '.join(LAWS)}", "Use one of these names.")


def curves_at(fits: Fits, problems_per_batch: int | None) -> list[RewardCurve]:
    """See `Fits.select`."""
    if not fits.curves:
        raise FitError(
            f"these fits ({fits.source or fits.method}) hold no reward curve, only a law",
            "Fit your own runs to predict rewards.",
        )
    chosen = [c for (_, bp), c in fits.curves.items() if problems_per_batch in (None, bp)]
    if not chosen:
        raise FitError(
            f"no curve at problems_per_batch = {problems_per_batch}; "
            f"fitted: {list(fits.problems_per_batch) or 'unknown'}",
            "Ask at a fitted one, or leave problems_per_batch out.",
        )
    return sorted(chosen, key=lambda c: (c.group_size, c.problems_per_batch or 0))


def nearest(levels: Sequence[int], wanted: int | None) -> int | None:
    """The level of B_p that lies nearest in octaves; the smallest for None, None where there is no level."""
    check_problems(wanted)
    if not levels:
        return None
    return levels[0] if wanted is None else min(levels, key=lambda level: abs(log2(level) - log2(wanted)))


def within_reach(levels: Sequence[int], wanted: int | None) -> float | None:
    """B_p at most an octave outside those that were run: further out the nearest answers."""
    check_problems(wanted)
    if wanted is None or not levels:
        return None
    return float(min(max(wanted, levels[0] / 2), levels[-1] * 2))
