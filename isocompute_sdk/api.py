"""The public functions: the only module that composes the layers for a caller."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from inspect import signature
from os import PathLike
from shlex import quote
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar, cast, overload

import numpy as np

from isocompute_sdk.errors import FitError, PlanError, RecordError, did_you_mean, typed_value
from isocompute_sdk.fitting.arguments import metric_range, whole_number
from isocompute_sdk.fitting.fits import Fits, FitsSet
from isocompute_sdk.fitting.forecast import Forecast, forecast_run
from isocompute_sdk.fitting.measured_runs import (
    MeasuredRuns,
    check_bounds,
    edge_note,
    start_rewards,
    still_note,
    still_runs,
)
from isocompute_sdk.fitting.paper.analysis import PaperOptions, fit_paper
from isocompute_sdk.fitting.surface.method import SurfaceOptions, fit_joint
from isocompute_sdk.health.detectors import check_health
from isocompute_sdk.health.findings import falls_in
from isocompute_sdk.health.live_run import in_sweep, live_run
from isocompute_sdk.laws import find_published, hedged_prior, published_names
from isocompute_sdk.metrics import is_average
from isocompute_sdk.notes import Note, unique
from isocompute_sdk.phrases import counted, listed
from isocompute_sdk.records.asked import unasked
from isocompute_sdk.records.columns import CONTEXT_FIELDS
from isocompute_sdk.records.comparable import (
    EVAL_SET,
    UNSTATED,
    check_pool,
    common_context,
    confounded,
    one_rule,
    refuse_mixed_contexts,
    settings_of,
    split_by_start,
    taken_for_granted,
    unlike_at_start,
    varied_sets,
)
from isocompute_sdk.records.grouping import kin, measured_as
from isocompute_sdk.records.reward_metrics import (
    TRAIN_SET,
    headline,
    is_training_reward,
    measured_in,
    no_rise,
    no_rise_note,
    training_reward_note,
)
from isocompute_sdk.records.runset import check_runs

if TYPE_CHECKING:
    from isocompute_sdk.planning import Plan
    from isocompute_sdk.records import RunSeries, RunSet
    from isocompute_sdk.specs import RunSpec

P = ParamSpec("P")
T = TypeVar("T")

OPTIONS: dict[str, type[PaperOptions] | type[SurfaceOptions]] = {"surface": SurfaceOptions, "paper": PaperOptions}
"""The methods of `fit`, with their options."""
AXES = {"rollouts": "log10_rollouts", "tokens": "log10_tokens"}
"""Values of the option `compute`, and what they mean to a method."""
DEFAULT_SEED = 0
"""Seed if none is given: the same input gives the same bits."""


@overload
def fit(
    runs: RunSet,
    metric: str | None = ...,
    eval_set: str | None = ...,
    method: Literal["surface", "paper"] = ...,
    rng: np.random.Generator | int | None = ...,
    draws: int = ...,
    bounds: tuple[float, float] = ...,
    pool: Sequence[str] = ...,
    **options: Any,
) -> Fits: ...
@overload
def fit(
    runs: RunSet,
    metric: Sequence[str],
    eval_set: str | None = ...,
    method: Literal["surface", "paper"] = ...,
    rng: np.random.Generator | int | None = ...,
    draws: int = ...,
    bounds: tuple[float, float] = ...,
    pool: Sequence[str] = ...,
    **options: Any,
) -> FitsSet: ...
def fit(
    runs: RunSet,
    metric: str | Sequence[str] | None = None,
    eval_set: str | None = None,
    method: Literal["surface", "paper"] = "surface",
    rng: np.random.Generator | int | None = None,
    draws: int = 200,
    bounds: tuple[float, float] = (0.0, 1.0),
    pool: Sequence[str] = (),
    **options: Any,
) -> Fits | FitsSet:
    """Fit reward curves, frontier and allocation laws to runs.

    Args:
        runs: evaluations of at least two group sizes; for a surface one is enough, with a note.
        metric: metric to fit, or several for a `FitsSet`, of which the first decides a plan. None: avg@4, else the
            evaluation that most runs have, else the training reward; the choice is a note.
        eval_set: evaluation set; None for the only one of the metric.
        method: `surface`: all runs fitted together in (C, n, B_p), with intervals and a passport;
            `paper`: record-breaking points, monotone curves, upper envelope, sigmoid of n*.
        rng: generator or seed of the draws; None for a fixed seed. `refit` repeats a seed, and uses the fixed one
            after a generator, whose state it does not know.
        draws: draws from the posterior of a surface, at least 1. The paper's method has no draws and no intervals.
        bounds: range of the metric; a value outside is an error.
        pool: context fields that may differ between the runs, e.g. `("learning_rate",)`; `"unstated"`: what some
            runs do not state is as in the others; `"eval_set"`: evaluation sets of different names, one for each run,
            are the same problems. `n_problems` needs no mention for a surface if it varies at one group size or more:
            it is then an input.
        **options: of both methods: `compute` ("rollouts" or "tokens"), `max_rollouts_per_batch`,
            `rollouts_per_batch`; of the surface's: `without`, a family of `sweeps()` that its prior is not to have
            learned from; of the paper's: `points` ("records" or "all"), `bin_width`, `curve`.

    Raises:
        FitError: runs of different context, a value outside `bounds`, too few group sizes or evaluations,
            unknown options.
        RecordError: a metric or evaluation set that the runs do not have.
    """
    check_runs(runs)
    options = {name: value.item() if isinstance(value, np.generic) else value for name, value in options.items()}
    question = _Question(
        eval_set=eval_set,
        settings=_settings(method, options),
        bounds=metric_range(bounds),
        pool=check_pool(pool),
        rng=rng if rng is None or isinstance(rng, np.random.Generator) else whole_number("rng", rng),
        draws=whole_number("draws", draws),
        options=options,
    )
    if EVAL_SET in question.pool:
        runs = runs.on_one_set(eval_set)
    if metric is None:
        return question.answer(runs, *unasked(runs, eval_set))
    if isinstance(metric, str):
        return question.answer(runs, metric)
    return FitsSet({name: question.answer(runs, name) for name in _metrics(metric)})


@dataclass(frozen=True)
class _Question:
    """What `fit` was asked, checked; it is answered metric by metric."""

    eval_set: str | None
    settings: PaperOptions | SurfaceOptions
    bounds: tuple[float, float]
    pool: tuple[str, ...]
    rng: np.random.Generator | int | None
    draws: int
    options: Mapping[str, Any]
    """Options of the method as they were given."""

    @property
    def method(self) -> Literal["surface", "paper"]:
        return "paper" if isinstance(self.settings, PaperOptions) else "surface"

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments as JSON, for `refit`; a generator cannot be repeated and is left out."""
        asked: dict[str, Any] = {
            "eval_set": self.eval_set,
            "draws": self.draws,
            "bounds": list(self.bounds),
            "pool": list(self.pool),
        }
        # A default that was given makes the same fits, and is the same argument.
        asked |= {"compute": self.settings.compute.removeprefix("log10_"), **self.options, "method": self.method}
        seed = DEFAULT_SEED if self.rng is None else self.rng
        return asked if isinstance(seed, np.random.Generator) else {**asked, "rng": seed}

    def answer(self, runs: RunSet, metric: str, chosen: Sequence[Note] = ()) -> Fits:
        """Fit one metric, and say what it rests on; `chosen` are notes on how it was chosen."""
        _refuse_absent(runs, metric)
        sets = {self.eval_set} if self.eval_set is not None else {*runs.filter(metric=metric).eval_sets}
        if not chosen and (is_training_reward(metric) or sets == {TRAIN_SET}):
            chosen = (training_reward_note(metric, asked=True),)
        try:
            measured = MeasuredRuns.of(runs, metric, self.eval_set, stand_in=self.method == "surface")
        except RecordError as error:
            with suppress(RecordError):
                together = runs.filter(metric=metric).on_one_set().series(metric, self.eval_set)
                start, noise = start_rewards({one.run_id: one for one in together}, self.bounds)
                # Where rewards at step 0 differ, the base models or the problems do: no question of names.
                if len(split_by_start(start, noise)) < 2:
                    hint = f"If they are the same problems: pool=({EVAL_SET!r},); else choose one: eval_set=..."
                    raise FitError(error.message, hint).in_shell(
                        f"If they are the same problems: --pool {EVAL_SET}; else {str(error.shell_hint)[:1].lower()}"
                        f"{str(error.shell_hint)[1:]}",
                        [f"--pool {EVAL_SET}"],
                    ) from None
            raise
        series = measured.series
        rule = None if "learning_rate" in self.pool else one_rule(series)
        inputs = ["n_problems"] if self.method == "surface" and varied_sets(series) else []
        # How an evaluation samples says nothing of training rewards, nor how many it averages of a mean.
        means = is_average(metric) or "@" not in metric
        aside = ["eval_samples", "eval_temperature"] if sets == {TRAIN_SET} else ["eval_samples"] * means
        refuse_mixed_contexts(series, [*self.pool, *inputs, *aside, *(["learning_rate"] if rule else [])])
        check_bounds(series, metric, self.bounds)
        context = common_context(series)
        flat = no_rise([one.value_T for one in series])
        sick = check_health(runs.filter(run_id=[one.run_id for one in series]), metric, self.eval_set).notes
        still, at_edge = still_runs(series, falls_in(sick)) if self.method == "surface" else ([], [])
        found = self._fit(replace(measured, series=tuple(one for one in series if one.run_id not in still)))
        by_run = {one.run_id: one for one in series}
        notes = [
            *([no_rise_note(metric, len(series))] if flat else []),
            *([] if "model" in self.pool else unlike_at_start(*start_rewards(by_run, self.bounds))),
            *chosen,
            *([still_note(metric, still)] if still else []),
            *([edge_note(metric, at_edge)] if at_edge else []),
            *found.notes,
            *([] if found.passport is None else found.passport.ends_note(falls_in(sick))),
            *(taken_for_granted(series, CONTEXT_FIELDS) if UNSTATED in self.pool else []),
            *confounded(series, self.pool),
            *_on_logs(runs, series),
            *_of_other_rewards(runs, measured),
            *sick,
        ]
        return replace(
            found,
            notes=unique(notes),
            eval_set=self.eval_set,
            model=context.get("model"),
            n_problems=context.get("n_problems"),
            settings=settings_of(series),
            flat_runs=len(series) if flat else None,
            options=self.arguments,
            runs=runs.to_dict(),
        )

    def _fit(self, measured: MeasuredRuns) -> Fits:
        # Every metric starts from the seed, so that its fit is the same alone and among others.
        rng = np.random.default_rng(DEFAULT_SEED if self.rng is None else self.rng)
        metric, bounds, axis = measured.metric, self.bounds, self.settings.compute
        if isinstance(self.settings, PaperOptions):
            return fit_paper(measured.for_surface(axis), metric, bounds, self.settings)
        try:
            return fit_joint(measured.for_surface(axis), metric, bounds, self.settings, self.draws, rng)
        except np.linalg.LinAlgError as error:
            raise FitError(
                f"no surface can be fitted to {metric} within bounds = ({bounds[0]:g}, {bounds[1]:g}): {error}",
                "Give bounds near the values; look for values that are equal in many digits.",
            ) from error


