"""Fits, and pages made from them, for tests of the report."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from isocompute_sdk import api
from isocompute_sdk.fitting.fits import Fits
from isocompute_sdk.records import RunSet
from isocompute_sdk.reporting.material import Asked, Material, gather
from isocompute_sdk.reporting.page import Page
from isocompute_sdk.reporting.report import build
from isocompute_sdk.specs import Budget

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)> \"quoted\" 'n' {b} & @n8 \u202e8=n"
"""A name that would run if any part of the page took it for markup."""


@pytest.fixture(scope="session")
def hostile_runs(make_runs: Callable[..., RunSet]) -> RunSet:
    """Four configurations whose run ids and model are markup."""
    import polars as pl

    plain = make_runs(model=HOSTILE).to_polars()
    return RunSet.from_frame(plain.with_columns(pl.col("run_id") + HOSTILE))


@pytest.fixture(scope="session")
def fits(hostile_runs: RunSet) -> Fits:
    """A surface with few draws, which makes plans quickly."""
    return api.fit(hostile_runs, "avg@4", draws=24)


@pytest.fixture(scope="session")
def fits_file(fits: Fits, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fits.save(tmp_path_factory.mktemp("pages") / "fits.json")


@pytest.fixture(scope="session")
def material(fits_file: Path) -> Material:
    return gather(fits_file, Asked(budget=Budget(rollouts=3e6), compare="n=8,bp=32"))


@pytest.fixture(scope="session")
def page(material: Material) -> Page:
    return build(material)


@pytest.fixture(scope="session")
def prior_page() -> Page:
    return build(gather(api.published_prior(), Asked(budget=Budget(rollouts=3e6))))
