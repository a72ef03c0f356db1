"""Which trials to make: candidates, and the greedy choice of as many as there are slots."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from isocompute_sdk.errors import PlanError
from isocompute_sdk.fitting.fits import Fits
from isocompute_sdk.fitting.surface.model import OCTAVES_ABOVE
from isocompute_sdk.fitting.surface.surface import Surface
from isocompute_sdk.notes import Note
from isocompute_sdk.phrases import short
from isocompute_sdk.planning.next_runs import NONE_WORTH_IT, NextRun, NextRuns
from isocompute_sdk.planning.pricing import Pricing, amount_text
from isocompute_sdk.planning.trials import Choices, Outlook, Trial, Worth, widened
from isocompute_sdk.tolerances import FAR, Tolerances

if TYPE_CHECKING:
    from isocompute_sdk.specs import Hardware

SHARES = (0.01, 0.02, 0.04, 0.08, 0.15, 0.3)
"""Costs of candidate runs, as shares of the budget."""
MIN_STEPS = 30
"""Fewest update steps of a new run: shorter ones hardly leave their warm-up and show little of the rise."""
MIN_ADDED = 8
"""Fewest update steps that a continuation adds."""
NEAR_BEST = 0.6
"""Candidates that save at least this share of the most that any saves are compared by what they save per cost."""
BELOW, ABOVE = 2, 1
"""Octaves below and above the n that were run in which candidates lie."""
MIN_SIZE = 8
"""Smallest n that is proposed below those that were run: n = 2 and 4 gained nothing (docs/pilot.md)."""
MAX_SIZE = 512
"""Largest n that is proposed above those that were run: n = 1,024 and 2,048 never reached the frontier of the published
sweeps."""


@dataclass(frozen=True)
class Ran:
    """A run that exists."""

    run_id: str | None
    """None where runs are known by configuration only."""
    group_size: int
    problems_per_batch: int
    update_steps: int
    seed: int = 0


@dataclass(frozen=True)
class Pick:
    """A trial that is worth making."""

    trial: Trial
    saving: float
    """Expected saving beside the picks before it, less its cost."""
    worth: Worth
    """Of all picks up to this one together."""


def candidates(
    sizes: Sequence[int],
    problems: Sequence[int],
    ran: Sequence[Ran],
    cost: Callable[[int, int], float],
    budget: float,
    fewest_steps: int = MIN_STEPS,
    most: float | None = None,
    shares: Sequence[float] = SHARES,
) -> list[Trial]:
    """New runs, second seeds and continuations, at costs that are shares of the budget.

    Args:
        sizes: group sizes.
        problems: numbers of problems per batch.
        ran: runs that exist; a continuation starts where they end.
        cost: of (rollouts per batch, update steps), in the budget's unit.
        budget: what is left of it.
        fewest_steps: fewest update steps of a new run.
        most: largest cost of a run; None for the largest of the shares.
        shares: costs of runs, as shares of the budget, increasing.
    """
    limit = shares[-1] * budget if most is None else most
    amounts = sorted({min(share * budget, limit) for share in shares})
    found: list[Trial] = []
    for bp in problems:
        for n in sizes:
            seed = 1 + max((one.seed for one in ran if (one.group_size, one.problems_per_batch) == (n, bp)), default=-1)
            found += _lengths(n, bp, seed, None, 0, amounts, cost, fewest_steps)
    for one in ran:
        if one.run_id is not None:
            n, bp = one.group_size, one.problems_per_batch
            found += _lengths(n, bp, one.seed, one.run_id, one.update_steps, amounts, cost, MIN_ADDED)
    return found


def _lengths(
    n: int,
    bp: int,
    seed: int,
    continues: str | None,
    begins: int,
    amounts: Sequence[float],
    cost: Callable[[int, int], float],
    fewest_steps: int,
) -> list[Trial]:
    batch, found = n * bp, dict[int, Trial]()
    spent = cost(batch, begins) if begins else 0.0
    one = max(cost(batch, begins + fewest_steps) - spent, 1e-12) / fewest_steps
    for amount in amounts:
        steps = begins + math.floor(amount / one)
        while steps > begins and cost(batch, steps) - spent > amount * (1 + 1e-9):
            steps -= max(1, (steps - begins) // 50)
        if steps - begins >= fewest_steps:
            found[steps] = Trial(n, bp, steps, seed, cost(batch, steps) - spent, continues, begins)
    return list(found.values())


def choose(
    outlook: Outlook,
    trials: Sequence[Trial],
    slots: int,
    most: float | None = None,
    *,
    made: Sequence[Trial] = (),
) -> list[Pick]:
    """At most `slots` trials, one after the other, each the one that saves most for its cost beside those before.

    Args:
        outlook: what is believed and decided.
        trials: candidates.
        slots: most trials.
        most: largest cost of all together; None for no limit.
        made: trials that are made in any case; what the others save is beside them.
    """
    floor = Tolerances(outlook.choices.span).nothing
    left, picks = list(trials), list[Pick]()
    if not left:
        return picks
    shown = outlook.shown(left)
    before = (shown[0][:0], shown[1][:0])
    saved = 0.0
    if made:
        before, saved = outlook.shown(made), outlook.saving(made)
    while len(picks) < slots:
        spent = sum(pick.trial.cost for pick in picks)
        able = [i for i, trial in enumerate(left) if most is None or spent + trial.cost <= most * (1 + 1e-9)]
        if not able:
            break
        asked = [left[i] for i in able]
        beside = [*made, *(p.trial for p in picks)]
        worths = outlook.worth(beside, asked, (shown[0][able], shown[1][able]), before)
        saving_E = np.array([worth.saving for worth in worths]) - saved
        top = float(saving_E.max())
        if top <= floor:
            break
        per_cost_E = np.where(saving_E >= NEAR_BEST * top, saving_E / np.array([t.cost for t in asked]), -np.inf)
        best = int(np.argmax(per_cost_E))
        picks.append(Pick(asked[best], float(saving_E[best]), worths[best]))
        saved = worths[best].saving
        index = able[best]
        before = (
            np.concatenate([before[0], shown[0][index : index + 1]]),
            np.concatenate([before[1], shown[1][index : index + 1]]),
        )
        left, shown = _without(left, shown, index)
        if not left:
            break
    return picks


def _without(
    trials: list[Trial], shown: tuple[np.ndarray, np.ndarray], taken: int
) -> tuple[list[Trial], tuple[np.ndarray, np.ndarray]]:
    """The other candidates: none continues the same run, and new runs of the same configuration get the next seed."""
    chosen = trials[taken]
    keep = [
        i
        for i, t in enumerate(trials)
        if i != taken and not (chosen.continues is not None and t.continues == chosen.continues)
    ]
    same = (chosen.group_size, chosen.problems_per_batch, chosen.seed)
    rest = [
        replace(trials[i], seed=chosen.seed + 1)
        if chosen.continues is None
        and trials[i].continues is None
        and (trials[i].group_size, trials[i].problems_per_batch, trials[i].seed) == same
        else trials[i]
        for i in keep
    ]
    return rest, (shown[0][keep], shown[1][keep])


SETTLING = (0.25, 0.5, 1.0)
"""Lengths of runs that only settle a question, as shares of the target."""


@dataclass(frozen=True)
class Question:
    """What is asked: prices, limits and what a plan may choose."""

    fits: Fits
    pricing: Pricing
    hardware: Hardware
    problems: tuple[int, ...]
    """Numbers of problems per batch that a plan or a trial may use, increasing."""
    planned_sizes: tuple[int, ...]
    """Group sizes that a plan may choose without further runs."""
    min_update_steps: int
    plan: tuple[int, int]
    """n and B_p of the present plan."""
    fewest_trial_steps: int | None = None
    """Fewest update steps of a new run; None for `search.MIN_STEPS`, or those of a plan if they are more."""

    @property
    def surface(self) -> Surface:
        """The joint model.

        Raises:
            PlanError: fits of another method.
        """
        if self.fits.surface is None:
            raise PlanError(
                f"fits of method {self.fits.method!r} have no draws of a surface to judge further runs by",
                "Fit with --method surface (method='surface').",
            ).in_shell("Fit with --method surface.")
        return self.fits.surface

    def compute(self, rollouts: float) -> float:
        """Rollouts on the axis of the fits."""
        return self.pricing.compute(rollouts, self.fits.compute)

    def cost(self, batch: int, steps: int) -> float:
        """Cost in the budget's unit."""
        return self.pricing.cost(batch, steps)


