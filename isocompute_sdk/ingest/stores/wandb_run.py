"""Run folders of Weights & Biases, `wandb/(offline-)run-DATE_TIME-ID/`: what was logged, configured and printed.

`run-ID.wandb` holds everything and is there whether the run was synced or not. It is a chain of blocks of 32 KiB, each
with chunks of records (checksum, length, kind), and a record is a protobuf message `Record` of the package `wandb`,
which is not needed here: `_MESSAGES` declares what is read. Beside it `files/` may hold `config.yaml`,
`wandb-metadata.json` and `output.log`; an offline run may lack them.
"""

from __future__ import annotations

import re
import struct
import zlib
from array import array
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isocompute_sdk.errors import NothingMeasured, RecordError
from isocompute_sdk.files import parse_json
from isocompute_sdk.ingest.attempts import in_order, scalar_series
from isocompute_sdk.ingest.formats.log_format import Attempt, FoundRun, LogStore, RunLog, ScalarSeries
from isocompute_sdk.ingest.formats.registry import format_of
from isocompute_sdk.ingest.stores.saved_config import command_line, translate
from isocompute_sdk.ingest.tables import Damage, beginning, open_bytes
from isocompute_sdk.notes import Note
from isocompute_sdk.phrases import counted

MAGIC = b":W&B\xe1\xbe\x00"
"""A file starts with this; it is part of the first block."""
ENDING = ".wandb"
_BLOCK = 1 << 15
_HEADER = struct.Struct("<IHB")
_FULL, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
STEP, TIMESTAMP, _RUNTIME = "_step", "_timestamp", "_runtime"
_BEGINNING = 1 << 20


@dataclass(frozen=True)
class WandbColumn:
    """The numbers that were logged under one key."""

    rows: array[int] = field(default_factory=lambda: array("q"))
    values: array[float] = field(default_factory=lambda: array("d"))

    @property
    def row_T(self) -> NDArray[np.int64]:
        """Which call of `log` logged each, counted from 0."""
        return np.array(self.rows)

    @property
    def value_T(self) -> NDArray[np.float64]:
        """The values; not-a-number and infinities are kept."""
        return np.array(self.values)


@dataclass
class WandbRun:
    """One start of a run, filled record by record."""

    path: Path
    """The `.wandb` file."""
    run_id: str
    """The same for every start of a run that was resumed; that of the file's name if its record is lost."""
    name: str = ""
    """Name that people see."""
    started: float = 0.0
    """Seconds since 1970; 0 if unknown."""
    columns: dict[str, WandbColumn] = field(default_factory=dict[str, WandbColumn])
    """Key -> its numbers; texts, images and tables are left out. Nested keys are joined with dots."""
    rows: int = 0
    """Calls of `log`."""
    config: dict[str, Any] = field(default_factory=dict[str, Any])
    """The configuration with its latest values, nested as it was logged."""
    arguments: list[str] = field(default_factory=list[str])
    """Command-line arguments of the program."""
    gpus: int | None = None
    """GPUs of the machine; the run may have used fewer."""
    notes: tuple[Note, ...] = ()
    """What could not be read: `log-damaged`."""

    def take(self, record: Any) -> None:
        """Add one record, a message of `_record_type`.

        Raises:
            ValueError: the configuration contradicts itself.
        """
        self.rows += record.HasField("history")
        for item in record.history.item:
            name = _text(b".".join([*([item.key] if item.HasField("key") else []), *item.nested_key]))
            if item.HasField("integer"):
                self._add(name, float(item.integer))
            elif item.HasField("number"):
                self._add(name, item.number)
            else:
                # Texts, images and tables are no numbers.
                with suppress(ValueError):
                    self._add(name, float(item.json.strip(b'"') if item.json in _NOT_FINITE else item.json))
        self._configure(record.config)
        self._configure(record.run.config)
        self.run_id = _text(record.run.id) or self.run_id
        self.name = _text(record.run.name) or self.name
        if record.run.HasField("started"):
            self.started = record.run.started.seconds + record.run.started.nanos * 1e-9
        self.arguments += map(_text, record.environment.argument)
        self.gpus = record.environment.gpus if record.environment.HasField("gpus") else self.gpus

    def _add(self, name: str, number: float) -> None:
        column = self.columns.setdefault(name, WandbColumn())
        column.rows.append(self.rows - 1)
        column.values.append(number)

    def _configure(self, message: Any) -> None:
        for update in message.update:
            keys = [_text(key) for key in (*([update.key] if update.HasField("key") else []), *update.nested_key)]
            here = self.config
            for key in keys[:-1]:
                here = here.setdefault(key, {})
                if not isinstance(here, dict):
                    raise ValueError(f"{key} holds a value and further keys")
            if keys:
                here[keys[-1]] = parse_json(_text(update.json)) if update.HasField("json") else None


