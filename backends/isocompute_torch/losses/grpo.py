"""GRPO's policy loss: PPO's clipped surrogate with one group-relative advantage per response."""

from __future__ import annotations

import torch
from torch import Tensor

from isocompute_torch.losses.aggregation import Aggregation, Loss, aggregate, batch_means, counted
from isocompute_torch.losses.importance import policy_ratio, truncated_importance


def grpo_loss(
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
    """L = -mean_rt w_rt min(rho_rt A_r, clip(rho_rt, 1 - clip, 1 + clip) A_r); arXiv 2402.03300, eq. 3.

    rho = pi_theta / pi_old (`policy_ratio`) and w = min(pi_old / mu, tis_cap) without gradient
    (`truncated_importance`). On the first update of a batch rho is 1, so clipping does nothing and the
    gradient is -mean w A grad log pi. KL and entropy are separate terms.

    Args:
        logprob_RT: log pi_theta of the sampled tokens, logits divided by the temperature, shape (R, T).
        sampled_logprob_RT: log mu of the same tokens, from the sampler.
        advantage_R: advantage per response, shape (R,), or per token, shape (R, T).
        mask_RT: 1 for sampled tokens including the end token, 0 after.
        clip: half width of the interval that the ratio is clipped to.
        tis_cap: largest correction for the sampler's mismatch; None for none.
        aggregation: how tokens are averaged, see `aggregate`.
        normaliser: `batch_normaliser` of the WHOLE batch (same `aggregation`, same weights).
        old_logprob_RT: log pi_old; None on the first update of a batch.
        weight_R: weight per row, see `aggregate`; 0 leaves a row out.

    Returns:
        The loss; its stats are `loss`, `importance_weight_mean`, `importance_capped_share` and `clipped_share`.
    """
    mask_RT = counted(mask_RT, weight_R).to(logprob_RT.dtype)
    advantage_RT = per_token(advantage_R, mask_RT)
    ratio_RT = policy_ratio(logprob_RT, old_logprob_RT, mask_RT)
    clipped_RT = ratio_RT.clamp(1.0 - clip, 1.0 + clip)
    surrogate_RT = torch.minimum(ratio_RT * advantage_RT, clipped_RT * advantage_RT)
    old_RT = logprob_RT if old_logprob_RT is None else old_logprob_RT
    weight_RT = truncated_importance(old_RT, sampled_logprob_RT, mask_RT, tis_cap)
    loss_RT = -weight_RT * surrogate_RT
    stats = {
        "loss": loss_RT,
        "importance_weight_mean": weight_RT,
        "importance_capped_share": capped(weight_RT, tis_cap),
        "clipped_share": (clipped_RT * advantage_RT < ratio_RT * advantage_RT).to(loss_RT.dtype),
    }
    return Loss(
        aggregate(loss_RT, mask_RT, aggregation=aggregation, normaliser=normaliser, weight_R=weight_R),
        batch_means(stats, mask_RT, aggregation=aggregation, normaliser=normaliser, weight_R=weight_R),
    )


def per_token(advantage: Tensor, mask_RT: Tensor) -> Tensor:
    """Advantages, (R,) or (R, T), as constants of shape (R, T) in the mask's dtype; 0 where masked."""
    advantage = advantage.unsqueeze(-1) if advantage.ndim == 1 else advantage
    return torch.where(mask_RT > 0, advantage.detach().to(mask_RT.dtype), 0.0)


def capped(weight_RT: Tensor, tis_cap: float | None) -> Tensor:
    """1 where the importance weight stands at its cap."""
    return torch.zeros_like(weight_RT) if tis_cap is None else (weight_RT >= tis_cap).to(weight_RT.dtype)
