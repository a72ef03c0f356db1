"""TensorBoard event files: the scalars of each, what of it cannot be read, and the log that those of a folder make.

A file is a chain of records: length (8 bytes), checksum of the length (4), a protobuf `Event` of that length, its
checksum (4). The chain is walked here and not by TensorBoard's own loader, because that one stops silently at a damaged
record, returns the steps that a resumed run made again twice, and samples 10,000 of them. Messages and checksums are
those of the `tensorboard` package.
"""

from __future__ import annotations

import os
import struct
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from isocompute_sdk.errors import RecordError
from isocompute_sdk.ingest.attempts import Attempt, RunLog, ScalarSeries, in_order
from isocompute_sdk.ingest.stores.packed import CUT_PACKING, DAMAGED, open_bytes
from isocompute_sdk.notes import Note

_HEADER, _FOOTER = struct.Struct("<QI"), struct.Struct("<I")
_LONG_RECORD = 4096
_PLUGIN_OF_SCALARS = "scalars"


def read_event_file(path: Path) -> Attempt | None:
    """Read every scalar of one file; texts, images and histograms are skipped. None if no record is whole.

    Raises:
        RecordError: the file cannot be opened, or the package `tensorboard` is missing.
    """
    try:
        with open_bytes(path) as file:
            return _read(path, file)
    except DAMAGED as error:
        raise RecordError(CUT_PACKING.format(path=path), "Copy it again.") from error
    except OSError as error:
        raise RecordError(f"{path} cannot be read: {error.strerror}", "Check the path and its permissions.") from error


def _read(path: Path, file: BinaryIO) -> Attempt | None:
    format = _Format.load()
    columns: dict[str, tuple[list[int], list[float], list[float]]] = {}
    plugins: dict[str, str] = {}
    damage = _Damage(path)
    started, purge_step = None, None
    for offset, payload, checksum in _records(file, format, damage):
        event = format.parse(payload)
        scalars = None if event is None else list(format.scalars(event, plugins))
        # Checksums in Python are slow: a long record without a scalar, such as a text, need not be right.
        matters = bool(scalars) or len(payload) <= _LONG_RECORD
        if event is None or scalars is None or (matters and format.checksum(payload) != checksum):
            damage.skipped(offset)
            continue
        started = event.wall_time if started is None else started
        if event.session_log.status == format.session_start and event.step > 0:
            purge_step = event.step
        for tag, value in scalars:
            steps, walls, values = columns.setdefault(tag, ([], [], []))
            steps.append(event.step)
            walls.append(event.wall_time)
            values.append(value)
    if started is None and not damage.found:
        return None
    series = {
        tag: ScalarSeries(np.array(steps, dtype=np.int64), np.array(walls), np.array(values, dtype=np.float64))
        for tag, (steps, walls, values) in columns.items()
    }
    kept = sum(len(one.step_T) for one in series.values())
    return Attempt(path, series, started or 0.0, purge_step, damage.notes(kept))


def _records(file: BinaryIO, format: _Format, damage: _Damage) -> Iterator[tuple[int, bytes, int]]:
    """Offset, message and stated checksum of every whole record, up to the first place that makes no sense."""
    size = file.seek(0, 2)
    offset = file.seek(0)
    # Records of scalars have few different lengths.
    checksum_of: dict[bytes, int] = {}
    while offset < size:
        head = file.read(_HEADER.size)
        if len(head) < _HEADER.size:
            return damage.ended(offset, size)
        length, checksum = _HEADER.unpack(head)
        start = head[:8]
        if start not in checksum_of:
            checksum_of[start] = format.checksum(start)
        if checksum_of[start] != checksum:
            return damage.lost(offset, size)
        if length + _HEADER.size + _FOOTER.size > size - offset:
            return damage.ended(offset, size)
        payload = file.read(length)
        yield offset, payload, _FOOTER.unpack(file.read(_FOOTER.size))[0]
        offset += _HEADER.size + length + _FOOTER.size
    return None


