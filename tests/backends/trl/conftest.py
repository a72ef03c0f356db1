"""Runs for the TRL backend, and its script as bash and a real Python carry it out."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from isocompute_sdk.specs import Evaluation, RunSpec
from isocompute_trl import TRLBackend
from tests.backends.framework_runs import run_maker, write_sums

MakeRun = Callable[..., RunSpec]


@pytest.fixture(scope="session")
def make_run() -> MakeRun:
    return run_maker(backend="trl", evaluation=Evaluation(n_problems=320))


@pytest.fixture
def work(tmp_path: Path) -> Path:
    return write_sums(tmp_path / "work")


@pytest.fixture
def prepare(work: Path, tmp_path: Path) -> Callable[[RunSpec], subprocess.CompletedProcess[str]]:
    """Run a script up to the start of training, which a stub stands in for."""
    stub = tmp_path / "python-without-trl"
    stub.write_text(
        f'#!/bin/sh\ncase "$1" in */train.py|-m) exit 0;; esac\nexec {sys.executable} "$@"\n', encoding="utf-8"
    )
    stub.chmod(0o755)

    def start(run: RunSpec) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "PYTHON": str(stub), "PYTHONPATH": ""}
        script = TRLBackend().script(run).encode()
        done = subprocess.run(["bash"], input=script, cwd=work, env=environment, capture_output=True, check=False)
        return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())

    return start