def _refuse_absent(runs: RunSet, metric: str) -> None:
    """Raise on a metric that no run has, with the one that a question without a metric would take."""
    if metric in runs.metrics:
        return
    from isocompute_sdk.ingest.formats.registry import read_as

    likely = headline(measured_in(runs.to_polars()))
    name = read_as(metric, (info.framework for info in runs.runs()))
    meant = f"{metric} of the log is read as {name}. " if name in runs.metrics else did_you_mean(metric, runs.metrics)
    raise RecordError(
        f"metric: received {metric!r}; accepted: {', '.join(runs.metrics)}",
        f"{meant}Use one of the accepted names{'' if likely is None else f', such as metric={likely[0]!r}'}.",
        options=() if likely is None else (f"--metric {quote(likely[0])}",),
    ).in_shell(f"{meant}Use one of the accepted names{'' if likely is None else f': --metric {quote(likely[0])}'}.")


def refit(fits: Fits, more_runs: RunSet, **changes: Any) -> Fits:
    """Fit again on the runs behind `fits` and `more_runs` together, with the same options unless changed.

    Raises:
        FitError: fits without runs (published laws).
    """
    return fit(runs_of(fits, "add to").concat(more_runs), fits.metric, **{**fits.options, **changes})


def runs_of(fits: Fits, purpose: str) -> RunSet:
    """The runs behind fits."""
    if fits.table is None:
        raise FitError(
            f"these fits ({fits.source or fits.method}) hold no runs to {purpose}",
            "Fit your own runs with fit(runs); published laws hold none.",
        )
    return fits.table