class _Damage:
    """What was met on the way through one file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.skips: list[int] = []
        self.tail: tuple[str, int, int] | None = None

    @property
    def found(self) -> bool:
        return bool(self.skips) or self.tail is not None

    def skipped(self, offset: int) -> None:
        """One record is unreadable, those behind it may be whole."""
        self.skips.append(offset)

    def ended(self, offset: int, size: int) -> None:
        """The file ends inside the record at `offset`."""
        self.tail = ("log-cut-off", offset, size)

    def lost(self, offset: int, size: int) -> None:
        """From `offset` on the chain is broken."""
        self.tail = ("log-damaged", offset, size)

    def notes(self, kept: int) -> tuple[Note, ...]:
        """Coded notes; `kept` is the number of values that were read."""
        found: list[Note] = []
        data = {"file": str(self.path), "values_kept": kept}
        if self.skips:
            message = (
                f"{self.path}: {len(self.skips)} records do not match their checksums (the first at byte "
                f"{self.skips[0]}) and are left out; {kept:,} values are kept. Copy the file again if you can."
            )
            found.append(Note("log-damaged", "warning", message, {**data, "records": len(self.skips)}))
        if self.tail is not None:
            code, offset, size = self.tail
            data = {**data, "offset": offset, "size": size}
            if code == "log-cut-off":
                message = (
                    f"{self.path} ends inside a record (byte {offset:,} of {size:,}), as when a run is writing or was "
                    f"killed; the {kept:,} values before it are kept."
                )
                found.append(Note("log-cut-off", "info", message, data))
            else:
                message = (
                    f"{self.path} is damaged from byte {offset:,} of {size:,} on: what follows cannot be read, the "
                    f"{kept:,} values before it are kept. Copy the file again if you can."
                )
                found.append(Note("log-damaged", "warning", message, data))
        return tuple(found)


@dataclass(frozen=True)
class _Format:
    """What the package `tensorboard` knows about the format, loaded on first use."""

    event: Any
    decode_error: type[Exception]
    checksum: Any
    make_ndarray: Any
    session_start: int

    @classmethod
    def load(cls) -> _Format:
        """Import the parts of `tensorboard`.

        Raises:
            RecordError: it is not installed.
        """
        try:
            with warnings.catch_warnings():
                # Its message classes complain about neighbouring releases of protobuf, which reads them all the same.
                warnings.simplefilter("ignore")
                from google.protobuf.message import DecodeError
                from tensorboard.compat.proto import event_pb2
                from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import masked_crc32c
                from tensorboard.util.tensor_util import make_ndarray
        except ImportError as error:
            raise PackageMissing(
                f"TensorBoard files need the package tensorboard, which cannot be imported: {error}",
                "Install it: pip install tensorboard.",
            ) from error
        messages: Any = event_pb2
        return cls(messages.Event, DecodeError, masked_crc32c, make_ndarray, int(messages.SessionLog.START))

    def parse(self, payload: bytes) -> Any | None:
        """The message in a record; None if it cannot be parsed."""
        try:
            return self.event.FromString(payload)
        except self.decode_error:
            return None

    def scalars(self, event: Any, plugins: dict[str, str]) -> Iterator[tuple[str, float]]:
        """Tag and value of the scalars of one message, as old and new writers store them.

        `plugins` keeps which kind each tag is: new writers say so with its first value only.
        """
        for value in event.summary.value:
            if value.HasField("simple_value"):
                yield value.tag, value.simple_value
            elif value.HasField("tensor"):
                plugin = plugins.setdefault(value.tag, value.metadata.plugin_data.plugin_name)
                if plugin == _PLUGIN_OF_SCALARS:
                    yield value.tag, float(self.make_ndarray(value.tensor).reshape(-1)[0])


class PackageMissing(RecordError):
    """A log that only a package which is not installed can read."""


EVENT_MARK = "tfevents"
"""What the name of every event file contains."""


def read_tensorboard(path: str | os.PathLike[str]) -> RunLog:
    """The log in the event files of one folder (not those of its subfolders), or in one file.

    Raises:
        RecordError: there is none, one cannot be opened, or the package `tensorboard` is missing.
    """
    target = Path(path)
    paths = event_files(target)
    if not paths:
        beside = sorted(entry.name for entry in target.iterdir())[:10] if target.is_dir() else []
        there = f"it holds: {', '.join(beside) or 'nothing'}" if target.is_dir() else "no such file or folder"
        raise RecordError(
            f"{target} holds no TensorBoard event files ({there}); accepted: files with {EVENT_MARK!r} in their names",
            "Give the folder of one run; its events lie directly in it.",
        )
    attempts = in_order(one for one in map(read_event_file, paths) if one is not None)
    return RunLog(target.name, target, "tensorboard", attempts, tuple(note for one in attempts for note in one.notes))


def event_files(path: Path) -> list[Path]:
    """The event files directly in a folder, sorted by name; a file stands for itself."""
    if path.is_file():
        return [path]
    if not path.is_dir():
        return []
    return sorted(entry for entry in path.iterdir() if EVENT_MARK in entry.name and entry.is_file())
