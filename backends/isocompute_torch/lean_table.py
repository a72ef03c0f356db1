"""What the first layer reads, from a table: before any token sees another, it depends on token and position alone.

With a vocabulary that is smaller than a hidden state, a table of the few different rows and a product with the one-hot
tokens for its gradient are less than norm, product and rotation of every token. Nothing is shared between rollouts but
what an embedding shares. The gradients are checked against numerical ones in float64; none can be differentiated twice.
"""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import torch
from torch import Tensor
from torch.autograd.function import Function, FunctionCtx

from isocompute_torch.lean_layer import Reading, as_pairs


class Tokens(NamedTuple):
    """The tokens of one forward pass, N = S times L."""

    id_N: Tensor
    one_hot_VN: Tensor
    """1 where token n is v."""
    position_N: Tensor
    turns_QP: Tensor
    """e^(i angle) of every position that occurs, per pair of every head that is turned."""


def tokens_read(input_ids_SL: Tensor, position_ids_SL: Tensor | None, turns_QP: Tensor, table_VD: Tensor) -> Tokens:
    """The tokens as the table knows them.

    Args:
        input_ids_SL: token ids.
        position_ids_SL: positions; None where they count up from 0.
        turns_QP: e^(i angle) of positions 0 to Q - 1, all that occur, per pair of every head that is turned.
        table_VD: the embeddings.
    """
    id_N = input_ids_SL.flatten()
    if position_ids_SL is None:
        position_ids_SL = torch.arange(input_ids_SL.shape[1], device=id_N.device).expand_as(input_ids_SL)
    vocabulary_V1 = torch.arange(len(table_VD), device=id_N.device).unsqueeze(-1)
    return Tokens(id_N, (vocabulary_V1 == id_N).to(table_VD.dtype), position_ids_SL.flatten(), turns_QP)


def looked_up(table_VD: Tensor, tokens: Tokens) -> Tensor:
    """The row of each token, shape (N, D)."""
    return cast("Tensor", _LookedUp.apply(table_VD, tokens))


def turned_heads(projected_VX: Tensor, tokens: Tokens, reading: Reading) -> Tensor:
    """Queries and keys, turned, and values of each token, shape (heads of all three, S, L, head size).

    Args:
        projected_VX: the three, one head after the other, for every token of the vocabulary.
        tokens: the tokens.
        reading: the rest.
    """
    return cast("Tensor", _TurnedHeads.apply(projected_VX, tokens, reading))


class _LookedUp(Function):
    @staticmethod
    def forward(ctx: Any, table_VD: Tensor, tokens: Tokens) -> Tensor:
        ctx.one_hot_VN = tokens.one_hot_VN
        return table_VD.index_select(0, tokens.id_N)

    @staticmethod
    def backward(ctx: FunctionCtx, *grads: Tensor) -> tuple[Tensor, None]:
        """The gradients of each token's rows added up."""
        return cast("Any", ctx).one_hot_VN @ grads[0], None


class _TurnedHeads(Function):
    @staticmethod
    def forward(ctx: Any, projected_VX: Tensor, tokens: Tokens, reading: Reading) -> Tensor:
        ctx.tokens, ctx.reading = tokens, reading
        every, turned = reading.heads + 2 * reading.key_heads, reading.heads + reading.key_heads
        positions, vocabulary = len(tokens.turns_QP), len(projected_VX)
        table_QVHD = projected_VX.view(vocabulary, every, -1).repeat(positions, 1, 1, 1)
        as_pairs(table_QVHD[:, :, :turned]).flatten(2).mul_(tokens.turns_QP.unsqueeze(1))
        table_HED = table_QVHD.flatten(0, 1).transpose(0, 1).contiguous()
        entry_N = tokens.position_N * vocabulary + tokens.id_N
        parts_HND = table_HED.new_empty(every, len(entry_N), table_HED.shape[-1])
        for rows_ND, table_ED in zip(parts_HND, table_HED, strict=True):
            torch.index_select(table_ED, 0, entry_N, out=rows_ND)
        return parts_HND.view(every, reading.sequences, -1, parts_HND.shape[-1])

    @staticmethod
    def backward(ctx: FunctionCtx, *grads: Tensor) -> tuple[Tensor, None, None]:
        """Turned back, and those of each token added up."""
        saved = cast("Any", ctx)
        tokens, reading = cast("Tokens", saved.tokens), cast("Reading", saved.reading)
        grad_HND = grads[0].flatten(1, 2)
        turned = reading.heads + reading.key_heads
        pairs = grad_HND.shape[-1] // 2
        back_NP = tokens.turns_QP[:, :pairs].conj().resolve_conj().index_select(0, tokens.position_N)
        back_HND = torch.view_as_real(as_pairs(grad_HND[:turned]) * back_NP).flatten(-2)
        to_VHD = grad_HND.new_empty(len(tokens.one_hot_VN), len(grad_HND), 2 * pairs)
        for head, grad_ND in enumerate((*back_HND, *grad_HND[turned:])):
            to_VHD[:, head] = tokens.one_hot_VN @ grad_ND
        return to_VHD.flatten(1), None, None
