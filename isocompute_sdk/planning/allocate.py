"""From a request to a choice: resolve, enumerate, score. Each step hands its result to the next.

`resolve` adds to the arguments what the planner knows. `enumerate_setups` lists the allocations that the budget pays
for, by smallest B_p and number of GPUs. `score` picks the one with the largest expected reward (by a law: the nearest
to it), and shortens it where the rest of the budget adds nothing. `planning.decide` makes the plan of that choice.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypedDict, Unpack, cast

import numpy as np

from isocompute_sdk.errors import PlanError
from isocompute_sdk.fitting.allocation import sigmoid
from isocompute_sdk.fitting.arrays import Array
from isocompute_sdk.fitting.fits import Fits
from isocompute_sdk.fitting.paper.reward_curve import RewardCurve
from isocompute_sdk.fitting.surface.answers import GroupSizeOdds, odds_of_draws, planned_of
from isocompute_sdk.fitting.surface.surface import OCTAVES_ABOVE
from isocompute_sdk.planning.basis import Basis
from isocompute_sdk.planning.inheritance import FITTED, same_model
from isocompute_sdk.planning.plan_parts import Stopping
from isocompute_sdk.planning.pricing import (
    EVALUATION_SHARE,
    Candidate,
    Fixed,
    Limits,
    Pricing,
    Rejection,
    amount_text,
    candidates,
    what_works,
)
from isocompute_sdk.specs import Budget
from isocompute_sdk.specs.throughput import MORE_BATCHES

MIN_SAVED = 0.1
"""Share of the steps below which leaving them out is not worth a note."""
LENGTHS = 200
"""Lengths of a run between the fewest steps and all, at which its reward is asked."""
SEEN_TO_FALL, MAY_FALL = 0.8, 0.5
"""Probability that the onset of a decline lies within the data from which the decline counts as seen; and probability
that the recipe declines from which flat curves show no plateau: a fall, a dip and a plateau then look alike."""

SLOTS = 1
"""Runs to make first that a plan, and `Planner.next_runs`, name unless asked for more."""

Mode = Literal["expected", "conservative"]
Spend = Literal["worthwhile", "all"]

FIXED = ("problems_per_batch", "update_steps", "rollouts_per_batch")
"""Options that fix B_p, M and B, in the order of `Fixed`."""
KEPT = (*FIXED, "mode", "beyond_grid", "n_problems", "min_update_steps", "spend", "powers_of_two", "evaluation_share")
"""Options that a plan keeps."""


class Options(TypedDict, total=False):
    """Keyword arguments of `Planner.allocate`, with the meaning that they have there."""

    problems_per_batch: int | None
    update_steps: int | None
    rollouts_per_batch: int | None
    mode: Mode
    beyond_grid: int | Literal["auto"]
    n_problems: int | None
    min_update_steps: int | None
    spend: Spend
    powers_of_two: bool
    evaluation_share: float
    continued: Mapping[tuple[int, int], int] | None


class AllocateOptions(Options, total=False):
    """The same, with those of `allocate` alone."""

    slots: int
    most: float | None
    ended: Collection[str]


@dataclass(frozen=True)
class Request:
    """The arguments of `Planner.allocate`, with the meaning that they have there.

    Raises:
        PlanError: an invalid value.
    """

    budget: Budget
    fixed: Fixed = field(default_factory=Fixed)
    mode: Mode = "expected"
    beyond_grid: int | Literal["auto"] = "auto"
    n_problems: int | None = None
    min_update_steps: int | None = None
    spend: Spend = "worthwhile"
    powers_of_two: bool = True
    evaluation_share: float = EVALUATION_SHARE
    continued: Mapping[tuple[int, int], int] = field(default_factory=dict[tuple[int, int], int])
    slots: int = SLOTS
    """Runs to make first that are looked for at most; 0 for none."""
    most: float | None = None
    """What they may cost together, in the budget's unit; None for no limit but their worth."""
    ended: Collection[str] = ()
    """Runs that are not made longer, by name."""

    def __post_init__(self) -> None:
        for name, accepted in (("mode", ("expected", "conservative")), ("spend", ("worthwhile", "all"))):
            if getattr(self, name) not in accepted:
                raise PlanError(
                    f"{name} = {getattr(self, name)!r}; accepted: {accepted[0]!r}, {accepted[1]!r}",
                    "Use one of the two.",
                )
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

    @classmethod
    def of(cls, budget: Budget | float | str, **options: Unpack[AllocateOptions]) -> Request:
        """The request of the arguments of `Planner.allocate`.

        Raises:
            PlanError: an invalid value.
        """
        given: dict[str, Any] = {**options}
        accepted = AllocateOptions.__annotations__
        if unknown := [name for name in given if name not in accepted]:
            raise PlanError(
                f"allocate: received {', '.join(unknown)}; accepted: {', '.join(accepted)}",
                "Deadlines belong to the budget: Budget(rollouts=3e6, deadline_hours=36); GPUs and speed to Planner.",
            )
        fixed = Fixed(*(_count(name, given.pop(name, None)) for name in FIXED))
        counts = {name: _count(name, given.pop(name, None)) for name in ("n_problems", "min_update_steps")}
        continued = given.pop("continued", None) or {}
        return cls(Budget.parse(budget), fixed, continued=continued, **counts, **given)

    @property
    def options(self) -> dict[str, Any]:
        """The arguments that are not the defaults, as `of` takes them; without what only a campaign says."""
        plain, asked = vars(Request(self.budget)), {**vars(self), **vars(self.fixed)}
        return {name: asked[name] for name in KEPT if asked[name] != plain.get(name)}


