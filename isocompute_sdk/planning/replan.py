"""`Replan`: onset of trouble, checkpoint to go back to, what is sunk, and the options for what is left."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
from pydantic import Field

from isocompute_sdk.documents import Document, Saved
from isocompute_sdk.errors import FieldError, PlanError
from isocompute_sdk.fitting.arrays import Array, Count, NotNegative, Number, Positive
from isocompute_sdk.fitting.fit_parts import Reached
from isocompute_sdk.fitting.forecast import FEW, Checkpoint, Forecast, forecast_run
from isocompute_sdk.fitting.run_surface import FURTHEST, LiveRun
from isocompute_sdk.fitting.surface.answers import estimate
from isocompute_sdk.fitting.surface.posterior import DEFAULT_DRAWS
from isocompute_sdk.fitting.surface.prior import DEFAULT_PRIOR
from isocompute_sdk.fitting.surface.surface import UNIT_SHAPES, Surface, logistic
from isocompute_sdk.health.live_run import in_sweep, live_run
from isocompute_sdk.ingest.saved_checkpoints import SavedCheckpoint
from isocompute_sdk.notes import Note, unique
from isocompute_sdk.phrases import chance_text, counted, multiple
from isocompute_sdk.planning.allocate import Request
from isocompute_sdk.planning.basis import Basis
from isocompute_sdk.planning.decide import decide, plan_for
from isocompute_sdk.planning.plan import Plan
from isocompute_sdk.planning.plan_parts import Verdict
from isocompute_sdk.planning.pricing import Candidate
from isocompute_sdk.planning.questions import SavedPlan
from isocompute_sdk.planning.verdict import trouble_of
from isocompute_sdk.records.grouping import measured_as
from isocompute_sdk.records.runset import check_runs
from isocompute_sdk.specs import Budget
from isocompute_sdk.training.registry import backend_of

if TYPE_CHECKING:
    from isocompute_sdk.records import RunSet

USUAL_BACKEND = "openrlhf"
"""Backend of commands for runs of an unknown framework, or of one without a backend."""
Name = Literal[
    "go-on",
    "roll-back-terms-on",
    "roll-back-terms-off",
    "halve-learning-rate",
    "new-run",
    "stop",
]
Evidence = Literal["measured-in-paper", "seen-in-your-data", "beyond-your-data", "guess"]
Change = str | int | float


@dataclass(frozen=True)
class Option:
    """One thing to do with the rest of the budget."""

    name: Name
    title: str
    """The option in a few words, with its numbers."""
    basis: Evidence
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
    newest: str | None
    """Folder of the newest checkpoint that loads as a model, from which the run goes on; None if none exists."""
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
    best: Reached | None = None
    """The best of the other runs, if it stands above all runs."""
    backend: str = USUAL_BACKEND
    """Backend of its commands: that of the run's framework, if its log or configuration names one."""

    @property
    def sunk(self) -> float:
        """Rollouts after the last healthy checkpoint that exists."""
        return self.spent - self.salvageable

    def option(self, name: str) -> Option:
        """An option by name."""
        for one in self.options:
            if one.name == name:
                return one
        absent = "" if self.checkpoint.path else "; others start from a checkpoint, and none was found on disk"
        raise PlanError(
            f"option {name!r}; accepted: {', '.join(one.name for one in self.options)}{absent}",
            "Use one of these names." if not absent else "Use one of these, or name the folder of the checkpoints.",
        )

    def commands(self, name: str | None = None, plan: str = "plan.json", backend: str | None = None) -> tuple[str, ...]:
        """Shell commands that carry out an option; none for stopping, a new run, and going on without a checkpoint.

        To go on needs a launch only where the run has ended. They run in the folder with the training data, the
        validation data and the reward file.

        Args:
            name: the option; None for the one to follow.
            plan: file that holds `self.plan`.
            backend: training framework; None for `self.backend`.
        """
        chosen = self.option(self.follow if name is None else name)
        if chosen.name in ("stop", "new-run") or (chosen.name == "go-on" and self.checkpoint.path is None):
            return ()
        if self.checkpoint.path is None:
            raise PlanError(
                f"option {chosen.name} starts from {self.checkpoint.place}, whose checkpoint was not found",
                "Name the folder of the checkpoints (checkpoints=).",
            ).in_shell("Name their folder: --checkpoints FOLDER.")
        folder = self.newest if chosen.name == "go-on" and self.newest is not None else self.loadable
        converting = [] if folder is not None or self.convert is None else [self.convert]
        if converting:
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
        assumed = ", assumed: --set problems_per_batch=BP" if self.forecast.problems_per_batch is None else ""
        run = f"{self.run_id} (n = {self.group_size}, B_p = {self.problems_per_batch}{assumed})"
        lines = [f"{run}: {self.spent:,.0f} rollouts spent, {self.remaining:,.0f} left"]
        if self.onset is None and self.forecast.rises:
            lines.append("trouble: none found")
        elif self.onset is not None:
            codes = ", ".join(self.trouble) or "the reward falls"
            lines.append(f"trouble: {codes}, from {self.onset.place} on")
        if self.checkpoint.path is not None:
            lines.append(f"last healthy checkpoint: {self.checkpoint.place}, {self.checkpoint.path}{self._unloadable}")
            lines.append(f"rollouts: {self.salvageable:,.0f} up to it, {self.sunk:,.0f} after it")
        if self.forecast.card.action != "go-on":
            lines.append(f"{self.forecast.card.action}: {self.forecast.card.reason}")
        shown = self.options if self.forecast.rises or self.forecast.lost else ()
        if shown:
            lines.append("rewards of the best checkpoint (for a new run, the mean over runs):")
        if shown and self.best is not None:
            above = self.best.reward > max(one.reward for one in shown)
            more = "; no option is expected to end above it" if above else ""
            lines.append(f"   another run, {self.best.run_id}: {self.best}{more}")
        highest, worth = max((round(one.reward, 3) for one in shown), default=0.0), self.forecast.flat.worth
        for one in shown:
            mark = "->" if one.name == self.follow else "  "
            interval = f"{one.reward:.3f} ({one.low:.3f} to {one.high:.3f})"
            lower = one.name == self.follow and 0 < highest - round(one.reward, 3) < worth
            why = f" Taken, since no other option gains {worth:g} more." if lower else ""
            lines.append(f"{mark} {one.name:<20} {interval}  {one.basis}: {one.title}. {one.why}{why}")
        lines += [note.line for note in self.notes]
        return "\n".join(lines)

    @property
    def _unloadable(self) -> str:
        """That the checkpoint must be converted first, and with what; empty if it loads, or is not on disk."""
        if self.checkpoint.path is None or self.loadable is not None:
            return ""
        if self.follow == "go-on" and self.newest is not None:
            return f", which does not load as a Hugging Face model: going on starts from {self.newest}"
        tool = "your framework's tool" if self.convert is None else "the first command"
        return f", which does not load as a Hugging Face model: convert it with {tool}"


