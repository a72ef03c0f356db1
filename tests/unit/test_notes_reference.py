"""docs/notes.md lists every note code that the source can give, and no other."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from isocompute_sdk.cli.listing import notes
from tests.sources import calls_in

CODE = re.compile(r"[a-z]+(?:-[a-z0-9]+)*")
MAKERS = ("Note", "Watch", "Finding", "Finding.at")

SEVERITIES = ("info", "warning", "refuse")


@cache
def severities_in(file: Path) -> tuple[tuple[str, frozenset[str]], ...]:
    """Code of every call of Note, and of what becomes one, with the severities written in that call."""
    found: list[tuple[str, frozenset[str]]] = []
    for node in calls_in(file):
        name = ast.unparse(node.func)
        # A rule of a backend: field, condition and message come before the code.
        arguments = node.args if name in MAKERS else node.args[3:] if name.startswith("Rule[") else []
        if arguments:
            code, *more = arguments
            given = more[:1] or [keyword.value for keyword in node.keywords if keyword.arg == "severity"]
            words = [part.value for value in given for part in ast.walk(value) if isinstance(part, ast.Constant)]
            if isinstance(code, ast.Constant) and isinstance(code.value, str):
                found.append((code.value, frozenset(word for word in words if word in SEVERITIES)))
    return tuple(found)


def codes_in(file: Path) -> set[str]:
    """First arguments of every call of Note, and of what becomes one, in a source file."""
    return {code for code, _ in severities_in(file)}


def documented(repository: Path) -> Iterator[tuple[list[str], list[str]]]:
    """Codes and further cells of every row of docs/notes.md."""
    for row in (repository / "docs" / "notes.md").read_text(encoding="utf-8").splitlines():
        if row.startswith("| `"):
            codes, *cells = (cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1])
            yield re.findall(r"`([^`]+)`", codes), cells


def sources(repository: Path) -> list[Path]:
    return [*repository.glob("isocompute_sdk/**/*.py"), *repository.glob("backends/**/*.py")]


def test_every_code_is_documented_and_every_documented_code_exists(repository: Path) -> None:
    given = set[str]().union(*map(codes_in, sources(repository)))
    rows = {code: tuple(cells) for codes, cells in documented(repository) for code in codes}
    listed = set(rows)
    assert notes() == rows, "what the command shows"
    assert given - listed == set(), "codes without documentation"
    assert listed - given == set(), "documented codes that nothing gives"


def test_every_documented_code_has_the_severity_of_the_code_a_meaning_and_a_remedy(repository: Path) -> None:
    given: dict[str, set[str]] = {}
    for source in sources(repository):
        for code, severities in severities_in(source):
            given.setdefault(code, set()).update(severities)
    for codes, (severity, meaning, remedy) in documented(repository):
        told = set(re.findall("|".join(SEVERITIES), severity))
        written = set[str]().union(*(given.get(code, set()) for code in codes))
        # A severity that is computed stands in no call.
        assert written <= told, codes
        assert told, codes
        assert meaning, codes
        assert remedy, codes


def test_codes_are_kebab_case(repository: Path) -> None:
    for source in repository.glob("isocompute_sdk/**/*.py"):
        for code in codes_in(source):
            assert CODE.fullmatch(code), code
