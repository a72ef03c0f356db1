"""PPO: generalised advantages, their normalisation over the batch, and the clipped value loss."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from isocompute_torch.losses import generalised_advantages, normalised_over_tokens, token_rewards, value_loss
from tests.backends.torch_losses.batches import Batch, gradient, random_batch, seeds, seen, token_mean


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


@settings(max_examples=30, deadline=None)
@given(seed=seeds)
def test_with_lambda_and_gamma_one_every_return_is_the_final_reward(seed: int) -> None:
    batch = random_batch(seed)
    reward_RT = token_rewards(batch.advantage_R, batch.mask_RT)
    _, return_RT = generalised_advantages(reward_RT, batch.old_value_RT, batch.mask_RT, gamma=1.0, lam=1.0)
    expected_RT = batch.advantage_R.unsqueeze(-1) * batch.mask_RT
    torch.testing.assert_close(return_RT, expected_RT, rtol=1e-12, atol=1e-12)


def test_gae_passes_no_gradient_to_the_values() -> None:
    value_RT = torch.zeros(1, 2, requires_grad=True)
    for out in generalised_advantages(torch.ones(1, 2), value_RT, torch.ones(1, 2), gamma=1.0, lam=0.9):
        assert not out.requires_grad


def test_token_rewards_charge_the_penalty_at_every_sampled_token() -> None:
    mask_RT = torch.tensor([[1.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    penalty_RT = torch.tensor([[0.1, 0.2, math.nan], [0.3, 9.0, 9.0], [9.0, 9.0, 9.0]])
    found_RT = token_rewards(torch.tensor([1.0, math.nan, 1.0]), mask_RT, penalty_RT)
    torch.testing.assert_close(found_RT, torch.tensor([[-0.1, 0.8, 0.0], [-0.3, 0.0, 0.0], [0.0, 0.0, 0.0]]))


@settings(max_examples=50, deadline=None)
@given(seed=seeds)
def test_normalised_advantages_have_mean_zero_and_unbiased_standard_deviation_one(seed: int) -> None:
    batch = random_batch(seed)
    used_RT = batch.mask_RT > 0
    found_RT = normalised_over_tokens(batch.advantage_RT, batch.mask_RT, std_epsilon=0.0)
    assert not found_RT[~used_RT].any()
    assert found_RT[used_RT].mean().item() == pytest.approx(0, abs=1e-12)
    assert found_RT[used_RT].std().item() == pytest.approx(1, rel=1e-9)


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


def test_constant_advantages_are_normalised_to_zero() -> None:
    assert not normalised_over_tokens(torch.full((2, 3), 0.5), torch.ones(2, 3), std_epsilon=1e-6).any()


@pytest.mark.parametrize(
    ("value", "loss", "slope"),
    [
        # V_old = 1, G = 2, clip = 0.5. Inside the interval: plain squared error.
        (1.2, 0.5 * 0.8**2, -0.8),
        # Past the interval towards the target: held at V_old + 0.5, no gradient.
        (1.9, 0.5 * 0.5**2, 0.0),
        # Past the interval away from the target: the plain error is the larger one.
        (0.1, 0.5 * 1.9**2, -1.9),
        # Overshot far past the target: the plain error is the larger one again.
        (3.0, 0.5 * 1.0**2, 1.0),
    ],
)
def test_value_clipping_by_hand(value: float, loss: float, slope: float) -> None:
    value_RT = torch.tensor([[value]], dtype=torch.float64, requires_grad=True)
    one_RT = torch.ones(1, 1, dtype=torch.float64)
    rows = seen(one_RT, value_RT=value_RT, old_value_RT=one_RT, return_RT=2 * one_RT)
    found = value_loss(rows, token_mean(1), clip=0.5)
    assert found.value.item() == pytest.approx(loss, rel=1e-12)
    assert torch.autograd.grad(found.value, value_RT)[0].item() == pytest.approx(slope, rel=1e-12)
    assert found.stats["value_clipped_share"] == float(slope == 0)


@settings(max_examples=30, deadline=None)
@given(seed=seeds, clip=st.floats(0.01, 2))
def test_the_clipped_value_loss_never_lies_below_the_plain_one(seed: int, clip: float) -> None:
    batch = random_batch(seed)
    mean = token_mean(6, normaliser=1.0)
    clipped, plain = (value_loss(batch.seen(), mean, clip=limit).value for limit in (clip, None))
    assert clipped >= plain


def test_on_the_first_update_the_value_gradient_is_the_plain_error() -> None:
    batch = random_batch(9)
    rows = replace(batch.seen(), old_value_RT=batch.value_RT.detach())
    loss = value_loss(rows, token_mean(6, normaliser=7.0), clip=0.5)
    error_RT = (batch.value_RT - batch.advantage_RT).detach() * batch.mask_RT / 7
    expected = torch.cat([torch.zeros(batch.logits_RTV.numel()).double(), error_RT.flatten()])
    torch.testing.assert_close(gradient(loss.value, batch), expected, rtol=1e-12, atol=1e-14)
