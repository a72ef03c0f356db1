"""The verdict on a plan: how decisively the runs support n, whether to measure first, and whether to approve it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from isocompute_sdk.fitting.fits import Fits
from isocompute_sdk.fitting.measured_runs import going_on
from isocompute_sdk.fitting.surface.answers import Estimate, GroupSizeOdds
from isocompute_sdk.health.findings import ADVICE, FELL, falls_in
from isocompute_sdk.health.live_run import is_recipe_first
from isocompute_sdk.phrases import chance_text, counted, joined, multiple, short, small, two_digits
from isocompute_sdk.planning.inheritance import FITTED
from isocompute_sdk.planning.next_runs import NextRuns
from isocompute_sdk.planning.plan import Plan, reward_draws
from isocompute_sdk.planning.plan_parts import Approval, Gain, Stopping, Verdict, Worth
from isocompute_sdk.planning.pricing import Pricing, amount_text
from isocompute_sdk.tolerances import FAR, LEVEL, NEAR, Tolerances

DECIDED, LIKELY = 0.65, 0.4
"""Share of the draws in which an n is equal to the best one, from which it counts as decided, and as the best bet."""
ABOVE = 0.25
"""Share of the draws in which the octave above the grid is ahead by more than equal from which n is not decided."""
STOP = 0.1
"""Largest probability that any n gains more than equal from the rest of a budget which a plan stops short of."""
CHECK_AT = 2.0
"""Multiple of the largest compute that was run at which a plan that goes beyond it is checked first."""
DOUBTS = {
    "outlying-evaluations": "many evaluations lie far from their neighbours",
    "outlying-run": "runs disagree",
    "backtest-missed": "the backtest missed how these runs ended",
    "plateau-unidentified": "the runs end early",
    "extrapolation-beyond-3x": f"the budget is over {FAR:g} x any run",
}
"""Codes of notes that leave n undecided, in words."""
TAKE = "choose whichever fits your hardware"
OTHERWISE = "change the recipe, the problems or the model"
"""What to do where no budget helps."""


def verdict_of(plan: Plan, odds: GroupSizeOdds | None) -> tuple[Verdict, bool]:
    """How decisively the runs support n, with every doubt in words, and whether a further run might change that."""
    verdict, is_open = _verdict(plan, odds)
    if not verdict.doubts:
        return verdict, is_open
    why = joined([DOUBTS[code] for code in verdict.doubts])
    return replace(verdict, sentence=f"{verdict.sentence}; doubtful because {why}"), is_open


def _verdict(plan: Plan, odds: GroupSizeOdds | None) -> tuple[Verdict, bool]:
    """The first that holds of: borrowed, undecided (no rise, one n), stop-spending, then by the odds of n."""
    fits, n = plan.fits, plan.group_size
    assert fits is not None, "a new plan holds its fits"
    far = plan.extrapolation is not None and two_digits(plan.extrapolation) > FAR
    doubts = (*fits.doubts, *(("extrapolation-beyond-3x",) if far else ()))
    if fits.method not in FITTED:
        whose = f"the paper's runs of {fits.model}" if fits.model else "a prior over published models"
        return Verdict("borrowed", f"{_within(plan)}n = {n} is borrowed from {whose}", doubts), True
    for flat in fits.no_rise:
        return Verdict("undecided", flat.message), False
    if fits.only_size:
        return Verdict("undecided", fits.only_size, doubts), True
    equal = fits.tolerances.equal
    if not doubts and plan.stopping is not None and _certain(plan, plan.stopping):
        more = plan.stopping.chance_of_more
        more = "" if more is None else f", and more than {equal:g} with probability {chance_text(more)}"
        spent, whole = (amount_text(amount, plan.budget.unit) for amount in (plan.cost, plan.budget.amount))
        sentence = f"stop at {spent} of {whole}: the rest is predicted to add {plan.stopping.gain:.3f}{more}"
        return Verdict("stop-spending", sentence), False
    if odds is not None:
        return _by_odds(plan, odds, doubts)
    return _by_law(plan, equal, doubts if far else ()), False


def _by_law(plan: Plan, equal: float, doubts: tuple[str, ...]) -> Verdict:
    """The verdict of fits without odds: a law names n, and curves predict rewards."""
    n, undecided = plan.group_size, bool(doubts)
    for one in plan.alternatives:
        if one.kind in ("beyond-grid", "best-by-curves"):
            better = f"by the curves n = {one.group_size} is {small(-(one.expected_loss or 0.0))} better"
            return Verdict("undecided", f"the law names n = {n}; {better}", doubts)
    tie = _tie(plan, equal)
    kind = "undecided" if undecided else "tie" if tie else "clear"
    return Verdict(kind, tie or f"{_within(plan)}n = {n} is ahead of every other n tried", doubts)


def _within(plan: Plan) -> str:
    """The words before an n that the limits of the plan decide: without them it would be another n that was run."""
    assert plan.fits is not None, "a new plan holds its fits"
    free = plan.group_size if plan.unlimited is None else plan.unlimited.plan.group_size
    return "within your limits " if plan.group_size != free <= plan.fits.group_size_range[1] else ""


def _tie(plan: Plan, equal: float) -> str:
    """Which group sizes have equal predictions; empty where the plan's n has none."""
    sizes = joined([*map(str, sorted([plan.group_size, *plan.about_equal]))])
    differ = f"n = {sizes} are predicted to differ by at most {equal:g} in {plan.metric}"
    return f"{_within(plan)}{differ}" if plan.about_equal else ""


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
    smallest, largest = fits.group_size_range
    if len(sizes) == 1:
        only = f"of the n that were run ({smallest} to {largest}), only n = {n} is within the limits"
        return Verdict("likely" if doubts else "clear", only, doubts), False
    tried = grid | (sizes == n)
    spread = float(np.ptp(odds.reward[tried])) if np.count_nonzero(grid) > 1 else np.inf
    # Nearly equal means are not enough: draws that put the best n anywhere have them too.
    all_run = grid.any() and (int(sizes[grid][0]), int(sizes[grid][-1])) == (smallest, largest)
    if all_run and spread <= equal and float(odds.near_best[tried].min()) >= DECIDED:
        ends = f"from n = {sizes[tried][0]} to {sizes[tried][-1]} predictions differ by {spread:.3f}"
        return Verdict("hardly-matters", f"{ends}; {TAKE}", doubts), False
    kind = "likely" if near >= LIKELY else "undecided"
    loss = float(odds.expected_regret[here])
    lost = f"n = {n} is expected to end {small(loss)} below the true best"
    if odds.above_ahead >= ABOVE or not grid[here]:
        best = int(sizes[grid][int(np.argmax(odds.reward[grid]))]) if grid.any() else largest
        more = f"better by more than {equal:g} with probability {chance_text(odds.above_ahead)}"
        among = "of those that were run" if best in fits.group_sizes else f"up to the largest that was run ({largest})"
        sentence = f"{_within(plan)}n = {best} is best {among}; n = {2 * largest} is {more}"
        if not grid[here]:
            sentence = f"{_within(plan)}n = {n}, which was not run, should beat n = {best} and the others; it is {more}"
        return Verdict(kind, sentence, doubts, lost), True
    # The expected loss is the same for both n where one overtakes the other, and smooth in the budget; a share of the
    # draws is neither, and verdicts by it go back and forth.
    is_open = near < DECIDED or bool(doubts)
    chances = _by_chance(fits, odds)
    likeliest = "" if chances[0][0] in (n, *plan.about_equal) else _chances(plan, chances, odds)
    if not fits.doubts and loss <= equal and (tie := _tie(plan, equal)):
        what, left = ("", [likeliest, lost]) if is_open else (f"; {TAKE}", [likeliest])
        return Verdict("tie", tie + what, doubts, "; ".join(filter(None, left))), is_open
    if is_open:
        shown = fits.tolerances.shown(odds.reward)
        best = "has the highest expected reward" if shown[here] >= shown.max() else "is near the best"
        sentence = f"{_within(plan)}n = {n} {best}"
        if kind == "undecided":
            sentence = f"these runs cannot decide n; {sentence}"
        return Verdict(kind, sentence, doubts, f"{_chances(plan, chances, odds)}; {lost}"), True
    chance = float(odds.probability_best[here])
    sentence = f"{_within(plan)}n = {n} is best{_at_equal(plan)} with probability {chance_text(chance)}"
    if near < 1.0:
        sentence += f"; another n is better by more than {equal:g} with probability {chance_text(1.0 - near)}"
    if n in (smallest, largest) and smallest != largest:
        sentence += f"; no {'larger' if n == largest else 'smaller'} n was run"
    return Verdict("clear" if chance >= LEVEL else "likely", sentence, odds=likeliest), False


