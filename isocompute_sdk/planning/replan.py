"""`Replan`: onset of trouble, checkpoint to go back to, what is sunk, and the options for what is left."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from pydantic import Field

from isocompute_sdk.documents import Document, Saved
from isocompute_sdk.errors import FieldError, PlanError
from isocompute_sdk.fitting.arrays import Array, Count, NotNegative, Number, Positive
from isocompute_sdk.fitting.fits import Fits
from isocompute_sdk.fitting.forecast import FURTHEST, Checkpoint, Forecast, LiveRun, forecast_run
from isocompute_sdk.fitting.surface.model import UNIT_SHAPES, logistic
from isocompute_sdk.fitting.surface.surface import DEFAULT_PRIOR
from isocompute_sdk.health.live_run import in_sweep, live_run
from isocompute_sdk.ingest.saved_checkpoints import SavedCheckpoint, by_step
from isocompute_sdk.notes import Note, unique
from isocompute_sdk.planning.allocate import Request
from isocompute_sdk.planning.candidates import Candidate, Fixed
from isocompute_sdk.planning.decide import decide
from isocompute_sdk.planning.plan import Plan, Verdict
from isocompute_sdk.planning.questions import SavedPlan
from isocompute_sdk.specs import Budget
from isocompute_sdk.tolerances import Tolerances
from isocompute_sdk.training.registry import backend_of

if TYPE_CHECKING:
    from isocompute_sdk.planning.planner import Planner
    from isocompute_sdk.records import RunSet

USUAL_BACKEND = "openrlhf"
"""Backend of commands for runs of an unknown framework, or of one without a backend."""
Name = Literal[
    "go-on",
    "roll-back-terms-on",
    "roll-back-terms-off",
    "halve-learning-rate",
    "another-group-size",
    "stop",
]
Basis = Literal["measured-in-paper", "seen-in-your-data", "guess"]
Change = str | int | float


@dataclass(frozen=True)
class Option:
    """One thing to do with the rest of the budget."""

    name: Name
    title: str
    """The option in a few words, with its numbers."""
    basis: Basis
    """Where its effect was seen. Its reward rests on this run in any case, and on the trouble not returning."""
    why: str
    """The evidence, with its source."""
    start: Checkpoint | None
    """Where it starts; None for the run as it is."""
    changes: Mapping[str, Change]
    """What differs from the run, by the names of `isocompute launch --change`."""
    group_size: Count
    problems_per_batch: Count
    update_steps: Annotated[int, Field(ge=0)]
    """Updates that what is left pays for; 0 for stopping."""
    rollouts: NotNegative
    """Rollouts that it spends."""
    reward: Number
    """Predicted reward of the best checkpoint at its end."""
    low: Number
    high: Number

    def __post_init__(self) -> None:
        if not self.low <= self.reward <= self.high:
            raise FieldError("reward", self.reward, f"within {self.low} to {self.high}")


@dataclass(frozen=True)
class Replan(Saved):
    """Options for the rest of a run's budget."""

    run_id: str
    metric: str
    group_size: Count
    problems_per_batch: Count
    spent: Positive
    """Rollouts that the run has sampled."""
    remaining: Positive
    """Rollouts that are left."""
    onset: Checkpoint | None
    """Where trouble began; None if none was found."""
    trouble: tuple[str, ...]
    """Codes of the findings behind it."""
    checkpoint: Checkpoint
    """Last healthy point; its `path` is the folder on disk, None if none was found."""
    loadable: str | None
    """Folder of that checkpoint that loads as a model; None if its weights need converting or none exists."""
    convert: str | None
    """Command that converts it; None if not needed or not known."""
    salvageable: NotNegative
    """Rollouts up to a healthy checkpoint that exists."""
    options: tuple[Option, ...]
    """By predicted reward, largest first."""
    follow: Name
    """The option to follow."""
    forecast: Forecast
    """The run as it is."""
    level: Annotated[float, Field(ge=0, le=1)] = 0.8
    """Coverage of the intervals."""
    plan: SavedPlan | None = None
    """Plan of the run's own sizes and recipe for what is left, from which the commands start."""
    notes: tuple[Note, ...] = field(default=())
    backend: str = USUAL_BACKEND
    """Backend of its commands: that of the run's framework, if its log or configuration names one."""

    @property
    def sunk(self) -> float:
        """Rollouts after the last healthy checkpoint that exists."""
        return self.spent - self.salvageable

    def option(self, name: str) -> Option:
        """An option by name.

        Raises:
            PlanError: an unknown name.
        """
        for one in self.options:
            if one.name == name:
                return one
        absent = "" if self.checkpoint.path else "; others start from a checkpoint, and none was found on disk"
        raise PlanError(
            f"option {name!r}; here: {', '.join(one.name for one in self.options)}{absent}",
            "Use one of these names." if not absent else "Use one of these, or name the folder of the checkpoints.",
        )

    def commands(self, name: str | None = None, plan: str = "plan.json", backend: str | None = None) -> tuple[str, ...]:
        """Shell commands that carry out an option; none for going on and stopping, which need no launch.

        They run in the folder with the training data, the validation data and the reward file.

        Args:
            name: the option; None for the one to follow.
            plan: file that holds `self.plan`.
            backend: training framework; None for `self.backend`.

        Raises:
            PlanError: an unknown option, or one whose checkpoint is not on disk or does not load as a model.
        """
        chosen = self.option(self.follow if name is None else name)
        if chosen.name in ("go-on", "stop"):
            return ()
        folder = self.loadable
        converting = [] if self.convert is None else [self.convert]
        if folder is None and self.convert is not None:
            folder = f"{self.checkpoint.path}/merged"
        if folder is None:
            raise PlanError(
                f"option {chosen.name} starts from {self.checkpoint.path}; accepted: a checkpoint that loads as a "
                "Hugging Face model",
                "Convert its weights into a folder with config.json and *.safetensors.",
            )
        changes = " ".join(f"--change {quote(f'{key}={value}')}" for key, value in chosen.changes.items())
        script = f"{chosen.name}.sh"
        launch = (
            f"isocompute launch {quote(plan)} --backend {quote(backend or self.backend)} --model {quote(folder)}"
            f"{' ' + changes if changes else ''} --output-dir {quote(f'runs/{chosen.name}')} --script {script}"
        )
        return (*converting, launch, f"bash {script}")

    def summary(self) -> str:
        """The answer as text: trouble, checkpoint, sunk cost, one line per option, notes."""
        run = f"{self.run_id} (n = {self.group_size}, B_p = {self.problems_per_batch})"
        lines = [f"{run}: {self.spent:,.0f} rollouts spent, {self.remaining:,.0f} left"]
        if self.onset is None:
            lines.append("trouble: none found")
        else:
            codes = ", ".join(self.trouble) or "the reward falls"
            lines.append(f"trouble: {codes}, from {_place(self.onset)} on")
        lines.append(
            f"last healthy checkpoint: {_place(self.checkpoint)}"
            + ("; not found on disk" if self.checkpoint.path is None else f", {self.checkpoint.path}")
        )
        lines.append(f"rollouts: {self.salvageable:,.0f} salvageable, {self.sunk:,.0f} sunk")
        for one in self.options:
            mark = "->" if one.name == self.follow else "  "
            interval = f"{one.reward:.3f} ({one.low:.3f} to {one.high:.3f})"
            lines.append(f"{mark} {one.name:<20} {interval}  {one.basis}: {one.title}. {one.why}")
        lines += [f"[{note.severity}] {note.code}: {note.message}" for note in self.notes]
        return "\n".join(lines)


