"""`replan`: what is predicted for each thing that can be done with the rest of a run's budget."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from isocompute_sdk.errors import PlanError
from isocompute_sdk.fitting.arrays import Array
from isocompute_sdk.fitting.fits import Fits
from isocompute_sdk.fitting.one_run.forecast import (
    FALLING,
    FURTHEST,
    SICK,
    Checkpoint,
    Forecast,
    LiveRun,
    forecast_run,
)
from isocompute_sdk.fitting.surface.model import logistic
from isocompute_sdk.fitting.surface.shapes import UNIT_SHAPES
from isocompute_sdk.fitting.surface.surface import DEFAULT_PRIOR
from isocompute_sdk.health.live_run import in_sweep, live_run
from isocompute_sdk.ingest.saved_checkpoints import SavedCheckpoint, by_step
from isocompute_sdk.notes import Note, unique
from isocompute_sdk.planning.assessment.verdict import Verdict
from isocompute_sdk.planning.choosing.candidates import Candidate, Fixed
from isocompute_sdk.planning.choosing.request import Request
from isocompute_sdk.planning.plan import Plan
from isocompute_sdk.planning.replanning.document import USUAL_BACKEND, Basis, Change, Name, Option, Replan
from isocompute_sdk.specs import Budget
from isocompute_sdk.tolerances import Tolerances
from isocompute_sdk.training.registry import backend_of

if TYPE_CHECKING:
    from isocompute_sdk.planning.planner import Planner
    from isocompute_sdk.records import RunSet

EASY_FROM = 0.2
"""Base reward from which the advice for Easy holds. The paper's Easy set lies in .3 to .6 and its Hard set in 0 to
.0625 (section 3); between them nothing was measured."""
TERMS = 1e-3
"""KL and entropy coefficients of the easy preset."""
AGAIN: dict[Name, float] = {"roll-back-terms-on": 0.3, "roll-back-terms-off": 0.3, "halve-learning-rate": 0.4}
"""Probability that trouble returns although an option is followed, for a reward that only falls. A guess."""
OF_TERMS = frozenset({"entropy-collapse", "entropy-explosion", "kl-drift"})
"""Findings that the KL term and the entropy bonus answer for; the learning rate answers for other sicknesses."""
REMEDIES: tuple[frozenset[Name], frozenset[Name]] = (
    frozenset({"roll-back-terms-on", "roll-back-terms-off"}),
    frozenset({"halve-learning-rate"}),
)
"""Options that answer for a sickness: of the terms, and other."""
AGAIN_SICK = (0.25, 0.75)
"""Probability that a sickness returns with its remedy, and with another option: (k + 1) / (N + 2), where it did in k of
N = 2 runs of the built-in task: 0 with either remedy, 2 with the others (`benchmarks/decisions/replan.py`)."""
AS_USUAL = 0.5
"""Share of the draws in which a run that gets other terms after such a finding gains from its checkpoint on as runs
usually do, since its own curve was that of the terms. A guess, made after two such runs had gained .1 more than their
own curves said."""
CHANGED = 0.4
"""Standard deviation of the logarithm of what a changed recipe does to the pace of the rise. A guess."""
SLOWER = {"halve-learning-rate": 0.8}
"""Factor on the gain ahead. A guess: smaller steps gain less for the same rollouts."""
LATE_SWITCH = (0.01, 0.015)
"""Gain of a larger n from a late checkpoint, and its standard deviation: BroRL (arXiv 2510.01180) revived a plateau by
about a point with 16 -> 512."""
LARGER = 4
"""Factor on n of that switch."""
FEWEST_LEFT = 6
"""Evaluations before the onset that the healthy curve needs."""
CURVE_POINTS, POINTS_AHEAD = 80, 12


@dataclass(frozen=True)
class _Situation:
    """Everything that the options are computed from."""

    planner: Planner
    live: LiveRun
    forecast: Forecast
    left: float
    """Rollouts that are left."""
    problems: int
    now_D: Array
    """Reward of the last update."""
    keep_D: Array
    """Reward at the checkpoint."""
    going_on_D: Array
    """Best checkpoint up to the end, as the run is."""
    healthy_D: Array | None
    """The same from the checkpoint on, if the trouble had not come; None if it came before a curve could be seen."""
    rng: np.random.Generator

    @property
    def bounds(self) -> tuple[float, float]:
        """Range of the metric."""
        return self.planner.fits.bounds

    @property
    def keep(self) -> Checkpoint:
        """The checkpoint to go back to."""
        return self.forecast.card.keep


def replan(
    planner: Planner,
    runs: RunSet,
    remaining: Budget | float | str,
    *,
    run_id: str | None = None,
    checkpoints: Sequence[SavedCheckpoint] = (),
    level: float = 0.8,
    rng: np.random.Generator | int | None = None,
) -> Replan:
    """Options for the rest of a run's budget; see `Planner.replan`."""
    fits = planner.fits
    mine = runs if run_id is None else runs.filter(run_id=run_id)
    metric = fits.metric if fits.metric in mine.metrics else None
    saved = [(one.step, str(one.path)) for one in checkpoints]
    live = live_run(runs, run_id, metric, fits.eval_set if metric is not None else None, saved)
    series = live.one
    problems = series.problems_per_batch or max(planner.recipe.min_problems_per_batch, 1)
    batch = series.group_size * problems
    steps, budget = _affordable(planner, remaining, batch)
    left, reached = float(steps * batch), float(series.rollouts_T[-1])
    factor = float(np.clip((reached + left) / reached, 1.05, FURTHEST))
    live, known = in_sweep(live, fits)
    found = forecast_run(live, factor, bounds=fits.bounds, level=level, known=known, rng=rng)
    generator = np.random.default_rng(0 if rng is None else rng)
    situation = _situation(planner, live, found, left, problems, generator)
    options = sorted(_options(situation, steps, level), key=lambda one: -one.reward)
    exists = found.card.keep.path is not None
    at_step = (
        by_step(checkpoints).get(int(found.card.keep.step)) if exists and found.card.keep.step is not None else None
    )
    notes = [*found.notes, *_notes(found, at_step, options, _trouble(live), factor_asked=(reached + left) / reached)]
    return Replan(
        run_id=series.run_id,
        metric=live.metric,
        group_size=series.group_size,
        problems_per_batch=problems,
        spent=max(_sampled(runs, series.run_id) or reached, reached),
        remaining=left,
        onset=found.onset,
        trouble=_trouble(live),
        checkpoint=found.card.keep,
        loadable=None if at_step is None or at_step.loadable is None else str(at_step.loadable),
        convert=None if at_step is None else at_step.convert,
        salvageable=found.card.keep.rollouts if exists else 0.0,
        options=tuple(options),
        follow=_followed(options, Tolerances(fits.bounds[1] - fits.bounds[0]).equal),
        forecast=replace(found, notes=()),
        level=level,
        plan=_plan(planner, Candidate(series.group_size, problems, steps, "remaining"), budget),
        notes=unique(notes),
        backend=backend_of(runs.filter(run_id=series.run_id)) or USUAL_BACKEND,
    )


