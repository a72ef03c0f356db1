"""Errors: every one that is raised says what to do next."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import isocompute_sdk as iso
from isocompute_sdk import errors
from tests.sources import calls_in

ROOT = Path(__file__).parents[2]
KINDS = {name for name in vars(errors) if name.endswith("Error")}


def without_hint(file: Path) -> list[int]:
    """Lines on which one of our errors is made with a message alone."""
    return [
        call.lineno
        for call in calls_in(file)
        if isinstance(call.func, ast.Name)
        and call.func.id in KINDS
        and len(call.args) == 1
        and not any(keyword.arg in ("hint", None) for keyword in call.keywords)
    ]


def test_an_error_without_a_hint_is_found(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text('raise FitError("a")\nraise FitError("a", "b")\nraise PlanError("a", hint="b")')
    assert without_hint(tmp_path / "a.py") == [1]


def test_every_error_is_raised_with_a_hint() -> None:
    files = [path for folder in ("isocompute_sdk", "backends") for path in (ROOT / folder).rglob("*.py")]
    assert len(files) > 100
    found = {str(path.relative_to(ROOT)): without_hint(path) for path in files}
    assert {path: lines for path, lines in found.items() if lines} == {}


@pytest.mark.parametrize("budget", [-3, 0, "", "3MM", "20h", float("nan"), 1e30, None, {"rolouts": 3}, {"spent": 1}])
def test_a_budget_that_is_none_comes_with_what_to_do(budget: object) -> None:
    with pytest.raises(iso.SpecError) as caught:
        iso.Budget.parse(budget)  # pyright: ignore[reportArgumentType]
    assert caught.value.hint


@pytest.mark.parametrize(
    "hint",
    [
        "Name it: <--run NAME | run_id='a'>.",
        "For n < 4 leave <--equal | equal=> out.",
        "<--a | a=f(x)>, <--b | b=2>",
    ],
)
def test_python_shows_arguments_and_a_command_line_flags(hint: str) -> None:
    error = errors.FitError("it is unknown", hint)
    assert str(error) == f"it is unknown\n  {error.hint}"
    assert "--" not in str(error)
    assert "=" in str(error)
    assert error.shell_hint is not None
    assert "--" in error.shell_hint
    assert not any(mark in f"{error.hint}{error.shell_hint}" for mark in ("<-", " | "))
    assert "=" not in error.shell_hint
    other = error.retyped(errors.PlanError, "no plan")
    assert (type(other), other.message) == (errors.PlanError, "no plan")
    assert (other.hint, other.shell_hint) == (error.hint, error.shell_hint)


def test_no_error_is_made_with_the_hint_of_another_one() -> None:
    """That would lose the form for the command line: see `retyped`."""
    files = [path for folder in ("isocompute_sdk", "backends") for path in (ROOT / folder).rglob("*.py")]
    hints = [
        f"{path.relative_to(ROOT)}:{call.lineno}"
        for path in files
        for call in calls_in(path)
        if isinstance(call.func, ast.Name) and call.func.id in KINDS
        for value in call.args
        if isinstance(value, ast.Attribute) and value.attr == "hint"
    ]
    assert hints == []
