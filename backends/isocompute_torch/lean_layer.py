"""One layer of `lean.py` for training, its attention and what comes after it, forward and backward written out.

What autograd would keep and copy between single operations costs more than the products in a narrow layer. Here each
product writes where the next one reads, and norms are taken back through their outputs. The gradients are checked
against numerical ones in float64; none can be differentiated twice.
"""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import Function, FunctionCtx

from isocompute_torch.lean_ops import seen_softmax_, through_softmax_, through_unit, unit


class LayerWeights(NamedTuple):
    """One layer's matrices, those behind a norm with its weight and sqrt(width) in them."""

    project_XD: Tensor
    """Queries, keys and values, the two parts of each rotated pair side by side, queries scaled."""
    project_bias_X: Tensor | None
    mix_DX: Tensor
    mix_bias_D: Tensor | None
    gate_FD: Tensor
    up_FD: Tensor
    down_DF: Tensor


class Reading(NamedTuple):
    """What a layer needs to know of the tokens and of itself, beside its weights."""

    sequences: int
    """S; the hidden states stand in S rows of L tokens."""
    heads: int
    key_heads: int
    floor: Tensor
    """Of the norms, `unit_floor`."""
    turns: Tensor
    """e^(i angle) per position and pair of every head that is turned, shape (L, P) or (S, L, P)."""
    mask: Tensor | None
    """Additive, broadcasts to (S, 1, L, L)."""
    asked_from: int = 0
    """Position from which on the output is asked for, A = L - asked_from of them; earlier tokens are only looked at."""
    wanted_J: Tensor | None = None
    """Distinct flat positions, of S times A, that the output is asked for; None for all."""

    def asking(self, wanted_J: Tensor) -> Reading:
        """The same for a layer of which only these flat positions, of S times L, are asked for."""
        if not len(wanted_J):
            return self._replace(wanted_J=wanted_J)
        length = self.turns.shape[-2]
        position_J = wanted_J % length
        first = int(position_J.min())
        asked = length - first
        wanted_J = wanted_J.div(length, rounding_mode="floor") * asked + position_J - first
        in_order = torch.arange(self.sequences * asked, device=wanted_J.device)
        return self._replace(asked_from=first, wanted_J=None if torch.equal(wanted_J, in_order) else wanted_J)


def whole_layer(hidden_ND: Tensor, weights: LayerWeights, reading: Reading) -> Tensor:
    """Hidden states after the layer, shape (S * A, width), or (J, width) of the wanted positions.

    Args:
        hidden_ND: hidden states before it, float32 or float64, N = S times L.
        weights: its matrices.
        reading: the rest.
    """
    return after_attention(hidden_ND, attended(hidden_ND, weights, reading), weights, reading)


def attended(hidden_ND: Tensor, weights: LayerWeights, reading: Reading) -> Tensor:
    """What attention gives to the output projection, the heads of each token side by side, shape (S * A, X)."""
    return cast("Tensor", _Attended.apply(hidden_ND, reading, weights.project_XD, weights.project_bias_X))


def after_attention(hidden_ND: Tensor, mixed_MX: Tensor, weights: LayerWeights, reading: Reading) -> Tensor:
    """`whole_layer` from its output projection on.

    Args:
        hidden_ND: hidden states before the layer.
        mixed_MX: what attention gives, M = S times A.
        weights: its matrices.
        reading: the rest.
    """
    return cast("Tensor", _AfterAttention.apply(hidden_ND, mixed_MX, reading, *weights[2:]))


def as_pairs(value: Tensor) -> Tensor:
    """Neighbours along the last axis as complex numbers, without a copy."""
    return torch.view_as_complex(value.unflatten(-1, (-1, 2)))


