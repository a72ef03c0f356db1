"""A plan and its pilot judged against what somebody runs today, who would spend the pilot's cost on training too."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from pydantic import Field

from isocompute_sdk.documents import Document, Saved
from isocompute_sdk.errors import FitError, PlanError
from isocompute_sdk.fitting.arrays import Array
from isocompute_sdk.fitting.fits import Fits
from isocompute_sdk.fitting.surface.answers.contrast import Estimate, estimate
from isocompute_sdk.fitting.surface.surface import Surface
from isocompute_sdk.notes import Note
from isocompute_sdk.planning.assessment import caveats
from isocompute_sdk.planning.choosing.pricing import Pricing, amount_text
from isocompute_sdk.planning.experiment.wider import widened
from isocompute_sdk.planning.plan import Plan, reward_draws
from isocompute_sdk.planning.questions.plans_by_budget import SAVED_ESTIMATE, SAVED_PLAN

FURTHEST, POINTS = 30.0, 49
"""Payback is searched up to this multiple of the whole budget, at so many budgets."""
FURTHEST_OCTAVES = 4
"""Octaves outside the n that were run within which today's n is judged, by the prior of the surface."""


@dataclass(frozen=True)
class Judgement(Saved):
    """What a plan gains over a configuration that needs no pilot, at the same total cost."""

    metric: str
    level: float
    plan: Annotated[Plan, SAVED_PLAN]
    group_size: Annotated[int, Field(ge=1)]
    """n that is run today."""
    problems_per_batch: Annotated[int, Field(ge=1)]
    update_steps: Annotated[int, Field(ge=1)]
    """M that the whole budget buys today, the pilot's cost included."""
    pilot_cost: Annotated[float, Field(ge=0)]
    """In the budget's unit."""
    total: Annotated[float, Field(gt=0)]
    """Budget of the plan and of its pilot together, which today's configuration has to itself."""
    reward_today: Annotated[Estimate, SAVED_ESTIMATE]
    gain: Annotated[Estimate, SAVED_ESTIMATE]
    """Reward of the plan less that of today's configuration."""
    probability: Annotated[float, Field(ge=0, le=1)] | None
    """That the gain is one; None for fits without draws."""
    pays_from: Annotated[float, Field(ge=0)] | None
    """Total budget from which on the plan after its pilot is expected to do better: the lower end of the budgets around
    `total` where it does, or the first above. None if there is none up to `searched`."""
    searched: Annotated[float, Field(gt=0)]
    notes: tuple[Note, ...] = ()

    @property
    def unit(self) -> str:
        """Unit of the budget."""
        return self.plan.budget.unit

    def summary(self) -> str:
        """The answer as text."""
        p, g = self.plan, self.gain
        ends = "" if math.isnan(g.low) else f" ({self.level:.0%} interval {g.low:+.3f} to {g.high:+.3f})"
        chance = "" if self.probability is None else f", a gain with probability {self.probability:.0%}"
        after = f" after a pilot of {amount_text(self.pilot_cost, self.unit)}" if self.pilot_cost else ""
        lines = [
            f"against n = {self.group_size}, B_p = {self.problems_per_batch} for all of "
            f"{amount_text(self.total, self.unit)}: {g.mean:+.3f} of {self.metric}{ends}{chance}",
            f"plan   n = {p.group_size}, B_p = {p.problems_per_batch}, M = {p.update_steps:,}{after}: predicted "
            f"{p.predicted_reward:.3f}",
            f"today  n = {self.group_size}, B_p = {self.problems_per_batch}, M = {self.update_steps:,}: predicted "
            f"{self.reward_today.mean:.3f}",
            self.payback,
        ]
        return "\n".join([*lines, *(f"[{note.severity}] {note.code}: {note.message}" for note in self.notes)])

    @property
    def payback(self) -> str:
        """After which budget the pilot has paid for itself, in one sentence."""
        if not self.pilot_cost:
            return "no pilot counts against this budget (--spent pilot=AMOUNT, if one does)"
        if self.pays_from is None:
            most = amount_text(self.searched, self.unit)
            return f"the pilot is not expected to pay for itself at any budget up to {most}"
        return f"the pilot pays for itself from a total budget of {amount_text(self.pays_from, self.unit)} on"


DOCUMENT = Document("judgement", 1, Judgement, derived=("payback", "unit"))


