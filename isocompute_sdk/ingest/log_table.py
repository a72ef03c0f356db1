"""From the log of a run and its configuration to rows of a `RunSet`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from isocompute_sdk.errors import RecordError
from isocompute_sdk.ingest.attempts import (
    Array,
    Counter,
    attempt_at,
    running_total,
    wasted_before,
)
from isocompute_sdk.ingest.formats.log_format import (
    RESPONSE_LENGTH,
    SAMPLING_SECONDS,
    STEP_SECONDS,
    STEP_UNITS,
    TRAIN_REWARD,
    TRAIN_SET,
    TRAINED_SHARE,
    TRUNCATED_SHARE,
    VALIDATION,
    Meaning,
    Measure,
    RunLog,
    ScalarSeries,
    StepUnit,
)
from isocompute_sdk.metrics import average_of
from isocompute_sdk.notes import Note
from isocompute_sdk.phrases import counted
from isocompute_sdk.records.clock import by_clock
from isocompute_sdk.records.columns import PER_RUN, Options
from isocompute_sdk.records.reward_metrics import is_training_reward
from isocompute_sdk.records.table import build

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True)
class Reading:
    """How the log of one run is to be read."""

    group_size: int
    """n."""
    problems_per_batch: int
    """B_p."""
    step_unit: StepUnit | None = None
    """What a logged step counts; None for what the framework of the log is known to count."""
    metrics: Mapping[str, str] = field(default_factory=dict[str, str])
    """Tag -> metric, or `metric on evaluation set`, beside the tags that are known."""
    ignore: Sequence[str] = ()
    """Tags to leave out."""
    context: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Seed and context fields."""
    steps_per_batch: float | None = None
    """Optimiser updates made with one rollout batch; None for `updates_per_batch` of the context, else 1."""
    metric: str | None = None
    """The metric that is asked about: a tag of this name is read even if its framework does not know it, and avg@k
    says over how many samples an average is."""
    eval_set: str | None = None
    """Name of the evaluation set for all that was measured on held-out problems."""

    @property
    def batch(self) -> float:
        """Rollouts that an update trains on, n B_p."""
        return float(self.group_size * self.problems_per_batch)


def tabulate(log: RunLog, reading: Reading) -> tuple[pl.DataFrame, tuple[Note, ...]]:
    """The frame of a `RunSet` with every known measurement of a log, rollouts generated and paid for included; notes.

    Values that are not finite are left out with a note.
    """
    import polars as pl

    unit = _unit(log, reading)
    known = _meanings(log, reading)
    # Logged steps in one rollout batch.
    scale = reading.batch if unit == "rollouts" else 1.0
    if unit == "optimizer_updates":
        scale = float(reading.steps_per_batch or reading.context.get("updates_per_batch") or 1)
    updates = [tag for tag, meaning in known.items() if meaning.eval_set == TRAIN_SET]
    filtered = read_filter(log, updates, reading, scale)
    counter = _counter(log, reading, filtered, scale)
    extents = [replace(e, start=e.start / scale, last=e.last / scale) for e in log.extents]
    wasted = wasted_before(extents, _paths(log, updates, reading, counter, scale))
    logged = {one.measure: (log.series(tag), one.factor) for tag, one in known.items()}
    measured = {of: replace(one, value_T=one.value_T * factor) for of, (one, factor) in logged.items()}
    if Measure(STEP_SECONDS, TRAIN_SET) not in measured and (clocked := _clocked(measured)) is not None:
        measured[Measure(STEP_SECONDS, TRAIN_SET)] = clocked
    if scale != 1.0:
        # Times of a part of an update are no times of an update.
        measured = {m: series for m, series in measured.items() if m.metric not in (STEP_SECONDS, SAMPLING_SECONDS)}
    notes = [*log.notes, *_late(log), *_about_metrics(log, known)]
    _check_tokens(log, measured, counter, scale, reading.context.get("max_tokens"))
    totals = _totals(reading.context.get("gpus"), measured, counter, scale)
    parts: list[pl.DataFrame] = []

    def add(measure: Measure, step_T: Array, value_T: Array) -> None:
        rollouts_T = counter.at(step_T)
        columns = {
            "step": step_T,
            "rollouts": rollouts_T,
            "rollouts_spent": rollouts_T + wasted[attempt_at(step_T, extents)],
            "value": value_T,
            **{name: running_total(*amounts, step_T) for name, amounts in totals.items()},
        }
        frame = pl.DataFrame(columns).with_columns(pl.col(*totals).fill_nan(None) if totals else [])
        held_out = reading.eval_set if measure.eval_set != TRAIN_SET else None
        parts.append(frame.with_columns(metric=pl.lit(measure.metric), eval_set=pl.lit(held_out or measure.eval_set)))

    for measure, series in measured.items():
        finite = np.isfinite(series.value_T)
        if not finite.all():
            notes.append(_not_finite(log, measure, series.step_T[~finite]))
        add(measure, series.step_T[finite].astype(np.float64) / scale, series.value_T[finite])
    if filtered is not None:
        add(Measure(TRAINED_SHARE, TRAIN_SET), filtered.step_T, reading.batch / filtered.generated_T)
    frame = pl.concat(parts)
    if frame.is_empty():
        raise RecordError(f"{log.source}: run {log.name!r} has no finite value", "The run has failed, or just begun.")
    return build(_with_configuration(frame, log, reading), Options())[0], tuple(notes)