REPLAN = Document(
    "replan",
    1,
    Replan,
    derived=("sunk",),
    remedy="Ask again: <isocompute forecast LOGS --remaining 2M | planner.replan(runs, remaining)>.",
)


EASY_FROM, HARD_UP_TO = 0.2, 0.0625
"""Base rewards from which the advice for Easy holds, and up to which that for Hard does. The paper's Easy set lies in
.3 to .6 and its Hard set in 0 to .0625 (section 3); between them nothing was measured."""
TERMS = 1e-3
"""KL and entropy coefficients of the easy preset."""
OF_TERMS = frozenset({"entropy-collapse", "entropy-explosion", "kl-drift"})
"""Findings that the KL term and the entropy bonus answer for; the learning rate answers for other sicknesses."""
MIN_BEFORE = 6
"""Evaluations before the onset that the healthy curve needs."""


def replan(
    basis: Basis,
    runs: RunSet,
    remaining: Budget | float | str,
    *,
    run_id: str | None,
    checkpoints: Sequence[SavedCheckpoint],
    level: float,
    rng: np.random.Generator | int | None,
) -> Replan:
    """Options for the rest of a run's budget; see `Planner.replan`."""
    mine = check_runs(runs) if run_id is None else check_runs(runs).filter(run_id=run_id)
    sets = {run.context.get("n_problems") for run in mine.runs()}
    if len(sets) == 1 and (own := sets.pop()) is not None:
        # A new run would train on the same problems.
        basis = basis.for_problem_set(int(own))
    fits = basis.fits
    metric = measured_as(fits.metric, mine.metrics)
    saved = [(one.step, str(one.path)) for one in checkpoints]
    live = live_run(runs, run_id, metric, fits.eval_set if metric is not None else None, saved)
    series = live.one
    if series.group_size < 2:
        raise PlanError(
            f"run {series.run_id!r} has n = 1; accepted: 2 or more",
            "Forecast it without <--remaining | remaining=>: a single rollout has no group to be compared with.",
        )
    problems = series.problems_per_batch or basis.recipe.min_problems_per_batch
    batch, budget = series.group_size * problems, Budget.parse(remaining)
    steps, _ = basis.pricing(budget).affordable_steps(batch)
    if steps < 1:
        raise PlanError(
            f"remaining = {budget}: less than one update of {batch:,} rollouts",
            "Give <--remaining | remaining=> more, or stop and keep the best checkpoint.",
        )
    left, reached = float(steps * batch), float(series.rollouts_T[-1])
    factor = (reached + left) / reached
    # Further than a run is forecast, going on and a new run cannot be compared.
    new_run, is_approved = _new_run(basis, budget, level) if factor <= FURTHEST else (None, False)
    live, known = in_sweep(live, fits)
    asked = float(np.clip(factor, 1.05, FURTHEST))
    forecast = forecast_run(live, asked, bounds=fits.bounds, level=level, known=known, judged_at=asked, rng=rng)
    options = _options(
        basis, live, forecast, known, (problems, steps), level, np.random.default_rng(0 if rng is None else rng)
    )
    if new_run is not None and forecast.rises:
        options.append(new_run)
    followed = [one for one in options if one is not new_run or is_approved]
    keep, follow = forecast.card.keep, _followed(forecast, followed, fits.tolerances.equal)
    on_disk = keep.path is not None
    # Of two forms of one step the one that loads comes last.
    folder = next((one for one in reversed(checkpoints) if on_disk and one.step == keep.step), None)
    sampled = next((info.rollouts_spent for info in runs.runs() if info.run_id == series.run_id), None)
    return Replan(
        run_id=series.run_id,
        metric=live.metric,
        group_size=series.group_size,
        problems_per_batch=problems,
        spent=max(sampled or reached, reached),
        remaining=left,
        onset=forecast.onset,
        trouble=tuple(dict.fromkeys(one.name for one in live.troubles)),
        checkpoint=keep,
        loadable=None if folder is None or folder.loadable is None else str(folder.loadable),
        convert=None if folder is None else folder.convert,
        newest=next((str(one.loadable) for one in reversed(checkpoints) if one.loadable is not None), None),
        salvageable=keep.rollouts if on_disk else 0.0,
        options=tuple(sorted(options, key=lambda one: -one.reward)),
        follow=follow,
        best=live.other,
        forecast=replace(forecast, notes=()),
        level=level,
        plan=_plan(basis, Candidate(series.group_size, problems, steps, "remaining"), budget),
        notes=unique([*forecast.notes, *_notes(forecast, options, factor)]),
        backend=backend_of(runs.filter(run_id=series.run_id)) or USUAL_BACKEND,
    )


