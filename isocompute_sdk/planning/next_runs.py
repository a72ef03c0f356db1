"""What to run before a budget is spent: the runs that lower expected regret most for their cost.

`ask` finds them from the draws of the surface of runs that exist; without any, `pilot_design.py` does.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Annotated

import numpy as np
from pydantic import Field

from isocompute_sdk.documents import Document, Saved
from isocompute_sdk.errors import FieldError, PlanError
from isocompute_sdk.fitting.arrays import Count, NotNegative, Positive
from isocompute_sdk.fitting.fits import Fits
from isocompute_sdk.health.findings import falls_in
from isocompute_sdk.notes import Note
from isocompute_sdk.phrases import chance_text, short, small
from isocompute_sdk.planning.pricing import Limits, Pricing, amount_text
from isocompute_sdk.planning.trials import FRACTIONS, Choices, Outlook, Trial, Worth, runs_of
from isocompute_sdk.specs import Budget
from isocompute_sdk.specs.budget import Unit
from isocompute_sdk.specs.sweep import Allocation, Sized
from isocompute_sdk.tolerances import MIN_UPDATES, Tolerances

Share = Annotated[float, Field(ge=0, le=1)]
NONE_WORTH_IT = "is worth its cost"
SHARES = (0.01, 0.02, 0.04, 0.08, 0.15, 0.3)
"""Of the budget left, and of the hours to its deadline, that candidate runs take."""
MIN_STEPS = 30
"""Fewest update steps of a new run: shorter ones hardly leave their warm-up and show little of the rise."""
MIN_ADDED = 8
"""Fewest update steps that a continuation adds."""
NEAR_BEST = 0.6
"""Candidates that save at least this share of the most that any saves are compared by what they save per cost."""
MAX_SIZE = 512
"""Largest n of a trial: n = 1,024 and 2,048 never reached the frontier of the published sweeps."""


@dataclass(frozen=True)
class NextRun(Sized):
    """One run to make before the budget is spent."""

    group_size: Annotated[int, Field(ge=2)]
    problems_per_batch: Count
    update_steps: Count
    """M at its end; of a continued run, counted from its start."""
    every_steps: Count
    """Update steps between two evaluations."""
    seed: Annotated[int, Field(ge=0)]
    continues: str | None
    """Run id of the run to continue from its checkpoint; None for a new run."""
    cost: Positive
    """In the budget's unit; of a continued run only what is added."""
    share: Share
    """Of the budget."""
    saves: NotNegative
    """Reward that it is expected to save at the target, beside the runs listed before it and less its cost."""
    settles: str
    """What it would settle."""

    @property
    def gain(self) -> str:
        """What it saves, as shown; empty where that rounds to nothing: runs of a set are useful together."""
        return f"{self.saves:.3f}" if self.saves >= 0.0005 else ""

    @property
    def allocation(self) -> Allocation:
        """The run as studies take it."""
        return Allocation(
            group_size=self.group_size,
            problems_per_batch=self.problems_per_batch,
            update_steps=self.update_steps,
            seed=self.seed,
        )

    def describe(self, unit: str) -> str:
        """Configuration, length, cost and reason on one line."""
        what = self.named
        if unit != "rollouts" or self.continues is not None:
            what += f" ({self.rollouts:,} rollouts)"
        gain = f", expected to save {self.gain}" if self.gain else ""
        return f"{what}: {amount_text(self.cost, unit)}, {self.share:.1%} of the budget{gain}; settles {self.settles}"

    @property
    def named(self) -> str:
        """Its sizes, or the run that it continues and to what length."""
        if self.continues is not None:
            return f"continue {self.continues} to M = {self.update_steps:,}"
        return self.sizes + (f", seed {self.seed}" if self.seed else "")


