"""The pilot for a budget before anything was run.

The belief is a surface drawn from a prior alone. Steps along n are those of the one prior of the fits
(`fitting.surface.model.Prior`). Half of the draws have its level of the midpoint relative to the budget: who has a
budget expects to see most of the rise with it. The other half are half-way where published reward curves are
(Qwen2.5-7B on Guru-Math Easy and Hard, `laws/data`: 1.5e5 to 1.5e6 rollouts at B_p = 32), later for larger n.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from isocompute_sdk.errors import PlanError
from isocompute_sdk.fitting.surface.decline import NEVER, OF_THE_RECIPE, RATE, STEP, Declines
from isocompute_sdk.fitting.surface.model import UNIT_SHAPES, Layout
from isocompute_sdk.fitting.surface.surface import DEFAULT_PRIOR, Surface
from isocompute_sdk.planning.next_runs import (
    MAX_SIZE,
    MIN_STEPS,
    NEAR_BEST,
    NONE_WORTH_IT,
    NextRuns,
    PilotDesign,
    ShareRegret,
    advised,
    far_note,
    named,
)
from isocompute_sdk.planning.pricing import Pricing, amount_text
from isocompute_sdk.planning.trials import Choices, Outlook, Trial
from isocompute_sdk.specs import Hardware
from isocompute_sdk.tolerances import FAR

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
    """Draws of the surface before any run.

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
        rows, wanted = layout.prior_rows(DEFAULT_PRIOR, 0.0, (0.0, 1.0), kind)
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


SHARES = (0.02, 0.05, 0.10, 0.20, 0.35)
"""Shares of the budget for which the expected regret is shown."""
LEAN = 0.75
"""Rollouts of a run grow with n to this power: larger groups rise later and win at the target (docs/pilot.md)."""
MAX_LEVELS = 4
"""Group sizes of a pilot, two octaves apart."""
SHORTER = ((MIN_STEPS, 3), (15, 3), (8, 2))
"""Fewest update steps of a run, and fewest group sizes; the next where no share pays for the one before."""
METRIC = "avg@4"


@dataclass(frozen=True)
class _Set:
    """Runs of one pilot, with what they are worth."""

    trials: tuple[Trial, ...]
    saving: float


