"""What a Hugging Face Trainer saves: `trainer_state.json`, with an entry of `log_history` per step, and arguments.

Every checkpoint holds the whole history up to itself, that of earlier attempts included as far as they were resumed
from; the one with the largest step is read. Its steps are optimiser steps. `training_args.bin` is a zip archive with
one pickle, the state of a `TrainingArguments`, read without torch: every class that the pickle names becomes an empty
class of this module, and no function is called.
"""

from __future__ import annotations

import io
import json
import pickle
import re
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

from isocompute_sdk.errors import RecordError
from isocompute_sdk.files import LARGEST_DOCUMENT, parse_json
from isocompute_sdk.ingest.attempts import attempts_from_rows, numbers_of, numeric
from isocompute_sdk.ingest.formats.log_format import Attempt, LogStore, RunLog
from isocompute_sdk.ingest.tables import LONGEST_LINE, beginning, read_objects, read_text
from isocompute_sdk.notes import Note

STATE_FILE = "trainer_state.json"
_NO_MEASUREMENTS = ("step", "epoch", "total_flos")
_IN_ROWS = (b'"step"', b'"epoch"', b'"reward"', b'"learning_rate"')
"""Keys in every row of a Trainer that learns from rewards."""
CHECKPOINT = re.compile(r"checkpoint-(\d+)")


def is_state(path: Path) -> bool:
    """Whether a file is a state: by its name, or because it begins like one, or like its list of rows."""
    if path.name == STATE_FILE:
        return True
    if path.suffix not in (".json", ".jsonl"):
        return False
    head = beginning(path)
    if path.suffix == ".jsonl" and head.lstrip().startswith(b"{"):
        first = head.partition(b"\n")[0]
        return all(mark in first for mark in _IN_ROWS) and b'"kind"' not in first
    if head.lstrip().startswith(b"["):
        return b'"step"' in head and any(mark in head for mark in (b'"loss"', b'"reward"', b'"train/reward"'))
    return path.suffix == ".json" and b'"log_history"' in head


def run_folder(path: Path) -> Path:
    """The folder of the run that a state belongs to: the parent of a checkpoint."""
    if path.name != STATE_FILE:
        # A state under another name may lie beside those of other runs.
        return path.with_suffix("")
    return path.parent.parent if CHECKPOINT.fullmatch(path.parent.name) else path.parent


def latest(paths: list[Path]) -> Path:
    """The state of the largest step among those of one run; one that lies beside the checkpoints is the last."""

    def order(path: Path) -> float:
        found = CHECKPOINT.fullmatch(path.parent.name)
        return float(found[1]) if found else float("inf")

    return max(paths, key=order)


def by_run(paths: Sequence[Path]) -> list[list[Path]]:
    """States of one folder by the run that they are of, the run of the largest step first.

    All states of a run begin with the same row; those of an earlier run into the same folder do not.
    """
    groups: dict[bytes, list[Path]] = {}
    for path in paths:
        groups.setdefault(_first_row(path), []).append(path)
    # A state that cannot be read is that of the run beside it.
    unread = groups.pop(b"", [])
    found = sorted(groups.values(), key=lambda group: str(latest(list(paths))) not in map(str, group))
    return [[*found[0], *unread], *found[1:]] if found else [unread]


def _first_row(path: Path) -> bytes:
    """The first row of a history, as it was written; nothing if the beginning of the file does not hold it."""
    found = re.search(rb'"log_history"\s*:\s*\[\s*(\{[^{}]*\})', beginning(path))
    return b"" if found is None else re.sub(rb"\s", b"", found[1])


def read_trainer_state(paths: Sequence[Path], name: str) -> RunLog:
    """Read the history of one run from the latest of its states that is whole.

    Raises:
        RecordError: none of them is a whole state.
    """
    remaining = list(paths)
    notes: list[Note] = []
    while True:
        path = latest(remaining)
        try:
            attempts, batch = _history(path)
        except RecordError as error:
            remaining.remove(path)
            if not remaining:
                raise
            message = f"{error.message}. An earlier state was read instead."
            notes.append(Note("log-damaged", "warning", message, {"file": str(path)}))
        else:
            notes += [note for one in attempts for note in one.notes]
            return RunLog(name, path, "trl", attempts, tuple(notes), device_batch=batch)


def _history(path: Path) -> tuple[tuple[Attempt, ...], int | None]:
    """The attempts, and `train_batch_size`, the batch of one process over all its GPUs; None if the file lacks it."""
    if path.suffix == ".jsonl" and read_text(path, longest=LONGEST_LINE)[0].lstrip().startswith("{"):
        rows, lines, notes = read_objects(path)
        return _attempts(path, rows, lines, notes), None
    try:
        text, notes = read_text(path, largest=LARGEST_DOCUMENT)
        state: Any = parse_json(text)
    except json.JSONDecodeError as error:
        raise RecordError(
            f"{path}:{error.lineno}: not JSON (column {error.colno}: {error.msg}): the file is damaged or was cut",
            "Copy it again, or read the state of an earlier checkpoint.",
        ) from error
    history = state.get("log_history") if isinstance(state, dict) else state
    if not isinstance(history, list) or not all(isinstance(row, dict) and "step" in numeric(row) for row in history):
        raise RecordError(
            f"{path} has no log_history, a list of entries with a step; accepted: the state that a Trainer saves",
            "Give a trainer_state.json of the Hugging Face Trainer.",
        )
    batch = state.get("train_batch_size") if isinstance(state, dict) else None
    whole = batch if isinstance(batch, int) and batch >= 1 else None
    entries = [f" entry {i + 1} of log_history" for i in range(len(history))]
    return _attempts(path, cast("list[dict[str, Any]]", history), entries, notes), whole


