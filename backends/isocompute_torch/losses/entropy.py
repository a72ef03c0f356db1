"""Entropy of the next-token distribution, and its bonus as a term of the loss."""

from __future__ import annotations

import torch
from torch import Tensor

from isocompute_torch.losses.aggregation import Aggregation, Loss, aggregate, batch_means


def token_entropy(logprob_RTV: Tensor) -> Tensor:
    """H = -sum_v p_v log p_v in nats, shape (R, T); p_v = 0 adds nothing.

    Exact over the vocabulary, not an estimate from the sampled token.

    Args:
        logprob_RTV: log p of every token, log_softmax(logits / temperature), shape (R, T, V).
    """
    # 0 * -inf would be NaN where a token is ruled out.
    finite_RTV = logprob_RTV.clamp(min=torch.finfo(logprob_RTV.dtype).min)
    return -(logprob_RTV.exp() * finite_RTV).sum(-1)


def entropy_loss(
    entropy_RT: Tensor,
    mask_RT: Tensor,
    *,
    aggregation: Aggregation,
    normaliser: float,
    weight_R: Tensor | None = None,
) -> Loss:
    """L = -mean_rt H_rt, to be ADDED as + entropy_coef * value: minimising it raises the entropy (arXiv 1602.01783).

    Args:
        entropy_RT: `token_entropy` at the positions that sampled each token, shape (R, T).
        mask_RT: 1 for sampled tokens.
        aggregation: as in `grpo_loss`.
        normaliser: as in `grpo_loss`.
        weight_R: as in `grpo_loss`.

    Returns:
        The loss; its stat is `entropy`, + mean H in nats per token.
    """
    return Loss(
        -aggregate(entropy_RT, mask_RT, aggregation=aggregation, normaliser=normaliser, weight_R=weight_R),
        batch_means(
            {"entropy": entropy_RT}, mask_RT, aggregation=aggregation, normaliser=normaliser, weight_R=weight_R
        ),
    )
