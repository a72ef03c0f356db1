"""CISPO's policy loss: the importance ratio is clipped as a weight, so no token loses its gradient."""

from __future__ import annotations

import torch
from torch import Tensor

from isocompute_torch.losses.aggregation import Aggregation, Loss, aggregate, batch_means, counted
from isocompute_torch.losses.grpo import capped, per_token
from isocompute_torch.losses.importance import policy_ratio, truncated_importance


def cispo_loss(
    logprob_RT: Tensor,
    sampled_logprob_RT: Tensor,
    advantage_R: Tensor,
    mask_RT: Tensor,
    *,
    clip: float,
    tis_cap: float | None,
    aggregation: Aggregation,
    normaliser: float,
    old_logprob_RT: Tensor | None = None,
    weight_R: Tensor | None = None,
) -> Loss:
    """L = -mean_rt w_rt sg[min(rho_rt, 1 + clip)] A_r log pi_rt; MiniMax-M1, arXiv 2506.13585, eq. 4 and 5.

    sg stops the gradient; as in that report the ratio has an upper limit only. On the first update of a batch
    rho is 1, and the gradient is that of GRPO. The arguments are those of `grpo_loss`.

    Returns:
        The loss; its stats are `loss`, `importance_weight_mean`, `importance_capped_share` and `clipped_share`.
    """
    mask_RT = counted(mask_RT, weight_R).to(logprob_RT.dtype)
    advantage_RT = per_token(advantage_R, mask_RT)
    with torch.no_grad():
        ratio_RT = policy_ratio(logprob_RT, old_logprob_RT, mask_RT)
        old_RT = logprob_RT if old_logprob_RT is None else old_logprob_RT
        weight_RT = truncated_importance(old_RT, sampled_logprob_RT, mask_RT, tis_cap)
        factor_RT = weight_RT * ratio_RT.clamp(max=1.0 + clip) * advantage_RT
    loss_RT = -factor_RT * torch.where(mask_RT > 0, logprob_RT, 0.0)
    stats = {
        "loss": loss_RT,
        "importance_weight_mean": weight_RT,
        "importance_capped_share": capped(weight_RT, tis_cap),
        "clipped_share": (ratio_RT > 1.0 + clip).to(loss_RT.dtype),
    }
    return Loss(
        aggregate(loss_RT, mask_RT, aggregation=aggregation, normaliser=normaliser, weight_R=weight_R),
        batch_means(stats, mask_RT, aggregation=aggregation, normaliser=normaliser, weight_R=weight_R),
    )