def _count(name: str, value: object) -> int | None:
    return None if value is None else whole_number(name, value)


def whole_number(name: str, value: object) -> int:
    """A whole number from 1 up as an int."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise PlanError(f"{name} = {value!r}; accepted: a whole number, 1 or more", "Correct it, or leave it out.")
    return int(value)


CONSERVATIVE_QUANTILE = 0.1
"""Conservative, by a prior: the n whose 90 % worst regret is least."""
_LOSS_OCTAVES = (0.0, 1.0, 2.0, 4.0, 6.0)
_LOSS_SHARE = (0.0, 0.03, 0.17, 0.28, 0.33)
"""Share of the reward gain lost when n is that many octaves off: fitted Easy curves of the paper's fig. 6 at 3 M
rollouts, n = 256, 128, 32, 8 against 512. Taken as symmetric, which is an assumption."""


@dataclass(frozen=True)
class LawPreference:
    """By a law, or for a prior by expected regret; `distance` is in octaves, or in shares of the gain."""

    fits: Fits
    law: str
    """The deciding law: `group_size` or `group_size_vs_steps`."""
    mode: Mode
    pricing: Pricing

    def best(self, candidates: Sequence[Candidate], fixed: Fixed | None = None) -> Candidate:
        """The candidate nearest to the law, the smaller n of two equal ones.

        The law is evaluated at the largest compute of any candidate: at its own compute, an n that spends little
        would look right for that little. If B_p and M are fixed, n alone decides how much is spent: then it is the
        largest n that the law calls best at any compute.
        """
        at = max(candidates, key=lambda c: c.rollouts)
        if fixed is not None and fixed.problems_per_batch is not None and fixed.update_steps is not None:
            useful = [c for c in candidates if c.group_size <= self.fits.law(self.law).saturation * 2**0.5]
            return max(useful or candidates, key=lambda c: c.group_size)
        return min(candidates, key=lambda c: (round(self.distance(c.group_size, at), 9), c.group_size))

    def distance(self, n: int, at: Candidate) -> float:
        """Octaves from the law's n at that candidate's compute; for a prior, the expected regret."""
        value, octave, law = self.value(at), float(np.log2(n)), self.fits.law(self.law)
        if self.fits.method != "prior":
            return abs(octave - float(law.log2(value)))
        draws_D4 = self.fits.law_draws[self.law]
        apart_D = np.abs(octave - sigmoid(law.to_x(value), *(draws_D4[:, i] for i in range(4))))
        regret_D = np.interp(apart_D, _LOSS_OCTAVES, _LOSS_SHARE)
        careful = self.mode == "conservative"
        return float(np.quantile(regret_D, 1.0 - CONSERVATIVE_QUANTILE)) if careful else float(np.mean(regret_D))

    def value(self, at: Candidate) -> float:
        """The law's raw x for a candidate: compute, or steps."""
        in_steps = self.law == "group_size_vs_steps"
        return float(at.update_steps) if in_steps else self.pricing.compute(at.rollouts, self.fits.compute)

    def wanted(self, at: Candidate) -> float | None:
        """The law's n; None for a prior, which has many."""
        return None if self.fits.method == "prior" else float(self.fits.law(self.law).predict(self.value(at)))


