"""The public functions: the only module that composes the layers for a caller."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence, Set
from dataclasses import fields, replace
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal, cast, overload

import numpy as np

from isocompute_sdk.errors import FitError, PlanError
from isocompute_sdk.fitting.fits import Fits
from isocompute_sdk.fitting.fits_set import FitsSet
from isocompute_sdk.fitting.inputs import check_bounds, paper_run, series_of, stood_in, surface_run
from isocompute_sdk.fitting.paper.analysis import PaperOptions, fit_paper
from isocompute_sdk.fitting.surface.method import SurfaceOptions, fit_joint
from isocompute_sdk.laws import find_published, hedged_prior, published_names
from isocompute_sdk.notes import Note, unique
from isocompute_sdk.records.comparable import (
    check_pool,
    common_context,
    confounded,
    one_rule,
    refuse_mixed_contexts,
    rule_note,
    varied_sets,
)
from isocompute_sdk.records.runset import check_runs

if TYPE_CHECKING:
    from isocompute_sdk.planning import Plan
    from isocompute_sdk.records import RunSeries, RunSet
    from isocompute_sdk.specs import RunSpec

OPTIONS: dict[str, type[PaperOptions] | type[SurfaceOptions]] = {"surface": SurfaceOptions, "paper": PaperOptions}
"""The methods of `fit`, with what each can be told."""
LARGEST_VALUE = 1e100
"""Values of a metric beyond it would overflow when they are squared and added up."""
DEFAULT_SEED = 0
"""Seed of the bootstrap where no generator is given: the same input gives the same bits."""


@overload
def fit(
    runs: RunSet,
    metric: str = ...,
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
    metric: str | Sequence[str] = "avg@4",
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
        runs: evaluations of at least two group sizes (one is enough for a surface, which then says so).
        metric: metric to fit, or several for a `FitsSet` (the first decides where a planner takes it).
        eval_set: evaluation set; None where the metric has only one.
        method: `surface`: every run fitted together in (C, n, B_p), with intervals and a passport;
            `paper`: record-breaking points, monotone curves, upper envelope, sigmoid of n*.
        rng: generator or seed of the bootstrap; None for a fixed one. `refit` repeats a seed; for a generator,
            which has moved on since, it takes the fixed one.
        draws: draws from the posterior (surface; at least 1) or bootstrap replicates (paper; 0 for no intervals).
        bounds: range of the metric; a value outside is an error.
        pool: context fields that may differ between the runs, e.g. `("learning_rate",)`. A surface takes `n_problems`
            as an input without being told where it varies at one group size at least.
        **options: of both methods: `compute` ("rollouts" or "tokens"), `max_rollouts_per_batch`,
            `rollouts_per_batch`; of the paper's: `points` ("records" or "all"), `bin_width`, `curve`.

    Raises:
        FitError: runs of different context, a value outside `bounds`, too few group sizes or evaluations,
            unknown options.
        RecordError: a metric or evaluation set that the runs do not have.
    """
    check_runs(runs)
    if method not in tuple(OPTIONS):
        raise FitError(f"method = {method!r}; accepted: {', '.join(map(repr, OPTIONS))}", "Use one of the two.")
    low, high = metric_range(bounds)
    options = {name: value.item() if isinstance(value, np.generic) else value for name, value in options.items()}
    settings = _options(method, options)
    pool = check_pool(pool)
    seed = DEFAULT_SEED if rng is None else rng if isinstance(rng, np.random.Generator) else whole_number("rng", rng)
    draws = whole_number("draws", draws)
    # Context, options and runs travel with the fits, so that `refit` can repeat them on more runs.
    asked = {"eval_set": eval_set, "draws": draws, "bounds": [low, high], "pool": list(pool), **options}
    asked |= {"method": method}
    asked |= {"rng": seed} if rng is not None and isinstance(seed, int) else {}
    table = runs.to_dict()

    def one(name: str) -> Fits:
        series, standing_in = series_of(runs, name, eval_set, stand_in=method == "surface")
        rule = None if "learning_rate" in pool else one_rule(series)
        free = [*pool, *(["n_problems"] if method == "surface" and varied_sets(series) else [])]
        refuse_mixed_contexts(series, [*free, *(["learning_rate"] if rule else [])])
        check_bounds(series, name, (low, high))
        # A seed is used afresh for every metric, so that each is what it would be if fitted alone.
        generator = np.random.default_rng(seed)
        if isinstance(settings, PaperOptions):
            paper_runs = [paper_run(s, settings.compute) for s in series]
            found = fit_paper(paper_runs, name, (low, high), settings, draws, generator)
        else:
            surface_runs = [surface_run(s, settings.compute, standing_in.get(s.run_id)) for s in series]
            try:
                found = fit_joint(surface_runs, name, (low, high), settings, draws, generator)
            except np.linalg.LinAlgError as error:
                raise FitError(
                    f"no surface can be fitted to {name} within bounds = ({low:g}, {high:g}): {error}",
                    "Give bounds that are near the values; look for values that are the same to many digits.",
                ) from error
        context = common_context(series)
        return replace(
            found,
            notes=unique(
                [
                    *found.notes,
                    *confounded(series, pool),
                    *stood_in(name, standing_in),
                    *([rule_note(rule)] if rule else []),
                    *_on_logs(runs, series),
                    *_health(runs, series, name, eval_set, found.notes),
                ]
            ),
            eval_set=eval_set,
            model=context.get("model"),
            n_problems=context.get("n_problems"),
            options=asked,
            runs=table,
        )

    if isinstance(metric, str):
        return one(metric)
    return FitsSet({name: one(name) for name in _metrics(metric)})


