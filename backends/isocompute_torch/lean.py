"""Small Llama-shaped models in few operations: the same function as transformers computes, in a fraction of the time.

In a model of a few narrow layers most of the time goes into calls and into passes over memory, not into products of
matrices. So the weights of the norms move into the matrices behind them; queries, keys and values come from one
product; a rotation is one complex product; and norm, gate and rotation have their gradients written out (lean_ops.py).
In float32 a layer over short sequences is two operations with their gradients (lean_layer.py), reading one more token
has a form of its own (lean_decode.py), and with few tokens the first layer looks most up in tables (lean_table.py).

`lean_model` gives it for Llama, Mistral and Qwen2 of up to `MAX_PARAMETERS`, after its output was compared with that
of transformers. Everything else runs through transformers.
"""

from __future__ import annotations

from typing import Any, Protocol, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from isocompute_torch.lean_decode import LeanCache, read_one
from isocompute_torch.lean_layer import LayerWeights, Reading, after_attention, whole_layer
from isocompute_torch.lean_ops import EXACT, attention_weights, gated, normalised, rotated, unit_floor
from isocompute_torch.lean_table import FirstLayer, TokensSoFar, attention_to, first_layer, looked_up, tokens_read

MODEL_TYPES = frozenset({"llama", "mistral", "qwen2"})
MAX_PARAMETERS = 250_000_000
"""Above it, copying weights costs more than the calls that it saves."""
SHORT = 64
"""Up to this length attention is written out; longer sequences go through torch's own kernel."""
MASKED = -1e30
"""Added to the scores of tokens that are not seen; finite, so that a row which sees nothing stays a number."""
TOLERANCE = {torch.float64: 1e-4, torch.float32: 1e-4, torch.bfloat16: 0.1}
"""Largest difference from transformers relative to the largest logit; that rounds to float32 even in float64."""


