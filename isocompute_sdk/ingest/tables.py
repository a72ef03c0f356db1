"""Tables as they stand in files (CSV, JSON lines, Parquet): columns, and where rows stood.

Cells of CSV are kept as text until their column is known, so that run names such as `007` survive and an error can
quote what the file says. Rows are split one by one, so that an error names its line. What is broken, as a line that was
cut off, is left out with a note. The size of every file, line and table is bounded.
"""

from __future__ import annotations

import codecs
import csv
import io
import json
import re
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Literal, cast

from isocompute_sdk.errors import RecordError
from isocompute_sdk.files import check_input, parse_json
from isocompute_sdk.notes import Note, Severity
from isocompute_sdk.phrases import counted, listed
from isocompute_sdk.records.columns import to_series

TABLE_SUFFIXES: dict[str, str] = {
    ".csv": "csv",
    ".tsv": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
}
"""Ending -> format of a table."""
SEALED = (".gz", ".bz2", ".xz", ".zst", ".zip", ".tar", ".tar.gz", ".tgz", ".7z", ".xlsx", ".xls", ".ods")
"""Endings of what is packed in a way that is not read, of archives and of spreadsheets."""
LARGEST_TEXT = 512 * 2**20
"""Bytes of the largest table or log that is read: about five million evaluations."""
LONGEST_LINE = 16 * 2**20
"""Bytes that one line of a table or a log may have."""
LARGEST_CONFIG = 8 * 2**20
"""Bytes of the largest saved configuration that is looked into."""
MAX_COLUMNS = 10_000
"""Columns of the widest table that is read; a chart of W&B has three for every run."""
MAX_CELLS = 50_000_000
"""Cells of the largest table that is read, empty ones included: all of it is held in memory."""
SETTINGS = ("config", "cfg", "args", "params", "hparams", "hyperparameters")
"""Keys of objects that hold settings; `columns.folded` leaves them out of names."""
MIN_ROWS_TO_JUDGE_LENGTH = 8
SHOWN = 20
"""Column names that an error lists."""
_BEGINNING = 2**16
"""Bytes of a file that are looked at."""
_FIRST_LINES = 10


def is_sealed(path: Path) -> bool:
    """Whether a file is packed in a way that is not read, an archive or a spreadsheet."""
    return path.name.lower().endswith(SEALED)


@contextmanager
def open_bytes(path: Path, largest: int | None = None) -> Generator[BinaryIO]:
    """A regular file for reading bytes.

    Raises:
        RecordError: a pipe or a device, no such file, one of more than `largest` bytes, or one that cannot be read.
    """
    check_input(path, what="a table or a log", largest=largest, error=RecordError)
    try:
        with path.open("rb") as file:
            yield file
    except OSError as error:
        raise RecordError(f"{path} cannot be read: {error.strerror}", "Check the path and its permissions.") from error


@dataclass(frozen=True)
class RawTable:
    """A table as it stands in a file."""

    columns: Mapping[str, Any]
    """Name in the file -> one entry per row."""
    locate: Callable[[int], str]
    """Row index -> file and line."""
    notes: tuple[Note, ...] = ()
    """What of the file could not be read."""


def cut_off(path: Path, line: int) -> Note:
    """Says that a file ends inside a line, which was left out."""
    message = (
        f"{path}:{line}: the file ends inside this line: the run is still writing or was killed. It is left out and "
        f"the {line - 1:,} lines before it are kept."
    )
    return Note("log-damaged", "info", message, {"file": str(path), "line": line})


def damaged(path: Path, places: Sequence[tuple[int | str, str]], severity: Severity = "warning") -> tuple[Note, ...]:
    """Says what of a file makes no sense and was left out: its lines, or their names, each with a sentence."""
    if not places:
        return ()
    line, what = places[0]
    more = f", and {counted(len(places) - 1, 'more such place')}" if len(places) > 1 else ""
    message = f"{path}:{line}: {what}{more}; the rest is kept. Copy the file again if you can."
    return (Note("log-damaged", severity, message, {"file": str(path), "line": line, "places": len(places)}),)