def _by_chance(fits: Fits, odds: GroupSizeOdds) -> list[tuple[int, float]]:
    """Every n with its probability of being the best, the likeliest first."""
    # What the candidates leave is the chance of the octave above the grid.
    sizes_N = np.append(odds.group_size, 2 * fits.group_size_range[1])
    chance_N = np.append(odds.probability_best, 1.0 - odds.probability_best.sum())
    order = np.argsort(-chance_N, kind="stable")
    return list(zip(sizes_N[order].tolist(), chance_N[order].tolist(), strict=True))


def _chances(plan: Plan, chances: Sequence[tuple[int, float]], odds: GroupSizeOdds) -> str:
    """The n that are best with 80 % probability together; why the likeliest is not planned."""
    needed = int(np.searchsorted(np.cumsum([chance for _, chance in chances]), LEVEL - 1e-9)) + 1
    listed = [f"{n} ({chance_text(chance)})" for n, chance in chances[:needed]]
    before = f", ahead of {joined(listed[1:])}" if listed[1:] else ""
    reward = dict(zip(odds.group_size.tolist(), odds.reward.tolist(), strict=True))
    likeliest = chances[0][0]
    less = round(reward[plan.group_size], 3) - round(reward.get(likeliest, np.nan), 3)
    behind = f", but n = {plan.group_size} is expected to reach {less:.3f} more"
    behind = behind if likeliest != plan.group_size and less > 0 else ""
    return f"n = {listed[0]} is most likely the best{_at_equal(plan)}{before}{behind}"