@dataclass(frozen=True)
class Resolved:
    """A request with the limits, fits and preference that answer it."""

    request: Request
    limits: Limits
    by_law: LawPreference | None
    """What prefers a group size; None for a surface, whose expected rewards decide."""
    fits: Fits
    can_predict: bool
    """Whether the fits hold rewards of the model to be trained."""
    gpu_counts: tuple[int | None, ...]
    """Numbers of GPUs to choose from; None stands for that of the throughput."""

    def sizes(self) -> list[int]:
        """Group sizes to choose from; a surface predicts only as far as it has knots.

        Raises:
            FitError: fits that name no group sizes.
        """
        return _sizes(self.fits, self.request)

    def compute(self, rollouts: float) -> float:
        """Rollouts on the axis of the fits: rollouts or tokens."""
        in_rollouts = self.fits.compute == "log10_rollouts"
        return rollouts if in_rollouts else self.limits.pricing.compute(rollouts, self.fits.compute)

    def rewards(self, c: Candidate, steps: Sequence[int]) -> list[float] | list[None]:
        """Predicted rewards after each of these numbers of steps; None if no curve covers this n."""
        n, problems, batch, fits = c.group_size, c.problems_per_batch, c.rollouts_per_batch, self.fits
        if not self.can_predict:
            return [None] * len(steps)
        if fits.surface is None:
            sizes = [curve.group_size for curve in fits.select(fits.nearest_problems_per_batch(problems))]
            if not min(sizes) <= n <= max(sizes):
                return [None] * len(steps)
        return fits.expected_reward([self.compute(batch * m) for m in steps], n, problems).tolist()

    def scored(self, candidates: Sequence[Candidate]) -> list[Scored]:
        """Candidates with their predicted rewards, by draw where there is a surface; that is asked once."""
        if self.fits.surface is None:
            return [Scored(c, self.rewards(c, [c.update_steps])[0]) for c in candidates]
        sizes, problems = [c.group_size for c in candidates], [c.problems_per_batch for c in candidates]
        compute = [self.compute(c.group_size * c.problems_per_batch * c.update_steps) for c in candidates]
        drawn_DN = self.fits.draws(compute, sizes, problems)
        means = drawn_DN.mean(axis=0).tolist() if self.can_predict else [None] * len(candidates)
        return [Scored(c, mean, drawn_D) for c, mean, drawn_D in zip(candidates, means, drawn_DN.T, strict=True)]


@dataclass(frozen=True)
class Scored:
    """A candidate with its predicted reward."""

    candidate: Candidate
    reward: float | None
    """None if the fits cannot predict it for the model to be trained."""
    drawn_D: Array | None = None
    """By draw; None without a surface."""

    @property
    def mean(self) -> float:
        """Mean of the draws, rounded so that the order of a sum decides nothing."""
        return -math.inf if self.drawn_D is None else round(float(self.drawn_D.mean()), 12)


@dataclass(frozen=True)
class Setup:
    """One smallest B_p on one number of GPUs, with the allocations that the budget pays for."""

    limits: Limits
    candidates: list[Candidate]
    rejections: list[Rejection]


@dataclass(frozen=True)
class Choice:
    """What was picked, and everything that was predicted on the way."""

    setup: Setup
    best: Scored
    """The preferred candidate, with the whole budget."""
    chosen: Scored
    """The same, shortened where the rest of the budget adds nothing."""
    pricing: Pricing
    landmarks: Sequence[Scored]
    """Candidates whose n is a power of two or was run: a handful, even if every n is allowed."""
    odds: GroupSizeOdds | None
    """Of every n among the landmarks, each with the whole budget; None without a surface."""
    onset_D: Array | None
    """Compute at which rewards begin to fall at the preferred n, by draw; None without a surface."""
    stopping: Stopping | None


def _sizes(fits: Fits, request: Request) -> list[int]:
    octaves, passport = request.beyond_grid, fits.passport
    if octaves == "auto":
        octaves = 0 if passport is None else passport.beyond_grid_octaves
    elif passport is not None:
        octaves = min(octaves, OCTAVES_ABOVE)
    return fits.candidate_sizes(octaves, powers_of_two=request.powers_of_two)


