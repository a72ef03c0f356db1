"""Packages that tutorials write, installed as pip would leave them, and ways to use them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

from tests.documents.document import files_of
from tests.packages import note_installed


def install(tutorial: Path, folder: Path) -> set[str]:
    """Write a tutorial's files into a folder with a dist-info that has its entry points; returns their names."""
    files = files_of(tutorial.read_text(encoding="utf-8"))
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
    project = tomllib.loads(files["pyproject.toml"])["project"]
    note_installed(folder, project["name"], project["version"], project["entry-points"])
    return set(files)


def python(site: Path, *words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    before = os.environ.get("PYTHONPATH")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(site), *([before] if before else [])])}
    environment |= {"COLUMNS": "120", "NO_COLOR": "1"}
    environment.pop("PYTEST_XDIST_WORKER", None)
    return subprocess.run(
        [sys.executable, *words], cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )


def contract(site: Path, repository: Path, name: str, *suite: str) -> int:
    """Run a contract suite over what a tutorial installed; returns how many tests passed, none of which may fail."""
    options = ["-q", "-k", name, "-p", "no:cacheprovider"]
    done = python(site, "-m", "pytest", *suite, *options, cwd=repository)
    assert done.returncode == 0, done.stdout[-3000:]
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed is not None
    return int(passed.group(1))