@dataclass(frozen=True)
class NextRuns(Saved):
    """The runs that lower expected regret at the target most for what they cost; none if none is worth its cost."""

    runs: tuple[NextRun, ...]
    unit: Unit
    """Unit of every cost."""
    budget: Positive
    """The whole budget, with what is spent of it, in that unit."""
    metric: str
    group_size_now: Annotated[int, Field(ge=2)]
    """n that is planned without these runs."""
    problems_per_batch_now: Count
    regret_now: NotNegative
    """Expected reward lost at the target against the best n, if the budget is spent now; without runs the least that
    any n loses."""
    saving: NotNegative
    """Expected reward saved at the target by all runs together, less what their cost loses there."""
    reason: str
    """Why these runs, or why none."""
    notes: tuple[Note, ...] = ()

    def __post_init__(self) -> None:
        if self.saving > self.regret_now * (1 + 1e-9) + 1e-12:
            raise FieldError("saving", self.saving, f"at most regret_now = {self.regret_now:g}")
        if not self.runs and self.saving > 0:
            raise FieldError("saving", self.saving, "0 without runs")

    @property
    def cost(self) -> float:
        """Cost of all runs, in the budget's unit."""
        return float(sum(run.cost for run in self.runs))

    @property
    def share(self) -> float:
        """Their cost as a share of the budget."""
        return self.cost / self.budget

    @property
    def regret_after(self) -> float:
        """`regret_now` less `saving`."""
        return max(self.regret_now - self.saving, 0.0)

    @classmethod
    def none(cls, budget: Budget, metric: str, now: tuple[int, int], regret: float, reason: str) -> NextRuns:
        """No runs, with the reason."""
        return cls((), budget.unit, float(budget.amount), metric, *now, max(regret, 0.0), 0.0, reason)

    def __repr__(self) -> str:
        sizes = ", ".join(f"n = {run.group_size}" for run in self.runs) or "none"
        return f"NextRuns({sizes}; now n = {self.group_size_now}; saves {self.saving:.3f}; summary() has the reason)"

    def summary(self) -> str:
        """The reason, one line for each run, and the notes."""
        nothing = "" if self.runs else "Run nothing first: "
        # What one run costs and saves, the reason has said.
        runs = [run.describe(self.unit) for run in self.runs]
        if len(self.runs) == 1:
            runs = [f"{run.named}; settles {run.settles}" for run in self.runs]
        lines = [nothing + self.reason, *(f"  {run}" for run in runs)]
        return "\n".join(lines + [note.line for note in self.notes])


NEXT_RUNS = Document(
    "next-runs",
    1,
    NextRuns,
    derived=("cost", "share", "regret_after"),
    remedy="Ask again: <isocompute next RUNS --budget C | planner.next_runs(budget)>.",
)


@dataclass(frozen=True)
class Search:
    """How to look for runs to make first."""

    slots: int
    """Most runs, each chosen beside those before it; 0 for none."""
    most: float | None = None
    """Largest cost of all of them, in the budget's unit; None for no limit but their worth."""
    ended: Collection[str] = ()
    """Runs that are not made longer, by name."""
    going: Mapping[str, int] = field(default_factory=dict[str, int])
    """Runs that go on in any case, by name, with the update steps at which they end."""
    rng: np.random.Generator | int | None = None
    """The randomness of simulated evaluations; None for a fixed one."""


@dataclass(frozen=True)
class Question:
    """What is asked of fits with a surface: prices, limits and what a plan may choose."""

    fits: Fits
    limits: Limits
    trials: Pricing
    """Prices of the runs that could come first."""
    problems: tuple[int, ...]
    """Numbers of problems per batch that a plan or a trial may use, increasing."""
    planned_sizes: tuple[int, ...]
    """Group sizes that a plan may choose without further runs."""
    plan: tuple[int, int]
    """n and B_p of the present plan."""
    cost: float
    """What is to be paid for that plan, which all runs before it do not exceed."""
    regret: float
    """Reward that it is expected to lose against the best n."""


def ask(question: Question, search: Search) -> NextRuns:
    """The runs that lower expected regret most for their cost; none if together they save too little to wait for."""
    fits, surface, budget = question.fits, question.fits.surface, question.limits.pricing.budget
    assert surface is not None, "asked of fits with a surface"
    powers = {2 ** int(octave) for octave in surface.layout.knots_K if octave}
    sizes = sorted(powers | {*fits.group_sizes, *question.planned_sizes})
    in_rollouts = fits.compute == "log10_rollouts"
    compute = float if in_rollouts else partial(question.limits.pricing.compute, variable=fits.compute)

    @cache
    def takes(batch: int) -> bool:
        return question.limits.hardware.refusal(batch) is None and question.limits.pricing.refusal(batch) is None

    pairs = [(n, bp) for bp in question.problems for n in sizes if takes(n * bp)]
    choices = Choices.of(
        surface,
        pairs,
        np.array([question.limits.pricing_of(n, bp).steps_for(FRACTIONS.tolist(), n * bp) for n, bp in pairs]),
        question.limits.min_update_steps,
        compute=compute,
        reachable=fits.reachable,
        planned=question.planned_sizes,
        plan=question.plan,
    )
    if choices is None:
        raise PlanError(
            f"a budget of {amount_text(budget.amount, budget.unit)} is too small for any plan", "Raise the budget."
        )
    points = [int(np.count_nonzero(one.compute_T > 0)) for one in fits.surface_points or ()]
    evaluations = max(4, min(int(np.median(points)) if points else 20, 60))
    rng = np.random.default_rng(0 if search.rng is None else search.rng)
    outlook = Outlook(surface, choices, rng, compute, evaluations, fits.reachable)
    largest, ran, going = max(*fits.group_sizes, MAX_SIZE), runs_of(fits), search.going
    made = [
        _to(run, end, question.trials) for run in ran if run.continues and (end := going.get(run.continues)) is not None
    ]
    asked = [
        trial
        for trial in _candidates([n for n in sizes if n <= largest], ran, question, search.most)
        if trial.continues not in {*going, *search.ended, *falls_in(fits.notes)}
        and (question.limits.n_problems is None or trial.problems_per_batch <= question.limits.n_problems)
        and takes(trial.group_size * trial.problems_per_batch)
    ]
    most = question.cost if search.most is None else min(search.most, question.cost)
    picks = _chosen(outlook, asked, replace(search, most=most), made)
    total, regret = sum(max(pick.saving, 0.0) for pick in picks), max(question.regret, 0.0)
    lost = fits.only_size or f"it is expected to end {small(regret)} below the true best"
    now = f"the current plan is n = {question.plan[0]}; {lost}"
    tolerances = Tolerances(choices.span)
    # Beside runs that go on anyway nothing waits for these.
    if min(total, regret) < (tolerances.nothing if going else tolerances.small):
        reason = f"{now}; no run made first {NONE_WORTH_IT}"
        return NextRuns.none(budget, fits.metric, question.plan, regret, reason)
    return _advice(question, outlook, picks, regret, now)