def resolve(basis: Basis, request: Request, pricing: Pricing | None = None) -> Resolved:
    """A request with what the planner knows: prices, limits, the deciding law."""
    fits, fixed, min_steps = basis.fits, request.fixed, request.min_update_steps
    if fits.group_sizes and not _sizes(fits, request):
        # Before anything is asked about speeds and prices.
        raise PlanError(
            "the fits offer no group size of 2 or more to choose from",
            "Run group sizes of 2 or more: a single rollout has no group to be compared with.",
        )
    pricing = basis.pricing(request.budget, request.evaluation_share) if pricing is None else pricing
    warmup, floor = basis.inheritance.recipe.warmup_steps, basis.inheritance.floor
    wanted = max(2 * warmup if min_steps is None else min_steps, 1)
    if fixed.update_steps is not None and fixed.update_steps < wanted:
        limit = f"min_update_steps = {wanted}"
        if min_steps is None:
            limit = f"{wanted}, twice the warm-up of {warmup} steps"
        raise PlanError(
            f"update_steps = {fixed.update_steps} is below {limit}",
            f"Add <--min-update-steps {fixed.update_steps} | min_update_steps={fixed.update_steps}> to plan it anyway.",
        )
    n_problems = request.n_problems or (fits.n_problems if fits.method in FITTED else None)
    limits = Limits(
        pricing,
        basis.hardware,
        fixed,
        min(floor, n_problems or floor),
        wanted,
        n_problems,
        request.continued,
    )
    by_law = LawPreference(fits, _law(fits, fixed), request.mode, pricing) if fits.surface is None else None
    can_predict = bool(fits.curves) and (None in (basis.model, fits.model) or same_model(basis.model, fits.model))
    throughput, counts = pricing.throughput, sorted(basis.hardware.gpu_counts)
    scales = throughput is not None and None not in (throughput.gpu_exponent, throughput.gpus)
    given = scales and "gpus" in basis.hardware.model_fields_set and (pricing.timed or len(counts) == 1)
    return Resolved(request, limits, by_law, fits, can_predict, (*counts,) if given else (None,))


def _law(fits: Fits, fixed: Fixed) -> str:
    """The deciding law: for a fixed batch the law in steps, if it was fitted at that batch or is the only one."""
    laws, batch, in_steps = fits.laws, fixed.rollouts_per_batch, "group_size_vs_steps"
    if in_steps in laws and batch is not None and (batch == fits.rollouts_per_batch or "group_size" not in laws):
        return in_steps
    if "group_size" in laws:
        return "group_size"
    if in_steps in laws:
        raise PlanError(
            f"these fits hold only laws in steps, fitted at rollouts_per_batch = {fits.rollouts_per_batch}",
            f"Add <--rollouts-per-batch {fits.rollouts_per_batch} | rollouts_per_batch={fits.rollouts_per_batch}>, or "
            "use fits with a law in compute.",
        )
    raise PlanError(
        "these fits hold no allocation law: " + fits.unsupported.get("group_size", "none was fitted"),
        "The notes of the fits say what is missing.",
    )


def enumerate_setups(resolved: Resolved, sizes: Sequence[int]) -> list[Setup]:
    """The setups with candidates, by increasing smallest B_p and number of GPUs.

    If time decides, a larger B_p may use the hardware better and more GPUs may keep a deadline; a budget in rollouts
    depends on neither.

    Returns:
        If nothing fits, one setup without candidates and with every rejection.
    """
    limits, tried = resolved.limits, list[Setup]()
    for floor in _floors(resolved):
        for gpus in resolved.gpu_counts:
            own = replace(limits, floor=floor)
            if gpus is not None:
                own = replace(own, pricing=own.pricing.at_gpus(gpus), hardware=own.hardware.replace(gpus=gpus))
            tried.append(Setup(own, *candidates(sizes, own)))
    able = [setup for setup in tried if setup.candidates]
    return able or [replace(tried[0], rejections=[r for setup in tried for r in setup.rejections])]


def _floors(resolved: Resolved) -> list[int]:
    """Smallest B_p to try, increasing: the recipe's floor, then stable larger ones that were run."""
    floor, passport = resolved.limits.floor, resolved.fits.passport
    if passport is None or not resolved.limits.fixed.free:
        return [floor]
    levels = [floor, *(bp for bp in resolved.fits.problems_per_batch if bp > floor)]
    return [bp for bp in levels if bp not in passport.unstable_problems_per_batch] or levels[-1:]