def refit(fits: Fits, more_runs: RunSet, **changes: Any) -> Fits:
    """Fit again on the runs behind `fits` and `more_runs` together, with the same options unless changed.

    Raises:
        FitError: fits without runs (published laws, or the fits inside a plan).
    """
    from isocompute_sdk.records import RunSet

    if fits.runs is None:
        raise FitError(
            f"these fits ({fits.source or fits.method}) hold no runs to add to",
            "Fit your own runs with fit(runs); published laws and fits inside a plan cannot be refitted.",
        )
    options = dict(fits.options)
    options["bounds"] = tuple(options["bounds"])
    return fit(RunSet.from_dict(fits.runs).concat(more_runs), fits.metric, **{**options, **changes})


def published(name: str) -> Fits:
    """Laws of the paper by name, e.g. `qwen2.5-7b-instruct/guru-math-easy`; see `list_published()`.

    Constants of one model on one data set: every plan from them says so unless it is for that model.

    Raises:
        FitError: unknown name.
    """
    return find_published(str(name))


def list_published() -> tuple[str, ...]:
    """Names that `published` accepts."""
    return published_names()


def published_prior() -> Fits:
    """The hedged prior over all five published model-and-set pairs: what to use without data."""
    return hedged_prior()


def launch_script(
    plan: Plan,
    backend: str = "openrlhf",
    *,
    model: str | PathLike[str] | None = None,
    train_data: str | PathLike[str] = "train.jsonl",
    eval_data: str | PathLike[str] = "validation.jsonl",
    reward: str | PathLike[str] = "reward.py",
    output_dir: str | PathLike[str] = "runs/plan",
    **options: Any,
) -> str:
    """A bash script that trains the plan when started in a folder that holds the named files.

    Args:
        plan: the plan.
        backend: a name that `registry.available()` lists.
        model: hub name or local folder; by default the one the plan was made for.
        train_data: training problems, JSONL.
        eval_data: validation problems, JSONL.
        reward: Python file with the reward function, `file.py` or `file.py:function`.
        output_dir: folder for everything the run writes.
        **options: `seed`, `prompt_key`, `answer_key`, `evaluation` (the plan's own schedule by default), and options
            of the backend.

    Raises:
        PlanError: no model is known.
        BackendError: unknown backend, or one that cannot do what the recipe asks.
    """
    from isocompute_sdk.training import registry

    run = run_spec(
        plan,
        backend,
        model=model,
        train_data=train_data,
        eval_data=eval_data,
        reward=reward,
        output_dir=output_dir,
        **options,
    )
    return registry.load(backend).script(run)


def run_spec(
    plan: Plan,
    backend: str = "openrlhf",
    *,
    model: str | PathLike[str] | None = None,
    train_data: str | PathLike[str] = "train.jsonl",
    eval_data: str | PathLike[str] = "validation.jsonl",
    reward: str | PathLike[str] = "reward.py",
    output_dir: str | PathLike[str] = "runs/plan",
    **options: Any,
) -> RunSpec:
    """The run that a plan stands for; arguments as in `launch_script`."""
    from isocompute_sdk.planning import Plan
    from isocompute_sdk.specs import Data, Evaluation, RunSpec

    if not isinstance(cast("Any", plan), Plan):
        raise PlanError(
            f"plan: received {' '.join(repr(plan).split()):.60} ({type(plan).__name__}); accepted: a Plan",
            "Planner(fits).allocate(budget) makes one; Plan.load(path) reads one.",
        )
    chosen = model if model is not None else plan.model
    if chosen is None:
        raise PlanError("the plan names no model", "Pass model= (--model), a hub name or a local folder.")
    evaluation = options.pop("evaluation", None) or plan.evaluation
    return RunSpec(
        run_id=f"n{plan.group_size}-bp{plan.problems_per_batch}-m{plan.update_steps}",
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
        update_steps=plan.update_steps,
        seed=options.pop("seed", 0),
        evaluation=Evaluation() if evaluation is None else evaluation,
        hardware=plan.hardware,
        backend=backend,
        options=options,
        output_dir=_text(output_dir),
    )