def _sampled(runs: RunSet, run_id: str) -> float | None:
    """Rollouts that all attempts of a run sampled; None if unknown."""
    return next((info.rollouts_spent for info in runs.runs() if info.run_id == run_id), None)


def _affordable(planner: Planner, remaining: Budget | float | str, batch: int) -> tuple[int, Budget]:
    """Update steps of a batch that the rest pays for, and the rest as a budget.

    Raises:
        PlanError: not one step.
    """
    budget = Budget.parse(remaining)
    steps, _ = planner.pricing_for(budget).affordable_steps(batch)
    if steps < 1:
        raise PlanError(
            f"remaining = {budget}: less than one update of {batch:,} rollouts",
            "Give more, or stop and keep the best checkpoint.",
        ).in_shell("Give --remaining more, or stop and keep the best checkpoint.")
    return steps, budget


def _situation(
    planner: Planner,
    live: LiveRun,
    found: Forecast,
    left: float,
    problems: int,
    rng: np.random.Generator,
) -> _Situation:
    series, bounds = live.one, planner.fits.bounds
    keep, reached = found.card.keep, float(series.rollouts_T[-1])
    kept = max(keep.rollouts, 1.0)
    ahead = np.geomspace(reached, reached + left, POINTS_AHEAD)
    reward_DQ = live.surface(bounds).draws(np.array([kept, *ahead]))
    until = None if found.onset is None else found.onset.rollouts
    before = series.rollouts_T[(series.rollouts_T > 0) & (series.rollouts_T <= (until or reached) * 1.0001)]
    unseen = until is not None and len(before) < FEWEST_LEFT
    if unseen:
        until = None
    # The curve before the trouble, as it would go on without it.
    healthy = live.surface(bounds, until=until)
    if found.onset is not None:
        healthy = healthy.without_fall()
    best_D2 = healthy.draws(np.array([kept, kept + left]), at=False)
    keep_D = reward_DQ[:, 0]
    if keep.reward is not None:
        keep_D = np.clip(keep_D + keep.reward - keep_D.mean(), *bounds)
    return _Situation(
        planner,
        live,
        found,
        left,
        problems,
        reward_DQ[:, 1],
        keep_D,
        np.maximum(reward_DQ[:, 1:].max(axis=1), keep_D),
        None if unseen else keep_D + best_D2[:, 1] - best_D2[:, 0],
        rng,
    )


