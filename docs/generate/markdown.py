"""Plain text of help and docstrings as Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

_CODE = re.compile(r"(``.+?``|`[^`]+`)")
_WORDS = (
    r"--?[a-z][a-z-]*[a-z]",  # --flag
    r"-[a-z]",
    r"[A-Z]+(?:_[A-Z]+)+\*?",  # NAME_OF_A_VARIABLE
    r"[a-z]+(?:_[a-z0-9]+)+(?:=[a-z0-9./-]*[a-z0-9/])?",  # name_of_a_key=1e-3
    r"[a-z]+=[a-z0-9]+(?:,[a-z]+=[a-z0-9]+)*",  # n=16,bp=32
    r"[\w./-]+\.(?:json|jsonl|yaml|yml|csv|py|sh|md|parquet|html|png|txt)",
)
"""Words of plain text that are code."""
_BARE = re.compile(rf"(?<![\w./-])({'|'.join(_WORDS)})(?![\w-])")
_SPECIAL = re.compile(r"([\\*_<>\[\]|$#~])")


def prose(text: str) -> str:
    """One line of Markdown: code in backticks, flags and names as code, every other character as itself."""
    parts = _CODE.split(" ".join(text.split()))
    return "".join(part if part.startswith("`") else _plain(part) for part in parts)


def _plain(text: str) -> str:
    parts = _BARE.split(text)
    return "".join(f"`{part}`" if i % 2 else _SPECIAL.sub(r"\\\1", part) for i, part in enumerate(parts))


def code(text: object) -> str:
    """A code span."""
    return f"`{text}`"


def table(head: Sequence[str], rows: Iterable[Sequence[str]], *, style: str = "stacked") -> str:
    """A Markdown table; cells are Markdown already.

    Args:
        head: names of the columns.
        rows: cells of each row.
        style: classes of site.css: `stacked` puts cells below each other on a narrow screen, `defaults` labels the
            third one there; without a class the table scrolls.
    """
    lines = [head, ["---"] * len(head), *rows]
    cells = [[re.sub(r"(?<!\\)\|", r"\|", cell) for cell in line] for line in lines]
    return (f"{{.{style.replace(' ', ' .')}}}\n" if style else "") + "".join(
        f"| {' | '.join(line)} |\n" for line in cells
    )
