"""Files: written so that a kill leaves the old one or the new one; read only where regular and of bounded size."""

from __future__ import annotations

import errno
import json
import os
import stat
import tempfile
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from isocompute_sdk.errors import IsoComputeError

LARGEST_DOCUMENT = 64 * 2**20
"""Bytes of the largest saved document that is read."""

MAX_NODES, DEEPEST = 100_000, 100
"""Values of the largest YAML text that is read, and levels of the deepest."""

_SPECIAL = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def check_path(path: object) -> Path:
    """A path as `Path`.

    Raises:
        IsoComputeError: not a path, or an empty one.
    """
    if not isinstance(path, str | os.PathLike) or path == "" or "\0" in os.fsdecode(path):
        raise IsoComputeError(
            f"path: received {path!r:.60}; accepted: the path of a file", "Give it as text, such as 'plan.json'."
        )
    return Path(os.fsdecode(path))


def check_input(
    path: object, *, what: str, largest: int | None = None, error: type[IsoComputeError] = IsoComputeError
) -> Path:
    """The path of a regular file of at most `largest` bytes; nothing is opened, so nothing can block.

    Pipes and devices are refused, also as `/dev/stdin` or `<(...)`: reading from them may wait forever.

    Args:
        path: as the user gave it.
        what: the expected content for messages, such as `a saved plan (JSON)`.
        largest: size limit in bytes; None for no limit.
        error: class of the error to raise.

    Raises:
        IsoComputeError: of the class `error`: not a path, no such file, not a regular file, or too large.
    """
    try:
        target = check_path(path)
    except IsoComputeError as wrong:
        raise wrong.retyped(error, wrong.message) from None
    try:
        _check_status(target.stat(), target, what, largest, error)
    except OSError as refused:
        raise _unreadable(target, what, refused, error) from refused
    return target


@contextmanager
def open_input(
    path: object, *, what: str, largest: int | None = None, error: type[IsoComputeError] = IsoComputeError
) -> Generator[BinaryIO]:
    """A file that `check_input` accepts, opened for reading bytes; arguments and errors as there."""
    target = check_input(path, what=what, largest=largest, error=error)
    try:
        # O_NONBLOCK: the file may have been replaced by a pipe since it was checked.
        descriptor = os.open(target, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as refused:
        raise _unreadable(target, what, refused, error) from refused
    with os.fdopen(descriptor, "rb") as stream:
        _check_status(os.fstat(descriptor), target, what, largest, error)
        yield stream


def read_bytes(
    path: object, *, what: str, largest: int = LARGEST_DOCUMENT, error: type[IsoComputeError] = IsoComputeError
) -> bytes:
    """The content of a file that `check_input` accepts; arguments and errors as there."""
    with open_input(path, what=what, largest=largest, error=error) as stream:
        try:
            content = stream.read(largest + 1)
        except OSError as refused:
            raise _unreadable(check_path(path), what, refused, error) from refused
    if len(content) > largest:
        raise _too_large(check_path(path), len(content), what, largest, error)
    return content


def read_text(
    path: object, *, what: str, largest: int = LARGEST_DOCUMENT, error: type[IsoComputeError] = IsoComputeError
) -> str:
    """The UTF-8 text of a file that `check_input` accepts, without a byte order mark.

    Raises:
        IsoComputeError: of the class `error`: as `check_input`, or not UTF-8.
    """
    try:
        return read_bytes(path, what=what, largest=largest, error=error).decode("utf-8-sig")
    except UnicodeDecodeError as wrong:
        raise error(f"{path} is not UTF-8 text: {wrong}", f"Give {what}, saved as UTF-8.") from wrong


def _check_status(
    status: os.stat_result, path: Path, what: str, largest: int | None, error: type[IsoComputeError]
) -> None:
    if not stat.S_ISREG(status.st_mode):
        found = _SPECIAL.get(stat.S_IFMT(status.st_mode), "a special file")
        raise error(
            f"{str(path)[:200]} is {found}; accepted: {what}, in a regular file",
            "Save the content to a file first and give that file."
            if found != "a folder"
            else "Give a file in that folder.",
        )
    if largest is not None and status.st_size > largest:
        raise _too_large(path, status.st_size, what, largest, error)


def _too_large(path: Path, size: int, what: str, largest: int, error: type[IsoComputeError]) -> IsoComputeError:
    return error(
        f"{path} has {size:,} bytes; accepted: {what} of at most {largest:,} bytes",
        "Check that this is the right file.",
    )


def _unreadable(path: Path, what: str, refused: OSError, error: type[IsoComputeError]) -> IsoComputeError:
    if isinstance(refused, FileNotFoundError):
        return error(f"no such file: {str(path)[:200]}", f"Give the path of {what}.")
    return error(f"{str(path)[:200]} cannot be read: {refused.strerror or refused}", f"Give the path of {what}.")


@contextmanager
def saving(path: object) -> Generator[Path]:
    """Turn system errors while a result is saved at `path` into errors of this package.

    Raises:
        IsoComputeError: not a path, no permission, no room, and the like.
    """
    target = check_path(path)
    try:
        yield target
    except OSError as error:
        raise IsoComputeError(
            f"{str(target)[:200]} cannot be written: {error.strerror or error}",
            "Give a file in a folder with write permission and room; an existing file is unchanged.",
        ) from error


def write_text(path: str | Path, text: str, *, executable: bool = False) -> Path:
    """Replace the file at `path` by `text` (UTF-8) in one step; parent folders are created."""

    def write(temporary: Path) -> None:
        temporary.write_text(text, encoding="utf-8")

    return write_with(path, write, executable=executable)


def write_with(path: str | Path, write: Callable[[Path], None], *, executable: bool = False) -> Path:
    """Let `write` fill a temporary file beside `path`, then move it into place in one step.

    Links are followed. Pipes and devices such as /dev/null are written to directly.
    """
    if _is_stream(Path(path)):
        return _write_through(Path(path), write)
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    target.parent.mkdir(parents=True, exist_ok=True)
    # The suffix is kept: writers such as matplotlib choose the format by it.
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.stem}.", suffix=target.suffix)
    os.close(handle)
    temporary = Path(name)
    try:
        write(temporary)
        with temporary.open("rb") as written:
            os.fsync(written.fileno())
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod((0o777 if executable else 0o666) & ~umask)
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return Path(path)


