"""The measured columns of a table: as rows; which is the reward, the best@k that leads it, and whether rewards rise."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from shlex import quote
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from isocompute_sdk.errors import NothingMeasured, RecordError, did_you_mean
from isocompute_sdk.metrics import UNKNOWN_AVERAGE, average_of, is_average
from isocompute_sdk.notes import Note
from isocompute_sdk.phrases import counted, listed
from isocompute_sdk.records.clock import TIMES, seconds_in
from isocompute_sdk.records.columns import (
    BY_NAME,
    CLOCKS,
    DEFAULT_EVAL_SET,
    MIN_TO_JUDGE,
    STEP_SECONDS,
    TRAIN_SETS,
    Named,
    Options,
    Source,
    blank_to_null,
    canonical,
    misspelt,
    numbers_in,
    require,
    spelled,
    typed,
    wrong_column,
)

if TYPE_CHECKING:
    import polars as pl


TRAIN_REWARD, TRAIN_SET = "train_reward", "train"
_COUNTED = re.compile(r"(best|worst|pass|mean)@([1-9][0-9]*|\?)")
_NO_REWARD = re.compile(
    r"(.*[/_. ])?(epochs?|loss|.+_loss|entropy|.*kl|.*grad(ient)?_norm|lr|learning_rate|.*clip(ped)?(_.*|frac)?|"
    r".*(len(gth)?s?|tokens?|seconds|time|runtime|timestamp|memory|samples|rollouts|steps?|step_time|share)(_per_sec(ond)?)?|"
    r"importance_.*|frac_.*|.*std|batch_size|total_flos|trained_share|adv(antages?)?|returns?|.*ratio|.*util(ization)?|"
    r"throughput|perplexity|ppl|max|min|var(iance)?|iter(ation)?s?|fps|temperature)([/_](mean|std|min|max|avg|median))?",
    re.IGNORECASE,
)
"""Names of diagnostics, counters and settings."""
_LENGTH = re.compile(
    r"(.*[/_. -])?(len(gth)?s?|tokens?)([/_@. -].*)?(?<!reward)(?<!score)(?<!acc)(?<!accuracy)", re.IGNORECASE
)
"""Sizes of responses, wherever the word stands."""
_COMPONENT = re.compile(r"(.*/)?rewards/.+|(.*[/_. -])?format([/_. -].*)?", re.IGNORECASE)
"""One reward function of several; that of the format is never the whole."""
_SCORES = (
    "pass|acc|accuracy|score|rewards?|success(es|_rate)?|solved?|solve_rate|correct|correctness|win|win_rate|exact_match|"
    "em|f1|maj"
)
_PLACE = re.compile(r"(.*[/_. -])?(eval|val|valid|validation|test|held_?out)([/_@. 0-9-].*)?", re.IGNORECASE)
"""Names of what was measured on held-out problems."""
_SCORE = re.compile(rf"(.*[/_. -])?({_SCORES})([/_@. 0-9-].*)?", re.IGNORECASE)
"""Names that say what is measured, and not only where: of `eval/turns` and `eval/reward` the second is the reward."""
_WHERE = r"([/_@. 0-9-]|eval|val|valid|validation|test|mean|avg|total|final|overall)*"
_WHOLE = re.compile(rf"{_WHERE}({_SCORES}){_WHERE}", re.IGNORECASE)
"""Those that say no more, so that they name no part: `eval/reward` beside `eval/format_reward`."""
_TRAINING = re.compile(
    r"(?!.*(eval|val|test|held))(.*[/_. -])?(train|training|rollouts?|episodes?|ep|env)[/_. -](.*[/_. -])?"
    r"(reward|score|return|acc|accuracy)s?([/_. -](mean|avg|total))?",
    re.IGNORECASE,
)
"""Names that people give to the reward of what an update trained on."""
EVALUATIONS, OTHER = range(3), 8
"""Ranks of what names say is an average on held-out problems, and of an unknown name."""


def is_training_reward(metric: str) -> bool:
    """Whether a name is that of a training reward, ours or one such as `train/reward`."""
    return metric == TRAIN_REWARD or (_COMPONENT.fullmatch(metric) is None and _TRAINING.fullmatch(metric) is not None)


def rank(metric: str, eval_set: str) -> int | None:
    """Rank of a measurement as the reward of the table, 0 for the best; None if it is no reward.

    Order: averages on held-out problems, other rewards on them, the training reward, unknown names.
    """
    if is_training_reward(metric):
        return 7
    if eval_set in TRAIN_SETS:
        # A metric of evaluations that was measured on training problems, or a reward by another name.
        named = _SCORE.fullmatch(metric) and not _is_diagnostic(metric)
        return 6 if average_of(metric) else 7 if named else None
    average = is_average(metric)
    place, score = _PLACE.fullmatch(metric), _SCORE.fullmatch(metric)
    if not average and not _COUNTED.fullmatch(metric) and _is_diagnostic(metric):
        return None
    kinds = (
        metric == "avg@4",
        average,
        place and score and not _COUNTED.fullmatch(metric),
        metric in ("reward", "accuracy"),
        _COUNTED.fullmatch(metric),
        place or score,
    )
    return next((i for i, holds in enumerate(kinds) if holds), OTHER)


def names_a_reward(metric: str) -> bool:
    """Whether a name is that of a whole reward and does not say on which problems, such as `reward_avg`."""
    return not _PLACE.fullmatch(metric) and rank(metric, DEFAULT_EVAL_SET) == 5 and _WHOLE.fullmatch(metric) is not None


def _is_diagnostic(metric: str) -> bool:
    """Whether a name is that of a diagnostic, a length, or one reward function of several."""
    return any(kind.fullmatch(metric) for kind in (_NO_REWARD, _LENGTH, _COMPONENT))


def headline(runs_with: Iterable[tuple[str, str]]) -> tuple[str, str] | None:
    """The reward among (metric, evaluation set) pairs, or among a mapping of them to numbers of runs; None without any.

    Held-out problems come first, then what most runs have, then an average, then a name that says what is measured and
    no part of it, then the most samples, then `validation`, then the alphabet.
    """
    counts = dict(runs_with) if isinstance(runs_with, Mapping) else dict.fromkeys(runs_with, 1)
    ranked = {one: place for one in counts if (place := rank(*one)) is not None}

    def order(one: tuple[str, str]) -> tuple[object, ...]:
        (metric, where), place = one, ranked[one]
        names = (_SCORE.fullmatch(metric) is None, _WHOLE.fullmatch(metric) is None)
        tie = (*names, -(average_of(metric) or 0), where != DEFAULT_EVAL_SET, metric, where)
        return (_CLASS[place], -counts[one], place, *tie)

    return min(ranked, key=order, default=None)


def measured_in(table: pl.DataFrame) -> dict[tuple[str, str], int]:
    """(Metric, evaluation set) of canonical rows -> number of runs that have it."""
    import polars as pl

    counts = table.group_by("metric", "eval_set").agg(pl.col("run_id").n_unique())
    return {(metric, where): runs for metric, where, runs in counts.iter_rows()}


_CLASS = (0, 0, 0, 0, 0, 1, 2, 2, 3)
"""Evaluations on held-out problems, names that may be those of one, training rewards, other names."""


def undecided(measured: Iterable[tuple[str, str]]) -> list[str]:
    """Metrics with unknown names, one of which may be the reward; empty if a name decides, or none can be it."""
    ranked = {one: place for one in measured if (place := rank(*one)) is not None}
    names = sorted({metric for metric, _ in ranked})
    return names if len(names) > 1 and set(ranked.values()) == {OTHER} else []


def choose(runs_with: Mapping[tuple[str, str], int]) -> tuple[str, str]:
    """The reward that most runs have."""
    asked, best = undecided(runs_with), headline(runs_with)
    have = sorted({metric for metric, _ in runs_with})
    if best is None:
        raise RecordError(
            f"no reward was measured: these runs have {', '.join(have)}, which are diagnostics, settings or parts of a "
            "reward; accepted: an evaluation, or the training reward",
            "If one of them is the reward, name it with <--metric | metric=>.",
            options=(f"--metric {quote(have[0])}",) if len(have) == 1 else (),
        )
    if asked:
        raise RecordError(
            f"which of these is the reward: {', '.join(asked)}? Their names do not say; accepted: one of them",
            f"Name it, e.g. metric={asked[0]!r}.",
        ).in_shell(f"Name it: {' or '.join(f'--metric {quote(name)}' for name in asked[:8])}.")
    return best


def rivals(chosen: tuple[str, str], measured: Iterable[tuple[str, str]]) -> list[str]:
    """Other rewards whose names say as much as that of the chosen one; averages over any k are one reward."""
    metric, place = chosen[0], rank(*chosen)
    same = {name for name, where in measured if name != metric and rank(name, where) == place}
    return [] if is_average(metric) else sorted(same)


def metric_note(chosen: tuple[str, str], others: Sequence[str]) -> Note:
    """Which metric decides where nobody named one: a warning if others could."""
    metric, where = chosen
    message = f"You named no metric and no run has avg@4, so {metric} is used."
    if others:
        message += f" The runs also have {listed(others, 4)}: --metric says which decides."
    data = {"metric": metric, "eval_set": where} | ({"others": list(others)} if others else {})
    return Note("metric-chosen", "warning" if others else "info", message, data)


def training_reward_note(metric: str, *, asked: bool) -> Note:
    """The warning that an answer is about the training reward."""
    why = "is" if asked else "is used, since no evaluation was logged and no metric was asked for. It is"
    return Note(
        "training-reward-only",
        "warning",
        f"{metric} {why} a training reward: it can rise while a validation reward falls, and its best n can differ. "
        "Evaluate on held-out problems.",
        {"metric": metric, "asked": asked},
    )


Array = NDArray[np.float64]
USUAL_RANGES = ((0.0, 1.0), (-1.0, 1.0), (0.0, 100.0))
"""Usual ranges of rewards, narrowest first."""
LOOKS_PERCENT = 10.0
"""The largest reward of a metric is above it if the metric is a percentage."""


def usual_range(low: float, high: float) -> tuple[float, float] | None:
    """The first usual range that holds rewards from `low` to `high`; None if none does."""
    fitting = [one for one in USUAL_RANGES if one[0] <= low and high <= one[1]]
    return fitting[0] if fitting and (high <= 1 or high > LOOKS_PERCENT) else None


def bounds_option(values: Array) -> str:
    """`--bounds` of rewards, with words to fill in outside the usual ranges: what a function can return, only its
    author knows."""
    usual = usual_range(float(np.min(values)), float(np.max(values)))
    return "--bounds LOW HIGH" if usual is None else "--bounds {:g} {:g}".format(*usual)


ONE_SCALE = "Put all on one scale (a share times 100 is a percentage), or leave some out."
"""What to do about `two_scales`."""


def two_scales(metric: str, rewards: Iterable[tuple[str, Array]]) -> tuple[str, list[str]] | None:
    """That some runs look like shares of 1 and others like percent, and which are shares; None unless there are both.

    Args:
        metric: the reward.
        rewards: run and its values.
    """
    # Of a run that fell, or never had a reward, the largest value says nothing else.
    largest = [(run, float(np.abs(value_T).max()), float(np.median(value_T))) for run, value_T in rewards]
    shares = [run for run, top, _ in largest if 0 < top <= 1.0]
    # One stray value makes no percentage.
    percent = [run for run, top, middle in largest if middle > 1.0 and LOOKS_PERCENT < top <= 100.0]
    if not (shares and percent):
        return None
    return f"{metric}: {listed(shares, 4)} look like shares of 1, {listed(percent, 4)} like percentages", shares


def likely_range(values: Array) -> tuple[float, float]:
    """The first usual range that holds rewards, else theirs with a tenth of it on each side, in round numbers."""
    low, high = (float(np.clip(one, -1e300, 1e300)) for one in (np.min(values), np.max(values)))
    if (usual := usual_range(low, high)) is not None:
        return usual
    room = 0.1 * (high - low or abs(high))
    digits = -math.floor(math.log10(room))
    lowest = math.floor((low - room) * 10.0**digits) / 10.0**digits
    return 0.0 if low >= 0 else lowest, math.ceil((high + room) * 10.0**digits) / 10.0**digits


MIN_Z = 2.13
"""Standard errors from which a trend of all runs counts as a rise: noise exceeds it once in twenty by one of three."""
ENOUGH_Z = 3.3
"""Standard errors of the trend if every value were above those before it; with less there are too few to tell."""
MAX_VALUES = 100
"""Values of a run that are compared; longer runs are averaged down to so many."""


def no_rise(curves: Iterable[Array]) -> bool:
    """Whether rewards show no rise, all runs together.

    Neither Kendall's trend of whole runs, nor that of their first halves, nor the step from the first value to the
    median of the others exceeds what noise does.

    Returns:
        False also where there are too few values to tell.
    """
    values: list[Array] = []
    for value_T in curves:
        finite_T = value_T[np.isfinite(value_T)]
        pieces = np.array_split(finite_T, min(len(finite_T), MAX_VALUES)) if len(finite_T) else []
        values.append(np.array([piece.mean() for piece in pieces]))
    whole, most = _trend(values)
    half, _ = _trend([value_T[: (len(value_T) + 1) // 2] for value_T in values])
    return most >= ENOUGH_Z and max(whole, half, _step(values)) < MIN_Z


def no_rise_words(metric: str, runs: int) -> tuple[str, str]:
    """That rewards do not rise and what follows; and what to do."""
    who = "the run does" if runs == 1 else f"the {runs} runs together do"
    so = "" if runs == 1 else "n cannot be compared and "
    seen = f"{who} not rise in {metric} beyond noise, so {so}forecasts mean nothing"
    return seen, "Check the reward, the learning rate, and how hard the problems are."


def no_rise_note(metric: str, runs: int) -> Note:
    """The same as a note."""
    return Note("no-rise-seen", "warning", ". ".join(no_rise_words(metric, runs)), {"metric": metric, "runs": runs})


def _trend(curves: Sequence[Array]) -> tuple[float, float]:
    """Kendall's trend, pooled, in standard errors; and the largest that so many values could have."""
    score = most = variance = 0.0
    for value_T in curves:
        count = len(value_T)
        score += float(np.triu(np.sign(value_T[None, :] - value_T[:, None]), 1).sum())
        most += count * (count - 1) / 2
        variance += count * (count - 1) * (2 * count + 5) / 18
    return (score / variance**0.5, most / variance**0.5) if variance else (0.0, 0.0)