def pick(resolved: Resolved, setups: Sequence[Setup]) -> tuple[Setup, Candidate, list[Scored]]:
    """The setup and its candidate with the largest expected reward, or nearest to the law with the most rollouts.

    An n that was not run must be better as rewards are shown. Of equal ones it is the smallest B_p, the fewest GPUs and
    the smallest n. Conservative: no n above those that were run, if there is another.

    Returns:
        Setup and candidate, and the rewards of all candidates of this setup: none yet by a law.
    """
    if resolved.by_law is not None:
        best = [(setup, resolved.by_law.best(setup.candidates, resolved.limits.fixed)) for setup in setups]
        return *max(best, key=lambda pair: pair[1].rollouts), []
    owners = [setup for setup in setups for _ in setup.candidates]
    scored = resolved.scored([c for setup in setups for c in setup.candidates])
    places, fits = [*range(len(scored))], resolved.fits
    if resolved.request.mode == "conservative":
        largest = fits.group_size_range[1]
        places = [i for i in places if scored[i].candidate.group_size <= largest] or places
    were_run = [scored[i].candidate.group_size in fits.group_sizes for i in places]
    chosen = places[planned_of(np.array([scored[i].mean for i in places]), were_run, fits.tolerances)]
    setup = owners[chosen]
    return setup, scored[chosen].candidate, [one for one, own in zip(scored, owners, strict=True) if own is setup]


def score(resolved: Resolved, setups: Sequence[Setup]) -> Choice:
    """The preferred allocation, without the steps that add nothing.

    Raises:
        PlanError: there are no candidates, with the smallest budget that pays for one.
    """
    if not setups[0].candidates:
        raise refusal(resolved, setups[0].rejections)
    setup, best, scored = pick(resolved, setups)
    levels = {*resolved.fits.group_sizes, best.group_size}
    known = [c for c in setup.candidates if c.group_size in levels or c.group_size.bit_count() == 1]
    landmarks = [one for one in scored if one.candidate in known] if scored else resolved.scored(known)
    return choice_of(resolved, setup, best, landmarks)


def choice_of(resolved: Resolved, setup: Setup, best: Candidate, landmarks: Sequence[Scored]) -> Choice:
    """The choice of one candidate beside others."""
    fits, pricing = resolved.fits, setup.limits.pricing_of(best.group_size, best.problems_per_batch)
    full = next(one for one in landmarks if one.candidate == best)
    drawn = [one.drawn_D for one in landmarks if one.drawn_D is not None]
    odds = onset_D = None
    if fits.surface is not None:
        sizes = np.array([one.candidate.group_size for one in landmarks], dtype=np.int64)
        problems, largest = fits.reachable_problems_per_batch(best.problems_per_batch), fits.group_size_range[1]
        compute = resolved.compute(best.rollouts)
        odds = odds_of_draws(fits.surface, compute, sizes, problems, largest, np.stack(drawn, axis=1))
        onset_D = fits.surface.onset(best.group_size, problems)
    whole = Choice(setup, full, full, pricing, landmarks, odds, onset_D, None)
    return _worthwhile(resolved, whole) or whole


