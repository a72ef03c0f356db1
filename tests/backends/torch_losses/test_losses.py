"""The built-in runner's losses against closed forms and brute force."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from torch import Tensor

from isocompute_torch.losses import (
    Estimator,
    Mean,
    Seen,
    entropy_loss,
    generalised_advantages,
    group_advantages,
    kl_estimate,
    kl_loss,
    normalised_over_tokens,
    policy_loss,
    token_entropy,
    token_rewards,
    truncated_importance,
)

seeds = st.integers(0, 2**32 - 1)


@dataclass(frozen=True)
class Batch:
    """Rollouts of different lengths."""

    advantage_RT: Tensor
    old_value_RT: Tensor
    mask_RT: Tensor


def random_batch(seed: int, rows: int = 6) -> Batch:
    length, generator = 5, torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, length + 1, (rows, 1), generator=generator)
    return Batch(
        torch.randn(rows, length, generator=generator, dtype=torch.float64),
        torch.randn(rows, length, generator=generator, dtype=torch.float64),
        (torch.arange(length) < lengths).to(torch.float64),
    )


def seen(logprob_RT: Tensor, **given: Any) -> Seen:
    """A batch of which only these parts matter: on-policy, advantages 0, nothing masked."""
    plain = {
        "sampled_logprob_RT": logprob_RT.detach(),
        "advantage": torch.zeros(len(logprob_RT)),
        "mask_RT": torch.ones(logprob_RT.shape),
    }
    return Seen(logprob_RT, **{**plain, **given})


def token_mean(weight_R: Tensor | int, normaliser: float | None = None) -> Mean:
    """The mean over all tokens with these weights, or of so many rows of weight 1; divided by their number."""
    if isinstance(weight_R, int):
        weight_R = torch.ones(weight_R)
    return Mean("token-mean", float(weight_R.sum()) if normaliser is None else normaliser, weight_R)


def bandit(theta_V: torch.Tensor, arm_R: torch.Tensor, temperature: float = 1.0) -> torch.Tensor:
    """log pi(arm) of a softmax bandit: responses of one token; shape (R, 1)."""
    return (theta_V / temperature).log_softmax(-1)[arm_R].unsqueeze(-1)


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


def policies(seed: int, vocab: int = 6) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    theta_V = torch.randn(vocab, generator=generator, dtype=torch.float64, requires_grad=True)
    reference_V = torch.randn(vocab, generator=generator, dtype=torch.float64).log_softmax(-1)
    return theta_V, reference_V


def expected_loss(theta_V: torch.Tensor, reference_V: torch.Tensor, estimator: Estimator) -> torch.Tensor:
    """sum_v pi(v) k(v), the sampling distribution pi held fixed: each token a row with weight pi(v)."""
    rows = seen(theta_V.log_softmax(-1).unsqueeze(-1), reference_logprob_RT=reference_V.unsqueeze(-1))
    return kl_loss(rows, token_mean(theta_V.detach().softmax(-1), 1.0), estimator=estimator).value


def kl(p_log_V: torch.Tensor, q_log_V: torch.Tensor) -> torch.Tensor:
    return (p_log_V.exp() * (p_log_V - q_log_V)).sum()


@given(seed=seeds)
def test_k1_and_k3_are_unbiased_for_the_kl(seed: int) -> None:
    theta_V, reference_V = policies(seed)
    exact = kl(theta_V.log_softmax(-1), reference_V)
    for estimator in ("k1", "k3"):
        torch.testing.assert_close(expected_loss(theta_V, reference_V, estimator), exact, rtol=1e-12, atol=1e-14)


@given(seed=seeds)
def test_as_a_loss_k2_follows_the_kl_k3_the_reverse_kl_and_k1_nothing(seed: int) -> None:
    theta_V, reference_V = policies(seed)

    def slope(value: torch.Tensor) -> torch.Tensor:
        return torch.autograd.grad(value, theta_V)[0]

    found = {k: slope(expected_loss(theta_V, reference_V, k)) for k in ("k1", "k2", "k3")}
    forward_V = slope(kl(theta_V.log_softmax(-1), reference_V))
    backward_V = slope(kl(reference_V, theta_V.log_softmax(-1)))
    torch.testing.assert_close(found["k2"], forward_V, rtol=1e-11, atol=1e-13)
    torch.testing.assert_close(found["k3"], backward_V, rtol=1e-11, atol=1e-13)
    torch.testing.assert_close(found["k1"], torch.zeros_like(forward_V), rtol=0, atol=1e-13)


@pytest.mark.parametrize(("estimator", "value"), [("k1", 0.5), ("k2", 0.125), ("k3", math.exp(-0.5) - 1 + 0.5)])
def test_estimates_are_those_of_a_hand_computed_token(estimator: Estimator, value: float) -> None:
    found_RT = kl_estimate(
        torch.tensor([[-1.0, -1.0]]), torch.tensor([[-1.5, -9.0]]), torch.tensor([[1.0, 0.0]]), estimator
    )
    torch.testing.assert_close(found_RT, torch.tensor([[value, 0.0]]))


@given(seed=seeds)
def test_entropy_and_its_gradient_equal_the_closed_form_at_any_temperature(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits_V = torch.randn(7, generator=generator, dtype=torch.float64, requires_grad=True)
    temperature = float(torch.rand(1, generator=generator)) + 0.3
    entropy = token_entropy((logits_V / temperature).log_softmax(-1))
    p_V = (logits_V / temperature).softmax(-1).detach()
    exact = -(p_V * p_V.log()).sum()
    torch.testing.assert_close(entropy, exact, rtol=1e-12, atol=1e-14)
    expected_V = -p_V * (p_V.log() + exact) / temperature
    torch.testing.assert_close(torch.autograd.grad(entropy, logits_V)[0], expected_V, rtol=1e-10, atol=1e-13)


def test_a_token_ruled_out_by_an_infinite_logit_adds_nothing() -> None:
    logits_V = torch.tensor([0.3, -math.inf, 1.0], requires_grad=True)
    entropy = token_entropy(logits_V.log_softmax(-1))
    torch.testing.assert_close(entropy, token_entropy(torch.tensor([0.3, 1.0]).log_softmax(-1)))
    slope_V = torch.autograd.grad(entropy, logits_V)[0]
    assert slope_V.isfinite().all()
    assert slope_V[1] == 0


def test_adding_the_entropy_loss_raises_the_entropy() -> None:
    logits_RTV = torch.randn(2, 3, 5, generator=torch.Generator().manual_seed(3), requires_grad=True)
    mask_RT = torch.tensor([[1.0, 1.0, 0.0], [1.0, 0.0, 0.0]])
    entropy_RT = token_entropy(logits_RTV.log_softmax(-1))
    rows = seen(torch.zeros(2, 3), mask_RT=mask_RT, entropy_RT=entropy_RT)
    loss = entropy_loss(rows, token_mean(2, normaliser=3.0))
    assert loss.stats["entropy"] == pytest.approx(-loss.value.item())
    assert loss.stats["entropy"] == pytest.approx(entropy_RT[mask_RT > 0].mean().item())
    stepped_RTV = logits_RTV - torch.autograd.grad(loss.value, logits_RTV)[0]
    change_RT = token_entropy(stepped_RTV.log_softmax(-1)) - entropy_RT
    assert (change_RT[mask_RT > 0] > 0).all()
    assert (change_RT[mask_RT == 0] == 0).all()


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