def forecast(
    runs: RunSet | Fits,
    run_id: str | None = None,
    metric: str | None = None,
    eval_set: str | None = None,
    *,
    to: float = 4.0,
    bounds: tuple[float, float] = (0.0, 1.0),
    level: float = 0.8,
    checkpoints: Sequence[tuple[int, str]] = (),
    rng: np.random.Generator | int | None = None,
) -> Forecast:
    """Forecast one run that is going on, together with the other runs of its sweep if they are given.

    Args:
        runs: the run, alone or among others, which are fitted with it if they may be compared; or fits of them, which
            give the other arguments but `to`, `level`, `checkpoints` and `rng`.
        run_id: its name; None for the only one.
        metric: metric to forecast; None: avg@4, else the evaluation that most runs have, else the training reward.
        eval_set: evaluation set; None for the only one of the metric.
        to: largest multiple of the run's compute.
        bounds: range of the metric.
        level: coverage of the intervals.
        checkpoints: (step, folder) of the checkpoints on disk, from which the one to keep is chosen.
        rng: generator or seed of the draws; None for a fixed seed.

    Raises:
        FitError: too few evaluations, values outside `bounds`, `to` out of range, or fits without runs or of another
            metric.
        RecordError: an unknown run, metric or evaluation set, or several runs without `run_id`.
    """
    fits = runs if isinstance(runs, Fits) else None
    if not isinstance(runs, Fits):
        fits = _fit_together(check_runs(runs), run_id, metric, eval_set, bounds=bounds, rng=rng)
    if fits is not None:
        metric, eval_set, bounds = fits.metric, fits.eval_set, fits.bounds
    table = check_runs(runs) if fits is None else runs_of(fits, "forecast")
    live = live_run(table, run_id, metric, eval_set, checkpoints)
    bounds = metric_range(bounds)
    check_bounds(live.series, live.metric, bounds, table)
    live, known = (live, None) if fits is None else in_sweep(live, fits)
    return forecast_run(live, to, bounds=bounds, level=level, known=known, rng=rng)


