"""What commands print: text for people, one JSON document for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TextIO

from isocompute_sdk.errors import IsoComputeError
from isocompute_sdk.phrases import printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.segment import Segment

OUTPUT_SCHEMA_VERSION = 1
"""Version of the `--json` documents that are not a saved file of their own."""


def say(text: str = "") -> None:
    """One line for people."""
    print(text)


def say_exactly(text: str) -> None:
    """Text for a file, such as a script: what it holds is shown as escapes on a terminal only."""
    print(text, file=sys.stdout if sys.stdout.isatty() else getattr(sys.stdout, "rich_proxied_file", sys.stdout))


class Shown:
    """A stream for people, to which control characters of names are written as escapes.

    Consoles of rich write to the stream behind it, with their colours; those of `terminal` escape what they show.
    """

    def __init__(self, stream: TextIO) -> None:
        self.rich_proxied_file = stream

    def write(self, text: str) -> int:
        """Write text; only line ends and tabs stay as they are."""
        return self.rich_proxied_file.write(printable(text, keep="\n\t"))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.rich_proxied_file, name)


def terminal(**options: Any) -> Console:
    """A console of rich that shows control characters of names as escapes."""
    from rich.console import Console
    from rich.segment import Segment

    class Escaping(Console):
        def render(self, *what: Any, **how: Any) -> Iterator[Segment]:
            for text, style, control in super().render(*what, **how):
                yield Segment(text if control else printable(text, keep="\n"), style, control)

    # Numbers and names would be coloured at random otherwise, and brackets in names read as styles.
    return Escaping(highlight=False, markup=False, **options)


def for_shell(error: BaseException) -> str:
    """An error in words for a terminal: its hint names flags instead of arguments."""
    if not isinstance(error, IsoComputeError) or error.shell_hint is None:
        return str(error)
    return f"{error.message}\n  {error.shell_hint}"


def in_a_line(error: BaseException) -> str:
    """The same without line breaks."""
    return " ".join(for_shell(error).replace("\n  ", ". ", 1).split())


def emit_json(payload: Mapping[str, Any]) -> None:
    """One JSON document on stdout, with its `schema_version`."""
    print(json.dumps({"schema_version": OUTPUT_SCHEMA_VERSION, **payload}, indent=1, allow_nan=False))


def widest(names: Iterable[str]) -> int:
    """Width of a column of names, which a very long one does not widen."""
    return min(40, max(map(len, map(printable, names)), default=0))


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows as lines, every column but the last as wide as its longest text."""
    wide = [max(len(row[i]) for row in rows) for i in range(len(rows[0]) - 1)]
    padded = [[text.ljust(width) for text, width in zip(row, wide, strict=False)] for row in rows]
    return ["  ".join([*cells, row[-1]]).rstrip() for cells, row in zip(padded, rows, strict=True)]