def _new_run(basis: Basis, budget: Budget, level: float) -> tuple[Option | None, bool]:
    """A new run by the plan for what is left, where the fits compare n and it gains over the runs so far.

    None too where its recipe must change. Beside it whether that plan is approved, in part or as a whole.
    """
    fits = basis.fits
    if fits.surface is None or len(fits.group_sizes) < 2:
        return None, False
    try:
        plan = decide(basis, Request(budget))
    except PlanError:
        return None, False
    if trouble_of(fits, plan.group_size) or plan.gains_nothing or plan.approval is None:
        return None, False
    at = fits.predict(plan.compute, plan.group_size, plan.problems_per_batch, level)
    sizes = (plan.group_size, plan.problems_per_batch, plan.update_steps)
    title = "n = {}, B_p = {}, {:,} updates from the base model".format(*sizes)
    why = f"isocompute allocate plans it for what is left: {plan.approval.label}."
    seen = plan.group_size in fits.group_sizes and (plan.extrapolation or 0.0) <= 1.0
    basis_of: Evidence = "seen-in-your-data" if seen else "beyond-your-data"
    reward = float(at.mean), float(at.low), float(at.high)
    option = Option("new-run", title, basis_of, why, None, {}, *sizes, plan.rollouts, *reward)
    return option, plan.approval.kind != "do-not"


