"""The public functions: the only module that composes the layers for a caller."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np

from isocompute_sdk.errors import FitError, PlanError
from isocompute_sdk.fitting.fits import Fits, FitsSet
from isocompute_sdk.fitting.paper import PaperOptions, Run, fit_paper
from isocompute_sdk.fitting.shapes import Array
from isocompute_sdk.fitting.surface.data import SurfaceRun
from isocompute_sdk.fitting.surface.method import SurfaceOptions, fit_joint
from isocompute_sdk.laws import find_published, hedged_prior, published_names
from isocompute_sdk.notes import Note, unique
from isocompute_sdk.records.learning_rates import learning_rate_rule, rule_note

if TYPE_CHECKING:
    from isocompute_sdk.planner import Plan
    from isocompute_sdk.records import RunSeries, RunSet
    from isocompute_sdk.specs import RunSpec

OPTIONS: dict[str, type[PaperOptions] | type[SurfaceOptions]] = {"surface": SurfaceOptions, "paper": PaperOptions}
"""The methods of `fit`, with what each can be told."""
BATCHES_FOR_A_RULE = 3
"""Batch sizes over which learning rates must follow a rule to be pooled unasked: two agree by chance too easily."""
_AVERAGE = re.compile(r"avg@([1-9][0-9]*)")
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
        method: `surface`: every run fitted together in (C, n, B_p), with calibrated intervals and a passport;
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
    if method not in OPTIONS:
        raise FitError(f"method = {method!r}; accepted: {', '.join(map(repr, OPTIONS))}")
    low, high = _bounds(bounds)
    options = {name: value.item() if isinstance(value, np.generic) else value for name, value in options.items()}
    settings = _options(method, options)
    pool = (pool,) if isinstance(pool, str) else tuple(pool)
    check_pool(pool)
    seed = DEFAULT_SEED if rng is None else rng if isinstance(rng, np.random.Generator) else _whole("rng", rng)
    draws = _whole("draws", draws)
    # Context, options and runs travel with the fits, so that `refit` can repeat them on more runs.
    asked = {"eval_set": eval_set, "draws": draws, "bounds": [low, high], "pool": list(pool), **options}
    asked |= {"method": method}
    asked |= {"rng": seed} if rng is not None and isinstance(seed, int) else {}
    table = runs.to_dict()

    def one(name: str) -> Fits:
        series, standing_in = _series(runs, name, eval_set, stand_in=method == "surface")
        rule = None if "learning_rate" in pool else _one_rule(series)
        free = [*pool, *(["n_problems"] if method == "surface" and _varied_sets(series) else [])]
        _refuse_mixed_contexts(series, [*free, *(["learning_rate"] if rule else [])])
        _check_bounds(series, name, (low, high))
        # A seed is used afresh for every metric, so that each is what it would be if fitted alone.
        generator = np.random.default_rng(seed)
        if isinstance(settings, PaperOptions):
            paper_runs = [_run(s, settings.compute) for s in series]
            found = fit_paper(paper_runs, name, (low, high), settings, draws, generator)
        else:
            surface_runs = [_surface_run(s, settings.compute, standing_in.get(s.run_id)) for s in series]
            found = fit_joint(surface_runs, name, (low, high), settings, draws, generator)
        context = _common_context(series)
        return replace(
            found,
            notes=unique(
                [
                    *found.notes,
                    *_confounded(series, pool),
                    *_stood_in(name, standing_in),
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
    if not metric:
        raise FitError("metric is an empty list; accepted: a metric name or a list of them")
    return FitsSet({name: one(name) for name in metric})


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
    return find_published(name)


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
    model: str | None = None,
    train_data: str = "train.jsonl",
    eval_data: str = "validation.jsonl",
    reward: str = "reward.py",
    output_dir: str = "runs/plan",
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
    from isocompute_sdk import registry

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
    model: str | None = None,
    train_data: str = "train.jsonl",
    eval_data: str = "validation.jsonl",
    reward: str = "reward.py",
    output_dir: str = "runs/plan",
    **options: Any,
) -> RunSpec:
    """The run that a plan stands for; arguments as in `launch_script`."""
    from isocompute_sdk.specs import Data, Evaluation, RunSpec

    chosen = model if model is not None else plan.model
    if chosen is None:
        raise PlanError("the plan names no model", "Pass model=, a hub name or a local folder.")
    evaluation = options.pop("evaluation", None) or plan.evaluation
    return RunSpec(
        run_id=f"n{plan.group_size}-bp{plan.problems_per_batch}-m{plan.update_steps}",
        model=chosen,
        data=Data(
            train=train_data,
            validation=eval_data,
            reward=reward,
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
        output_dir=output_dir,
    )


def _bounds(bounds: tuple[float, float]) -> tuple[float, float]:
    try:
        low, high = (float(b) for b in bounds)
    except (TypeError, ValueError):
        low, high = np.nan, np.nan
    if not (np.isfinite(low) and np.isfinite(high) and low < high):
        raise FitError(f"bounds = {bounds!r}; accepted: (lowest, highest) value of the metric, finite and increasing")
    return low, high


def _whole(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 0:
        extra = ", or a numpy Generator" if name == "rng" else ""
        raise FitError(f"{name} = {value!r}; accepted: a whole number, 0 or more{extra}")
    return int(value)


def _options(method: str, options: dict[str, Any]) -> PaperOptions | SurfaceOptions:
    known = {f.name for f in fields(OPTIONS[method])}
    unknown = sorted(set(options) - known)
    if unknown:
        elsewhere = [other for other, kind in OPTIONS.items() if set(unknown) <= {f.name for f in fields(kind)}]
        raise FitError(
            f"unknown option(s) {', '.join(unknown)} for method {method!r}; accepted: {', '.join(sorted(known))}",
            f"They belong to method={elsewhere[0]!r}." if elsewhere else None,
        )
    changed = {name: value for name, value in options.items() if value is not None}
    if "compute" in changed:
        axes = {"rollouts": "log10_rollouts", "tokens": "log10_tokens"}
        if changed["compute"] not in axes:
            raise FitError(f"compute = {changed['compute']!r}; accepted: {', '.join(axes)}")
        changed["compute"] = axes[changed["compute"]]
    return OPTIONS[method](**changed)


def _run(series: RunSeries, compute: str) -> Run:
    axis = _axis(series, compute)
    return Run(series.run_id, series.group_size, series.problems_per_batch, axis, series.value_T)


def _surface_run(series: RunSeries, compute: str, samples: tuple[int, int] | None) -> SurfaceRun:
    sets = series.context.get("n_problems")
    return SurfaceRun(
        series.run_id,
        series.group_size,
        series.problems_per_batch,
        _axis(series, compute),
        series.value_T,
        None if sets is None else int(sets),
        1.0 if samples is None else float(np.sqrt(samples[0] / samples[1])),
    )


def _series(
    runs: RunSet, name: str, eval_set: str | None, *, stand_in: bool
) -> tuple[list[RunSeries], dict[str, tuple[int, int]]]:
    """Runs that measured a metric; for avg@k also those that measured avg@j only, by run id with (k, j).

    Both estimate the same mean, the more samples the less noisily.
    """
    series = list(runs.series(name, eval_set))
    found: dict[str, tuple[int, int]] = {}
    wanted = _AVERAGE.fullmatch(name)
    if not stand_in or wanted is None:
        return series, found
    for other in runs.metrics:
        match = _AVERAGE.fullmatch(other)
        if match is None or other == name:
            continue
        have = {s.run_id for s in series}
        more = [s for s in runs.series(other, eval_set or _eval_set(runs, name)) if s.run_id not in have]
        series += more
        found |= {s.run_id: (int(wanted[1]), int(match[1])) for s in more}
    return series, found


def _health(
    runs: RunSet, series: Sequence[RunSeries], name: str, eval_set: str | None, notes: Sequence[Note]
) -> list[Note]:
    """What the health of the runs behind a fit has to say that the fit itself has not said."""
    from isocompute_sdk.health import check_health

    used = [one.run_id for one in series]
    seen = runs if len(used) == len(runs.run_ids) else runs.filter(run_id=used)
    said = {note.code for note in notes}
    return [note for note in check_health(seen, name, eval_set).notes if note.code not in said]


def _eval_set(runs: RunSet, metric: str) -> str | None:
    """The one evaluation set of a metric."""
    names = runs.filter(metric=metric).eval_sets
    return names[0] if len(names) == 1 else None


def _varied_sets(series: Sequence[RunSeries]) -> bool:
    """Whether the size of the problem set is known everywhere and varies at one n at least: then it is an input."""
    sizes: dict[int, set[Any]] = {}
    for one in series:
        sizes.setdefault(one.group_size, set()).add(one.context.get("n_problems"))
    return None not in set().union(*sizes.values()) and any(len(found) > 1 for found in sizes.values())


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


def _stood_in(metric: str, standing_in: dict[str, tuple[int, int]]) -> list[Note]:
    if not standing_in:
        return []
    listed = ", ".join(f"{run} (avg@{j})" for run, (_, j) in list(standing_in.items())[:5])
    return [
        Note(
            "avg-at-another-k",
            "info",
            f"{len(standing_in)} run(s) have no {metric} and enter by an average over another number of samples, with "
            f"its noise scaled: {listed}.",
            {"runs": {run: j for run, (_, j) in standing_in.items()}},
        )
    ]


def _axis(series: RunSeries, compute: str) -> Array:
    axis = series.rollouts_T
    if compute == "log10_tokens":
        if series.tokens_T is None:
            raise FitError(
                f"run {series.run_id!r} has no tokens, and compute='tokens' was asked for",
                "Add a tokens column (cumulative sampled tokens), or fit on rollouts.",
            )
        axis = series.tokens_T
    return axis


def _check_bounds(series: Sequence[RunSeries], metric: str, bounds: tuple[float, float]) -> None:
    for one in series:
        outside = np.flatnonzero((one.value_T < bounds[0]) | (one.value_T > bounds[1]))
        if outside.size:
            first = int(outside[0])
            raise FitError(
                f"run {one.run_id!r}, C = {one.rollouts_T[first]:,.10g}: {metric} = {one.value_T[first]:g} lies "
                f"outside bounds = {bounds} ({outside.size} value(s) do)",
                "Pass bounds=(lowest, highest) of this metric, or repair the values.",
            )


def check_pool(pool: Sequence[str]) -> None:
    """Refuse names that are no context field.

    Raises:
        FitError: naming them, with what is accepted.
    """
    from isocompute_sdk.records import CONTEXT_FIELDS

    unknown = sorted(set(pool) - set(CONTEXT_FIELDS))
    if unknown:
        raise FitError(f"pool names {', '.join(unknown)}; accepted: {', '.join(CONTEXT_FIELDS)}")


def _refuse_mixed_contexts(series: Sequence[RunSeries], pool: Sequence[str]) -> None:
    """Runs on one frontier must agree in every field of their context that is not pooled; null equals null."""
    from isocompute_sdk.records import CONTEXT_FIELDS

    values = {f: sorted({repr(s.context.get(f)) for s in series}) for f in CONTEXT_FIELDS if f not in pool}
    differing = tuple(f for f, found in values.items() if len(found) > 1)
    if not differing:
        return
    shown = "; ".join(f"{f}: {', '.join(values[f][:5])}" for f in differing)
    rule = " Learning rates that follow one rule over three batch sizes or more are pooled by themselves."
    raise FitError(
        f"these runs differ in {', '.join(differing)} ({shown}); their curves do not belong on one frontier",
        f"Fit them apart (runs.filter({differing[0]}=...)), or say that it does not matter: pool={differing!r}."
        + (rule if differing == ("learning_rate",) else ""),
    )


def _one_rule(series: Sequence[RunSeries]) -> str | None:
    """The rule in the batch size that all learning rates follow, as a recipe sets them; None where there is none."""
    if any(one.context.get("learning_rate") is None for one in series):
        return None
    return learning_rate_rule(series, BATCHES_FOR_A_RULE) or None


def _common_context(series: Sequence[RunSeries]) -> dict[str, Any]:
    first = dict(series[0].context)
    return {k: v for k, v in first.items() if all(s.context.get(k) == v for s in series)}


def _confounded(series: Sequence[RunSeries], pool: Sequence[str]) -> list[Note]:
    """Pooled fields whose value goes together with n: what looks like n may be that field."""
    notes: list[Note] = []
    for name in pool:
        values: dict[int, set[str]] = {}
        for one in series:
            values.setdefault(one.group_size, set()).add(repr(one.context.get(name)))
        all_values = set().union(*values.values())
        # Together: one value per n, and not the same one everywhere.
        if len(all_values) > 1 and all(len(v) == 1 for v in values.values()):
            pairs = ", ".join(f"n = {n}: {next(iter(v))}" for n, v in sorted(values.items()))
            notes.append(
                Note(
                    "group-size-confounded",
                    "warning",
                    f"{name} changes together with the group size ({pairs}): what looks like an effect of n may be "
                    f"one of {name}. Runs with one n at two values would tell them apart.",
                    {"field": name, "values": {str(n): sorted(v) for n, v in values.items()}},
                )
            )
    return notes
