"""The verdict on a plan: how decisively the runs support n, whether to measure first, and whether to approve it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from isocompute_sdk.fitting.surface.answers import Estimate, GroupSizeOdds
from isocompute_sdk.phrases import counted, joined, multiple, small
from isocompute_sdk.planning.inheritance import FITTED
from isocompute_sdk.planning.next_runs import NextRuns
from isocompute_sdk.planning.plan import Approval, Plan, Stopping, Verdict, Worth
from isocompute_sdk.planning.pricing import amount_text
from isocompute_sdk.tolerances import FAR, LEVEL, NEAR, Tolerances

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
    """How decisively the runs support n, with every doubt in words, and whether a further run might change that."""
    verdict, is_open = _verdict(plan, odds)
    if not verdict.doubts:
        return verdict, is_open
    why = joined([DOUBTS[code] for code in verdict.doubts])
    return replace(verdict, sentence=f"{verdict.sentence}; doubtful, since {why}"), is_open


def _verdict(plan: Plan, odds: GroupSizeOdds | None) -> tuple[Verdict, bool]:
    """The first that holds of: borrowed, undecided (no rise, one n), stop-spending, then by the odds of n."""
    fits, n = plan.fits, plan.group_size
    assert fits is not None, "a new plan holds its fits"
    far = plan.extrapolation is not None and plan.extrapolation > FAR
    doubts = (*fits.doubts, *(("extrapolation-beyond-3x",) if far else ()))
    if fits.method not in FITTED:
        whose = f"the paper's runs of {fits.model}" if fits.model else "a prior over published models"
        return Verdict("borrowed", f"n = {n} is borrowed from {whose}", doubts), True
    for flat in fits.no_rise:
        return Verdict("undecided", flat.message), False
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
    found = _tie(plan, equal) or Verdict("clear", f"n = {n} is ahead of every other n tried")
    return replace(found, kind="undecided", doubts=doubts) if far else found, False


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
    if len(sizes) == 1:
        return Verdict("clear", f"n = {n} is the only n that the limits allow"), False
    spread = float(np.ptp(odds.reward[grid])) if np.count_nonzero(grid) > 1 else np.inf
    # Nearly equal means are not enough: draws that put the best n anywhere have them too.
    if spread <= equal and float(odds.near_best[grid].min()) >= DECIDED:
        ends = f"from n = {sizes[grid][0]} to {sizes[grid][-1]} predictions differ by {spread:.3f}"
        return Verdict("hardly-matters", f"{ends}; take the one that suits the hardware", doubts), False
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
        return Verdict("tie", f"{tie.sentence}; {lost}" if is_open else tie.sentence, doubts), is_open
    if is_open:
        return Verdict(kind, f"{_chances(plan, odds, near)}; {lost}", doubts), True
    chance = float(odds.probability_best[here])
    sentence = f"n = {n} is ahead, best{_at_equal(plan)} with probability {chance:.0%}"
    if near < 1.0:
        sentence += f"; another n is better by more than {equal:g} with probability {1.0 - near:.0%}"
    if n in (ends := fits.group_size_range) and ends[0] != ends[1]:
        sentence += f"; no {'larger' if n == largest else 'smaller'} n was run"
    return Verdict("clear" if chance >= LEVEL else "likely", sentence), False


def _chances(plan: Plan, odds: GroupSizeOdds, near: float) -> str:
    """The n that are best with 80 % probability together, where no n is decided."""
    order = np.argsort(-odds.probability_best, kind="stable")
    needed = int(np.searchsorted(np.cumsum(odds.probability_best[order]), LEVEL - 1e-9)) + 1
    likely = sorted((int(odds.group_size[i]), float(odds.probability_best[i])) for i in order[:needed])
    listed = ", ".join(f"n = {size} ({chance:.0%})" for size, chance in likely)
    first = f"n = {plan.group_size}" if near >= LIKELY else "these runs cannot decide n"
    likeliest = int(odds.group_size[order[0]])
    if near >= LIKELY and likeliest != plan.group_size == int(odds.group_size[odds.best()]):
        first += f" has the highest expected reward: n = {likeliest} is likelier to be best, but loses more where not"
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


def worth_of(doubling: Estimate, tolerances: Tolerances) -> Worth:
    """Whether a doubling of the budget that adds so much reward is worth it: `Tolerances.small` or more."""
    least, known = tolerances.small, not np.isnan(doubling.low)
    if (doubling.low if known else doubling.mean) >= least:
        return "worth-it"
    # Twice the threshold, because a rule that is right more often than not would always give a verdict.
    return "not-worth-it" if not known or (doubling.high < 2 * least and doubling.mean < least) else "cannot-tell"


def approval_of(plan: Plan) -> Approval:
    """No where something speaks against it, else with a check if the plan goes beyond `CHECK_BEYOND` x the runs."""
    against, reach = _against(plan), plan.extrapolation
    if against:
        return Approval("do-not", against)
    if reach is None or reach <= CHECK_BEYOND:
        within = "" if reach is None else f" ({multiple(reach)} x the largest run)"
        return Approval("approve", f"the plan stays within {CHECK_BEYOND:g} x the runs{within}")
    reason = f"the plan takes {multiple(reach)} x the compute of the largest run"
    first = CHECK_BEYOND
    while first < reach:
        step, expected, lowest = _check(plan, first / reach)
        # Stopping only below what a run has measured already would let everything pass.
        if lowest is None or plan.gain is None or lowest > plan.gain.best.reward:
            return Approval("check", f"{reason}: check it at {first:g} x", step, expected, lowest)
        first *= 2.0
    step, expected, _ = _check(plan, CHECK_BEYOND / reach)
    return Approval("check", f"{reason}: check it at {CHECK_BEYOND:g} x", step, expected)


def _check(plan: Plan, share: float) -> tuple[int, float | None, float | None]:
    """The step of the evaluation at a share of the plan, the reward expected there, and what one run in ten misses."""
    every = plan.evaluation.every_steps or 1
    step = max(int(plan.update_steps * share) // every * every, min(every, plan.update_steps), 1)
    if plan.fits is None or plan.predicted_reward is None:
        return step, None, None
    compute = plan.compute * step / plan.update_steps
    at = plan.fits.predict(compute, plan.group_size, plan.problems_per_batch, kind="run")
    return step, float(at.mean), None if np.isnan(at.low) else float(at.low)


def _against(plan: Plan) -> str:
    """Why a plan is not to be approved, the first that holds; empty if nothing speaks against it."""
    fits, verdict, first = plan.fits, plan.verdict, plan.next_runs
    assert fits is not None, "a new plan holds its fits"
    if fits.flat_runs is not None:
        return "no run's reward rises beyond noise"
    if verdict.kind == "borrowed":
        # Its sentence says whether a pilot is worth its cost.
        return verdict.sentence
    if plan.gain is not None and plan.gains_nothing:
        return plan.gain.sentence
    if first is not None and first.runs:
        cost = f"{amount_text(first.cost, first.unit)}, {first.share:.0%} of the budget"
        saved = f"this is expected to save {small(first.saving)} of {plan.metric}"
        return f"{counted(len(first.runs), 'run')} should come first, for {cost}: {saved}"
    if plan.last_half is not None:
        return f"the last half adds {small(plan.last_half)}, less than {fits.tolerances.small:.3g}: not worth its cost"
    refused = [note.message for note in plan.notes if note.severity == "refuse"]
    if verdict.kind == "undecided":
        refused.append(verdict.sentence)
    return refused[0] if refused else ""
