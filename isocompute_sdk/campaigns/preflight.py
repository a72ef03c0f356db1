"""`check_place`: find a cause that would end every run, once and before the first run."""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from isocompute_sdk import files
from isocompute_sdk.errors import BackendError, IsoComputeError
from isocompute_sdk.specs import RunSpec
from isocompute_sdk.training.backend import Backend, Requires, requires_of

IMPORT_SECONDS = 60
"""Time limit of the interpreter that looks for packages; a cold network file system is slow."""
_INSTALLED = """
import importlib.metadata, importlib.util, json, sys
found = {}
for name in sys.argv[1:]:
    found[name] = None if importlib.util.find_spec(name) is None else ""
    try:
        if found[name] is not None:
            found[name] = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        pass
print(json.dumps(found))
"""
"""Prints the release of every package: empty if its files do not say, null if it is not there."""


def check_place(backend: Backend, runs: Sequence[RunSpec], root: Path, *, here: bool) -> None:
    """Refuse runs whose data, reward function, local model or packages are missing or unreadable.

    A model on a hub is not looked up. The problems are not parsed beyond their first line.

    Args:
        backend: says what its runs require.
        runs: the runs that are to start.
        root: folder to which all paths of the runs are relative.
        here: whether the runs start on this machine; otherwise its packages say nothing.

    Raises:
        BackendError: the message lists every problem.
    """
    required = dict.fromkeys(found for found in (requires_of(backend, run) for run in runs) if found is not None)
    problems = dict.fromkeys(problem for one in required for problem in _problems(one, root, here=here))
    if problems:
        listed = "\n".join(f"  {problem}" for problem in problems)
        raise BackendError(
            f"no run was started, because these problems would end all of them:\n{listed}", "Correct them all."
        )


def _problems(required: Requires, root: Path, *, here: bool) -> Iterator[str]:
    for name in required.files:
        yield from _problem_file(root / name)
    if required.reward is not None:
        yield from _reward(root, required.reward)
    if required.model is not None:
        yield from _model(root, required.model)
    if here and required.packages:
        yield from _packages(required)


def _problem_file(path: Path) -> Iterator[str]:
    try:
        with files.open_input(path, what="problems (JSON lines)", error=BackendError) as file:
            first = next((line for line in file if line.strip()), b"")
    except IsoComputeError as error:
        yield error.message
        return
    try:
        found = json.loads(first.decode("utf-8-sig"))
    except ValueError:
        found = None
    if not isinstance(found, dict):
        yield f"{path}: the first line is {first[:60]!r}; accepted: JSON lines, one object per problem"


def _reward(root: Path, target: str) -> Iterator[str]:
    path, separator, function = target.rpartition(":")
    if not separator or not function.isidentifier() or (root / target).is_file():
        path, function = target, ""
    try:
        text = files.read_text(root / path, what="a Python file with the reward function", error=BackendError)
        names = set(_names(ast.parse(text, str(root / path)).body))
    except IsoComputeError as error:
        yield error.message
    except (SyntaxError, ValueError) as error:
        yield f"reward {root / path}: not Python: {error}"
    else:
        if function and function not in names:
            yield f"reward {root / path}: has no function {function!r}; it defines {', '.join(sorted(names)) or 'none'}"


def _names(body: Iterable[ast.stmt]) -> Iterator[str]:
    """Names that the top level of a module defines, inside of if and try as well."""
    for one in body:
        if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield one.name
        elif isinstance(one, ast.Import | ast.ImportFrom):
            yield from (alias.asname or alias.name for alias in one.names)
        elif isinstance(one, ast.Assign):
            yield from (target.id for target in one.targets if isinstance(target, ast.Name))
        else:
            for part in ("body", "orelse", "finalbody"):
                yield from _names(getattr(one, part, ()))
            for handler in getattr(one, "handlers", ()):
                yield from _names(handler.body)


def _model(root: Path, model: str) -> Iterator[str]:
    place = root / model
    if place.is_dir():
        if not (place / "config.json").is_file():
            yield f"model {place}: a folder without config.json; accepted: a model in Hugging Face's format"
    elif model.startswith(("/", "./", "../")):
        yield f"model {place}: no such folder"


def _packages(required: Requires) -> Iterator[str]:
    stated = os.environ.get("PYTHON")
    python = stated or (sys.executable if required.beside_sdk else "python3")
    if shutil.which(python) is None:
        yield f"interpreter {python}: not found{' (from PYTHON)' if stated else ''}"
        return
    try:
        done = subprocess.run(
            [python, "-c", _INSTALLED, *required.packages],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=IMPORT_SECONDS,
            check=False,
        )
        found: dict[str, str | None] = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return  # An interpreter of its own kind: the run will say what is wrong with it.
    missing = [name for name in required.packages if found.get(name) is None]
    if missing:
        yield f"interpreter {python}: no package {', '.join(missing)}; install it, or set PYTHON to one that has it"
    for name, release in required.releases:
        installed = (found.get(name) or "").partition("+")[0]
        if installed not in ("", release):
            yield (
                f"interpreter {python}: {name} {installed} is installed, and the scripts are written for {release}; "
                f"install {name}=={release}, or set PYTHON to an interpreter that has it"
            )