class LeanModel:
    """The layers of a Llama-shaped model; its parameters are used, not copied.

    Args:
        backbone: the model of transformers without its head.
    """

    def __init__(self, backbone: nn.Module) -> None:
        model = cast("Any", backbone)
        self._model = model
        self._layers: list[Any] = list(model.layers)
        attention = self._layers[0].self_attn
        self.head_size = int(attention.head_dim)
        self.heads = int(model.config.num_attention_heads)
        self.key_heads = int(model.config.num_key_value_heads)
        width, weight = int(model.config.hidden_size), attention.q_proj.weight
        self._floor = unit_floor(width, float(model.config.rms_norm_eps), weight.device, weight.dtype)
        self._root_width = width**0.5
        # Angles are rounded to float32 whatever the weights are, and tables take differences of positions.
        few = len(model.embed_tokens.weight) <= self.head_size and len(self._layers) > 1
        self._has_few_tokens = few and weight.dtype == torch.float32
        first = torch.arange(SHORT, device=weight.device).unsqueeze(0)
        self._first_turns_LP = self._computed_turns(first)[0]
        self._order_X, self._scale_X = self._projection_order(float(attention.scaling))
        self._root_scale_X1 = self._scale_X.unsqueeze(-1) * self._root_width

    def weights(self) -> list[LayerWeights]:
        """All layers' matrices as they are now; differentiable in the parameters."""
        return [self._layer_weights(layer) for layer in self._layers]

    @torch.no_grad()
    def new_cache(self, longest: int, weights: list[LayerWeights] | None = None) -> LeanCache:
        """An empty cache, for a prompt and then one token at a time.

        Args:
            longest: most tokens that a row will have.
            weights: `weights()`, where they were computed before.
        """
        tokens = None
        if self._has_few_tokens and longest <= SHORT:
            layer = self._layer_weights(self._layers[0]) if weights is None else weights[0]
            tokens = TokensSoFar(self._first_layer(layer, longest))
        return LeanCache(len(self._layers), min(longest, SHORT), tokens)

    def hidden_states(
        self,
        input_ids_SL: Tensor,
        mask: Tensor | None = None,
        position_ids_SL: Tensor | None = None,
        *,
        weights: list[LayerWeights] | None = None,
        cache: LeanCache | None = None,
        wanted_J: Tensor | None = None,
    ) -> Tensor:
        """Hidden states before the last norm, shape (S, L, width), or (J, width) of the wanted positions.

        Args:
            input_ids_SL: token ids.
            mask: additive mask that broadcasts to (S, 1, L, all tokens so far); None for plain causal attention.
            position_ids_SL: positions; None where they go on from those in the cache.
            weights: `weights()`, where they were computed before.
            cache: what was read before; extended.
            wanted_J: flat positions (of S times L) that are asked for: the last layer mixes in and computes no others.
        """
        sequences, length = input_ids_SL.shape
        before = 0 if cache is None else cache.length
        if mask is None and length > 1:
            mask = self._causal(length, before, input_ids_SL.device)
        layers = self.weights() if weights is None else weights
        if cache is None and mask is not None and length <= SHORT and layers[0].mix_DX.dtype in EXACT:
            hidden_ND = self._in_whole_layers(input_ids_SL, mask, position_ids_SL, layers, wanted_J)
            return hidden_ND.view(sequences, length, -1) if wanted_J is None else hidden_ND
        turns = self._turns(position_ids_SL, before, length, input_ids_SL.device)
        hidden_ND = F.embedding(input_ids_SL.flatten(), self._model.embed_tokens.weight)
        if cache is not None and cache.tokens is not None:
            cache.tokens.read(input_ids_SL)
        if cache is not None and length == 1 and before < SHORT and hidden_ND.dtype in EXACT:
            turns_KP, shape = turns.flatten(0, -2), {"heads": self.heads, "key_heads": self.key_heads}
            return read_one(hidden_ND, layers, cache, turns_KP, mask, **shape, floor=self._floor).unsqueeze(1)
        for index, layer in enumerate(layers):
            asked_J = wanted_J if index + 1 == len(layers) else None
            query, key, value = self._heads(self._projected(hidden_ND, layer).view(sequences, length, -1), turns)
            if cache is not None and (cache.tokens is None or index > 0):
                key, value = cache.extend(index, key, value)
            mixed_NX = self._attention(query, key, value, mask)
            if asked_J is not None:
                hidden_ND, mixed_NX = hidden_ND.index_select(0, asked_J), mixed_NX.index_select(0, asked_J)
            hidden_ND = torch.addmm(hidden_ND, mixed_NX, layer.mix_DX.t())
            if layer.mix_bias_D is not None:
                hidden_ND = hidden_ND + layer.mix_bias_D
            normal_ND = normalised(hidden_ND, self._floor)
            opened_NF = gated(F.linear(normal_ND, layer.gate_FD), F.linear(normal_ND, layer.up_FD))
            hidden_ND = torch.addmm(hidden_ND, opened_NF, layer.down_DF.t())
        if cache is not None:
            cache.length = before + length
        return hidden_ND.view(sequences, length, -1) if wanted_J is None else hidden_ND

    def last_norm(self, hidden_KD: Tensor) -> Tensor:
        """The norm between the layers and the head."""
        return normalised(hidden_KD, self._floor) * (self._model.norm.weight * self._root_width)

    def _in_whole_layers(
        self,
        input_ids_SL: Tensor,
        mask: Tensor,
        position_ids_SL: Tensor | None,
        layers: list[LayerWeights],
        wanted_J: Tensor | None,
    ) -> Tensor:
        """Hidden states of short sequences without a cache, shape (N, width) or (J, width)."""
        sequences, length = input_ids_SL.shape
        turns = self._turns_of_heads(self._turns(position_ids_SL, 0, length, input_ids_SL.device))
        reading = Reading(sequences, self.heads, self.key_heads, self._floor, turns, mask)
        table_VD = self._model.embed_tokens.weight
        if self._worth_a_table(input_ids_SL, position_ids_SL):
            positions = length if position_ids_SL is None else SHORT
            first = self._first_layer(layers[0], positions)
            tokens = tokens_read(input_ids_SL, position_ids_SL, first.score_HVPV)
            hidden_ND, mixed_NX = looked_up(table_VD, tokens), attention_to(first.score_HVPV, tokens, mask)
            hidden_ND = after_attention(hidden_ND, mixed_NX, layers[0]._replace(mix_DX=first.mix_DX), reading)
            layers = layers[1:]
        else:
            hidden_ND = F.embedding(input_ids_SL.flatten(), table_VD)
        for layer in layers[:-1]:
            hidden_ND = whole_layer(hidden_ND, layer, reading)
        return whole_layer(hidden_ND, layers[-1], reading if wanted_J is None else reading.asking(wanted_J))

    def _first_layer(self, layer: LayerWeights, positions: int) -> FirstLayer:
        projected_VX = self._projected(self._model.embed_tokens.weight, layer)
        return first_layer(projected_VX, layer, self._first_turns_LP[:positions], self.heads, self.key_heads)

    def _worth_a_table(self, input_ids_SL: Tensor, position_ids_SL: Tensor | None) -> bool:
        """Whether a table of the first layer's scores is smaller than what is read from it."""
        if not self._has_few_tokens:
            return False
        vocabulary = len(self._model.embed_tokens.weight)
        positions = input_ids_SL.shape[1] if position_ids_SL is None else SHORT
        known = position_ids_SL is None or 0 <= int(position_ids_SL.min()) <= int(position_ids_SL.max()) < SHORT
        return known and vocabulary**2 * positions <= input_ids_SL.numel() * input_ids_SL.shape[1]

    def _projected(self, hidden_ND: Tensor, layer: LayerWeights) -> Tensor:
        """Queries, keys and values before they are turned, shape (N, X)."""
        return F.linear(normalised(hidden_ND, self._floor), layer.project_XD, layer.project_bias_X)

    def _layer_weights(self, layer: Any) -> LayerWeights:
        attention, mlp = layer.self_attn, layer.mlp
        projections = (attention.q_proj, attention.k_proj, attention.v_proj)
        project_XD = torch.cat([part.weight for part in projections]).index_select(0, self._order_X)
        bias_X = None
        if attention.q_proj.bias is not None:
            bias_X = torch.cat([part.bias for part in projections]).index_select(0, self._order_X) * self._scale_X
        norm_D = layer.post_attention_layernorm.weight * self._root_width
        return LayerWeights(
            project_XD * self._root_scale_X1 * layer.input_layernorm.weight,
            bias_X,
            attention.o_proj.weight,
            attention.o_proj.bias,
            mlp.gate_proj.weight * norm_D,
            mlp.up_proj.weight * norm_D,
            mlp.down_proj.weight,
        )

    def _projection_order(self, scaling: float) -> tuple[Tensor, Tensor]:
        """Order of the projected rows, in which the two parts of each rotated pair are neighbours, and their scale."""
        weight = self._layers[0].self_attn.q_proj.weight
        half = self.head_size // 2
        pair_D = torch.arange(self.head_size).view(2, half).t().flatten()
        turned = self.heads + self.key_heads
        rows = [head * self.head_size + pair_D for head in range(turned)]
        total = (turned + self.key_heads) * self.head_size
        order_X = torch.cat([*rows, torch.arange(turned * self.head_size, total)]).to(weight.device)
        scale_X = torch.ones(total, dtype=weight.dtype, device=weight.device)
        scale_X[: self.heads * self.head_size] = scaling
        return order_X, scale_X

    def _turns(self, position_ids_SL: Tensor | None, before: int, length: int, device: torch.device) -> Tensor:
        """e^(i angle) per position and pair, shape (L, pairs) or (S, L, pairs)."""
        if position_ids_SL is not None:
            return self._computed_turns(position_ids_SL)
        if before + length <= SHORT:
            return self._first_turns_LP[before : before + length]
        return self._computed_turns(torch.arange(before, before + length, device=device).unsqueeze(0))[0]

    def _turns_of_heads(self, turns: Tensor) -> Tensor:
        """The turns of every head that is turned, one after the other."""
        return turns.repeat(*[1] * (turns.ndim - 1), self.heads + self.key_heads)

    def _computed_turns(self, position_ids_SL: Tensor) -> Tensor:
        wanted = torch.float64 if self._model.embed_tokens.weight.dtype == torch.float64 else torch.float32
        probe = torch.empty(0, dtype=wanted, device=position_ids_SL.device)
        cos_SLD, sin_SLD = cast("tuple[Tensor, Tensor]", self._model.rotary_emb(probe, position_ids_SL))
        half = self.head_size // 2
        return torch.complex(cos_SLD[..., :half].contiguous(), sin_SLD[..., :half].contiguous())

    def _causal(self, length: int, before: int, device: torch.device) -> Tensor | None:
        if before == 0 and length > SHORT:
            return None
        seen = torch.full((length, before + length), MASKED, device=device, dtype=self._model.embed_tokens.weight.dtype)
        return seen.triu_(before + 1)

    def _heads(self, projected_SLX: Tensor, turns: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values, each (S, heads, L, head size)."""
        turned = rotated(projected_SLX, turns, self.heads + self.key_heads)
        values = projected_SLX[..., (self.heads + self.key_heads) * self.head_size :]
        value = values.unflatten(-1, (self.key_heads, self.head_size)).transpose(1, 2)
        return turned[:, : self.heads], turned[:, self.heads :], value

    def _attention(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        """Attention, the heads of each token side by side, shape (N, heads * head size)."""
        sequences, _, length, _ = query.shape
        if length == 1 and key.shape[2] <= SHORT:
            return self._attend_once(query, key, value, mask)
        groups = self.heads // self.key_heads
        if groups > 1:
            key, value = key.repeat_interleave(groups, dim=1), value.repeat_interleave(groups, dim=1)
        if key.shape[2] <= SHORT and mask is not None:
            score = torch.matmul(query, key.transpose(-1, -2)) + mask
            mixed = torch.matmul(attention_weights(score), value)
        else:
            mixed = F.scaled_dot_product_attention(
                query, key, value, attn_mask=mask, is_causal=mask is None and length > 1, scale=1.0
            )
        return mixed.transpose(1, 2).reshape(sequences * length, -1)

    def _attend_once(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        """One new token per row over a short cache: the query heads of one key head share its products."""
        rows = query.shape[0]
        score = torch.matmul(query.view(rows, self.key_heads, -1, self.head_size), key.transpose(-1, -2))
        if mask is not None:
            score = score + mask
        return torch.matmul(attention_weights(score), value).view(rows, -1)


class _Head(Protocol):
    def __call__(self, hidden_KD: Tensor, /) -> Tensor: ...


def lean_model(model: nn.Module, backbone: nn.Module, head: _Head) -> LeanModel | None:
    """The lean form of a model; None where it is of another kind, too large, or would not be the same function."""
    config: Any = cast("Any", model).config
    if config.model_type not in MODEL_TYPES or config.hidden_act != "silu":
        return None
    if sum(parameter.numel() for parameter in model.parameters()) > MAX_PARAMETERS:
        return None
    kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
    if kinds != {"full_attention"} or (config.model_type == "mistral" and config.sliding_window is not None):
        return None
    lean = LeanModel(backbone)
    first = next(model.parameters())
    probe_SL = torch.arange(12, device=first.device).view(2, 6) % config.vocab_size
    with torch.no_grad():
        expected = cast("Any", model)(input_ids=probe_SL, use_cache=False).logits.double()
        found = head(lean.last_norm(lean.hidden_states(probe_SL).flatten(0, 1))).view_as(expected).double()
    tolerance = TOLERANCE.get(first.dtype, 0.0) * expected.abs().max()
    return lean if bool((found - expected).abs().max() <= tolerance) else None
