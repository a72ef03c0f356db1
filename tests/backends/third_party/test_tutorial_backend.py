"""The tutorial's backend: its files as written there, found through a distribution that isocompute does not know."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from isocompute_sdk.cli.shared import following
from tests.backends.third_party.tutorials import contract, install

Command = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def site(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the tutorial's package, in which our command finds it."""
    written = install(repository / "tutorials" / "02_write_a_backend.md", tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    assert written == {"pyproject.toml", "coin_backend/__init__.py", "coin_backend/train.py", "coins.yaml"}
    return tmp_path


def test_it_meets_the_contract_of_every_backend(site: Path, repository: Path) -> None:
    suite = [f"tests/backends/test_{name}.py" for name in ("contract", "progress", "log_formats")]
    assert contract(site, repository, "coin", *suite) >= 32


@pytest.mark.usefixtures("site")
def test_its_study_is_listed_trained_fitted_and_planned(isocompute: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "write_page", lambda *_, **__: (None, ""))
    listed = isocompute("list", "backends", "--json")
    assert json.loads(listed.stdout)["backends"]["coin"]["algorithms"] == ["grpo"]
    trained = isocompute("run", "coins.yaml", "--json")
    assert trained.returncode == 0, trained.stderr
    planned = isocompute("allocate", "runs/coins", "--budget", "200k", "--json")
    assert planned.returncode == 0, planned.stderr
    plan = json.loads(planned.stdout)
    assert 0 < plan["rollouts"] <= 200_000


def test_a_typing_error_in_its_options_is_met_with_the_right_name(site: Path, isocompute: Command) -> None:
    study = site / "coins.yaml"
    study.write_text(study.read_text().replace("coins: 100", "coin: 100"))
    done = isocompute("run", "coins.yaml")
    assert done.returncode != 0
    assert "Did you mean coins?" in done.stderr