@dataclass
class Damage:
    """What was met on the way through a file that is a chain of records."""

    broken: list[int] = field(default_factory=list[int])
    """The bytes at which records begin that are left out, those behind which may be whole."""
    ending: Literal["", "cut", "damaged"] = ""
    """`cut` if the file ends inside a record, `damaged` if nothing can be read from there on, else empty."""
    offset: int = 0
    """The byte at which it does."""
    size: int = 0
    """Bytes of the file."""

    def ends(self, ending: Literal["cut", "damaged"], offset: int, size: int) -> None:
        """Nothing can be read from `offset` on."""
        self.ending, self.offset, self.size = ending, offset, size

    def notes(self, path: Path, kept: str) -> Iterator[Note]:
        """On what is left out of a file of which `kept` was read, in words."""
        if self.broken:
            message = (
                f"{path}: {len(self.broken)} records are damaged, the first at byte {self.broken[0]:,}, and are left "
                f"out; {kept} are kept. Copy the file again if you can."
            )
            yield Note("log-damaged", "warning", message, {"file": str(path), "records": len(self.broken)})
        if self.ending:
            cut = self.ending == "cut"
            why = "ends inside a record (the run is still writing or was killed)" if cut else "is damaged"
            message = f"{path} {why} at byte {self.offset:,} of {self.size:,}; {kept} before it are kept."
            data = {"file": str(path), "offset": self.offset, "size": self.size}
            yield Note("log-damaged", "info" if cut else "warning", message, data)


def check_size(path: Path | str, columns: int, rows: int) -> None:
    """Raise on a table with more columns or cells than are read."""
    if columns > MAX_COLUMNS:
        raise RecordError(
            f"{path} has {columns:,} columns; accepted: at most {MAX_COLUMNS:,}",
            "Keep the columns of steps, configuration and metrics, or give one row per metric (columns metric, value).",
        )
    if columns * rows > MAX_CELLS:
        raise RecordError(
            f"{path} has {rows:,} rows of {columns:,} columns; accepted: at most {MAX_CELLS:,} cells",
            "Split the file, or leave out columns that are not metrics.",
        )


def read_text(path: Path, *, largest: int | None = None, longest: int | None = None) -> tuple[str, tuple[Note, ...]]:
    """The text of a file in UTF-8, or in UTF-16 with its mark; what is not text is replaced, with a note.

    Args:
        path: a file.
        largest: bytes of the largest file that is read; None: `LARGEST_TEXT`.
        longest: bytes of the longest line; None for any. Lines up to twice as long may pass.
    """
    largest = LARGEST_TEXT if largest is None else largest
    content, step = bytearray(), longest or largest
    with open_bytes(path, largest) as file:
        while len(content) <= largest and (part := file.read(step)):
            if len(part) == longest and b"\n" not in part:
                # A line of twice that length covers a whole piece without a line end.
                line = content.count(b"\n") + 1
                raise RecordError(
                    f"{path}:{line}: this line has more than {longest:,} bytes; accepted: at most that many",
                    "Write one row per line; check that this is a table at all.",
                )
            content += part
    if len(content) > largest:
        raise RecordError(
            f"{path} holds more than {largest:,} bytes of text; accepted: at most that many",
            "Check that this is the right file; split a larger table, or leave out columns that are not metrics.",
        )
    encoding = "utf-16" if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "utf-8-sig"
    text = content.decode(encoding, errors="replace")
    place = min((at for at in map(text.find, "\0\ufffd") if at >= 0), default=-1)
    if place < 0:
        return text, ()
    note = _not_text(path, text.count("\n", 0, place) + 1)
    return without_zeros(text), (note,)


def without_zeros(text: str) -> str:
    """Text without the zeros that a crash left, which hide what stood there: digits beside them are no number."""
    return re.sub(r"(?<=[\d.])\0+|\0+(?=[\d.])", "\ufffd", text).replace("\0", "")


def _not_text(path: Path, line: int) -> Note:
    message = (
        f"{path}:{line}: bytes that are not UTF-8 text were replaced or left out, here and perhaps further down, so "
        "that names may be wrong. Save the file as UTF-8."
    )
    return Note("text-not-utf8", "warning", message, {"file": str(path), "line": line})


