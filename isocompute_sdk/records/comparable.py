"""Which runs may be compared, what they were trained with, and learning rates that follow one rule.

Learning rates that follow one rule in the batch size belong to one recipe (paper, section 3: the square root).
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from shlex import quote
from typing import Any, cast

import numpy as np

from isocompute_sdk.errors import FitError
from isocompute_sdk.notes import Note
from isocompute_sdk.phrases import counted, joined, listed
from isocompute_sdk.records.columns import CONTEXT_FIELDS, LENIENT
from isocompute_sdk.records.runset import RunInfo, RunSeries

BASE_GAP = 5.0
"""Gap between rewards at step 0, in standard deviations of one evaluation, that separates base models."""
UNSTATED = "unstated"
"""In place of a field's name: what some runs do not state is as in those that do."""
EVAL_SET = "eval_set"
"""The same: evaluation sets of different names, one for each run, are the same problems."""
BATCHES_FOR_A_RULE = 3
"""Batch sizes over which learning rates must follow a rule to be pooled unasked: two agree by chance too easily."""


def check_pool(pool: object) -> tuple[str, ...]:
    """Names of context fields, or `UNSTATED`, as a tuple: one name gives a tuple of one, None an empty tuple."""
    one = isinstance(pool, str) or not isinstance(pool, Iterable)
    names = () if pool is None else (pool,) if one else tuple(cast("Iterable[object]", pool))
    unknown = [str(name) for name in names if name not in (*CONTEXT_FIELDS, UNSTATED, EVAL_SET)]
    if unknown:
        raise FitError(
            f"pool names {', '.join(sorted(unknown))}; accepted: {', '.join((*CONTEXT_FIELDS, UNSTATED, EVAL_SET))}",
            "Name the fields in which runs may differ.",
        )
    return cast("tuple[str, ...]", names)


def refuse_mixed_contexts(series: Sequence[RunSeries], pool: Sequence[str]) -> None:
    """Runs on one frontier must agree in every field of their context that is not pooled; null equals null."""
    known = {f: {s.context.get(f) for s in series} for f in CONTEXT_FIELDS if f not in pool}
    known = {f: found - {None} if f in LENIENT or UNSTATED in pool else found for f, found in known.items()}
    rates: set[Any] = known.get("learning_rate", set())
    if None not in rates and max(rates, default=0) <= min(rates, default=0) * (1 + RULE_TOLERANCE):
        # The peaks of one schedule that was logged now and then.
        known.pop("learning_rate", None)
    values = {f: sorted(map(repr, found)) for f, found in known.items()}
    differing = tuple(f for f, found in values.items() if len(found) > 1)
    if not differing:
        return
    shown = "; ".join(f"{f}: {', '.join(values[f][:5])}" for f in differing)
    alike = all(len(known[f] - {None}) < 2 for f in differing)
    apart = f"these runs differ in {', '.join(differing)} ({shown}); their curves do not belong on one frontier"
    unsaid = f"some of these runs do not state {joined(differing)}, which others do: their curves may not be comparable"
    pooled = (UNSTATED,) if alike else differing
    say = "say that runs which do not state them are like those that do" if alike else "say that it does not matter"
    kinds = Counter(tuple(one.context.get(name) for name in differing) for one in series)
    most = min(kinds, key=lambda kind: (-kinds[kind], tuple(map(repr, kind))))
    where = [f"--where {quote(f'{f}={value}')}" for f, value in zip(differing, most, strict=True) if value is not None]
    part = f"isocompute doctor RUNS {' '.join(where)} --output part.parquet"
    rule = " Learning rates that follow one rule over three batch sizes or more are pooled by themselves."
    more = rule * (differing == ("learning_rate",))
    raise FitError(
        unsaid if alike else apart,
        f"Fit them separately (runs.filter({differing[0]}=...)), or {say}: pool={pooled!r}.{more}",
    ).in_shell(
        f"Fit them separately ({part}), or {say}: {' '.join(f'--pool {name}' for name in pooled)}.{more}",
        [f"--pool {UNSTATED}"] if alike else [],
    )


def taken_for_granted(runs: Sequence[RunInfo] | Sequence[RunSeries], fields: Iterable[str]) -> list[Note]:
    """That some runs do not state fields that the others of their group do."""
    values = {name: {run.context.get(name) for run in runs} for name in fields}
    guessed = [name for name, found in values.items() if len(found) > 1 and None in found]
    silent = [run.run_id for run in runs if any(run.context.get(name) is None for name in guessed)]
    if not guessed:
        return []
    return [
        Note(
            "context-taken-for-granted",
            "warning",
            f"{joined(guessed)} not stated by {counted(len(silent), 'run')} ({listed(silent, 4)}); the values that "
            "other runs state are assumed. If they differ, add the columns or leave these runs out.",
            {"fields": guessed, "runs": silent},
        )
    ]


