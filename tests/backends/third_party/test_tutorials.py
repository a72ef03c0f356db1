"""The tutorials' backend and log format, installed and put through the contracts."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from isocompute_sdk.cli.shared import following
from tests.documents.document import files_of
from tests.packages import note_installed
from tests.processes import ok

RAW = ("example/a/config.json", "example/a/progress.ndjson")


def install(example: Path, folder: Path) -> None:
    """Copy an example's package into a folder with a dist-info that has its entry points."""
    shutil.copytree(example, folder, dirs_exist_ok=True)
    project = tomllib.loads((example / "pyproject.toml").read_text())["project"]
    note_installed(folder, project["name"], project["version"], project["entry-points"])


@pytest.mark.parametrize(
    ("tutorial", "example", "shown"),
    [
        ("02_write_a_backend", "coin_backend", {"pyproject.toml", "coin_backend/__init__.py", "coin_backend/train.py"}),
        ("03_add_a_log_format", "coin_logs", {"pyproject.toml", "coin_logs/__init__.py", *RAW}),
    ],
)
def test_what_a_tutorial_shows_of_a_file_is_in_it(
    repository: Path, tutorial: str, example: str, shown: set[str]
) -> None:
    files = files_of((repository / "tutorials" / f"{tutorial}.md").read_text(encoding="utf-8"))
    assert set(files) == shown
    for name, content in files.items():
        parts = re.split(r"^\.\.\.\n", content, flags=re.MULTILINE)
        whole = (repository / "docs/examples" / example / name).read_text(encoding="utf-8")
        assert re.fullmatch(".*".join(map(re.escape, parts)), whole, re.DOTALL), name


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


Command = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def site(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the tutorial's package, in which our command finds it."""
    install(repository / "docs/examples/coin_backend", tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    return tmp_path


@pytest.mark.slow
def test_it_meets_the_contract_of_every_backend(site: Path, repository: Path) -> None:
    suite = [f"tests/backends/test_{name}.py" for name in ("contract", "progress", "log_formats")]
    assert contract(site, repository, "coin", *suite) >= 26


@pytest.mark.slow
@pytest.mark.usefixtures("site")
def test_its_study_is_listed_trained_fitted_and_planned(isocompute: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "write_page", lambda *_, **__: (None, ""))
    listed = isocompute("list", "backends", "--json")
    assert json.loads(listed.stdout)["backends"]["coin"]["algorithms"] == ["grpo"]
    ok(isocompute("run", "coins.yaml", "--json"))
    planned = ok(isocompute("allocate", "runs/coins", "--budget", "200k", "--json"))
    plan = json.loads(planned.stdout)
    assert 0 < plan["rollouts"] <= 200_000


def test_a_typing_error_in_its_options_is_met_with_the_right_name(site: Path, isocompute: Command) -> None:
    study = site / "coins.yaml"
    study.write_text(study.read_text().replace("coins: 100", "coin: 100"))
    done = isocompute("run", "coins.yaml")
    assert done.returncode != 0
    assert "Did you mean coins?" in done.stderr


@pytest.fixture
def log_site(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the tutorial's package, in which our command finds it."""
    install(repository / "docs/examples/coin_logs", tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    return tmp_path


def write_run(folder: Path, n: int, attempts: tuple[range, ...] = (range(1, 41),)) -> None:
    """What CoinRL leaves: settings, and one line for each update, those of a resumed attempt behind the others."""
    folder.mkdir(parents=True)
    settings = {"samples_per_question": n, "questions": 32, "base_model": "coin", "optimizer": {"lr": 1e-6}}
    settings |= {"sampler": {"temperature": 0.7}, "drop_equal_groups": True}
    (folder / "config.json").write_text(json.dumps(settings))
    with (folder / "progress.ndjson").open("w") as log:
        for steps in attempts:
            for step in steps:
                row: dict[str, Any] = {"update": step, "reward": step / 100, "reward/accuracy": 0.9}
                row |= {"tokens_per_response": 100.0, "update_ms": 2000.0 + 8 * n * 32, "sampling_ms": 1000.0}
                if step % 4 == 0:
                    row |= {"heldout/mean_of_4": 0.3 + step / 200, "heldout/max_of_4": 0.6}
                log.write(json.dumps(row) + "\n")


@pytest.mark.slow
def test_it_meets_the_contract_of_every_format(log_site: Path, repository: Path) -> None:
    assert contract(log_site, repository, "coinrl", "tests/unit/ingest/formats/test_log_formats.py") >= 5


def test_its_runs_are_read_stitched_and_timed(log_site: Path, isocompute: Command) -> None:
    for n in (2, 8, 32):
        write_run(log_site / "runs" / f"n{n}", n)
    write_run(log_site / "resumed" / "a", 8, (range(1, 31), range(21, 41)))
    ok(isocompute("doctor", "runs", "resumed", "--output", "runs.jsonl", "--json"))
    rows = [json.loads(line) for line in (log_site / "runs.jsonl").read_text().splitlines()]
    assert {row["metric"] for row in rows} == {
        "avg@4",
        "best@4",
        "train_reward",
        "response_length",
        "step_seconds",
        "sampling_seconds",
    }
    last = next(row for row in rows if row["run_id"] == "a" and row["step"] == 40)
    assert (last["rollouts"], last["rollouts_spent"]) == (40 * 256, 50 * 256)
    assert (last["model"], last["temperature"], last["filter"]) == ("coin", 0.7, "zero-variance")
    (seconds,) = {row["value"] for row in rows if row["run_id"] == "n2" and row["metric"] == "step_seconds"}
    assert seconds == pytest.approx(2.512)
    timed = ok(isocompute("doctor", "--speed", "runs", "--gpus", 1, "--json"))
    assert json.loads(timed.stdout)["rollouts_per_second"] == pytest.approx(125.0, rel=0.01)
    looked = isocompute("doctor", "runs", "--json")
    assert [run["group_size"] for run in json.loads(looked.stdout)["runs"]] == ["2", "32", "8"]