def rose_by(value_T: Array, count: int) -> bool:
    """Whether the first values of a run step up beyond the noise of all of it."""
    return _step([value_T[:count]], [value_T]) >= MIN_Z


def _step(curves: Sequence[Array], noisy: Sequence[Array] | None = None) -> float:
    """Step from the first value to the median of the others, pooled, in standard errors; noise of `noisy`, if given."""
    # A few values near 0, as of answers that were cut off, move a mean by more than a rise.
    steps = [np.median(value_T[1:]) - value_T[0] for value_T in curves if len(value_T) > 2]
    # Successive differences: a rise hardly widens their median.
    spreads = [np.abs(np.diff(value_T)) for value_T in noisy or curves if len(value_T) > 2]
    if not steps:
        return 0.0
    noise = float(np.median(np.concatenate(spreads))) / (0.6745 * np.sqrt(2.0))
    # The variance of a median is pi / 2 times that of a mean.
    errors = noise * np.sqrt(sum(1.0 + np.pi / 2.0 / (len(one) - 1) for one in curves if len(one) > 2))
    total = float(np.sum(steps))
    return total / errors if errors else np.inf * total if total else 0.0


USUAL_METRIC = "reward"
"""What a lone reward of a table of evaluations is called unless somebody names it."""


def to_rows(frame: pl.DataFrame, named: Named, options: Options) -> tuple[pl.DataFrame, tuple[Note, ...]]:
    """`frame` with one row per measured value, in columns metric and value; notes on what was left out.

    Long form has columns `metric` and `value`. Wide form has one column per metric; an empty cell means
    not measured there. A lone `reward` or `value` column is wide form under the name `options.metric`.

    Raises:
        RecordError: no metric, a metric without a name, a column that is neither known nor numeric, or that looks
            like a setting, a value that is NaN or infinite.
    """
    import polars as pl

    others = {name: blank_to_null(series) for name, series in named.others.items()}
    extra = {name: series for name, series in others.items() if series.null_count() < len(series)}
    left: list[str] = []
    notes: list[Note] = []
    of_updates: list[str] = []
    if options.lenient:
        extra, told = _finite(extra, frame["run_id"], named.source)
        # With one row per metric an empty value is an error of its own.
        lone = {name: one for name, one in named.known.items() if name == "value" and "metric" not in named.known}
        values, more = _finite(lone, frame["run_id"], named.source)
        named = replace(named, known={**named.known, **values})
        notes += [*told, *more]
        left = [name for name, series in extra.items() if slip_of(name, series) is None and is_text(series)]
        extra = {name: series for name, series in extra.items() if name not in left}
    if "metric" in named.known:
        rows = _long(frame, named, extra, options)
        left += extra
    else:
        if options.lenient:
            # What names do not say, and never changes, is no metric.
            unsaid = [name for name in extra if name != options.metric and rank(name, DEFAULT_EVAL_SET) == OTHER]
            left += [name for name in unsaid if misspelt(name) is None and is_set([frame["run_id"]], extra[name])]
            extra = {name: series for name, series in extra.items() if name not in left}
        metrics, told = _metric_columns(frame, named, extra, options)
        if any(rank(name, DEFAULT_EVAL_SET) is None for name in metrics):
            # Rewards with a value for every update, beside a trainer's quantities, whose names do not say where.
            named_so = {name: series for name, series in metrics.items() if names_a_reward(name)}
            of_updates = [name for name, one in named_so.items() if _in_every_step(frame.filter(one.is_not_null()))]
        evaluated = any(rank(name, DEFAULT_EVAL_SET) in EVALUATIONS for name in metrics)
        notes += [*told, *(_taken_for(name, TRAIN_REWARD) for name in of_updates if not evaluated)]
        rows = _melt(frame, metrics, named.source)
    notes += left_out({name: others[name] for name in left}, named.source)
    training = [name for name in rows["metric"].unique() if is_training_reward(name) or name in of_updates]
    held_out = pl.lit(DEFAULT_EVAL_SET)
    home = pl.when(pl.col("metric").is_in(training)).then(pl.lit(TRAIN_SET)).otherwise(held_out)
    return rows.with_columns(pl.coalesce("eval_set", home).alias("eval_set")), tuple(notes)


