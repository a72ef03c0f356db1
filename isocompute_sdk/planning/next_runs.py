"""What to run before a budget is spent: the runs that lower expected regret most for their cost.

With runs, `ask` finds them from the draws of their surface; without, `design_pilot` from those of a prior.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Annotated

import numpy as np
from pydantic import Field

from isocompute_sdk.documents import Document, Saved
from isocompute_sdk.errors import FieldError, PlanError
from isocompute_sdk.fitting.arrays import Count, NotNegative, Positive
from isocompute_sdk.fitting.fits import Fits
from isocompute_sdk.fitting.surface.prior import DEFAULT_PRIOR, OF_THE_RECIPE, RATE, STEP
from isocompute_sdk.fitting.surface.surface import NEVER, UNIT_SHAPES, Declines, Layout, Surface
from isocompute_sdk.notes import Note
from isocompute_sdk.phrases import short, small
from isocompute_sdk.planning.pricing import Pricing, amount_text
from isocompute_sdk.planning.trials import FRACTIONS, Choices, Outlook, Trial, Worth, runs_of
from isocompute_sdk.specs import Budget, Hardware
from isocompute_sdk.specs.budget import Unit
from isocompute_sdk.specs.sweep import Allocation, Sized
from isocompute_sdk.tolerances import Tolerances

Share = Annotated[float, Field(ge=0, le=1)]
NONE_WORTH_IT = "none is worth its cost"
SHARES = (0.01, 0.02, 0.04, 0.08, 0.15, 0.3)
"""Costs of candidate runs, as shares of the budget."""
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
    seed: Annotated[int, Field(ge=0)]
    continues: str | None
    """Run id of the run to continue from its checkpoint; None for a new run."""
    cost: Positive
    """In the budget's unit; of a continued run only what is added."""
    share: Share
    """Of the budget that is left."""
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
        what = f"n = {self.group_size}, B_p = {self.problems_per_batch}, M = {self.update_steps:,}"
        if self.continues is not None:
            what = f"continue {self.continues} to M = {self.update_steps:,}"
        elif self.seed:
            what += f", seed {self.seed}"
        if unit != "rollouts" or self.continues is not None:
            what += f" ({self.rollouts:,} rollouts)"
        gain = f", expected to save {self.gain}" if self.gain else ""
        return f"{what}: {amount_text(self.cost, unit)}, {self.share:.1%} of the budget{gain}; {self.settles}"


@dataclass(frozen=True)
class NextRuns(Saved):
    """The runs that lower expected regret at the target most for what they cost; none if none is worth its cost."""

    runs: tuple[NextRun, ...]
    unit: Unit
    """Unit of every cost."""
    budget: Positive
    """What is left of the budget, in that unit."""
    metric: str
    group_size_now: Annotated[int, Field(ge=2)]
    """n that is planned without these runs."""
    problems_per_batch_now: Count
    regret_now: NotNegative
    """Expected reward lost at the target against the best n, if the budget is spent now."""
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
        """Their cost as a share of what is left of the budget."""
        return self.cost / self.budget

    @property
    def regret_after(self) -> float:
        """`regret_now` less `saving`."""
        return max(self.regret_now - self.saving, 0.0)

    @classmethod
    def none(cls, budget: Budget, metric: str, now: tuple[int, int], regret: float, reason: str) -> NextRuns:
        """No runs, with the reason."""
        return cls((), budget.unit, float(budget.available), metric, *now, max(regret, 0.0), 0.0, reason)

    def summary(self) -> str:
        """The reason, one line for each run, and the notes."""
        nothing = "" if self.runs else "Run nothing first: "
        lines = [nothing + self.reason, *(f"  {run.describe(self.unit)}" for run in self.runs)]
        return "\n".join(lines + [f"[{note.severity}] {note.code}: {note.message}" for note in self.notes])


NEXT_RUNS = Document(
    "next-runs",
    1,
    NextRuns,
    derived=("cost", "share", "regret_after"),
    remedy="Ask again: isocompute next RUNS --budget C.",
)


@dataclass(frozen=True)
class ShareRegret:
    """What a pilot of one size is expected to be worth."""

    share: Share
    """Of the budget that the pilot costs."""
    regret: NotNegative
    """Expected reward lost at the target after it, its cost included."""
    group_sizes: tuple[int, ...]
    rollouts: tuple[int, ...]
    """Length of the run at each group size."""


