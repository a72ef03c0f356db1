"""The operations of `lean.py` with their gradients written out, so that each is few passes over memory.

The gradients are checked against numerical ones in float64; none can be differentiated twice.
"""

from __future__ import annotations

import math
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import Function, FunctionCtx

FLOOR = {torch.float64: -200.0, torch.float32: -40.0, torch.bfloat16: -40.0, torch.float16: -15.0}
"""Lowest exponent of a softmax, the largest being 0: e^FLOOR is far below the rounding of its sum."""


SMALL = 40.0
"""Scores up to it in absolute value have powers of e whose sums are far from the limits of float32."""
EXACT = frozenset({torch.float32, torch.float64})
"""Number formats in which products add up without another rounding; layers are written out for these."""


def unit_floor(width: int, eps: float, device: torch.device, dtype: torch.dtype) -> Tensor:
    """What `unit` adds to a length, f = sqrt(width eps), so that it is RMSNorm over sqrt(width)."""
    return torch.tensor((width * eps) ** 0.5, device=device, dtype=_accumulator(dtype))


def normalised(value_ND: Tensor, floor: Tensor) -> Tensor:
    """Y = x / sqrt(|x|^2 + f^2) per row: RMSNorm (arXiv 1910.07467) without its weight and sqrt(width)."""
    return cast("Tensor", _Normalised.apply(value_ND, floor)) if torch.is_grad_enabled() else unit(value_ND, floor)[0]


def unit(value_ND: Tensor, floor: Tensor) -> tuple[Tensor, Tensor]:
    """`normalised` without a gradient, and what the rows were divided by, shape (N, 1)."""
    length_N1 = torch.linalg.vector_norm(value_ND, dim=-1, keepdim=True, dtype=floor.dtype).hypot_(floor)
    if length_N1.dtype != value_ND.dtype:
        length_N1 = length_N1.to(value_ND.dtype)
    return value_ND / length_N1, length_N1


def through_unit(grad_ND: Tensor, y_ND: Tensor, length_N1: Tensor) -> Tensor:
    """The gradient before `unit`, (g - y (g . y)) / length."""
    dot_N1 = row_sums(grad_ND * y_ND).unsqueeze(-1)
    return torch.addcmul(grad_ND, y_ND, dot_N1, value=-1).div_(length_N1)


def gated(gate_NF: Tensor, up_NF: Tensor) -> Tensor:
    """silu(a) * b: the gate of SwiGLU (arXiv 2002.05202)."""
    return cast("Tensor", _Gated.apply(gate_NF, up_NF))


def attention_weights(score: Tensor) -> Tensor:
    """Softmax over the last dimension, for rows that are too short for torch's own to be fast."""
    return cast("Tensor", _AttentionWeights.apply(score))


def rotated(projected_SLX: Tensor, turns_SLD: Tensor, heads: int) -> Tensor:
    """Rotary positions (arXiv 2104.09864) on the first `heads` heads of each row, shape (S, heads, L, head size).

    The two parts of each pair stand side by side, so that a rotation is one complex product.

    Args:
        projected_SLX: queries, keys and more, shape (S, L, X).
        turns_SLD: e^(i angle) per position and pair, shape (L, pairs) or (S, L, pairs).
        heads: heads to rotate.
    """
    return cast("Tensor", _Rotated.apply(projected_SLX, turns_SLD, heads))


def softmax_(score: Tensor) -> Tensor:
    """Softmax over the last dimension, in place.

    What lies `FLOOR` below the largest is taken for that: it is lost in rounding either way, and numbers that
    underflow take many times longer.
    """
    score.sub_(score.amax(-1, keepdim=True)).clamp_(min=FLOOR[score.dtype]).exp_()
    return score.div_(row_sums(score).unsqueeze(-1))


def seen_softmax_(score: Tensor, mask: Tensor | None) -> Tensor:
    """Softmax over the last dimension of what is seen, in place.

    Args:
        score: scores, shape (H, S, G, A, L).
        mask: additive, 0 or far below every score; broadcasts to (S, G, A, L).
    """
    if mask is None or not score.numel():
        return softmax_(score)
    low, high = score.aminmax()
    if max(-float(low), float(high)) > SMALL:
        return softmax_(score.add_(mask))
    score.exp_().mul_((mask == 0).to(score.dtype))
    return score.div_(row_sums(score).clamp_(min=math.exp(-SMALL)).unsqueeze(-1))


