"""What careless calls get: one `IsoComputeError` that says what was received, what is accepted and what to do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import isocompute_sdk as iso

STEPS = {"n": [4] * 4 + [16] * 4, "bp": [16] * 8, "step": [1, 2, 3, 4] * 2, "step_seconds": [20.5] * 4 + [25.5] * 4}


@pytest.fixture(scope="module")
def runs() -> iso.RunSet:
    compute = np.geomspace(2e3, 2e5, 10)
    rows = [(n, 16, c, 0.3 + 0.05 * np.log2(n) * -np.expm1(-c / (2e3 * n))) for n in (4, 16) for c in compute]
    return iso.RunSet.from_columns(
        dict(zip(("n", "bp", "C", "avg@4"), map(list, zip(*rows, strict=True)), strict=True))
    )


@pytest.fixture(scope="module")
def planner(runs: iso.RunSet) -> iso.Planner:
    return iso.Planner(iso.fit(runs, draws=10))


Call = Callable[[Any, Any], object]
CALLS: dict[str, tuple[Call, str]] = {
    "reward as text": (lambda r, p: p.budget_for("0.5"), "reward = '0.5'; accepted: within the metric's range"),
    "reward is none": (lambda r, p: p.budget_for(None), "reward = None; accepted"),
    "configuration is none": (lambda r, p: p.compare(None, "1M"), "configuration None; accepted"),
    "configuration is a number": (lambda r, p: p.compare(5, "1M"), "configuration 5; accepted"),
    "configuration of four": (lambda r, p: p.compare((8, 16, 9, 1), "1M"), "accepted: .n, B_p. or .n, B_p, M."),
    "configuration in superscript": (lambda r, p: p.compare("n=²,bp=16", "1M"), "configuration n = '²'"),
    "level as text": (lambda r, p: p.marginal("1M", level="x"), "level = 'x'; accepted: between 0 and 1"),
    "complex compute": (lambda r, p: iso.AllocationLaw.fit(np.array([1e4j, 1e5]), [8, 16]), "must be numbers"),
    "a law of complex compute": (lambda r, p: p.fits.predict(np.array([1e4j]), 8), "must be numbers"),
    "fits set of anything": (lambda r, p: iso.FitsSet({"avg@4": 3}), "FitsSet: received .*accepted: a mapping"),  # pyright: ignore
    "fits set of a number": (lambda r, p: iso.FitsSet(3), "FitsSet: received 3"),  # pyright: ignore
    "health of nothing": (lambda r, p: iso.check_health(None), "runs: received None"),  # pyright: ignore
    "speed of nothing": (lambda r, p: iso.Throughput.measure(None), "runs: received None"),  # pyright: ignore
    "no gpus": (lambda r, p: iso.Throughput.measure(r, gpus=0), "gpus = 0; accepted: whole numbers, 1 or more"),
    "audit with a word as seed": (lambda r, p: iso.audit(r, rng="a"), "rng = 'a'; accepted: a whole number"),  # pyright: ignore
    "audit with fewer than no draws": (lambda r, p: iso.audit(r, draws=-1), "draws = -1; accepted"),
    "audit within words": (lambda r, p: iso.audit(r, bounds="01"), "bounds = '01'; accepted"),  # pyright: ignore
    "filter by text": (lambda r, p: r.filter("n=4"), "filter: received 'n=4'; accepted: polars expressions"),
    "a law by a list": (lambda r, p: iso.published(["x"]), "no published law"),  # pyright: ignore
}


@pytest.mark.parametrize("case", CALLS)
def test_a_careless_call_is_told_what_to_do(runs: iso.RunSet, planner: iso.Planner, case: str) -> None:
    call, message = CALLS[case]
    with pytest.raises(iso.IsoComputeError, match=message) as caught:
        call(runs, planner)
    assert caught.value.hint


def test_good_calls_of_the_same_names_answer(runs: iso.RunSet, planner: iso.Planner) -> None:
    assert planner.budget_for(np.float64(0.4)).metric == "avg@4"
    assert planner.compare("n=8,bp=16", "1M") == planner.compare((8, 16), "1M")
    assert iso.FitsSet({"avg@4": planner.fits}).first is planner.fits
    speed = iso.Throughput.measure(iso.RunSet.from_columns(STEPS), gpus=np.int64(8))  # pyright: ignore
    assert speed.gpus == 8
    assert iso.audit(runs, bounds=(0, 1), draws=5, rng=1).groups
