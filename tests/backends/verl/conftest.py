"""Runs for the veRL backend, and veRL's own configuration files."""

from __future__ import annotations

import zipfile
from collections.abc import Callable

import pytest

from isocompute_sdk.specs import RunSpec
from isocompute_verl.flags import VERSION
from tests.backends.framework_runs import run_maker
from tests.backends.verl.composing import Composer
from tests.backends.wheels import cached_wheel


@pytest.fixture(scope="session")
def compose(tmp_path_factory: pytest.TempPathFactory) -> Composer:
    """veRL's real composition of overrides, from the configuration folder of its wheel."""
    folder = tmp_path_factory.mktemp("verl")
    with zipfile.ZipFile(cached_wheel("verl", VERSION)) as wheel:
        names = [name for name in wheel.namelist() if name.startswith("verl/trainer/config/")]
        wheel.extractall(folder, names)
    return Composer(folder / "verl" / "trainer" / "config")


@pytest.fixture(scope="session")
def make_run() -> Callable[..., RunSpec]:
    return run_maker(backend="verl")
