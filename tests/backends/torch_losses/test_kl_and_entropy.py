"""KL estimators by exact enumeration of a small vocabulary, and the entropy with its bonus."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings

from isocompute_torch.losses import Estimator, entropy_loss, kl_estimate, kl_loss, token_entropy
from tests.backends.torch_losses.batches import seeds, seen, token_mean


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


@settings(max_examples=30, deadline=None)
@given(seed=seeds)
def test_k1_and_k3_are_unbiased_for_the_kl(seed: int) -> None:
    theta_V, reference_V = policies(seed)
    exact = kl(theta_V.log_softmax(-1), reference_V)
    for estimator in ("k1", "k3"):
        torch.testing.assert_close(expected_loss(theta_V, reference_V, estimator), exact, rtol=1e-12, atol=1e-14)


@settings(max_examples=30, deadline=None)
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


@settings(max_examples=30, deadline=None)
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
