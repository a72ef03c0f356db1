"""PPO's two losses: the clipped surrogate with per-token advantages, and the clipped value loss."""

from __future__ import annotations

import torch
from torch import Tensor

from isocompute_torch.losses.aggregation import Aggregation, Loss, aggregate, batch_means, counted
from isocompute_torch.losses.grpo import grpo_loss


def ppo_loss(
    logprob_RT: Tensor,
    sampled_logprob_RT: Tensor,
    advantage_RT: Tensor,
    mask_RT: Tensor,
    *,
    clip: float,
    tis_cap: float | None,
    aggregation: Aggregation,
    normaliser: float,
    old_logprob_RT: Tensor | None = None,
    weight_R: Tensor | None = None,
) -> Loss:
    """L = -mean_rt w_rt min(rho_rt A_rt, clip(rho_rt, 1 - clip, 1 + clip) A_rt); arXiv 1707.06347, eq. 7.

    The surrogate of `grpo_loss`, with the advantages of `generalised_advantages` in place of the group's.
    """
    return grpo_loss(
        logprob_RT,
        sampled_logprob_RT,
        advantage_RT,
        mask_RT,
        clip=clip,
        tis_cap=tis_cap,
        aggregation=aggregation,
        normaliser=normaliser,
        old_logprob_RT=old_logprob_RT,
        weight_R=weight_R,
    )


def value_loss(
    value_RT: Tensor,
    old_value_RT: Tensor,
    return_RT: Tensor,
    mask_RT: Tensor,
    *,
    clip: float | None,
    aggregation: Aggregation,
    normaliser: float,
    weight_R: Tensor | None = None,
) -> Loss:
    """L = mean_rt max((V - G)^2, (V_old + clip(V - V_old, -clip, clip) - G)^2) / 2.

    The value clipping of PPO's reference code (Huang et al. 2022, "The 37 implementation details of PPO",
    detail 9). V may come from any head: only its numbers enter. On the first update V = V_old, and the gradient
    is that of the plain squared error.

    Args:
        value_RT: V, with gradient, shape (R, T): the value of the state BEFORE each sampled token.
        old_value_RT: V_old, the values that the advantages were computed from.
        return_RT: G, the targets of `generalised_advantages`.
        mask_RT: 1 for sampled tokens.
        clip: how far V may move from V_old and still lower the loss, in units of reward; None for no limit.
        aggregation: as in `grpo_loss`.
        normaliser: as in `grpo_loss`.
        weight_R: as in `grpo_loss`.

    Returns:
        The loss; its stats are `value_loss`, `value_mean`, `return_mean` and `value_clipped_share`.
    """
    counted_RT = counted(mask_RT, weight_R)
    old_value_RT = torch.where(counted_RT, old_value_RT.detach().to(value_RT.dtype), 0.0)
    return_RT = torch.where(counted_RT, return_RT.detach().to(value_RT.dtype), 0.0)
    value_RT = torch.where(counted_RT, value_RT, 0.0)
    error_RT = (value_RT - return_RT).square()
    worst_RT = error_RT
    if clip is not None:
        limited_RT = old_value_RT + (value_RT - old_value_RT).clamp(-clip, clip)
        worst_RT = torch.maximum(error_RT, (limited_RT - return_RT).square())
    loss_RT = 0.5 * worst_RT
    stats = {
        "value_loss": loss_RT,
        "value_mean": value_RT,
        "return_mean": return_RT,
        "value_clipped_share": (worst_RT > error_RT).to(loss_RT.dtype),
    }
    return Loss(
        aggregate(loss_RT, mask_RT, aggregation=aggregation, normaliser=normaliser, weight_R=weight_R),
        batch_means(stats, mask_RT, aggregation=aggregation, normaliser=normaliser, weight_R=weight_R),
    )
