"""The surface where the answer is known: no noise, ever more evaluations, nothing but noise, and one n."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from isocompute_sdk import Fits, Planner, RunSet, fit
from tests.parameters import few
from tests.unit.sweeps import codes

SIZES = (4, 16, 64)
AT = np.array([1e5, 3e5, 1e6])


def curve(n: np.ndarray, compute: np.ndarray) -> np.ndarray:
    """Larger n rises later and higher."""
    return 0.35 + (0.08 + 0.03 * np.log2(n)) * -np.expm1(-compute / (2e4 * n**0.7))


def fitted(
    evaluations: int,
    noise: float,
    *,
    sizes: tuple[int, ...] = SIZES,
    reward: Callable[[np.ndarray, np.ndarray], np.ndarray] = curve,
) -> Fits:
    compute = np.concatenate([[0.0], np.geomspace(5e3, 1e6, evaluations)])
    size, at = np.repeat(sizes, len(compute)), np.tile(compute, len(sizes))
    value = reward(size, at) + noise * np.random.default_rng(evaluations).standard_normal(len(at))
    found = fit(RunSet.from_columns({"n": size, "C": at, "avg@4": value}, problems_per_batch=32), draws=60)
    assert isinstance(found, Fits)
    return found


def errors(fits: Fits) -> np.ndarray:
    return np.array([fits.predict(AT, n, 32).mean - curve(np.array(n), AT) for n in fits.group_sizes])


def test_without_noise_predictions_are_the_rewards() -> None:
    assert np.abs(errors(fitted(32, 0.0))).max() < 0.005


def test_predictions_tend_to_what_is_measured_as_evaluations_grow() -> None:
    few, many = (float(np.sqrt(np.mean(errors(fitted(count, 0.02)) ** 2))) for count in (8, 512))
    assert many < 0.5 * few
    assert many < 0.005


@pytest.mark.parametrize("seed", few(range(3), 1))
def test_nothing_but_noise_prefers_no_n(seed: int) -> None:
    rng = np.random.default_rng(seed)
    fits = fitted(40, 0.0, reward=lambda n, compute: rng.random(len(compute)))
    assert "no-rise-seen" in codes(fits)
    # Its code, which stands before it, is not said again.
    assert not any(note.message.startswith(note.code.replace("-", " ")) for note in fits.notes)
    plan = Planner(fits).allocate("2M")
    assert plan.verdict.kind in ("undecided", "measure-first")
    assert (plan.odds, plan.gain, plan.group_size_interval) == (None, None, None)
    lows, highs = np.array([(p.low, p.high) for p in (fits.predict(1e6, n, 32) for n in SIZES)]).T
    assert lows.max() < highs.min()


def test_one_n_is_planned_at_it_or_one_octave_above() -> None:
    fits = fitted(64, 0.005, sizes=(16,))
    plan = Planner(fits).allocate("1M")
    assert plan.group_size in (16, 32)
    assert np.abs(errors(fits)).max() < 0.01
