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
    "a picture of a number": (lambda r, p: iso.plot(3), "received 3 .int.; accepted: fits, a plan"),  # pyright: ignore
    "a page of a number": (lambda r, p: iso.report(3), "received 3 .int.; accepted: a plan"),  # pyright: ignore
    "a configuration without names": (lambda r, p: p.compare("16", "1M"), "configuration '16'; accepted: n=N,bp=BP"),
    "no gpus": (lambda r, p: iso.Throughput.measure(r, gpus=0), "gpus = 0; accepted: whole numbers, 1 or more"),
    "audit with a word as seed": (lambda r, p: iso.audit(r, rng="a"), "rng = 'a'; accepted: a whole number"),  # pyright: ignore
    "audit with fewer than no draws": (lambda r, p: iso.audit(r, draws=-1), "draws = -1; accepted"),
    "audit within words": (lambda r, p: iso.audit(r, bounds="01"), "bounds = '01'; accepted"),  # pyright: ignore
    "filter by text": (lambda r, p: r.filter("n=4"), "filter: received 'n=4'; accepted: polars expressions"),
    "bounds without end": (lambda r, p: iso.fit(r, bounds=(-1e300, 1e300)), "bounds = .*accepted: .lowest, highest"),
    "bounds beyond floats": (lambda r, p: iso.fit(r, bounds=(0, 10**400)), "bounds = .*accepted: .lowest, highest"),
    "metrics in a set": (lambda r, p: iso.fit(r, {"avg@4"}), "metric is {'avg@4'}; accepted: .* a list of them"),  # pyright: ignore
    "a script without a plan": (lambda r, p: iso.launch_script(None), "plan: received None .*accepted: a Plan"),  # pyright: ignore
    "runs from nothing": (lambda r, p: iso.RunSet.from_dict(None), "received 'NoneType'; accepted: 'columns'"),  # pyright: ignore
    "fits from nothing": (lambda r, p: iso.Fits.from_dict(None), "holds 'NoneType', not saved fits"),  # pyright: ignore
    "fits from an empty mapping": (lambda r, p: iso.Fits.from_dict({}), "holds None, not saved fits"),
    "fits without a metric": (
        lambda r, p: iso.Fits.from_dict({k: v for k, v in p.fits.to_dict().items() if k != "metric"}),
        "digest: received",
    ),
    "a plan from an empty mapping": (lambda r, p: iso.Plan.from_dict({}), "holds None, not a saved plan"),
    "a plan of another version": (
        lambda r, p: iso.Plan.from_dict(p.allocate("1M").to_dict() | {"schema_version": 1}),
        "the mapping: schema_version: received 1; this release reads",
    ),
    "odds at two budgets": (lambda r, p: p.fits.group_size_odds([1e4, 1e5]), "compute: received .*accepted: one"),
    "odds of no n": (lambda r, p: p.fits.group_size_odds(1e4, []), r"group_sizes = \[\]; accepted: at least one"),
    "odds of half an n": (lambda r, p: p.fits.group_size_odds(1e4, [4.5]), "accepted: at least one whole number"),
    "odds in falling order": (lambda r, p: p.fits.group_size_odds(1e4, [16, 4]), "whole number, increasing"),
    "odds of n = 0": (lambda r, p: p.fits.group_size_odds(1e4, [0, 4]), "must be positive and finite"),
    "odds far from the grid": (lambda r, p: p.fits.group_size_odds(1e4, [2, 4]), "group_size 2; accepted: 4 to 32"),
    "odds at a negative B_p": (lambda r, p: p.fits.group_size_odds(1e4, None, -3), "problems_per_batch = -3; accepted"),
    "best n at a word": (lambda r, p: p.fits.best_group_size(1e4, "x"), "problems_per_batch = 'x'; accepted"),
    "nearest to no B_p": (lambda r, p: p.fits.nearest_problems_per_batch(0), "problems_per_batch = 0; accepted"),
    "a number too large": (lambda r, p: p.fits.predict(10**400, 8), "must be numbers"),
    "a date as compute": (lambda r, p: p.fits.predict(np.datetime64("2026-01-01"), 8), "must be numbers"),
    "several kinds": (lambda r, p: p.fits.predict(1e4, 8, kind=np.array(["mean", "run"])), "kind = array.*accepted"),
    "all but certain": (lambda r, p: p.fits.predict(1e4, 8, level=1 - 1e-16, kind="run"), "level = 0.9999.*accepted"),
    "laws by a list": (lambda r, p: p.fits.law(["x"]), "unknown law .'x'.; accepted"),
    "an interval of no law": (lambda r, p: p.fits.law_interval(1e4, name="x"), "unknown law 'x'; accepted"),
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
