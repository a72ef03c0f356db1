"""The verdict on a plan: how decisively the runs support n, whether to measure first, and whether to approve it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from isocompute_sdk.fitting.surface.answers import GroupSizeOdds
from isocompute_sdk.notes import Note
from isocompute_sdk.phrases import counted, joined, multiple, small
from isocompute_sdk.planning.inheritance import FITTED
from isocompute_sdk.planning.next_runs import NextRuns
from isocompute_sdk.planning.plan import Approval, Gain, Plan, Stopping, Verdict
from isocompute_sdk.planning.pricing import amount_text
from isocompute_sdk.tolerances import FAR, LEVEL, NEAR

DECIDED, LIKELY = 0.65, 0.4
"""Share of the draws in which an n is equal to the best one, from which it counts as decided, and as the best bet."""
ABOVE = 0.25
"""Share of the draws in which the octave above the grid is ahead by more than equal from which n is not decided."""
STOP = 0.1
"""Largest probability that any n gains more than equal from the rest of a budget which a plan stops short of."""
CHECK_BEYOND = 2.0
"""Multiple of the largest compute that was run beyond which a plan is approved with a check on the way."""
DOUBTS = {
    "outlying-evaluations": "many evaluations lie far from their neighbours",
    "outlying-run": "runs disagree",
    "backtest-missed": "the ends of these runs were predicted wrongly",
    "plateau-unidentified": "the runs end early",
    "extrapolation-beyond-3x": f"the budget lies more than {FAR:g} x beyond the runs",
}
"""Codes of notes that leave n undecided, in words."""
NO_RUN_FIRST = "no run before it is worth its cost"
PILOT_FIRST = "run a pilot of your own before you spend a budget on it"


def verdict_of(plan: Plan, odds: GroupSizeOdds | None) -> tuple[Verdict, bool]:
    """How decisively the runs support n, and whether a further run might change that.

    The first that holds of: borrowed, undecided (no rise, one n), stop-spending, then by the odds of n.
    """
    fits, n = plan.fits, plan.group_size
    assert fits is not None, "a new plan holds its fits"
    far = plan.extrapolation is not None and plan.extrapolation > FAR
    doubts = (*fits.doubts, *(("extrapolation-beyond-3x",) if far else ()))
    if fits.method not in FITTED:
        whose = f"the paper's runs of {fits.model}" if fits.model else "a prior over published models"
        return Verdict("borrowed", f"n = {n} is borrowed from {whose}", doubts), True
    for flat in fits.no_rise:
        return Verdict("undecided", flat.message, doubts), False
    if fits.only_size:
        return Verdict("undecided", fits.only_size, doubts), True
    equal = fits.tolerances.equal
    if not doubts and plan.stopping is not None and _certain(plan, plan.stopping):
        chance = plan.stopping.chance_of_more
        more = "" if chance is None else f", and more than {equal:g} with probability {chance:.0%}"
        spent, whole = (amount_text(amount, plan.budget.unit) for amount in (plan.cost, plan.budget.amount))
        sentence = f"stop at {spent} of {whole}: the rest is predicted to add {plan.stopping.gain:.3f}{more}"
        return Verdict("stop-spending", sentence), False
    if odds is not None:
        return _by_odds(plan, odds, doubts)
    beyond = Verdict("undecided", f"the budget lies {multiple(plan.extrapolation or 0)} x beyond these runs", doubts)
    return beyond if far else _tie(plan, equal) or Verdict("clear", f"n = {n} is ahead of every other n tried"), False


def _tie(plan: Plan, equal: float) -> Verdict | None:
    """The verdict on group sizes with equal predictions; None where the plan's n has none."""
    if not plan.about_equal:
        return None
    sizes = joined([*map(str, sorted([plan.group_size, *plan.about_equal]))])
    apart = f"are predicted to differ by at most {equal:g} in {plan.metric}"
    return Verdict("tie", f"n = {sizes} {apart}: take the one that suits the hardware")