def _fit_together(
    runs: RunSet,
    run_id: str | None,
    metric: str | None,
    eval_set: str | None,
    *,
    bounds: tuple[float, float],
    rng: np.random.Generator | int | None,
) -> Fits | None:
    """Fits of a run together with the others; None if they may not be compared, or do not tell of its metric."""
    if len(runs.run_ids) < 2:
        # Its surface is that of its fit, without the checks of a sweep.
        return None
    try:
        fits = fit(runs, metric, eval_set, bounds=bounds, rng=rng)
    except (FitError, RecordError):
        return None
    return fits if run_id is None or measured_as(fits.metric, runs.filter(run_id=run_id).metrics) else None


def published(name: str) -> Fits:
    """Laws of the paper by name, e.g. `qwen2.5-7b-instruct/guru-math-easy`; see `list_published()`.

    Constants of one model on one data set: every plan from them has a note about it, except for that model.

    Raises:
        FitError: unknown name.

    Examples:
        >>> law = iso.published("qwen2.5-7b-instruct/guru-math-easy").law("group_size")
        >>> round(float(law.predict(1e6)))
        118
    """
    return find_published(str(name))


def list_published() -> tuple[str, ...]:
    """Names that `published` accepts."""
    return published_names()


def published_prior() -> Fits:
    """The prior over all five published model-and-set pairs, for plans without data."""
    return hedged_prior()


def _takes(other: Callable[P, Any]) -> Callable[[Callable[..., T]], Callable[P, T]]:
    """Give a function that hands on its arguments the parameters of `other`."""

    def give(function: Callable[..., T]) -> Callable[P, T]:
        vars(function)["__signature__"] = signature(other).replace(return_annotation="str")
        return function

    return give