def design_pilot(
    pricing: Pricing,
    hardware: Hardware,
    problems_per_batch: int,
    min_update_steps: int,
    now: int | None,
    *,
    shares: Sequence[float] = SHARES,
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

    Raises:
        PlanError: the budget does not pay for a plan.
    """
    bp, generator = problems_per_batch, np.random.default_rng(0 if rng is None else rng)
    surface = prior_surface(_rollouts(pricing, bp), bp, generator)
    choices = _pilot_choices(pricing, hardware, surface, bp, min_update_steps)
    outlook = Outlook(surface, choices, generator)
    sizes = outlook.choices.group_size_J.tolist()
    best: dict[float, _Set] = {}
    for fewest, levels in SHORTER:
        for share in shares:
            trials = _round(sizes, bp, share * pricing.budget.available, LEAN, pricing, fewest, levels)
            best[share] = _Set(trials, outlook.saving(trials) if trials else 0.0)
        if any(found.trials for found in best.values()):
            break
    regret = max(outlook.regret_now, 0.0)
    # A pilot that costs more than it saves need not be made.
    table = [
        ShareRegret(
            float(share),
            min(max(regret - found.saving, 0.0), 1.0),
            tuple(t.group_size for t in found.trials),
            tuple(t.rollouts for t in found.trials),
        )
        for share, found in best.items()
    ]
    able = {share: found for share, found in best.items() if found.trials}
    most = max((found.saving for found in able.values()), default=0.0)
    share, first = 0.0, _Set((), 0.0)
    if able and (most > 0 or spend_all):
        share = min(one for one, found in able.items() if found.saving >= min(NEAR_BEST * most, most))
        first = able[share]
    now = int(choices.group_size_J[outlook.now]) if now is None else now
    return PilotDesign(_first_round(pricing, first, regret, share, bp, now), float(share), tuple(table))


def _rollouts(pricing: Pricing, bp: int) -> float:
    """Rollouts that the budget buys at a middling batch."""
    batch = 32 * bp
    steps = pricing.most_steps(pricing.budget.unit, pricing.budget.available, batch)
    return float(max(steps, 1) * batch)


def _pilot_choices(pricing: Pricing, hardware: Hardware, surface: Surface, bp: int, least: int) -> Choices:
    sizes = [int(2**k) for k in surface.layout.knots_K if hardware.refusal(int(2**k) * bp) is None]
    steps_of = partial(pricing.most_steps, pricing.budget.unit)
    pairs = [(n, bp) for n in sizes]
    found = Choices.of(surface, pairs, steps_of, least, pricing.budget.available, from_trials=True)
    if found is None:
        raise PlanError(
            f"a budget of {amount_text(pricing.budget.amount, pricing.budget.unit)} does not pay for {least} steps of "
            f"the smallest batch at B_p = {bp}",
            "Raise the budget, or lower --min-update-steps.",
        )
    return found


def _round(
    sizes: Sequence[int], bp: int, amount: float, lean: float, pricing: Pricing, fewest_steps: int, fewest_levels: int
) -> tuple[Trial, ...]:
    """Runs of group sizes two octaves apart, from the largest that this amount pays for down; none if it pays for none.

    Args:
        sizes: group sizes that a plan may choose, one octave apart.
        bp: B_p of all of them.
        amount: cost of all of them.
        lean: their rollouts grow with n to this power.
        pricing: what they cost.
        fewest_steps: fewest update steps of each.
        fewest_levels: fewest group sizes; near the smallest n they lie one octave apart instead.
    """
    known = sorted(n for n in sizes if n <= MAX_SIZE)
    for top in range(len(known) - 1, -1, -1):
        for spacing in (2, 1):
            chosen = known[top::-spacing][:MAX_LEVELS][::-1]
            trials = _trials(chosen, bp, amount, lean, pricing, fewest_steps)
            if len(trials) >= fewest_levels:
                return trials
    return ()


def _trials(
    sizes: Sequence[int], bp: int, amount: float, lean: float, pricing: Pricing, fewest_steps: int
) -> tuple[Trial, ...]:
    weight = np.array(sizes, dtype=float) ** lean
    found: list[Trial] = []
    for n, part in zip(sizes, amount * weight / weight.sum(), strict=True):
        steps = pricing.most_steps(pricing.budget.unit, float(part), n * bp)
        if steps < fewest_steps:
            return ()
        found.append(Trial(n, bp, steps, 0, pricing.cost(n * bp, steps)))
    return tuple(found)


def _first_round(pricing: Pricing, first: _Set, regret: float, share: float, bp: int, now: int) -> NextRuns:
    """The runs of the first round; `now` is the n that is planned without them."""
    unit, budget = pricing.budget.unit, pricing.budget.available
    saving = min(max(first.saving, 0.0), regret)
    runs = tuple(
        advised(
            t,
            budget,
            saving / len(first.trials),
            f"where the curve of n = {t.group_size} lies; useful only as a set of {len(first.trials)}",
        )
        for t in first.trials
    )
    start = (
        f"nothing was run: published laws say n = {now}; without runs {regret:.3f} is expected to be lost against the "
        "best n"
    )
    if runs:
        cost = sum(run.cost for run in runs)
        reason = (
            f"{start}. Pilot with {share:.0%} of the budget; run {named(runs)} first ({amount_text(cost, unit)}, "
            f"{cost / budget:.1%} of the budget), fit, and ask again"
        )
    else:
        reason = f"{start}; of the pilots that could be run, {NONE_WORTH_IT}"
    target = _rollouts(pricing, bp)
    notes = far_note(target, max((float(r.rollouts) for r in runs), default=target / FAR))
    return NextRuns(
        runs=runs,
        unit=unit,
        budget=float(budget),
        metric=METRIC,
        group_size_now=now,
        problems_per_batch_now=bp,
        regret_now=float(regret),
        saving=float(saving if runs else 0.0),
        reason=reason,
        notes=tuple(notes),
    )
