"""The tutorial's backend: its files as written there, found through a distribution that isocompute does not know."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

FILE_NAME = re.compile(r"`([\w/]+\.\w+)`")


def files_of(tutorial: str) -> dict[str, str]:
    """Code blocks under a paragraph that begins with a file name, by that name."""
    files: dict[str, str] = {}
    name: str | None = None
    inside, before = False, "\n"
    for line in tutorial.splitlines(keepends=True):
        found = FILE_NAME.match(line) if before == "\n" else None
        before = line
        if line.startswith("```"):
            inside, name = not inside, None if inside else name
        elif inside and name is not None:
            files[name] = files.get(name, "") + line
        elif found and not inside:
            name = found.group(1)
    return files


@pytest.fixture
def site(repository: Path, tmp_path: Path) -> Path:
    """A folder with the tutorial's package, installed as pip would leave it: a dist-info with its entry points."""
    folder = tmp_path / "site"
    text = (repository / "tutorials" / "02_write_a_backend.md").read_text(encoding="utf-8")
    files = files_of(text)
    assert set(files) == {"pyproject.toml", "coin_backend/__init__.py", "coin_backend/train.py", "coins.yaml"}
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
    project = tomllib.loads(files["pyproject.toml"])["project"]
    info = folder / f"coin_backend-{project['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n", encoding="utf-8"
    )
    entries = project["entry-points"]["isocompute.backends"]
    lines = [f"{name} = {value}" for name, value in entries.items()]
    (info / "entry_points.txt").write_text("\n".join(["[isocompute.backends]", *lines]) + "\n", encoding="utf-8")
    return folder


def python(site: Path, *words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    before = os.environ.get("PYTHONPATH")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(site), *([before] if before else [])])}
    environment |= {"COLUMNS": "120", "NO_COLOR": "1"}
    environment.pop("PYTEST_XDIST_WORKER", None)
    return subprocess.run(
        [sys.executable, *words], cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )


def isocompute(site: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return python(site, "-c", "from isocompute_sdk.cli import main; main()", *words, cwd=site)


def test_it_meets_the_contract_of_every_backend(site: Path, repository: Path) -> None:
    suite = ["tests/backends/test_contract.py", "tests/backends/test_progress.py"]
    options = ["-q", "-k", "coin", "-p", "no:cacheprovider", "-p", "no:xdist"]
    done = python(site, "-m", "pytest", *suite, *options, cwd=repository)
    assert done.returncode == 0, done.stdout[-3000:]
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed is not None
    assert int(passed.group(1)) >= 30


def test_its_study_is_listed_trained_fitted_and_planned(site: Path) -> None:
    listed = isocompute(site, "backends", "--json")
    assert json.loads(listed.stdout)["backends"]["coin"]["algorithms"] == ["grpo"]
    trained = isocompute(site, "run", "coins.yaml", "--json")
    assert trained.returncode == 0, trained.stderr
    planned = isocompute(site, "allocate", "runs/coins", "--budget", "200k", "--json")
    assert planned.returncode == 0, planned.stderr
    plan = json.loads(planned.stdout)
    assert 0 < plan["rollouts"] <= 200_000


def test_a_typing_error_in_its_options_is_met_with_the_right_name(site: Path) -> None:
    study = site / "coins.yaml"
    study.write_text(study.read_text().replace("coins: 100", "coin: 100"))
    done = isocompute(site, "run", "coins.yaml")
    assert done.returncode != 0
    assert "Did you mean coins?" in done.stderr
