"""Where runs end above every curve, predictions follow their ends; elsewhere nothing changes.

The runs are GRPO by TRL 1.16 on a small task (sweep `trl-copy`): slow rises, then
sudden ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import isocompute_sdk as iso
from isocompute_sdk.errors import FieldError
from isocompute_sdk.fitting.surface.data import SurfaceRun, prepare
from isocompute_sdk.fitting.surface.ends import Ends
from isocompute_sdk.fitting.surface.surface import fit_surface
from isocompute_sdk.planning.experiment.wider import widened

MakeSweep = Callable[..., list[SurfaceRun]]
RECORDED = Path(__file__).parents[4] / "isocompute_sdk" / "laws" / "data" / "sweeps" / "trl-copy.csv"
END = 20_000


@pytest.fixture(scope="module")
def pilot() -> iso.RunSet:
    task = iso.RunSet.read(str(RECORDED)).filter(pl.col("run_id").str.starts_with("trl-copy"), seed=0)
    return task.filter(pl.col("rollouts") <= END)


@pytest.fixture(scope="module")
def fits(pilot: iso.RunSet) -> iso.Fits:
    return iso.fit(pilot, "avg@16")


def test_predictions_follow_the_end_of_a_run_that_rose_at_once(pilot: iso.RunSet, fits: iso.Fits) -> None:
    (run,) = pilot.filter(group_size=4).series("avg@16")
    assert run.value_T[-3:].min() > 0.93
    assert fits.surface is not None
    assert fits.surface.ends is not None
    without = replace(fits.surface, ends=None)
    assert float(without.predict(END, 4)[0]) < 0.7
    assert float(fits.surface.predict(END, 4)[0]) > 0.88
    later = [float(fits.surface.predict(compute, 4)[0]) for compute in (END, 2 * END, 4 * END)]
    assert later == sorted(later)
    # Most of the rise before the end is the curves' own.
    assert float(fits.surface.predict(END / 4, 4)[0]) == pytest.approx(float(without.predict(END / 4, 4)[0]), abs=0.01)


def test_the_note_lowers_the_verdict(fits: iso.Fits) -> None:
    (note,) = [note for note in fits.notes if note.code == "run-ends-missed"]
    assert note.severity == "warning"
    assert set(note.data["missed"]) == {"4"}
    plan = iso.Planner(fits).allocate(2 * END)
    assert plan.group_size == 4
    assert plan.verdict.kind not in ("clear", "stop-spending")


def test_a_fit_that_follows_its_runs_has_none(make_sweep: MakeSweep) -> None:
    for noise in (0.005, 0.02):
        surface = fit_surface(prepare(make_sweep(noise=noise)), (0.0, 1.0), 60, np.random.default_rng(0))
        assert surface.ends is None


def test_a_run_that_is_shifted_as_a_whole_is_not_followed(make_sweep: MakeSweep) -> None:
    runs = make_sweep(seeds=2)
    shifted = [replace(runs[0], reward_T=np.minimum(runs[0].reward_T + 0.2, 1.0)), *runs[1:]]
    assert fit_surface(prepare(shifted), (0.0, 1.0), 60, np.random.default_rng(0)).ends is None


def test_they_are_saved_and_carried_beyond_the_grid(fits: iso.Fits, tmp_path: Path) -> None:
    fits.save(tmp_path / "fits.json")
    loaded = iso.Fits.load(tmp_path / "fits.json")
    assert loaded.surface is not None
    assert fits.surface is not None
    assert loaded.surface.predict(END, [4, 8, 16]).tobytes() == fits.surface.predict(END, [4, 8, 16]).tobytes()
    wide = widened(fits.surface, 1, 1, np.random.default_rng(0))
    assert np.allclose(wide.predict(END, [4, 8, 16]), fits.surface.predict(END, [4, 8, 16]))


def test_shares_are_checked(fits: iso.Fits) -> None:
    with pytest.raises(FieldError, match="share"):
        Ends(np.array([0.0, 1.5]), {4: 0.3})
    assert fits.surface is not None
    with pytest.raises(FieldError, match="ends"):
        replace(fits.surface, ends=Ends(np.zeros(2), {4: 0.3}))


def test_a_large_n_that_only_fell_so_far_does_not_lose_its_gain(make_run: Callable[..., SurfaceRun]) -> None:
    small, large = (np.append(0.0, np.geomspace(first, last, 38)) for first, last in ((3e4, 1.2e6), (2.6e5, 8e6)))
    runs = [
        make_run(lambda c: 0.41 - 0.1 * np.exp(-c / 3e5), small, noise=0.01, group_size=4, run_id="a"),
        make_run(
            lambda c: 0.235 - 0.12 * np.linspace(0, 1, len(c)) ** 8,
            large,
            noise=0.01,
            seed=1,
            group_size=1024,
            run_id="b",
        ),
    ]
    assert fit_surface(prepare(runs), (0.0, 1.0), 60, np.random.default_rng(0)).ends is None
