"""Another release of a framework where a script runs: named before anything is started."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from isocompute_sdk.campaigns.carrying_out import check_place
from isocompute_sdk.errors import BackendError
from isocompute_sdk.specs import Evaluation, RunSpec
from isocompute_sdk.training import registry
from tests.backends.framework_runs import run_maker, write_sums
from tests.packages import note_installed
from tests.parameters import few

FRAMEWORKS = {"openrlhf": "0.11.2", "trl": "1.16.0", "verl": "0.9.1"}
TRAINS = "*/train.py|-m|*/start_training.py|*/supervise.py"


@pytest.fixture
def work(tmp_path: Path) -> Path:
    return write_sums(tmp_path / "work")


@pytest.fixture
def bin_folder(tmp_path: Path) -> Path:
    """An interpreter that notes the start of training, and a tool of GPUs that notes its use."""
    folder = tmp_path / "bin"
    folder.mkdir()
    python = f'case "$1" in {TRAINS}) echo training >> "$NOTED"; exit 0;; esac\nexec {sys.executable} "$@"\n'
    for name, text in (("python3", python), ("nvidia-smi", 'echo gpu >> "$NOTED"\n')):
        (folder / name).write_text(f"#!/bin/sh\n{text}")
        (folder / name).chmod(0o755)
    return folder


def install(site: Path, package: str, release: str) -> Path:
    """A site folder with the record of an installed package."""
    (site / package).mkdir(parents=True)
    (site / package / "__init__.py").touch()
    note_installed(site, package, release)
    return site


def run_of(backend: str) -> RunSpec:
    return run_maker(backend=backend, evaluation=Evaluation(n_problems=320))(update_steps=12)


def start(backend: str, work: Path, bin_folder: Path, site: Path | None) -> tuple[int, str, list[str]]:
    """Exit status, messages, and what was started."""
    noted = bin_folder / "noted"
    noted.touch()
    environment = {**os.environ, "PATH": f"{bin_folder}:{os.environ['PATH']}", "NOTED": str(noted)}
    environment |= {"PYTHONPATH": str(site or ""), "PYTHON": "python3"}
    script = registry.load(backend).script(run_of(backend)).encode()
    done = subprocess.run(["bash"], input=script, cwd=work, env=environment, capture_output=True, check=False)
    return done.returncode, done.stderr.decode(), noted.read_text().split()


@pytest.mark.parametrize(
    ("backend", "release"), few([("trl", "9.0.0"), ("verl", "{}rc1"), ("openrlhf", "0.1.0"), ("verl", "{}.post1")], 2)
)
def test_a_script_names_another_release_before_it_takes_a_gpu(
    backend: str, release: str, work: Path, bin_folder: Path, tmp_path: Path
) -> None:
    installed = release.format(FRAMEWORKS[backend])
    status, said, started = start(backend, work, bin_folder, install(tmp_path / "site", backend, installed))
    assert (status, started) == (2, [])
    assert installed in said
    assert f"=={FRAMEWORKS[backend]}" in said


@pytest.mark.parametrize("backend", sorted(FRAMEWORKS))
def test_a_campaign_names_a_missing_framework_before_it_starts_a_run(
    backend: str, work: Path, bin_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHON", str(bin_folder / "python3"))
    run, loaded = run_of(backend), registry.load(backend)
    monkeypatch.setenv("PYTHONPATH", str(install(tmp_path / "same", backend, FRAMEWORKS[backend])))
    check_place(loaded, [run], work, here=True)
    monkeypatch.setenv("PYTHONPATH", "")
    with pytest.raises(BackendError, match="no package"):
        check_place(loaded, [run], work, here=True)