class _Attended(Function):
    @staticmethod
    def forward(
        ctx: Any, hidden_ND: Tensor, reading: Reading, project_XD: Tensor, project_bias_X: Tensor | None
    ) -> Tensor:
        normal_ND, length_N1 = unit(hidden_ND, reading.floor)
        projected_NX = normal_ND @ project_XD.t()
        if project_bias_X is not None:
            projected_NX.add_(project_bias_X)
        query, key, value = _heads(_turned_parts(projected_NX, reading), reading)
        weight = _attention_weights(query, key, reading)
        ctx.reading, ctx.has_bias = reading, project_bias_X is not None
        ctx.save_for_backward(normal_ND, length_N1, query, key, value, weight, project_XD)
        return _together(torch.bmm(weight, value), reading)

    @staticmethod
    def backward(ctx: FunctionCtx, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of the hidden states and of the projection, from the last operation to the first."""
        saved = cast("Any", ctx)
        reading = cast("Reading", saved.reading)
        normal_ND, length_N1, *parts, project_XD = cast("tuple[Tensor, ...]", saved.saved_tensors)
        query, key, value, weight = parts
        to_parts_HSLD = _through_attention(grads[0], query, key, value, weight, reading)
        to_projected_NX = _turned_back(to_parts_HSLD, reading)
        return (
            through_unit(to_projected_NX @ project_XD, normal_ND, length_N1),
            None,
            to_projected_NX.t() @ normal_ND,
            to_projected_NX.sum(0) if saved.has_bias else None,
        )


class _AfterAttention(Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden_ND: Tensor,
        mixed_MX: Tensor,
        reading: Reading,
        mix_DX: Tensor,
        mix_bias_D: Tensor | None,
        gate_FD: Tensor,
        up_FD: Tensor,
        down_DF: Tensor,
    ) -> Tensor:
        if reading.asked_from:
            hidden_ND = _by_sequence(hidden_ND, reading)[:, reading.asked_from :].flatten(0, 1)
        if reading.wanted_J is not None:
            hidden_ND, mixed_MX = (part.index_select(0, reading.wanted_J) for part in (hidden_ND, mixed_MX))
        hidden_ND = torch.addmm(hidden_ND, mixed_MX, mix_DX.t())
        if mix_bias_D is not None:
            hidden_ND.add_(mix_bias_D)
        normal_ND, length_N1 = unit(hidden_ND, reading.floor)
        gate_NF, up_NF = normal_ND @ gate_FD.t(), normal_ND @ up_FD.t()
        sigmoid_NF = gate_NF.sigmoid()
        open_NF = gate_NF.mul_(sigmoid_NF)
        opened_NF = open_NF * up_NF
        ctx.reading, ctx.has_bias = reading, mix_bias_D is not None
        ctx.save_for_backward(
            *(mixed_MX, normal_ND, length_N1, sigmoid_NF, up_NF, open_NF, opened_NF),
            *(mix_DX, gate_FD, up_FD, down_DF),
        )
        return hidden_ND.addmm_(opened_NF, down_DF.t())

    @staticmethod
    def backward(ctx: FunctionCtx, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of hidden states, attention and each matrix, from the last operation to the first."""
        saved = cast("Any", ctx)
        reading = cast("Reading", saved.reading)
        tensors = cast("tuple[Tensor, ...]", saved.saved_tensors)
        mixed_MX, normal_ND, length_N1, sigmoid_NF, up_NF, open_NF, opened_NF = tensors[:7]
        mix_DX, gate_FD, up_FD, down_DF = tensors[7:]
        grad_ND = grads[0]
        to_down_DF = grad_ND.t() @ opened_NF
        to_opened_NF = grad_ND @ down_DF
        to_up_NF = to_opened_NF * open_NF
        # With t = silu(x) and s = sigmoid(x), silu'(x) = s + t (1 - s).
        to_gate_NF = to_opened_NF.mul_(up_NF).mul_(torch.lerp(sigmoid_NF, sigmoid_NF.new_ones(()), open_NF))
        to_normal_ND = torch.mm(to_gate_NF, gate_FD).addmm_(to_up_NF, up_FD)
        grad_ND = through_unit(to_normal_ND, normal_ND, length_N1).add_(grad_ND)
        to_mixed_MX = grad_ND @ mix_DX
        to_mix_DX = grad_ND.t() @ mixed_MX
        to_mix_bias_D = grad_ND.sum(0) if saved.has_bias else None
        if reading.wanted_J is not None:
            grad_ND, to_mixed_MX = (_spread(part, reading) for part in (grad_ND, to_mixed_MX))
        if reading.asked_from:
            early = (0, 0, reading.asked_from, 0)
            grad_ND = F.pad(_by_sequence(grad_ND, reading), early).flatten(0, 1)
        return (
            *(grad_ND, to_mixed_MX, None, to_mix_DX, to_mix_bias_D),
            *(to_gate_NF.t() @ normal_ND, to_up_NF.t() @ normal_ND, to_down_DF),
        )


def _turned_parts(projected_NX: Tensor, reading: Reading) -> Tensor:
    """Turned queries and keys, and values, shape (heads of all three, S, L, size); turns `projected_NX` itself."""
    parts_SLHD = projected_NX.view(reading.sequences, -1, _all(reading), projected_NX.shape[-1] // _all(reading))
    _turn_(parts_SLHD, reading.turns, reading)
    return parts_SLHD.permute(2, 0, 1, 3).contiguous()


def _turned_back(parts_HSLD: Tensor, reading: Reading) -> Tensor:
    """The gradient of what `_turned_parts` takes from that of what it gives, shape (N, X)."""
    parts_SLHD = parts_HSLD.permute(1, 2, 0, 3).contiguous()
    _turn_(parts_SLHD, reading.turns.conj().resolve_conj(), reading)
    return parts_SLHD.view(parts_HSLD.shape[1] * parts_HSLD.shape[2], -1)


def _heads(parts_HSLD: Tensor, reading: Reading) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values, each (key heads * S, tokens, size).

    The query heads of one key head stand in one matrix, one after the other, so that they share its products.
    """
    query, key, value = parts_HSLD.split((reading.heads, reading.key_heads, reading.key_heads))
    query = query[:, :, reading.asked_from :].contiguous()
    return _grouped(query, reading), key.flatten(0, 1), value.flatten(0, 1)


def _turn_(parts_SLHD: Tensor, turns: Tensor, reading: Reading) -> None:
    """Multiply every pair of the queries and keys by its turn."""
    turned = reading.heads + reading.key_heads
    pairs_SLP = as_pairs(parts_SLHD[:, :, :turned]).flatten(2)
    pairs_SLP.mul_(turns)


def _by_sequence(value_ND: Tensor, reading: Reading) -> Tensor:
    return value_ND.unflatten(0, (reading.sequences, -1))


def _all(reading: Reading) -> int:
    return reading.heads + 2 * reading.key_heads


def _grouped(by_head_HSLD: Tensor, reading: Reading) -> Tensor:
    """(heads, S, L, size) as (key heads * S, query heads per key head * L, size)."""
    _, sequences, length, size = by_head_HSLD.shape
    split = by_head_HSLD.view(reading.key_heads, -1, sequences, length, size).transpose(1, 2)
    return split.reshape(reading.key_heads * sequences, -1, size)


def _separate(grouped: Tensor, reading: Reading) -> Tensor:
    """The inverse of `_grouped`, perhaps without a copy."""
    split = grouped.view(
        reading.key_heads, reading.sequences, reading.heads // reading.key_heads, -1, grouped.shape[-1]
    )
    return split.transpose(1, 2).flatten(0, 1)


def _attention_weights(query: Tensor, key: Tensor, reading: Reading) -> Tensor:
    """Shape (key heads * S, queries of one key head * A, L)."""
    score = torch.bmm(query, _upright(key))
    mask = None if reading.mask is None else reading.mask[..., reading.asked_from :, :]
    by_head = score.view(
        reading.key_heads, reading.sequences, -1, score.shape[1] * reading.key_heads // reading.heads, key.shape[1]
    )
    seen_softmax_(by_head, mask)
    return score


def _upright(rows: Tensor) -> Tensor:
    """The transposed matrices as a copy: many small products with it take a third of the time."""
    return rows.transpose(1, 2).contiguous()


def _together(mixed: Tensor, reading: Reading) -> Tensor:
    """The heads of each token side by side, shape (N, heads * size)."""
    by_head_HSLD = _separate(mixed, reading)
    return by_head_HSLD.permute(1, 2, 0, 3).reshape(-1, reading.heads * mixed.shape[-1])


def _through_attention(
    to_mixed_NX: Tensor, query: Tensor, key: Tensor, value: Tensor, weight: Tensor, reading: Reading
) -> Tensor:
    """Gradient of the turned queries and keys, and of the values, shape (heads of all three, S, L, size)."""
    sequences, heads, key_heads = reading.sequences, reading.heads, reading.key_heads
    length, size = key.shape[1:]
    to_mixed = _grouped(to_mixed_NX.view(sequences, -1, heads, size).permute(2, 0, 1, 3).contiguous(), reading)
    to_score = torch.bmm(to_mixed, _upright(value))
    through_softmax_(to_score, weight)
    parts_HSLD = key.new_empty(_all(reading), sequences, length, size)
    to_query, to_key, to_value = parts_HSLD.split((heads, key_heads, key_heads))
    if heads == key_heads and not reading.asked_from:
        torch.bmm(to_score, key, out=to_query.view(query.shape))
    else:
        to_query[:, :, : reading.asked_from] = 0
        to_query[:, :, reading.asked_from :] = _separate(torch.bmm(to_score, key), reading)
    torch.bmm(to_score.transpose(1, 2), query, out=to_key.view(key.shape))
    torch.bmm(weight.transpose(1, 2), to_mixed, out=to_value.view(value.shape))
    return parts_HSLD


def _spread(value_JD: Tensor, reading: Reading) -> Tensor:
    """The values at their positions of all that are asked for, 0 elsewhere."""
    rows = reading.sequences * (reading.turns.shape[-2] - reading.asked_from)
    return value_JD.new_zeros(rows, value_JD.shape[-1]).index_copy_(0, cast("Tensor", reading.wanted_J), value_JD)
