"""The clipped surrogate: the policy loss of GRPO (one advantage per response) and of PPO (one per token)."""

from __future__ import annotations

import torch

from isocompute_torch.losses.importance import at_cap, policy_ratio, truncated_importance
from isocompute_torch.losses.mean import Loss, Mean
from isocompute_torch.losses.seen import Seen


def surrogate_loss(seen: Seen, mean: Mean, *, clip: float, tis_cap: float | None) -> Loss:
    """L = -mean_rt w_rt min(rho_rt A_rt, clip(rho_rt, 1 - clip, 1 + clip) A_rt).

    arXiv 1707.06347, eq. 7 (PPO); arXiv 2402.03300, eq. 3 (GRPO). rho = pi_theta / pi_old (`policy_ratio`) and
    w = min(pi_old / mu, tis_cap) without gradient (`truncated_importance`). On the first update of a batch rho is 1,
    so clipping has no effect and the gradient is -mean w A grad log pi. KL and entropy are separate terms.

    Args:
        seen: the rows.
        mean: how tokens are averaged.
        clip: half width of the interval that the ratio is clipped to.
        tis_cap: largest correction for the sampler's mismatch; None for none.

    Returns:
        The loss; its stats are `policy_loss`, `importance_weight_mean`, `importance_capped_share` and `clipped_share`.
    """
    mask_RT = mean.counted(seen.mask_RT).to(seen.logprob_RT.dtype)
    advantage_RT = seen.advantage_RT(mask_RT)
    ratio_RT = policy_ratio(seen, mask_RT)
    weight_RT = truncated_importance(seen, mask_RT, tis_cap)
    clipped_RT = ratio_RT.clamp(1.0 - clip, 1.0 + clip)
    loss_RT = -weight_RT * torch.minimum(ratio_RT * advantage_RT, clipped_RT * advantage_RT)
    stats = {
        "policy_loss": loss_RT,
        "importance_weight_mean": weight_RT,
        "importance_capped_share": at_cap(weight_RT, tis_cap),
        "clipped_share": (clipped_RT * advantage_RT < ratio_RT * advantage_RT).to(loss_RT.dtype),
    }
    return mean.loss(loss_RT, mask_RT, stats)
