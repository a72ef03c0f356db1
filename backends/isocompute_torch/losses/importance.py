"""Importance weights: the policy ratio, and the correction for a sampler that is not quite the trainer."""

from __future__ import annotations

import torch
from torch import Tensor


def policy_ratio(logprob_RT: Tensor, old_logprob_RT: Tensor | None, mask_RT: Tensor) -> Tensor:
    """The ratio rho = pi_theta / pi_old per token, 1 where masked, with gradient rho * grad log pi_theta.

    pi_old is the trainer's own policy before the first update on this batch (PPO, arXiv 1707.06347, section 3).

    Args:
        logprob_RT: log pi_theta of the sampled tokens at the sampling temperature, shape (R, T), with gradient.
        old_logprob_RT: log pi_old of the same tokens. None while the batch gets its first update: pi_old is
            pi_theta then, so rho is exactly 1 and keeps its gradient.
        mask_RT: 1 for sampled tokens, shape (R, T).
    """
    old_logprob_RT = logprob_RT if old_logprob_RT is None else old_logprob_RT
    return torch.where(mask_RT > 0, logprob_RT - old_logprob_RT.detach(), 0.0).exp()


def truncated_importance(
    old_logprob_RT: Tensor, sampled_logprob_RT: Tensor, mask_RT: Tensor, cap: float | None
) -> Tensor:
    """The weight w = min(pi_old / mu, cap) per token, without gradient; 1 where masked, or where cap is None.

    mu is the distribution that the sampler drew from, which differs from the trainer's by its kernels and
    precision. Truncation bounds the variance at the price of a small bias (truncated importance sampling:
    Ionides 2008; in RL for LLMs: Yao et al. 2025, "Your efficient RL framework secretly brings you off-policy
    RL training"). Weights above the cap are set to it, none is dropped.

    Args:
        old_logprob_RT: log pi_old from the trainer, shape (R, T), at the sampling temperature.
        sampled_logprob_RT: log mu of the same tokens, as the sampler reported it.
        mask_RT: 1 for sampled tokens, shape (R, T).
        cap: largest weight; None turns the correction off.
    """
    if cap is None:
        return torch.ones_like(old_logprob_RT.detach())
    with torch.no_grad():
        return torch.where(mask_RT > 0, old_logprob_RT - sampled_logprob_RT, 0.0).exp().clamp(max=cap)