@dataclass(frozen=True)
class PilotDesign(Saved):
    """A pilot designed before anything was run."""

    first: NextRuns
    """Runs of the first round; `Planner.next_runs` gives the later ones once these are fitted."""
    pilot_share: Share
    """Share of the budget to pilot in all rounds."""
    by_share: tuple[ShareRegret, ...]
    """Expected regret by the pilot's share."""

    @property
    def runs(self) -> tuple[NextRun, ...]:
        """Runs of the first round."""
        return self.first.runs

    def summary(self) -> str:
        """The table of regrets by share, then the first round."""
        lines = ["share of the budget   expected regret   group sizes and lengths"]
        for one in self.by_share:
            runs = ", ".join(f"{n} to {c:,}" for n, c in zip(one.group_sizes, one.rollouts, strict=True))
            chosen = "  <- planned" if one.share == self.pilot_share else ""
            lines.append(f"{one.share:>19.0%}   {one.regret:>15.3f}   {runs or 'no pilot'}{chosen}")
        return "\n".join([*lines, "", self.first.summary()])


PILOT_DESIGN = Document("pilot-design", 1, PilotDesign, remedy="Design it again: isocompute next --budget C.")


@dataclass(frozen=True)
class Search:
    """How to look for runs to make first."""

    slots: int
    """Most runs, each chosen beside those before it; 0 for none."""
    most: float | None = None
    """Largest cost of all of them, in the budget's unit; None for no limit but their worth."""
    going: Mapping[str, int] = field(default_factory=dict[str, int])
    """Runs that go on in any case, by name, with the update steps at which they end."""
    continuing: bool = True
    """Whether a run that exists can be made longer."""
    rng: np.random.Generator | int | None = None
    """The randomness of simulated evaluations; None for a fixed one."""


@dataclass(frozen=True)
class Question:
    """What is asked of fits with a surface: prices, limits and what a plan may choose."""

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
    regret: float
    """Reward that it is expected to lose against the best n."""
    n_problems: int | None = None
    """Distinct training problems, which no batch exceeds; None if unknown."""


