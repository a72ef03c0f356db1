"""Memory that a run needs, before its weights are loaded.

The model is built without storage, and one forward pass of the longest micro-batch runs without data: autograd then
names every tensor that it would keep for the backward pass.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from isocompute_torch.failures import InputError
from isocompute_torch.learning.scoring import KEPT_LOGITS
from isocompute_torch.policy.architecture import architecture_of

GIB = 2**30
WORKSPACE = 1.0 * GIB
"""CUDA context, libraries and fragments."""
MOST = 0.95
"""Share of the device that an estimate may fill."""
FLOAT32 = 4


@dataclass(frozen=True)
class Sizes:
    """What decides the memory of a run."""

    tokens: int
    """Tokens of the largest micro-batch, in one row."""
    dtype: torch.dtype
    reference: bool
    """Whether a frozen copy of the model is kept for a KL term."""
    value_model: bool
    """Whether PPO's value model is trained beside the policy."""
    cached_tokens: int
    """Tokens in the sampler's KV cache at once; 0 for a sampler with memory of its own."""
    checkpointing: bool
    """Whether layers are computed again in the backward pass."""
    shared: float = 0.0
    """Share of the device that another program, such as vLLM, has for itself."""


@dataclass(frozen=True)
class MemoryEstimate:
    """Bytes on the device of the model."""

    parameters: int
    """Number of parameters of the policy."""
    parts: Mapping[str, float]
    """Part -> bytes: weights, masters, moments, gradients, reference, value model, activations, logits, cache."""

    @property
    def states(self) -> float:
        """Bytes that are there during the whole run."""
        return sum(self.parts[name] for name in ("weights", "masters", "moments", "reference", "value model"))

    @property
    def peak(self) -> float:
        """Largest sum: in an update, or while sampling."""
        update = self.parts["gradients"] + self.parts["activations"] + self.parts["logits"]
        return self.states + max(update, self.parts["cache"])

    def text(self) -> str:
        """One line."""
        shown = [f"{name} {size / GIB:.1f}" for name, size in self.parts.items() if size >= 0.05 * GIB]
        return f"{self.peak / GIB:.1f} GiB at the peak ({', '.join(shown) or 'below 0.05 each'})"


def estimate(config: Any, sizes: Sizes) -> MemoryEstimate:
    """The memory of a run.

    Args:
        config: transformers' configuration of the model.
        sizes: the rest.
    """
    import transformers

    eager = architecture_of(config.to_dict()).caps_attention
    with torch.device("meta"):
        model: Any = transformers.AutoModelForCausalLM.from_config(
            config, dtype=sizes.dtype, attn_implementation="eager" if eager else "sdpa"
        ).eval()
    count = sum(parameter.numel() for parameter in model.parameters())
    bits = torch.finfo(sizes.dtype).bits // 8
    masters = FLOAT32 if bits < FLOAT32 else 0
    width = max(bits, FLOAT32)
    trained = 2 if sizes.value_model else 1
    saved, layers = _saved_bytes(model, sizes.tokens, with_scores=eager), max(1, int(config.num_hidden_layers))
    if sizes.checkpointing:
        # The input of every layer, and one layer at a time.
        saved = sizes.tokens * int(config.hidden_size) * bits * layers + saved / layers
    vocabulary = int(model.get_output_embeddings().weight.shape[0])
    # Logits, their logarithmic softmax and its gradient, all in 32 bits.
    logits = 3 * FLOAT32 * min(sizes.tokens * vocabulary, max(KEPT_LOGITS, vocabulary))
    return MemoryEstimate(
        count,
        {
            "weights": count * bits,
            "masters": count * masters,
            "moments": 2 * count * width,
            "gradients": trained * count * (width + (bits if masters else 0)),
            "reference": count * bits * sizes.reference,
            "value model": count * (bits + masters + 2 * width) * sizes.value_model,
            "activations": trained * saved,
            "logits": logits,
            "cache": sizes.cached_tokens * _cache_bytes_per_token(config, bits),
        },
    )


def rows_that_fit(found: MemoryEstimate, sizes: Sizes, total: float, longest: int) -> int:
    """Rows of `longest` tokens whose KV cache fits beside the states of a run, at least 1.

    Args:
        found: the estimate, of a run whose cache holds `sizes.cached_tokens`.
        sizes: what it is of.
        total: bytes of the device.
        longest: tokens of a row.
    """
    row = found.parts["cache"] / sizes.cached_tokens * longest
    return max(1, int((_room(sizes, total) - found.states) / row))


def refuse_what_cannot_fit(found: MemoryEstimate, sizes: Sizes, total: float, name: str) -> None:
    """Raise if an estimate exceeds a device.

    Args:
        found: the estimate.
        sizes: what it is of.
        total: bytes of the device.
        name: the model, for the message.

    Raises:
        InputError: it does not fit; the message says which model would.
    """
    room = _room(sizes, total)
    if found.peak <= room:
        return
    per_parameter = found.states / found.parameters + found.parts["gradients"] / found.parameters
    fixed = found.peak - per_parameter * found.parameters
    largest = max(0.0, (room - min(fixed, room / 2)) / per_parameter)
    raise InputError(
        f"model {name!r} with {found.parameters / 1e9:.2f} billion parameters needs about {found.text()}; this device "
        f"has {total / GIB:.0f} GiB, of which {room / GIB:.0f} are free for it",
        f"About {largest / 1e9:.1f} billion parameters fit here with this recipe. Lower recipe.max_response_tokens or "
        "options.max_tokens_per_micro_batch, set recipe.kl_coef to 0 (no reference model), or take the backend "
        "openrlhf, verl or trl, which share a model between GPUs. The built-in runner is for models of about 0.5 to 3 "
        "billion parameters on one GPU.",
    )


def _room(sizes: Sizes, total: float) -> float:
    return total * (MOST - sizes.shared) - WORKSPACE


def _saved_bytes(model: Any, tokens: int, *, with_scores: bool) -> float:
    """Bytes that one forward pass of the layers over a row keeps for the backward pass.

    Without `with_scores` attention runs in a kernel that keeps no scores, which the formula used here does.
    """
    owned = {id(parameter) for parameter in model.parameters()}
    kept: dict[int, Tensor] = {}

    def pack(tensor: Tensor) -> Tensor:
        if id(tensor) not in owned and id(tensor._base) not in owned:
            base = tensor if tensor._base is None else tensor._base
            kept[id(base)] = base
        return tensor

    with torch.device("meta"), torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        backbone = model.base_model if model.base_model is not model else model
        # With a mask of its own the model looks at no values, which tensors without storage do not have.
        mask = torch.zeros((1, 1, tokens, tokens), dtype=model.dtype)
        backbone(input_ids=torch.zeros((1, tokens), dtype=torch.long), attention_mask=mask, use_cache=False)
    counted = [one for one in kept.values() if with_scores or tuple(one.shape[-2:]) != (tokens, tokens)]
    return float(sum(one.numel() * one.element_size() for one in counted))


def _cache_bytes_per_token(config: Any, bits: int) -> float:
    heads = int(config.num_attention_heads)
    shared = int(getattr(config, "num_key_value_heads", None) or heads)
    size = int(getattr(config, "head_dim", None) or config.hidden_size // heads)
    return 2 * int(config.num_hidden_layers) * shared * size * bits