def read_table(path: Path, kind: str) -> RawTable:
    """Read a table of one of the formats of `TABLE_SUFFIXES`.

    Raises:
        RecordError: with file and line, wherever the content cannot be read.
    """
    if kind == "parquet":
        return read_parquet(path)
    return read_jsonl(path) if kind == "jsonl" else read_csv(path)


def read_parquet(path: Path) -> RawTable:
    """Read one Parquet file."""
    import polars as pl

    check_input(path, what="a Parquet file", error=RecordError)
    try:
        rows: int = pl.scan_parquet(path).select(pl.len()).collect().item()
        check_size(path, len(pl.read_parquet_schema(path)), rows)
        frame = pl.read_parquet(path)
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
        raise RecordError(
            f"{path} is not a whole Parquet file: {error}",
            "It may have been cut while it was written or copied: copy it again.",
        ) from error
    return RawTable(
        {name: frame[name] for name in frame.columns}, lambda index: f"{path}: row {index + 1} (index {index})"
    )


def read_csv(path: Path) -> RawTable:
    """Read one CSV file; a column without a name (an index that was written along) is left out."""
    text, replaced = read_text(path, longest=LONGEST_LINE)
    if not text.strip():
        raise RecordError(f"{path} is empty", "Check that the run has logged an evaluation.")
    header = text.lstrip("\r\n").partition("\n")[0]
    check_size(path, header.count(_delimiter(header)) + 1, text.count("\n"))
    rows, lines, broken = _split(path, text)
    header = [name.strip() for name in rows[0]] if rows else []
    _check_header(path, header, lines)
    rows, lines = rows[1:], lines[1:]
    if broken is None and rows and _is_cut(text, header, rows):
        rows.pop()
        broken = lines.pop()
    uneven = [line for row, line in zip(rows, lines, strict=True) if len(row) != len(header)]
    whole = f"this line is left out (not {len(header)} cells, as in the header)"
    notes = [*replaced, *([] if broken is None else [cut_off(path, broken)])]
    notes += damaged(path, [(line, whole) for line in uneven])
    if uneven:
        kept = [i for i, row in enumerate(rows) if len(row) == len(header)]
        if len(kept) < len(uneven):
            raise RecordError(
                f"{path}:{uneven[0]}: {len(uneven):,} of {len(rows):,} rows have more or fewer cells than the header, "
                f"which has {len(header)}; accepted: as many cells in every row",
                "The header may be damaged: copy the file again.",
            )
        rows, lines = [rows[i] for i in kept], [lines[i] for i in kept]
    cells = list(zip(*rows, strict=True)) if rows else [()] * len(header)
    columns = {name: to_series(name, list(column)) for name, column in zip(header, cells, strict=True) if name}
    return RawTable(columns, lambda index: f"{path}:{lines[index]}", tuple(notes))


def _delimiter(header: str) -> str:
    return max(",;\t", key=header.count)


def _split(path: Path, text: str) -> tuple[list[list[str]], list[int], int | None]:
    """Rows, the line each ends on, and the line of a last row that is cut off inside a quote."""
    first = text.lstrip("\r\n").split("\n", 1)[0]
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=_delimiter(first), strict=True)
    rows: list[list[str]] = []
    lines: list[int] = []
    started = 1
    try:
        for row in reader:
            if row:
                rows.append(row)
                lines.append(reader.line_num)
            started = reader.line_num + 1
    except csv.Error as error:
        # A quote left open further up swallows whole lines: that is damage, not a cut.
        if started == reader.line_num and str(error) == "unexpected end of data":
            return rows, lines, started
        raise RecordError(
            f"{path}:{started}: a cell or quote that starts here is malformed: {error}",
            'Write a quote inside a cell as "", and close every quote.',
        ) from error
    return rows, lines, None


