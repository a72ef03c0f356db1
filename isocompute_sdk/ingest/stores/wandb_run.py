"""Run folders of Weights & Biases, `wandb/(offline-)run-DATE_TIME-ID/`: what was logged, configured and printed.

`run-ID.wandb` holds everything and is there whether the run was synced or not. It is a chain of blocks of 32 KiB, each
with chunks of records (checksum, length, kind), and a record is a protobuf message `Record` of the package `wandb`,
which is not needed here. Beside it `files/` may hold `config.yaml`, `wandb-metadata.json` and `output.log`; an offline
run may lack them.
"""

from __future__ import annotations

import re
import struct
import zlib
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isocompute_sdk.errors import RecordError
from isocompute_sdk.files import parse_json
from isocompute_sdk.ingest.attempts import in_order, scalar_series
from isocompute_sdk.ingest.formats.log_format import Attempt, FoundRun, LogStore, RunLog, ScalarSeries
from isocompute_sdk.ingest.formats.registry import format_of
from isocompute_sdk.ingest.stores.saved_config import command_line, translate
from isocompute_sdk.ingest.tables import Damage, NothingMeasured, open_bytes
from isocompute_sdk.notes import Note

MAGIC = b":W&B\xe1\xbe\x00"
"""A file starts with this; it is part of the first block."""
ENDING = ".wandb"
_BLOCK = 1 << 15
_HEADER = struct.Struct("<IHB")
_FULL, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
_HISTORY, _CONFIG, _RUN, _ENVIRONMENT = 2, 5, 17, 26
_ITEM, _KEY, _NESTED_KEY, _INTEGER, _NUMBER, _JSON = 1, 1, 2, 5, 6, 16
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

    def take(self, record: bytes) -> None:
        """Add one record.

        Raises:
            ValueError: it is no whole message.
        """
        for kind, value in _message(record):
            if not isinstance(value, bytes):
                continue
            if kind == _HISTORY:
                self._history(value)
            elif kind == _CONFIG:
                self._configure(value)
            elif kind == _RUN:
                self._describe(value)
            elif kind == _ENVIRONMENT:
                for number, part in _message(value):
                    if number == 5:
                        self.arguments.append(_text(part))
                    elif number == 19 and isinstance(part, int):
                        self.gpus = part

    def _history(self, message: bytes) -> None:
        """One call of `log`."""
        for kind, item in _message(message):
            if kind != _ITEM or not isinstance(item, bytes):
                continue
            keys: list[str] = []
            for number, value in _message(item):
                if number in (_KEY, _NESTED_KEY):
                    keys.append(_text(value))
                elif number == _JSON and isinstance(value, bytes):
                    self._value(".".join(keys), value)
                elif number == _INTEGER and isinstance(value, int):
                    self._add(".".join(keys), float(value >> 1 ^ -(value & 1)))  # sint64: the sign is the lowest bit
                elif number == _NUMBER and isinstance(value, bytes):
                    self._add(".".join(keys), float(_FLOAT64.unpack(value)[0]))
        self.rows += 1

    def _value(self, name: str, value: bytes) -> None:
        try:
            self._add(name, float(value))
        except ValueError:
            if value.strip(b'"') in (b"NaN", b"Infinity", b"-Infinity"):
                self._add(name, float(value.strip(b'"')))

    def _add(self, name: str, number: float) -> None:
        column = self.columns.setdefault(name, WandbColumn())
        column.rows.append(self.rows)
        column.values.append(number)

    def _configure(self, message: bytes) -> None:
        for number, update in _message(message):
            if number != 1 or not isinstance(update, bytes):
                continue
            keys: list[str] = []
            value: Any = None
            for part, content in _message(update):
                if part in (_KEY, _NESTED_KEY):
                    keys.append(_text(content))
                elif part == _JSON:
                    value = parse_json(_text(content))
            here = self.config
            for key in keys[:-1]:
                here = here.setdefault(key, {})
                if not isinstance(here, dict):
                    raise ValueError(f"{key} holds a value and further keys")
            if keys:
                here[keys[-1]] = value

    def _describe(self, message: bytes) -> None:
        for number, value in _message(message):
            if number == 1:
                self.run_id = _text(value) or self.run_id
            elif number == 8:
                self.name = _text(value)
            elif number == 4 and isinstance(value, bytes):
                self._configure(value)
            elif number == 17 and isinstance(value, bytes):
                # Seconds and nanoseconds.
                parts = {key: part for key, part in _message(value) if isinstance(part, int)}
                self.started = parts.get(1, 0) + parts.get(2, 0) * 1e-9


def is_run_file(path: Path) -> bool:
    """Whether a file is a run of W&B, by its name and first bytes."""
    if path.suffix != ENDING or not path.name.startswith("run-"):
        return False
    try:
        return _content(path, len(MAGIC)).startswith(MAGIC[:4])
    except RecordError:
        return False


def read_wandb_run(path: Path, *, only_description: bool = False) -> WandbRun:
    """Read one `.wandb` file; records that are damaged or cut off are left out, with a note."""
    content = _content(path, _BEGINNING if only_description else -1)
    if not content.startswith(MAGIC[:4]):
        raise RecordError(
            f"{path} starts with {content[:7]!r}; accepted: a run of W&B, which starts with {MAGIC!r}",
            "Copy the file again.",
        )
    damage, found = Damage(), WandbRun(path, path.stem.removeprefix("run-"))
    for offset, record in _records(content, damage):
        try:
            found.take(record)
        except ValueError:
            damage.broken.append(offset)
        if only_description and found.rows:
            break
    if not found.started and TIMESTAMP in found.columns:
        found.started = found.columns[TIMESTAMP].values[0]
    found.name = found.name or found.run_id
    found.notes = tuple(damage.notes(path, f"{found.rows:,} rows"))
    return found


def _content(path: Path, size: int = -1) -> bytes:
    with open_bytes(path) as file:
        return file.read(size)


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


VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
_FLOAT64 = struct.Struct("<d")
_LONGEST_VARINT = 10


def _message(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Number and value of every field in order: numbers as int, everything else as the bytes that stand there."""
    at, end = 0, len(message)
    while at < end:
        key, at = _varint(message, at)
        kind = key & 7
        if kind == VARINT:
            value, at = _varint(message, at)
            yield key >> 3, value
            continue
        if kind == BYTES:
            length, at = _varint(message, at)
        elif kind in (FIXED64, FIXED32):
            length = 8 if kind == FIXED64 else 4
        else:
            raise ValueError(f"wire type {kind} at byte {at}")
        if at + length > end:
            raise ValueError(f"a field of {length} bytes at byte {at} of {end}")
        yield key >> 3, message[at : at + length]
        at += length


def _varint(message: bytes, at: int) -> tuple[int, int]:
    """A number of variable length, and the offset behind it."""
    result = 0
    for i in range(_LONGEST_VARINT):
        if at + i >= len(message):
            break
        byte = message[at + i]
        result |= (byte & 0x7F) << (7 * i)
        if byte < 0x80:
            return result, at + i + 1
    raise ValueError(f"no whole number at byte {at}")


def _text(value: int | bytes | None) -> str:
    """A field that holds text; empty if it is absent."""
    return value.decode(errors="replace") if isinstance(value, bytes) else ""