def judge(
    plan: Plan, size: tuple[int, int], pilot_cost: float, pricing: Pricing, sizes: list[int], level: float = 0.8
) -> Judgement:
    """Judge a plan against a configuration that gets the pilot's cost as well.

    Args:
        plan: with its fits.
        size: (n, B_p) that is run today.
        pilot_cost: in the budget's unit.
        pricing: prices as they hold for the plan.
        sizes: group sizes that a plan may choose at other budgets.
        level: coverage of intervals.

    Raises:
        PlanError: the plan has no predicted reward, today's configuration cannot be predicted, or the budget does not
            pay for a step of it.
    """
    fits, (n, bp) = plan.fits, size
    if fits is None or plan.predicted_reward is None:
        raise PlanError(
            f"no reward is predicted for this plan (n = {plan.group_size}, model {plan.model}, {plan.metric})",
            "Fit runs of this model and metric.",
        )
    total = plan.budget.available + pilot_cost
    steps = _steps(pricing, total, n * bp)
    if steps < 1:
        raise PlanError(
            f"{amount_text(total, plan.budget.unit)} does not pay for one step of n * B_p = {n * bp} rollouts",
            "Raise the budget.",
        )

    surface = _reaching(fits, n)

    def drawn(group_size: int, problems: int, amount: float) -> Array:
        batch = group_size * problems
        rollouts = max(_steps(pricing, amount, batch), 0) * batch
        compute = pricing.compute(float(max(rollouts, 1)), fits.compute)
        if surface is None:
            return reward_draws(fits, compute, group_size, problems)
        reachable = fits.reachable_problems_per_batch(problems)
        return surface.draws(compute, float(group_size), reachable)[:, 0]

    try:
        today_D = drawn(n, bp, total)
    except FitError as error:
        raise PlanError(f"n = {n}, B_p = {bp} cannot be compared: {error.message}", error.hint) from error
    gain_D = plan.reward_draws() - today_D
    paired = fits.surface is not None

    def spread(value_D: Array) -> Estimate:
        return estimate(value_D, level) if paired else Estimate(float(value_D.mean()), math.nan, math.nan)

    bps = fits.reaches_problems_per_batch(plan.problems_per_batch)
    problems = plan.problems_per_batch if bps else bp
    pays_from, searched = _payback(fits, drawn, (n, bp), sizes, problems, pilot_cost, total)
    return Judgement(
        metric=fits.metric,
        level=level,
        plan=plan,
        group_size=n,
        problems_per_batch=bp,
        update_steps=steps,
        pilot_cost=pilot_cost,
        total=total,
        reward_today=spread(today_D),
        gain=spread(gain_D),
        probability=float(np.mean(gain_D > 0)) if paired else None,
        pays_from=pays_from,
        searched=searched,
        notes=(
            *(note for note in plan.notes if note.code.startswith("extrapolation")),
            *_not_run(n, fits),
            *caveats.problems_not_observed(bp, fits.problems_per_batch),
        ),
    )


def _not_run(n: int, fits: Fits) -> list[Note]:
    smallest, largest = fits.group_size_range
    if smallest <= n <= largest:
        return []
    message = (
        f"n = {n} lies outside the group sizes that were run ({smallest} to {largest}): what is predicted for it comes "
        "from the curves of the nearest ones and the prior. A short run of it would tell."
    )
    return [Note("beyond-grid", "warning", message, {"group_size": n, "grid": [smallest, largest]})]


def _reaching(fits: Fits, n: int) -> Surface | None:
    """The joint model with knots as far as n, those beyond the runs from the prior; None for fits without one.

    Raises:
        PlanError: n lies further than `FURTHEST_OCTAVES` outside the runs.
    """
    if fits.surface is None:
        return None
    first, last = (float(knot) for knot in fits.surface.layout.knots_K[[0, -1]])
    below, above = (max(0, math.ceil(gap - 1e-9)) for gap in (first - math.log2(n), math.log2(n) - last))
    if max(below, above) > FURTHEST_OCTAVES:
        low, high = 2 ** max(first - FURTHEST_OCTAVES, 1), 2 ** (last + FURTHEST_OCTAVES)
        raise PlanError(
            f"n = {n} lies more than {FURTHEST_OCTAVES} octaves outside the n that were run; accepted: {low:.0f} to "
            f"{high:.0f}",
            "Run it for a while, and ask again.",
        )
    return widened(fits.surface, below, above, np.random.default_rng(0))


def _payback(
    fits: Fits,
    drawn: Callable[[int, int, float], Array],
    today: tuple[int, int],
    sizes: list[int],
    problems: int,
    pilot_cost: float,
    total: float,
) -> tuple[float | None, float]:
    """The total budget from which on, around or above `total`, the best n after the pilot is expected to do better."""
    amounts = np.geomspace(max(1.05 * pilot_cost, total / 1e3), FURTHEST * total, POINTS)
    gains: list[float] = []
    for amount in amounts:
        left = float(amount) - pilot_cost
        best = max(float(drawn(n, problems, left).mean()) for n in sizes)
        gains.append(best - float(drawn(*today, float(amount)).mean()))
    ahead = np.array(gains) > 0
    place = _at(amounts, total)
    if ahead[place]:
        while place and ahead[place - 1]:
            place -= 1
    else:
        place = next((i for i in range(place, len(ahead)) if ahead[i]), -1)
    return (float(amounts[place]) if place >= 0 else None), float(amounts[-1])


def _at(amounts: Array, total: float) -> int:
    return int(np.argmin(np.abs(np.log(amounts / total))))


def _steps(pricing: Pricing, amount: float, batch: int) -> int:
    return pricing.most_steps(pricing.budget.unit, amount, batch)