def left_out(columns: Mapping[str, pl.Series], source: Source) -> list[Note]:
    """That columns of a table are left out: those of no known name, and clocks that hold no known times."""
    notes: list[Note] = []
    unknown = [source.written[name] for name in columns if name not in CLOCKS]
    if unknown:
        message = f"left out, unknown columns: {', '.join(unknown)}."
        for name in [name for name, series in columns.items() if name not in CLOCKS and is_text(series)]:
            cells, column = blank_to_null(columns[name]).drop_nulls(), source.written[name]
            if not seconds_in(cells).has_nulls():
                message += f" {column} holds times: to use them, --rename {quote(f'{column}=timestamp')}."
        notes.append(Note("columns-left-out", "info", message, {"columns": unknown}))
    for name in columns.keys() & {*CLOCKS}:
        column, cell = source.written[name], blank_to_null(columns[name]).drop_nulls()[0]
        message = f"left out, column {column}: {cell!r:.40} is not read as a time; accepted: {TIMES}."
        notes.append(Note("clock-not-read", "warning", message, {"column": column}))
    return notes


def _finite(
    columns: Mapping[str, pl.Series], runs: pl.Series, source: Source
) -> tuple[dict[str, pl.Series], list[Note]]:
    """Columns with cells of NaN and infinities empty, and a warning for each run of each that had any."""
    import polars as pl

    found: dict[str, pl.Series] = {}
    notes: list[Note] = []
    for name, series in columns.items():
        found[name] = series
        if series.dtype != pl.String and not series.dtype.is_float():
            continue
        bad = ~numbers_in(series).is_finite().fill_null(True)
        if not bad.any():
            continue
        found[name] = series.set(bad, None)
        rows_of: dict[str, list[int]] = {}
        for row in bad.arg_true().to_list():
            rows_of.setdefault(runs[row], []).append(row)
        for run, rows in rows_of.items():
            more = f", and {len(rows) - 1} more" if len(rows) > 1 else ""
            message = (
                f"run {run!r}: {source.cell(rows[0], name)}: not finite and left out{more}. If the run failed there, "
                "use only what came before."
            )
            data = {"run_id": run, "metric": name, "values": len(rows)}
            notes.append(Note("values-not-finite", "warning", message, data))
    return found, notes


