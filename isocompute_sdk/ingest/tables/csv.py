"""CSV files: comma, semicolon or tab between cells, names in the first line.

Every cell is kept as text until its column is known, so that run names such as `007` survive and an error
can quote what the file says. Polars splits files in which nothing can be read in two ways; all others, and all
that are damaged, are split here row by row, so that an error names its line.
"""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from isocompute_sdk.errors import RecordError
from isocompute_sdk.ingest.stores.packed import LONGEST_LINE
from isocompute_sdk.ingest.tables.raw import (
    OnTruncated,
    RawTable,
    check_size,
    cut_off,
    damaged,
    read_text,
    truncated,
)
from isocompute_sdk.phrases import listed
from isocompute_sdk.records.cells import to_series
from isocompute_sdk.records.columns import BY_NAME, canonical

if TYPE_CHECKING:
    import polars as pl

MIN_ROWS_TO_JUDGE_LENGTH = 8
SHOWN = 20
"""Column names that an error lists."""


def read_csv(path: Path, on_truncated: OnTruncated = "error") -> RawTable:
    """Read one CSV file; a column without a name (an index that was written along) is left out.

    Raises:
        RecordError: no header, a line with too few or too many cells, a file that ends inside a line or is too
            large.
    """
    text, replaced = read_text(path, on_truncated, longest=LONGEST_LINE)
    if not text.strip():
        raise RecordError(f"{path} is empty", "Check that the run has logged an evaluation.")
    first = header = text.lstrip("\r\n").partition("\n")[0]
    check_size(path, header.count(_delimiter(header)) + 1, text.count("\n"))
    plain = read_plain(text)
    if plain is not None:
        _check_header(path, list(plain), [1])
        named = {name: _unformatted(series.alias(name), _delimiter(header)) for name, series in plain.items() if name}
        return RawTable(named, lambda index: f"{path}:{index + 2}", replaced)
    rows, lines, broken = _split(path, text)
    header = [name.strip() for name in rows[0]] if rows else []
    _check_header(path, header, lines)
    rows, lines = rows[1:], lines[1:]
    if broken is None and rows:
        sign = _cut_tail(text, header, rows)
        if sign is not None:
            rows.pop()
            broken = (lines.pop(), sign)
    if broken is not None and on_truncated == "error":
        raise truncated(path, broken[0], f" ({broken[1]})")
    notes = [*replaced, *([] if broken is None else [cut_off(path, broken[0])])]
    uneven = [line for row, line in zip(rows, lines, strict=True) if len(row) != len(header)]
    if uneven and on_truncated == "error":
        found = len(rows[lines.index(uneven[0])])
        raise RecordError(
            f"{path}:{uneven[0]}: {found} cells; accepted: {len(header)}, as in the header",
            "Quote cells that contain the separator, and leave unknown cells empty.",
        )
    if uneven:
        notes.append(damaged(path, uneven, f"not {len(header)} cells, as in the header"))
        kept = [i for i, row in enumerate(rows) if len(row) == len(header)]
        rows, lines = [rows[i] for i in kept], [lines[i] for i in kept]
    cells = list(zip(*rows, strict=True)) if rows else [()] * len(header)
    columns = {
        name: _unformatted(to_series(name, list(column)), _delimiter(first))
        for name, column in zip(header, cells, strict=True)
        if name
    }
    return RawTable(columns, _locator(path, lines), tuple(notes))


def _unformatted(series: pl.Series, delimiter: str) -> pl.Series:
    """A column of numbers as spreadsheets show them as plain numbers: `1,280`, `20.5%`, and `0,5` between semicolons.

    A column is changed only where that makes numbers of all its cells.
    """
    import polars as pl

    known = canonical(series.name)
    if known is not None and BY_NAME[known].kind == "text":
        return series
    if series.dtype != pl.String or not any(series.str.contains(sign, literal=True).any() for sign in ",%"):
        return series
    text = series.str.strip_chars()
    percent = text.str.ends_with("%").fill_null(False)
    number = text.str.strip_suffix("%").str.strip_chars()
    if delimiter == ";":
        number = number.str.replace(",", ".", literal=True)
    else:
        grouped = number.str.contains(r"^[+-]?[1-9]\d{0,2}(,\d{3})+(\.\d+)?$").fill_null(False)
        plain = number.str.replace_all(",", "", literal=True)
        number = pl.select(pl.when(grouped).then(plain).otherwise(number)).to_series()
    values = number.cast(pl.Float64, strict=False)
    if (values.is_null() & text.is_not_null() & (text != "")).any():
        return series
    if percent.any():
        number = pl.select(pl.when(percent).then(values / 100).otherwise(values)).to_series()
    return number.alias(series.name)


def read_plain(text: str) -> dict[str, pl.Series] | None:
    """The columns of a CSV text that reads the same in every dialect, as text; None for any other.

    Such a text has a line for every row, every row as many cells as the header, quotes only around whole cells, and a
    line end at its end. An empty cell is null.
    """
    import polars as pl

    header, _, body = text.partition("\n")
    delimiter = _delimiter(header)
    names = [name.strip() for name in header.rstrip("\r").split(delimiter)]
    quotes = body.count('"')
    plain = (
        body.endswith("\n")
        and '"' not in header
        and len(set(names)) == len(names)
        and "\n\n" not in body
        and not body.startswith(("\n", "\r"))
        and (body.count("\r") in (0, body.count("\r\n")))
        and "\n\r\n" not in body
        and (not quotes or _quotes_whole_cells(body, delimiter, quotes))
    )
    if not plain or (height := body.count("\n")) * (len(names) - 1) != body.count(delimiter):
        return None
    schema = {str(i): pl.String() for i in range(len(names))}
    try:
        frame = pl.read_csv(body.encode(), has_header=False, schema=schema, separator=delimiter)
    except pl.exceptions.PolarsError:
        return None
    # A separator, quote or line end inside a cell: the counts above prove nothing then.
    odd = f'[\\n"{delimiter}]' if quotes else None
    if frame.height != height or (odd and frame.select(pl.any_horizontal(pl.all().str.contains(odd).any())).item()):
        return None
    return dict(zip(names, frame.get_columns(), strict=True))


def _quotes_whole_cells(body: str, delimiter: str, quotes: int) -> bool:
    """Whether every quote stands at the beginning or end of a cell."""
    opening = body.count(f'{delimiter}"') + body.count('\n"') + body.startswith('"')
    closing = body.count(f'"{delimiter}') + body.count('"\n') + body.count('"\r\n')
    return opening == closing and opening + closing == quotes


def _delimiter(header: str) -> str:
    return max(",;\t", key=header.count)


def _locator(path: Path, lines: Sequence[int]) -> Callable[[int], str]:
    return lambda index: f"{path}:{lines[index]}"


def _split(path: Path, text: str) -> tuple[list[list[str]], list[int], tuple[int, str] | None]:
    """Rows, the line each ends on, and line and nature of a last row that is cut off inside a quote."""
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
            return rows, lines, (started, "a quote is left open")
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
        raise RecordError(f"{path}:{lines[0]}: columns {listed(twice, SHOWN)} are there twice", "Rename or remove one.")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _cut_tail(text: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> str | None:
    """Why the last row looks cut off; None if it looks whole.

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