def _options(
    basis: Basis,
    live: LiveRun,
    forecast: Forecast,
    known: Surface | None,
    size: tuple[int, int],
    level: float,
    rng: np.random.Generator,
) -> list[Option]:
    """What can be done with B_p problems per batch and the steps that are left, each with its reward over the draws."""
    series, keep, bounds = live.one, forecast.card.keep, basis.fits.bounds
    n, (problems, steps) = series.group_size, size
    left, reached = float(steps * n * problems), float(series.rollouts_T[-1])
    kept = max(keep.rollouts, 1.0)

    def option(
        name: Name,
        title: str,
        basis: Evidence,
        why: str,
        reward: tuple[float, float, float],
        changes: dict[str, Change],
    ) -> Option:
        own = 0 if name == "stop" else steps
        start = None if name == "go-on" or (name == "stop" and keep.path is None) else keep
        return Option(name, title, basis, why, start, changes, n, problems, own, float(own * n * problems), *reward)

    others = len(forecast.borrowed)
    curve = f"The run's curve in the fit of {others + 1} runs" if others else "The run's own curve"
    falls = f"probability that it falls by then {chance_text(forecast.falling_ahead)}"
    why = f"{curve}; {'it has fallen' if forecast.fell else falls}."
    longest = max(float(one.rollouts_T[-1]) for one in live.series)
    basis_on: Evidence = "seen-in-your-data" if reached + left <= longest else "beyond-your-data"
    far = forecast.ahead[-1]
    ahead = (far.best, far.best_low, far.best_high)
    shown = f", its reward at {FURTHEST:g}x the compute so far" if left > (FURTHEST - 1) * reached else ""
    going_on = option("go-on", f"n = {n} for {counted(steps, 'more update')}{shown}", basis_on, why, ahead, {})
    best = keep.reward or 0.0
    # What is sick may still be the best model.
    better = keep.path is not None and forecast.onset is not None and forecast.reward > best
    title, why = "keep the model as it is now, spend nothing more", "No checkpoint was found on disk to go back to."
    why = f"Better than the last healthy checkpoint ({best:.3f})." if better else why
    now = (forecast.reward, forecast.low, forecast.high)
    stop = option("stop", title, "seen-in-your-data", why, now, {})
    if keep.path is None and forecast.card.action != "change-something":
        return [going_on, stop]
    keep_D = live.surface(bounds, known=known).draws(np.array([kept]))[:, 0]
    keep_D = np.clip(keep_D + best - keep_D.mean(), *bounds)
    if keep.path is not None and not better:
        title, why = "keep the checkpoint, spend nothing more", "Its reward by the curve."
        _, low, high = estimate(keep_D, level)
        stop = option("stop", title, "seen-in-your-data", why, (best, min(low, best), max(high, best)), {})
    if forecast.card.action == "go-on":
        return [going_on, stop]
    gain_D = _gain_without_trouble(live, forecast, known, kept, left, bounds, rng)
    changed = estimate(np.clip(np.resize(keep_D, len(gain_D)) + gain_D, *bounds), level)
    remedies: list[Option] = []
    if (terms := _terms(basis, live)) is not None:
        name, title, why, changes = terms
        remedies.append(option(name, title, "measured-in-paper", why, changed, changes))
    known_rate = series.context.get("learning_rate")
    rate = float(known_rate or basis.recipe.learning_rate(n * problems))
    half, why = float(f"{rate / 2:.3g}"), "Smaller steps drift less."
    why += "" if known_rate else f" The run's rate is unknown; {rate:.3g} is assumed."
    title = f"back to the checkpoint with a learning rate of {half:g}"
    halved = option("halve-learning-rate", title, "guess", why, changed, {"learning_rate": half})
    sick = {one.name for one in live.troubles if one.kind == "sick"}
    # Of equal rewards the remedy of what was found comes first.
    remedies.insert(0 if sick and not sick & OF_TERMS else len(remedies), halved)
    return [going_on, stop, *remedies]


def _gain_without_trouble(
    live: LiveRun,
    forecast: Forecast,
    known: Surface | None,
    kept: float,
    left: float,
    bounds: tuple[float, float],
    rng: np.random.Generator,
) -> Array:
    """What the rest gains from the checkpoint on if the trouble had not come, by draw."""
    series, until = live.one, None if forecast.onset is None else forecast.onset.rollouts
    last = until or float(series.rollouts_T[-1])
    # No further than the run as it is would be forecast.
    end = min(kept + left, FURTHEST * float(series.rollouts_T[-1]))
    before = np.count_nonzero((series.rollouts_T > 0) & (series.rollouts_T <= last * 1.0001))
    if until is None or before >= MIN_BEFORE:
        # The curve before the trouble, as it would go on without it.
        healthy = live.surface(bounds, known=known if until is None else None, until=until)
        healthy = healthy if until is None else healthy.without_fall()
        best_D2 = healthy.draws(np.array([kept, end]), at=False)
        return best_D2[:, 1] - best_D2[:, 0]
    # What runs of all sets gain from such a point on, by the prior of their curves.
    prior, normal_3D = DEFAULT_PRIOR, rng.standard_normal((3, DEFAULT_DRAWS))
    room_D = (bounds[1] - float(series.value_T[0])) * logistic(prior.share_level_sd * normal_3D[0])
    midpoint_D, steepness_D = prior.midpoint_level_sd * normal_3D[1], np.exp(prior.slope_sd * normal_3D[2])
    ahead = float(np.log(end / kept))
    now_D, then_D = (UNIT_SHAPES["hill"](steepness_D * (at - midpoint_D))[0] for at in (0.0, ahead))
    return room_D * (then_D - now_D)