def is_text(series: pl.Series) -> bool:
    """Whether a column holds nothing that could be a number."""
    import polars as pl

    if series.dtype == pl.String:
        cells = series.drop_nulls().str.strip_chars()
        return bool(numbers_in(cells).is_null().all()) and not cells.str.contains(r"^[-+]?[\d.,]+\s*%?$").any()
    return series.dtype == pl.Boolean or series.dtype.is_temporal() or series.dtype.is_nested()


def _long(frame: pl.DataFrame, named: Named, extra: Mapping[str, pl.Series], options: Options) -> pl.DataFrame:
    if "value" not in named.known:
        raise RecordError(
            "column 'metric' needs a column 'value' beside it",
            f"The table has: {named.columns}. Rename the measured column to 'value'.",
        )
    for name, series in extra.items():
        refuse_slip(name, named.source, series)
    if refused := [name for name, series in extra.items() if not options.lenient or _is_setting(frame, series)]:
        names = [named.source.written[name] for name in refused]
        shown = f"column{'s' * (len(names) > 1)} {', '.join(map(repr, names))}"
        why = "perhaps a setting: it has one value in each run" if options.lenient else "not known"
        raise wrong_column(f"{shown}: {why}", "Split the table by it, or leave it out and pool all runs.", names)
    metric = typed(named.known["metric"], BY_NAME["metric"], named.source)
    metric = metric.replace({name: spelled(name) for name in metric.drop_nulls().unique()})
    value = typed(named.known["value"], BY_NAME["value"], named.source)
    require(metric, named.source, "Give every row the name of its metric.")
    require(value, named.source, "Drop the rows of evaluations that were not measured.")
    _check_named_metric(options, metric.unique(maintain_order=True).to_list())
    return frame.with_columns(metric, value)


