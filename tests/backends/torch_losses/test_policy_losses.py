"""The policy loss against closed forms on a softmax bandit, and the importance weights inside it."""

from __future__ import annotations

import math

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from isocompute_torch.losses import Mean, group_advantages, policy_loss, truncated_importance
from tests.backends.torch_losses.batches import seeds, seen, token_mean


def bandit(theta_V: torch.Tensor, arm_R: torch.Tensor, temperature: float = 1.0) -> torch.Tensor:
    """log pi(arm) of a softmax bandit: responses of one token; shape (R, 1)."""
    return (theta_V / temperature).log_softmax(-1)[arm_R].unsqueeze(-1)


@settings(max_examples=25, deadline=None)
@given(
    seed=seeds,
    arms=st.integers(2, 6),
    groups=st.integers(1, 4),
    n=st.integers(2, 8),
    temperature=st.sampled_from([0.6, 1.0, 2.0]),
)
def test_gradient_equals_the_closed_form_on_a_softmax_bandit(
    seed: int, arms: int, groups: int, n: int, temperature: float
) -> None:
    generator = torch.Generator().manual_seed(seed)
    theta_V = torch.randn(arms, generator=generator, dtype=torch.float64, requires_grad=True)
    arm_R = torch.randint(arms, (groups * n,), generator=generator)
    reward_R = torch.rand(arms, generator=generator, dtype=torch.float64).round(decimals=1)[arm_R]
    advantage_R = group_advantages(reward_R, n).advantage_R
    logprob_R1 = bandit(theta_V, arm_R, temperature)
    value = policy_loss(seen(logprob_R1, advantage=advantage_R), token_mean(groups * n), tis_cap=None).value
    # d/d theta_v of -mean_r A_r log pi(a_r) = -mean_r A_r (1[a_r = v] - pi_v) / temperature
    policy_V = (theta_V / temperature).softmax(-1).detach()
    onehot_RV = torch.nn.functional.one_hot(arm_R, arms).double()
    expected_V = -(advantage_R.unsqueeze(-1) * (onehot_RV - policy_V)).mean(0) / temperature
    torch.testing.assert_close(torch.autograd.grad(value, theta_V)[0], expected_V, rtol=1e-10, atol=1e-10)


def test_the_importance_weight_makes_a_mismatched_sampler_unbiased() -> None:
    """Exact expectation over the sampler: sum_a mu(a) grad L(a) = -grad sum_a pi(a) A(a) while no weight is capped."""
    theta_V = torch.tensor([0.5, -0.3, 0.1, 1.0], dtype=torch.float64, requires_grad=True)
    sampler_V = (theta_V.detach() + torch.tensor([0.4, -0.5, 0.2, -0.1], dtype=torch.float64)).softmax(-1)
    advantage_V = torch.tensor([1.0, -2.0, 0.5, 0.0], dtype=torch.float64)
    arms = torch.arange(4)
    found = {}
    for cap in (None, 1.2, 1e9):
        rows = seen(bandit(theta_V, arms), sampled_logprob_RT=sampler_V.log().unsqueeze(-1), advantage=advantage_V)
        value = policy_loss(rows, token_mean(sampler_V, 1.0), tis_cap=cap).value
        found[cap] = torch.autograd.grad(value, theta_V)[0]
    objective = (theta_V.softmax(-1) * advantage_V).sum()
    expected_V = -torch.autograd.grad(objective, theta_V)[0]
    torch.testing.assert_close(found[1e9], expected_V, rtol=1e-12, atol=1e-14)
    for biased in (None, 1.2):
        assert (found[biased] - expected_V).abs().max() > 1e-2


def test_importance_weights_are_capped_and_detached() -> None:
    old_RT = torch.tensor([[-1.0, -1.0, -1.0, -1.0]], requires_grad=True)
    sampled_RT = torch.tensor([[-1.0, -4.0, -0.5, -90.0]])
    rows = seen(old_RT, sampled_logprob_RT=sampled_RT)
    weight_RT = truncated_importance(rows, torch.tensor([[1.0, 1.0, 1.0, 0.0]]), 2.0)
    torch.testing.assert_close(weight_RT, torch.tensor([[1.0, 2.0, math.exp(-0.5), 1.0]]))
    assert not weight_RT.requires_grad
    assert torch.equal(truncated_importance(rows, torch.ones(1, 4), None), torch.ones(1, 4))


def test_the_decoupled_gradient_averages_to_that_of_the_whole_group() -> None:
    """Over the cyclic orders of a group every rollout trains equally often, so the mean is the coupled gradient."""
    theta_V = torch.tensor([0.1, -0.4, 0.9], dtype=torch.float64, requires_grad=True)
    arm_N = torch.tensor([0, 1, 2, 2, 0, 1, 1, 2])
    reward_V = torch.tensor([0.0, 1.0, 0.3], dtype=torch.float64)

    def gradient(arm_N: torch.Tensor, n_train: int | None) -> torch.Tensor:
        group = group_advantages(reward_V[arm_N], 8, n_train=n_train)
        mean = Mean.of_batch(torch.ones(8, 1), "token-mean", group.row_weight(zero_variance_filter=False))
        assert mean.normaliser == (n_train or 8)
        value = policy_loss(seen(bandit(theta_V, arm_N), advantage=group.advantage_R), mean, tis_cap=None).value
        return torch.autograd.grad(value, theta_V)[0]

    shifted = torch.stack([gradient(arm_N.roll(shift), 3) for shift in range(8)])
    torch.testing.assert_close(shifted.mean(0), gradient(arm_N, None), rtol=1e-12, atol=1e-14)
    assert (shifted - shifted.mean(0)).abs().max() > 1e-2