def _terms(basis: Basis, live: LiveRun) -> tuple[Name, str, str, dict[str, Change]] | None:
    """KL term and entropy bonus on for an easy set, off for a hard one; None between, or where they are so already."""
    low, high = basis.fits.bounds
    if low != 0.0:
        # Then the reward is no share of problems that are solved.
        return None
    names, base = ("kl_coef", "entropy_coef"), float(live.one.value_T[0]) / high
    now = [live.one.context.get(name) for name in names]
    known = None not in now
    kl, entropy = (float(getattr(basis.recipe, n) if v is None else v) for n, v in zip(names, now, strict=True))
    if base >= EASY_FROM:
        if any(one.name == "entropy-explosion" for one in live.troubles):
            return None
        if known and kl > 0 and entropy > 0:
            return None
        on: dict[str, Change] = {"kl_coef": kl or TERMS, "entropy_coef": entropy or TERMS}
        why = f"Section 3: where the base model solves .3 to .6, use both or neither; this run began at {base:.2f}."
        return "roll-back-terms-on", "back to the checkpoint with KL term and entropy bonus on", why, on
    if base > HARD_UP_TO or (known and kl == 0 and entropy == 0):
        return None
    why = f"Section 3: both off where the base model solves at most {HARD_UP_TO}; this run began at {base:.3f}."
    off: dict[str, Change] = {"kl_coef": 0.0, "entropy_coef": 0.0}
    return "roll-back-terms-off", "back to the checkpoint with KL term and entropy bonus off", why, off


def _followed(forecast: Forecast, options: Sequence[Option], worth: float) -> Name:
    """What the forecast's card says, by the remedy with the largest reward; a new run where that gains `worth` more.

    Where the card says to stop, a remedy is followed that gains `worth`.
    """
    named = {one.name: one for one in options}
    remedies = [one for one in options if one.changes]
    chosen = named["go-on" if forecast.card.action == "go-on" else "stop"]
    if remedies:
        best = max(remedies, key=lambda one: one.reward)
        if forecast.card.action == "change-something":
            # Nobody pays for a model that is expected to end below those that cost less.
            chosen = chosen if max(named["go-on"].reward, chosen.reward) - best.reward >= worth else best
        elif best.reward - chosen.reward >= worth:
            chosen = best
    new_run = named.get("new-run", chosen)
    return new_run.name if new_run.reward - chosen.reward >= worth else chosen.name


def _plan(basis: Basis, candidate: Candidate, budget: Budget) -> Plan:
    """The run's own sizes for what is left. Without predictions: those of a plan begin at the base model."""
    text = "continues a run from a checkpoint; its rewards are predicted by the replan, not by the plan"
    return replace(
        plan_for(basis, candidate, Request(budget, min_update_steps=1)),
        predicted_reward=None,
        reward_interval=None,
        group_size_interval=None,
        law_group_size=None,
        extrapolation=None,
        alternatives=(),
        passport=None,
        fits=None,
        verdict=Verdict("undecided", text),
        notes=(),
    )


def _notes(forecast: Forecast, options: Sequence[Option], factor: float) -> list[Note]:
    notes: list[Note] = []
    if changed := [one.name for one in options if one.changes]:
        text = (
            f"{', '.join(changed)}: after a change of recipe the curve before the trouble is only a prior. The "
            f"rewards shown hold if the trouble does not return. Forecast again after {FEW} evaluations."
        )
        notes.append(Note("forecast-uncertain", "warning", text, {"options": changed}))
    if forecast.card.keep.path is None and (forecast.rises or forecast.lost):
        text = (
            "No healthy checkpoint was found on disk to go back to. If that of "
            f"{forecast.card.keep.place} lies elsewhere, name its folder: --checkpoints FOLDER."
        )
        notes.append(Note("no-healthy-checkpoint", "warning", text))
    if factor > FURTHEST:
        text = (
            f"What is left is {multiple(factor - 1)} times what was spent: rewards are shown for {FURTHEST:g}x the "
            "compute so far, and no new run is compared. isocompute allocate plans one."
        )
        notes.append(Note("forecast-uncertain", "warning", text, {"factor": factor}))
    return notes