def is_set(settings: Sequence[pl.Series], cells: pl.Series) -> bool:
    """Whether a column is one whole number above 1 in every row of each run, as settings are and measurements are not.

    Args:
        settings: columns that tell the runs apart.
        cells: the column.
    """
    import polars as pl

    numbers = numbers_in(cells).alias("set")
    if numbers.null_count() or not ((numbers > 1) & (numbers % 1 == 0)).all():
        return False
    rows = pl.DataFrame([*(one.alias(str(i)) for i, one in enumerate(settings)), numbers])
    runs = rows.drop("set").n_unique() if settings else 1
    return rows.n_unique() == runs and rows.height >= MIN_TO_JUDGE * runs


def _is_setting(frame: pl.DataFrame, series: pl.Series) -> bool:
    """Whether a column has one value in each run and several in the table, so that runs may not belong together."""
    values = frame.select("run_id", series.alias("_value")).drop_nulls().unique()
    return values["run_id"].is_unique().all() and values["_value"].n_unique() > 1


def _metric_columns(
    frame: pl.DataFrame, named: Named, extra: Mapping[str, pl.Series], options: Options
) -> tuple[dict[str, pl.Series], tuple[Note, ...]]:
    """Wide form: the measured columns by metric name."""
    source = named.source
    wide = {name: _numeric_metric(name, series, source) for name, series in extra.items()}
    notes: tuple[Note, ...] = ()
    metric = options.metric
    if "value" in named.known:
        bare = source.written["value"]
        if options.lenient and metric in (None, *wide):
            # A metric that has a column of its own says that this column is another one.
            # So is one beside a trainer's quantities or an evaluation, or in every step's row. All may log the time.
            beside = any(rank(name, DEFAULT_EVAL_SET) != OTHER for name in wide if name != STEP_SECONDS)
            training = metric is not None or beside or _in_every_step(frame)
            metric = TRAIN_REWARD if training else USUAL_METRIC
            notes = (_taken_for(bare, metric),)
        if not metric:
            raise RecordError(
                f"column {bare!r} does not say which metric it holds",
                f"""Add its name, e.g. <--metric avg@4 | metric="avg@4">, or rename {bare!r} to the metric's name.""",
            )
        if metric in wide:
            message = f"columns {bare!r} and {metric!r} both hold the metric {metric!r}"
            raise wrong_column(message, "Remove one.", [bare])
        wide = {metric: named.known["value"], **wide}
    if not wide:
        raise no_metric(named)
    _check_named_metric(options, list(wide))
    return wide, notes