def _at_equal(plan: Plan) -> str:
    """That n are compared at equal hours or cost, where they are: larger batches then sample more rollouts."""
    return {"gpu_hours": " at equal GPU-hours", "usd": " at equal cost"}.get(plan.budget.unit, "")


def with_first(verdict: Verdict, first: NextRuns | None, *, is_open: bool) -> Verdict:
    """The verdict with what to run first: `measure-first` only where a run is worth its cost."""
    if verdict.kind == "borrowed" and (first is None or first.runs):
        return replace(verdict, sentence=f"{verdict.sentence}: run your own pilot first")
    return replace(verdict, kind="measure-first") if is_open and first is not None and first.runs else verdict


def worth_of(doubling: Estimate, tolerances: Tolerances) -> Worth:
    """Whether a doubling of the budget that adds so much reward is worth it: `Tolerances.small` or more."""
    # As shown: what is said to be less than the threshold is a smaller number on the screen.
    mean, low, high = (round(part, 3) for part in doubling)
    least, known = tolerances.small, not np.isnan(low)
    if (low if known else mean) >= least:
        return "worth-it"
    # Twice the threshold, because a rule that is right more often than not would always give a verdict.
    return "not-worth-it" if not known or (high < 2 * least and mean < least) else "cannot-tell"


def approval_of(plan: Plan) -> Approval:
    """No where something speaks against it; else with a check on the way, if it goes beyond `CHECK_AT`.

    The check is the first whose floor lies above what a run has measured already: any lower one would let everything
    pass. Without one, beyond `FAR`, and where its n or B_p is new (then half of it at most), the plan is approved up to
    the first check only. The largest run is that of its n, or of the nearest that was run. Where a run of its n fell,
    the part ends at twice the compute at which that run was best.
    """
    if against := _against(plan):
        return Approval("do-not", against)
    found = _approved(plan)
    gain = plan.gain
    if gain is None or gain.run_to_go_on is None or gain.further < plan.tolerances.equal:
        return found
    instead = (
        f"only if {gain.run_to_go_on} kept no checkpoint (continuing it should end {gain.further:.3f} higher than this "
        "plan)"
    )
    return replace(found, reason=f"{instead}; {found.reason}")


