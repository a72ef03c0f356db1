"""The clipped loss of PPO's value model."""

from __future__ import annotations

import torch

from isocompute_torch.losses.mean import Loss, Mean
from isocompute_torch.losses.seen import Seen


def value_loss(seen: Seen, mean: Mean, *, clip: float | None) -> Loss:
    """L = mean_rt max((V - G)^2, (V_old + clip(V - V_old, -clip, clip) - G)^2) / 2.

    The value clipping of PPO's reference code (Huang et al. 2022, "The 37 implementation details of PPO",
    detail 9). On the first update V = V_old, and the gradient is that of the plain squared error.

    Args:
        seen: the rows, with V, V_old and the returns G.
        mean: how tokens are averaged.
        clip: how far V may move from V_old and still lower the loss, in units of reward; None for no limit.

    Returns:
        The loss; its stats are `value_loss`, `value_mean`, `return_mean` and `value_clipped_share`.
    """
    assert seen.value_RT is not None, "value_loss needs value_RT"
    assert seen.old_value_RT is not None, "value_loss needs old_value_RT"
    assert seen.return_RT is not None, "value_loss needs return_RT"
    counted_RT, dtype = mean.counted(seen.mask_RT), seen.value_RT.dtype
    old_value_RT = torch.where(counted_RT, seen.old_value_RT.detach().to(dtype), 0.0)
    return_RT = torch.where(counted_RT, seen.return_RT.detach().to(dtype), 0.0)
    value_RT = torch.where(counted_RT, seen.value_RT, 0.0)
    error_RT = (value_RT - return_RT).square()
    worst_RT = error_RT
    if clip is not None:
        limited_RT = old_value_RT + (value_RT - old_value_RT).clamp(-clip, clip)
        worst_RT = torch.maximum(error_RT, (limited_RT - return_RT).square())
    stats = {
        "value_loss": 0.5 * worst_RT,
        "value_mean": value_RT,
        "return_mean": return_RT,
        "value_clipped_share": (worst_RT > error_RT).to(dtype),
    }
    return mean.loss(stats["value_loss"], seen.mask_RT, stats)