def _clocked(measured: Mapping[Measure, ScalarSeries]) -> ScalarSeries | None:
    """Seconds per update by the clock of the log, where the framework logs none; None without a clock.

    A log of evaluations alone gives those between its evaluations, as a table does.
    """
    of_updates = [series for measure, series in measured.items() if measure.eval_set == TRAIN_SET]
    longest = max(of_updates or measured.values(), key=lambda series: len(series.step_T))
    seconds_T = by_clock(longest.step_T, longest.wall_time_T)
    kept_T = np.isfinite(seconds_T)
    return replace(longest.where(kept_T), value_T=seconds_T[kept_T]) if kept_T.any() else None


def _paths(log: RunLog, updates: Sequence[str], reading: Reading, counter: Counter, scale: float) -> list[Counter]:
    """Rollouts along the path as it stood after each attempt: a filter throws away others in every attempt."""
    if log.other_extents or log.rollouts is not None:
        return [counter] * len(log.extents)
    found: list[Counter] = []
    for i in range(1, len(log.attempts)):
        path = replace(log, attempts=log.attempts[:i])
        found.append(_counter(path, reading, read_filter(path, updates, reading, scale), scale))
    return [*found, counter]


def _totals(
    gpus: int | None, measured: Mapping[Measure, ScalarSeries], counter: Counter, scale: float
) -> dict[str, tuple[Array, Array]]:
    """Column -> update steps and what each of them used: tokens, and GPU time if the number of GPUs is known.

    GPU time is that of updates; evaluations and checkpoints count as far as the framework counts them there.
    """
    found: dict[str, tuple[Array, Array]] = {}
    lengths, seconds = (measured.get(Measure(name, TRAIN_SET)) for name in (RESPONSE_LENGTH, STEP_SECONDS))
    if lengths is not None and scale == 1.0:
        step_T = lengths.step_T.astype(np.float64)
        found["tokens"] = step_T, (counter.at(step_T) - counter.at(np.maximum(step_T - 1, 0.0))) * lengths.value_T
    if seconds is not None and gpus is not None and scale == 1.0:
        found["gpu_seconds"] = seconds.step_T.astype(np.float64), seconds.value_T * gpus
    return found


def _check_tokens(
    log: RunLog, measured: Mapping[Measure, ScalarSeries], counter: Counter, scale: float, longest: int | None
) -> None:
    """Refuse n times B_p where the tokens that were logged are too few for so many responses of the logged length."""
    wanted = None if log.framework is None else log.framework.tokens_tag
    tag = None if wanted is None else next((tag for tag in log.tags if re.fullmatch(wanted, tag)), None)
    lengths = measured.get(Measure(RESPONSE_LENGTH, TRAIN_SET))
    if tag is None or lengths is None or len(log.series(tag).value_T) < 2:
        return
    counted = log.series(tag)
    length = float(np.nanmean(lengths.value_T[lengths.step_T > counted.step_T[0]]))
    cut = measured.get(Measure(TRUNCATED_SHARE, TRAIN_SET))
    if cut is not None and np.nanmax(cut.value_T, initial=0.0) > 0:
        # TRL may leave truncated responses out of its tokens.
        length -= float(np.nanmean(cut.value_T)) * (longest or np.inf)
    ends_T = counted.step_T[[0, -1]] / scale
    tokens, rollouts = float(counted.value_T[-1] - counted.value_T[0]), float(np.ptp(counter.at(ends_T)))
    if 0 < tokens < TOKENS_SLACK * length * rollouts:
        rate = rollouts / float(np.ptp(ends_T))
        raise RecordError(
            f"{log.source}: run {log.name!r}: n x B_p = {rate:,.0f} rollouts per update contradict {tag}: "
            f"{tokens / rollouts:,.0f} tokens for each, with responses of {length:,.0f} tokens; accepted: at most "
            f"{rate * tokens / rollouts / length:,.0f} rollouts per update",
            "Give the completions of an update over all GPUs: <--set rollouts_per_batch=... | rollouts_per_batch=>",
        )


