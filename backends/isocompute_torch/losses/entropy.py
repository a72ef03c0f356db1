"""Entropy of the next-token distribution, and its bonus as a term of the loss."""

from __future__ import annotations

import torch
from torch import Tensor

from isocompute_torch.losses.mean import Loss, Mean
from isocompute_torch.losses.seen import Seen


def token_entropy(logprob_RTV: Tensor) -> Tensor:
    """H = -sum_v p_v log p_v in nats, shape (R, T); p_v = 0 adds nothing.

    Exact over the vocabulary, not an estimate from the sampled token.

    Args:
        logprob_RTV: log p of every token, log_softmax(logits / temperature), shape (R, T, V).
    """
    # 0 * -inf would be NaN for a token of probability 0.
    finite_RTV = logprob_RTV.clamp(min=torch.finfo(logprob_RTV.dtype).min)
    p_RTV = logprob_RTV.exp()
    # Without a gradient in place: tensors of this size decide how many tokens fit into a micro-batch.
    return -(p_RTV * finite_RTV if p_RTV.requires_grad else p_RTV.mul_(finite_RTV)).sum(-1)


def entropy_loss(seen: Seen, mean: Mean) -> Loss:
    """L = -mean_rt H_rt, to be ADDED as + entropy_coef * value: minimising it raises the entropy (arXiv 1602.01783).

    The stat is `entropy`, + mean H in nats per token.
    """
    assert seen.entropy_RT is not None, "entropy_loss needs entropy_RT"
    return mean.loss(-seen.entropy_RT, seen.mask_RT, {"entropy": seen.entropy_RT})
