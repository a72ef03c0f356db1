"""What a `RunSet` says about time: seconds, response lengths and GPUs of steps, and seconds of evaluations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from isocompute_sdk.errors import FitError
from isocompute_sdk.ingest.formats.log_format import (
    EVALUATION_ROLLOUTS,
    EVALUATION_SECONDS,
    RESPONSE_LENGTH,
    SAMPLING_SECONDS,
    STARTUP_SECONDS,
    STEP_SECONDS,
)
from isocompute_sdk.ingest.formats.registry import names_of

if TYPE_CHECKING:
    import polars as pl

    from isocompute_sdk.records import RunSet

Array = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Timings:
    """One entry per timed step (or stretch of steps) S, and per timed evaluation E; float64 unless said otherwise."""

    run_S: npt.NDArray[np.intp]
    """Number of the run."""
    batch_S: Array
    """Rollouts per batch B."""
    gpus_S: Array
    rollouts_S: Array
    """Compute C in the middle of the step."""
    seconds_S: Array
    """Wall-clock seconds of one step."""
    steps_S: Array
    """Update steps that the entry is a mean of."""
    length_S: Array
    """Mean tokens of a response; NaN where unknown."""
    sampling_S: Array
    """Seconds of sampling in the step; NaN where unknown."""
    evaluation_at_E: Array
    """Compute C of each evaluation."""
    evaluation_seconds_E: Array
    evaluation_rollouts_E: Array
    startup_seconds: float


def read_timings(runs: RunSet, gpus: int | Mapping[str, int], seconds: str | None) -> Timings:
    """Times of all steps but the first of every run.

    Args:
        runs: evaluations and step metrics.
        gpus: GPUs of all runs, or by run id.
        seconds: metric that holds the seconds of a step; None to look for one.

    Raises:
        FitError: no times are logged, GPUs of a run are missing, or seconds are not above 0.
    """
    import polars as pl

    if not hasattr(runs, "to_polars"):
        raise FitError(f"runs: received {runs!r:.60}; accepted: a RunSet", "Make one first: RunSet.read(...).")
    sizes: list[object] = [*gpus.values()] if isinstance(gpus, Mapping) else [gpus]
    if any(not isinstance(size, int | np.integer) or size < 1 for size in sizes):
        raise FitError(f"gpus = {gpus!r}; accepted: whole numbers, 1 or more", "Give the GPUs of each run.")
    table = runs.to_polars()
    name = seconds if seconds is not None else next(iter(names_of(STEP_SECONDS, runs.metrics)), None)
    if name is not None and name not in runs.metrics:
        raise FitError(
            f"seconds = {name!r}; accepted: one of the metrics, {', '.join(runs.metrics)}", "Use one of them."
        )
    steps = _logged(table, name) if name is not None else _stretches(table)
    if steps.is_empty():
        raise FitError(
            f"these runs say nothing about time: no metric {STEP_SECONDS}, no gpu_seconds",
            "Log seconds per step, name the metric with seconds=..., or run `isocompute run --probe`.",
        ).in_shell("Log seconds per step, name the metric with --seconds, or measure: isocompute run STUDY --probe.")
    bad = steps.filter(~(pl.col("seconds") > 0))
    if not bad.is_empty():
        row = bad.row(0, named=True)
        raise FitError(
            f"run {row['run_id']!r}, step {row['step']:g}: {row['seconds']:g} seconds; accepted: more than 0",
            "Correct the log, or filter that step out.",
        )
    counts = _gpus(steps, gpus)
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
        rollouts_S=column("middle"),
        seconds_S=column("seconds"),
        steps_S=column("steps"),
        length_S=column("length"),
        sampling_S=column("sampling"),
        evaluation_at_E=np.array(evaluations["rollouts"], dtype=np.float64),
        evaluation_seconds_E=np.array(evaluations[EVALUATION_SECONDS], dtype=np.float64),
        evaluation_rollouts_E=np.array(evaluations[EVALUATION_ROLLOUTS], dtype=np.float64),
        startup_seconds=float(np.median(startups.to_numpy())) if len(startups) else 0.0,
    )


def _logged(table: pl.DataFrame, name: str) -> pl.DataFrame:
    """One row per step with a logged time."""
    import polars as pl

    steps = _of(table, name, "seconds").filter(pl.col("step") > 0)
    for column, metric in (("sampling", SAMPLING_SECONDS), ("length", RESPONSE_LENGTH)):
        found = next(iter(names_of(metric, table["metric"].unique().sort())), None)
        if found is None:
            steps = steps.with_columns(pl.lit(None, pl.Float64).alias(column))
        else:
            # Evaluations log a response length too: only that of the step's own set belongs to it.
            more = _of(table, found, column).select("run_id", "eval_set", "step", column)
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
    before = {name: pl.col(name).shift(1).over("run_id") for name in ("step", "gpu_seconds", "rollouts", "tokens")}
    steps = pl.col("step") - before["step"]
    work = pl.col("rollouts") - before["rollouts"]
    return points.with_columns(
        steps=steps,
        seconds=(pl.col("gpu_seconds") - before["gpu_seconds"]) / steps,
        batch=work / steps,
        middle=(pl.col("rollouts") + before["rollouts"]) / 2,
        length=(pl.col("tokens") - before["tokens"]) / work,
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
