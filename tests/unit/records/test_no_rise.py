"""Whether rewards show no rise: against curves of known kind and Kendall's own test."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import isocompute_sdk as iso
from isocompute_sdk.records import RunSet
from isocompute_sdk.records.reward_metrics import no_rise

seeds = st.integers(0, 2**32 - 1)


@given(seeds, st.integers(5, 300), st.integers(1, 4))
def test_a_rise_above_the_noise_is_seen(seed: int, count: int, runs: int) -> None:
    rng = np.random.default_rng(seed)
    curves = [0.3 + 0.2 * np.linspace(0, 1, count) + 1e-3 * rng.standard_normal(count) for _ in range(runs)]
    assert not no_rise(curves)


@given(seeds, st.integers(1, 4))
def test_few_values_cannot_tell(seed: int, count: int) -> None:
    assert not no_rise([np.random.default_rng(seed).random(count)])


@pytest.mark.parametrize("count", [8, 9, 12, 50])
def test_noise_shows_no_rise_in_most_cases(count: int) -> None:
    rng = np.random.default_rng(count)
    flat = [no_rise([rng.random(count)]) for _ in range(2000)]
    # Three one-sided tests, 5 % together.
    assert 0.92 < np.mean(flat) < 0.995


@given(seeds, st.integers(8, 100))
def test_what_kendalls_test_calls_a_rise_is_one(seed: int, count: int) -> None:
    rng = np.random.default_rng(seed)
    values = rng.random(count) + rng.uniform(0, 0.5) * np.linspace(0, 1, count)
    from scipy.stats import kendalltau  # takes longer than all other tests of this file

    found = kendalltau(np.arange(count), values, alternative="greater")
    if found.pvalue < 0.015:
        assert not no_rise([values])


def test_two_values_near_zero_do_not_hide_a_rise() -> None:
    rewards = [0.504, 0.771, 0.783, 0.672, 0.444, 0.793, 0.803, 0.807, 0.754, 0.802, 0.814, 0.0, 0.489]
    assert not no_rise([np.array(rewards)])


def test_a_run_that_never_rises_is_left_out_where_its_neighbours_rise() -> None:
    rng, steps = np.random.default_rng(3), np.arange(0, 401, 20)
    still = ("n8-s0", "n12-s0", "n32-s0", "n2-s0")
    parts = []
    for name in ("n4-s0", "n4-s1", "n8-s1", "n16-s0", *still):
        n = int(name[1:].split("-")[0])
        rise = 0.0 if name in still else 0.45 * (1 - np.exp(-steps * n / 1500))
        # That one has lost its entropy too, which is no fall.
        part = {"step": steps, "avg@4": 0.22 + rise + rng.normal(0, 0.01, len(steps)), "entropy": 1.0 + 0 * steps}
        part["entropy"][5:] = 0.01 if name == "n8-s0" else 1.0
        parts.append(pl.DataFrame(part).with_columns(run_id=pl.lit(name), n=pl.lit(n), bp=pl.lit(64)))
    runs = RunSet.from_frame(pl.concat(parts))
    fits = iso.fit(runs, "avg@4")
    assert "entropy-collapse" in {note.code for note in fits.notes}
    told = [note.data for note in fits.notes if note.code == "outlying-run"]
    assert [one.get("left_out") for one in told] == [["n8-s0", "n12-s0"], None]
    # Whether the run of n = 2 failed or so small an n does, no other says: it counts, and leaves n in doubt. That of
    # n = 32 may not have risen yet.
    assert told[1]["at_edge"] == ["n2-s0"]
    assert "outlying-run" in fits.doubts
    kept = [info.run_id for info in runs.runs() if info.run_id not in still[:2]]
    assert fits.curves == iso.fit(runs.filter(run_id=kept), "avg@4").curves