def _certain(plan: Plan, stopping: Stopping) -> bool:
    """Whether it is sure enough that the rest of a budget adds nothing; without a surface it is."""
    if plan.fits is None or plan.fits.surface is None:
        return True
    chance, reach = stopping.chance_of_more, stopping.extrapolation
    smallest, largest = plan.fits.group_size_range
    return (
        stopping.end_seen
        and (chance is None or chance <= STOP)
        and (reach is None or reach <= NEAR)
        and smallest < plan.group_size < largest
    )


def _by_odds(plan: Plan, odds: GroupSizeOdds, doubts: tuple[str, ...]) -> tuple[Verdict, bool]:
    """The verdict of a surface, and whether a further run might change it."""
    assert plan.fits is not None, "a new plan holds its fits"
    fits, n = plan.fits, plan.group_size
    equal = fits.tolerances.equal
    here, grid = int(np.flatnonzero(odds.group_size == n)[0]), odds.on_grid
    near, sizes = float(odds.near_best[here]), odds.group_size
    spread = float(np.ptp(odds.reward[grid])) if np.count_nonzero(grid) > 1 else np.inf
    # Nearly equal means are not enough: draws that put the best n anywhere have them too.
    if spread <= equal and float(odds.near_best[grid].min()) >= DECIDED:
        ends = f"from n = {sizes[grid][0]} to {sizes[grid][-1]} predictions differ by {spread:.3f}"
        sentence = f"{ends}; take the one that suits the hardware{_against_it(doubts)}"
        return Verdict("hardly-matters", sentence, doubts), False
    largest, kind = fits.group_size_range[1], "likely" if near >= LIKELY else "undecided"
    loss = float(odds.expected_regret[here])
    lost = f"we expect n = {n} to lose {loss:.3f} against the best n"
    if odds.above_ahead >= ABOVE or not grid[here]:
        best = int(sizes[grid][int(np.argmax(odds.reward[grid]))]) if grid.any() else largest
        more = f"by more than {equal:g} with probability {odds.above_ahead:.0%}"
        sentence = f"n = {best} is best of those that were run; n = {2 * largest} is better {more}"
        if not grid[here]:
            sentence = f"n = {2 * largest}, which was not run, is better than n = {best} and the others {more}"
        return Verdict(kind, f"{sentence}; {lost}", doubts), True
    # The expected loss is the same for both n where one overtakes the other, and smooth in the budget; a share of the
    # draws is neither, and verdicts by it go back and forth.
    is_open = near < DECIDED or bool(doubts)
    if not fits.doubts and loss <= equal and (tie := _tie(plan, equal)) is not None:
        sentence = f"{tie.sentence}; {lost}{_against_it(doubts)}" if is_open else tie.sentence
        return Verdict("tie", sentence, doubts), is_open
    if is_open:
        return Verdict(kind, f"{_chances(plan, odds, near)}; {lost}{_against_it(doubts)}", doubts), True
    chance = float(odds.probability_best[here])
    if len(sizes) == 1:
        return Verdict("clear", f"n = {n} is the only n that the limits allow"), False
    sentence = f"n = {n} is ahead, best{_at_equal(plan)} with probability {chance:.0%}"
    if near < 1.0:
        sentence += f"; another n is better by more than {equal:g} with probability {1.0 - near:.0%}"
    if n in (ends := fits.group_size_range) and ends[0] != ends[1]:
        sentence += f"; no {'larger' if n == largest else 'smaller'} n was run"
    return Verdict("clear" if chance >= LEVEL else "likely", sentence), False


def _against_it(doubts: Sequence[str]) -> str:
    """The doubts in words, as the end of a sentence."""
    return f"; doubtful, since {' and '.join(DOUBTS[code] for code in doubts)}" if doubts else ""