def _approved(plan: Plan) -> Approval:
    """The same of a plan that nothing speaks against."""
    fits, far = plan.fits, plan.extrapolation
    if plan.verdict.kind == "borrowed":
        return Approval("part", "none of your runs shows its gain", *_check(plan, 0.5))
    assert fits is not None, "a new plan holds its fits"
    assert far is not None, "runs have a largest compute"
    return _past_fall(plan, fits) or _by_reach(plan, fits, two_digits(far))


def _by_reach(plan: Plan, fits: Fits, far: float) -> Approval:
    """The approval of a plan that costs `far` times the largest run, by how far it goes beyond the runs of its n."""
    nearest = min(fits.curves.values(), key=lambda c: (abs(np.log2(c.group_size / plan.group_size)), -c.last_compute))
    was_run, times = nearest.group_size == plan.group_size, plan.compute / nearest.last_compute
    reach = two_digits(times)
    where = "" if reach == far else f" at n = {nearest.group_size}{'' if was_run else ', the nearest that was run'}"
    cost = f"the whole plan costs {multiple(reach)} x the largest run{where}"
    shares, at = list[float](), CHECK_AT
    while at < min(reach, times):
        shares.append(at / times)
        at *= 2.0
    untried = "" if was_run else f"n = {plan.group_size} was not run"
    if fits.reachable_problems_per_batch(plan.problems_per_batch) not in (None, plan.problems_per_batch):
        untried = untried or f"B_p = {plan.problems_per_batch} lies more than an octave from those that were run"
    if untried:
        cost, shares = f"{untried}; {cost}", [min([0.5, *shares])]
    if not shares:
        return Approval("approve", f"{cost}; plans of up to {CHECK_AT:g} x need no check")
    checks = [Approval("check", cost, *_check(plan, share)) for share in shares]
    best = -np.inf if plan.gain is None else plan.gain.best.reward
    if far > FAR:
        gains = checks[0].expected is None or checks[0].expected > best
        return _part(plan, checks[0], "" if gains else _untold(plan, checks[0]))
    telling = [one for one in checks if one.lowest is not None and one.lowest > best]
    if telling and not untried:
        return telling[0]
    return _part(plan, checks[0], "" if checks[0] in telling else _untold(plan, checks[0]))


def _untold(plan: Plan, check: Approval) -> str:
    """Why a check tells nothing of a gain."""
    if plan.gain is None or check.expected is None or check.lowest is None:
        return "; there is no prediction to check against"
    best = plan.gain.best.reward
    if round(check.expected, 3) <= round(best, 3):
        return f"; up to there it tests the prediction but gains nothing over the best run ({best:.3f})"
    return f"; a check on the way would not help: its pass mark lies below the best run so far ({best:.3f})"


def _part(plan: Plan, check: Approval, why: str = "") -> Approval:
    """The approval of a plan up to a check."""
    return replace(check, kind="part", reason=check.reason + why, lowest=None, gain=gain_of(plan, check.step))


