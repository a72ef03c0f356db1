"""TensorBoard event files: the scalars of each, the trainer's arguments, and what of it cannot be read.

A file is a chain of records: length (8 bytes), checksum of the length (4), a protobuf `Event` of that length, its
checksum (4). The chain is walked here and not by TensorBoard's own loader, because that one stops silently at a damaged
record, returns the steps that a resumed run made again twice, and samples 10,000 of them. Messages and checksums are
those of the `tensorboard` package.
"""

from __future__ import annotations

import struct
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from isocompute_sdk.errors import NothingMeasured
from isocompute_sdk.files import parse_json
from isocompute_sdk.ingest.attempts import in_order
from isocompute_sdk.ingest.formats.log_format import Attempt, RunLog, ScalarSeries
from isocompute_sdk.ingest.paths import EVENT_MARK
from isocompute_sdk.ingest.tables import Damage, open_bytes
from isocompute_sdk.phrases import counted

_HEADER, _FOOTER = struct.Struct("<QI"), struct.Struct("<I")
_LONG_RECORD = 4096
_PLUGIN_OF_SCALARS = "scalars"
ARGUMENTS_TAG = "args/text_summary"
"""Text in which a Hugging Face Trainer keeps its arguments as JSON."""
_OF_RUN = (
    "num_generations",
    "generation_batch_size",
    "per_device_train_batch_size",
    "gradient_accumulation_steps",
    "steps_per_generation",
    "num_iterations",
    "learning_rate",
    "lr_scheduler_type",
    "beta",
    "epsilon",
    "epsilon_high",
    "loss_type",
    "scale_rewards",
    "reward_weights",
    "temperature",
    "top_p",
    "max_prompt_length",
    "max_completion_length",
    "seed",
    "optim",
    "weight_decay",
    "max_grad_norm",
)
"""Arguments that are the same in a run and its resume; others, such as how long it is to train, may change."""


@dataclass(frozen=True)
class EventFile:
    """What one file holds."""

    attempt: Attempt
    arguments: Mapping[str, Any]
    """All arguments of the trainer; empty if the file holds none."""

    @property
    def first_step(self) -> int | None:
        """The first step at which an update was logged; None if there is none. Evaluations may precede it."""
        updates = [int(one.step_T[0]) for tag, one in self.attempt.series.items() if not tag.startswith("eval")]
        return min(updates, default=None)

    def goes_on(self, before: EventFile) -> bool:
        """Whether this start goes on with the run of an earlier one, and is no run of its own."""
        if not self.arguments and not before.arguments:
            return True
        if any(self.arguments.get(key) != before.arguments.get(key) for key in _OF_RUN):
            return False
        if self.arguments.get("resume_from_checkpoint"):
            return True
        # `train(resume_from_checkpoint=...)` leaves no trace in the arguments.
        interval = self.arguments.get("logging_steps")
        first = max(1, interval if isinstance(interval, int | float) else 1)
        return self.first_step is not None and self.first_step > first


def read_event_file(path: Path, *, only_beginning: bool = False) -> EventFile | None:
    """Read every scalar of one file, and the trainer's arguments; images and histograms are skipped.

    None if no record is whole.
    """
    with open_bytes(path) as file:
        return _read(path, file, only_beginning)


