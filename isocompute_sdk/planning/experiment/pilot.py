"""`design_pilot`: which runs to make first where nothing was run, and what share of the budget to pilot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from isocompute_sdk.errors import PlanError
from isocompute_sdk.fitting.arrays import Array
from isocompute_sdk.fitting.surface.surface import Surface
from isocompute_sdk.notes import Note
from isocompute_sdk.planning.experiment.asking import FAR, far_note, named, whole_number
from isocompute_sdk.planning.experiment.decision import FRACTIONS, Choices, Outlook, Trial
from isocompute_sdk.planning.experiment.next_runs import NONE_WORTH_IT, NextRun, NextRuns, PilotDesign, ShareRegret
from isocompute_sdk.planning.experiment.prior import prior_surface
from isocompute_sdk.planning.pricing import Pricing, amount_text
from isocompute_sdk.specs import Budget, Hardware, Recipe, Throughput

SHARES = (0.02, 0.05, 0.10, 0.20, 0.35)
"""Shares of the budget for which the expected regret is shown."""
FIRST_ROUND = 0.5
"""Share of the pilot in its first round: later rounds know where to look."""
LEAST_LEVELS, MOST_LEVELS = 3, 6
"""Group sizes of the first round: fewer than three leave the dependence on n to the prior."""
LEANS = (0.0, 0.35, 0.7)
"""Rollouts of a run grow with n to this power: larger groups need more of them."""
SPACINGS = (1, 2)
"""Octaves between group sizes."""
FEWEST_STEPS = 8
METRIC = "avg@4"


@dataclass(frozen=True)
class _Set:
    """Runs of one pilot, with what they are worth."""

    trials: tuple[Trial, ...]
    saving: float


def design_pilot(
    budget: Budget | float | str,
    *,
    slots: int = 1,
    recipe: Recipe | None = None,
    hardware: Hardware | None = None,
    throughput: Throughput | None = None,
    problems_per_batch: int | None = None,
    min_update_steps: int | None = None,
    shares: Sequence[float] = SHARES,
    rng: np.random.Generator | int | None = None,
) -> PilotDesign:
    """The pilot for a budget before anything was run.

    Args:
        budget: as of `Planner.allocate`.
        slots: runs that can be made at the same time; the first round has at least three group sizes in any case.
        recipe: its floor of B_p is that of the pilot; None for the preset `easy`.
        hardware: limits of the batch; no limits by default.
        throughput: needed for budgets in other units than rollouts.
        problems_per_batch: B_p of the pilot; None for the recipe's floor.
        min_update_steps: fewest update steps of the plan; None for twice the recipe's warm-up.
        shares: shares of the budget to compare.
        rng: the randomness of what is simulated; None for a fixed one.

    Raises:
        PlanError: the budget does not pay for a plan.
    """
    slots = whole_number("slots", slots)
    amount = Budget.parse(budget)
    chosen = Recipe() if recipe is None else recipe
    limits = Hardware() if hardware is None else hardware
    bp = max(chosen.min_problems_per_batch, 1) if problems_per_batch is None else problems_per_batch
    least = max(2 * chosen.warmup_steps if min_update_steps is None else min_update_steps, 1)
    generator = np.random.default_rng(0 if rng is None else rng)
    pricing = Pricing(amount, throughput)
    surface = prior_surface(_rollouts(pricing, bp), bp, generator)
    outlook = Outlook(surface, _choices(pricing, limits, surface, bp, least), generator)
    levels = max(LEAST_LEVELS, min(slots, MOST_LEVELS))
    best = {share: _best_set(outlook, pricing, bp, share, levels, least) for share in shares}
    regret = max(outlook.regret_now, 0.0)
    table = [
        ShareRegret(
            float(share),
            max(regret - found.saving, 0.0),
            tuple(t.group_size for t in found.trials),
            tuple(t.rollouts for t in found.trials),
        )
        for share, found in best.items()
    ]
    share = max(best, key=lambda one: best[one].saving)
    if best[share].saving <= 0:
        share, first = 0.0, _Set((), 0.0)
    else:
        first = _best_set(outlook, pricing, bp, FIRST_ROUND * share, levels, least)
    return PilotDesign(_first_round(outlook, pricing, first, regret, share, bp), float(share), tuple(table))


def _rollouts(pricing: Pricing, bp: int) -> float:
    """Rollouts that the budget buys at a middling batch."""
    batch = 32 * bp
    steps = pricing.most_steps(pricing.budget.unit, pricing.budget.available, batch)
    return float(max(steps, 1) * batch)


def _choices(pricing: Pricing, hardware: Hardware, surface: Surface, bp: int, least: int) -> Choices:
    sizes = [int(2**k) for k in surface.layout.knots_K if hardware.refusal(int(2**k) * bp) is None]
    base_D1 = surface.parameters_DP[:, :1]
    columns: list[Array] = []
    kept: list[int] = []
    for n in sizes:
        amounts = [pricing.budget.available * float(f) for f in FRACTIONS]
        steps = np.array([pricing.most_steps(pricing.budget.unit, a, n * bp) for a in amounts])
        if steps[-1] < least:
            continue
        reward_DF = surface.draws(np.maximum(steps, 1) * float(n * bp), float(n), float(bp))
        columns.append(np.where(steps >= least, reward_DF, base_D1))
        kept.append(n)
    if not kept:
        raise PlanError(
            f"a budget of {amount_text(pricing.budget.amount, pricing.budget.unit)} does not pay for {least} steps of "
            f"the smallest batch at B_p = {bp}",
            "Raise the budget, or lower --min-update-steps.",
        )
    return Choices(
        np.array(kept, dtype=np.int64),
        np.full(len(kept), bp, dtype=np.int64),
        np.stack(columns).transpose(2, 1, 0),
        np.ones(len(kept), dtype=bool),
        pricing.budget.available,
        1.0,
    )


def _best_set(outlook: Outlook, pricing: Pricing, bp: int, share: float, levels: int, least: int) -> _Set:
    """The runs of this share of the budget that save most."""
    amount = share * pricing.budget.available
    found = _Set((), 0.0)
    tried: set[tuple[tuple[int, int], ...]] = set()
    sizes = outlook.choices.group_size_J.tolist()
    for count in range(levels, MOST_LEVELS + 1):
        for spacing in SPACINGS:
            for first in range(len(sizes) - (count - 1) * spacing):
                for lean in LEANS:
                    trials = _trials(sizes[first::spacing][:count], bp, amount, lean, pricing)
                    key = tuple((t.group_size, t.update_steps) for t in trials)
                    if not trials or key in tried:
                        continue
                    tried.add(key)
                    saving = _saving(outlook, trials)
                    if saving > found.saving:
                        found = _Set(trials, saving)
    return found


def _saving(outlook: Outlook, trials: Sequence[Trial]) -> float:
    """What all of them together save, their cost included."""
    shown = outlook.shown(trials)
    last = (shown[0][-1:], shown[1][-1:])
    before = (shown[0][:-1], shown[1][:-1])
    return outlook.worth(trials[:-1], trials[-1:], last, before)[0].saving


def _trials(sizes: Sequence[int], bp: int, amount: float, lean: float, pricing: Pricing) -> tuple[Trial, ...]:
    weight = np.array(sizes, dtype=float) ** lean
    found: list[Trial] = []
    for n, part in zip(sizes, amount * weight / weight.sum(), strict=True):
        steps = pricing.most_steps(pricing.budget.unit, float(part), n * bp)
        if steps < FEWEST_STEPS:
            return ()
        found.append(Trial(n, bp, steps, 0, pricing.cost(n * bp, steps)))
    return tuple(found)


def _first_round(outlook: Outlook, pricing: Pricing, first: _Set, regret: float, share: float, bp: int) -> NextRuns:
    unit, budget, now = pricing.budget.unit, pricing.budget.available, outlook.now
    c, saving = outlook.choices, min(max(first.saving, 0.0), regret)
    runs = tuple(
        NextRun(
            group_size=t.group_size,
            problems_per_batch=t.problems_per_batch,
            update_steps=t.update_steps,
            seed=t.seed,
            continues=None,
            cost=t.cost,
            share=min(t.cost / budget, 1.0),
            saves=saving / len(first.trials),
            settles=f"where the curve of n = {t.group_size} lies; one of {len(first.trials)} that only tell together",
        )
        for t in first.trials
    )
    start = f"nothing was run: by the prior alone n = {c.group_size_J[now]} is expected to lose {regret:.4f}"
    if runs:
        cost = sum(run.cost for run in runs)
        reason = (
            f"{start}. Pilot with {share:.0%} of the budget; run {named(runs)} first ({amount_text(cost, unit)}, "
            f"{cost / budget:.1%} of the budget), fit, and ask again"
        )
    else:
        reason = f"{start}; of the pilots that could be run, {NONE_WORTH_IT}"
    target = _rollouts(pricing, bp)
    notes: list[Note] = far_note(target, max((float(r.rollouts) for r in runs), default=target / FAR))
    return NextRuns(
        runs=runs,
        unit=unit,
        budget=float(budget),
        metric=METRIC,
        group_size_now=int(c.group_size_J[now]),
        problems_per_batch_now=bp,
        regret_now=float(regret),
        saving=float(saving if runs else 0.0),
        reason=reason,
        notes=tuple(notes),
    )