def one_rule(series: Sequence[RunSeries]) -> str | None:
    """The rule in the batch size that all learning rates follow, as a recipe sets them; None without such a rule."""
    if any(one.context.get("learning_rate") is None for one in series):
        return None
    return learning_rate_rule(series, BATCHES_FOR_A_RULE) or None


def varied_sets(series: Sequence[RunInfo] | Sequence[RunSeries]) -> bool:
    """Whether the size of the problem set is known everywhere and varies at one n at least: then it is an input."""
    sizes: dict[int, set[Any]] = {}
    for one in series:
        sizes.setdefault(one.group_size, set()).add(one.context.get("n_problems"))
    return None not in set().union(*sizes.values()) and any(len(found) > 1 for found in sizes.values())


def common_context(series: Sequence[RunSeries]) -> dict[str, Any]:
    """Context fields with the value that all runs share that state it; None where several or none do."""
    known = {name: {one.context.get(name) for one in series} - {None} for name in series[0].context}
    return {name: next(iter(found)) if len(found) == 1 else None for name, found in known.items()}


def confounded(series: Sequence[RunSeries], pool: Sequence[str]) -> list[Note]:
    """Pooled fields whose value goes together with n: what looks like n may be that field.

    Samples per problem are left out: averages over more or fewer of them have the same expectation. So are learning
    rates of one rule: plans follow it too.
    """
    notes: list[Note] = []
    ruled = ("eval_samples", "learning_rate") if one_rule(series) else ("eval_samples",)
    for name in (field for field in pool if field not in ruled):
        values: dict[int, set[Value]] = {}
        for one in series:
            # Unknown is no other value.
            if one.context.get(name) is not None:
                values.setdefault(one.group_size, set()).add(one.context[name])
        all_values = set().union(*values.values())
        # Together: one value per n, and not the same one everywhere.
        if len(all_values) > 1 and all(len(v) == 1 for v in values.values()):
            each = {n: next(iter(v)) for n, v in sorted(values.items())}
            pairs = ", ".join(f"n = {n}: {v:.3g}" if isinstance(v, float) else f"n = {n}: {v}" for n, v in each.items())
            notes.append(
                Note(
                    "group-size-confounded",
                    "warning",
                    f"{name} changes together with the group size ({pairs}): what looks like an effect of n may be "
                    f"an effect of {name}. Runs of one n with two values of {name} would separate them.",
                    {"field": name, "values": {str(n): sorted(map(repr, v)) for n, v in values.items()}},
                )
            )
    return notes


def split_by_start(start: Mapping[str, float], noise: float) -> list[list[str]]:
    """Run ids by reward at step 0, split at gaps beyond noise, by increasing reward."""
    ordered = sorted(start, key=lambda run: (start[run], run))
    parts = [ordered[:1]] if ordered else []
    for before, run in pairwise(ordered):
        if start[run] - start[before] > BASE_GAP * noise:
            parts.append([])
        parts[-1].append(run)
    return parts


def unlike_at_start(start: Mapping[str, float], noise: float) -> list[Note]:
    """That runs on one frontier differ at step 0, with the command that keeps those that belong together.

    Args:
        start: reward at step 0 by run id.
        noise: standard deviation of one evaluation.
    """
    parts = sorted(split_by_start(start, noise), key=len, reverse=True)
    if len(parts) < 2:
        return []
    shown = "; ".join(f"{listed(part, 4)} at {float(np.mean([start[run] for run in part])):.3g}" for part in parts[:5])
    kept = " ".join(f"--where {quote(f'run_id={run}')}" for run in parts[0])
    return [
        Note(
            "context-taken-for-granted",
            "warning",
            f"rewards at step 0 differ by more than noise ({shown}): these runs began from different models or were "
            "evaluated differently, and their curves do not belong on one frontier. Fit them separately: isocompute "
            f"doctor RUNS {kept} --output part.parquet (isocompute audit RUNS does so for every group), or say that "
            "it does not matter: --pool model.",
            {"fields": ["model"], "runs": sorted(run for part in parts[1:] for run in part), "groups": parts},
        )
    ]


RULE_TOLERANCE = 0.03
"""Relative scatter within which learning rates follow a rule."""
Value = str | int | float
RULES = {"constant": 0.0, "sqrt": 0.5, "linear": 1.0}
"""Rules of a learning rate in the batch size, and their powers (paper, section 3: the square root)."""
_WORDS = {"sqrt": "the square root of the batch", "linear": "the batch"}


def learning_rate_rule(runs: Sequence[RunInfo] | Sequence[RunSeries], least_batches: int = 2) -> str | None:
    """The rule of the learning rates; None if they differ without a rule, "" if they are equal.

    Args:
        runs: the runs; those without a learning rate are skipped.
        least_batches: batch sizes needed for a rule: two agree by chance.
    """
    known = [run for run in runs if run.context["learning_rate"] is not None]
    if len({run.context["learning_rate"] for run in known}) <= 1:
        return ""
    if any(run.problems_per_batch is None or not run.context["learning_rate"] for run in known):
        return None
    rates = [float(run.context["learning_rate"]) for run in known]
    batches = [run.group_size * (run.problems_per_batch or 1) for run in known]
    found = _rule(rates, batches, _WORDS) if len(set(batches)) >= least_batches else None
    return None if found is None else _WORDS[found[0]]


