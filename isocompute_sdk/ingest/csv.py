"""CSV files: comma, semicolon or tab between cells, names in the first line.

Every cell is kept as text until its column is known, so that run names such as `007` survive and an error
can quote what the file says.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from pathlib import Path

from isocompute_sdk.errors import RecordError
from isocompute_sdk.ingest.raw import TRUNCATED_HINT, OnTruncated, RawTable, read_text

MIN_ROWS_TO_JUDGE_LENGTH = 8


def read_csv(path: Path, on_truncated: OnTruncated = "error") -> RawTable:
    """Read one CSV file; a column without a name (an index that was written along) is left out.

    Raises:
        RecordError: no header, a line with too few or too many cells, a file that ends inside a line.
    """
    text = read_text(path)
    if not text.strip():
        raise RecordError(f"{path} is empty", "Check that the run has logged an evaluation.")
    rows, lines, broken = _split(path, text)
    header = [name.strip() for name in rows[0]] if rows else []
    _check_header(path, header, lines)
    rows, lines = rows[1:], lines[1:]
    if broken is None and rows:
        told = _cut_tail(text, header, rows)
        if told is not None:
            rows.pop()
            broken = (lines.pop(), told)
    if broken is not None and on_truncated == "error":
        raise RecordError(f"{path}:{broken[0]}: the file ends inside this line ({broken[1]})", TRUNCATED_HINT)
    for row, line in zip(rows, lines, strict=True):
        if len(row) != len(header):
            raise RecordError(
                f"{path}:{line}: {len(row)} cells; accepted: {len(header)}, as in the header",
                "Quote cells that contain the separator, and leave unknown cells empty.",
            )
    cells = list(zip(*rows, strict=True)) if rows else [()] * len(header)
    columns = {name: list(column) for name, column in zip(header, cells, strict=True) if name}
    return RawTable(columns, _locator(path, lines))


def _locator(path: Path, lines: Sequence[int]) -> Callable[[int], str]:
    return lambda index: f"{path}:{lines[index]}"


def _split(path: Path, text: str) -> tuple[list[list[str]], list[int], tuple[int, str] | None]:
    """Rows, the line each ends on, and line and nature of a last row that is cut off inside a quote."""
    first = text.lstrip("\r\n").split("\n", 1)[0]
    delimiter = max(",;\t", key=first.count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
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
            return rows, lines, (started, "a quote is left open")
        raise RecordError(
            f"{path}:{started}: a cell or quote that starts here is malformed: {error}",
            'Write a quote inside a cell as "", and close every quote.',
        ) from error
    return rows, lines, None


def _check_header(path: Path, header: list[str], lines: Sequence[int]) -> None:
    if not header or all(_is_number(name) for name in header):
        raise RecordError(
            f"{path}:{lines[0] if lines else 1}: received {', '.join(header)!r}; accepted: "
            "column names in the first line",
            "Add a header line, e.g. n,C,avg@4.",
        )
    twice = sorted({name for name in header if name and header.count(name) > 1})
    if twice:
        raise RecordError(f"{path}:{lines[0]}: columns {', '.join(twice)} are there twice", "Rename or remove one.")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _cut_tail(text: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> str | None:
    """Why the last row looks cut off; None where it looks whole.

    Many programs end a file without a line end, so that alone proves nothing. A row with too few cells, or
    a last cell shorter than any other of its column in a file long enough to tell, does.
    """
    last = rows[-1]
    if text.endswith(("\n", "\r")):
        return None
    if len(last) < len(header):
        return f"{len(last)} of {len(header)} cells"
    others = [len(row[-1]) for row in rows[:-1]]
    if len(others) >= MIN_ROWS_TO_JUDGE_LENGTH and len(last[-1]) < min(others):
        return f"no line end after {last[-1]!r}, which is shorter than every other cell of column {header[-1]!r}"
    return None