TOKENS_SLACK = 0.95
"""Share of the tokens of all responses that a log has to have counted: lengths are means of the rows that were logged.
"""


def _unit(log: RunLog, reading: Reading) -> StepUnit:
    unit = reading.step_unit
    if unit is None and log.framework is not None:
        unit = log.framework.unit_of(log.format, log.step_name)
    if unit not in STEP_UNITS:
        received = "no file says" if unit is None else f"received {unit!r} for"
        raise RecordError(
            f"{log.source}: run {log.name!r}: {received} what its {log.step_name!r} counts; accepted: "
            f"{', '.join(STEP_UNITS)}",
            "<Write step_unit into the mapping that `isocompute doctor PATH --output map.yaml` makes | "
            "Pass step_unit=>.",
        )
    return unit


def _meanings(log: RunLog, reading: Reading) -> dict[str, Meaning]:
    known = log.meanings(reading.context.get("eval_samples"))
    asked = reading.metric
    if asked is not None and asked not in {meaning.metric for meaning in known.values()}:
        known = log.meanings(reading.context.get("eval_samples") or average_of(asked))
    named = {} if asked is None else {asked: f"{asked} on {TRAIN_SET}" if is_training_reward(asked) else asked}
    for tag, name in (named | dict(reading.metrics)).items():
        if tag in log.tags:
            metric, _, eval_set = name.partition(" on ")
            # What an update measured is no evaluation under another name either.
            usual = TRAIN_SET if tag in known and known[tag].eval_set == TRAIN_SET else VALIDATION
            known[tag] = Meaning(metric.strip(), eval_set.strip() or usual)
    found = {tag: meaning for tag, meaning in known.items() if tag not in reading.ignore}
    if not found:
        raise RecordError(
            f"{log.source}: run {log.name!r} logs no known tag; it has: {', '.join(log.tags[:20]) or 'no tags'}",
            "Say which tag is the evaluation: <--metric TAG | metric='TAG'>.",
        )
    return found


def _counter(log: RunLog, reading: Reading, filtered: Filtered | None, scale: float) -> Counter:
    """Rollouts generated: as the file counted them, else with those that a filter threw away, if they were logged."""
    if log.rollouts is not None:
        return Counter.of_totals(log.rollouts.step_T / scale, log.rollouts.value_T, reading.batch)
    steps = Counter.of_totals(np.zeros(0), np.zeros(0), reading.batch)
    return steps if filtered is None else steps.refined(filtered.step_T, filtered.generated_T)


def _late(log: RunLog) -> list[Note]:
    if log.first_step == 0:
        return []
    message = (
        f"run {log.name!r}: its log begins after step {log.first_step:g}, so that its first evaluation is not the base "
        "model's; rollouts before that are counted as if the configuration had been the same. Add the log of the "
        "earlier part if there is one."
    )
    return [Note("log-starts-late", "warning", message, {"run_id": log.name, "step": log.first_step})]


def _about_metrics(log: RunLog, known: Mapping[str, Meaning]) -> list[Note]:
    unknown = sorted({meaning.metric for meaning in known.values() if meaning.needs_k})
    if not unknown:
        return []
    message = (
        f"run {log.name!r}: the number of samples behind {', '.join(unknown)} is unknown. Give it: "
        "--set eval_samples=4 has it read as avg@4."
    )
    return [Note("evaluation-samples-unknown", "warning", message, {"run_id": log.name, "metrics": unknown})]


def _not_finite(log: RunLog, meaning: Measure, step_T: np.ndarray[Any, Any]) -> Note:
    message = (
        f"run {log.name!r}: infinite and undefined values are left out ({counted(len(step_T), 'value')} of "
        f"{meaning.metric}), the first at step {step_T[0]:g}. If the run failed there, use only what came before."
    )
    data = {"run_id": log.name, "metric": meaning.metric, "step": float(step_T[0]), "values": len(step_T)}
    return Note("values-not-finite", "warning", message, data)


