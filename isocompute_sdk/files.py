"""Files: written so that a kill leaves the old one or the new one; read only where regular and of bounded size."""

from __future__ import annotations

import errno
import json
import os
import stat
import tempfile
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from isocompute_sdk.errors import IsoComputeError

T = TypeVar("T")

LARGEST_DOCUMENT = 64 * 2**20
"""Bytes of the largest saved document that is read."""

_SPECIAL = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def check_path(path: object) -> Path:
    """A path that can name a file.

    Raises:
        IsoComputeError: something that is no path, or an empty one.
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
        raise error(wrong.message, wrong.hint) from None
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
    """Turn what the system refuses while a result is saved at `path` into an error of this package.

    Raises:
        IsoComputeError: no path, a folder that may not be written to, no room, and the like.
    """
    target = check_path(path)
    try:
        yield target
    except OSError as error:
        raise IsoComputeError(
            f"{str(target)[:200]} cannot be written: {error.strerror or error}",
            "Give a file in a folder that may be written to and has room; what was there is as it was.",
        ) from error


def write_text(path: str | Path, text: str, *, executable: bool = False) -> Path:
    """Replace the file at `path` by `text` (UTF-8) in one step; parent folders are created."""

    def write(temporary: Path) -> None:
        temporary.write_text(text, encoding="utf-8")

    return write_with(path, write, executable=executable)


def write_with(path: str | Path, write: Callable[[Path], None], *, executable: bool = False) -> Path:
    """Let `write` fill a temporary file beside `path`, then move it into place in one step.

    A link is followed. What cannot be replaced by a file, such as a pipe or /dev/null, is written to as it is.
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
    """Whether a path names a device, a pipe, or a file that is open, as /dev/stdout does."""
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


def write_json(path: str | Path, payload: Mapping[str, Any]) -> Path:
    """Write one JSON document. Floats keep every bit; NaN and infinities are refused."""
    return write_text(path, json.dumps(payload, indent=1, allow_nan=False) + "\n")


def save_json(path: object, payload: Mapping[str, Any]) -> Path:
    """`write_json` of a result that a user asked for, where what the system refuses is told as in `saving`."""
    with saving(path) as target:
        return write_json(target, payload)


def parse_json(text: str | bytes) -> Any:
    """What a JSON text holds.

    Raises:
        ValueError: it is not JSON, a `json.JSONDecodeError` where it is text at all. What is nested too deep is none
            either, nor is a number of thousands of digits.
    """
    try:
        return json.loads(text)
    except (json.JSONDecodeError, UnicodeDecodeError):
        raise
    except (RecursionError, ValueError) as error:
        why = "nested too deep" if isinstance(error, RecursionError) else "a number with too many digits"
        raise json.JSONDecodeError(why, "", 0) from error


def read_json(path: str | Path, *, kind: str, schema_version: int) -> dict[str, Any]:
    """Read a document written by `write_json` and check that it is a `kind` of a version known here.

    Raises:
        IsoComputeError: the file is missing, is not JSON, holds something else, or has another version.
    """
    try:
        raw = parse_json(read_text(path, what=f"a saved {kind} (JSON)"))
    except json.JSONDecodeError as error:
        raise IsoComputeError(
            f"{path} is not valid JSON (line {error.lineno}: {error.msg})",
            f"Give the path of a saved {kind}; one that was cut off while copying has to be saved again.",
        ) from error
    return _check_document(raw, str(path), f"Give a file that a {kind} was saved to.", kind, schema_version)


def load_json(path: str | Path, build: Callable[[dict[str, Any]], T], *, kind: str, schema_version: int) -> T:
    """Read a document with `read_json` and build what it holds.

    Raises:
        IsoComputeError: as `read_json`, or a document with parts that are missing or damaged.
    """
    return _build(read_json(path, kind=kind, schema_version=schema_version), build, str(path), kind)


def build_saved(raw: object, build: Callable[[dict[str, Any]], T], *, kind: str, schema_version: int) -> T:
    """Build what a document in memory holds, as `load_json` does from a file.

    Raises:
        IsoComputeError: not a document of that kind and version, or one with parts that are missing or damaged.
    """
    hint = f"Give what to_dict() of a {kind} returned."
    return _build(_check_document(raw, "the mapping", hint, kind, schema_version), build, "the mapping", kind)


def _check_document(raw: Any, where: str, hint: str, kind: str, schema_version: int) -> dict[str, Any]:
    found = raw.get("kind") if isinstance(raw, Mapping) else type(raw).__name__
    if found != kind:
        raise IsoComputeError(f"{where} holds {found!r}, not a saved {kind}", hint)
    version = raw.get("schema_version")
    if version != schema_version:
        raise IsoComputeError(
            f"{where} has schema_version {version!r}; this release reads {schema_version}",
            "Write it again with this release, or read it with the release that wrote it.",
        )
    return dict(raw)


def _build(raw: dict[str, Any], build: Callable[[dict[str, Any]], T], where: str, kind: str) -> T:
    try:
        return build(raw)
    except IsoComputeError:
        raise
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise IsoComputeError(
            f"{where} is a saved {kind} with parts missing or damaged: {type(error).__name__} {error}",
            f"Save the {kind} again.",
        ) from error
