"""Importance weights: the policy ratio, and the correction for a sampler that differs slightly from the trainer."""

from __future__ import annotations

import torch
from torch import Tensor

from isocompute_torch.losses.seen import Seen


def policy_ratio(seen: Seen, mask_RT: Tensor) -> Tensor:
    """The ratio rho = pi_theta / pi_old per token, 1 where masked, with gradient rho * grad log pi_theta.

    pi_old is the trainer's own policy before the first update on this batch (PPO, arXiv 1707.06347, section 3). On
    that first update rho is exactly 1 and keeps its gradient.
    """
    old_RT = seen.logprob_RT if seen.old_logprob_RT is None else seen.old_logprob_RT
    return torch.where(mask_RT > 0, seen.logprob_RT - old_RT.detach(), 0.0).exp()


@torch.no_grad()
def truncated_importance(seen: Seen, mask_RT: Tensor, cap: float | None) -> Tensor:
    """The weight w = min(pi_old / mu, cap) per token, without gradient; 1 where masked, or if cap is None.

    mu is the distribution that the sampler drew from, which differs from the trainer's by its kernels and
    precision. Truncation bounds the variance at the price of a small bias (truncated importance sampling:
    Ionides 2008; in RL for LLMs: Yao et al. 2025, "Your efficient RL framework secretly brings you off-policy
    RL training"). Weights above the cap are set to it, none is dropped.
    """
    old_RT = seen.logprob_RT if seen.old_logprob_RT is None else seen.old_logprob_RT
    if cap is None:
        return torch.ones_like(old_RT)
    return torch.where(mask_RT > 0, old_RT - seen.sampled_logprob_RT, 0.0).exp().clamp(max=cap)


def at_cap(weight_RT: Tensor, cap: float | None) -> Tensor:
    """1 for importance weights at their cap, 0 for others."""
    return torch.zeros_like(weight_RT) if cap is None else (weight_RT >= cap).to(weight_RT.dtype)