def run_spec(
    plan: Plan,
    backend: str = "openrlhf",
    *,
    model: str | PathLike[str] | None = None,
    train_data: str | PathLike[str] = "train.jsonl",
    eval_data: str | PathLike[str] = "validation.jsonl",
    reward: str | PathLike[str] = "reward.py",
    output_dir: str | PathLike[str] = "runs/plan",
    gpus: int | None = None,
    **options: Any,
) -> RunSpec:
    """The run of a plan.

    Args:
        plan: the plan.
        backend: a name that `registry.available()` lists.
        model: hub name or local folder; by default the plan's.
        train_data: training problems, JSONL.
        eval_data: validation problems, JSONL.
        reward: Python file with the reward function, `file.py` or `file.py:function`.
        output_dir: folder for everything the run writes.
        gpus: number of GPUs; by default that of the plan's throughput, or the most that the plan allows.
        **options: `seed`, `prompt_key`, `answer_key`, `evaluation` (the plan's own schedule by default),
            `update_steps` (those that the plan's approval allows by default), and options of the backend.

    Raises:
        PlanError: no model is known, or no run's reward rises and nobody chose the sizes.
    """
    from isocompute_sdk.planning import Plan
    from isocompute_sdk.specs import Data, RunSpec

    if not isinstance(cast("Any", plan), Plan):
        raise PlanError(
            f"plan: received {typed_value(plan)}; accepted: a Plan",
            "Planner(fits).allocate(budget) makes one; Plan.load(path) reads one.",
        )
    if plan.approval is not None and plan.fits is not None and plan.fits.no_rise:
        raise PlanError(
            f"no run's reward rises beyond noise, so the sizes of this plan mean nothing (n = {plan.group_size})",
            "To train sizes of your choice: change_plan(plan, {'group_size': N, 'update_steps': M}).",
        ).in_shell(
            "To train sizes of your choice:",
            ["--change group_size=N", "--change problems_per_batch=BP", "--change update_steps=M"],
        )
    chosen = model if model is not None else plan.model
    if chosen is None:
        raise PlanError("the plan names no model", "Add <--model | model=> with a hub name or a local folder.")
    steps = options.pop("update_steps", None) or plan.approved_steps
    evaluation = options.pop("evaluation", None) or plan.evaluation
    if steps < plan.update_steps:
        # The last step is the check.
        evaluation = evaluation.replace(every_steps=min(evaluation.every_steps, steps))
    return RunSpec(
        run_id=f"n{plan.group_size}-bp{plan.problems_per_batch}-m{steps}",
        model=_text(chosen),
        data=Data(
            train=_text(train_data),
            validation=_text(eval_data),
            reward=_text(reward),
            prompt_key=options.pop("prompt_key", None),
            answer_key=options.pop("answer_key", None),
            n_problems=plan.n_problems,
        ),
        recipe=plan.recipe,
        group_size=plan.group_size,
        problems_per_batch=plan.problems_per_batch,
        update_steps=steps,
        seed=options.pop("seed", 0),
        evaluation=evaluation,
        hardware=plan.hardware.replace(gpus=gpus or plan.gpus or max(plan.hardware.gpu_counts)),
        backend=backend,
        options=options,
        output_dir=_text(output_dir),
    )


@_takes(run_spec)
def launch_script(plan: Plan, backend: str = "openrlhf", **options: Any) -> str:
    """A bash script that trains the plan when started in a folder that holds the named files.

    Args:
        plan: the plan.
        backend: a name that `registry.available()` lists.
        **options: as of `run_spec`: `model`, `train_data`, `eval_data`, `reward`, `output_dir`, `seed`, ...

    Raises:
        PlanError: no model is known.
        BackendError: unknown backend, or one that cannot do what the recipe asks.
    """
    from isocompute_sdk.training import registry

    run = run_spec(plan, backend, **options)
    return _with_header(registry.load(backend).script(run), plan, differing_settings(plan, run))


def differing_settings(plan: Plan, run: RunSpec) -> list[dict[str, Any]]:
    """Values of the recipe in which the plan's runs, the plan and a run of it differ; empty for plans without runs.

    Returns:
        Mappings with `name`, `runs` (a list), `plan` and `script`.
    """
    from isocompute_sdk.planning.inheritance import planned_values, side_by_side

    size = run.group_size, run.problems_per_batch
    script = planned_values(run.recipe, size, run.evaluation, run.data.n_problems, run.model)
    return [
        {"name": name, "runs": list(runs), "plan": planned, "script": written}
        for name, runs, planned, written in side_by_side(plan.settings, script)
    ]


def _with_header(script: str, plan: Plan, differing: Sequence[Mapping[str, Any]]) -> str:
    """The script with its refusal or check, what was assumed and what differs, before its notes or its second line."""
    from isocompute_sdk.planning.inheritance import RECIPE_FIELDS, assumed, shown
    from isocompute_sdk.training.rendering import comment

    refused = plan.approval is not None and plan.approval.kind == "do-not"
    first = f"{plan.approval.label}: {plan.approval.reason}" if plan.approval and refused else plan.check
    lines = [*textwrap.wrap(first, 98), ""] if first else []
    if unknown := assumed(plan.settings):
        lines += [
            "ASSUMED, because neither you nor the runs gave them. To change: isocompute launch PLAN --change NAME=VALUE"
        ]
        for row in unknown:
            remark = " (unknown: give that of your runs)" if row.name == "learning_rate" else ""
            lines.append(f"  {RECIPE_FIELDS.get(row.name, row.name)} = {shown((row.plan,))}{remark}")
        lines.append("")
    if differing:
        wide = max(len(row["name"]) for row in differing)
        lines += ["Recipe settings that differ (curves and predicted reward are the runs' own): runs | plan | script"]
        lines += [
            f"  {row['name']:<{wide}}  {shown(row['runs'])} | {shown([row['plan']])} | {shown([row['script']])}"
            for row in differing
        ]
        lines.append("")
    header = "".join(f"{_commented(line, comment)}\n" if line else "#\n" for line in lines)
    at = script.find("\n# Notes:") + 1 or script.find("\n") + 1
    return script[:at] + header + script[at:]