def no_metric(named: Named) -> NothingMeasured:
    """The error about a table that holds nothing measured."""
    return NothingMeasured(
        f"no column holds a metric; the table has: {named.columns}",
        'Give only files with measurements, or add a column named after the metric, e.g. "avg@4", or columns "metric" '
        'and "value".',
    )


def _in_every_step(frame: pl.DataFrame) -> bool:
    import polars as pl

    apart = frame.select(pl.col("step").diff().over("run_id")).to_series().drop_nulls()
    return len(apart) >= MIN_TO_JUDGE and apart.median() == 1


def _taken_for(column: str, meant: str) -> Note:
    """That a column whose name does not say what it measures was taken for the training reward, or an evaluation."""
    training = meant == TRAIN_REWARD
    message = f"column {column!r} does not say what it measures and is read as " + (
        f"the training reward. If it is an evaluation, name it: --rename {column}=avg@4."
        if training
        else f"an evaluation, {USUAL_METRIC}. Name it with --metric; if it is the training reward, "
        f"--metric {TRAIN_REWARD}."
    )
    return Note("column-assumed", "warning", message, {"column": column, "as": meant})


def _check_named_metric(options: Options, found: Sequence[str]) -> None:
    # An average over an unknown number of samples may be the one that is asked about.
    if options.metric is not None and options.metric not in found and UNKNOWN_AVERAGE not in found:
        likely = headline((name, DEFAULT_EVAL_SET) for name in found)
        raise RecordError(
            f"metric {options.metric!r} is not in the table; it holds: {', '.join(found)}",
            f"{did_you_mean(options.metric, found)}metric= names a column called 'reward' or 'value'.",
            options=() if likely is None else (f"--metric {quote(likely[0])}",),
        ).in_shell(
            f"{did_you_mean(options.metric, found)}--metric names a metric of the table, or what its column "
            "'reward' or 'value' holds."
        )


