"""`RunTraces`: the quantities that detectors read, run by run, taken from a `RunSet`; levels of noisy series.

No function looks ahead: a detector reports the first moment at which the values measured so far were bad for long
enough. Checking a run after every evaluation, or once at its end, therefore gives the same answer, except for falls
that the run has made good since, and checking often adds no other false alarms.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from isocompute_sdk.fitting.surface.data import CORRELATION_POINTS, DEFAULT_NOISE, SMALLEST_NOISE, pooled_noise
from isocompute_sdk.ingest.formats.registry import names_of
from isocompute_sdk.metrics import average_of
from isocompute_sdk.records.columns import CONTEXT_FIELDS, DEFAULT_EVAL_SET, TRAIN_SETS
from isocompute_sdk.records.reward_metrics import OTHER, headline, measured_in, rank

if TYPE_CHECKING:
    import polars as pl

    from isocompute_sdk.records import RunSet

Array = NDArray[np.float64]
WINDOW = 5
"""Values in one running median; two outliers in five do not move it."""
LASTING = 5
"""Bad levels in a row that make a finding. With `WINDOW`, nine successive steps decide."""
USUAL_CORRELATION = 0.3
"""Correlation assumed between successive evaluations while a run has few of them."""
DOUBT = 2.0
"""A noise estimated from T evaluations is multiplied by 1 + DOUBT / sqrt(T), since it may be too small by chance."""
FIRST_NOISE = 8
"""Evaluations from which a run's noise is estimated from its own values."""
METRICS = (
    "train_reward",
    "entropy",
    "kl",
    "response_length",
    "truncated_share",
    "zero_variance_share",
    "gradient_norm",
    "importance_weight_mean",
    "importance_capped_share",
    "sampler_kl",
    "trained_share",
)
"""Quantities that are metrics. Tables may have one under a framework's own tag, which the log formats know."""
REWARD, PROBE = "reward", "probe"
"""Quantities without a fixed metric name: the reward on held-out problems, and the same metric on the training
probe."""


def rolling(value_T: Array, window: int, of: Callable[..., Any]) -> Array:
    """`np.mean` or `np.median` of the last `window` values at each place; NaN at the first `window - 1`."""
    out = np.full(len(value_T), np.nan)
    if len(value_T) >= window > 0:
        out[window - 1 :] = of(np.lib.stride_tricks.sliding_window_view(value_T, window), axis=1)
    return out


def range_of(value_T: Array) -> float:
    """Width of the range of a reward: 1, 100 if it is in percent, and infinite otherwise."""
    return next((top for top in (1.0, 100.0) if np.all((value_T >= 0) & (value_T <= top))), np.inf)


def noise_of(value_T: Array) -> Array:
    """Standard deviation of one independent evaluation, at each place from the values up to a power of two before it.

    It is re-estimated after 8, 16, 32, ... values. Of the first eight it is the usual noise of a reward in [0, 1] or in
    percent, and infinite for a metric with another range.
    """
    noise_T = np.full(len(value_T), DEFAULT_NOISE * range_of(value_T[:FIRST_NOISE]))
    known = FIRST_NOISE
    while known < len(value_T):
        noise, correlation = pooled_noise([value_T[:known]])
        # pooled_noise shrinks an uncertain correlation towards 0; here it shrinks towards the usual one.
        correlation += USUAL_CORRELATION * CORRELATION_POINTS / (known + CORRELATION_POINTS)
        doubt = 1.0 + DOUBT / np.sqrt(known)
        noise_T[known:] = doubt * max(noise, SMALLEST_NOISE) * np.sqrt((1.0 + correlation) / (1.0 - correlation))
        known *= 2
    return noise_T


def start_of(level_T: Array) -> float:
    """The first level that is not NaN; NaN if all are."""
    known = np.flatnonzero(~np.isnan(level_T))
    return float(level_T[known[0]]) if known.size else float("nan")


def first_lasting(bad_T: NDArray[np.bool_], lasting: int = LASTING) -> int | None:
    """Index at which the first `lasting` bad places in a row begin; None if there are no such places."""
    if len(bad_T) < lasting:
        return None
    runs = np.lib.stride_tricks.sliding_window_view(bad_T, lasting).all(axis=1)
    return int(np.argmax(runs)) if runs.any() else None