def longer(question: Question, search: Search) -> NextRuns | None:
    """Every run at twice its length, or what `search.most` pays for; None if that is too little to show a rise."""
    pricing, budget = question.trials, question.limits.pricing.budget
    going = [one for one in runs_of(question.fits) if one.continues and one.continues not in search.ended]
    cost = sum(_to(one, 2 * one.begins, pricing).cost for one in going)
    share = min(1.0, (search.most or 0.0) / cost) if going else 0.0
    if share == 0.0 or (share < 1.0 and any(share * one.begins < MIN_UPDATES for one in going)):
        return None
    made = [_to(one, one.begins + math.floor(share * one.begins), pricing) for one in going]
    return NextRuns(
        runs=tuple(advised(one, pricing, 0.0, "whether its reward rises") for one in made),
        unit=budget.unit,
        budget=float(budget.amount),
        metric=question.fits.metric,
        group_size_now=question.plan[0],
        problems_per_batch_now=question.plan[1],
        regret_now=max(question.regret, 0.0),
        saving=0.0,
        reason="no reward rises beyond noise yet: the runs go on, to at most twice their length",
    )


def _advice(question: Question, outlook: Outlook, picks: Sequence[_Pick], regret: float, now: str) -> NextRuns:
    """The picks with costs and reasons."""
    choices, budget, metric = outlook.choices, question.limits.pricing.budget, question.fits.metric
    runs, total, chance_J = list[NextRun](), 0.0, np.arange(len(choices.group_size_J)) == outlook.now
    for pick in picks:
        saved = max(min(pick.saving, regret - total), 0.0)
        here, after_J = int(np.argmax(chance_J)), pick.worth.chosen_J
        other = int(np.argmax(np.where(chance_J == chance_J.max(), -1, after_J)))
        n, rival = (int(choices.group_size_J[j]) for j in (here, other))
        settles = f"whether n = {rival} is better than n = {n} at the target"
        if pick.trial.group_size not in (n, rival):
            settles += f", since the joint fit links them to n = {pick.trial.group_size}"
        chances = chance_text(float(after_J[other])), chance_text(float(after_J[here]))
        settles += f" (after this run the plan is n = {rival} with probability {chances[0]}, n = {n} with {chances[1]})"
        runs.append(advised(pick.trial, question.trials, saved, settles))
        total, chance_J = total + saved, after_J
    cost = sum(run.cost for run in runs)
    return NextRuns(
        runs=tuple(runs),
        unit=budget.unit,
        budget=float(budget.amount),
        metric=metric,
        group_size_now=question.plan[0],
        problems_per_batch_now=question.plan[1],
        regret_now=regret,
        saving=float(min(total, regret)),
        reason=f"{now}. Run {named(runs, question.plan[1])} first: {amount_text(cost, budget.unit)}, "
        f"{cost / budget.amount:.1%} of the budget, {worth(total)} net of its cost",
    )