def gain_of(plan: Plan, steps: int | None = None) -> Gain | None:
    """What a plan gains over the best checkpoint so far; None without runs of one's own, or where none rises.

    Args:
        plan: the plan.
        steps: update steps after which; None for all.
    """
    fits, compute, interval = plan.fits, plan.compute, plan.reward_interval
    n, problems, mean = plan.group_size, plan.problems_per_batch, plan.predicted_reward
    if fits is None or mean is None or (best := fits.best_reached) is None:
        return None
    if interval is None:
        return Gain(best, mean - best.reward, None, None)
    if steps is not None:
        compute *= steps / plan.update_steps
        at = fits.predict(compute, n, problems)
        mean, interval = float(at.mean), (float(at.low), float(at.high))
    # The draws as wide as the interval of the reward: those of the surface know nothing beyond its shapes. They spread
    # about the prediction, as the interval does; about their mean a wide skew would move most of them past it.
    drawn_D = reward_draws(fits, compute, n, problems)
    low, middle, high = np.quantile(drawn_D, [(1 - LEVEL) / 2, 0.5, (1 + LEVEL) / 2])
    wider = zip(interval, (low, high), strict=True)
    scale = [abs(shown - mean) / max(abs(end - middle), 1e-12) for shown, end in wider]
    wide_D = mean + (drawn_D - middle) * np.where(drawn_D < middle, *scale)
    low, high = (end - best.reward for end in interval)
    run, further = going_on(fits, best, partial(_reach, plan))
    run = None if plan.past else run
    return Gain(best, mean - best.reward, (low, high), float(np.mean(wide_D > best.reward)), run, further)


def _reach(plan: Plan, rollouts_per_batch: int) -> float:
    """Rollouts with which a run with such batches can go on for what the plan costs, until the deadline."""
    pricing, unit = Pricing(plan.budget, plan.throughput, plan.evaluation), plan.budget.unit
    if plan.hardware.refusal(rollouts_per_batch) is not None:
        return 0.0
    if not plan.budget.timed or pricing.refusal(rollouts_per_batch) is not None:
        return plan.rollouts
    limits = {} if pricing.deadline is None else {"wall_hours": pricing.deadline}
    limits |= {unit: plan.cost} if unit in ("gpu_hours", "usd") else {}
    steps = (pricing.most_steps(one, amount, rollouts_per_batch) for one, amount in limits.items())
    most = min(rollouts_per_batch * one for one in steps)
    return float(most) if unit in limits else min(plan.rollouts, most)


def _past_fall(plan: Plan, fits: Fits) -> Approval | None:
    """The part of a plan up to a check past the fall of a run of its n; None without such a run."""
    found = [
        (best, f"a run of this n, {run}, {FELL[fault]}")
        for run, (fault, best) in falls_in(fits.notes).items()
        if fits.size_by_run.get(run) == plan.group_size
    ]
    best, told = min(found, default=(np.inf, ""))
    share = CHECK_AT * best / plan.rollouts
    if share >= 1.0:
        return None
    reason = f"{told} after C = {short(best)}; the prediction assumes that this does not happen again"
    return _part(plan, Approval("check", reason, *_check(plan, share)))


def _check(plan: Plan, share: float) -> tuple[int, float | None, float | None]:
    """The step of the check at a share of the plan, the reward expected there, and what one run in ten misses.

    It is the last evaluation of the plan up to there, which may be well before that share.
    """
    every = plan.evaluation.every_steps or 1
    step = max(int(plan.update_steps * share), 1)
    step -= step % every if step > every else 0
    if plan.fits is None or plan.predicted_reward is None:
        return step, None, None
    compute = plan.compute * step / plan.update_steps
    at = plan.fits.predict(compute, plan.group_size, plan.problems_per_batch, kind="run")
    return step, float(at.mean), None if np.isnan(at.low) else float(at.low)


