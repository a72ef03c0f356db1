"""JSON lines: one object per line, its keys the columns; a key may be absent from some lines.

Objects inside an object are columns of their own: `{"config": {"n": 8}, "eval": {"reward": 0.5}}` has `config.n` and
`eval/reward`.

Polars reads files in which every line is whole and every key keeps its type; all others are read line by line, so that
an error names its line.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from isocompute_sdk.errors import RecordError
from isocompute_sdk.files import parse_json
from isocompute_sdk.ingest.stores.packed import DAMAGED, LONGEST_LINE, open_bytes
from isocompute_sdk.ingest.tables.raw import (
    MOST_CELLS,
    MOST_COLUMNS,
    OnTruncated,
    RawTable,
    check_size,
    cut_off,
    damaged,
    read_text,
    truncated,
)
from isocompute_sdk.notes import Note

if TYPE_CHECKING:
    import polars as pl

Objects = tuple[list[dict[str, Any]], list[int], tuple[Note, ...]]
_KEY = re.compile(r'"([^"]*)"\s*:')
SETTINGS = ("config", "cfg", "args", "params", "hparams", "hyperparameters")
"""Keys of objects that hold settings; `columns.folded` leaves them out of names."""
SAMPLE_LINES = 1000
"""Lines at the beginning and at the end of a file that say which columns it has."""


def read_jsonl(path: Path, on_truncated: OnTruncated = "error") -> RawTable:
    """Read one JSONL file; blank lines are skipped.

    Raises:
        RecordError: a line that is not a JSON object (the last one is taken for cut off), or a table that is too large.
    """
    if holds_array(path):
        return _of_array(path)
    text, replaced = read_text(path, on_truncated, longest=LONGEST_LINE)
    plain = read_plain(text)
    if plain is not None:
        columns = {name: plain[name] for name in plain.columns}
        return RawTable(columns, lambda index: f"{path}:{index + 1}", replaced)
    found, lines, notes = _objects(path, text, on_truncated)
    columns = columns_of(found, path)
    return RawTable(columns, _locator(path, lines), (*replaced, *notes))


def holds_array(path: Path) -> bool:
    """Whether a file begins with a JSON array of objects, as tables that pandas writes as records do."""
    return _begins(path, rb"\s*\[\s*\{")


def holds_rows(path: Path) -> bool:
    """Whether a file begins with an array of objects, or with an object in a line of its own and a second one."""
    return _begins(path, rb"\s*(\[\s*\{|\{.*\}\s*\n\{)")


def _begins(path: Path, pattern: bytes) -> bool:
    try:
        with open_bytes(path) as file:
            return re.match(rb"(\xef\xbb\xbf)?" + pattern, file.read(_BEGINNING)) is not None
    except (OSError, *DAMAGED):
        return False


_BEGINNING = 2**16
"""Bytes of a file that are looked at."""


def _of_array(path: Path) -> RawTable:
    """The table in one JSON array of flat objects.

    Raises:
        RecordError: the file is no such array.
    """
    text, replaced = read_text(path)
    try:
        rows = parse_json(text)
    except ValueError as error:
        raise RecordError(f"{path}: not JSON: {error}", "Copy the file again, or write one object per line.") from error
    if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) for row in cast(list[Any], rows)):
        raise RecordError(
            f"{path}: received an array of something else; accepted: an array of objects, one per evaluation",
            'For example [{"n": 8, "step": 10, "avg@4": 0.5}].',
        )
    columns = columns_of(cast(list[dict[str, Any]], rows), path)
    return RawTable(columns, lambda index: f"{path}: entry {index + 1}", replaced)


def columns_of(rows: Sequence[Mapping[str, Any]], source: Path | str = "the rows") -> dict[str, list[Any]]:
    """Objects as columns; a key that is absent from an object is None there.

    Raises:
        RecordError: more columns or cells than are read.
    """
    flat = [_flat(row) for row in rows]
    names = dict.fromkeys(name for row in flat for name in row)
    check_size(source, len(names), len(rows))
    return {name: [row.get(name) for row in flat] for name in names}


def _flat(row: Mapping[str, Any], before: str = "", separator: str = "") -> dict[str, Any]:
    """An object without objects inside: settings by their path with dots, as Hydra writes them, others with slashes."""
    found: dict[str, Any] = {}
    for key, value in row.items():
        name = f"{before}{separator}{key}"
        if isinstance(value, dict) and value:
            inside = separator or ("." if key.lower() in SETTINGS else "/")
            found |= _flat(cast(dict[str, Any], value), name, inside)
        else:
            found[name] = value
    return found


def read_plain(text: str) -> pl.DataFrame | None:
    """A JSONL text as polars reads it; None unless polars is sure to read all of it."""
    import polars as pl

    height = text.count("\n") + (not text.endswith("\n"))
    # An escaped quote makes it impossible to count keys; a blank line shifts the numbers of those after it.
    if not text.startswith("{") or '\\"' in text or text.count("\n{") != height - 1:
        return None
    sample = "\n".join((*text.split("\n", SAMPLE_LINES)[:-1], *text.rsplit("\n", SAMPLE_LINES)[1:])) or text
    if _too_large(sample, height):
        return None
    raw = text.encode()
    try:
        schema = pl.read_ndjson(sample.encode(), infer_schema_length=None).schema
        frame = pl.read_ndjson(raw, schema=schema)
        if _keys(text) != _cells(frame) + _nulls(text):
            if _too_large(text, height):
                return None
            frame = pl.read_ndjson(raw, infer_schema_length=None)
    except pl.exceptions.PolarsError:
        return None
    nested = any(dtype.is_nested() for dtype in frame.dtypes)
    return frame if frame.height == height and not nested and _keys(text) == _cells(frame) + _nulls(text) else None


def _too_large(text: str, rows: int) -> bool:
    """Whether a table with the keys of this text holds more than is read; polars would take all memory for it."""
    names = len(set(_KEY.findall(text)))
    return names > MOST_COLUMNS or names * rows > MOST_CELLS


def _keys(text: str) -> int:
    return text.count('":') + text.count('" :')


def _nulls(text: str) -> int:
    return text.count('":null') + text.count('": null')


def _cells(frame: pl.DataFrame) -> int:
    return sum(len(series) - series.null_count() for series in frame.iter_columns())


def read_objects(path: Path, on_truncated: OnTruncated = "error") -> Objects:
    """The objects of a JSONL file, the line of each, and notes on what was left out.

    Raises:
        RecordError: as `read_jsonl`.
    """
    text, replaced = read_text(path, on_truncated, longest=LONGEST_LINE)
    rows, lines, notes = _objects(path, text, on_truncated)
    return rows, lines, (*replaced, *notes)


def first_object(path: Path, longest: int) -> Mapping[str, Any]:
    """The object in the first line of a file, which identifies its format; empty without one.

    Args:
        path: any file.
        longest: bytes that such a line has at most.
    """
    try:
        with open_bytes(path) as file:
            first = parse_json(file.readline(longest).decode("utf-8-sig", errors="replace"))
    except (OSError, ValueError, *DAMAGED):
        return {}
    return cast(dict[str, Any], first) if isinstance(first, dict) else {}


def _objects(path: Path, text: str, on_truncated: OnTruncated) -> Objects:
    # Only "\n" ends a line: JSON strings may hold other line separators as they are.
    texts = [(i + 1, line) for i, line in enumerate(text.split("\n")) if line.strip()]
    if not texts:
        raise RecordError(f"{path} is empty", "Check that the run has logged an evaluation.")
    rows: list[dict[str, Any]] = []
    lines: list[int] = []
    broken: list[int] = []
    for number, line in texts:
        try:
            row = _object(path, number, line)
        except RecordError as error:
            if on_truncated == "error":
                if number == texts[-1][0] and isinstance(error.__cause__, json.JSONDecodeError):
                    raise truncated(path, number) from error
                raise
            broken.append(number)
        else:
            rows.append(row)
            lines.append(number)
    return rows, lines, _losses(path, broken, texts[-1][0])


def _object(path: Path, number: int, line: str) -> dict[str, Any]:
    try:
        row = parse_json(line)
    except json.JSONDecodeError as error:
        raise RecordError(
            f"{path}:{number}: not JSON (column {error.colno}: {error.msg}); accepted: one object per line",
            "Correct or remove the line.",
        ) from error
    if not isinstance(row, dict):
        raise RecordError(
            f"{path}:{number}: received {line.strip()[:60]!r}; accepted: one JSON object per line",
            'Write every evaluation as its own line, e.g. {"n": 8, "step": 10, "avg@4": 0.5}.',
        )
    return cast(dict[str, Any], row)


def _losses(path: Path, broken: Sequence[int], last: int) -> tuple[Note, ...]:
    inside = [number for number in broken if number != last]
    notes = [damaged(path, inside, "not JSON objects")] if inside else []
    return (*notes, *([cut_off(path, last)] if last in broken else []))


def _locator(path: Path, lines: Sequence[int]) -> Callable[[int], str]:
    return lambda index: f"{path}:{lines[index]}"
