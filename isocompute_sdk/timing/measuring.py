"""Fit a `Throughput` to logged seconds per step, of runs or of a probe at three batches.

The model is that of `specs.Throughput`. It is linear in overhead, floor and seconds per rollout, which are fitted by
non-negative least squares with relative weights:

    seconds = overhead + L floor + L B g^-e / rate,   g = GPUs relative to the first number of them

with L the mean response length at that compute relative to the start, or 1 where the seconds of these runs clearly do
not grow with it. Floor and overhead are separated by logged
sampling times, or by a changing L; otherwise both count as overhead. Lengths are fitted alone, whether or not anything
was timed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from isocompute_sdk.errors import FitError, SpecError
from isocompute_sdk.ingest.formats.log_format import (
    EVALUATION_ROLLOUTS,
    EVALUATION_SECONDS,
    RESPONSE_LENGTH,
    SAMPLING_SECONDS,
    STARTUP_SECONDS,
    STEP_SECONDS,
)
from isocompute_sdk.ingest.formats.registry import names_of
from isocompute_sdk.phrases import counted, joined
from isocompute_sdk.records.columns import TRAIN_SETS
from isocompute_sdk.records.runset import check_runs
from isocompute_sdk.specs import Budget, RunSpec, Study
from isocompute_sdk.specs.throughput import TRADE_OFF_SPAN, Measurement, Throughput
from isocompute_sdk.training.backend import BackendInfo

if TYPE_CHECKING:
    import polars as pl

    from isocompute_sdk.records import RunSet

STEPS = 10
BATCHES = 3
SAVE_OPTION = "save_every_steps"
"""Backend option: its default would save a run of ten steps after every step."""


def probe_pairs(study: Study) -> tuple[tuple[int, int], ...]:
    """Three pairs (n, B_p) with batches at least 4x apart: the ends and the middle of the study's sweep.

    If the sweep's batches span less than 16x, or the study has no sweep: the sweep's middle n, or 8, at 1, 4 and 16
    times the recipe's smallest B_p.
    """
    sweep, floor = study.sweep, study.recipe.min_problems_per_batch
    if sweep is not None:
        pairs = sorted(sweep.pairs, key=lambda pair: pair[0] * pair[1])
        if pairs[-1][0] * pairs[-1][1] >= TRADE_OFF_SPAN**2 * pairs[0][0] * pairs[0][1]:
            middle = (pairs[0][0] * pairs[0][1] * pairs[-1][0] * pairs[-1][1]) ** 0.5
            between = min(pairs[1:-1], key=lambda pair: abs(pair[0] * pair[1] - middle), default=pairs[0])
            return (pairs[0], between, pairs[-1])
    sizes = (8,) if sweep is None else tuple(sorted(sweep.group_size))
    return tuple((sizes[len(sizes) // 2], floor * 4**i) for i in range(BATCHES))


def probe_runs(
    study: Study, backend: BackendInfo, pairs: Sequence[tuple[int, int]], steps: int = STEPS
) -> tuple[RunSpec, ...]:
    """One short run per pair, evaluated at both ends, so that evaluations are timed separately."""
    if steps < 3:
        raise SpecError(f"steps = {steps}; accepted: 3 or more, since the first is left out", "Measure more steps.")
    options = dict(study.options)
    if any(option.name == SAVE_OPTION for option in backend.options):
        options.setdefault(SAVE_OPTION, steps)
    folder = f"{study.output_dir.rstrip('/')}/{study.name}-probe"
    return tuple(
        RunSpec(
            run_id=(run_id := f"probe-n{n}-bp{bp}"),
            model=study.model,
            data=study.data,
            recipe=study.recipe,
            group_size=n,
            problems_per_batch=bp,
            update_steps=steps,
            evaluation=study.evaluation.replace(every_steps=steps, count=None),
            hardware=study.hardware,
            backend=backend.name,
            options=options,
            output_dir=f"{folder}/{run_id}",
        )
        for n, bp in pairs
    )


Array = npt.NDArray[np.float64]
BLOCKS = 10
"""Blocks per run whose means are the observations, if there are too few runs for one mean each."""
RUNS_PER_PARAMETER = 3
"""Each run is one observation if there are this many runs more than parameters; intervals then cover differences
between runs."""
LENGTHS_DIFFER = 1.3
"""Ratio of response lengths above which floor and overhead can be separated without sampling times."""
EXPONENTS: Array = np.linspace(0.0, 1.5, 151)
LEVEL = 0.8
"""Coverage of the intervals."""
LARGEST_SPREAD = 0.5
"""Width of the interval of the exponent above which it is unknown."""
LARGEST_T = 1e3
LONGEST_RESPONSE = 1e6
"""Mean tokens of a response above which a column holds something else, such as a total."""
ROUNDING = 1e-6
"""Share of a step that is 0 but for rounding."""


@dataclass(frozen=True)
class Line:
    """A relative least-squares fit."""

    value_P: Array
    covariance_PP: Array
    residual: float
    """Weighted sum of squared residuals."""
    freedom: int


def measure(
    runs: RunSet,
    *,
    gpus: int | Mapping[str, int] | None = None,
    seconds: str | None = None,
    usd_per_gpu_hour: float | None = None,
    gpu_exponent: float | None = None,
) -> Throughput:
    """Fit a throughput to logged times.

    Seconds per step come from the metric `seconds`, else from `step_seconds` (built-in runner), `timing_s/step`,
    `perf/time_per_step`, `step_time` or `seconds_per_step`, else from differences of the column `gpu_seconds`, which
    include evaluations. Logged lengths and sampling seconds are used too. The first step of every run is a warm-up and
    its seconds are left out.

    Args:
        runs: runs on one kind of machine, best at batches at least 4x apart.
        gpus: GPUs of all runs, or by run id; {} if unknown. None: as the runs say, unknown if none of them does.
        seconds: metric with the seconds of a step. None: the first of those above.
        usd_per_gpu_hour: price, stored in the result.
        gpu_exponent: how speed grows with GPUs. None: as the runs show.

    Raises:
        FitError: no times, seconds that do not grow with a varying batch, other GPUs than the runs say, GPU-seconds of
            an unknown number of GPUs, or several numbers of them that do not show how speed grows.
    """
    timings = read_timings(runs, gpus, seconds)
    for run in runs.runs():
        stated = gpus.get(run.run_id) if isinstance(gpus, Mapping) else gpus
        if None not in (stated, run.gpus) and stated != run.gpus:
            raise FitError(
                f"run {run.run_id!r} was on {counted(run.gpus or 0, 'GPU')} by its own record, not on {stated}",
                "Leave gpus out, or correct the record.",
            ).in_shell("Leave --gpus out, or correct the record of the runs.")
    growth, scale, tokens, reach = fit_lengths(runs)
    length_S = 1.0 + growth * np.log1p(timings.rollouts_S / scale)
    flat_S, blocks = np.ones(len(length_S)), len(_blocks(timings))
    left, left_flat = (_misfit(timings, by_S, gpu_exponent) for by_S in (length_S, flat_S))
    # At one batch the overhead looks like seconds that do not follow lengths.
    follows = len(np.unique(timings.batch_S)) == 1 or not _earned(left, left_flat, blocks)
    length_S = length_S if follows else flat_S
    exponent = _exponent(timings, length_S) if gpu_exponent is None else gpu_exponent
    counts = np.unique(timings.gpus_S).astype(int).tolist()
    if exponent is None and len(counts) > 1:
        listed = joined([f"{count:,}" for count in counts])
        raise FitError(
            f"these runs were on {listed} GPUs and do not show how speed grows with GPUs, for example because "
            "each number had its own batches",
            "Give gpu_exponent=..., 1 for ideal scaling, or time one batch on each number.",
        ).in_shell(
            "Plan with --gpu-exponent (isocompute allocate), 1 for ideal scaling, or time one batch on each number.",
            ["--gpu-exponent NUMBER"],
        )
    reference = counts[0]
    rate_S = (timings.gpus_S / reference) ** (exponent or 0.0)
    fitted, spread, batches = _seconds_model(timings, length_S, rate_S)
    overhead, floor, slope = (fitted[name][0] for name in ("step_overhead_seconds", "latency_floor_seconds", "slope"))
    intervals = {name: (low, high) for name, (_, low, high) in fitted.items() if name != "slope" and high > 0}
    _, low, high = fitted["slope"]
    intervals["rollouts_per_second"] = (1.0 / high, 1.0 / max(low, 1e-3 * slope))
    return Throughput(
        step_overhead_seconds=overhead,
        rollouts_per_second=1.0 / slope,
        tokens_per_rollout=tokens,
        gpus=reference if timings.gpus_known else None,
        usd_per_gpu_hour=usd_per_gpu_hour,
        latency_floor_seconds=floor,
        length_growth=growth,
        length_scale_rollouts=scale,
        gpu_exponent=exponent,
        evaluation_rollouts_per_second=_evaluation_rate(timings, floor, growth * follows, scale),
        startup_seconds=timings.startup_seconds,
        measured=Measurement(
            rollouts_per_batch=tuple(int(b) for b in batches),
            runs=len(np.unique(timings.run_S)),
            steps=int(timings.steps_S.sum()),
            rollouts=reach,
            relative_error=spread,
            level=LEVEL,
            intervals=intervals,
            rate_is_limit=low <= slope / 2 and len(batches) > 1,
            follows_lengths=follows,
        ),
    )


def complete(given: Throughput | None, runs: RunSet, budget: Budget, gpus: int | None) -> Throughput | None:
    """What was not given, from what the runs logged: lengths always, the speed unless one was given.

    Returns:
        The throughput; `given` where the runs add nothing.

    Raises:
        FitError: a budget that needs seconds, with runs whose times do not give them.
        SpecError: such a budget, on another number of GPUs than these runs tell.
    """
    found = given
    if given is None or given.rollouts_per_second is None:
        try:
            found = _logged(given, runs, budget, gpus)
        except (FitError, SpecError):
            if budget.timed:
                raise
    growth, scale, tokens, _ = fit_lengths(runs)
    if tokens is None:
        return found
    lengths = {"tokens_per_rollout": tokens, "length_growth": growth, "length_scale_rollouts": scale}
    stated = (
        set[str]() if found is None else {name for name in found.model_fields_set if getattr(found, name) is not None}
    )
    return (found or Throughput()).replace(**{name: lengths[name] for name in lengths if name not in stated})


def _logged(given: Throughput | None, runs: RunSet, budget: Budget, gpus: int | None) -> Throughput | None:
    """`given` with the speed of the runs; errors as of `complete`, whatever the budget."""
    stated: dict[str, Any] = {} if given is None else {name: getattr(given, name) for name in given.model_fields_set}
    # The GPUs of a throughput without a speed are those to plan for, not those of the logged one.
    own = stated.pop("gpus", None)
    gpus = own if gpus is None else gpus
    try:
        known = gpus_of(runs)
    except FitError:
        return given
    # GPU-seconds alone need a number.
    assumed = {} if gpus is None or _seconds_of(runs) is not None else gpus
    speed = measure(runs, gpus=known or assumed, gpu_exponent=stated.get("gpu_exponent")).replace(**stated)
    if gpus is not None:
        speed = (speed if known else speed.replace(gpus=None)).at_gpus(gpus)
    elif len({*known.values()}) > 1 and speed.measured is not None and speed.gpu_exponent is not None:
        used = Counter(known.values())
        usual = max(used, key=lambda number: (used[number], number))
        speed = speed.at_gpus(usual).replace(measured=speed.measured.replace(gpus_chosen=budget.gpus is None))
    if budget.gpus is None or speed.measured is None:
        return speed
    return speed.replace(measured=speed.measured.replace(kind_assumed=True))


def gpus_of(runs: RunSet, seconds: str | None = None) -> dict[str, int]:
    """GPUs of the runs that logged times, by run id; empty unless each of them says its own.

    Args:
        runs: evaluations and step metrics.
        seconds: metric that holds the seconds of a step; None to look for one.

    Raises:
        FitError: no times.
    """
    _, steps = _steps(runs, seconds)
    timed = {*steps["run_id"]}
    found = {run.run_id: run.gpus for run in runs.runs() if run.run_id in timed}
    return {name: gpus for name, gpus in found.items() if gpus is not None and None not in found.values()}


def fit_lengths(runs: RunSet) -> tuple[float, float, float | None, float]:
    """Growth of responses, its scale in rollouts, tokens per rollout at the start, and the largest compute measured.

    Lengths are fitted by t (1 + growth ln(1 + C / scale)) over a grid of scales; growth is 0 if not significant.

    Returns:
        Tokens are None, and the last 0, without logged totals or lengths.
    """
    at, length, weight = _lengths(runs)
    if not len(at):
        return 0.0, 100_000.0, None, 0.0
    mean, reach = float(np.average(length, weights=weight)), float(at.max())
    if mean > LONGEST_RESPONSE:
        raise FitError(
            f"the runs log {mean:,.0f} tokens per rollout on average; accepted: at most {LONGEST_RESPONSE:,.0f}",
            "A column response_length holds the mean tokens of one response, and tokens those of a run so far. "
            "<--rename THEIRS=tokens | rename={'THEIRS': 'tokens'}> reads a total, "
            "<--ignore THEIRS | ignore=['THEIRS']> leaves the column out.",
        )
    flat = float(np.sum(weight * (length - mean) ** 2))
    best = (flat, 0.0, 100_000.0, mean)
    for scale in np.geomspace(reach / 300.0, reach * 3.0, 25):
        design = np.column_stack([np.ones(len(at)), np.log1p(at / scale)]) * np.sqrt(weight)[:, None]
        (start, rise), *_ = np.linalg.lstsq(design, length * np.sqrt(weight), rcond=None)
        left = float(np.sum(weight * (length - start - rise * np.log1p(at / scale)) ** 2))
        if rise > 0 and start > 0 and left < best[0]:
            best = (left, rise / start, float(scale), float(start))
    # More parameters and a scale chosen among many need clear evidence.
    return (best[1], best[2], best[3], reach) if _earned(flat, best[0], len(at)) else (0.0, 100_000.0, mean, reach)


def _earned(usual: float, other: float, points: int) -> bool:
    """Whether another form leaves clearly smaller squared residuals than the usual one."""
    return points >= 8 and usual - other > 10.0 * other / points and other < 0.9 * usual


def _lengths(runs: RunSet) -> tuple[Array, Array, Array]:
    """Compute C, mean tokens of a rollout there, and its weight: from logged totals, else from response lengths."""
    import polars as pl

    table, work = runs.to_polars(), pl.col("rollouts") - pl.col("rollouts").shift(1, fill_value=0.0).over("run_id")
    totals = (
        table.filter((pl.col("tokens") > 0) & (pl.col("rollouts") > 0))
        .unique(["run_id", "rollouts"], keep="first", maintain_order=True)
        .sort("run_id", "rollouts", maintain_order=True)
        .with_columns(work=work, sampled=pl.col("tokens") - pl.col("tokens").shift(1, fill_value=0.0).over("run_id"))
        .filter(pl.col("sampled") > 0)
        .select(at=pl.col("rollouts") - pl.col("work") / 2, length=pl.col("sampled") / pl.col("work"), weight="work")
    )
    name = next(iter(names_of(RESPONSE_LENGTH, runs.metrics)), None)
    if totals.is_empty() and name is not None:
        logged = _of(table, name, "length").filter((pl.col("step") > 0) & (pl.col("length") > 0))
        # Evaluations log a response length too.
        of_updates = logged.filter(pl.col("eval_set").is_in(TRAIN_SETS))
        logged = logged if of_updates.is_empty() else of_updates
        batch = pl.col("group_size") * pl.col("problems_per_batch")
        middle = (pl.col("rollouts") - batch.fill_null(0) / 2).clip(lower_bound=0)
        totals = logged.select(at=middle, length="length", weight=pl.lit(1.0))
    at, length, weight = (np.array(totals[key].to_numpy(), dtype=np.float64) for key in ("at", "length", "weight"))
    return at, length, weight


def relative_fit(design_SP: Array, value_S: Array) -> Line:
    """Non-negative least squares with errors proportional to the value.

    Args:
        design_SP: design matrix, shape (observations, parameters).
        value_S: positive observations.
    """
    from scipy.optimize import nnls

    weight_S = 1.0 / value_S
    found_P = np.zeros(design_SP.shape[1])
    for _ in range(4):
        found_P = nnls(design_SP * weight_S[:, None], value_S * weight_S)[0]
        predicted_S = design_SP @ found_P
        weight_S = 1.0 / np.where(predicted_S > 0, predicted_S, value_S)
    left = float(np.sum((weight_S * (value_S - design_SP @ found_P)) ** 2))
    # A parameter at 0 stays in the covariance: its true value may be slightly above.
    freedom = len(value_S) - design_SP.shape[1]
    weighted = design_SP * weight_S[:, None]
    covariance = np.asarray(np.linalg.pinv(weighted.T @ weighted), dtype=np.float64)
    return Line(found_P, covariance * (left / freedom if freedom > 0 else 0.0), left, freedom)


def _seconds_model(
    timings: Timings, length_S: Array, rate_S: Array
) -> tuple[dict[str, tuple[float, float, float]], float, Array]:
    """Overhead, floor and seconds per rollout as (value, low, high); the relative error; the measured batches."""
    from scipy.special import stdtrit

    batches = np.unique(timings.batch_S)
    groups = _groups(timings, max(len(names) for names, _ in _parts(timings, length_S)))
    parameters = ["step_overhead_seconds", "latency_floor_seconds", "slope"]
    fitted = dict.fromkeys(parameters, (0.0, 0.0))
    predicted_G, error_G, freedom = np.zeros(len(groups)), np.zeros(len(groups)), 0
    for names, design_GP, line in _lines(timings, length_S, rate_S, groups):
        freedom = line.freedom
        predicted_G += design_GP @ line.value_P
        error_G += np.sqrt(np.sum((design_GP @ line.covariance_PP) * design_GP, axis=1))
        for name, value, error in zip(names, line.value_P, np.sqrt(np.diag(line.covariance_PP)), strict=True):
            # Errors of parts of one step are correlated, so they add linearly.
            fitted[name] = (fitted[name][0] + float(value), fitted[name][1] + float(error))
    if fitted["slope"][0] * batches[-1] <= ROUNDING * predicted_G.max():
        raise FitError(
            f"seconds per step do not grow with the batch (B = {', '.join(f'{b:.0f}' for b in batches)})",
            "Measure larger batches, where the hardware is busy, or give "
            "<--rollouts-per-second | rollouts_per_second=>.",
        )
    times = LARGEST_T if freedom < 1 else float(stdtrit(freedom, (1 + LEVEL) / 2))
    found = {name: (v, max(v - times * e, 0.0), v + times * e) for name, (v, e) in fitted.items()}
    return found, float(np.max(error_G / predicted_G)), batches


def _lines(
    timings: Timings, length_S: Array, rate_S: Array, groups: list[npt.NDArray[np.intp]]
) -> Iterator[tuple[list[str], Array, Line]]:
    """Each separate fit: names of its parameters, design over the groups of steps, and the fit."""
    columns = {
        "step_overhead_seconds": np.ones(len(length_S)),
        "latency_floor_seconds": length_S,
        "slope": length_S * timings.batch_S / rate_S,
    }
    for names, seconds_S in _parts(timings, length_S):
        design_GP, value_G = _means(np.column_stack([columns[n] for n in names]), timings, groups, seconds_S)
        yield names, design_GP, relative_fit(design_GP, value_G)


def _misfit(timings: Timings, length_S: Array, exponent: float | None) -> float:
    """Squared residuals of the seconds, also within runs, if steps take time by these lengths."""
    exponent = _exponent(timings, length_S) if exponent is None else exponent
    rate_S = (timings.gpus_S / timings.gpus_S.min()) ** (exponent or 0.0)
    return sum(line.residual for *_, line in _lines(timings, length_S, rate_S, _blocks(timings)))


def _parts(timings: Timings, length_S: Array) -> list[tuple[list[str], Array]]:
    """Separate fits: sampling and the rest of a step if both are logged, else whole steps."""
    if len(np.unique(timings.batch_S)) == 1:
        return [(["slope"], timings.seconds_S)]
    if np.isfinite(timings.sampling_S).all() and np.all(timings.sampling_S < timings.seconds_S):
        return [
            (["latency_floor_seconds", "slope"], timings.sampling_S),
            (["step_overhead_seconds", "slope"], timings.seconds_S - timings.sampling_S),
        ]
    floor = ["latency_floor_seconds"] if length_S.max() > LENGTHS_DIFFER * length_S.min() else []
    return [(["step_overhead_seconds", *floor, "slope"], timings.seconds_S)]


def _groups(timings: Timings, parameters: int) -> list[npt.NDArray[np.intp]]:
    """Steps averaged into one observation: whole runs if there are enough, else blocks of runs."""
    runs = _runs(timings)
    return runs if len(runs) >= parameters + RUNS_PER_PARAMETER else _blocks(timings)


def _runs(timings: Timings) -> list[npt.NDArray[np.intp]]:
    return [np.flatnonzero(timings.run_S == run) for run in np.unique(timings.run_S)]


def _blocks(timings: Timings) -> list[npt.NDArray[np.intp]]:
    return [part for run in _runs(timings) for part in np.array_split(run, min(BLOCKS, len(run)))]


def _means(
    design_SP: Array, timings: Timings, groups: list[npt.NDArray[np.intp]], value_S: Array
) -> tuple[Array, Array]:
    """Design and seconds averaged over groups of steps; exact for a linear model."""
    weights = timings.steps_S
    design = [np.average(design_SP[group], axis=0, weights=weights[group]) for group in groups]
    value = [np.average(value_S[group], weights=weights[group]) for group in groups]
    return np.array(design, dtype=np.float64), np.array(value, dtype=np.float64)


def _exponent(timings: Timings, length_S: Array) -> float | None:
    """Exponent of the rate in GPUs with the smallest residual.

    None with a single number of GPUs, or if exponents far apart fit as well, as where each had a batch of its own.
    """
    from scipy.special import stdtrit

    counts = np.unique(timings.gpus_S)
    if len(counts) < 2:
        return None
    batches = np.unique(timings.batch_S)
    lines: list[Line] = []
    for exponent in EXPONENTS:
        work_S = length_S * timings.batch_S / (timings.gpus_S / counts[0]) ** exponent
        columns = [work_S] if len(batches) == 1 else [np.ones(len(work_S)), work_S]
        means = _means(np.column_stack(columns), timings, _groups(timings, 3), timings.seconds_S)
        lines.append(relative_fit(*means))
    left, freedom = np.array([line.residual for line in lines]), lines[0].freedom - 1
    times = LARGEST_T if freedom < 1 else float(stdtrit(freedom, (1 + LEVEL) / 2))
    # A profile interval; exact times leave rounding alone.
    as_good = EXPONENTS[left <= left.min() * (1 + times**2 / max(freedom, 1)) + ROUNDING**2]
    return float(np.mean(as_good)) if np.ptp(as_good) <= LARGEST_SPREAD else None


def _evaluation_rate(timings: Timings, floor: float, growth: float, scale: float) -> float | None:
    """Rollouts per second over all evaluations; None without timed evaluations."""
    if not len(timings.evaluation_seconds_E):
        return None
    length_E = 1.0 + growth * np.log1p(timings.evaluation_at_E / scale)
    spent = float(timings.evaluation_seconds_E.sum())
    busy = max(spent - floor * float(length_E.sum()), 0.1 * spent)
    return float((timings.evaluation_rollouts_E * length_E).sum()) / busy


@dataclass(frozen=True, eq=False)
class Timings:
    """One entry per timed step (or stretch of steps) S, and per timed evaluation E; float64 unless said otherwise."""

    run_S: npt.NDArray[np.intp]
    """Number of the run."""
    batch_S: Array
    """Rollouts per batch B."""
    gpus_S: Array
    """1 where they are unknown."""
    gpus_known: bool
    rollouts_S: Array
    """Compute C in the middle of the step."""
    seconds_S: Array
    """Wall-clock seconds of one step."""
    steps_S: Array
    """Update steps that the entry is a mean of."""
    sampling_S: Array
    """Seconds of sampling in the step; NaN where unknown."""
    evaluation_at_E: Array
    """Compute C of each evaluation."""
    evaluation_seconds_E: Array
    evaluation_rollouts_E: Array
    startup_seconds: float


def read_timings(runs: RunSet, gpus: int | Mapping[str, int] | None, seconds: str | None) -> Timings:
    """Times of all steps but the first of every run.

    Args:
        runs: evaluations and step metrics.
        gpus: as of `measure`.
        seconds: metric that holds the seconds of a step; None to look for one.
    """
    import polars as pl

    sizes: list[object] = [*gpus.values()] if isinstance(gpus, Mapping) else [gpus]
    if gpus is not None and any(not isinstance(size, int | np.integer) or size < 1 for size in sizes):
        raise FitError(f"gpus = {gpus!r}; accepted: whole numbers, 1 or more", "Give the GPUs of each run.")
    name, steps = _steps(runs, seconds)
    if gpus is None:
        gpus = {run.run_id: run.gpus for run in runs.runs() if run.gpus is not None}
    known = gpus != {}
    if name is None and not known:
        raise FitError(
            "these runs log GPU-seconds, of all their GPUs together, and not the number of GPUs",
            "Give gpus=..., Hardware(gpus=...), or a column gpus.",
        ).in_shell("Add --gpus, or a column gpus.", ["--gpus NUMBER"])
    bad = steps.filter(~(pl.col("seconds") > 0))
    if not bad.is_empty():
        row = bad.row(0, named=True)
        raise FitError(
            f"run {row['run_id']!r}, step {row['step']:g}: {row['seconds']:g} seconds; accepted: more than 0",
            "Correct the log, or filter that step out.",
        )
    counts, table = _gpus(steps, gpus if known else 1), runs.to_polars()
    if name is None:
        steps = steps.with_columns(pl.col("seconds") / pl.Series(counts))
    names = {run: i for i, run in enumerate(runs.run_ids)}
    evaluations = _evaluations(table)
    startups = table.filter(pl.col("metric") == STARTUP_SECONDS)["value"]

    def column(key: str) -> Array:
        return np.array(steps[key].fill_null(float("nan")).to_numpy(), dtype=np.float64)

    return Timings(
        run_S=np.array([names[run] for run in steps["run_id"]], dtype=np.intp),
        batch_S=column("batch"),
        gpus_S=counts,
        gpus_known=known,
        rollouts_S=column("middle"),
        seconds_S=column("seconds"),
        steps_S=column("steps"),
        sampling_S=column("sampling"),
        evaluation_at_E=np.array(evaluations["rollouts"], dtype=np.float64),
        evaluation_seconds_E=np.array(evaluations[EVALUATION_SECONDS], dtype=np.float64),
        evaluation_rollouts_E=np.array(evaluations[EVALUATION_ROLLOUTS], dtype=np.float64),
        startup_seconds=float(np.median(startups.to_numpy())) if len(startups) else 0.0,
    )


def _seconds_of(runs: RunSet) -> str | None:
    """The metric that holds the seconds of a step; None without one."""
    return next(iter(names_of(STEP_SECONDS, runs.metrics)), None)


def _steps(runs: RunSet, seconds: str | None) -> tuple[str | None, pl.DataFrame]:
    """The metric that holds the seconds of a step, None for GPU-seconds, and one row per timed step or stretch.

    Raises:
        FitError: no times.
    """
    table = check_runs(runs).to_polars()
    name = seconds if seconds is not None else _seconds_of(runs)
    if name is not None and name not in runs.metrics:
        raise FitError(
            f"seconds = {name!r}; accepted: one of the metrics, {', '.join(runs.metrics)}", "Use one of them."
        )
    steps = _timed(table, name) if name is not None else _stretches(table)
    if steps.is_empty():
        raise FitError(
            f"these runs say nothing about time: no metric {STEP_SECONDS}, no gpu_seconds",
            "Log seconds per step, name them with <--seconds | seconds=>, or measure: isocompute run STUDY --probe.",
        )
    return name, steps


def _timed(table: pl.DataFrame, name: str) -> pl.DataFrame:
    """One row per step with a logged time."""
    import polars as pl

    steps = _of(table, name, "seconds").filter(pl.col("step") > 0)
    found = next(iter(names_of(SAMPLING_SECONDS, table["metric"].unique().sort())), None)
    if found is None:
        steps = steps.with_columns(sampling=pl.lit(None, pl.Float64))
    else:
        more = _of(table, found, "sampling").select("run_id", "eval_set", "step", "sampling")
        steps = steps.join(more, on=["run_id", "eval_set", "step"], how="left")
    several = pl.len().over("run_id") > 1
    first = pl.col("step") == pl.col("step").min().over("run_id")
    batch = pl.coalesce(pl.col("group_size") * pl.col("problems_per_batch"), pl.col("rollouts") / pl.col("step"))
    return (
        steps.filter(~(several & first))
        .with_columns(batch=batch.cast(pl.Float64), steps=pl.lit(1.0))
        .with_columns(middle=pl.col("rollouts") - pl.col("batch") / 2)
    )


def _stretches(table: pl.DataFrame) -> pl.DataFrame:
    """One row per stretch between two values of the column gpu_seconds; seconds are GPU-seconds here."""
    import polars as pl

    points = (
        table.filter(pl.col("gpu_seconds").is_not_null() & pl.col("step").is_not_null())
        .unique(["run_id", "step"], keep="first", maintain_order=True)
        .sort("run_id", "step", maintain_order=True)
    )
    before = {name: pl.col(name).shift(1).over("run_id") for name in ("step", "gpu_seconds", "rollouts")}
    steps = pl.col("step") - before["step"]
    work = pl.col("rollouts") - before["rollouts"]
    return points.with_columns(
        steps=steps,
        seconds=(pl.col("gpu_seconds") - before["gpu_seconds"]) / steps,
        batch=work / steps,
        middle=(pl.col("rollouts") + before["rollouts"]) / 2,
        sampling=pl.lit(None, pl.Float64),
    ).filter(pl.col("steps") > 0)


def _of(table: pl.DataFrame, metric: str, name: str) -> pl.DataFrame:
    import polars as pl

    return table.filter(pl.col("metric") == metric).rename({"value": name})


def _evaluations(table: pl.DataFrame) -> pl.DataFrame:
    """Evaluations whose seconds and rollouts are known, the first of every run (it warms up) left out if possible."""
    import polars as pl

    keys = ["run_id", "eval_set", "step", "rollouts"]
    seconds, rollouts = (
        _of(table, metric, metric).select(*keys, metric) for metric in (EVALUATION_SECONDS, EVALUATION_ROLLOUTS)
    )
    found = seconds.join(rollouts, on=keys)
    return found.filter((pl.col("step") > 0) | (pl.len().over("run_id") == 1))


def _gpus(steps: pl.DataFrame, gpus: int | Mapping[str, int]) -> Array:
    if not isinstance(gpus, Mapping):
        return np.full(steps.height, float(gpus))
    missing = sorted(set(steps["run_id"]) - set(gpus))
    if missing:
        raise FitError(f"gpus has no entry for run {missing[0]!r}", "Give one number, or one for every run.")
    return np.array([float(gpus[run]) for run in steps["run_id"]])
