"""One run in several logs or tables, which counts once: the same values at the same steps, as far as both go."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from isocompute_sdk.ingest.paths import CONSOLE
from isocompute_sdk.notes import Note
from isocompute_sdk.phrases import listed
from isocompute_sdk.records.columns import N_AND_BP, PER_RUN
from isocompute_sdk.records.suggested import size_in_name
from isocompute_sdk.records.table import KEY

if TYPE_CHECKING:
    import polars as pl

    from isocompute_sdk.ingest.formats.configuration import SavedConfig
    from isocompute_sdk.ingest.formats.log_format import RunLog

MIN_CHANGES = 6
"""Fractions beyond the first of each measurement that two logs have to share, step by step, to be one run."""
EXPERIMENT = ("experiment_name", "default_local_dir", "output_dir", "ckpt_path", "save_path")
"""Keys of printed configurations that name an experiment or the folder of its checkpoints."""
RTOL = 1e-6
"""Relative difference between copies: event files keep single precision."""
_NO_MEASUREMENT = re.compile(r"training/.*(step|epoch)|.*(lr|learning_rate|epoch|runtime|per_second|total_flos)", re.I)
Key = TypeVar("Key")
Curves = Mapping[Any, NDArray[np.float64]]
"""Measurement -> step and value, shape (evaluations, 2)."""


@dataclass(frozen=True)
class LoadedRun:
    """A run that logged without saying n and B_p itself."""

    log: RunLog
    config: SavedConfig | None
    place: Path
    """What it was read from, as errors name it."""


@dataclass(frozen=True)
class Candidate:
    """What tells whether two runs are one."""

    settings: Mapping[str, Any]
    """n, B_p and what else is known of it."""
    curves: Curves


def alike(runs: Mapping[Key, Candidate]) -> Iterator[tuple[Key, Key, int]]:
    """Pairs of runs that may be one, in order, and how many different fractions both have.

    The settings of both agree where both are known, and every measurement of both has the same values at the same
    steps, as far as both go. Fractions beyond the first of each measurement count: whole numbers and constants prove
    nothing.
    """
    begun: dict[tuple[Any, ...], list[Key]] = {}
    for name, one in runs.items():
        for measurement, curve in one.curves.items():
            if len(curve):
                begun.setdefault((measurement, curve[0, 0], np.float32(curve[0, 1])), []).append(name)
    order = {name: place for place, name in enumerate(runs)}
    pairs = {pair for names in begun.values() for pair in combinations(names, 2)}
    for first, second in sorted(pairs, key=lambda pair: (order[pair[0]], order[pair[1]])):
        one, other = runs[first], runs[second]
        apart = (name for name in one.settings.keys() & other.settings.keys() if one.settings[name] is not None)
        if any(other.settings[name] not in (None, one.settings[name]) for name in apart):
            continue
        shared = _shared_changes(one.curves, other.curves)
        if shared is not None:
            yield first, second, shared


def _shared_changes(mine: Curves, theirs: Curves) -> int | None:
    """Different fractions that two runs share; None if values or steps differ."""
    count = 0
    for name in mine.keys() & theirs.keys():
        size = min(len(mine[name]), len(theirs[name]))
        one, other = mine[name][:size], theirs[name][:size]
        # TensorBoard keeps single precision, other logs every digit.
        values = one[:, 1].astype(np.float32)
        same = np.allclose(values, other[:, 1].astype(np.float32), rtol=RTOL, atol=0.0, equal_nan=True)
        if not (same and np.array_equal(one[:, 0], other[:, 0])):
            return None
        count += max(0, len(np.unique(values[values != np.floor(values)])) - 1)
    return count


def once(tables: Sequence[pl.DataFrame]) -> tuple[list[pl.DataFrame], dict[tuple[int, str], tuple[int, str]]]:
    """Canonical tables without rows that stand before, some perhaps empty; and each copy with its original.

    A run is named by the position of its table and its run_id.
    """
    import polars as pl

    place = pl.coalesce("step", "rollouts").alias("_at")
    runs: dict[tuple[int, str], Candidate] = {}
    for i, whole in enumerate(tables):
        table = whole if len(tables) > 1 else whole.filter(pl.col("run_id").is_in(_alike_at_sight(whole)))
        curves: dict[str, dict[Any, NDArray[np.float64]]] = {}
        for (name, *measurement), rows in table.select(place, *KEY, "value").partition_by(KEY, as_dict=True).items():
            curves.setdefault(name, {})[tuple(measurement)] = rows.select("_at", "value").to_numpy()
        settings = table.group_by("run_id", maintain_order=True).first().rows_by_key("run_id", named=True, unique=True)
        for name, own in settings.items():
            runs[i, name] = Candidate({field: own[field] for field in PER_RUN if field != "seed"}, curves[name])
    copies: dict[tuple[int, str], tuple[int, str]] = {}
    for original, copy, shared in alike(runs):
        if shared >= MIN_CHANGES and copy not in copies and original not in copies:
            copies[copy] = original
    kept: list[pl.DataFrame] = []
    for i, table in enumerate(tables):
        names = {run: original for (part, run), (_, original) in copies.items() if part == i}
        own, copied = table.with_columns(place), pl.col("run_id").is_in([*names])
        kept.append(own.filter(~copied))
        if names:
            # A longer copy goes on where its original ends.
            earlier = pl.concat([one.select(*KEY, "_at") for one in kept])
            again = own.filter(copied).with_columns(pl.col("run_id").replace(names)).unique([*KEY, "_at"], keep="first")
            kept[-1] = pl.concat([kept[-1], again.join(earlier, on=[*KEY, "_at"], how="anti").sort(*KEY, "_at")])
    return [one.drop("_at") for one in kept], copies


def _alike_at_sight(table: pl.DataFrame) -> list[str]:
    """Runs of a table with as many values between the same two as another run."""
    import polars as pl

    seen = table.group_by("run_id").agg(pl.len(), low=pl.col("value").min(), high=pl.col("value").max())
    return seen.filter(pl.struct("len", "low", "high").is_duplicated())["run_id"].to_list()


def told(original: str) -> str:
    """What is wrong with a copy, for people."""
    return f"the same values as {original!r}: one run, written twice"


def repeated(name: str, original: str) -> Note:
    """That a run is left out, since it would count twice."""
    message = f"run {name!r}: {told(original)}. It is left out, since it would count twice."
    return Note("run-left-out", "warning", message, {"run_id": name, "same_as": original})


def continued(runs: Mapping[str, LoadedRun]) -> dict[str, LoadedRun]:
    """The runs, with logs that go on from a checkpoint of another one joined to it, each with a note.

    They are of one experiment, n, B_p and seed; one log is whole, every other one begins at a step that those before
    it reached.
    """
    experiments: dict[Any, list[str]] = {}
    for name, run in runs.items():
        experiment = _experiment(run)
        fields = {} if run.config is None else run.config.fields
        said = tuple(fields[one].value if one in fields else None for one in (*N_AND_BP, "seed"))
        if experiment:
            experiments.setdefault((experiment, said), []).append(name)
    found = dict(runs)
    for names in experiments.values():
        first, *rest = sorted(names, key=lambda name: runs[name].log.first_step)
        logs = [runs[name].log for name in (first, *rest)]
        reached = accumulate((log.extents[-1].last for log in logs), max)
        goes_on = (0 < log.first_step <= last for last, log in zip(reached, logs[1:], strict=False))
        if not rest or logs[0].first_step or not all(goes_on):
            continue
        message = (
            f"run {first!r} continues in {listed(rest, 4)}, from a checkpoint of the same experiment: read as one run. "
            "If they are different runs, read one of them alone."
        )
        note = Note("log-continued", "info", message, {"run_id": first, "logs": rest})
        attempts = [one for log in logs for one in log.attempts]
        whole = replace(
            logs[0],
            attempts=tuple(replace(one, started=float(at)) for at, one in enumerate(attempts)),
            notes=(*(one for log in logs for one in log.notes), note),
        )
        found = {name: run for name, run in found.items() if name not in rest}
        found[first] = replace(runs[first], log=whole)
    return found


def without_shared_n(runs: Mapping[str, LoadedRun]) -> dict[str, LoadedRun]:
    """The runs; those that share one saved configuration without its n where the name of one of them says another."""
    shared: dict[Path, list[str]] = {}
    for name, run in runs.items():
        if run.config is not None and "group_size" in run.config.fields:
            shared.setdefault(run.config.path, []).append(name)
    found = dict(runs)
    for names in (one for one in shared.values() if len(one) > 1):
        said = [size_in_name(runs[name].log.name, "group_size") for name in names]
        configs = [config for name in names if (config := runs[name].config) is not None]
        if all(one is None or one[0] == configs[0].fields["group_size"].value for one in said):
            continue
        for name, config in zip(names, configs, strict=True):
            fields = {field: value for field, value in config.fields.items() if field != "group_size"}
            found[name] = replace(runs[name], config=replace(config, fields=fields))
    return found


def _experiment(run: LoadedRun) -> tuple[str, ...]:
    """Names of an experiment: in the configuration that a console shows, or of a file that is called after it."""
    from isocompute_sdk.ingest.stores.saved_config import flat

    if run.log.format == CONSOLE:
        named = {key.rpartition(".")[2]: value for _, raw in run.log.settings for key, value in flat(raw)}
        return tuple(str(named[key]) for key in EXPERIMENT if key in named)
    store, path = None if run.log.framework is None else run.log.framework.store, run.place.with_suffix("")
    by_file = store is not None and store.name == run.log.format and store.run_of(run.place) == path
    return path.parts[-2:] if by_file else ()


@dataclass(frozen=True)
class SameRuns:
    """Runs that several logs hold."""

    runs: dict[str, LoadedRun]
    """Every run, with the configuration and clock of a copy for the one that stands for all, where it has none."""
    copies: dict[str, str]
    """Run -> the run that it repeats."""
    undecided: tuple[str, str] | None
    """Two logs of one name by different loggers that hold too little to tell whether they are one run."""


def same_runs(runs: Mapping[str, LoadedRun], given: Mapping[str, Mapping[str, Any]]) -> SameRuns:
    """Which logs repeat another one; that with more attempts, then more steps, then more tags stands for all."""
    known, copies, undecided = dict(runs), dict[str, str](), None
    if len(runs) < 2:
        return SameRuns(known, copies, undecided)

    def extent(name: str) -> tuple[int, float, int]:
        log = runs[name].log
        return len(log.attempts), max((extent.last for extent in log.extents), default=0.0), len(log.tags)

    candidates: dict[str, Candidate] = {}
    for name in sorted(runs, key=extent, reverse=True):
        log, config = runs[name].log, runs[name].config
        values = {} if config is None else {key: said.value for key, said in config.fields.items()}
        values = {**values, **log.said, **given[name]}
        # Names that loggers share: without `train/`, and with `eval_` before evaluations.
        names = {tag: re.sub(r"^train/", "", re.sub(r"^eval/", "eval_", tag)) for tag in log.tags}
        series = {name: log.series(tag) for tag, name in names.items() if not _NO_MEASUREMENT.fullmatch(name)}
        curves = {name: np.column_stack((one.step_T, one.value_T)).astype(np.float64) for name, one in series.items()}
        candidates[name] = Candidate({size: values.get(size) for size in ("group_size", "problems_per_batch")}, curves)
    for kept, name, shared in alike(candidates):
        one, other = runs[kept].log, runs[name].log
        if kept in copies or name in copies or not _may_be_one(one, other, candidates[kept], candidates[name]):
            continue
        if shared >= MIN_CHANGES:
            copies[name] = kept
            mine, theirs = candidates[kept].settings.values(), candidates[name].settings.values()
            if None in mine and None not in theirs:
                known[kept] = replace(known[kept], config=known[name].config)
            if one.began is None and other.began is not None:
                longest = max(map(other.series, other.tags), key=lambda series: len(series.step_T))
                known[kept] = replace(known[kept], log=one.timed(longest.step_T, longest.wall_time_T))
        elif kept.rpartition("/")[2] == name.rpartition("/")[2] and one.format != other.format:
            undecided = kept, name
    return SameRuns(known, copies, undecided)


def _may_be_one(one: RunLog, other: RunLog, mine: Candidate, theirs: Candidate) -> bool:
    """A state is saved again and again, a history exported; other logs of one kind are of different starts."""
    from isocompute_sdk.ingest.stores import trainer_state
    from isocompute_sdk.ingest.tables import TABLE_SUFFIXES

    if one.format != other.format or all(log.source.suffix in TABLE_SUFFIXES for log in (one, other)):
        # Runs of one table have names of their own.
        return one.source != other.source
    common = mine.curves.keys() & theirs.curves.keys()
    return one.format == trainer_state.STORE.name and len(common) == min(len(mine.curves), len(theirs.curves))
