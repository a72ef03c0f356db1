"""How decisively the data support a plan's n: one word and one sentence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from isocompute_sdk.fitting.surface.answers import GroupSizeOdds
from isocompute_sdk.notes import Note
from isocompute_sdk.planning.caveats import NEAR
from isocompute_sdk.planning.pricing import amount_text
from isocompute_sdk.tolerances import Tolerances

if TYPE_CHECKING:
    from isocompute_sdk.planning.plan import Plan

LEVEL = 0.8
"""Probability that the n named together hold the best."""
DECIDED, LIKELY = 0.65, 0.4
"""Share of the draws in which an n is equal to the best one, from which it counts as decided, and as the best bet."""
ABOVE = 0.25
"""Share of the draws in which the octave above the grid is ahead by more than equal from which it is measured first."""
STOP = 0.1
"""Largest probability that any n gains more than equal from the rest of a budget which a plan stops short of."""
ASK_NEXT = "isocompute next says whether a run is worth making first"
UNCARRIED = ("measure-first", "undecided")
"""Verdicts that the runs do not carry: what to run first is more useful, if it saves enough."""
DOUBTS = ("backtest-missed", "outlying-run", "outlying-evaluations", "rise-not-seen", "extrapolation-beyond-10x")
"""Warnings with which no n counts as decided."""

VerdictKind = Literal[
    "clear", "tie", "hardly-matters", "likely", "measure-first", "undecided", "stop-spending", "borrowed"
]
"""`clear`: one n is ahead; `tie`: others are predicted within a tie of it; `hardly-matters`: every n that was run is;
`likely`: the best bet, though another n may be better by more than a tie; `measure-first`: best of those that were run,
but twice the largest may be better; `undecided`: the runs cannot decide, because a wrong choice probably costs more
than a tie; `stop-spending`: the rest of the budget adds almost nothing, and that is certain; `borrowed`: the plan rests
on no runs of the user's own."""


@dataclass(frozen=True)
class Verdict:
    """How decisively the data support n."""

    kind: VerdictKind
    sentence: str
    """The finding in plain words, with numbers and what to do."""

    @classmethod
    def of(cls, plan: Plan) -> Verdict:
        """The first that holds of: borrowed, undecided (no rise, one n), stop-spending, then by the odds of n."""
        fits = plan.fits
        if fits is not None and fits.method not in ("surface", "paper"):
            return _borrowed(plan)
        flat = next((note.message for note in plan.notes if note.code == "no-rise-seen"), None)
        if flat is None and fits is not None and len(fits.group_sizes) == 1:
            flat = (
                f"one group size cannot decide: only n = {fits.group_sizes[0]} was run, so the plan uses it. {ASK_NEXT}"
            )
        if flat is not None:
            return cls("undecided", flat)
        odds = _odds(plan)
        doubts = [note.code for note in plan.notes if note.code in DOUBTS and note.severity == "warning"]
        rest = [note for note in plan.notes if note.code == "rest-not-worthwhile"]
        if not doubts and any(_certain(plan, note) for note in rest):
            return _stop(plan, rest[0])
        ties = [a.group_size for a in plan.alternatives if a.kind == "near-tie"]
        if odds is not None:
            return _by_odds(plan, odds, ties, doubts)
        if "extrapolation-beyond-10x" in doubts:
            return cls("undecided", f"the budget lies {plan.extrapolation:.3g} x beyond these runs. {ASK_NEXT}")
        return _tie(plan, ties) if ties else cls("clear", f"n = {plan.group_size} is ahead of every other n tried")


def _by_odds(plan: Plan, odds: GroupSizeOdds, ties: list[int], doubts: list[str]) -> Verdict:
    equal = Tolerances(plan.span).equal
    here = int(np.flatnonzero(odds.group_size == plan.group_size)[0])
    grid, near = odds.on_grid, float(odds.near_best[here])
    spread = float(np.ptp(odds.reward[grid])) if np.count_nonzero(grid) > 1 else np.inf
    # Nearly equal means are not enough: draws that put the best n anywhere have them too.
    if spread <= equal and float(odds.near_best[grid].min()) >= DECIDED:
        sizes = odds.group_size[grid]
        return Verdict(
            "hardly-matters",
            f"n hardly matters here: from n = {sizes[0]} to {sizes[-1]} predictions differ by {spread:.3f}; take the "
            "one that suits the hardware",
        )
    if odds.above_ahead >= ABOVE or not odds.on_grid[here]:
        return _measure_first(plan, odds)
    if near < DECIDED or doubts:
        return _open(plan, odds, here, doubts, kind="likely" if near >= LIKELY else "undecided")
    if set(ties) & set(odds.group_size[odds.near_best >= DECIDED].tolist()):
        return _tie(plan, ties)
    chance = float(odds.probability_best[here])
    sentence = f"n = {plan.group_size} is ahead, best with probability {chance:.0%}"
    if near < 1.0:
        sentence += f"; another n is better by more than {equal:g} with probability {1.0 - near:.0%}"
    return Verdict("clear", sentence + _edge(plan))


