"""Log-probabilities and entropies of sampled tokens under a policy, with or without gradient."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from isocompute_torch.learning.layout import Layout
from isocompute_torch.losses import token_entropy
from isocompute_torch.policy.model import Policy

KEPT_LOGITS = 2**26
"""Largest number of logits kept for the backward pass, tokens times vocabulary; more are computed in parts, twice."""


def score(policy: Policy, layout: Layout, *, temperature: float, entropy: bool = False) -> tuple[Tensor, Tensor]:
    """Log pi of each sampled token, and H of the distribution it comes from; both (U, T), 0 where masked.

    Both refer to softmax(logits / temperature).

    Args:
        policy: the model.
        layout: the tokens and their places.
        temperature: divides the logits.
        entropy: compute H, with gradient; otherwise it is 0.
    """
    hidden_JD = policy.hidden_states(
        layout.input_ids_SL, layout.attention_mask, layout.position_ids_SL, wanted_J=layout.source_J
    )
    scored = _scored(policy, hidden_JD, layout, temperature, entropy)
    logprob_UT = layout.to_rows(scored[0])
    return logprob_UT, layout.to_rows(scored[1])


def _scored(policy: Policy, hidden_JD: Tensor, layout: Layout, temperature: float, entropy: bool) -> tuple[Tensor, ...]:
    width = policy.vocabulary
    if len(hidden_JD) * width <= KEPT_LOGITS:
        return _token_scores(policy, hidden_JD, layout.pick_K, layout.token_K, temperature, entropy)
    if layout.pick_K is not None:
        hidden_JD = hidden_JD.index_select(0, layout.pick_K)
    step = max(1, KEPT_LOGITS // width)
    parts: list[tuple[Tensor, ...]] = []
    for hidden_CD, token_C in zip(hidden_JD.split(step), layout.token_K.split(step), strict=True):
        arguments = (policy, hidden_CD, None, token_C, temperature, entropy)
        if torch.is_grad_enabled():
            part = cast("tuple[Tensor, ...]", checkpoint(_token_scores, *arguments, use_reentrant=False))
        else:
            part = _token_scores(*arguments)
        parts.append(part)
    return tuple(torch.cat(column) for column in zip(*parts, strict=True))


def _token_scores(
    policy: Policy, hidden_JD: Tensor, pick_K: Tensor | None, token_K: Tensor, temperature: float, entropy: bool
) -> tuple[Tensor, ...]:
    logits_JV = policy.logits(hidden_JD)
    logprob_JV = (logits_JV if temperature == 1.0 else logits_JV / temperature).log_softmax(-1)
    del logits_JV
    if pick_K is None:
        logprob_K = logprob_JV.gather(-1, token_K.unsqueeze(-1)).squeeze(-1)
    else:
        logprob_K = logprob_JV.flatten()[pick_K * logprob_JV.shape[-1] + token_K]
    if not entropy:
        return logprob_K, torch.zeros_like(logprob_K)
    entropy_J = token_entropy(logprob_JV)
    return logprob_K, entropy_J if pick_K is None else entropy_J[pick_K]