def runs_of(fits: Fits) -> list[Ran]:
    """The runs behind fits; without their table one for each configuration, which cannot be continued by name."""
    longest: dict[tuple[int, int | None], list[tuple[str | None, float, int]]] = {}
    if fits.runs is not None:
        longest = _from_table(fits)
    if not longest:
        longest = {key: [(None, curve.last_compute, 0)] for key, curve in fits.curves.items()}
    found: list[Ran] = []
    for (n, bp), runs in longest.items():
        if bp is not None:
            found += [Ran(name, n, bp, max(1, round(end / (n * bp))), seed) for name, end, seed in runs]
    return found


def _from_table(fits: Fits) -> dict[tuple[int, int | None], list[tuple[str | None, float, int]]]:
    from isocompute_sdk.records import RunSet

    assert fits.runs is not None, "checked by the caller"
    found: dict[tuple[int, int | None], list[tuple[str | None, float, int]]] = {}
    for run in RunSet.from_dict(fits.runs).runs():
        key = (run.group_size, run.problems_per_batch)
        if key in fits.curves and run.rollouts > 0:
            found.setdefault(key, []).append((run.run_id, run.rollouts, run.seed or 0))
    return found


def ask(
    question: Question,
    slots: int,
    rng: np.random.Generator,
    *,
    most: float | None = None,
    going: Mapping[str, int] | None = None,
    continuing: bool = True,
    settle: bool = False,
) -> NextRuns:
    """The runs that lower expected regret most for their cost.

    Args:
        question: prices, limits and fits.
        slots: most runs.
        rng: the randomness of what is simulated.
        most: largest cost of all runs together; None for no limit but their worth.
        going: runs that go on in any case, by name, with the update steps at which they end.
        continuing: whether a run that exists can be made longer.
        settle: nothing is planned: runs up to the whole budget each, whose cost does not count as lost.
    """
    fits = question.fits
    beyond = copy.deepcopy(rng)
    surface = widened(question.surface, BELOW, max(ABOVE - OCTAVES_ABOVE, 0), rng)
    sizes = trial_sizes(question.planned_sizes, fits.group_sizes, surface)
    outlook = Outlook(
        surface, choices(question, surface, sizes), rng, question.compute, _evaluations(fits), sunk=settle
    )
    budget = question.pricing.budget.available
    largest = max(*fits.group_sizes, min(2**ABOVE * fits.group_sizes[-1], MAX_SIZE))
    ran = runs_of(fits)
    going = going or {}
    made = [_rest(one, question, going[one.run_id]) for one in ran if one.run_id is not None and one.run_id in going]
    asked = [
        trial
        for trial in candidates(
            [n for n in sizes if n <= largest],
            question.problems,
            ran,
            question.cost,
            budget,
            question.fewest_trial_steps or max(question.min_update_steps, MIN_STEPS),
            most,
            SETTLING if settle else SHARES,
        )
        if trial.continues not in going
        and (continuing or trial.continues is None)
        and question.hardware.refusal(trial.group_size * trial.problems_per_batch) is None
    ]
    picks = choose(outlook, asked, slots, most, made=made)
    now = int(outlook.choices.group_size_J[outlook.now]), int(outlook.choices.problems_J[outlook.now])
    return answer(question, outlook, picks, surface.largest_compute, lost_by(question, now, beyond))