def folders_without_history(files: Sequence[Path]) -> list[Path]:
    """Folders of runs that were copied without what they logged."""
    folders = {file.parent.parent for file in files if file.parts[-2:] == ("files", "wandb-summary.json")}
    return sorted(folder for folder in folders if not any(folder.glob(f"*{ENDING}")))


def is_run_file(path: Path) -> bool:
    """Whether a file is a run of W&B, by its name and first bytes."""
    named = path.suffix == ENDING and path.name.startswith("run-")
    return named and beginning(path).startswith(MAGIC[:4])


def read_wandb_run(path: Path, *, only_description: bool = False) -> WandbRun:
    """Read one `.wandb` file; records that are damaged or cut off are left out, with a note."""
    with open_bytes(path) as file:
        content = file.read(_BEGINNING if only_description else -1)
    if not content.startswith(MAGIC[:4]):
        raise RecordError(
            f"{path} starts with {content[:7]!r}; accepted: a run of W&B, which starts with {MAGIC!r}",
            "Copy the file again.",
        )
    from google.protobuf.message import DecodeError

    damage, found = Damage(), WandbRun(path, path.stem.removeprefix("run-"))
    record = _record_type()
    for offset, message in _records(content, damage):
        try:
            found.take(record.FromString(message))
        except (ValueError, DecodeError):
            damage.broken.append(offset)
        if only_description and found.rows:
            break
    if not found.started and TIMESTAMP in found.columns:
        found.started = found.columns[TIMESTAMP].values[0]
    found.name = found.name or found.run_id
    found.notes = tuple(damage.notes(path, counted(found.rows, "row")))
    return found


_GLOBAL_STEP = r"(.+/)?global_step"


def to_attempt(run: WandbRun) -> tuple[Attempt, str]:
    """The measurements of one start with the steps of its trainer, and the name of that step.

    W&B's own step counts calls of `log`; a trainer that gives W&B its own step logs no other.
    """
    form = format_of(run.columns)
    pattern = re.compile(_GLOBAL_STEP if form is None else form.step_key)
    steps = [key for key in run.columns if pattern.fullmatch(key)]
    if form is not None and not form.counts_calls(STEP) and STEP in run.columns:
        steps = []
    # A last row may be cut off in its middle.
    at, walls = np.full(run.rows + 1, np.nan), np.full(run.rows + 1, np.nan)
    for key in steps or [STEP]:
        column = run.columns.get(key, WandbColumn())
        at[column.row_T] = np.where(np.isnan(at[column.row_T]), column.value_T, at[column.row_T])
    times = run.columns.get(TIMESTAMP, WandbColumn())
    walls[times.row_T] = times.value_T
    series: dict[str, ScalarSeries] = {}
    for key, column in run.columns.items():
        known_T = ~np.isnan(at[column.row_T])
        rows, values = column.row_T[known_T], column.value_T[known_T]
        if key in (*steps, STEP, TIMESTAMP, _RUNTIME) or not len(rows):
            continue
        series[key] = replace(scalar_series(at[rows], values), wall_time_T=walls[rows])
    return Attempt(run.path, series, run.started, None, run.notes), steps[0] if steps else STEP


def _runs_of(path: Path) -> list[FoundRun]:
    """All starts of a run have its id, and lie in folders side by side."""
    described = read_wandb_run(path, only_description=True)
    folder = path.parent.parent / described.run_id
    name = Path(described.name).name or described.run_id
    return [FoundRun(folder, name, path)]


