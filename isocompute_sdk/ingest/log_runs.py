"""Logs of frameworks -> `RunSet`, with n and B_p from arguments or from saved configurations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NoReturn

from isocompute_sdk.errors import RecordError, did_you_mean
from isocompute_sdk.ingest.assistant.twins import twins, undecided
from isocompute_sdk.ingest.attempts import RunLog
from isocompute_sdk.ingest.finding.launched import belongs_to_journal
from isocompute_sdk.ingest.finding.log_sources import (
    LogSource,
    NoRewardLearning,
    NothingMeasured,
    find_logs,
    log_formats,
    with_generations,
)
from isocompute_sdk.ingest.finding.paths import check_format, closed_note, closed_tables, holds_journals, tables_among
from isocompute_sdk.ingest.finding.walking import Listing
from isocompute_sdk.ingest.formats.log_format import TRAIN_SET, StepUnit
from isocompute_sdk.ingest.formats.registry import broken, load
from isocompute_sdk.ingest.run_logs.log_table import Reading, logged_updates_per_batch, tabulate
from isocompute_sdk.ingest.stores.event_files import PackageMissing
from isocompute_sdk.ingest.stores.saved_config import SIZES, STEPS_PER_BATCH, Said, SavedConfig, settled
from isocompute_sdk.notes import Note
from isocompute_sdk.records import RunSet
from isocompute_sdk.records.columns import BATCH, PER_RUN, PLACEHOLDERS, batch_asked, canonical, check_fields
from isocompute_sdk.records.copies import repeated
from isocompute_sdk.records.input_table import Options
from isocompute_sdk.records.table import build, join, sizes_note


@dataclass(frozen=True)
class FoundLogs(Mapping[str, LogSource]):
    """Logs by the name of their run."""

    sources: Mapping[str, LogSource]
    roots: Mapping[str, Path]
    """Run -> the path under which it was found; a configuration is not looked for above it."""
    notes: tuple[Note, ...] = ()

    def __getitem__(self, name: str) -> LogSource:
        return self.sources[name]

    def __iter__(self) -> Any:
        return iter(self.sources)

    def __len__(self) -> int:
        return len(self.sources)


@dataclass(frozen=True)
class LogRequest:
    """What was asked of every log; see `read`."""

    eval_set: str | None = None
    ignore: Sequence[str] = ()
    rename: Mapping[str, str] = field(default_factory=dict[str, str])
    runs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    step_unit: StepUnit | None = None
    constants: Mapping[str, Any] = field(default_factory=dict[str, Any])
    without_sizes: bool = False
    metric: str | None = None


def find_all_logs(listings: Sequence[Listing], format: str, *, mixed: bool = False) -> tuple[FoundLogs, list[Listing]]:
    """Logs in `listings`, and those of the listings that hold none and are read as tables.

    Args:
        listings: what lies at or below each path that was asked for.
        format: a member of `paths.FORMATS`.
        mixed: let logs of several stores, tables and journals of the built-in runner stand side by side.

    Raises:
        RecordError: an unknown format; no log where a format of logs was asked for.
    """
    check_format(format)
    rest: list[Listing] = []
    sources: dict[str, LogSource] = {}
    roots: dict[str, Path] = {}
    notes: list[Note] = []
    for listing in listings:
        logs = format in log_formats() or (format == "auto" and (mixed or not holds_journals(listing)))
        found = find_logs(listing, format) if logs else []
        if not found:
            rest.append(listing)
            continue
        if not mixed:
            closed = closed_tables(listing)
            inside = {source.folder for source in found if source.launched is not None}
            free = [file for file in listing.files if inside.isdisjoint(file.parents)]
            others = [file for file in tables_among(free) if file not in closed] if format == "auto" else []
            notes += [_not_read(listing.path, others)] if others else []
            notes += [closed_note(listing.path, closed)] if closed else []
        for source in found:
            name = source.name if source.name not in sources else f"{listing.path.name}/{source.name}"
            while name in sources:
                name += "'"
            sources[name], roots[name] = replace(source, name=name), listing.path
    if format in log_formats() and rest:
        raise RecordError(
            f"{rest[0].path} holds no log of format {format!r}",
            "Check the path, or leave format= out to have files recognised by their contents.",
        ).in_shell("Check the path.")
    return FoundLogs(sources, roots, tuple(notes)), rest


def logs_beside_journals(listing: Listing) -> list[LogSource]:
    """Logs of frameworks in a folder of runs of the built-in runner, without what its journals say already."""
    return [source for source in find_logs(listing) if not belongs_to_journal(source.paths[0], listing.path)]


def read_logs(
    found: FoundLogs,
    request: LogRequest,
    unreadable: dict[str, RecordError] | None = None,
    *,
    seen: dict[str, None] | None = None,
) -> RunSet:
    """Read every log; see `read`. A log that repeats another one is left out.

    Args:
        found: the logs.
        request: what was asked of them.
        unreadable: takes down why a run cannot be read, which then keeps no other from being read.
        seen: takes down the tags of all logs.

    Raises:
        RecordError: a log cannot be read, or nothing says its n or B_p; with `unreadable` only if that holds for all.
    """
    for name in request.runs:
        if name not in found:
            raise RecordError(
                f"run {name!r} of runs= is in no log; the logs have: {', '.join(sorted(found))}",
                f"{did_you_mean(name, sorted(found))}Remove it, or correct its name.",
            )
    losses = _Losses(unreadable)
    logs, saved = _loaded(found, losses, {} if seen is None else seen)
    for name in stitched(logs, saved):
        del logs[name]
    copies = shared_sizes(logs, saved, request)
    notes = [*broken(), *found.notes]
    asked = batch_asked([_sizes(log, saved[name], request.runs.get(name, {}))[0] for name, log in logs.items()])
    frames: list[Any] = []
    kept: list[str] = []
    for name, log in logs.items():
        if name in copies:
            continue
        try:
            reading, told = _reading(name, log, saved[name], request, asked)
            table = tabulate(log, reading)
            frame = table.frame if request.eval_set is None else _on_set(table.frame, request.eval_set)
            frames.append(build(frame, Options())[0])
        except RecordError as error:
            if len(logs) > 1 and any(option.startswith("--set group_size") for option in error.options):
                # One n for all runs would be wrong for most of them.
                error.options = ()
            losses.take(name, error)
            continue
        kept.append(name)
        notes += [*told, *table.notes]
    if losses.errors and not frames:
        raise losses.errors[0]
    notes += [*losses.notes(), *(repeated(name, of) for name, of in copies.items())]
    return RunSet(join(frames, [str(found.sources[name].folder) for name in kept], "error"), notes)


@dataclass(frozen=True)
class _Losses:
    """Runs that cannot be read and keep no other from being read."""

    unreadable: dict[str, RecordError] | None
    """Takes down every one; None: only runs that have just begun, are of another kind or need a package are left out.
    """
    errors: list[RecordError] = field(default_factory=list[RecordError])

    def take(self, name: str, error: RecordError) -> None:
        """Leave a run out, or raise what keeps all from being read."""
        if self.unreadable is None and not isinstance(error, NothingMeasured | PackageMissing):
            raise error
        self.errors.append(error)
        if self.unreadable is not None:
            self.unreadable[name] = error

    def notes(self) -> Iterator[Note]:
        """What was left out, and why."""
        for error in self.errors:
            text, data = f"left out: {error.message}", {"message": error.message}
            if isinstance(error, NoRewardLearning):
                yield Note("run-without-reward", "info", text, data)
            elif isinstance(error, NothingMeasured):
                yield Note("run-without-values", "info", text, data)
            elif isinstance(error, PackageMissing):
                yield Note("events-not-read", "warning", f"{text}. {error.hint}", data)


def _loaded(
    found: FoundLogs, losses: _Losses, seen: dict[str, None]
) -> tuple[dict[str, RunLog], dict[str, SavedConfig | None]]:
    """Every log that can be read, and what is configured for it; `seen` takes down the tags."""
    logs: dict[str, RunLog] = {}
    saved: dict[str, SavedConfig | None] = {}
    for name, source in found.items():
        try:
            log = source.read()
            seen |= dict.fromkeys(log.tags)
            saved[name] = source.configuration(log, found.roots[name])
            logs[name] = with_generations(log, saved[name])
        except RecordError as error:
            losses.take(name, error)
    return logs, saved


_SAME_RUN = ("group_size", "problems_per_batch", "seed", "model", "learning_rate", "kl_coef", "temperature")


def stitched(logs: dict[str, RunLog], saved: Mapping[str, SavedConfig | None]) -> dict[str, str]:
    """Run of W&B that goes on where another one stopped, as a trainer that was resumed begins one -> that run.

    It has the configuration of the other one, begins later, and its first update follows one of the other's. Its
    starts become those of the run that it goes on with.

    Args:
        logs: every run; changed.
        saved: what is configured for each.
    """

    def fields(name: str) -> list[Any]:
        config = saved.get(name)
        return [] if config is None else [config.fields[f].value if f in config.fields else None for f in _SAME_RUN]

    late = [name for name, log in logs.items() if log.format == "wandb" and log.first_step > 0 and fields(name)]
    found: dict[str, str] = {}
    for name in sorted(late, key=lambda one: logs[one].began or 0.0):
        log, began = logs[name], logs[name].began or 0.0
        before = [
            other
            for other, one in logs.items()
            if other not in (name, *found)
            and one.format == log.format
            and (one.began or 0.0) < began
            and max((extent.last for extent in one.extents), default=-1.0) >= log.first_step
            and fields(other) == fields(name)
        ]
        if len(before) == 1:
            (other,) = before
            notes = (*logs[other].notes, *log.notes)
            logs[other] = replace(logs[other], attempts=(*logs[other].attempts, *log.attempts), notes=notes)
            found[name] = other
    return found


def shared_sizes(
    logs: Mapping[str, RunLog], saved: dict[str, SavedConfig | None], request: LogRequest | None = None
) -> dict[str, str]:
    """Run -> the run that it repeats; a configuration that one of several copies has becomes that of all.

    Args:
        logs: every run.
        saved: what is configured for each; changed.
        request: what was asked, which may say n and B_p too.

    Raises:
        RecordError: two logs of one name hold too little to tell whether they are one run.
    """
    given = {} if request is None else {key: request.runs.get(key, {}) for key in logs}
    sizes = {name: _sizes(log, saved[name], given.get(name, {})) for name, log in logs.items()}
    copies = twins(logs, sizes)
    for name, kept in copies.items():
        if None in sizes[kept] and None not in sizes[name]:
            saved[kept], sizes[kept] = saved[name], sizes[name]
        elif None in sizes[name] and None not in sizes[kept]:
            saved[name], sizes[name] = saved[kept], sizes[kept]
    pair = undecided(logs, copies)
    if request is not None and pair is not None:
        formats = ", ".join(sorted({logs[name].format for name in pair}))
        raise RecordError(
            f"{logs[pair[0]].source} and {logs[pair[1]].source} mixes formats: {formats}; they hold too few values to "
            "tell whether they are one run, which would count twice",
            'Choose with format=, e.g. format="tensorboard", which keeps every attempt of a run; or let `isocompute '
            "ingest PATH --propose map.yaml` list all of them.",
        ).in_shell("Name the files of one kind, or let `isocompute ingest PATH --propose map.yaml` list all of them.")
    return copies


def _sizes(log: RunLog, saved: SavedConfig | None, given: Mapping[str, Any]) -> tuple[Any, Any]:
    fields = {} if saved is None else {key: said.value for key, said in saved.fields.items()}
    found = {**fields, **log.said, **{key: value for key, value in given.items() if value is not None}}
    return found.get("group_size"), found.get("problems_per_batch")


def read_launched(folder: str | Path, name: str) -> RunSet:
    """Everything that the runs of one backend at or below a folder have measured.

    Args:
        folder: folder of a run, or one above several.
        name: log format of the backend.

    Raises:
        RecordError: there is no such run, none has measured anything, or one cannot be read.
    """
    load(name)
    sources = [one for one in find_logs(Listing.of(folder)) if one.launched is not None and one.launched.name == name]
    if not sources:
        raise RecordError(
            f"{folder} holds no run that a launch script of backend {name!r} started",
            "Start the run with its launch.sh. Logs of other runs: `isocompute ingest`.",
        )
    roots = dict.fromkeys((one.name for one in sources), Path(folder))
    return read_logs(FoundLogs({one.name: one for one in sources}, roots), LogRequest())


def _reading(
    name: str, log: RunLog, saved: SavedConfig | None, request: LogRequest, batch_asked: str
) -> tuple[Reading, list[Note]]:
    given = {_column(key): value for key, value in request.constants.items() if value is not None}
    batch = given.pop(BATCH.name, None)
    told = log.said | given | {key: value for key, value in request.runs.get(name, {}).items() if value is not None}
    saved = settled(saved, told)
    values: dict[str, Any] = {} if saved is None else {key: said.value for key, said in saved.fields.items()}
    values |= told
    if batch is not None:
        values["problems_per_batch"] = told["problems_per_batch"] = _problems(name, batch, values.get("group_size"))
    steps = None if "updates_per_batch" in told else values.pop(STEPS_PER_BATCH, None)
    values.pop(STEPS_PER_BATCH, None)
    apart = {} if saved is None else {key: all_ for key, all_ in saved.disagreements.items() if key not in told}
    if not request.without_sizes:
        _refuse_disagreement(
            name, log, {key: all_ for key, all_ in apart.items() if key != "updates_per_batch" or not steps}
        )
    if saved is not None and saved.rollouts is not None and "problems_per_batch" not in values:
        values |= _problems_of(name, log, saved.rollouts, values.get("group_size"))
    unknown = [column for column in ("group_size", "problems_per_batch") if column not in values]
    by_updates = log.framework is not None and log.framework.step == "optimizer_updates"
    if by_updates and not steps and "updates_per_batch" not in values and request.step_unit is None:
        steps = logged_updates_per_batch(log)
        if steps is None and not request.without_sizes:
            unknown.append("updates_per_batch")
        elif steps is not None and steps % 1 == 0:
            values["updates_per_batch"], steps = int(steps), None
    if unknown and not request.without_sizes:
        _refuse_unknown(name, log, saved, unknown, batch_asked)
    values |= dict.fromkeys(unknown, 1)
    notes = [_disagreement(name, column, all_) for column, all_ in apart.items()]
    notes += [sizes_note([name], unknown)] if unknown else []
    context = {key: value for key, value in values.items() if key not in ("group_size", "problems_per_batch")}
    sizes = values["group_size"], values["problems_per_batch"]
    return Reading(*sizes, request.step_unit, request.rename, request.ignore, context, steps, request.metric), notes


def _refuse_disagreement(name: str, log: RunLog, apart: Mapping[str, Sequence[Said]]) -> None:
    for column, all_ in apart.items():
        if column in SIZES:
            shown = "; ".join(one.evidence for one in all_)
            raise RecordError(
                f"{log.source}: run {name!r}: sources disagree about {column}: {shown}",
                f"Give the one that holds: --set {column}=...",
            )


def _problems_of(name: str, log: RunLog, rollouts: Said, size: Any) -> dict[str, int]:
    """B_p from the configured rollouts of a batch; nothing without n, or with one that changes."""
    if not isinstance(size, int):
        return {}
    if rollouts.value % size:
        raise RecordError(
            f"{log.source}: run {name!r}: {rollouts.value} rollouts of a batch ({rollouts.evidence}) are no "
            f"multiple of group_size {size}; accepted: a divisor of it",
            "Correct --set group_size=..., or give B_p too: --set problems_per_batch=...",
        )
    return {"problems_per_batch": rollouts.value // size}


def _refuse_unknown(name: str, log: RunLog, saved: SavedConfig | None, unknown: Sequence[str], batch: str) -> NoReturn:
    column = unknown[0]
    asked = [batch if one == "problems_per_batch" else one for one in unknown]
    where = "no configuration was saved beside it" if saved is None else f"{saved.path} does not say it"
    raise RecordError(
        f"{log.source}: nothing says the {column} of run {name!r} ({where}); accepted: {_ACCEPTED[column]}",
        f"Give it for all runs as {asked[0]}=..., for each as runs={{{name!r}: {{{column!r}: ...}}}}, or let "
        "`isocompute ingest PATH --propose map.yaml` collect what names and files say.",
        options=tuple(f"--set {one}={PLACEHOLDERS[one]}" for one in asked),
    ).in_shell(
        f"Add --set {asked[0]}=... if it is the same for all runs, or let "
        "`isocompute ingest PATH --propose map.yaml` collect what names and files say."
    )


_ACCEPTED = {
    "group_size": "a whole number >= 1",
    "problems_per_batch": "a whole number >= 1",
    "updates_per_batch": "optimiser updates made with one batch of rollouts, 1 unless the trainer reuses them",
}


def _disagreement(name: str, column: str, all_: Sequence[Said]) -> Note:
    shown = "; ".join(one.evidence for one in all_)
    message = f"run {name!r}: sources disagree about {column}: {shown}. The first is taken; correct it if it is wrong."
    data = {"run_id": name, "field": column, "values": [one.value for one in all_]}
    return Note("sources-disagree", "warning", message, data)


def _column(argument: str) -> str:
    column = canonical(argument) or argument
    check_fields([column], (*PER_RUN, BATCH.name), "argument")
    return column


def _problems(name: str, batch: Any, size: Any) -> int:
    """B_p of a run from the rollouts of its batch."""
    if not isinstance(size, int) or not isinstance(batch, int) or batch % size:
        raise RecordError(
            f"run {name!r}: rollouts_per_batch is {batch!r} with n = {size!r}; accepted: a multiple of n",
            "Give problems_per_batch.",
        )
    return batch // size


def _on_set(frame: Any, eval_set: str) -> Any:
    import polars as pl

    named = pl.when(pl.col("eval_set") == TRAIN_SET).then(pl.col("eval_set")).otherwise(pl.lit(eval_set))
    return frame.with_columns(eval_set=named)


def _not_read(path: Path, others: Sequence[Path]) -> Note:
    message = (
        f"{path} is read through its logs; {len(others)} other files, such as {others[0]}, were not looked at. "
        "Name them to read them."
    )
    return Note("files-not-read", "info", message, {"files": [str(file) for file in others[:20]]})
