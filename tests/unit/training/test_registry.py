"""Backends found through entry points, with the ways in which a plug-in can be broken."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from isocompute_sdk import RunSet
from isocompute_sdk.errors import BackendError
from isocompute_sdk.training import registry
from tests.packages import note_installed

Install = Callable[..., None]

GOOD = """
class Mine:
    name = "mine"
    def describe(self): return "described"
    def preflight(self, run): return ()
    def script(self, run): return "#!/bin/sh"
    def prepare(self, run, folder): raise OSError
    def read_records(self, folder): raise OSError
"""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Install a distribution with one module and some entry points, as pip would leave it on disk."""
    monkeypatch.syspath_prepend(tmp_path)

    def add(distribution: str, module: str, source: str, *entries: str) -> None:
        (tmp_path / f"{module}.py").write_text(source)
        named = dict(entry.split(" = ") for entry in entries)
        note_installed(tmp_path, distribution, entries={"isocompute.backends": named})
        monkeypatch.syspath_prepend(tmp_path)  # also drops the finder's caches

    return add


def test_only_runs_of_one_framework_that_has_a_backend_have_one() -> None:
    def backend_of(*frameworks: str | None) -> str | None:
        sizes = [2**i for i in range(1, 1 + len(frameworks))]
        columns = {"n": sizes, "framework": [*frameworks], "avg@4": [0.5] * len(sizes)}
        return registry.backend_of(RunSet.from_columns(columns, problems_per_batch=32, step=1))

    assert backend_of("verl", "verl") == "verl"
    for frameworks in ([None], ["verl", None], ["verl", "trl"], ["a-framework-without-backend"]):
        assert backend_of(*frameworks) is None


def test_listing_imports_nothing_and_a_broken_plug_in_harms_no_other(install: Install) -> None:
    install("broken", "broken_backend", "raise ImportError('needs torch')", "broken = broken_backend:Nothing")
    install("acme", "acme_backend2", GOOD, "mine = acme_backend2:Mine")
    assert {"broken", "mine"} <= set(registry.available())
    assert registry.load("mine").name == "mine"


def test_a_name_registered_twice_is_an_error_that_names_both(install: Install) -> None:
    install("acme", "acme_backend4", GOOD, "mine = acme_backend4:Mine")
    install("other", "other_backend", GOOD, "mine = other_backend:Mine")
    assert registry.available().count("mine") == 1
    with pytest.raises(
        BackendError, match=r"2 times: acme_backend4:Mine from acme 1\.0; other_backend:Mine from other"
    ):
        registry.load("mine")
    assert registry.load("openrlhf").name == "openrlhf"


@pytest.mark.parametrize(
    ("module", "text", "name", "says"),
    [
        ("lacking", "class Mine:\n    name = 'mine'\n    script = None\n", "mine", "describe, preflight, prepare"),
        ("misnamed", GOOD, "yours", r"'yours'.*'mine'"),
    ],
)
def test_what_is_no_backend_of_its_name_is_refused(
    install: Install, module: str, text: str, name: str, says: str
) -> None:
    install("acme", module, text, f"{name} = {module}:Mine")
    with pytest.raises(BackendError, match=says):
        registry.load(name)