REPLAN = Document("replan", 1, Replan, derived=("sunk",), remedy="Ask again: isocompute forecast LOGS --remaining 2M.")


def _place(at: Checkpoint) -> str:
    return f"{at.rollouts:,.0f} rollouts" if at.step is None else f"step {at.step:,.0f} ({at.rollouts:,.0f} rollouts)"


EASY_FROM = 0.2
"""Base reward from which the advice for Easy holds. The paper's Easy set lies in .3 to .6 and its Hard set in 0 to
.0625 (section 3); between them nothing was measured."""
TERMS = 1e-3
"""KL and entropy coefficients of the easy preset."""
OF_TERMS = frozenset({"entropy-collapse", "entropy-explosion", "kl-drift"})
"""Findings that the KL term and the entropy bonus answer for; the learning rate answers for other sicknesses."""
MIN_BEFORE = 6
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
    notes = [*found.notes, *_notes(found, at_step, options, factor_asked=(reached + left) / reached)]
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
    steps, _ = planner.pricing(budget).affordable_steps(batch)
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
    unseen = until is not None and len(before) < MIN_BEFORE
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
    gain_D = _usual_gain(at) if at.healthy_D is None else at.healthy_D - at.keep_D
    terms = _terms(at)
    if terms is not None:
        name, title, why, changes = terms
        options.append(option(name, title, "measured-in-paper", why, at.keep_D + gain_D, changes))
    rate = series.context.get("learning_rate") or at.planner.recipe.learning_rate(n * at.problems)
    half = float(f"{float(rate) / 2:.3g}")
    title, why = f"back to the checkpoint with a learning rate of {half:g}", "Smaller steps drift less."
    halved = option("halve-learning-rate", title, "guess", why, at.keep_D + gain_D, {"learning_rate": half})
    sick = {one.name for one in at.live.troubles if one.kind == "sick"}
    # Of equal rewards the remedy of what was found comes first.
    options.insert(2 if sick and not sick & OF_TERMS else len(options), halved)
    return [*options, *_another_size(at, option)]


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


