"""PPO: generalised advantages, their normalisation over the batch, and the clipped value loss."""

from __future__ import annotations

import math

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from isocompute_torch.losses import generalised_advantages, normalised_over_tokens, token_rewards
from tests.backends.torch_losses.batches import Batch, random_batch, seeds


def brute_force(batch: Batch, reward_RT: torch.Tensor, gamma: float, lam: float) -> torch.Tensor:
    """A_t = sum_k (gamma lam)^k delta_{t+k} term by term, in plain Python."""
    out = torch.zeros_like(reward_RT)
    for r in range(len(reward_RT)):
        length = int(batch.mask_RT[r].sum())
        value = [*batch.old_value_RT[r, :length].tolist(), 0.0]
        delta = [reward_RT[r, t].item() + gamma * value[t + 1] - value[t] for t in range(length)]
        for t in range(length):
            out[r, t] = sum((gamma * lam) ** (k - t) * delta[k] for k in range(t, length))
    return out


def test_a_hand_computed_response() -> None:
    # gamma = 0.5, lambda = 0.5; V = 1, 2, 4; reward 8 at the end.
    # delta = 0 + 1 - 1 = 0;  0 + 2 - 2 = 0;  8 + 0 - 4 = 4;  A_2 = 4, A_1 = 0 + 4/4 = 1, A_0 = 0 + 1/4.
    reward_RT = token_rewards(torch.tensor([8.0]), torch.tensor([[1.0, 1.0, 1.0, 0.0]]))
    assert reward_RT.tolist() == [[0.0, 0.0, 8.0, 0.0]]
    advantage_RT, return_RT = generalised_advantages(
        reward_RT, torch.tensor([[1.0, 2.0, 4.0, 9.0]]), torch.tensor([[1.0, 1.0, 1.0, 0.0]]), gamma=0.5, lam=0.5
    )
    assert advantage_RT.tolist() == [[0.25, 1.0, 4.0, 0.0]]
    assert return_RT.tolist() == [[1.25, 3.0, 8.0, 0.0]]


@settings(max_examples=50, deadline=None)
@given(seed=seeds, gamma=st.floats(0, 1), lam=st.floats(0, 1))
def test_gae_equals_the_brute_force_sum(seed: int, gamma: float, lam: float) -> None:
    batch = random_batch(seed)
    reward_RT = torch.where(batch.mask_RT > 0, batch.advantage_RT, math.nan)
    advantage_RT, return_RT = generalised_advantages(reward_RT, batch.old_value_RT, batch.mask_RT, gamma=gamma, lam=lam)
    torch.testing.assert_close(advantage_RT, brute_force(batch, reward_RT, gamma, lam), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(return_RT, advantage_RT + batch.old_value_RT * batch.mask_RT, rtol=1e-12, atol=1e-12)


def test_token_rewards_charge_the_penalty_at_every_sampled_token() -> None:
    mask_RT = torch.tensor([[1.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    penalty_RT = torch.tensor([[0.1, 0.2, math.nan], [0.3, 9.0, 9.0], [9.0, 9.0, 9.0]])
    found_RT = token_rewards(torch.tensor([1.0, math.nan, 1.0]), mask_RT, penalty_RT)
    torch.testing.assert_close(found_RT, torch.tensor([[-0.1, 0.8, 0.0], [-0.3, 0.0, 0.0], [0.0, 0.0, 0.0]]))


def test_weights_in_the_normalisation_stand_for_copies_and_zero_for_absence() -> None:
    batch = random_batch(8)
    spoiled_RT = batch.advantage_RT.clone()
    spoiled_RT[1] = math.nan
    copies_R = torch.tensor([1, 0, 3, 1, 2, 1])
    rows_R = torch.arange(6).repeat_interleave(copies_R)
    merged_RT = normalised_over_tokens(spoiled_RT, batch.mask_RT, std_epsilon=1e-6, weight_R=copies_R)
    full_RT = normalised_over_tokens(spoiled_RT[rows_R], batch.mask_RT[rows_R], std_epsilon=1e-6)
    torch.testing.assert_close(merged_RT[rows_R], full_RT, rtol=1e-12, atol=1e-12)
    assert not merged_RT[1].any()