def _rest(run: Ran, question: Question, steps: int) -> Trial:
    """What is left of a run that goes on."""
    batch = run.group_size * run.problems_per_batch
    cost = question.cost(batch, steps) - question.cost(batch, run.update_steps)
    return Trial(run.group_size, run.problems_per_batch, steps, run.seed, cost, run.run_id, run.update_steps)


def trial_sizes(planned: Sequence[int], ran: Sequence[int], surface: Surface) -> list[int]:
    """Group sizes of trials: those planned or run, and powers of two up to `BELOW` octaves below the runs, but
    not below `MIN_SIZE`, and `ABOVE` octaves above them."""
    low = min(*ran, max(min(ran) // 2**BELOW, MIN_SIZE))
    high = max(ran) * 2**ABOVE
    first, last = 2.0 ** surface.layout.knots_K[[0, -1]]
    powers = {2**i for i in range(1, 41) if low <= 2**i <= high and first <= 2**i <= last}
    return sorted(powers | set(ran) | set(planned))


def choices(question: Question, surface: Surface, sizes: Sequence[int]) -> Choices:
    """What the budget decides between: every group size at every B_p that the budget can carry out."""
    pricing, budget = question.pricing, question.pricing.budget
    pairs = [(n, bp) for bp in question.problems for n in sizes if question.hardware.refusal(n * bp) is None]
    found = Choices.of(
        surface,
        pairs,
        partial(_steps, pricing),
        question.min_update_steps,
        budget.available,
        compute=question.compute,
        planned=question.planned_sizes,
        plan=question.plan,
    )
    if found is None:
        raise PlanError(
            f"a budget of {amount_text(budget.amount, budget.unit)} is too small for any plan", "Raise the budget."
        )
    return found


def _steps(pricing: Pricing, amount: float, batch: int) -> int:
    steps = pricing.most_steps(pricing.budget.unit, amount, batch)
    deadline = pricing.deadline
    return steps if deadline is None else min(steps, pricing.most_steps("wall_hours", deadline, batch))


def _evaluations(fits: Fits) -> int:
    """Evaluations of a run like those behind the fits."""
    points = [int(np.count_nonzero(one.compute_T > 0)) for one in fits.surface_points or ()]
    return max(4, min(int(np.median(points)) if points else 20, 60))


@dataclass(frozen=True)
class Loss:
    """Reward that a plan is expected to lose at the target against the best n of each draw."""

    near: float
    """Against n up to the octave above the runs."""
    above: float
    """How much further ahead n above that octave are."""

    @property
    def expected(self) -> float:
        """Both together."""
        return self.near + self.above


def lost_by(question: Question, plan: tuple[int, int], rng: np.random.Generator) -> Loss:
    """What a plan loses against the best n from the smallest that was run up to `MAX_SIZE`, or an octave above all.

    Args:
        question: prices, limits and fits.
        plan: its n and B_p.
        rng: the randomness of n that no run is near to.
    """
    ran = question.fits.group_sizes
    top = 2**OCTAVES_ABOVE * ran[-1]
    wide = widened(question.surface, 0, max(math.ceil(math.log2(MAX_SIZE / top)), 0), rng)
    powers = {2**i for i in range(1, 41) if ran[0] <= 2**i <= max(top, MAX_SIZE)}
    c = choices(question, wide, sorted(powers | {*ran, *question.planned_sizes, plan[0]}))
    here = list(zip(c.group_size_J.tolist(), c.problems_J.tolist(), strict=True)).index(plan)
    near_DJ = c.reward_DJ[:, c.group_size_J <= max(top, plan[0])]
    best = float(near_DJ.max(axis=1).mean())
    return Loss(best - float(c.reward_DJ[:, here].mean()), float(c.reward_DJ.max(axis=1).mean()) - best)


def answer(question: Question, outlook: Outlook, picks: Sequence[Pick], seen: float, loss: Loss) -> NextRuns:
    """The picks with costs, reasons and notes."""
    c, unit, budget = outlook.choices, question.pricing.budget.unit, question.pricing.budget.available
    now, regret = outlook.now, loss.expected
    runs, total, chance = list[NextRun](), 0.0, np.zeros(len(c.group_size_J))
    chance[now] = 1.0
    for pick in picks:
        saved = min(pick.saving, regret - total)
        runs.append(pick.trial.advised(budget, saved, _settles(outlook, pick, chance)))
        total, chance = total + max(saved, 0.0), pick.worth.chosen_J
    first = f"the plan now is n = {c.group_size_J[now]}, expected to lose {regret:.4f} against the best n"
    if loss.above >= Tolerances(c.span).nothing:
        first += f" ({loss.above:.4f} above n = {2**OCTAVES_ABOVE * question.fits.group_sizes[-1]})"
    if runs:
        cost = sum(run.cost for run in runs)
        reason = (
            f"{first}. Run {named(runs)} first: {amount_text(cost, unit)}, {cost / budget:.1%} of the budget, "
            f"expected to save {total:.4f} after what it costs"
        )
        if total < Tolerances(c.span).small:
            reason += ", too little to wait for: training the plan now is as good"
    else:
        reason = f"{first}; of the runs that could be made, {NONE_WORTH_IT}"
    target = max(question.compute(float(r)) for r in _targets(question, c))
    return NextRuns(
        runs=tuple(runs),
        unit=unit,
        budget=float(budget),
        metric=question.fits.metric,
        group_size_now=int(c.group_size_J[now]),
        problems_per_batch_now=int(c.problems_J[now]),
        regret_now=float(regret),
        regret_unseen=loss.above,
        saving=float(min(total, regret)),
        reason=reason,
        notes=tuple(far_note(target, max([seen, *(question.compute(float(r.rollouts)) for r in runs)]))),
    )


def _targets(question: Question, c: Choices) -> list[int]:
    pricing = question.pricing
    pairs = {int(n) * int(bp) for n, bp in zip(c.group_size_J, c.problems_J, strict=True)}
    return [batch * _steps(pricing, pricing.budget.available, batch) for batch in pairs]


def far_note(target: float, longest: float) -> list[Note]:
    """The note that the target lies far beyond every run; none within `FAR`."""
    reach = target / longest
    if reach <= FAR * (1 + 1e-9):
        return []
    text = (
        f"After these runs the target still lies {reach:.3g} x beyond the longest run. A run of a tenth of the target "
        "costs more than it is expected to save; predictions that far rest on the form of the curves."
    )
    return [Note("target-beyond-10x", "warning", text, {"extrapolation": reach})]


def named(runs: Sequence[NextRun]) -> str:
    """Group sizes and lengths in one phrase."""
    by_length: dict[int, list[str]] = {}
    for run in runs:
        by_length.setdefault(run.rollouts, []).append(str(run.group_size))
    parts = [f"n = {' and '.join(sizes)} to {short(length)} rollouts" for length, sizes in by_length.items()]
    return ", ".join(parts)


def _settles(outlook: Outlook, pick: Pick, before_J: npt.NDArray[np.float64]) -> str:
    """Which n compete, and how likely the plan changes."""
    c, t = outlook.choices, pick.trial
    after_J = pick.worth.chosen_J
    now = int(np.argmax(before_J))
    others = np.where(np.arange(len(after_J)) == now, -1.0, after_J)
    rival = int(np.argmax(others))
    changed = 1.0 - float(after_J[now])
    if others[rival] <= 0:
        return f"how good n = {t.group_size} is at the target"
    return (
        f"whether n = {c.group_size_J[rival]} is better than n = {c.group_size_J[now]} at the target (the plan changes "
        f"with probability {changed:.0%})"
    )
