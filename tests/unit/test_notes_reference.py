"""docs/notes.md lists every note code that the source can give, and no other."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from isocompute_sdk.planning.assessment.caveats import LOST_BEYOND

CODE = re.compile(r"[a-z]+(?:-[a-z0-9]+)+")
MAKERS = ("Note", "Finding", "Finding.at")
DYNAMIC = {"extrapolation", "extrapolation-beyond-3x", "extrapolation-beyond-10x"}
"""Codes that caveats.extrapolation puts together from the ratio."""


def codes_in(file: Path) -> set[str]:
    """First arguments of every call of Note, and of what becomes one, in a source file."""
    calls = [
        node
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in MAKERS and node.args
    ]
    first = [call.args[0] for call in calls]
    return {arg.value for arg in first if isinstance(arg, ast.Constant) and isinstance(arg.value, str)}


def test_every_code_is_documented_and_every_documented_code_exists(repository: Path) -> None:
    sources = [*repository.glob("isocompute_sdk/**/*.py"), *repository.glob("backends/**/*.py")]
    given = set[str]().union(*map(codes_in, sources)) | DYNAMIC
    listed = {
        code
        for row in (repository / "docs" / "notes.md").read_text(encoding="utf-8").splitlines()
        if row.startswith("| `")
        for code in re.findall(r"`([^`]+)`", row.split("|")[1])
    }
    assert given - listed == set(), "codes without documentation"
    assert listed - given == set(), "documented codes that nothing gives"


def test_the_losses_that_plans_quote_are_those_of_the_benchmark(repository: Path) -> None:
    rows = (repository / "docs" / "allocation.md").read_text(encoding="utf-8").splitlines()
    (measured,) = (row.split("|")[2:5] for row in rows if row.startswith("| all |") and "±" in row)
    surface, paper, best_run = (tuple(float(mean) for mean in re.findall(r"([0-9.]+) ±", cell)) for cell in measured)
    assert {"surface": surface[1:], "paper": paper[1:]} == LOST_BEYOND
    told = " | ".join(" / ".join(f"{mean:.3f}"[1:] for mean in means) for means in (surface, paper, best_run))
    assert f"| {told} |" in (repository / "README.md").read_text(encoding="utf-8")


def test_codes_are_kebab_case(repository: Path) -> None:
    for source in repository.glob("isocompute_sdk/**/*.py"):
        for code in codes_in(source) - DYNAMIC:
            assert CODE.fullmatch(code), code