def _numeric_metric(name: str, series: pl.Series, source: Source) -> pl.Series:
    """A column of no known name as a metric, unless it is text or a slip of a known name."""
    import polars as pl

    written = source.written[name]
    refuse_slip(name, source, series)
    if is_text(series) or not (series.dtype.is_numeric() or series.dtype == pl.String):
        (sample,) = series.drop_nulls().head(1).to_list()
        raise wrong_column(
            f"unknown column {written!r} holds {series.dtype} (e.g. {sample!r}), not numbers; accepted: metrics, which "
            "are numbers, and columns of known names",
            f"{did_you_mean(name, list(BY_NAME))}Rename it, or leave it out.",
            [written],
        )
    return series


def slip_of(name: str, cells: pl.Series | None = None) -> str | None:
    """The known column that a name is a slip of; None where its cells are text and that column holds numbers."""
    slip = misspelt(name)
    if slip is not None and cells is not None and is_text(cells):
        try:
            typed(cells, BY_NAME[canonical(slip) or slip], Source())
        except RecordError:
            return None
    return slip


def refuse_slip(name: str, source: Source, cells: pl.Series | None = None) -> None:
    """Raise on a name that looks like that of a known column, which could hold its cells."""
    if (slip := slip_of(name, cells)) is not None:
        written = source.written[name]
        raise wrong_column(f"column {written!r} is unknown, but looks like {slip!r}", "", [written], slip)


def _melt(frame: pl.DataFrame, metrics: Mapping[str, pl.Series], source: Source) -> pl.DataFrame:
    """One row per measured cell of the metric columns, in metric order, then row order."""
    import polars as pl

    parts: list[pl.DataFrame] = []
    for name, series in metrics.items():
        column = replace(BY_NAME["value"], name=name)
        value = typed(series, column, source).alias("value")
        part = frame.with_columns(value, pl.lit(name).alias("metric"))
        parts.append(part.filter(pl.col("value").is_not_null()) if value.null_count() else part)
    melted = pl.concat(parts, rechunk=False)
    if melted.is_empty():
        raise RecordError(
            f"no measured value in {counted(frame.height, 'row')}: {', '.join(metrics)} are empty",
            "Check that the run has logged an evaluation.",
        )
    return melted