def _options(at: _Situation, steps: int, level: float) -> list[Option]:
    series, found = at.live.one, at.forecast
    n = series.group_size

    def option(
        name: Name, title: str, basis: Basis, why: str, drawn_D: Array, changes: dict[str, Change], size: int = n
    ) -> Option:
        own = steps if size == n else int(at.left // (size * at.problems))
        own = 0 if name == "stop" else own
        drawn_D = np.clip(drawn_D, *at.bounds)
        low, high = np.quantile(drawn_D, [(1 - level) / 2, (1 + level) / 2])
        mean = float(drawn_D.mean())
        start = None if name == "go-on" or at.keep.path is None else at.keep
        spends = float(own * size * at.problems)
        ends = min(float(low), mean), max(float(high), mean)
        return Option(name, title, basis, why, start, changes, size, at.problems, own, spends, mean, *ends)

    options = [
        option(
            "go-on",
            f"n = {n} for {steps:,} more updates",
            "seen-in-your-data",
            f"The run's own curve; probability that it falls {found.falling:.2f}.",
            at.going_on_D,
            {},
        ),
    ]
    if at.keep.path is None:
        title, why = "keep the model as it is now, spend nothing more", "No checkpoint was found on disk to go back to."
        return [*options, option("stop", title, "seen-in-your-data", why, at.now_D, {})]
    title, why = "keep the checkpoint, spend nothing more", "Its reward, without the luck of one evaluation."
    options.append(option("stop", title, "seen-in-your-data", why, at.keep_D, {}))
    terms = _terms(at)
    if terms is not None:
        name, title, why, changes = terms
        options.append(option(name, title, "measured-in-paper", why, _after_change(at, name), changes))
    rate = series.context.get("learning_rate") or at.planner.recipe.learning_rate(n * at.problems)
    options.append(
        option(
            "halve-learning-rate",
            f"back to the checkpoint with a learning rate of {float(rate) / 2:.3g}",
            "guess",
            "Smaller steps drift less; nothing measured it on runs in trouble.",
            _after_change(at, "halve-learning-rate"),
            {"learning_rate": float(f"{float(rate) / 2:.3g}")},
        )
    )
    for name, size, basis, why, drawn_D in _other_sizes(at):
        title = f"back to the checkpoint, then n = {size} for {int(at.left // (size * at.problems)):,} updates"
        options.append(option(name, title, basis, why, drawn_D, {"group_size": size}, size))
    return options


def _after_change(at: _Situation, name: Name, share: float = 1.0, more: Array | float = 0.0) -> Array:
    """Best reward after a change of the recipe, unless trouble returns.

    A share of the healthy curve's gain, at another pace, and something more.
    """
    count = len(at.keep_D)
    pace = SLOWER.get(name, 1.0) * np.exp(CHANGED * at.rng.standard_normal(count) - CHANGED**2 / 2.0)
    gain_D = _usual_gain(at) if at.healthy_D is None else at.healthy_D - at.keep_D
    trouble = frozenset(_trouble(at.live))
    if trouble & OF_TERMS and name in REMEDIES[0]:
        gain_D = np.where(at.rng.random(count) < AS_USUAL, _usual_gain(at), gain_D)
    # Without trouble so far there is nothing that could return.
    again = at.rng.random(count) < (_returns(name, trouble) if at.forecast.onset is not None else 0.0)
    return np.where(again, at.keep_D, at.keep_D + share * gain_D * pace + more)


def _returns(name: Name, trouble: frozenset[str]) -> float:
    """Probability that trouble returns."""
    if not trouble & SICK:
        return AGAIN.get(name, 0.0)
    remedy = REMEDIES[0] if trouble & OF_TERMS else REMEDIES[1]
    return AGAIN_SICK[0] if name in remedy else AGAIN_SICK[1]


def _usual_gain(at: _Situation) -> Array:
    """What runs of all sets gain from where this one has its checkpoint, by the prior of their curves."""
    prior, count = DEFAULT_PRIOR, len(at.keep_D)
    normal_3D = at.rng.standard_normal((3, count))
    share_D = logistic(prior.share_level_sd * normal_3D[0])
    room_D = (at.bounds[1] - float(at.live.one.value_T[0])) * share_D
    midpoint_D = prior.midpoint_level_sd * normal_3D[1]
    steepness_D = np.exp(prior.slope_sd * normal_3D[2])
    ahead = float(np.log1p(at.left / max(at.keep.rollouts, 1.0)))
    now_D, then_D = (UNIT_SHAPES["hill"](steepness_D * (end - midpoint_D))[0] for end in (0.0, ahead))
    return room_D * (then_D - now_D)


def _terms(at: _Situation) -> tuple[Name, str, str, dict[str, Change]] | None:
    """KL term and entropy bonus on for an easy set, off for a hard one; None where they are so already."""
    context = at.live.one.context
    recipe = at.planner.recipe
    now = [context.get(name) for name in ("kl_coef", "entropy_coef")]
    kl, entropy = (
        float(given if given is not None else getattr(recipe, name))
        for given, name in zip(now, ("kl_coef", "entropy_coef"), strict=True)
    )
    known = all(value is not None for value in now)
    base = float(at.live.one.value_T[0])
    if base >= EASY_FROM:
        if known and kl > 0 and entropy > 0:
            return None
        on: dict[str, Change] = {"kl_coef": kl or TERMS, "entropy_coef": entropy or TERMS}
        why = (
            f"Section 3: on sets that the base model solves at .3 to .6, both or neither; this one began at {base:.2f}."
        )
        return "roll-back-terms-on", "back to the checkpoint with KL term and entropy bonus on", why, on
    if known and kl == 0 and entropy == 0:
        return None
    why = f"Section 3: both off where the base model has at most .0625; this run began at {base:.2f}."
    off: dict[str, Change] = {"kl_coef": 0.0, "entropy_coef": 0.0}
    return "roll-back-terms-off", "back to the checkpoint with KL term and entropy bonus off", why, off


def _other_sizes(at: _Situation) -> list[tuple[Name, int, Basis, str, Array]]:
    """Another n from the checkpoint: the best of those that were run, and a larger one."""
    fits, n = at.planner.fits, at.live.one.group_size
    found: list[tuple[Name, int, Basis, str, Array]] = []

    def fitting(size: int) -> bool:
        batch = size * at.problems
        return size >= 2 and batch <= at.left and at.planner.hardware.refusal(batch) is None

    run = [size for size in fits.group_sizes if size != n and fitting(size)] if fits.surface is not None else []
    if run:
        drawn = {size: _along_surface(at, fits, size) for size in run}
        best = max(run, key=lambda size: float(drawn[size].mean()))
        why = f"Your runs of n = {best}, from the point of their curve at which they had this reward."
        found.append(("another-group-size", best, "seen-in-your-data", why, drawn[best]))
    larger = LARGER * n
    if fitting(larger) and larger not in [size for _, size, *_ in found]:
        if larger in run:
            why = f"Your runs of n = {larger}, from the point of their curve at which they had this reward."
            found.append(("larger-group-size", larger, "seen-in-your-data", why, _along_surface(at, fits, larger)))
        else:
            more = LATE_SWITCH[0] + LATE_SWITCH[1] * at.rng.standard_normal(len(at.keep_D))
            # Its updates are fewer for the same rollouts: half of the gain ahead, and what a late switch gained there.
            drawn_D = _after_change(at, "larger-group-size", 0.5, more)
            why = "BroRL (arXiv 2510.01180) gained about .01 late with n from 16 to 512; nothing of yours shows it."
            found.append(("larger-group-size", larger, "guess", why, drawn_D))
    return found


def _along_surface(at: _Situation, fits: Fits, size: int) -> Array:
    """Best reward after going on along the surface's curve of another n from where it has the checkpoint's reward."""
    last = fits.largest_compute or at.forecast.rollouts
    grid_Q = np.geomspace(last / 1000.0, last + 2.0 * at.left, CURVE_POINTS)
    reward_DQ = np.maximum.accumulate(fits.draws(grid_Q, size, at.problems), axis=1)
    picked = at.rng.integers(len(reward_DQ), size=len(at.keep_D))
    out = np.empty(len(at.keep_D))
    for i, (draw, level) in enumerate(zip(picked, at.keep_D, strict=True)):
        curve = reward_DQ[draw]
        if level >= curve[-1]:
            out[i] = level
            continue
        place = int(np.searchsorted(curve, level, side="right"))
        reached = float(grid_Q[max(place - 1, 0)])
        out[i] = max(float(np.interp(reached + at.left, grid_Q, curve)), level)
    return out


def _followed(options: Sequence[Option], worth: float) -> Name:
    """The option with the largest reward, a guess only where it leads by `worth`.

    Going on unless another is better by `worth`, stopping if none gains it.
    """
    named = {one.name: one for one in options}
    stop, go_on = named["stop"], named["go-on"]
    best = max(options, key=lambda one: one.reward - (worth if one.basis == "guess" else 0.0))
    if best.reward - stop.reward < worth:
        return "stop"
    return "go-on" if best.reward - go_on.reward < worth else best.name


def _span(values: Iterable[float]) -> str:
    low, high = min(given := list(values)), max(given)
    return f"{low:g}" if low == high else f"{low:g} to {high:g}"


def _trouble(live: LiveRun) -> tuple[str, ...]:
    codes = [note.code for note in live.findings if note.code in SICK | FALLING and note.severity != "info"]
    return tuple(dict.fromkeys(codes))


def _plan(planner: Planner, candidate: Candidate, budget: Budget) -> Plan:
    """The run's own sizes for what is left. Without predictions: those of a plan begin at the base model."""
    request = Request(budget, Fixed(), min_update_steps=1)
    found = planner.plan_for(candidate, request)
    text = "continues a run from a checkpoint; its rewards are predicted by the replan, not by the plan"
    note = Note(
        "plan-continues-a-run",
        "info",
        "This plan continues a run from a checkpoint: rollouts, warm-up and the KL term's reference begin there. Its "
        "rewards stand in the replan.",
    )
    kept: dict[str, Any] = {"predicted_reward": None, "reward_interval": None, "group_size_interval": None}
    return replace(
        found,
        **kept,
        law_group_size=None,
        extrapolation=None,
        alternatives=(),
        optima=(),
        passport=None,
        fits=None,
        saved_verdict=Verdict("undecided", text),
        notes=(note, *(one for one in found.notes if one.code in ("recipe-assumed", "recipe-differs"))),
    )


def _notes(
    found: Forecast,
    checkpoint: SavedCheckpoint | None,
    options: Sequence[Option],
    trouble: Sequence[str],
    factor_asked: float,
) -> list[Note]:
    notes: list[Note] = []
    again = {one.name: _returns(one.name, frozenset(trouble)) for one in options if one.changes}
    if again:
        text = (
            f"{', '.join(again)}: after a change of recipe the curve so far is only a prior. Their intervals are "
            f"widened by guesses: a pace that varies by {CHANGED:.0%}"
            + (f", trouble that returns with probability {_span(again.values())}" if found.onset else "")
            + ". Forecast again after ten evaluations."
        )
        notes.append(Note("old-fit-is-a-prior", "warning", text, {"options": list(again), "again": again}))
    if found.card.keep.path is None:
        text = (
            "No checkpoint up to the trouble was found on disk: no option rolls back, and nothing counts as "
            "salvageable. If there are checkpoints elsewhere, name their folder: --checkpoints FOLDER."
        )
        notes.append(Note("no-healthy-checkpoint", "warning", text))
    elif checkpoint is not None and checkpoint.loadable is None:
        text = f"{checkpoint.path} does not load as a Hugging Face model. Convert it first" + (
            " with the first command." if checkpoint.convert is not None else " with your framework's tool."
        )
        notes.append(Note("checkpoint-needs-converting", "info", text, {"path": str(checkpoint.path)}))
    if factor_asked > FURTHEST:
        text = f"What is left is {factor_asked - 1:.1f} times what was spent; the forecast reaches {FURTHEST:g}x."
        notes.append(Note("remaining-beyond-forecast", "warning", text, {"factor": factor_asked}))
    return notes