def through_softmax_(grad: Tensor, weight: Tensor) -> Tensor:
    """The gradient before a softmax with output p, p (g - sum(g p)), in place of g."""
    return grad.sub_(row_sums(grad * weight).unsqueeze(-1)).mul_(weight)


def row_sums(value: Tensor) -> Tensor:
    """Sums over the last dimension; in a short one a product with ones is faster than a reduction."""
    if value.dtype not in EXACT:
        return value.sum(-1)
    size = value.shape[-1]
    return torch.mv(value.reshape(-1, size), value.new_ones(size)).view(value.shape[:-1])


class _Normalised(Function):
    @staticmethod
    def forward(ctx: Any, value_ND: Tensor, floor: Tensor) -> Tensor:
        y_ND, length_N1 = unit(value_ND, floor)
        ctx.save_for_backward(y_ND, length_N1)
        return y_ND

    @staticmethod
    def backward(ctx: FunctionCtx, *grads: Tensor) -> tuple[Tensor, None]:
        """As in `through_unit`."""
        y_ND, length_N1 = cast("tuple[Tensor, Tensor]", cast("Any", ctx).saved_tensors)
        return through_unit(grads[0], y_ND, length_N1), None


class _Gated(Function):
    @staticmethod
    def forward(ctx: Any, gate_NF: Tensor, up_NF: Tensor) -> Tensor:
        ctx.save_for_backward(gate_NF, up_NF)
        return F.silu(gate_NF).mul_(up_NF)

    @staticmethod
    def backward(ctx: FunctionCtx, *grads: Tensor) -> tuple[Tensor, Tensor]:
        """With output silu(a) b: da = g b silu'(a), db = g silu(a)."""
        (grad_NF,) = grads
        gate_NF, up_NF = cast("tuple[Tensor, Tensor]", cast("Any", ctx).saved_tensors)
        to_gate_NF = torch.ops.aten.silu_backward(grad_NF * up_NF, gate_NF)
        return to_gate_NF, F.silu(gate_NF).mul_(grad_NF)


class _AttentionWeights(Function):
    @staticmethod
    def forward(ctx: Any, score: Tensor) -> Tensor:
        weight = softmax_(score.clone())
        ctx.save_for_backward(weight)
        return weight

    @staticmethod
    def backward(ctx: FunctionCtx, *grads: Tensor) -> Tensor:
        """As in `through_softmax_`."""
        (weight,) = cast("tuple[Tensor]", cast("Any", ctx).saved_tensors)
        return through_softmax_(grads[0].clone(), weight)


class _Rotated(Function):
    @staticmethod
    def forward(ctx: Any, projected_SLX: Tensor, turns_SLD: Tensor, heads: int) -> Tensor:
        ctx.save_for_backward(turns_SLD)
        ctx.shape, ctx.heads = projected_SLX.shape, heads
        pairs = turns_SLD.shape[-1]
        part = projected_SLX[..., : 2 * heads * pairs].unflatten(-1, (heads, pairs, 2))
        turned = torch.view_as_complex(part.to(_accumulator(part.dtype)).contiguous()) * turns_SLD.unsqueeze(-2)
        return torch.view_as_real(turned).flatten(-2).transpose(1, 2).contiguous().to(projected_SLX.dtype)

    @staticmethod
    def backward(ctx: FunctionCtx, *grads: Tensor) -> tuple[Tensor, None, None]:
        """The gradient, turned back; 0 for what was not rotated."""
        (grad_SHLD,) = grads
        saved = cast("Any", ctx)
        (turns_SLD,) = cast("tuple[Tensor]", saved.saved_tensors)
        part = grad_SHLD.transpose(1, 2).unflatten(-1, (-1, 2))
        back = torch.view_as_complex(part.to(_accumulator(part.dtype)).contiguous()) * turns_SLD.unsqueeze(-2).conj()
        result_SLX = grad_SHLD.new_zeros(saved.shape)
        result_SLX[..., : grad_SHLD.shape[1] * grad_SHLD.shape[-1]] = torch.view_as_real(back).flatten(-3)
        return result_SLX, None, None


def _accumulator(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype == torch.float64 else torch.float32