def _commented(line: str, comment: Callable[[str], str]) -> str:
    """One comment line that keeps its columns; `comment` escapes what is not printable."""
    return f"# {line}" if line.isprintable() else comment(line)


def _text(path: str | PathLike[str]) -> str:
    # Other types are refused by `RunSpec`.
    return os.fspath(path) if isinstance(path, os.PathLike) else path


def _metrics(metric: object) -> tuple[str, ...]:
    names = tuple(cast("Iterable[object]", metric)) if isinstance(metric, Iterable) else (metric,)
    # The order of a set differs between processes.
    if isinstance(metric, Set) or not names or not all(isinstance(name, str) for name in names):
        received = "an empty list" if names == () else repr(metric)[:60]
        raise FitError(
            f"metric is {received}; accepted: a metric name or a list of them", "See runs.metrics for their names."
        )
    return cast("tuple[str, ...]", names)


def _settings(method: str, options: Mapping[str, Any]) -> PaperOptions | SurfaceOptions:
    if method not in tuple(OPTIONS):
        raise FitError(f"method = {method!r}; accepted: {', '.join(map(repr, OPTIONS))}", "Use one of the two.")
    known = {f.name for f in fields(OPTIONS[method])}
    unknown = sorted(set(options) - known)
    if unknown:
        elsewhere = [other for other, kind in OPTIONS.items() if set(unknown) <= {f.name for f in fields(kind)}]
        raise FitError(
            f"no option of method {method!r}: {', '.join(unknown)}; accepted: {', '.join(sorted(known))}",
            f"They belong to method={elsewhere[0]!r}." if elsewhere else "Remove them, or correct their names.",
        )
    changed = {name: value for name, value in options.items() if value is not None}
    if "compute" in changed:
        if changed["compute"] not in tuple(AXES):
            raise FitError(f"compute = {changed['compute']!r}; accepted: {', '.join(AXES)}", "Use one of the two.")
        changed["compute"] = AXES[changed["compute"]]
    return OPTIONS[method](**changed)


def _of_other_rewards(runs: RunSet, measured: MeasuredRuns) -> list[Note]:
    """That runs are not used, since they have another reward than the metric, or have it on another set only."""
    metric = measured.metric
    absent = {*runs.run_ids} - {one.run_id for one in measured.series}
    others = runs.filter(run_id=absent) if absent else None
    theirs = None if others is None else headline(measured_in(others.to_polars()))
    if others is None or theirs is None or theirs == (metric, TRAIN_SET):
        return []
    name, where = theirs
    names, is_training = others.filter(metric=name, eval_set=where).run_ids, is_training_reward(name)
    have, option = name, f"--rename {quote(f'{name}={metric}')}"
    if where != measured.eval_set and name in kin(metric, [name]):
        metric, have, option = f"{metric} on {measured.eval_set}", f"{name} on {where}", f"--pool {EVAL_SET}"
    text = f"{counted(len(names), 'run')} not used ({listed(names, 4)}): without {metric}, with {have}."
    if not is_training:
        what = "reward" if have == name else "set of problems"
        text += f" If that is the same {what}, add {option}."
    return [Note("run-left-out", "info" if is_training else "warning", text, {"metric": name, "runs": [*names]})]


def _on_logs(runs: RunSet, series: Sequence[RunSeries]) -> list[Note]:
    """Notes of the readers on the logs of these runs, one per code."""
    used = {one.run_id for one in series}
    by_code: dict[str, list[Note]] = {}
    for note in runs.notes:
        # Of a copy, its original is among the runs.
        if note.data.get("same_as", note.data.get("run_id")) in {None, *used}:
            by_code.setdefault(note.code, []).append(note)
    found: list[Note] = []
    for same in by_code.values():
        first, *others = same
        if others:
            more = [str(note.data.get("run_id", "?")) for note in others]
            message = f"{first.message} The same in {counted(len(more), 'more run')}: {', '.join(more[:5])}."
            first = replace(first, message=message, data={**first.data, "also": more})
        found.append(first)
    return found