def _is_stream(path: Path) -> bool:
    """Whether a path names a device, a pipe, or an open file, as /dev/stdout does."""
    if path.is_dir():
        return False
    folder = os.path.realpath(path.parent)
    of_open_files = folder == "/dev" or (folder.startswith("/proc/") and folder.endswith("/fd"))
    return (path.exists() and not path.is_file()) or (of_open_files and path.is_symlink())


def _write_through(path: Path, write: Callable[[Path], None]) -> Path:
    with tempfile.TemporaryDirectory() as folder:
        temporary = Path(folder) / path.name
        write(temporary)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_APPEND), "wb") as stream:
            stream.write(temporary.read_bytes())
    return path


def parse_json(text: str | bytes) -> Any:
    """The value of a JSON text.

    Raises:
        json.JSONDecodeError: not JSON, nested too deep, a key twice in one object, or a number of thousands of digits.
        UnicodeDecodeError: bytes that are not text.
    """
    try:
        return _decode(text if isinstance(text, str) else text.decode(json.detect_encoding(text)))
    except (json.JSONDecodeError, UnicodeDecodeError):
        raise
    except (RecursionError, ValueError) as error:
        why = "nested too deep" if isinstance(error, RecursionError) else "a number with too many digits"
        raise json.JSONDecodeError(why, "", 0) from error


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        ((twice, _),) = Counter(key for key, _ in pairs).most_common(1)
        raise json.JSONDecodeError(f"key {twice!r} appears twice in one object", "", 0)
    return found


_decode = json.JSONDecoder(object_pairs_hook=_object).decode


def parse_yaml(text: str) -> Any:
    """The value of a YAML text of at most `MAX_NODES` values, those behind an alias counted every time.

    Raises:
        ValueError: not YAML, more values, nested too deep, or an alias inside of what it names.
    """
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError
    from ruamel.yaml.events import AliasEvent, CollectionEndEvent, CollectionStartEvent, NodeEvent

    yaml: Any = YAML(typ="safe", pure=True)
    next_event: Callable[[], Any] = yaml.parser.get_event
    opened: list[tuple[str | None, int]] = []
    sizes: dict[str | None, int] = {}
    nodes = 0

    def counted() -> Any:
        nonlocal nodes
        event = next_event()
        if isinstance(event, CollectionEndEvent):
            anchor, before = opened.pop()
            sizes[anchor] = nodes - before
        elif isinstance(event, NodeEvent):
            nodes += sizes.get(event.anchor, MAX_NODES) if isinstance(event, AliasEvent) else 1
            if isinstance(event, CollectionStartEvent):
                opened.append((event.anchor, nodes - 1))
                sizes.pop(event.anchor, None)
            elif not isinstance(event, AliasEvent):
                sizes[event.anchor] = 1
        if nodes > MAX_NODES or len(opened) > DEEPEST:
            raise ValueError(f"more than {MAX_NODES:,} values, those behind aliases included, or nested too deep")
        return event

    yaml.parser.get_event = counted
    yaml.composer.warn_double_anchors = False
    try:
        return yaml.load(text)
    except YAMLError as error:
        raise ValueError(str(error)) from error