def _read(path: Path, file: BinaryIO, only_beginning: bool) -> EventFile | None:
    format = _Format.load()
    columns: dict[str, tuple[list[int], list[float], list[float]]] = {}
    plugins: dict[str, str] = {}
    arguments: dict[str, Any] = {}
    damage = Damage()
    started, purge_step = None, None
    for offset, payload, checksum in _records(file, format, damage):
        event = format.parse(payload)
        scalars = None if event is None else list(format.scalars(event, plugins))
        arguments = arguments or ({} if event is None else _arguments(event))
        # Checksums in Python are slow: a long record without a scalar, such as a text, need not be right.
        matters = bool(scalars) or len(payload) <= _LONG_RECORD
        if event is None or scalars is None or (matters and format.checksum(payload) != checksum):
            damage.broken.append(offset)
            continue
        started = event.wall_time if started is None else started
        if event.session_log.status == format.session_start and event.step > 0:
            purge_step = event.step
        for tag, value in scalars:
            steps, walls, values = columns.setdefault(tag, ([], [], []))
            steps.append(event.step)
            walls.append(event.wall_time)
            values.append(value)
        if only_beginning and any(not tag.startswith("eval") for tag, _ in scalars):
            break
    if started is None and not damage.broken and not damage.ending:
        return None
    series = {
        tag: ScalarSeries(np.array(steps, dtype=np.int64), np.array(walls), np.array(values, dtype=np.float64))
        for tag, (steps, walls, values) in columns.items()
    }
    kept = sum(len(one.step_T) for one in series.values())
    notes = tuple(damage.notes(path, counted(kept, "value")))
    return EventFile(Attempt(path, series, started or 0.0, purge_step, notes), arguments)


def _arguments(event: Any) -> dict[str, Any]:
    """The arguments of a trainer in a message; empty if it holds none."""
    texts = [value.tensor.string_val for value in event.summary.value if value.tag == ARGUMENTS_TAG]
    try:
        content: Any = parse_json(texts[0][0].decode()) if texts and texts[0] else None
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}


def _records(file: BinaryIO, format: _Format, damage: Damage) -> Iterator[tuple[int, bytes, int]]:
    """Offset, message and stated checksum of every whole record, up to the first place that makes no sense."""
    size = file.seek(0, 2)
    offset = file.seek(0)
    # Records of scalars have few different lengths.
    checksum_of: dict[bytes, int] = {}
    while offset < size:
        head = file.read(_HEADER.size)
        if len(head) < _HEADER.size:
            return damage.ends("cut", offset, size)
        length, checksum = _HEADER.unpack(head)
        start = head[:8]
        if start not in checksum_of:
            checksum_of[start] = format.checksum(start)
        if checksum_of[start] != checksum:
            return damage.ends("damaged", offset, size)
        if length + _HEADER.size + _FOOTER.size > size - offset:
            return damage.ends("cut", offset, size)
        payload = file.read(length)
        yield offset, payload, _FOOTER.unpack(file.read(_FOOTER.size))[0]
        offset += _HEADER.size + length + _FOOTER.size
    return None


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
        """Import the parts of `tensorboard`."""
        with warnings.catch_warnings():
            # Its message classes complain about neighbouring releases of protobuf, which reads them all the same.
            warnings.simplefilter("ignore")
            from google.protobuf.message import DecodeError
            from tensorboard.compat.proto import event_pb2
            from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import masked_crc32c
            from tensorboard.util.tensor_util import make_ndarray
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


def read_events(name: str, source: Path, parts: Sequence[Path]) -> RunLog:
    """The log of a run whose event files are `parts`, or lie in them, with the arguments that the newest of them holds.

    Raises:
        RecordError: a file cannot be opened.
        NothingMeasured: there is no file with a whole scalar.
    """
    files = [file for part in parts for file in event_files(part)]
    read = [one for one in map(read_event_file, files) if one is not None]
    attempts = in_order(one.attempt for one in read if one.attempt.series)
    if not attempts:
        raise NothingMeasured(
            f"{source} holds no TensorBoard event file with a complete scalar; files with {EVENT_MARK!r} in their "
            f"names: {len(files)}",
            "The run has not logged anything yet, or its files are damaged: see `isocompute doctor`.",
        )
    notes = tuple(note for one in read for note in one.attempt.notes)
    starts = sorted((one for one in read if one.attempt.series and one.arguments), key=lambda one: one.attempt.started)
    settings = tuple((one.attempt.path, one.arguments) for one in starts[-1:])
    return RunLog(name, source, "tensorboard", attempts, notes, settings=settings)


def event_files(path: Path) -> list[Path]:
    """The event files directly in a folder, sorted by name; a file stands for itself."""
    if path.is_file():
        return [path]
    return sorted(entry for entry in path.iterdir() if EVENT_MARK in entry.name and entry.is_file())