def _candidates(sizes: Sequence[int], ran: Sequence[Trial], question: Question, most: float | None) -> list[Trial]:
    """New runs, second seeds and continuations, at shares of what is left."""
    largest = math.inf if most is None else most / question.limits.pricing.available
    shares = sorted({min(share, largest) for share in SHARES})
    fewest = max(question.limits.min_update_steps, MIN_STEPS)
    trials: list[Trial] = []
    for bp in question.problems:
        for n in sizes:
            seed = 1 + max((one.seed for one in ran if (one.group_size, one.problems_per_batch) == (n, bp)), default=-1)
            trials += _lengths(Trial(n, bp, 0, seed, 0.0), shares, question, fewest)
    for one in ran:
        if one.continues is not None:
            trials += _lengths(one, shares, question, MIN_ADDED)
    return trials


def _lengths(run: Trial, shares: Sequence[float], question: Question, min_steps: int) -> list[Trial]:
    """The run from where it is, for each share that pays for enough steps."""
    found = question.trials.lengths(run.rollouts_per_batch, run.begins, shares, min_steps)
    return [_to(run, steps, question.trials) for steps in found]


def _to(run: Trial, steps: int, pricing: Pricing) -> Trial:
    """The run from where it is up to so many steps."""
    way = run.rollouts_per_batch, run.begins, steps
    return replace(run, update_steps=steps, cost=pricing.added(*way), share=pricing.share(*way))


@dataclass(frozen=True)
class _Pick:
    """A trial that is worth making."""

    trial: Trial
    saving: float
    """Expected saving beside the picks before it, less its cost."""
    worth: Worth
    """Of all picks up to this one together."""


def _chosen(outlook: Outlook, trials: Sequence[Trial], search: Search, made: Sequence[Trial]) -> list[_Pick]:
    """At most as many trials as there are slots, one after the other, each the one that saves most for its cost."""
    floor, most = Tolerances(outlook.choices.span).nothing, search.most
    left, picks = list(trials), list[_Pick]()
    if not left:
        return picks
    shown = outlook.shown(left)
    before, saved = (shown[0][:0], shown[1][:0]), 0.0
    if made:
        before, saved = outlook.shown(made), outlook.saving(made)
    while left and len(picks) < search.slots:
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
        per_cost_E = np.where(saving_E >= NEAR_BEST * top, saving_E / np.array([t.share for t in asked]), -np.inf)
        best = int(np.argmax(per_cost_E))
        picks.append(_Pick(asked[best], float(saving_E[best]), worths[best]))
        saved, index = worths[best].saving, able[best]
        taken = slice(index, index + 1)
        before = np.concatenate([before[0], shown[0][taken]]), np.concatenate([before[1], shown[1][taken]])
        left, keep = _without(left, index)
        shown = shown[0][keep], shown[1][keep]
    return picks


def _without(trials: list[Trial], taken: int) -> tuple[list[Trial], list[int]]:
    """The other candidates and their places: none continues the same run, and the same new run gets the next seed."""
    chosen = trials[taken]
    keep = [
        i
        for i, t in enumerate(trials)
        if i != taken and not (chosen.continues is not None and t.continues == chosen.continues)
    ]
    same = (chosen.group_size, chosen.problems_per_batch, chosen.seed, None, chosen.continues)
    return [
        replace(t, seed=chosen.seed + 1)
        if (t.group_size, t.problems_per_batch, t.seed, t.continues, None) == same
        else t
        for t in (trials[i] for i in keep)
    ], keep


def advised(trial: Trial, pricing: Pricing, saves: float, settles: str) -> NextRun:
    """A trial as it is shown and saved."""
    return NextRun(
        group_size=trial.group_size,
        problems_per_batch=trial.problems_per_batch,
        update_steps=trial.update_steps,
        every_steps=pricing.every_steps(trial.rollouts_per_batch, trial.update_steps - trial.begins),
        seed=trial.seed,
        continues=trial.continues,
        cost=float(trial.cost),
        share=min(float(trial.cost / pricing.budget.amount), 1.0),
        saves=float(max(saves, 0.0)),
        settles=settles,
    )


def worth(saving: float) -> str:
    """What runs are expected to save together, in words; why a pilot comes first though that is almost nothing."""
    if saving >= 0.0005:
        return f"expected to save {saving:.3f}"
    return "expected to save < 0.001 by the prior, which they test on your model"


def named(runs: Sequence[NextRun], problems: int) -> str:
    """Group sizes and lengths in one phrase, with B_p where that is not the plan's."""
    by_length: dict[tuple[int, int], list[str]] = {}
    for run in runs:
        how = " (continued)" if run.continues else f" (seed {run.seed})" if run.seed else ""
        by_length.setdefault((run.rollouts, run.problems_per_batch), []).append(f"{run.group_size}{how}")
    parts = [
        f"n = {' and '.join(sizes)}{'' if bp == problems else f', B_p = {bp},'} to {short(length)} rollouts"
        for (length, bp), sizes in by_length.items()
    ]
    return ", ".join(parts)
