"""How decisively the data support a plan's n: one word and one sentence, from facts of fits and plan."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from isocompute_sdk.fitting.fits import Fits
from isocompute_sdk.fitting.surface.answers import GroupSizeOdds
from isocompute_sdk.planning.plan import Alternative, Stopping, Verdict
from isocompute_sdk.planning.pricing import amount_text
from isocompute_sdk.records.rewards import no_rise_note
from isocompute_sdk.specs import Budget
from isocompute_sdk.tolerances import FAR, LEVEL, NEAR, Tolerances

DECIDED, LIKELY = 0.65, 0.4
"""Share of the draws in which an n is equal to the best one, from which it counts as decided, and as the best bet."""
ABOVE = 0.25
"""Share of the draws in which the octave above the grid is ahead by more than equal from which it is measured first."""
STOP = 0.1
"""Largest probability that any n gains more than equal from the rest of a budget which a plan stops short of."""
ASK_NEXT = "isocompute next says whether a run is worth making first"
UNCARRIED = ("measure-first", "undecided")
"""Verdicts that the runs do not carry: what to run first is more useful, if it saves enough."""


def verdict_of(
    fits: Fits,
    size: tuple[int, int],
    compute: float,
    alternatives: Sequence[Alternative],
    stopping: Stopping | None,
    extrapolation: float | None,
    budget: Budget,
    cost: float,
) -> Verdict:
    """The first that holds of: borrowed, undecided (no rise, one n), stop-spending, then by the odds of n.

    Args:
        fits: what the plan rests on.
        size: n and B_p of the plan.
        compute: what it spends, on the axis of the fits.
        alternatives: other allocations worth knowing about.
        stopping: what it leaves of the budget because that adds nothing; None if it leaves nothing.
        extrapolation: its compute over the largest that was run; None without runs.
        budget: what it has to spend.
        cost: what it costs, in the budget's unit.
    """
    n, ties = size[0], [a.group_size for a in alternatives if a.kind == "near-tie"]
    far = extrapolation is not None and extrapolation > FAR
    doubts = (*fits.doubts, *(("extrapolation-beyond-10x",) if far else ()))
    if fits.method not in ("surface", "paper"):
        whose = f"the paper's runs of {fits.model}" if fits.model else "a prior over published models"
        sentence = f"n = {n} is borrowed from {whose}: run a pilot of your own before you spend a budget on it"
        return Verdict("borrowed", sentence, doubts)
    if fits.flat_runs is not None or len(fits.group_sizes) == 1:
        only = f"one group size cannot decide: only n = {fits.group_sizes[0]} was run, so the plan uses it. {ASK_NEXT}"
        why = only if fits.flat_runs is None else no_rise_note(fits.metric, fits.flat_runs).message
        return Verdict("undecided", why, doubts)
    equal = Tolerances(fits.bounds[1] - fits.bounds[0]).equal
    if not doubts and stopping is not None and _certain(fits, n, stopping):
        chance = stopping.chance_of_more
        more = "" if chance is None else f", and more than {equal:g} with probability {chance:.0%}"
        spent, whole = (amount_text(amount, budget.unit) for amount in (cost, budget.amount))
        return Verdict(
            "stop-spending",
            f"stop at {spent} of {whole}: the rest is predicted to add {stopping.gain:.3f}{more}",
        )
    sizes = sorted([n, *ties])
    named = f"n = {', '.join(map(str, sizes[:-1]))} and {sizes[-1]}"
    tie = f"{named} tie, predicted within {equal:g} of {fits.metric}: take the one that suits the hardware"
    if fits.surface is None:
        clear = Verdict("tie", tie) if ties else Verdict("clear", f"n = {n} is ahead of every other n tried")
        beyond = f"the budget lies {extrapolation:.3g} x beyond these runs. {ASK_NEXT}"
        return Verdict("undecided", beyond, doubts) if far else clear
    smallest, largest = fits.group_size_range
    powers = {2**i for i in range(1, 31) if smallest <= 2**i <= largest}
    # A plan that stops early is judged where its budget ends: there n must still be right.
    compute = compute if stopping is None else stopping.whole_compute
    odds = fits.group_size_odds(compute, sorted(powers | {*fits.group_sizes, n}), size[1])
    return _by_odds(fits, n, odds, tie if ties else "", ties, doubts, alternatives)


def _certain(fits: Fits, n: int, stopping: Stopping) -> bool:
    """Whether it is sure enough that the rest of a budget adds nothing; without a surface it is."""
    if fits.surface is None:
        return True
    chance, reach = stopping.chance_of_more, stopping.extrapolation
    smallest, largest = fits.group_size_range
    return (
        stopping.end_seen
        and (chance is None or chance <= STOP)
        and (reach is None or reach <= NEAR)
        and smallest < n < largest
    )


def _by_odds(
    fits: Fits,
    n: int,
    odds: GroupSizeOdds,
    tie: str,
    ties: Sequence[int],
    doubts: tuple[str, ...],
    alternatives: Sequence[Alternative],
) -> Verdict:
    """The verdict of a surface.

    Args:
        fits: what the plan rests on.
        n: its group size.
        odds: of every n at what the whole budget buys.
        tie: the sentence for a tie; empty without one.
        ties: group sizes that tie with n.
        doubts: reasons for which no n counts as decided.
        alternatives: other allocations.
    """
    equal = Tolerances(fits.bounds[1] - fits.bounds[0]).equal
    here, grid = int(np.flatnonzero(odds.group_size == n)[0]), odds.on_grid
    near, sizes = float(odds.near_best[here]), odds.group_size
    spread = float(np.ptp(odds.reward[grid])) if np.count_nonzero(grid) > 1 else np.inf
    # Nearly equal means are not enough: draws that put the best n anywhere have them too.
    if spread <= equal and float(odds.near_best[grid].min()) >= DECIDED:
        return Verdict(
            "hardly-matters",
            f"n hardly matters here: from n = {sizes[grid][0]} to {sizes[grid][-1]} predictions differ by "
            f"{spread:.3f}; take the one that suits the hardware",
            doubts,
        )
    largest = fits.group_size_range[1]
    if odds.above_ahead >= ABOVE or not odds.on_grid[here]:
        best = int(sizes[grid][int(np.argmax(odds.reward[grid]))])
        sentence = f"n = {best} is best of those that were run; n = {2 * largest} may be better, probability "
        return Verdict("measure-first", f"{sentence}{odds.above_ahead:.0%}. {ASK_NEXT}", doubts)
    if near < DECIDED or doubts:
        order = np.argsort(-odds.probability_best, kind="stable")
        needed = int(np.searchsorted(np.cumsum(odds.probability_best[order]), LEVEL - 1e-9)) + 1
        likely = sorted((int(sizes[i]), float(odds.probability_best[i])) for i in order[:needed])
        named = ", ".join(f"n = {size} ({chance:.0%})" for size, chance in likely)
        against = f", and there are doubts ({', '.join(doubts)})" if doubts else ""
        first = f"n = {n} is the best bet, not certain" if near >= LIKELY else "these runs cannot decide n"
        return Verdict(
            "likely" if near >= LIKELY else "undecided",
            f"{first}: best may be {named}; n = {n} is expected to lose {float(odds.expected_regret[here]):.3f} "
            f"against the best of them{against}. {ASK_NEXT}",
            doubts,
        )
    if set(ties) & set(sizes[odds.near_best >= DECIDED].tolist()):
        return Verdict("tie", tie)
    sentence = f"n = {n} is ahead, best with probability {float(odds.probability_best[here]):.0%}"
    if near < 1.0:
        sentence += f"; another n is better by more than {equal:g} with probability {1.0 - near:.0%}"
    beyond = [a.group_size for a in alternatives if a.kind == "beyond-grid"]
    if beyond:
        sentence += f" of those that were run; n = {beyond[0]} was not run and is predicted to be better still"
    elif n in (ends := fits.group_size_range) and ends[0] != ends[1]:
        sentence += f" of those that were run; no {'larger' if n == largest else 'smaller'} n was"
    return Verdict("clear", sentence)
