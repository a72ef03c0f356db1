"""One call of `Planner.allocate`: its arguments checked, and then with everything that a planner adds to them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, cast

import numpy as np

from isocompute_sdk.errors import PlanError
from isocompute_sdk.fitting.arrays import Array
from isocompute_sdk.fitting.fits import Fits
from isocompute_sdk.fitting.paper.reward_curve import RewardCurve
from isocompute_sdk.fitting.surface.answers import FEWEST_UPDATES
from isocompute_sdk.notes import Note
from isocompute_sdk.planning import caveats
from isocompute_sdk.planning.candidates import Candidate, Fixed, Limits, Rejection
from isocompute_sdk.planning.preference import Mode, Preference
from isocompute_sdk.planning.pricing import EVALUATION_SHARE, Pricing, amount_text
from isocompute_sdk.specs import Budget
from isocompute_sdk.tolerances import Tolerances

LEAST_SAVED = 0.1
"""Share of the steps below which leaving them out is not worth a note."""

SEEN_TO_FALL, MAY_FALL = 0.8, 0.5
"""Probability that the onset of a decline lies within the data from which the decline counts as seen; and probability
that the recipe declines from which flat curves show no plateau: a fall, a dip and a plateau then look alike. On the
same sweeps stops at such plateaus left more than .01 in 2 of 10 cases, at others in none of 19 (with twice the
`STOP_CHANCE` 4 of 15 and 1 of 31)."""

Spend = Literal["worthwhile", "all"]


@dataclass(frozen=True)
class Request:
    """The arguments of `Planner.allocate`, with the meaning that they have there.

    Raises:
        PlanError: an invalid value.
    """

    budget: Budget
    fixed: Fixed
    mode: Mode = "expected"
    beyond_grid: int | Literal["auto"] = "auto"
    n_problems: int | None = None
    min_update_steps: int | None = None
    spend: Spend = "worthwhile"
    powers_of_two: bool = True
    evaluation_share: float = EVALUATION_SHARE
    continued: Mapping[tuple[int, int], float] = field(default_factory=dict[tuple[int, int], float])

    def __post_init__(self) -> None:
        if self.mode not in ("expected", "conservative"):
            raise PlanError(f"mode = {self.mode!r}; accepted: 'expected', 'conservative'", "Use one of the two.")
        if self.spend not in ("worthwhile", "all"):
            raise PlanError(f"spend = {self.spend!r}; accepted: 'worthwhile', 'all'", "Use one of the two.")
        octaves: object = self.beyond_grid
        whole_octaves = isinstance(octaves, int | np.integer) and not isinstance(octaves, bool) and octaves >= 0
        if not whole_octaves and not (isinstance(octaves, str) and octaves == "auto"):
            raise PlanError(
                f"beyond_grid = {octaves!r}; accepted: 'auto' or a whole number of octaves, 0 or more",
                "Use 'auto' if in doubt.",
            )
        share = cast("Any", self.evaluation_share)
        if isinstance(share, bool) or not isinstance(share, int | float | np.number) or not 0 < share <= 1:
            raise PlanError(
                f"evaluation_share = {self.evaluation_share!r}; accepted: above 0, at most 1", "Use 0.05 if in doubt."
            )


def whole(name: str, value: object) -> int | None:
    """As `whole_number`; None stays None."""
    return None if value is None else whole_number(name, value)


def whole_number(name: str, value: object) -> int:
    """A whole number from 1 up as an int.

    Raises:
        PlanError: anything else.
    """
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise PlanError(f"{name} = {value!r}; accepted: a whole number, 1 or more", "Correct it, or leave it out.")
    return int(value)


@dataclass(frozen=True)
class ResolvedRequest:
    """A request with the prices, limits, fits and preference that answer it."""

    pricing: Pricing
    limits: Limits
    preference: Preference
    fits: Fits
    can_predict: bool
    """Whether the fits hold rewards of the model to be trained."""
    largest: int
    """Largest n that was run."""
    smallest: int

    @property
    def span(self) -> float:
        """Width of the metric's range."""
        return self.fits.bounds[1] - self.fits.bounds[0]

    def reward(self, c: Candidate) -> float | None:
        """Predicted reward; None if no curve at the nearest B_p covers this n."""
        if not self.can_predict:
            return None
        at = self.pricing.compute(c.rollouts, self.fits.compute)
        if self.fits.surface is None:
            sizes = [curve.group_size for curve in self.curves(c)]
            if not min(sizes) <= c.group_size <= max(sizes):
                return None
        return float(self.fits.expected_reward(at, c.group_size, c.problems_per_batch))

    def reward_with_interval(self, c: Candidate) -> tuple[float | None, tuple[float, float] | None]:
        """Predicted reward and its 80 % interval; None for what the fits cannot give."""
        mean = self.reward(c)
        if mean is None:
            return None, None
        at = self.pricing.compute(c.rollouts, self.fits.compute)
        predicted = self.fits.predict(at, c.group_size, c.problems_per_batch)
        low, high = float(predicted.low), float(predicted.high)
        return mean, None if np.isnan(low) else (low, high)

    def apart(self, one: Candidate, other: Candidate) -> bool:
        """Whether the 80 % interval of their difference, draw by draw, leaves out 0; False without draws."""
        if self.fits.surface is None or not self.can_predict:
            return False
        drawn = [
            self.fits.draws(self.pricing.compute(c.rollouts, self.fits.compute), c.group_size, c.problems_per_batch)
            for c in (one, other)
        ]
        low, high = np.quantile(drawn[0][:, 0] - drawn[1][:, 0], (0.1, 0.9))
        return bool(low > 0 or high < 0)

    def curves(self, c: Candidate) -> list[RewardCurve]:
        """The curves that predict a candidate: those at the nearest B_p that was run."""
        return self.fits.select(self.fits.nearest_problems_per_batch(c.problems_per_batch))

    def landmarks(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """Candidates whose n is a power of two or was run: a handful, even if every n is allowed."""
        levels = set(self.fits.group_sizes)
        return [c for c in candidates if c.group_size in levels or c.group_size.bit_count() == 1]

    def group_size_band(self, chosen: Candidate) -> tuple[int, int] | None:
        """80 % band of the best n; None without draws.

        The band of a law is rounded outward to powers of two. The band of a surface is widened to hold the chosen n,
        which may be the best executable one outside it.
        """
        interval = self.fits.law_interval(self.preference.value(chosen), name=self.preference.law)
        if interval is None:
            return None
        low, high, n = float(interval[0][0]), float(interval[1][0]), chosen.group_size
        if self.fits.surface is not None:
            return max(2, int(np.floor(min(low, n) + 1e-6))), max(2, int(np.ceil(max(high, n) - 1e-6)))
        return max(2, int(2 ** np.floor(np.log2(low) + 1e-6))), max(2, int(2 ** np.ceil(np.log2(high) - 1e-6)))

    def worthwhile(
        self, chosen: Candidate, candidates: Sequence[Candidate], spend: Spend
    ) -> tuple[Candidate, list[Note]]:
        """Fewer steps if the last of them are predicted to add almost nothing.

        Returns:
            The candidate, unchanged or with fewer steps, and the note that says so.
        """
        full = self.reward(chosen)
        if spend == "all" or full is None or chosen.ends_by == "update_steps":
            return chosen, []
        drawn, tolerances = self.fits.surface is not None, Tolerances(self.span)
        tolerance = tolerances.nothing if drawn else tolerances.small
        seen, whole = self.fits.largest_compute, self.pricing.compute(chosen.rollouts, self.fits.compute)
        reach, end_seen = None if seen is None else whole / seen, self._end_seen(chosen)
        # Laws need a plateau that was seen.
        if not end_seen and not drawn:
            return chosen, []
        # If another n still gains, the rest of the budget is worth something, though not with the n that the law chose.
        rewards = [self.reward(c) for c in self.landmarks(candidates)]
        if max((r for r in rewards if r is not None), default=full) - full >= tolerances.small:
            return chosen, []

        def gain(steps: int) -> float:
            reward = self.reward(replace(chosen, update_steps=steps))
            return 0.0 if reward is None else full - reward

        low, high = self.limits.min_update_steps, chosen.update_steps
        fewer = math.floor((1.0 - LEAST_SAVED) * high) if drawn else high // 2
        if fewer < low or gain(fewer) >= tolerance:
            return chosen, []
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if gain(middle) < tolerance else (middle, high)
        trimmed = replace(chosen, update_steps=high, ends_by="worthwhile")
        cost, budget = self.pricing.cost(trimmed.rollouts_per_batch, trimmed.update_steps), self.pricing.budget
        note = caveats.rest_not_worthwhile(gain(high), tolerance, cost, budget.available, budget.unit)
        certainty = {
            "chance_of_more": self._chance_of_more(trimmed, chosen, candidates),
            "extrapolation": reach,
            "end_seen": end_seen,
        }
        return trimmed, [replace(note, data={**note.data, **certainty})]

    def _end_seen(self, c: Candidate) -> bool:
        """Whether the runs show the plateau of this n, or that its rewards fall: its best checkpoint is then known."""
        curves, surface = self.curves(c), self.fits.surface
        flat = _flat(curves, c.group_size)
        if surface is None or not curves:
            return flat
        onset_D = surface.onset(c.group_size, self.fits.reachable_problems_per_batch(c.problems_per_batch))
        fell = float(np.mean(onset_D < max(curve.last_compute for curve in curves))) >= SEEN_TO_FALL
        may_fall = surface.declines is not None and surface.declines.probability >= MAY_FALL
        return fell or (flat and not may_fall)

    def _chance_of_more(self, trimmed: Candidate, full: Candidate, candidates: Sequence[Candidate]) -> float | None:
        """Probability that the whole budget reaches more than the trimmed plan, by any n and by more than equal.

        The octave above the grid counts where the budget leaves it enough updates. None without a surface.
        """
        if self.fits.surface is None:
            return None

        def drawn(n: int, rollouts: float) -> Array:
            return self.fits.draws(self.pricing.compute(rollouts, self.fits.compute), n, full.problems_per_batch)[:, 0]

        spent = {c.group_size: c.rollouts for c in (*self.landmarks(candidates), full)}
        if 2 * self.largest * full.problems_per_batch * FEWEST_UPDATES <= full.rollouts:
            spent.setdefault(2 * self.largest, full.rollouts)
        best_D = np.max([drawn(n, rollouts) for n, rollouts in spent.items()], axis=0)
        return float(np.mean(best_D - drawn(trimmed.group_size, trimmed.rollouts) > Tolerances(self.span).equal))

    def refusal(self, rejections: Sequence[Rejection]) -> PlanError:
        """The error if no group size has a candidate, with the smallest budget that pays for one."""
        costs = [r.smallest_budget for r in rejections if r.smallest_budget is not None]
        budget = self.pricing.budget
        listed = "; ".join(f"n = {r.group_size}: {r.reason}" for r in rejections[:3])
        if costs:
            smallest = min(costs)
            return PlanError(
                f"a budget of {amount_text(budget.amount, budget.unit)} is too small for any plan ({listed})",
                f"The smallest budget that works is {_rounded_up(smallest, budget.unit)}; or lower --min-update-steps "
                f"(min_update_steps, now {self.limits.min_update_steps}) or the recipe's min_problems_per_batch "
                f"(now {self.limits.floor}).",
                smallest,
            ).in_shell(
                f"The smallest budget that works is {_rounded_up(smallest, budget.unit)}; or lower --min-update-steps "
                f"(now {self.limits.min_update_steps}), or min_problems_per_batch in the file of --recipe (now "
                f"{self.limits.floor})."
            )
        if not rejections:
            return PlanError(
                "the fits offer no group size of 2 or more to choose from",
                "Run group sizes of 2 or more: a single rollout has no group to be compared with.",
            )
        return PlanError(f"no group size satisfies the constraints together: {listed}", "Relax the constraint named.")


def _flat(curves: Sequence[RewardCurve], n: int) -> bool:
    """Whether the runs identify the plateaus of the curves that predict this n, and of those within an octave."""
    sizes = [c.group_size for c in curves]
    below = max((size for size in sizes if size <= n), default=n)
    above = min((size for size in sizes if size >= n), default=n)
    if n > max(sizes):
        return False
    return all(c.plateau_identified for c in curves if min(below, n / 2) <= c.group_size <= max(above, 2 * n))


def _rounded_up(amount: float, unit: str) -> str:
    """The amount rounded up, so that the printed number suffices."""
    digits = 0 if unit in ("rollouts", "tokens") else 4
    return f"{math.ceil(amount * 10**digits) / 10**digits:.{digits}f} {unit.replace('_', '-')}"