def _another_size(at: _Situation, option: Callable[..., Option]) -> list[Option]:
    """The n that the same decision names for a whole run, from the checkpoint on; none if the run has it."""
    fits, n = at.planner.fits, at.live.one.group_size
    spent = max(float(at.live.one.rollouts_T[-1]), 1.0)
    request = Request(Budget(rollouts=spent + at.left), Fixed(problems_per_batch=at.problems), beyond_grid=0, slots=0)
    try:
        best = n if fits.surface is None else decide(at.planner, request).group_size
    except PlanError:
        return []
    if best == n or best * at.problems > at.left:
        return []
    title = f"back to the checkpoint, then n = {best} for {int(at.left // (best * at.problems)):,} updates"
    why = f"Your runs at n = {best}, from the point of their curve at which they had this reward."
    changes: dict[str, Change] = {"group_size": best}
    return [
        option("another-group-size", title, "seen-in-your-data", why, _along_surface(at, fits, best), changes, best)
    ]


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
    """The option with the largest reward: going on unless another is better by `worth`, stopping if none gains it."""
    named = {one.name: one for one in options}
    stop, go_on = named["stop"], named["go-on"]
    best = max(options, key=lambda one: one.reward)
    if best.reward - stop.reward < worth:
        return "stop"
    return "go-on" if best.reward - go_on.reward < worth else best.name


def _trouble(live: LiveRun) -> tuple[str, ...]:
    return tuple(dict.fromkeys(one.name for one in live.troubles))


def _plan(planner: Planner, candidate: Candidate, budget: Budget) -> Plan:
    """The run's own sizes for what is left. Without predictions: those of a plan begin at the base model."""
    request = Request(budget, Fixed(), min_update_steps=1)
    found = planner.plan_for(candidate, request)
    text = "continues a run from a checkpoint; its rewards are predicted by the replan, not by the plan"
    kept: dict[str, Any] = {"predicted_reward": None, "reward_interval": None, "group_size_interval": None}
    return replace(
        found,
        **kept,
        law_group_size=None,
        extrapolation=None,
        alternatives=(),
        passport=None,
        fits=None,
        verdict=Verdict("undecided", text),
        notes=(),
    )


def _notes(
    found: Forecast,
    checkpoint: SavedCheckpoint | None,
    options: Sequence[Option],
    factor_asked: float,
) -> list[Note]:
    notes: list[Note] = []
    changed = [one.name for one in options if one.changes]
    if changed:
        text = (
            f"{', '.join(changed)}: after a change of recipe the curve before the trouble is only a prior. Their "
            "rewards hold if the trouble does not return. Forecast again after ten evaluations."
        )
        notes.append(Note("old-fit-is-a-prior", "warning", text, {"options": changed}))
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
