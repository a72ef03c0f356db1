"""Reading one more token per row with a `LeanModel`: few operations, no copies, no gradient.

One query per row over a few keys is too little for a product of matrices. Products of single numbers and sums over the
cache, whose first axis is the position, take a fraction of the time.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from isocompute_torch.lean_layer import LayerWeights, as_pairs
from isocompute_torch.lean_ops import row_sums, unit
from isocompute_torch.lean_table import TokensSoFar

CACHE_BLOCK = 16
"""Tokens by which a cache grows."""


class LeanCache:
    """Keys and values of what was read so far, one row per sequence.

    Args:
        layers: number of layers.
        room: tokens it has room for before it has to grow.
        tokens: takes the place of the first layer's keys and values, where there are few tokens.
    """

    def __init__(self, layers: int, room: int = CACHE_BLOCK, tokens: TokensSoFar | None = None) -> None:
        self.length = 0
        self.tokens = tokens
        self._room = room
        self._stored: list[Tensor | None] = [None] * layers

    def extend(self, layer: int, key_KHLD: Tensor, value_KHLD: Tensor) -> tuple[Tensor, Tensor]:
        """Append to one layer; returns all keys and values, shape (K, heads, length, head size)."""
        stored_2LKHD = self.slots(layer, key_KHLD.shape[2], key_KHLD[:, :, 0])
        stored_2LKHD[:, self.length :] = torch.stack((key_KHLD, value_KHLD)).permute(0, 3, 1, 2, 4)
        key, value = stored_2LKHD.permute(0, 2, 3, 1, 4)
        return key, value

    def slots(self, layer: int, new: int, like_KHD: Tensor) -> Tensor:
        """Keys and values of one layer, shape (2, length, K, heads, head size), the last `new` to be written."""
        end = self.length + new
        stored = self._stored[layer]
        if stored is None or stored.shape[1] < end:
            grown = like_KHD.new_empty(2, max(self._room, -(-end // CACHE_BLOCK) * CACHE_BLOCK), *like_KHD.shape)
            if stored is not None:
                grown[:, : self.length] = stored[:, : self.length]
            self._stored[layer] = stored = grown
        return stored[:, :end]

    def batch_select_indices(self, indices_K: Tensor) -> None:
        """Make row i a copy of what was row indices[i]."""
        if self.tokens is not None:
            self.tokens.select(indices_K)
        for layer, stored in enumerate(self._stored):
            if stored is None:
                continue
            chosen = stored.new_empty(2, stored.shape[1], len(indices_K), *stored.shape[3:])
            for part, whole in zip(chosen, stored, strict=True):
                torch.index_select(whole[: self.length], 1, indices_K, out=part[: self.length])
            self._stored[layer] = chosen


def read_one(
    hidden_KD: Tensor,
    layers: Sequence[LayerWeights],
    cache: LeanCache,
    turns_KP: Tensor,
    mask: Tensor | None,
    *,
    heads: int,
    key_heads: int,
    floor: Tensor,
) -> Tensor:
    """Hidden states after the layers, shape (K, width); extends the cache.

    Args:
        hidden_KD: embeddings of the tokens; overwritten.
        layers: the matrices.
        cache: what the rows read before.
        turns_KP: e^(i angle) of the token's position per pair, shape (1, pairs) or (K, pairs).
        mask: additive, shape (K, 1, 1, all tokens so far).
        heads: query heads.
        key_heads: heads of keys and values.
        floor: of the norms.
    """
    rows, turned, turns_K1P = len(hidden_KD), heads + key_heads, turns_KP.unsqueeze(-2)
    for index, layer in enumerate(layers):
        if index == 0 and cache.tokens is not None:
            mixed_KX, mix_DX = cache.tokens.attention(mask), cache.tokens.mix_DX
        else:
            projected_KX = F.linear(unit(hidden_KD, floor)[0], layer.project_XD, layer.project_bias_X)
            parts_KHD = projected_KX.view(rows, turned + key_heads, -1)
            as_pairs(parts_KHD[:, :turned]).mul_(turns_K1P)
            own_2KHD = parts_KHD[:, heads:].unflatten(1, (2, key_heads)).transpose(0, 1)
            stored_2LKHD = cache.slots(index, 1, own_2KHD[0])
            stored_2LKHD[:, -1] = own_2KHD
            mixed_KX, mix_DX = _mixed(parts_KHD[:, :heads], stored_2LKHD, mask), layer.mix_DX
        hidden_KD.addmm_(mixed_KX, mix_DX.t())
        if layer.mix_bias_D is not None:
            hidden_KD.add_(layer.mix_bias_D)
        second_KD = unit(hidden_KD, floor)[0]
        open_KF = F.silu(F.linear(second_KD, layer.gate_FD)).mul_(F.linear(second_KD, layer.up_FD))
        hidden_KD.addmm_(open_KF, layer.down_DF.t())
    cache.length += 1
    return hidden_KD


def _mixed(query_KHD: Tensor, stored_2LKHD: Tensor, mask: Tensor | None) -> Tensor:
    """Attention of one query per row and head, the heads side by side, shape (K, heads * head size)."""
    rows, heads, size = query_KHD.shape
    key_heads = stored_2LKHD.shape[3]
    key_LKH1D, value_LKH1D = stored_2LKHD.unsqueeze(4)
    score_LKHG = row_sums(key_LKH1D * query_KHD.view(rows, key_heads, heads // key_heads, size))
    if mask is not None:
        score_LKHG.add_(mask.permute(3, 0, 1, 2))
    return (score_LKHG.softmax(0).unsqueeze(-1) * value_LKH1D).sum(0).view(rows, -1)