def better_reward(plan: Plan) -> float | None:
    """A reward above the best run, also if it goes on, and the plan by what counts as equal, to ask the cost of.

    None if the metric ends below it, if the budget is the largest that such a question looks at, or if no n that was
    run is expected to reach it within that.
    """
    better, fits = _better(plan), plan.fits
    if _is_largest(plan) or better is None or fits is None or fits.largest_compute is None:
        return None
    reached = fits.frontier(FAR * fits.largest_compute).reward
    return better if float(reached[0]) >= better else None


def _better(plan: Plan) -> float | None:
    """The same for any budget; None if the metric ends below it."""
    if plan.gain is None or plan.fits is None:
        return None
    better = plan.gain.best.reward + max(plan.gain.gain, plan.gain.going_on, 0.0) + plan.fits.tolerances.equal
    return better if better <= plan.fits.bounds[1] else None


def _is_largest(plan: Plan) -> bool:
    """Whether the whole budget buys `FAR` times the largest run, beyond which no budget is looked at."""
    whole = plan.extrapolation if plan.stopping is None else plan.stopping.extrapolation
    return whole is not None and two_digits(whole) >= FAR


def trouble_of(fits: Fits, group_size: int) -> str:
    """A trouble that a change of the recipe answers, in half of the runs of this n or more; empty without one.

    `isocompute forecast` says of such a run that something must change. Falls have rules of their own.
    """
    for note in fits.notes:
        if is_recipe_first(note):
            same = {run for run, n in fits.size_by_run.items() if n == group_size}
            mine = same or {*fits.size_by_run}
            sick = len(mine & note.data["runs"].keys())
            if 2 * sick >= len(mine) > 0:
                where = f"in {sick} of {counted(len(mine), 'run')}{' of this n' if same else ''}"
                return f"{where} {ADVICE[note.code].title} ({note.code}): change the recipe first"
    return ""


def _against(plan: Plan) -> str:
    """Why a plan is not to be approved; empty if nothing speaks against it. Runs to make first come before the rest."""
    fits, verdict, first = plan.fits, plan.verdict, plan.next_runs
    assert fits is not None, "a new plan holds its fits"
    if fits.flat_runs is not None or (verdict.kind == "borrowed" and (first is None or first.runs)):
        return verdict.sentence
    if fits.passport is not None and plan.problems_per_batch in fits.passport.unstable_problems_per_batch:
        return f"at least half of the runs at B_p = {plan.problems_per_batch} collapsed: change the recipe first"
    if trouble := trouble_of(fits, plan.group_size):
        return trouble
    # Where runs that would decide n are not worth their cost, the plan is the best use of the budget.
    against = verdict.sentence if verdict.kind == "undecided" and first is None else ""
    cheap = f"less than {fits.tolerances.small:.3g}: not worth its cost"
    if plan.gain is not None and plan.gains_nothing:
        gain = f"{plan.gain.shown:.3f}, {cheap}" if plan.gain.shown > 0 else "nothing"
        # Runs that come first are something to do already.
        stuck = better_reward(plan) is None and not plan.runs_first
        left = f"the plan is predicted to gain {gain}" + (f"; {OTHERWISE}" if stuck else "")
        left = "nothing is left to gain" if _better(plan) is None else left
        if plan.gain.going_on >= fits.tolerances.small:
            own = "which goes on with a run, is predicted, as runs are on average,"
            kind = own if plan.past else "a new run, is predicted"
            left = f"the plan, {kind} to gain {gain}; "
            left += f"isocompute forecast says what continuing {plan.gain.run_to_go_on or 'the old run'} would gain"
            left += " by its own curve" if plan.past else ""
        against = f"a run already reached {plan.gain.best}: {left}"
    elif plan.last_half is not None:
        against = f"the last half of the steps is predicted to add {small(plan.last_half)}, {cheap}"
    if first is None or not first.runs:
        return against
    # What they cost and save stands beside it.
    runs = f"make {counted(len(first.runs), 'run')} first ({first.share:.1%} of the budget)"
    return f"{runs}, which may change the plan; as it stands, {against}" if against else runs