@dataclass(frozen=True, eq=False)
class Trace:
    """One quantity of one run over time; every array has shape (T,)."""

    step_T: Array
    """Update steps done; NaN if unknown."""
    rollouts_T: Array
    """Compute C in rollouts, non-decreasing."""
    value_T: Array

    @cached_property
    def level_T(self) -> Array:
        """Running medians of `value_T` (`rolling`)."""
        return rolling(self.value_T, WINDOW, np.median)

    @cached_property
    def noise_T(self) -> Array:
        """Standard deviation of one value, estimated from earlier values only (`noise_of`)."""
        return noise_of(self.value_T)

    def __len__(self) -> int:
        """Number of values."""
        return len(self.value_T)

    def known_at(self, level_T: Array, rollouts_T: Array) -> Array:
        """The last of this trace's levels measured at or before each compute; NaN before the first.

        Args:
            level_T: one level for each value of this trace.
            rollouts_T: computes C in rollouts, as measured for another trace.
        """
        out = np.full(len(rollouts_T), np.nan)
        place_T = np.searchsorted(self.rollouts_T, rollouts_T, side="right") - 1
        out[place_T >= 0] = level_T[place_T[place_T >= 0]]
        return out

    def at(self, place: int) -> str:
        """One place in words: its step, or its compute if steps are unknown."""
        step = self.step_T[place]
        return f"C = {self.rollouts_T[place]:,.0f}" if np.isnan(step) else f"step {step:,.0f}"


@dataclass(frozen=True, eq=False)
class RunTraces:
    """One run as input of the detectors."""

    run_id: str
    group_size: int
    problems_per_batch: int | None
    context: Mapping[str, Any]
    traces: Mapping[str, Trace]
    """The measured quantities, by name: names of `METRICS`, `reward` and `probe`."""


def gather(runs: RunSet, metric: str | None = None, eval_set: str | None = None) -> tuple[RunTraces, ...]:
    """The traces of every run, in order of appearance.

    Args:
        runs: evaluations and step metrics.
        metric: reward on held-out problems; in runs without this avg@k another one. None: avg@k with the largest k
            that a run has, else the evaluation that a fit would take.
        eval_set: set of held-out problems. None: `validation`, else the first set without training problems.
    """
    import polars as pl

    averages = [name for name in runs.metrics if average_of(name)]
    best = None if averages or metric is not None else headline(measured_in(runs.to_polars()))
    if best is not None and rank(*best) != OTHER:
        metric = best[0]
    rewards = averages if metric is None or metric in averages else [metric]
    names = {quantity: names_of(quantity, runs.metrics) for quantity in METRICS}
    wanted = {name for found in names.values() for name in found}
    parts = _parts(runs.to_polars().filter(pl.col("metric").is_in([*wanted, *rewards])))
    return tuple(
        RunTraces(
            run_id=one.run_id,
            group_size=one.group_size,
            problems_per_batch=one.problems_per_batch,
            context={name: one.context.get(name) for name in CONTEXT_FIELDS},
            traces=_traces(part, names, [name for name, _ in part if name == metric] or rewards, eval_set),
        )
        for one in runs.runs()
        for part in (parts.get(one.run_id, {}),)
    )


def _parts(frame: pl.DataFrame) -> dict[str, dict[tuple[str, str], Trace]]:
    """Traces by run, then by (metric, evaluation set)."""
    found: dict[str, dict[tuple[str, str], Trace]] = {}
    parts = frame.partition_by("run_id", "metric", "eval_set", as_dict=True, maintain_order=True)
    for (run, metric, eval_set), part in parts.items():
        columns = [part[name].to_numpy().astype(np.float64) for name in ("step", "rollouts", "value")]
        found.setdefault(str(run), {})[str(metric), str(eval_set)] = Trace(*columns)
    return found


def _traces(
    parts: Mapping[tuple[str, str], Trace],
    names: Mapping[str, Iterable[str]],
    rewards: Iterable[str],
    eval_set: str | None,
) -> dict[str, Trace]:
    found: dict[str, Trace] = {}
    for quantity, accepted in names.items():
        name = next((name for name in accepted if any(metric == name for metric, _ in parts)), None)
        if name is not None:
            sets = [where for metric, where in parts if metric == name]
            found[quantity] = parts[name, min(sets, key=_training_first)]
    measured = [(name, where) for name in rewards for metric, where in parts if metric == name]
    held_out = [(name, where) for name, where in measured if where not in TRAIN_SETS and eval_set in (None, where)]
    if held_out:
        name, where = min(held_out, key=_held_out_first)
        found[REWARD] = parts[name, where]
        if (name, "train_probe") in measured:
            found[PROBE] = parts[name, "train_probe"]
    return found


def _training_first(eval_set: str) -> tuple[int, str]:
    order = {"train": 0, DEFAULT_EVAL_SET: 1, "train_probe": 3}
    return order.get(eval_set, 2), eval_set


def _held_out_first(measure: tuple[str, str]) -> tuple[int, int, str]:
    name, where = measure
    return -(average_of(name) or 0), int(where != DEFAULT_EVAL_SET), where