def _text(path: str | PathLike[str]) -> str:
    return os.fspath(path) if isinstance(path, os.PathLike) else path


def _metrics(metric: object) -> tuple[str, ...]:
    names = tuple(cast("Iterable[object]", metric)) if isinstance(metric, Iterable) else (metric,)
    # A set has no first, and another order in every process.
    if isinstance(metric, Set) or not names or not all(isinstance(name, str) for name in names):
        received = "an empty list" if names == () else repr(metric)[:60]
        raise FitError(
            f"metric is {received}; accepted: a metric name or a list of them", "See runs.metrics for their names."
        )
    return cast("tuple[str, ...]", names)


def metric_range(bounds: tuple[float, float]) -> tuple[float, float]:
    """Lowest and highest value of a metric as floats.

    Raises:
        FitError: not two finite numbers that increase, or so far apart that their squares overflow.
    """
    try:
        if isinstance(bounds, str):
            raise TypeError
        low, high = (float(b) for b in bounds)
    except (TypeError, ValueError, OverflowError):
        low, high = np.nan, np.nan
    if not (max(abs(low), abs(high)) < LARGEST_VALUE and low < high):
        raise FitError(
            f"bounds = {' '.join(repr(bounds).split()):.80}; accepted: (lowest, highest) value of the metric, "
            f"finite and increasing, each below {LARGEST_VALUE:g}",
            "Give the range of the metric.",
        )
    return low, high


def whole_number(name: str, value: object) -> int:
    """A whole number from 0 up as an int.

    Raises:
        FitError: anything else.
    """
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 0:
        extra = ", or a numpy Generator" if name == "rng" else ""
        raise FitError(
            f"{name} = {value!r}; accepted: a whole number, 0 or more{extra}", f"Correct {name}, or leave it out."
        )
    return int(value)


def _options(method: str, options: dict[str, Any]) -> PaperOptions | SurfaceOptions:
    known = {f.name for f in fields(OPTIONS[method])}
    unknown = sorted(set(options) - known)
    if unknown:
        elsewhere = [other for other, kind in OPTIONS.items() if set(unknown) <= {f.name for f in fields(kind)}]
        raise FitError(
            f"unknown option(s) {', '.join(unknown)} for method {method!r}; accepted: {', '.join(sorted(known))}",
            f"They belong to method={elsewhere[0]!r}." if elsewhere else "Remove them, or correct their names.",
        )
    changed = {name: value for name, value in options.items() if value is not None}
    if "compute" in changed:
        axes = {"rollouts": "log10_rollouts", "tokens": "log10_tokens"}
        if changed["compute"] not in tuple(axes):
            raise FitError(f"compute = {changed['compute']!r}; accepted: {', '.join(axes)}", "Use one of the two.")
        changed["compute"] = axes[changed["compute"]]
    return OPTIONS[method](**changed)


def _health(
    runs: RunSet, series: Sequence[RunSeries], name: str, eval_set: str | None, notes: Sequence[Note]
) -> list[Note]:
    """What the health of the runs behind a fit has to say that the fit itself has not said."""
    from isocompute_sdk.health import check_health

    used = [one.run_id for one in series]
    seen = runs if len(used) == len(runs.run_ids) else runs.filter(run_id=used)
    said = {note.code for note in notes}
    return [note for note in check_health(seen, name, eval_set).notes if note.code not in said]


def _on_logs(runs: RunSet, series: Sequence[RunSeries]) -> list[Note]:
    """What readers found in the logs of these runs: one note a code, however many runs it was found in."""
    used = {one.run_id for one in series}
    by_code: dict[str, list[Note]] = {}
    for note in runs.notes:
        about = {note.data.get("run_id"), *note.data.get("parts", ())}
        if about & {None, *used}:
            by_code.setdefault(note.code, []).append(note)
    found: list[Note] = []
    for same in by_code.values():
        first, *others = same
        if others:
            more = [str(note.data.get("run_id", "?")) for note in others]
            message = f"{first.message} The same was found {len(more)} more time(s), in: {', '.join(more[:5])}."
            first = replace(first, message=message, data={**first.data, "also": more})
        found.append(first)
    return found
