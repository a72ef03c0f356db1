"""Fixtures shared by all tests."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings

# Machines differ: a slow one must not fail a property that holds.
settings.register_profile("default", deadline=None, derandomize=bool(os.environ.get("CI")))
settings.load_profile("default")

REPOSITORY = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def repository() -> Path:
    """Root of the checkout."""
    return REPOSITORY


@pytest.fixture
def isocompute(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run the real command in a folder outside the repository."""

    def run(*arguments: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", "from isocompute_sdk.cli import main; main()", *map(str, arguments)],
            cwd=cwd or tmp_path,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
            env={**os.environ, "COLUMNS": "120", "NO_COLOR": "1", "TERM": "dumb"},
        )

    return run
