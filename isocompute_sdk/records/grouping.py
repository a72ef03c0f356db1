"""Which runs may be compared (equal known context, learning rates that follow one rule), and on which metric."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from shlex import quote
from typing import Any

import numpy as np

from isocompute_sdk.errors import RecordError
from isocompute_sdk.metrics import is_average
from isocompute_sdk.notes import Note
from isocompute_sdk.records.columns import CONTEXT_FIELDS, DEFAULT_EVAL_SET, TRAIN_SETS
from isocompute_sdk.records.comparable import learning_rate_rule, split_by_start, taken_for_granted, varied_sets
from isocompute_sdk.records.reward_metrics import (
    TRAIN_SET,
    choose,
    headline,
    measured_in,
    metric_note,
    rivals,
    training_reward_note,
)
from isocompute_sdk.records.runset import RunInfo, RunSet

_FREE = ("learning_rate", "eval_samples", "n_problems")
"""Fields with rules of their own. More samples per problem estimate the same mean with less noise."""


@dataclass(frozen=True)
class Group:
    """Runs that may be compared."""

    context: dict[str, Any]
    """Fields on which all runs agree; fields that are unknown or may differ are absent."""
    runs: tuple[RunInfo, ...]
    pooled: tuple[str, ...]
    """Context fields that differ among the runs, or that some do not state."""
    notes: tuple[Note, ...]
    base_reward: float | None = None
    """Mean reward at step 0; None if not measured."""


def group_runs(
    runs: Sequence[RunInfo],
    pool: Collection[str] = (),
    base_rewards: Mapping[str, float] | None = None,
    noise: float = 0.0,
) -> list[Group]:
    """Split runs into groups that may be compared, largest first.

    A run with unknown fields joins the only group it does not contradict; if several fit, it stays apart. Runs whose
    rewards at step 0 differ beyond noise started from different models or used different sets, whatever their
    columns say.

    Args:
        runs: all runs.
        pool: context fields that may differ.
        base_rewards: reward at step 0 by run id, for runs that measured it.
        noise: standard deviation of one evaluation.
    """
    hard = [name for name in CONTEXT_FIELDS if name not in _FREE and name not in pool]
    cells = _merge(runs, hard)
    if "n_problems" not in pool:
        cells = [part for cell in cells for part in ([cell] if varied_sets(cell) else _merge(cell, ["n_problems"]))]
    if "learning_rate" not in pool:
        ruled = [(cell, learning_rate_rule(cell) is not None) for cell in cells]
        cells = [part for cell, one_rule in ruled for part in ([cell] if one_rule else _split(cell, "learning_rate"))]
    stated = [name for name in CONTEXT_FIELDS if name not in pool and name != "eval_samples"]
    bases = base_rewards or {}
    cells = [part for cell in cells for part in ([cell] if "model" in pool else _by_start(cell, bases, noise))]
    groups = [_describe(cell, stated, bases) for cell in cells]
    return sorted(groups, key=lambda g: (-len(g.runs), g.runs[0].run_id))


def differences(first: Group, second: Group, pool: Collection[str] = ()) -> dict[str, tuple[Any, Any]]:
    """Context fields, without those in `pool`, that separate two groups, with both values; None is unknown."""
    found: dict[str, tuple[Any, Any]] = {}
    for name in (field for field in CONTEXT_FIELDS if field not in pool):
        a, b = (frozenset(run.context[name] for run in group.runs) for group in (first, second))
        if not a & b and (a | b) - {None}:
            found[name] = (_one(a), _one(b))
    if not found and None not in (first.base_reward, second.base_reward):
        found["the reward at step 0, that is in base model or evaluation"] = (
            first.base_reward,
            second.base_reward,
        )
    return found


def _one(values: Collection[Any]) -> Any:
    return next(iter(values)) if len(values) == 1 else sorted(values, key=repr)


def _merge(runs: Sequence[RunInfo], fields: Sequence[str]) -> list[list[RunInfo]]:
    """Runs by equal context; an incomplete context joins the only group that agrees with it."""
    exact: dict[tuple[Any, ...], list[RunInfo]] = {}
    for run in runs:
        exact.setdefault(tuple(run.context[name] for name in fields), []).append(run)
    # Complete contexts first: they decide which groups the incomplete ones may join.
    ordered = sorted(exact, key=lambda key: (sum(value is None for value in key), repr(key)))
    merged: list[tuple[list[Any], list[RunInfo]]] = []
    for key in ordered:
        fitting = [group for group in merged if _agree(key, group[0])]
        if len(fitting) == 1:
            fitting[0][1].extend(exact[key])
            fitting[0][0][:] = [b if a is None else a for a, b in zip(fitting[0][0], key, strict=True)]
        else:
            merged.append((list(key), list(exact[key])))
    return [members for _, members in merged]


def _agree(key: Sequence[Any], other: Sequence[Any]) -> bool:
    return all(a is None or b is None or a == b for a, b in zip(key, other, strict=True))


def _by_start(cell: list[RunInfo], bases: Mapping[str, float], noise: float) -> list[list[RunInfo]]:
    """Runs by their reward at step 0; runs without one join if there is a single group."""
    parts = split_by_start({run.run_id: bases[run.run_id] for run in cell if run.run_id in bases}, noise)
    if len(parts) < 2:
        return [cell]
    members = [*parts, [run.run_id for run in cell if run.run_id not in bases]]
    return [[run for name in part for run in cell if run.run_id == name] for part in members if part]


def _split(cell: list[RunInfo], name: str) -> list[list[RunInfo]]:
    parts: dict[Any, list[RunInfo]] = {}
    for run in cell:
        parts.setdefault(run.context[name], []).append(run)
    return list(parts.values())


def _describe(cell: list[RunInfo], stated: Sequence[str], bases: Mapping[str, float]) -> Group:
    values = {name: {run.context[name] for run in cell} for name in CONTEXT_FIELDS}
    context = {name: next(iter(found - {None})) for name, found in values.items() if len(found - {None}) == 1}
    pooled = tuple(name for name, found in values.items() if len(found) > 1)
    ordered = sorted(cell, key=lambda run: (run.group_size, run.problems_per_batch or 0, run.run_id))
    measured = [bases[run.run_id] for run in cell if run.run_id in bases]
    base = float(np.mean(measured)) if measured else None
    return Group(context, tuple(ordered), pooled, tuple(taken_for_granted(cell, stated)), base)


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
    bounds: tuple[float, float] = (0.0, 1.0),
) -> Measure:
    """The given metric and set, else those that most runs have: avg@4 before other avg@k before other metrics."""
    found = measured_in(runs.to_polars())
    fitting = {one: count for one, count in found.items() if eval_set in (None, one[1]) and metric in (None, one[0])}
    if not fitting:
        have = ", ".join(sorted(f"{name} on {where}" for name, where in found))
        likely = headline(one for one in found if eval_set in (None, one[1])) or headline(found)
        options = () if likely is None else (f"--metric {quote(likely[0])}",)
        if likely is not None and eval_set not in (None, likely[1]):
            options += (f"--eval-set {quote(likely[1])}",)
        raise RecordError(
            f"no {metric or 'metric'} on {eval_set or 'any evaluation set'} in these runs; they have: {have}",
            "Choose one of them with <--metric | metric=> and <--eval-set | eval_set=>.",
            options=options,
        )
    name, where = choose(fitting) if metric is None else min(fitting, key=lambda one: _place(one, fitting))
    unnamed = rivals((name, where), found) if metric is None else []
    notes = [metric_note((name, where), unnamed)] if unnamed else []
    others = sorted({s for m, s in found if m == name and s != where})
    if eval_set is None and others:
        notes.append(
            Note(
                "metric-chosen",
                "info",
                f"{name} was measured on {where} and on {', '.join(others)}; this audit uses {where}.",
                {"metric": name, "eval_set": where, "others": others},
            )
        )
    if where == TRAIN_SET:
        notes.append(training_reward_note(name, asked=metric is not None))
    return Measure(name, where, bounds, tuple(notes))


def _place(one: tuple[str, str], runs_with: Mapping[tuple[str, str], int]) -> tuple[bool, int, bool, str]:
    """Held-out sets first, then what most runs have, then `validation`."""
    return one[1] in TRAIN_SETS, -runs_with[one], one[1] != DEFAULT_EVAL_SET, one[1]


def kin(metric: str, names: Sequence[str]) -> list[str]:
    """The metric and, for avg@k, every other avg@j of `names`, also of unknown j: all estimate the same mean."""
    if not is_average(metric):
        return [metric]
    return [metric, *(name for name in names if is_average(name) and name != metric)]


def measured_as(metric: str, names: Sequence[str]) -> str | None:
    """The first of a metric and its `kin` among the metrics of a run; None if it has none of them."""
    return next((name for name in kin(metric, names) if name in names), None)
