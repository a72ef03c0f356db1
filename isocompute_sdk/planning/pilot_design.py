"""The pilot for a budget before anything was run: the runs that lower expected regret most, from draws of a prior."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from isocompute_sdk.documents import Document, Saved
from isocompute_sdk.errors import PlanError
from isocompute_sdk.fitting.arrays import NotNegative
from isocompute_sdk.fitting.surface.prior import DEFAULT_PRIOR, OF_THE_RECIPE, RATE, STEP
from isocompute_sdk.fitting.surface.surface import NEVER, UNIT_SHAPES, Declines, Layout, Surface
from isocompute_sdk.phrases import counted
from isocompute_sdk.planning.next_runs import (
    MAX_SIZE,
    MIN_STEPS,
    NEAR_BEST,
    NONE_WORTH_IT,
    NextRun,
    NextRuns,
    Share,
    advised,
    named,
    worth,
)
from isocompute_sdk.planning.pricing import Pricing, amount_text
from isocompute_sdk.planning.trials import FRACTIONS, Choices, Outlook, Trial
from isocompute_sdk.specs import Hardware
from isocompute_sdk.specs.throughput import MORE_BATCHES


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


SIZES = (8, 1024)
"""Smallest and largest n of the belief."""
BASE = (0.03, 0.6)
"""Range of the base model's reward."""
PUBLISHED_HALF = math.log(3.5e5)
"""ln C at which published curves are half-way at n = 64 and B_p = 32."""
REFERENCE_SIZE, REFERENCE_PROBLEMS = 64, 32
NOISE = 0.012
"""Standard deviation of one evaluation: .010 to .012 on the published Easy curves."""
DRAWS = 1000


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
METRIC, LAWS = "avg@4", "published laws say"


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
    target = float(max(pricing.affordable_steps(32 * bp)[0], 1) * 32 * bp)
    surface = prior_surface(target, bp, generator)
    powers = [int(2**k) for k in surface.layout.knots_K]
    untimed = [refused for n in powers if (refused := pricing.refusal(n * bp)) is not None]
    if len(untimed) >= len(powers) - 1:
        raise PlanError(f"a pilot compares several n, and {untimed[-1]}", MORE_BATCHES)
    sizes = [n for n in powers if hardware.refusal(n * bp) is None and pricing.refusal(n * bp) is None]
    steps = np.array([pricing.steps_for(FRACTIONS.tolist(), n * bp) for n in sizes])
    choices = Choices.of(surface, [(n, bp) for n in sizes], steps, min_update_steps, from_trials=True)
    if choices is None:
        raise PlanError(
            f"a budget of {amount_text(budget.amount, budget.unit)} does not pay for "
            f"{counted(min_update_steps, 'step')} of the smallest batch at B_p = {bp}",
            "Raise the budget.",
        )
    outlook = Outlook(surface, choices, generator)
    able = sorted(n for n in choices.group_size_J.tolist() if n <= MAX_SIZE)
    sets: dict[float, tuple[Trial, ...]] = {}
    for min_steps, levels in SHORTER:
        sets = {share: _round(able, bp, share, pricing, min_steps, levels) for share in shares}
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
    law, now = ("the prior of curves says", int(choices.group_size_J[outlook.now])) if now is None else (LAWS, now)
    advice = _first_round(pricing, first, (now, bp), law, float(regret), float(saving))
    return PilotDesign(advice, float(share), table)


def _first_round(
    pricing: Pricing, first: Sequence[Trial], now: tuple[int, int], law: str, regret: float, saving: float
) -> NextRuns:
    """The runs of a pilot, none of them where none is worth it."""
    unit, amount = pricing.budget.unit, float(pricing.budget.amount)
    settles = [f"where the curve of n = {t.group_size} lies; useful only with the others" for t in first]
    # None saves anything alone.
    runs = tuple(advised(t, pricing, 0.0, why) for t, why in zip(first, settles, strict=True))
    largest = max((run.group_size for run in runs), default=now[0])
    beyond = f" (this round tests up to n = {largest})" if now[0] > largest else ""
    reason = f"{law} n = {now[0]}{beyond}; whichever n you take, we expect to lose at least {regret:.3f} of reward"
    if runs:
        cost = sum(run.cost for run in runs)
        reason += (
            f". Run {named(runs, now[1])} first, fit, and ask again: together {amount_text(cost, unit)}, "
            f"{cost / amount:.1%} of the budget, {worth(saving)}"
        )
    else:
        reason += f"; no pilot {NONE_WORTH_IT}"
    return NextRuns(runs, unit, amount, METRIC, *now, regret, saving, reason)


def _round(
    sizes: Sequence[int], bp: int, share: float, pricing: Pricing, min_steps: int, min_levels: int
) -> tuple[Trial, ...]:
    """Runs of group sizes two octaves apart, one after the other, from the largest that this share pays for down."""
    for top in range(len(sizes) - 1, -1, -1):
        for spacing in (2, 1):
            chosen = sizes[top::-spacing][:MAX_LEVELS][::-1]
            weight = np.array(chosen, dtype=float) ** LEAN
            parts = (share * weight / weight.sum()).tolist()
            steps = [pricing.steps_for([part], n * bp)[0] for n, part in zip(chosen, parts, strict=True)]
            if len(chosen) >= min_levels and min(steps) >= min_steps:
                pairs = zip(chosen, steps, strict=True)
                return tuple(Trial(n, bp, m, 0, pricing.cost(n * bp, m), pricing.share(n * bp, 0, m)) for n, m in pairs)
    return ()