def _rule(rates: Sequence[float], batches: Sequence[int], among: Iterable[str]) -> tuple[str, int] | None:
    """The first of some `RULES` that rates follow, and the place of the run in its middle; None if they follow none."""
    for rule in among:
        ratio_R = np.log(np.array(rates) / np.array(batches, dtype=float) ** RULES[rule])
        if float(np.ptp(ratio_R)) <= RULE_TOLERANCE:
            return rule, int(np.argsort(ratio_R, kind="stable")[len(ratio_R) // 2])
    return None


@dataclass(frozen=True)
class RunSettings:
    """Runs of one configuration that share every context field."""

    group_size: int
    problems_per_batch: int | None
    runs: int
    """How many runs."""
    values: Mapping[str, Value]
    """Context fields that are known."""

    @property
    def batch(self) -> int | None:
        """Rollouts per batch, n B_p; None if B_p is unknown."""
        return None if self.problems_per_batch is None else self.group_size * self.problems_per_batch


def settings_of(series: Iterable[Any]) -> tuple[RunSettings, ...]:
    """The settings of runs, by n, B_p and context, in a stable order.

    Args:
        series: `RunSeries` or anything with their `group_size`, `problems_per_batch` and `context`.
    """
    counted: Counter[tuple[int, int | None, tuple[tuple[str, Value], ...]]] = Counter()
    for one in series:
        known = tuple(sorted((name, value) for name, value in one.context.items() if value is not None))
        counted[one.group_size, one.problems_per_batch, known] += 1
    order = sorted(counted.items(), key=lambda item: (item[0][0], item[0][1] or 0, repr(item[0][2])))
    return tuple(RunSettings(n, bp, runs, dict(known)) for (n, bp, known), runs in order)


def values_of(settings: Sequence[RunSettings], name: str) -> tuple[Value, ...]:
    """Distinct known values of a context field, that of the most runs first."""
    counted: Counter[Value] = Counter()
    for one in settings:
        if name in one.values:
            counted[one.values[name]] += one.runs
    return tuple(sorted(counted, key=lambda value: (-counted[value], repr(value))))


@dataclass(frozen=True)
class LearningRates:
    """The learning rates of runs: rate * (B / batch)^power."""

    rule: str | None
    """`constant`, `sqrt` or `linear`; None if one batch was run, or if the rates follow no rule."""
    rate: float
    batch: int | None
    """Rollouts per batch at which `rate` was used; None if unknown."""
    agree: bool
    """False if the runs used several rates that follow no rule."""


def learning_rates_of(settings: Sequence[RunSettings], near: tuple[int, int] | None = None) -> LearningRates | None:
    """The rule and anchor of the runs' learning rates; None if no run records one above 0.

    Args:
        settings: the runs.
        near: (n, B_p) of a plan. Rates without a rule are taken from the runs nearest to it, in octaves.
    """
    known = [one for one in settings if float(one.values.get("learning_rate", 0.0)) > 0.0]
    if not known:
        return None
    rates = [float(one.values["learning_rate"]) for one in known]
    batches = [one.batch for one in known if one.batch is not None]
    if len(set(rates)) == 1:
        rule = "constant" if len(set(batches)) > 1 or len(batches) < len(known) else None
        return LearningRates(rule, rates[0], known[0].batch, agree=True)
    found = _rule(rates, batches, RULES) if len(batches) == len(known) and len(set(batches)) > 1 else None
    if found is not None:
        rule, middle = found
        return LearningRates(rule, rates[middle], batches[middle], agree=True)
    nearest = min(known, key=lambda one: (_octaves(one, near), -one.runs, float(one.values["learning_rate"])))
    same = [one for one in known if _octaves(one, near) == _octaves(nearest, near)]
    rate = float(values_of(same, "learning_rate")[0])
    return LearningRates(None, rate, nearest.batch, agree=False)


def _octaves(one: RunSettings, near: tuple[int, int] | None) -> float:
    """Distance of a configuration from (n, B_p)."""
    if near is None:
        return 0.0
    found = abs(math.log2(one.group_size / near[0]))
    return found + (0.0 if one.problems_per_batch is None else abs(math.log2(one.problems_per_batch / near[1])))


def staleness_of(value: object) -> float | None:
    """How many updates old the weights behind a rollout may be, from the column `off_policy`; None if unbounded.

    `none` and `sync` are 0. Of any other text the first number counts, as in `staleness 2`; without one, as in
    `async`, the bound is unknown.
    """
    text = str(value).strip().lower()
    if text in ("none", "sync", "on-policy", "false"):
        return 0.0
    number = re.search(r"\d+(?:\.\d+)?", text)
    return None if number is None else float(number[0])