def _worthwhile(resolved: Resolved, whole: Choice) -> Choice | None:
    """The choice with fewer steps and what is left out, if the last of them are predicted to add almost nothing."""
    best, full, fits, drawn = whole.best.candidate, whole.best.reward, resolved.fits, whole.odds is not None
    if resolved.request.spend == "all" or full is None or best.ends_by == "update_steps" or fits.no_rise:
        return None
    end_seen = _end_seen(resolved, whole)
    # Laws need a plateau that was seen.
    if not end_seen and not drawn:
        return None
    rewards = [one.reward for one in whole.landmarks if one.reward is not None]
    # If another n still gains, the rest of the budget is worth something, though not with the n that the law chose.
    if max(rewards, default=full) - full >= fits.tolerances.small:
        return None
    tolerance = fits.tolerances.nothing if drawn else fits.tolerances.small
    fewer = _fewest_steps(resolved, whole, full, tolerance)
    if fewer > ((1.0 - MIN_SAVED) * best.update_steps if drawn else best.update_steps // 2):
        return None
    trimmed = replace(best, update_steps=fewer, ends_by="worthwhile")
    (chosen,), chance = resolved.scored([trimmed]), None
    if chosen.drawn_D is not None:
        top_D = np.max([one.drawn_D for one in whole.landmarks if one.drawn_D is not None], axis=0)
        chance = float(np.mean(top_D - chosen.drawn_D > fits.tolerances.equal))
    seen = fits.largest_compute
    stopping = Stopping(
        gain=full - float(chosen.reward or 0.0),
        extrapolation=None if seen is None else resolved.compute(best.rollouts) / seen,
        end_seen=end_seen,
        chance_of_more=chance,
    )
    return replace(whole, chosen=chosen, stopping=stopping)


def _fewest_steps(resolved: Resolved, whole: Choice, full: float, tolerance: float) -> int:
    """Fewest steps whose predicted reward lies within the tolerance of the whole budget's."""
    best, tolerances = whole.best.candidate, resolved.fits.tolerances
    low, high = whole.setup.limits.min_update_steps, best.update_steps
    while high - low > 1:
        # Between the last length that is too short and the first that is enough, until they are neighbours.
        steps = np.unique(np.linspace(low, high, LENGTHS).astype(int))
        rewards = np.array(resolved.rewards(best, steps.tolist()), dtype=float)
        able = full - rewards < tolerance
        if whole.odds is not None:
            # A plan that shows less reward than the whole budget would is no longer the best.
            able &= tolerances.shown(rewards) >= tolerances.shown(np.array(full))
        first = int(np.argmax(able))
        low, high = int(steps[max(first - 1, 0)]), int(steps[first])
    return high


def _end_seen(resolved: Resolved, whole: Choice) -> bool:
    """Whether the runs show the plateau of this n, or that its rewards fall: its best checkpoint is then known."""
    fits, best = resolved.fits, whole.best.candidate
    curves = fits.select(fits.nearest_problems_per_batch(best.problems_per_batch))
    flat = _flat(curves, best.group_size)
    if fits.surface is None or whole.onset_D is None or not curves:
        return flat
    fell = float(np.mean(whole.onset_D < max(curve.last_compute for curve in curves))) >= SEEN_TO_FALL
    may_fall = fits.surface.declines is not None and fits.surface.declines.probability >= MAY_FALL
    return fell or (flat and not may_fall)


def _flat(curves: Sequence[RewardCurve], n: int) -> bool:
    """Whether the runs identify the plateaus of the curves that predict this n, and of those within an octave."""
    sizes = [c.group_size for c in curves]
    below = max((size for size in sizes if size <= n), default=n)
    above = min((size for size in sizes if size >= n), default=n)
    if n > max(sizes):
        return False
    return all(c.plateau_identified for c in curves if min(below, n / 2) <= c.group_size <= max(above, 2 * n))


def refusal(resolved: Resolved, rejections: Sequence[Rejection]) -> PlanError:
    """The error if no group size has a candidate, with the smallest budget that pays for one."""
    costs = [r.smallest_budget for r in rejections if r.smallest_budget is not None]
    limits, budget = resolved.limits, resolved.limits.pricing.budget
    listed = "; ".join(f"n = {r.group_size}: {r.reason}" for r in rejections[:3])
    if costs:
        smallest, digits = min(costs), {"usd": 2, "gpu_hours": 4}.get(budget.unit, 0)
        # Rounded up, so that the printed number suffices.
        enough = budget.replace(spent=None).with_amount(math.ceil(smallest * 10**digits) / 10**digits)
        works = f"The smallest budget that works is {enough}; or lower "
        # What is fixed decides the cost, not the least that it could be.
        lower = {name: value for name, value in vars(limits.fixed).items() if value is not None}
        floor = [] if {*lower} - {"update_steps"} else [f"min_problems_per_batch of the recipe (now {limits.floor})"]
        lower |= {} if "update_steps" in lower else {"min_update_steps": limits.min_update_steps}
        arguments = [f"{name} (now {value})" for name, value in lower.items()]
        options = [f"--{text.replace('_', '-')}" for text in arguments]
        return PlanError(
            f"a budget of {amount_text(budget.amount, budget.unit)} is too small for any plan ({listed})",
            f"{works}{', or '.join([*arguments, *floor])}.",
            smallest,
        ).in_shell(f"{works}{', or '.join([*options, *floor]).replace('of the recipe', 'in the file of --recipe')}.")
    message = f"no group size satisfies the constraints together: {listed}"
    if all(r.constraint == "throughput" for r in rejections):
        return PlanError(message, MORE_BATCHES)
    works = what_works([r.group_size for r in rejections], limits)
    if works is None:
        return PlanError(message, "No single one of them is at fault: change several.")
    name, value = works
    option = f"--{name.removesuffix('_hours').replace('_', '-')} {value:.12g}"
    return PlanError(message, f"With {name} = {value:.12g} there is a plan.").in_shell(
        f"With {option} there is a plan.", [option]
    )
