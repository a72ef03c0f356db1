"""Default metric, evaluation set and range of an audit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from shlex import quote

import numpy as np

from isocompute_sdk.errors import RecordError
from isocompute_sdk.fitting.measured_runs import USUAL_RANGES
from isocompute_sdk.metrics import average_of
from isocompute_sdk.notes import Note
from isocompute_sdk.records import RunSet
from isocompute_sdk.records.columns import DEFAULT_EVAL_SET, TRAIN_SETS
from isocompute_sdk.records.rewards import TRAIN_SET, choose, headline, training_reward_note


@dataclass(frozen=True)
class Measure:
    """Metric, evaluation set and range of an audit, with notes on what was chosen."""

    metric: str
    eval_set: str
    bounds: tuple[float, float]
    notes: tuple[Note, ...] = ()


def choose_measure(
    runs: RunSet,
    metric: str | None = None,
    eval_set: str | None = None,
    bounds: tuple[float, float] | None = None,
) -> Measure:
    """The given metric and set, else those that most runs have: avg@4 before other avg@k before other metrics.

    Raises:
        RecordError: the runs do not have the metric, or not on this set.
    """
    import polars as pl

    table = runs.to_polars().group_by("metric", "eval_set").agg(pl.col("run_id").n_unique().alias("runs"))
    found = {(row["metric"], row["eval_set"]): row["runs"] for row in table.iter_rows(named=True)}
    fitting = {one: count for one, count in found.items() if eval_set in (None, one[1]) and metric in (None, one[0])}
    if not fitting:
        have = ", ".join(sorted(f"{name} on {where}" for name, where in found))
        likely = headline(one for one in found if eval_set in (None, one[1])) or headline(found)
        options = () if likely is None else (f"--metric {quote(likely[0])}",)
        if likely is not None and eval_set not in (None, likely[1]):
            options += (f"--eval-set {quote(likely[1])}",)
        raise RecordError(
            f"no {metric or 'metric'} on {eval_set or 'any evaluation set'} in these runs; they have: {have}",
            "Choose one of them with metric= and eval_set=.",
            options=options,
        ).in_shell("Choose one of them with --metric and --eval-set.")
    name, where = choose(fitting) if metric is None else min(fitting, key=lambda one: _place(one, fitting))
    notes: list[Note] = []
    others = sorted({s for m, s in found if m == name and s != where})
    if eval_set is None and others:
        notes.append(
            Note(
                "eval-set-chosen",
                "info",
                f"{name} was measured on {where} and on {', '.join(others)}; this audit uses {where}.",
                {"eval_set": where, "others": others},
            )
        )
    if where == TRAIN_SET:
        notes.append(training_reward_note(name, asked=metric is not None))
    if bounds is None:
        bounds = _range(runs, name, where)
        if bounds != USUAL_RANGES[0]:
            notes.append(
                Note(
                    "range-guessed",
                    "warning",
                    f"{name} leaves 0 to 1; a range of {bounds[0]:g} to {bounds[1]:g} is assumed. It determines the "
                    "possible gain and what counts as a tie. Give the true range (--bounds).",
                    {"bounds": list(bounds)},
                )
            )
    return Measure(name, where, bounds, tuple(notes))


def _place(one: tuple[str, str], runs_with: Mapping[tuple[str, str], int]) -> tuple[bool, int, bool, str]:
    """Held-out sets first, then what most runs have, then `validation`."""
    return one[1] in TRAIN_SETS, -runs_with[one], one[1] != DEFAULT_EVAL_SET, one[1]


def _range(runs: RunSet, metric: str, eval_set: str) -> tuple[float, float]:
    values = runs.filter(metric=metric, eval_set=eval_set).to_polars()["value"].to_numpy()
    low, high = float(np.min(values)), float(np.max(values))
    for bounds in USUAL_RANGES:
        if bounds[0] <= low and high <= bounds[1]:
            return bounds
    room = 0.1 * (high - low)
    return low - room, high + room


def kin(metric: str, names: Sequence[str]) -> list[str]:
    """The metric and, for avg@k, every other avg@j of `names`: all estimate the same mean."""
    if average_of(metric) is None:
        return [metric]
    return [metric, *(name for name in names if average_of(name) and name != metric)]
