"""Attention of the first layer of a model with few tokens, from tables.

Before any token has seen another, the score between two of them depends on which two they are and how far apart they
stand, and what is mixed in is the same for equal tokens. With a vocabulary no larger than a head that is a table of
scores, and per token the attention that each entry of the vocabulary gets; values and output projection become one
matrix over these. It is the same function with the same gradient (checked against numerical ones in float64), and
nothing is shared between rollouts but what an embedding shares.
"""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import torch
from torch import Tensor
from torch.autograd.function import Function, FunctionCtx

from isocompute_torch.lean_layer import LayerWeights
from isocompute_torch.lean_ops import rotated, seen_softmax_, through_softmax_


class FirstLayer(NamedTuple):
    """The first layer as a function of tokens: H heads, V tokens, distances 0 to P - 1."""

    score_HVPV: Tensor
    """Score between a token and an earlier one or itself: its head, the token, the distance, the earlier token."""
    mix_DX: Tensor
    """Takes attention per head and token of the vocabulary, X = H * V, to what is added to the hidden state."""


def first_layer(
    projected_VX: Tensor, weights: LayerWeights, turns_PC: Tensor, heads: int, key_heads: int
) -> FirstLayer:
    """The tables; differentiable.

    Args:
        projected_VX: queries, keys and values of every token, before they are turned.
        weights: the layer's matrices.
        turns_PC: e^(i angle) of positions 0 to P - 1, per pair.
        heads: query heads.
        key_heads: heads of keys and values.
    """
    vocabulary, positions = len(projected_VX), len(turns_PC)
    size = projected_VX.shape[-1] // (heads + 2 * key_heads)
    query_VX, key_VX, value_VX = projected_VX.split([part * size for part in (heads, key_heads, key_heads)], dim=-1)
    turned_VHPD = rotated(query_VX.unsqueeze(1).expand(-1, positions, -1), turns_PC, heads)
    key_HVD, value_HVD = (
        part.view(vocabulary, key_heads, size).transpose(0, 1).repeat_interleave(heads // key_heads, dim=0)
        for part in (key_VX, value_VX)
    )
    score_HEV = turned_VHPD.transpose(0, 1).flatten(1, 2) @ key_HVD.transpose(1, 2)
    mixed_HVD = value_HVD @ weights.mix_DX.unflatten(1, (heads, size)).permute(1, 2, 0)
    return FirstLayer(score_HEV.view(heads, vocabulary, positions, vocabulary), mixed_HVD.flatten(0, 1).t())


class Tokens(NamedTuple):
    """The tokens of one forward pass."""

    id_N: Tensor
    one_hot_SLV: Tensor
    """1 where a token is v."""
    entry_SLHL: Tensor
    """Where the score between a token and another stands in the flat table of scores, per head."""


def tokens_read(input_ids_SL: Tensor, position_ids_SL: Tensor | None, score_HVPV: Tensor) -> Tokens:
    """The tokens as the tables know them.

    Args:
        input_ids_SL: token ids.
        position_ids_SL: positions; None where they count up from 0.
        score_HVPV: the table of scores.
    """
    heads, vocabulary, positions, _ = score_HVPV.shape
    device = input_ids_SL.device
    if position_ids_SL is None:
        position_ids_SL = torch.arange(input_ids_SL.shape[1], device=device).unsqueeze(0)
    # A token that is ahead is not seen: any entry will do.
    distance_SLL = (position_ids_SL.unsqueeze(2) - position_ids_SL.unsqueeze(1)).clamp_(min=0)
    own_SL1 = (input_ids_SL * (positions * vocabulary)).unsqueeze(2)
    pair_SLL = (distance_SLL * vocabulary + own_SL1).add_(input_ids_SL.unsqueeze(1))
    head_H1 = torch.arange(heads, device=device).unsqueeze(-1) * (vocabulary * positions * vocabulary)
    one_hot_SLV = input_ids_SL.unsqueeze(-1) == torch.arange(vocabulary, device=device)
    return Tokens(input_ids_SL.flatten(), one_hot_SLV.to(score_HVPV.dtype), pair_SLL.unsqueeze(2) + head_H1)


def looked_up(table_VD: Tensor, tokens: Tokens) -> Tensor:
    """The row of each token, shape (N, D)."""
    return cast("Tensor", _LookedUp.apply(table_VD, tokens))


def attention_to(score_HVPV: Tensor, tokens: Tokens, mask: Tensor) -> Tensor:
    """Attention of each token to every entry of the vocabulary, shape (N, H * V).

    Args:
        score_HVPV: the table of scores.
        tokens: the tokens.
        mask: additive, shape (L, L) or (S, 1, L, L).
    """
    mask = mask.unsqueeze(1) if mask.ndim == 2 else mask.transpose(1, 2)
    return cast("Tensor", _AttentionTo.apply(score_HVPV, tokens, mask))


class _LookedUp(Function):
    @staticmethod
    def forward(ctx: Any, table_VD: Tensor, tokens: Tokens) -> Tensor:
        ctx.tokens = tokens
        return table_VD.index_select(0, tokens.id_N)

    @staticmethod
    def backward(ctx: FunctionCtx, *grads: Tensor) -> tuple[Tensor, None]:
        """The gradients of each token's rows added up."""
        tokens = cast("Tokens", cast("Any", ctx).tokens)
        return tokens.one_hot_SLV.flatten(0, 1).t() @ grads[0], None


class _AttentionTo(Function):
    @staticmethod
    def forward(ctx: Any, score_HVPV: Tensor, tokens: Tokens, mask: Tensor) -> Tensor:
        entry = tokens.entry_SLHL
        weight_SLHL = score_HVPV.flatten().index_select(0, entry.flatten()).view(entry.shape)
        seen_softmax_(weight_SLHL, mask)
        ctx.tokens, ctx.shape = tokens, score_HVPV.shape
        ctx.save_for_backward(weight_SLHL)
        return torch.bmm(weight_SLHL.flatten(1, 2), tokens.one_hot_SLV).view(len(tokens.id_N), -1)

    @staticmethod
    def backward(ctx: FunctionCtx, *grads: Tensor) -> tuple[Tensor, None, None]:
        """Through the sums and the softmax, then the gradients of each entry's scores added up."""
        saved = cast("Any", ctx)
        tokens = cast("Tokens", saved.tokens)
        (weight_SLHL,) = cast("tuple[Tensor]", saved.saved_tensors)
        one_hot_SVL = tokens.one_hot_SLV.transpose(1, 2).contiguous()
        grad = grads[0].reshape(len(one_hot_SVL), -1, one_hot_SVL.shape[1])
        to_weight = torch.bmm(grad, one_hot_SVL).view(weight_SLHL.shape)
        to_score = through_softmax_(to_weight, weight_SLHL)
        to_table = to_score.new_zeros(saved.shape).flatten()
        to_table.index_add_(0, tokens.entry_SLHL.flatten(), to_score.flatten())
        return to_table.view(saved.shape), None, None


class TokensSoFar:
    """The same for rows that are read token after token, without a gradient.

    Args:
        first: the tables; a row has at most as many tokens as they have distances.
    """

    def __init__(self, first: FirstLayer) -> None:
        heads, vocabulary, positions, _ = first.score_HVPV.shape
        self.mix_DX = first.mix_DX
        self._score_EH = first.score_HVPV.view(heads, -1).t().contiguous()
        self._heads, self._vocabulary, self._per_token = heads, vocabulary, positions * vocabulary
        self._room, self._length = positions, 0
        self._id_LK: Tensor | None = None
        self._slot_KH = torch.empty(0, heads, dtype=torch.long, device=first.mix_DX.device)

    def read(self, input_ids_KL: Tensor) -> None:
        """Go on by some tokens per row."""
        rows, new = input_ids_KL.shape
        if self._id_LK is None:
            self._id_LK = input_ids_KL.new_empty(self._room, rows)
        self._id_LK[self._length : self._length + new] = input_ids_KL.t()
        self._length += new

    def select(self, indices_K: Tensor) -> None:
        """Make row i a copy of what was row indices[i]."""
        if self._id_LK is not None:
            self._id_LK = self._id_LK.index_select(1, indices_K)

    def attention(self, mask: Tensor | None) -> Tensor:
        """Attention of each row's last token to every entry of the vocabulary, shape (K, H * V).

        Args:
            mask: additive, shape (K, 1, 1, all tokens so far).
        """
        assert self._id_LK is not None, "no token was read"
        id_LK = self._id_LK[: self._length]
        distance_L1 = torch.arange(self._length - 1, -1, -1, device=id_LK.device).unsqueeze(-1)
        entry_LK = (id_LK + distance_L1 * self._vocabulary).add_(id_LK[-1] * self._per_token)
        score_LKH = self._score_EH.index_select(0, entry_LK.flatten()).view(*entry_LK.shape, self._heads)
        if mask is not None:
            score_LKH.add_(mask.permute(3, 0, 1, 2).squeeze(-1))
        slot_LKH = self._slots(id_LK.shape[1]) + id_LK.unsqueeze(-1)
        attention = score_LKH.new_zeros(slot_LKH[0].numel() * self._vocabulary)
        attention.index_add_(0, slot_LKH.flatten(), score_LKH.softmax(0).flatten())
        return attention.view(id_LK.shape[1], -1)

    def _slots(self, rows: int) -> Tensor:
        """Where the attention of each row and head begins, shape (K, H)."""
        if len(self._slot_KH) != rows:
            every = torch.arange(rows * self._heads, device=self._slot_KH.device)
            self._slot_KH = every.view(rows, self._heads) * self._vocabulary
        return self._slot_KH