def _chances(plan: Plan, odds: GroupSizeOdds, near: float) -> str:
    """The n that are best with 80 % probability together, where no n is decided."""
    order = np.argsort(-odds.probability_best, kind="stable")
    needed = int(np.searchsorted(np.cumsum(odds.probability_best[order]), LEVEL - 1e-9)) + 1
    likely = sorted((int(odds.group_size[i]), float(odds.probability_best[i])) for i in order[:needed])
    listed = ", ".join(f"n = {size} ({chance:.0%})" for size, chance in likely)
    first = f"n = {plan.group_size}" if near >= LIKELY else "these runs cannot decide n"
    likeliest = int(odds.group_size[order[0]])
    if near >= LIKELY and likeliest != plan.group_size == int(odds.group_size[odds.best()]):
        first += f" is best on average, though n = {likeliest} is likelier to be the very best"
    if [size for size, _ in likely] == [plan.group_size]:
        return f"{first}, best{_at_equal(plan)} with probability {likely[0][1]:.0%}"
    return f"{first}; probability of being best{_at_equal(plan)}: {listed}"


def _at_equal(plan: Plan) -> str:
    """That n are compared at equal hours or cost, where they are: larger batches then sample more rollouts."""
    return {"gpu_hours": " at equal GPU-hours", "usd": " at equal cost"}.get(plan.budget.unit, "")


def with_first(verdict: Verdict, first: NextRuns | None, *, is_open: bool) -> Verdict:
    """The verdict with what to run first: `measure-first` only where a run is worth its cost."""
    if verdict.kind == "borrowed" and (first is None or first.runs):
        return replace(verdict, sentence=f"{verdict.sentence}: {PILOT_FIRST}")
    if first is None or not is_open:
        return verdict
    if not first.runs:
        return replace(verdict, sentence=f"{verdict.sentence}; {NO_RUN_FIRST}")
    worth = f"measuring first is expected to save {small(first.saving)}"
    return replace(verdict, kind="measure-first", sentence=f"{verdict.sentence}; {worth}")


def approval_of(
    plan: Plan, verdict: Verdict, first: NextRuns | None, gain: Gain | None, notes: Sequence[Note]
) -> Approval:
    """No where something speaks against it, else with a check if the plan goes beyond `CHECK_BEYOND` x the runs."""
    against, reach = _against(plan, verdict, first, gain, notes), plan.extrapolation
    if against:
        return Approval("do-not", against)
    if reach is None or reach <= CHECK_BEYOND:
        within = "" if reach is None else f" ({multiple(reach)} x the largest run)"
        return Approval("approve", f"the plan stays within {CHECK_BEYOND:g} x the runs{within}")
    every = plan.evaluation.every_steps or 1
    step = int(plan.update_steps * CHECK_BEYOND / reach)
    step = max(step // every * every, min(every, plan.update_steps), 1)
    reason = f"the plan takes {multiple(reach)} x the compute of the largest run: check it at {CHECK_BEYOND:g} x"
    expected = lowest = None
    if plan.fits is not None and plan.predicted_reward is not None:
        at = plan.fits.predict(
            plan.compute * step / plan.update_steps, plan.group_size, plan.problems_per_batch, kind="run"
        )
        expected, lowest = float(at.mean), None if np.isnan(at.low) else float(at.low)
    return Approval("check", reason, step, expected, lowest)


def _against(plan: Plan, verdict: Verdict, first: NextRuns | None, gain: Gain | None, notes: Sequence[Note]) -> str:
    """Why a plan is not to be approved: no rise, a borrowed n, a run worth making first, no gain, nothing settles n."""
    fits = plan.fits
    assert fits is not None, "a new plan holds its fits"
    if fits.flat_runs is not None:
        return "no run's reward rises beyond noise"
    if verdict.kind == "borrowed":
        # Its sentence says whether a pilot is worth its cost.
        return verdict.sentence
    if first is not None and first.runs:
        cost = f"{amount_text(first.cost, first.unit)}, {first.share:.0%} of the budget"
        saved = f"this is expected to save {small(first.saving)} of {plan.metric}"
        return f"{counted(len(first.runs), 'run')} should come first, for {cost}: {saved}"
    if gain is not None and gain.gain <= fits.tolerances.nothing:
        return f"the best run so far is at least as good, fitted {gain.reward:.3f}: the plan would gain nothing"
    refused = [note.message for note in notes if note.severity == "refuse"]
    if verdict.kind == "undecided":
        refused.append(verdict.sentence)
    return refused[0] if refused else ""