def _attempts(
    path: Path, history: Sequence[dict[str, Any]], lines: Sequence[int | str], notes: tuple[Note, ...]
) -> tuple[Attempt, ...]:
    values, damaged = numbers_of(path, history, lines, ("step",))
    rows = [row for row in values if "step" in row]
    steps = [row["step"] for row in rows]
    measured = [{tag: value for tag, value in row.items() if tag not in _NO_MEASUREMENTS} for row in rows]
    return attempts_from_rows(path, steps, measured, (*notes, *damaged))


STORE = LogStore("trl", is_state, run_folder, read_trainer_state, with_events=True, apart=by_run)
"""States of TRL's trainers, and of others that are built on the Hugging Face Trainer."""


ARGUMENTS_FILE = "training_args.bin"
_LARGEST = 1 << 20
_MAX_VALUES = 100_000
"""Plain values of the largest arguments that are read, those of a shared list or dictionary every time."""
_PLAIN = (str, int, float, bool, type(None))


class _Stub:
    """Stands for an object of a class that is not imported: its arguments and its state, nothing else."""

    args: tuple[object, ...] = ()
    state: object = None

    def __init__(self, *args: object) -> None:
        self.args = args

    def __setstate__(self, state: object) -> None:
        self.state = state

    # Sets, dictionaries and lists of other classes are filled by these.
    def append(self, item: object) -> None:
        """Ignore an item."""

    def extend(self, items: object) -> None:
        """Ignore items."""

    def __setitem__(self, key: object, value: object) -> None:
        """Ignore an item."""


class _Reader(pickle._Unpickler):  # pyright: ignore
    """An unpickler that knows no class and no function, in Python: that in C gives any memory that a file asks for."""

    def find_class(self, module: str, name: str) -> Any:
        # A class of its own for every name: a pickle may change the class that it got.
        return type(name.rpartition(".")[2] or "Stub", (_Stub,), {"__module__": module})

    def persistent_load(self, pid: object) -> None:
        """Leave out what lies in other files of the archive, such as tensors."""


def read_training_args(path: Path) -> dict[str, Any]:
    """Argument -> value, for the arguments that are plain values, lists or dictionaries of them.

    An object that was made of one plain value is that value, such as `"steps"` of an enumeration or the name of a
    device. Other objects are left out. The name of the arguments' class stands under `__class__`, and the number of
    processes, which Accelerate keeps beside the arguments, under `num_processes`.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            inside = next((one for one in archive.infolist() if one.filename.endswith("/data.pkl")), None)
            if inside is None or inside.file_size > _LARGEST:
                raise _refused(path, "it holds no pickle of arguments")
            state = _Reader(io.BytesIO(archive.read(inside))).load()
        values = getattr(state, "state", None)
        if not isinstance(values, dict):
            raise _refused(path, "it holds no object with a state")
        left = iter(range(_MAX_VALUES))
        found = {str(key): _plain(value, left) for key, value in cast("dict[object, object]", values).items()}
    except OSError as error:
        raise RecordError(f"{path} cannot be read: {error.strerror}", "Check the path and its permissions.") from error
    except RecordError:
        raise
    except Exception as error:  # a damaged pickle may fail with anything
        raise _refused(path, f"{type(error).__name__}: {error}") from error
    kept = {key: value for key, value in found.items() if value is not _OTHER}
    launch = getattr(values.get("distributed_state"), "state", None)
    if isinstance(launch, dict) and isinstance(number := launch.get("num_processes"), int):
        kept["num_processes"] = number
    return {"__class__": type(state).__name__, **kept}


_OTHER = object()


def _plain(value: object, left: Iterator[int]) -> object:
    """A value without stubs; `_OTHER` for an object that has no plain form."""
    if next(left, None) is None:
        raise ValueError(f"more than {_MAX_VALUES:,} values")
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, list | tuple):
        items = [_plain(item, left) for item in cast("list[object]", value)]
        return [item for item in items if item is not _OTHER]
    if isinstance(value, dict):
        pairs = {str(key): _plain(item, left) for key, item in cast("dict[object, object]", value).items()}
        return {key: item for key, item in pairs.items() if item is not _OTHER}
    if isinstance(value, _Stub) and len(value.args) == 1 and isinstance(value.args[0], _PLAIN):
        return value.args[0]
    return _OTHER


def _refused(path: Path, why: str) -> RecordError:
    return RecordError(
        f"{path} holds no arguments of a trainer ({why}); accepted: training_args.bin as the Hugging Face Trainer "
        "saves it",
        "Copy the file again, or give the values yourself.",
    )
