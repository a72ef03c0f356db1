"""What a plan amounts to, in one word and one sentence: not every question about n has an answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from isocompute_sdk.fitting.surface.odds import GroupSizeOdds
from isocompute_sdk.planning.pricing import amount_text
from isocompute_sdk.planning.question import TIE

if TYPE_CHECKING:
    from isocompute_sdk.planning.plan import Plan

VerdictKind = Literal["clear", "tie", "hardly-matters", "undecided", "stop-spending", "borrowed"]
"""`clear`: one n is ahead; `tie`: others are predicted within a tie; `hardly-matters`: every n that was run is;
`undecided`: these runs cannot tell, because a wrong choice is expected to cost more than a tie, or the budget lies too
far beyond them; `stop-spending`: the rest
of the budget is predicted to add next to nothing; `borrowed`: no runs of one's own stand behind the plan."""
SURE = 0.8
"""Probability from which one n, or the n it ties with, counts as sure."""


@dataclass(frozen=True)
class Verdict:
    """What a plan amounts to."""

    kind: VerdictKind
    sentence: str
    """The same in plain words, with numbers and what to do."""


def verdict_of(plan: Plan) -> Verdict:
    """The gravest that holds: borrowed, stop spending, hardly matters, undecided, tie, clear."""
    if plan.fits is not None and plan.fits.method not in ("surface", "paper"):
        return _borrowed(plan)
    codes = {note.code for note in plan.notes}
    if plan.fits is not None and len(plan.fits.group_sizes) == 1:
        return Verdict(
            "undecided",
            f"one group size cannot decide: only n = {plan.fits.group_sizes[0]} was run, so this plan is its own. Run "
            "others, 4x apart, first",
        )
    if "rest-not-worthwhile" in codes:
        return _stop(plan)
    beyond = plan.extrapolation or 0.0
    if "extrapolation-beyond-10x" in codes or ("rise-not-seen" in codes and beyond > 1):
        return _too_far(plan, beyond, unseen="rise-not-seen" in codes)
    # Nobody ran an n above the grid: it may be better, but it is no choice that these runs bear out.
    largest = np.inf if plan.fits is None else plan.fits.group_size_range[1]
    ties = [a.group_size for a in plan.alternatives if a.kind == "near-tie" and a.group_size <= largest]
    odds = _odds(plan)
    if odds is None:
        return _tie(plan, ties) if ties else Verdict("clear", f"n = {plan.group_size} is ahead of every other n tried")
    return _by_odds(plan, odds, ties)


def _by_odds(plan: Plan, odds: GroupSizeOdds, ties: list[int]) -> Verdict:
    tie = TIE * _span(plan)
    here = int(np.flatnonzero(odds.group_size == plan.group_size)[0])
    grid = odds.on_grid
    if np.count_nonzero(grid) > 1:
        spread = float(np.ptp(odds.reward[grid]))
        if spread <= tie and float(odds.expected_regret[here]) <= tie:
            sizes = odds.group_size[grid]
            return Verdict(
                "hardly-matters",
                f"n hardly matters here: from n = {sizes[0]} to {sizes[-1]} predictions differ by {spread:.3f}; take "
                "what suits the hardware",
            )
    if float(odds.expected_regret[here]) > tie:
        return _undecided(plan, odds, here)
    if ties:
        return _tie(plan, ties)
    chance = float(odds.probability_best[here])
    others = [int(n) for n, p in zip(odds.group_size, odds.probability_best, strict=True) if p > 1 - SURE]
    if chance < SURE and any(n != plan.group_size for n in others):
        rest = ", ".join(str(n) for n in others if n != plan.group_size)
        return Verdict(
            "clear",
            f"n = {plan.group_size} is ahead, best with probability {chance:.0%}; n = {rest} may be, by less than "
            f"{tie:g} on average{_edge(plan)}",
        )
    return Verdict("clear", f"n = {plan.group_size} is ahead, best with probability {chance:.0%}{_edge(plan)}")


def _edge(plan: Plan) -> str:
    """That being ahead of what was run says nothing of an n beyond it."""
    beyond = [a for a in plan.alternatives if a.kind == "beyond-grid"]
    if beyond:
        return f" of those that were run; n = {beyond[0].group_size} was not, and is predicted to be better still"
    smallest, largest = (plan.group_size, plan.group_size) if plan.fits is None else plan.fits.group_size_range
    if plan.group_size not in (smallest, largest) or smallest == largest:
        return ""
    return f" of those that were run; none {'larger' if plan.group_size == largest else 'smaller'} was"


def _too_far(plan: Plan, beyond: float, *, unseen: bool) -> Verdict:
    seen = ", and they saw less than half of any rise" if unseen else ""
    return Verdict(
        "undecided",
        f"these runs cannot decide n at this budget: it lies {beyond:.3g} x beyond them{seen}. Run n = "
        f"{plan.group_size} and another to a third of it, fit again, and plan then",
    )


def _undecided(plan: Plan, odds: GroupSizeOdds, here: int) -> Verdict:
    order = np.argsort(-odds.probability_best, kind="stable")
    needed = int(np.searchsorted(np.cumsum(odds.probability_best[order]), SURE - 1e-9)) + 1
    likely = sorted(int(n) for n in odds.group_size[order[:needed]])
    named = ", ".join(f"n = {n} ({_chance(odds, n)})" for n in likely)
    return Verdict(
        "undecided",
        f"these runs cannot decide n: best may be {named}; n = {plan.group_size} is expected to lose "
        f"{float(odds.expected_regret[here]):.3f} against the best of them. A longer run, or another seed, at these n "
        "is worth more than the plan",
    )


def _chance(odds: GroupSizeOdds, n: int) -> str:
    return f"{float(odds.probability_best[odds.group_size == n][0]):.0%}"


def _tie(plan: Plan, ties: list[int]) -> Verdict:
    sizes = sorted([plan.group_size, *ties])
    named = f"n = {', '.join(map(str, sizes[:-1]))} and {sizes[-1]}"
    return Verdict(
        "tie",
        f"{named} tie, predicted within {TIE * _span(plan):g} of {plan.metric}: take the one that suits the hardware",
    )


def _stop(plan: Plan) -> Verdict:
    unit = plan.budget.unit
    return Verdict(
        "stop-spending",
        f"stop at {amount_text(plan.cost, unit)} of {amount_text(plan.budget.amount, unit)}: the rest is predicted to "
        "add next to nothing",
    )


def _borrowed(plan: Plan) -> Verdict:
    published = plan.fits is not None and plan.fits.method == "published"
    whose = f"the paper's runs of {plan.fits.model}" if plan.fits and published else "a prior over published models"
    return Verdict(
        "borrowed",
        f"n = {plan.group_size} is borrowed from {whose}: run a pilot of your own before you spend a budget on it",
    )


def _odds(plan: Plan) -> GroupSizeOdds | None:
    """Odds of every n at the plan's compute; None for fits without a surface."""
    from isocompute_sdk.planning.asking import compute_of

    fits = plan.fits
    if fits is None or fits.surface is None:
        return None
    smallest, largest = fits.group_size_range
    powers = {2**i for i in range(1, 31) if smallest <= 2**i <= largest}
    sizes = sorted(powers | set(fits.group_sizes) | {plan.group_size})
    return fits.group_size_odds(compute_of(plan), sizes, plan.problems_per_batch)


def _span(plan: Plan) -> float:
    return 1.0 if plan.fits is None else plan.fits.bounds[1] - plan.fits.bounds[0]
