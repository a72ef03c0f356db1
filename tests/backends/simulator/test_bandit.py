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


def test_the_gradient_sums_to_zero_and_vanishes_where_all_answers_are_alike() -> None:
    many = copies(0.3, 20_000)
    drawn = sampled_gradient(many.logits_PK, many.right_P, 3, np.random.default_rng(0))
    assert np.allclose(drawn.sum(axis=1), 0)
    share = np.mean(np.any(drawn != 0, axis=1))
    assert share == pytest.approx(1 - 0.3**3 - 0.7**3, abs=0.02)


def test_dividing_by_the_groups_spread_gives_advantages_of_one() -> None:
    many = copies(0.3, 200)
    plain, scaled = (
        sampled_gradient(many.logits_PK, many.right_P, 8, np.random.default_rng(1), normalise=flag)
        for flag in (False, True)
    )
    mixed = plain[:, 0] > 0
    assert np.allclose(scaled[mixed, 0] ** 2, plain[mixed, 0])


@pytest.mark.parametrize("n", [4, 64])
def test_training_follows_the_flow_where_steps_are_small(n: int) -> None:
    bandit = copies(0.3, 400)
    *_, last = train_bandit(bandit, n, 400, 400, np.random.default_rng(0), learning_rate=0.05)

    def time_to(p: float) -> float:
        """Time that dp/dt = p^2 (1 - p)^2 takes to p, up to a constant: closed form."""
        return 1 / (1 - p) - 1 / p + 2 * np.log(p / (1 - p))

    # Of the logit of p, an update moves rate (1 - 1/n) p (1 - p) K / (K - 1).
    passed = 400 * 0.05 * (1 - 1 / n) * 5 / 4
    mean = float(last.mean())
    assert time_to(mean - 0.01) < time_to(0.3) + passed < time_to(mean + 0.01)


def test_at_equal_steps_larger_groups_lose_less_and_at_equal_compute_more_steps_win() -> None:
    def lost(n: int, steps: int) -> float:
        *_, last = train_bandit(copies(0.2, 300), n, 300, steps, np.random.default_rng(0), learning_rate=0.5)
        return float(1 - last.mean())

    assert lost(64, 60) < lost(4, 60) < lost(2, 60)
    assert lost(4, 16 * 40) < lost(64, 40)


def test_only_the_problems_of_a_batch_move_unless_features_are_shared() -> None:
    rng = np.random.default_rng(0)
    for sharing in (0.0, 0.5):
        bandit = draw_bandit(rng, problems=40, sharing=sharing)
        before, after = train_bandit(bandit, 64, 1, 1, np.random.default_rng(1), learning_rate=1.0)
        assert np.sum(np.abs(after - before) > 1e-12) == (1 if sharing == 0 else 40)


def test_interference_makes_learning_uneven() -> None:
    def spread(sharing: float) -> float:
        bandit = draw_bandit(np.random.default_rng(3), problems=128, sharing=sharing, features=4, spread=0.1)
        *_, last = train_bandit(bandit, 8, 32, 200, np.random.default_rng(1), learning_rate=1.0)
        return float(last.std())

    assert spread(0.9) > 2 * spread(0.0)


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
