"""CISPO's policy loss: the importance ratio is clipped as a weight, so no token loses its gradient."""

from __future__ import annotations

import torch

from isocompute_torch.losses.importance import at_cap, policy_ratio, truncated_importance
from isocompute_torch.losses.mean import Loss, Mean
from isocompute_torch.losses.seen import Seen


def cispo_loss(seen: Seen, mean: Mean, *, clip: float, tis_cap: float | None) -> Loss:
    """L = -mean_rt w_rt sg[min(rho_rt, 1 + clip)] A_r log pi_rt; MiniMax-M1, arXiv 2506.13585, eq. 4 and 5.

    sg stops the gradient; as in that report the ratio has an upper limit only. On the first update of a batch
    rho is 1, and the gradient is that of `surrogate_loss`, which has the same arguments and stats.
    """
    mask_RT = mean.counted(seen.mask_RT).to(seen.logprob_RT.dtype)
    with torch.no_grad():
        ratio_RT = policy_ratio(seen, mask_RT)
        weight_RT = truncated_importance(seen, mask_RT, tis_cap)
        factor_RT = weight_RT * ratio_RT.clamp(max=1.0 + clip) * seen.advantage_RT(mask_RT)
    loss_RT = -factor_RT * torch.where(mask_RT > 0, seen.logprob_RT, 0.0)
    stats = {
        "policy_loss": loss_RT,
        "importance_weight_mean": weight_RT,
        "importance_capped_share": at_cap(weight_RT, tis_cap),
        "clipped_share": (ratio_RT > 1.0 + clip).to(loss_RT.dtype),
    }
    return mean.loss(loss_RT, mask_RT, stats)