def _with_configuration(frame: pl.DataFrame, log: RunLog, reading: Reading) -> pl.DataFrame:
    import polars as pl

    shared = {k: v for k, v in reading.context.items() if k in PER_RUN and v is not None}
    if log.framework is not None:
        shared.setdefault("framework", log.framework.name)
    rates = frame.filter(pl.col("metric") == "learning_rate", pl.col("value") > 0)["value"]
    if len(rates):
        # As in tables: of a schedule the largest.
        shared.setdefault("learning_rate", rates.max())
    if shared.get("updates_per_batch", 1) % 1:
        # No whole number, as with 12 steps per generation over 8 of accumulation: the rollouts say it.
        del shared["updates_per_batch"]
    values = {"run_id": log.name, "group_size": reading.group_size, "problems_per_batch": reading.problems_per_batch}
    return frame.with_columns(pl.lit(value).alias(name) for name, value in {**values, **shared}.items())


@dataclass(frozen=True)
class Filtered:
    """Updates T of which a log tells what was filtered."""

    step_T: Array
    """Update steps done."""
    generated_T: Array
    """Rollouts generated."""


def read_filter(log: RunLog, updates: Sequence[str], reading: Reading, scale: float) -> Filtered | None:
    """What the run's filter threw away; None if the log does not say."""
    kept_percent = None if log.framework is None else log.framework.kept_percent_tag
    if kept_percent is not None and kept_percent in log.tags:
        step_T, percent_T = _values(log, kept_percent, scale)
        share_T = percent_T / (100.0 * reading.group_size)
        # A share of 0 cannot be: a batch was trained on.
        step_T, share_T = step_T[share_T > 0], np.minimum(share_T[share_T > 0], 1.0)
        return Filtered(step_T, reading.batch / share_T)
    groups = None if log.framework is None else log.framework.filtered_groups
    tags = [] if groups is None else [tag for tag in log.tags if re.fullmatch(groups, tag)]
    if not tags:
        return None
    # An update that threw nothing away logs none of these tags.
    step_T = np.unique(np.concatenate([_values(log, tag, scale)[0] for tag in (*tags, *updates)]))
    lost_T = np.zeros(len(step_T))
    for tag in tags:
        at_T, groups_T = _values(log, tag, scale)
        lost_T[np.searchsorted(step_T, at_T)] += np.maximum(groups_T, 0.0)
    return Filtered(step_T, reading.batch + reading.group_size * lost_T)


def _values(log: RunLog, tag: str, scale: float) -> tuple[Array, Array]:
    """Steps and finite values of one tag."""
    series = log.series(tag)
    known = np.isfinite(series.value_T)
    return series.step_T[known].astype(np.float64) / scale, series.value_T[known].astype(np.float64)


MAX_PERIOD = 24
"""Updates after which the generations of a run that reuses its rollouts repeat."""


def logged_updates_per_batch(log: RunLog) -> float | None:
    """Optimiser updates made with one rollout batch, from the updates that logged a reward; None if that says nothing.

    A trainer that generates less often than it updates has no reward for the other updates: two of three rows have one
    where 1.5 updates use a generation. It shows only in logs of every update.
    """
    known = log.meanings()
    rewards = [tag for tag, one in known.items() if one.measure == Measure(TRAIN_REWARD, TRAIN_SET)]
    updates = [tag for tag, one in known.items() if one.eval_set == TRAIN_SET]
    if not rewards:
        return None
    step_T = np.unique(np.concatenate([log.series(tag).step_T for tag in updates]))
    if len(step_T) < 2 or np.any(np.diff(step_T) != 1):
        return None
    there_T = np.isin(step_T, np.concatenate([log.series(tag).step_T for tag in rewards]))
    # TRL 0.16 may leave the reward out of a row that also evaluates.
    others = [log.series(tag).step_T for tag, one in known.items() if one.eval_set != TRAIN_SET]
    sure_T = ~np.isin(step_T, np.concatenate(others)) | there_T if others else np.ones(len(step_T), dtype=bool)
    for period in range(1, min(MAX_PERIOD, len(step_T) // 2) + 1):
        places = [there_T[i::period][sure_T[i::period]] for i in range(period)]
        if all(len(place) and np.ptp(place.astype(int)) == 0 for place in places):
            rewarded = sum(bool(place[0]) for place in places)
            return period / rewarded if rewarded else None
    return None