def _certain(plan: Plan, note: Note) -> bool:
    """Whether a note on the rest of a budget is sure enough to stop; without a surface it is."""
    if plan.fits is None or plan.fits.surface is None:
        return True
    chance, reach = note.data.get("chance_of_more"), note.data.get("extrapolation")
    smallest, largest = plan.fits.group_size_range
    return bool(
        note.data.get("end_seen", True)
        and (chance is None or chance <= STOP)
        and (reach is None or reach <= NEAR)
        and smallest < plan.group_size < largest
    )


def _measure_first(plan: Plan, odds: GroupSizeOdds) -> Verdict:
    """Best of those that were run, where twice the largest may be better."""
    assert plan.fits is not None, "odds come from fits"
    above = 2 * plan.fits.group_size_range[1]
    grid = np.flatnonzero(odds.on_grid)
    best = int(odds.group_size[grid[int(np.argmax(odds.reward[grid]))]])
    return Verdict(
        "measure-first",
        f"n = {best} is best of those that were run; n = {above} may be better, probability "
        f"{odds.above_ahead:.0%}. {ASK_NEXT}",
    )


def _edge(plan: Plan) -> str:
    """The reservation that n is best of those that were run."""
    beyond = [a for a in plan.alternatives if a.kind == "beyond-grid"]
    if beyond:
        return f" of those that were run; n = {beyond[0].group_size} was not run and is predicted to be better still"
    smallest, largest = (plan.group_size, plan.group_size) if plan.fits is None else plan.fits.group_size_range
    if plan.group_size not in (smallest, largest) or smallest == largest:
        return ""
    return f" of those that were run; no {'larger' if plan.group_size == largest else 'smaller'} n was"


def _open(
    plan: Plan, odds: GroupSizeOdds, here: int, doubts: list[str], kind: Literal["likely", "undecided"]
) -> Verdict:
    """The n that may be best, and what a wrong choice is expected to lose."""
    order = np.argsort(-odds.probability_best, kind="stable")
    needed = int(np.searchsorted(np.cumsum(odds.probability_best[order]), LEVEL - 1e-9)) + 1
    likely = sorted(int(n) for n in odds.group_size[order[:needed]])
    named = ", ".join(f"n = {n} ({_chance(odds, n)})" for n in likely)
    against = f", and there are doubts ({', '.join(doubts)})" if doubts else ""
    first = f"n = {plan.group_size} is the best bet, not certain" if kind == "likely" else "these runs cannot decide n"
    return Verdict(
        kind,
        f"{first}: best may be {named}; n = {plan.group_size} is expected to lose "
        f"{float(odds.expected_regret[here]):.3f} against the best of them{against}. {ASK_NEXT}",
    )


def _chance(odds: GroupSizeOdds, n: int) -> str:
    return f"{float(odds.probability_best[odds.group_size == n][0]):.0%}"


def _tie(plan: Plan, ties: list[int]) -> Verdict:
    sizes = sorted([plan.group_size, *ties])
    named = f"n = {', '.join(map(str, sizes[:-1]))} and {sizes[-1]}"
    within = f"predicted within {Tolerances(plan.span).equal:g} of {plan.metric}"
    return Verdict("tie", f"{named} tie, {within}: take the one that suits the hardware")


def _stop(plan: Plan, rest: Note) -> Verdict:
    unit, chance = plan.budget.unit, rest.data.get("chance_of_more")
    more = "" if chance is None else f", and more than {Tolerances(plan.span).equal:g} with probability {chance:.0%}"
    return Verdict(
        "stop-spending",
        f"stop at {amount_text(plan.cost, unit)} of {amount_text(plan.budget.amount, unit)}: the rest is predicted to "
        f"add {rest.data['predicted_gain']:.3f}{more}",
    )


def _borrowed(plan: Plan) -> Verdict:
    model = None if plan.fits is None else plan.fits.model
    whose = f"the paper's runs of {model}" if model else "a prior over published models"
    return Verdict(
        "borrowed",
        f"n = {plan.group_size} is borrowed from {whose}: run a pilot of your own before you spend a budget on it",
    )


def _odds(plan: Plan) -> GroupSizeOdds | None:
    """Odds of every n at what the whole budget buys; None for fits without a surface."""
    fits = plan.fits
    if fits is None or fits.surface is None:
        return None
    smallest, largest = fits.group_size_range
    powers = {2**i for i in range(1, 31) if smallest <= 2**i <= largest}
    sizes = sorted(powers | set(fits.group_sizes) | {plan.group_size})
    # A plan that stops early is judged where its budget ends: there n must still be right.
    reach = [note.data.get("extrapolation") for note in plan.notes if note.code == "rest-not-worthwhile"]
    compute = reach[0] * fits.largest_compute if reach and reach[0] and fits.largest_compute else plan.compute
    return fits.group_size_odds(compute, sizes, plan.problems_per_batch)