def read_wandb(paths: Sequence[Path], name: str) -> RunLog:
    """All starts of one run.

    Raises:
        RecordError: a file cannot be opened, or none holds a measurement.
    """
    # A folder that was copied with its links holds its latest start twice.
    by_start: dict[float, WandbRun] = {}
    for one in map(read_wandb_run, paths):
        known = by_start.get(one.started)
        if known is None or known.path.stat().st_size < one.path.stat().st_size:
            by_start[one.started] = one
    starts = [by_start[started] for started in sorted(by_start)]
    read = [to_attempt(one) for one in starts]
    attempts = in_order(attempt for attempt, _ in read if attempt.series)
    if not attempts:
        raise NothingMeasured(
            f"{paths[0]}: run {name!r} has logged nothing yet", "Wait for its first update, or leave the file out."
        )
    steps = {step for attempt, step in read if attempt.series}
    # The command line of a program that did not log its arguments may still hold them.
    settings = [(one.path, one.config) for one in starts if translate(one.path, one.config) is not None]
    settings = settings[-1:] or [(one.path, command_line(list(one.arguments))) for one in starts if one.arguments]
    if settings and starts[-1].gpus == 1:
        # Nobody trains with several processes on one GPU.
        settings = [(settings[-1][0], {"num_processes": 1, **settings[-1][1]})]
    notes = tuple(note for one in starts for note in one.notes)
    step = min(steps, key=lambda key: key == STEP)
    return RunLog(name, paths[0], "wandb", attempts, notes, step_name=step, settings=tuple(settings[-1:]))


STORE = LogStore("wandb-run", is_run_file, lambda path: path.parent, read_wandb, runs_of=_runs_of)


def _records(content: bytes, damage: Damage) -> Iterator[tuple[int, bytes]]:
    """Offset and content of every whole record; from damage the way goes on with the next block."""
    at, end = len(MAGIC), len(content)
    parts: list[bytes] = []
    begun = at
    while at < end:
        room = _BLOCK - at % _BLOCK
        if room < _HEADER.size:
            at += room
            continue
        if end - at < _HEADER.size:
            return damage.ends("cut", begun if parts else at, end)
        checksum, length, kind = _HEADER.unpack_from(content, at)
        begin = at + _HEADER.size
        if not (_FULL <= kind <= _LAST) or length + _HEADER.size > room:
            damage.broken.append(at)
            at, parts = at + room, []
            continue
        if begin + length > end:
            return damage.ends("cut", begun if parts else at, end)
        data = content[begin : begin + length]
        if zlib.crc32(data, zlib.crc32(content[begin - 1 : begin])) != checksum:
            damage.broken.append(at)
            parts = []
        elif kind == _FULL:
            parts = []
            yield at, data
        elif kind == _FIRST:
            begun, parts = at, [data]
        elif parts:
            parts.append(data)
            if kind == _LAST:
                yield begun, b"".join(parts)
                parts = []
        at = begin + length
    return damage.ends("cut", begun, end) if parts else None


_NOT_FINITE = (b'"NaN"', b'"Infinity"', b'"-Infinity"')
_MESSAGES = {
    "Record": "history=2:History config=5:Config run=17:Run environment=26:Environment",
    "History": "item=1*:Item",
    "Item": "key=1:bytes nested_key=2*:bytes integer=5:sint64 number=6:double json=16:bytes",
    "Config": "update=1*:Update",
    "Update": "key=1:bytes nested_key=2*:bytes json=16:bytes",
    "Run": "id=1:bytes config=4:Config name=8:bytes started=17:Time",
    "Time": "seconds=1:int64 nanos=2:int64",
    "Environment": "argument=5*:bytes gpus=19:int64",
}
"""The messages of a file: fields of interest with their number, `*` if there may be several, and their type."""


@cache
def _record_type() -> Any:
    """The class of a record, by `_MESSAGES`."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    messages: Any = descriptor_pb2
    file = messages.FileDescriptorProto(name="isocompute/wandb.proto", package="isocompute")
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for label, number, several, kind in re.findall(r"(\w+)=(\d+)(\*?):(\w+)", fields):
            field = message.field.add(name=label, number=int(number), label=3 if several else 1)
            if kind in _MESSAGES:
                field.type, field.type_name = field.TYPE_MESSAGE, f".isocompute.{kind}"
            else:
                field.type = getattr(field, f"TYPE_{kind.upper()}")
    pool: Any = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("isocompute.Record"))


def _text(value: bytes) -> str:
    return value.decode(errors="replace")
