"""`training_args.bin`: the arguments that a trainer of Hugging Face saved with torch, read without torch.

The file is a zip archive with one pickle, the state of a `TrainingArguments`. Nothing of it is imported or run: every
class that the pickle names becomes an empty class of this module, and no function is called.
"""

from __future__ import annotations

import io
import pickle
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from isocompute_sdk.errors import RecordError

FILE = "training_args.bin"
_LARGEST = 1 << 20
_MOST_VALUES = 100_000
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

    Raises:
        RecordError: the file is no archive of torch, is damaged, or holds no arguments.
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
        left = iter(range(_MOST_VALUES))
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
    """A value without stubs; `_OTHER` for an object that has no plain form.

    Raises:
        ValueError: more values than are left.
    """
    if next(left, None) is None:
        raise ValueError(f"more than {_MOST_VALUES:,} values")
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
