"""Group advantages: statistics, invariances, missing rewards, the decoupled baseline, the zero-variance filter."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from isocompute_torch.losses import group_advantages

NAN = math.nan
tenths = st.integers(-20, 20).map(lambda tenth: tenth / 10)
groups_of_rewards = hnp.arrays(np.float64, st.tuples(st.integers(1, 4), st.integers(2, 9)), elements=tenths)


def with_failures(reward_PN: np.ndarray, seed: int) -> torch.Tensor:
    failed_PN = np.random.default_rng(seed).random(reward_PN.shape) < 0.3
    return torch.from_numpy(np.where(failed_PN, NAN, reward_PN))


def test_a_hand_computed_group() -> None:
    group = group_advantages(torch.tensor([1.0, 0.0, 0.0, 0.0, 2.0, 4.0, 2.0, 4.0]), 4, std_epsilon=0.1)
    std = math.sqrt((0.75**2 + 3 * 0.25**2) / 3) + 0.1
    second = 1 / (math.sqrt(4 / 3) + 0.1)
    expected = torch.tensor([0.75 / std] + [-0.25 / std] * 3 + [-second, second] * 2)
    torch.testing.assert_close(group.advantage_R, expected)
    assert group.zero_variance_share == 0


@settings(max_examples=60, deadline=None)
@given(reward_PN=groups_of_rewards, seed=st.integers(0, 99), normalize=st.booleans())
def test_missing_rewards_leave_the_others_as_if_they_had_never_been_sampled(
    reward_PN: np.ndarray, seed: int, normalize: bool
) -> None:
    reward = with_failures(reward_PN, seed)
    group = group_advantages(reward.flatten(), reward.shape[1], normalize=normalize)
    found_PN = group.advantage_R.view_as(reward)
    assert found_PN.isfinite().all()
    assert torch.equal(group.train_R, ~reward.flatten().isnan())
    for row_N, found_N in zip(reward, found_PN, strict=True):
        known_N = row_N[~row_N.isnan()]
        if len(known_N):
            alone = group_advantages(known_N, len(known_N), normalize=normalize).advantage_R
            torch.testing.assert_close(found_N[~row_N.isnan()], alone, rtol=1e-12, atol=1e-12)
        assert not found_N[row_N.isnan()].any()


def test_zero_variance_is_judged_on_the_rewards_that_are_known() -> None:
    reward_PN = torch.tensor([[1.0, 1.0, NAN], [1.0, 0.0, NAN], [NAN, NAN, 0.0], [NAN, NAN, NAN]])
    group = group_advantages(reward_PN.flatten(), 3)
    assert group.zero_variance_R.view(4, 3)[:, 0].tolist() == [True, False, True, False]
    assert group.zero_variance_share == pytest.approx(2 / 3)


def test_each_term_of_the_loss_has_its_own_zero_variance_filter() -> None:
    group = group_advantages(torch.tensor([1.0, 0.0, 1.0, 1.0, NAN, 0.0]), 2)
    assert group.row_weight(zero_variance_filter=False).tolist() == [1, 1, 1, 1, 0, 1]
    assert group.row_weight(zero_variance_filter=True).tolist() == [1, 1, 0, 0, 0, 0]


def test_a_decoupled_baseline_uses_all_rollouts_and_trains_on_the_first_ones_with_a_reward() -> None:
    reward_R = torch.tensor([NAN, 1.0, 0.0, 1.0, 0.0, 0.0, 1.0, NAN])
    decoupled, coupled = group_advantages(reward_R, 4, n_train=2), group_advantages(reward_R, 4)
    assert torch.equal(decoupled.advantage_R, coupled.advantage_R)
    assert decoupled.train_R.tolist() == [False, True, True, False, True, True, False, False]