def _check_header(path: Path, header: list[str], lines: Sequence[int]) -> None:
    if not header or all(_is_number(name) for name in header):
        raise RecordError(
            f"{path}:{lines[0] if lines else 1}: received {listed(header, SHOWN)!r}; accepted: "
            "column names in the first line",
            "Add a header line, e.g. n,C,avg@4.",
        )
    twice = sorted(name for name, count in Counter(header).items() if name and count > 1)
    if twice:
        raise RecordError(f"{path}:{lines[0]}: columns {listed(twice, SHOWN)} appear twice", "Rename or remove one.")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _is_cut(text: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
    """Whether the last row was cut off: it has no line end, and too few cells or the shortest last cell of all.

    Many programs end a file without a line end, so that alone proves nothing.
    """
    if text.endswith(("\n", "\r")):
        return False
    others = [len(row[-1]) for row in rows[:-1]]
    shorter = len(others) >= MIN_ROWS_TO_JUDGE_LENGTH and len(rows[-1][-1]) < min(others)
    return len(rows[-1]) < len(header) or shorter


def read_jsonl(path: Path) -> RawTable:
    """Read one JSONL file, or a JSON array of objects; blank lines are skipped.

    Objects inside an object are columns of their own: `{"config": {"n": 8}, "eval": {"reward": 0.5}}` has `config.n`
    and `eval/reward`.

    Raises:
        RecordError: no line is a JSON object, or the table is too large.
    """
    if _begins(path, rb"\s*\[\s*\{"):
        return _of_array(path)
    rows, lines, notes = read_objects(path)
    return RawTable(columns_of(rows, path), lambda index: f"{path}:{lines[index]}", notes)


def holds_rows(path: Path) -> bool:
    """Whether a file begins with an array of objects, or with an object in a line of its own and a second one."""
    return _begins(path, rb"\s*(\[\s*\{|\{.*\}\s*\n\{)")


def held_in(path: Path) -> str:
    """What a file of JSON holds that is no table, in words."""
    try:
        found = parse_json(read_text(path, largest=LARGEST_CONFIG)[0])
    except (RecordError, ValueError):
        return "no JSON"
    named = cast("dict[str, Any]", found) if isinstance(found, dict) else {}
    if {"kind", "schema_version"} <= named.keys():
        return f"a saved {named['kind']} of isocompute"
    keys = listed([*named], 3) if named else ""
    return f"one object, with the keys {keys}," if keys else "no objects"


def _begins(path: Path, pattern: bytes) -> bool:
    return re.match(rb"(\xef\xbb\xbf)?" + pattern, beginning(path)) is not None


def beginning(path: Path) -> bytes:
    """The first bytes of a file; none of one that cannot be read."""
    with suppress(RecordError), open_bytes(path) as file:
        return file.read(_BEGINNING)
    return b""


def _of_array(path: Path) -> RawTable:
    """The table in one JSON array of flat objects."""
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


def read_objects(path: Path) -> tuple[list[dict[str, Any]], list[int], tuple[Note, ...]]:
    """The objects of a JSONL file, the line of each, and notes on what was left out."""
    text, replaced = read_text(path, longest=LONGEST_LINE)
    # Only "\n" ends a line: JSON strings may hold other line separators as they are.
    texts = [(i, line) for i, line in enumerate(text.split("\n"), start=1) if line.strip()]
    if not texts:
        raise RecordError(f"{path} is empty", "Check that the run has logged an evaluation.")
    rows: list[dict[str, Any]] = []
    lines: list[int] = []
    broken: list[tuple[int, str]] = []
    last = texts[-1][0]
    for number, line in texts:
        try:
            rows.append(_object(path, number, line))
            lines.append(number)
        except RecordError as error:
            if number == last and not rows:
                raise
            why = error.message.removeprefix(f"{path}:{number}: ").partition(";")[0]
            broken.append((number, f"this line is left out ({why})"))
    inside = [one for one in broken if one[0] != last]
    ending = [cut_off(path, last)] if len(inside) < len(broken) else []
    return rows, lines, (*replaced, *damaged(path, inside), *ending)


def first_objects(path: Path, longest: int = 1 << 20) -> list[Mapping[str, Any]]:
    """The first two objects among the first lines of a file: one identifies its format where the other is damaged."""
    found: list[Mapping[str, Any]] = []
    with suppress(RecordError), open_bytes(path) as file:
        for _ in range(_FIRST_LINES):
            with suppress(ValueError):
                row = parse_json(file.readline(longest).decode("utf-8-sig", errors="replace"))
                found += [cast(dict[str, Any], row)] if isinstance(row, dict) else []
            if len(found) == 2:
                break
    return found


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
