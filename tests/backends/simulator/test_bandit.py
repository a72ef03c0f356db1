"""The bandit's closed forms agree with what is sampled and trained."""

from __future__ import annotations

import numpy as np
import pytest

from isocompute_simulator.bandit import Bandit, draw_bandit, pass_rate, sampled_gradient, train_bandit


def copies(p: float, count: int, answers: int = 5) -> Bandit:
    """The same problem many times over."""
    logits = np.zeros((count, answers))
    logits[:, 0] = np.log(p / (1 - p)) + np.log(answers - 1)
    return Bandit(logits, np.zeros(count, dtype=np.int64))


@pytest.mark.parametrize("p", [0.05, 0.4, 0.9])
@pytest.mark.parametrize("n", [2, 5, 64])
def test_mean_and_variance_of_the_gradient_are_the_closed_forms(p: float, n: int) -> None:
    many = copies(p, 60_000)
    drawn = sampled_gradient(many.logits_PK, many.right_P, n, np.random.default_rng(0))
    # The right logit's gradient is m (1 - m), m the mean of n Bernoulli rewards: exact, from their factorial moments.
    q = p * (1 - p)
    mean = (1 - 1 / n) * q
    variance = (n * (n - 1) * q * ((n - 2) * (n - 3) * q + n - 1) - (n * (n - 1) * q) ** 2) / n**4
    error = np.sqrt(variance / len(drawn))
    assert drawn[:, 0].mean() == pytest.approx(mean, abs=5 * error)
    assert drawn[:, 1:].mean() == pytest.approx(-mean / 4, abs=5 * error)
    assert drawn[:, 0].var() == pytest.approx(variance, rel=0.1)


def test_at_equal_steps_larger_groups_lose_less_and_at_equal_compute_more_steps_win() -> None:
    def lost(n: int, steps: int) -> float:
        *_, last = train_bandit(copies(0.2, 300), n, 300, steps, np.random.default_rng(0), learning_rate=0.5)
        return float(1 - last.mean())

    assert lost(64, 60) < lost(4, 60) < lost(2, 60)
    assert lost(4, 16 * 40) < lost(64, 40)


def test_pass_rates_are_probabilities_of_the_right_answer_and_training_repeats_exactly() -> None:
    bandit = draw_bandit(np.random.default_rng(0), problems=30)
    start = pass_rate(bandit.logits_PK, bandit.right_P)
    assert np.log(start / (1 - start)).mean() == pytest.approx(-0.7, abs=0.6)
    first, again = (
        np.stack(list(train_bandit(bandit, 4, 8, 20, np.random.default_rng(7), record_at=[0, 5, 20]))) for _ in "ab"
    )
    assert first.shape == (3, 30)
    assert np.array_equal(first, again)
    assert np.allclose(first[0], start)
