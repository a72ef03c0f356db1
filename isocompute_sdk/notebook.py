"""What results look like in a notebook: tables as HTML, every text escaped; and as polars frames."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from isocompute_sdk.notes import Note, by_severity

if TYPE_CHECKING:
    from polars import DataFrame as Frame

    __all__ = ["Frame", "frame_of", "heading", "listed", "notes", "pairs", "table"]


def frame_of(columns: Mapping[str, Any]) -> Frame:
    """A polars frame with a row for each entry of the columns, which are broadcast and flattened."""
    import polars as pl

    arrays = {name: np.asarray(values) for name, values in columns.items()}
    same = np.broadcast_arrays(*arrays.values())
    # numpy has no missing numbers and texts: such columns are lists.
    rows = (array.ravel() for array in same)
    return pl.DataFrame(
        {
            name: array.tolist() if array.dtype == object else array.copy()
            for name, array in zip(arrays, rows, strict=True)
        }
    )


MAX_ROWS = 30
"""Rows of a table; more are counted below it."""
_LEFT = "text-align:left"


def pairs(rows: Iterable[tuple[str, str]]) -> str:
    """A table of labels and values."""
    lines = (
        f"<tr><th style='{_LEFT}'>{escape(name)}</th><td style='{_LEFT}'>{escape(text)}</td></tr>"
        for name, text in rows
    )
    return f"<table>{''.join(lines)}</table>"


def table(header: Sequence[str], rows: Sequence[Sequence[str]], title: str = "") -> str:
    """A table with a header, of its first `MAX_ROWS` rows."""
    head = "".join(f"<th style='{_LEFT}'>{escape(name)}</th>" for name in header)
    lines = ("".join(f"<td style='{_LEFT}'>{escape(text)}</td>" for text in row) for row in rows[:MAX_ROWS])
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    more = f"<p>and {len(rows) - MAX_ROWS:,} more</p>" if len(rows) > MAX_ROWS else ""
    return heading(title) + f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


def heading(title: str) -> str:
    """A line in bold; nothing for an empty title."""
    return f"<p><b>{escape(title)}</b></p>" if title else ""


def listed(lines: Iterable[str]) -> str:
    """A list of sentences."""
    return f"<ul>{''.join(f'<li>{escape(line)}</li>' for line in lines)}</ul>"


def notes(found: Iterable[Note]) -> str:
    """Notes, most severe first."""
    lines = (
        f"<li><b>{escape(note.code)}</b> ({note.severity}): {escape(note.message)}</li>" for note in by_severity(found)
    )
    return f"<ul>{''.join(lines)}</ul>"