def ask(question: Question, search: Search) -> NextRuns:
    """The runs that lower expected regret most for their cost; none if together they save too little to wait for."""
    fits, surface, budget = question.fits, question.fits.surface, question.pricing.budget
    assert surface is not None, "asked of fits with a surface"
    powers = {2 ** int(octave) for octave in surface.layout.knots_K if octave}
    sizes = sorted(powers | {*fits.group_sizes, *question.planned_sizes})
    in_rollouts = fits.compute == "log10_rollouts"
    compute = float if in_rollouts else partial(question.pricing.compute, variable=fits.compute)

    @cache
    def takes(batch: int) -> bool:
        return question.hardware.refusal(batch) is None

    pairs = [(n, bp) for bp in question.problems for n in sizes if takes(n * bp)]
    amounts = [*(budget.available * FRACTIONS)]
    choices = Choices.of(
        surface,
        pairs,
        np.array(question.pricing.steps_for(amounts, [n * bp for n, bp in pairs])),
        question.min_update_steps,
        budget.available,
        compute=compute,
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
    outlook = Outlook(surface, choices, rng, compute, evaluations)
    largest, ran, going = max(*fits.group_sizes, MAX_SIZE), runs_of(fits), search.going
    made = [
        replace(run, update_steps=end, cost=question.pricing.added(run.rollouts_per_batch, run.begins, end))
        for run in ran
        if run.continues and (end := going.get(run.continues)) is not None
    ]
    asked = [
        trial
        for trial in _candidates([n for n in sizes if n <= largest], ran, question, search.most)
        if trial.continues not in going
        and (search.continuing or trial.continues is None)
        and (question.n_problems is None or trial.problems_per_batch <= question.n_problems)
        and takes(trial.group_size * trial.problems_per_batch)
    ]
    picks = _chosen(outlook, asked, search, made)
    total, regret = sum(max(pick.saving, 0.0) for pick in picks), max(question.regret, 0.0)
    now = f"the current plan is n = {question.plan[0]}; we expect it to lose {regret:.3f} against the best n"
    tolerances = Tolerances(choices.span)
    # Beside runs that go on anyway nothing waits for these.
    if min(total, regret) < (tolerances.nothing if going else tolerances.small):
        reason = f"{now}; of the runs that could come first, {NONE_WORTH_IT}"
        return NextRuns.none(budget, fits.metric, question.plan, regret, reason)
    return _advice(question, outlook, picks, regret, now)


def _advice(question: Question, outlook: Outlook, picks: Sequence[_Pick], regret: float, now: str) -> NextRuns:
    """The picks with costs and reasons."""
    choices, budget, metric = outlook.choices, question.pricing.budget, question.fits.metric
    runs, total, chance_J = list[NextRun](), 0.0, np.arange(len(choices.group_size_J)) == outlook.now
    for pick in picks:
        saved = max(min(pick.saving, regret - total), 0.0)
        changed = 1.0 - float(pick.worth.chosen_J[int(np.argmax(chance_J))])
        rival = int(choices.group_size_J[int(np.argmax(np.where(chance_J == chance_J.max(), -1, pick.worth.chosen_J)))])
        settles = f"whether n = {rival} is better at the target (the plan changes with probability {changed:.0%})"
        runs.append(advised(pick.trial, budget.available, saved, settles))
        total, chance_J = total + saved, pick.worth.chosen_J
    cost = sum(run.cost for run in runs)
    return NextRuns(
        runs=tuple(runs),
        unit=budget.unit,
        budget=float(budget.available),
        metric=metric,
        group_size_now=question.plan[0],
        problems_per_batch_now=question.plan[1],
        regret_now=regret,
        saving=float(min(total, regret)),
        reason=f"{now}. Run {named(runs)} first: {amount_text(cost, budget.unit)}, {cost / budget.available:.1%} of "
        f"the budget, expected to save {small(total)} after what it costs",
    )


def _candidates(sizes: Sequence[int], ran: Sequence[Trial], question: Question, most: float | None) -> list[Trial]:
    """New runs, second seeds and continuations, at costs that are shares of the budget."""
    budget = question.pricing.budget.available
    limit = SHARES[-1] * budget if most is None else most
    amounts = sorted({min(share * budget, limit) for share in SHARES})
    fewest = max(question.min_update_steps, MIN_STEPS)
    trials: list[Trial] = []
    for bp in question.problems:
        for n in sizes:
            seed = 1 + max((one.seed for one in ran if (one.group_size, one.problems_per_batch) == (n, bp)), default=-1)
            trials += _lengths(Trial(n, bp, 0, seed, 0.0), amounts, question, fewest)
    for one in ran:
        if one.continues is not None:
            trials += _lengths(one, amounts, question, MIN_ADDED)
    return trials


def _lengths(run: Trial, amounts: Sequence[float], question: Question, min_steps: int) -> list[Trial]:
    """The run from where it is, for each amount that pays for enough steps."""
    found = question.pricing.lengths(run.group_size * run.problems_per_batch, run.begins, amounts, min_steps)
    return [replace(run, update_steps=steps, cost=cost) for steps, cost in found.items()]


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
        per_cost_E = np.where(saving_E >= NEAR_BEST * top, saving_E / np.array([t.cost for t in asked]), -np.inf)
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


def advised(trial: Trial, budget: float, saves: float, settles: str) -> NextRun:
    """A trial as it is shown and saved."""
    return NextRun(
        group_size=trial.group_size,
        problems_per_batch=trial.problems_per_batch,
        update_steps=trial.update_steps,
        seed=trial.seed,
        continues=trial.continues,
        cost=float(trial.cost),
        share=min(float(trial.cost / budget), 1.0),
        saves=float(max(saves, 0.0)),
        settles=settles,
    )


def named(runs: Sequence[NextRun]) -> str:
    """Group sizes and lengths in one phrase."""
    by_length: dict[int, list[str]] = {}
    for run in runs:
        by_length.setdefault(run.rollouts, []).append(str(run.group_size))
    parts = [f"n = {' and '.join(sizes)} to {short(length)} rollouts" for length, sizes in by_length.items()]
    return ", ".join(parts)


SIZES = (8, 1024)
"""Smallest and largest n of the belief."""
BASE = (0.03, 0.6)
"""Range of the base model's reward."""
PUBLISHED_HALF = math.log(3.5e5)
"""ln C at which published curves are half-way at n = 64 and B_p = 32."""
REFERENCE_SIZE, REFERENCE_PROBLEMS = 64, 32
NOISE = 0.012
"""Standard deviation of one evaluation: .010 to .012 on the published Easy curves."""
DRAWS = 250


def prior_surface(compute: float, problems_per_batch: int, rng: np.random.Generator) -> Surface:
    """Draws of the surface before any run, from a prior alone.

    Steps along n are those of the one prior of the fits (`fitting.surface.prior.Prior`). Half of the draws have its
    level of the midpoint relative to the budget: who has a budget expects to see most of the rise with it. The other
    half are half-way where published reward curves are (Qwen2.5-7B on Guru-Math Easy and Hard, `laws/data`: 1.5e5 to
    1.5e6 rollouts at B_p = 32), later for larger n.

    Args:
        compute: the budget, in rollouts.
        problems_per_batch: B_p at which it is laid out, normally the recipe's floor.
        rng: randomness.
    """
    knots = np.arange(math.log2(SIZES[0]), math.log2(SIZES[1]) + 1.0, dtype=np.float64)
    layout = Layout(knots, float(knots.mean()), float(problems_per_batch), None, 1.0, 0.0)
    middle = float(knots[len(knots) // 2])
    base_D = rng.uniform(*BASE, DRAWS)
    published = PUBLISHED_HALF + DEFAULT_PRIOR.midpoint_step[0] * (middle - math.log2(REFERENCE_SIZE))
    published += DEFAULT_PRIOR.problems_midpoint[0] * math.log2(problems_per_batch / REFERENCE_PROBLEMS)
    midpoint_D = np.where(rng.random(DRAWS) < 0.5, published, math.log(compute))
    # W theta - w is standard normal: its solution with noise added to w is a draw.
    theta_DP = np.empty((DRAWS, layout.size))
    for kind in range(kinds := len(DEFAULT_PRIOR.kinds)):
        rows, wanted = DEFAULT_PRIOR.rows(layout, 0.0, (0.0, 1.0), kind)
        mine_DP = theta_DP[kind::kinds]
        mine_DP[:] = (wanted + rng.standard_normal((len(mine_DP), len(wanted)))) @ np.linalg.pinv(rows).T
    count = len(knots)
    theta_DP[:, 0] = base_D
    theta_DP[:, 1 + count : 1 + 2 * count] += midpoint_D[:, None]
    shapes = tuple(UNIT_SHAPES)
    onset_D = midpoint_D + rng.uniform(1.5, 5.0, DRAWS)
    declines = Declines(
        np.where(rng.random(DRAWS) < OF_THE_RECIPE, onset_D, NEVER),
        STEP[0] + STEP[1] * rng.standard_normal(DRAWS),
        RATE[0] * np.exp(RATE[1] * rng.standard_normal(DRAWS)),
        OF_THE_RECIPE,
    )
    return Surface(
        layout=layout,
        shape_D=tuple(shapes[i % len(shapes)] for i in range(DRAWS)),
        parameters_DP=theta_DP,
        noise=NOISE,
        run_share=DEFAULT_PRIOR.run_share,
        run_midpoint=DEFAULT_PRIOR.run_midpoint,
        largest_compute=float(compute),
        declines=declines,
    )


PILOT_SHARES = (0.02, 0.05, 0.10, 0.20, 0.35)
"""Shares of the budget for which the expected regret is shown."""
LEAN = 0.75
"""Rollouts of a run grow with n to this power: larger groups rise later and win at the target (docs/pilot.md)."""
MAX_LEVELS = 4
"""Group sizes of a pilot, two octaves apart."""
SHORTER = ((MIN_STEPS, 3), (15, 3), (8, 2))
"""Fewest update steps of a run, and fewest group sizes; the next where no share pays for the one before."""
METRIC = "avg@4"


def design_pilot(
    pricing: Pricing,
    hardware: Hardware,
    problems_per_batch: int,
    min_update_steps: int,
    now: int | None,
    *,
    shares: Sequence[float] = PILOT_SHARES,
    spend_all: bool = False,
    rng: np.random.Generator | int | None = None,
) -> PilotDesign:
    """The pilot for a budget before anything was run; see `Planner.design_pilot`.

    Args:
        pricing: the budget, with its prices.
        hardware: limits of the batch.
        problems_per_batch: B_p of the pilot.
        min_update_steps: fewest update steps of the plan.
        now: n that laws name without runs; None for that of the prior of curves.
        shares: shares of the budget to compare.
        spend_all: pilot with the best of these shares also where no pilot is worth its cost.
        rng: the randomness of what is simulated; None for a fixed one.
    """
    bp, generator, budget = problems_per_batch, np.random.default_rng(0 if rng is None else rng), pricing.budget
    # Rollouts that the budget buys at a middling batch.
    target = float(max(pricing.most_steps(pricing.unit, pricing.available, 32 * bp), 1) * 32 * bp)
    surface = prior_surface(target, bp, generator)
    sizes = [int(2**k) for k in surface.layout.knots_K if hardware.refusal(int(2**k) * bp) is None]
    amounts = [*(pricing.available * FRACTIONS)]
    pairs, batches = [(n, bp) for n in sizes], [n * bp for n in sizes]
    steps = np.array([[pricing.most_steps(pricing.unit, part, batch) for part in amounts] for batch in batches])
    choices = Choices.of(surface, pairs, steps, min_update_steps, pricing.available, from_trials=True)
    if choices is None:
        raise PlanError(
            f"a budget of {amount_text(budget.amount, budget.unit)} does not pay for {min_update_steps} steps of the "
            f"smallest batch at B_p = {bp}",
            "Raise the budget, or lower --min-update-steps.",
        )
    outlook = Outlook(surface, choices, generator)
    able = sorted(n for n in choices.group_size_J.tolist() if n <= MAX_SIZE)
    sets: dict[float, tuple[Trial, ...]] = {}
    for min_steps, levels in SHORTER:
        sets = {share: _round(able, bp, share * pricing.available, pricing, min_steps, levels) for share in shares}
        if any(sets.values()):
            break
    saved = {share: outlook.saving(trials) if trials else 0.0 for share, trials in sets.items()}
    regret = max(outlook.regret_now, 0.0)
    table = tuple(
        ShareRegret(
            float(one),
            min(max(regret - saved[one], 0.0), 1.0),
            tuple(t.group_size for t in trials),
            tuple(t.rollouts for t in trials),
        )
        for one, trials in sets.items()
    )
    made = [share for share, trials in sets.items() if trials]
    most, share, first = max((saved[share] for share in made), default=0.0), 0.0, tuple[Trial, ...]()
    if made and (most > 0 or spend_all):
        share = min(one for one in made if saved[one] >= min(NEAR_BEST * most, most))
        first = sets[share]
    saving = min(max(saved.get(share, 0.0), 0.0), regret) if first else 0.0
    now = int(choices.group_size_J[outlook.now]) if now is None else now
    advice = _first_round(pricing, first, float(share), (now, bp), float(regret), float(saving))
    return PilotDesign(advice, float(share), table)


def _first_round(
    pricing: Pricing, first: Sequence[Trial], share: float, now: tuple[int, int], regret: float, saving: float
) -> NextRuns:
    """The runs of a pilot of this share of the budget, none of them where none is worth it."""
    unit, available = pricing.budget.unit, float(pricing.available)
    settles = [f"where the curve of n = {t.group_size} lies; useful only as a set of {len(first)}" for t in first]
    runs = tuple(advised(t, available, saving / len(first), why) for t, why in zip(first, settles, strict=True))
    reason = f"no runs yet: published laws say n = {now[0]}, which we expect to lose {regret:.3f} against the best n"
    if runs:
        cost = sum(run.cost for run in runs)
        reason += (
            f". Pilot with {share:.0%} of the budget; run {named(runs)} first ({amount_text(cost, unit)}, "
            f"{cost / available:.1%} of the budget; together expected to save {small(saving)}), fit, and ask again"
        )
    else:
        reason += f"; of the pilots that could be run, {NONE_WORTH_IT}"
    return NextRuns(runs, unit, available, METRIC, *now, regret, saving, reason)


def _round(
    sizes: Sequence[int], bp: int, amount: float, pricing: Pricing, min_steps: int, min_levels: int
) -> tuple[Trial, ...]:
    """Runs of group sizes two octaves apart, from the largest that this amount pays for down."""
    for top in range(len(sizes) - 1, -1, -1):
        for spacing in (2, 1):
            chosen = sizes[top::-spacing][:MAX_LEVELS][::-1]
            weight = np.array(chosen, dtype=float) ** LEAN
            parts = (amount * weight / weight.sum()).tolist()
            steps = [pricing.most_steps(pricing.unit, part, n * bp) for n, part in zip(chosen, parts, strict=True)]
            if len(chosen) >= min_levels and min(steps) >= min_steps:
                pairs = zip(chosen, steps, strict=True)
                return tuple(Trial(n, bp, m, 0, pricing.cost(n * bp, m)) for n, m in pairs)
    return ()
