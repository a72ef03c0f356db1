"""Memory that a run needs, before its weights are loaded.

The model is built without storage, and one forward pass of the longest row runs without data: autograd then names every
tensor that it would keep for the backward pass.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from isocompute_torch.failures import InputError
from isocompute_torch.learning.scoring import KEPT_LOGITS
from isocompute_torch.policy.architecture import architecture_of
from isocompute_torch.runner.memory import GIB, Memory

FLOAT32 = 4
LOGITS_IN_TRAINING = 3
"""Tensors of the size of the logits that live at once: their log-softmax and two gradients. The reference scores its
own beside the policy's, and an entropy with gradient keeps three more."""
WHOLE_LOGITS = 3
"""Further tensors of all logits of a micro-batch, for models whose own forward pass computes them: the cap's tanh, its
result, and a gradient."""
BACKWARD = 1.5
"""Memory of the backward pass of one layer, as a multiple of what its forward pass keeps; 1.2 to 1.6 where it was
measured (benchmarks/speed/memory_estimate.py)."""
PROBE_TOKENS = 97
"""Length of the row that is probed where memory grows in proportion to it; a prime, so that no width of a model is
taken for it."""
LOGITS_IN_SAMPLING = 4
"""Logits, their log-softmax, its rows for the rollouts, and the random numbers that decide."""
ENGINE_AWAKE = 2.0 * GIB
"""vLLM beside its weights and cache: a forward pass, logits and CUDA graphs. From vLLM's logs of models of 0.5 to 7
billion parameters; not measured here."""
ENGINE_ASLEEP = 1.0 * GIB
"""What vLLM keeps while it sleeps: CUDA graphs and kernels. From the same logs."""


@dataclass(frozen=True)
class Sizes:
    """What decides the memory of a run."""

    tokens: int
    """Tokens of the largest micro-batch."""
    row_tokens: int
    """Tokens of its longest row, prompt and response."""
    dtype: torch.dtype
    reference: bool
    """Whether a frozen copy of the model is kept for a KL term."""
    value_model: bool
    """Whether PPO's value model is trained beside the policy."""
    entropy: bool
    """Whether an entropy term is trained."""
    checkpointing: bool
    """Whether layers are computed again in the backward pass."""
    engine: bool = False
    """Whether vLLM samples, with weights and a cache of its own, and sleeps during updates."""


@dataclass(frozen=True)
class MemoryEstimate:
    """Bytes on the device of the model."""

    parameters: int
    """Number of parameters of the policy."""
    vocabulary: int
    """Number of logits per token."""
    whole_logits: bool
    """Whether the model computes all logits of a micro-batch at once."""
    sizes: Sizes
    """What it is an estimate of."""
    parts: Mapping[str, float]
    """Part -> bytes: weights, masters, moments, gradients, reference, value model, activations, backward pass of one
    layer, logits, and sampling of one row (or vLLM with one row)."""

    @property
    def states(self) -> float:
        """Bytes that are there during the whole run."""
        return sum(self.parts[name] for name in ("weights", "masters", "moments", "reference", "value model"))

    @property
    def update(self) -> float:
        """Bytes of an update beside the states."""
        asleep = ENGINE_ASLEEP if self.sizes.engine else 0.0
        # Logits are gone when the backward pass reaches the layers.
        passing = max(self.parts["logits"], self.parts["one layer"])
        return self.parts["gradients"] + self.parts["activations"] + passing + asleep

    @property
    def peak(self) -> float:
        """Largest sum: in an update, or while sampling one row."""
        return self.states + max(self.update, self.parts["sampling"])

    def of(self, tokens: int) -> MemoryEstimate:
        """The same run with micro-batches of another size."""
        sizes = replace(self.sizes, tokens=tokens)
        changed = {name: self.parts[name] * tokens / self.sizes.tokens for name in ("activations", "one layer")}
        changed["logits"] = _logits(sizes, self.vocabulary, whole=self.whole_logits)
        return replace(self, sizes=sizes, parts={**self.parts, **changed})

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

    architecture = architecture_of(config.to_dict())
    eager = architecture.caps_attention
    with torch.device("meta"):
        model: Any = transformers.AutoModelForCausalLM.from_config(
            config, dtype=sizes.dtype, attn_implementation="eager" if eager else "sdpa"
        ).eval()
    count = sum(parameter.numel() for parameter in model.parameters())
    bits = torch.finfo(sizes.dtype).bits // 8
    masters = FLOAT32 if bits < FLOAT32 else 0
    width = max(bits, FLOAT32)
    trained = 2 if sizes.value_model else 1
    text = config.get_text_config()
    layers, row = max(1, int(text.num_hidden_layers)), sizes.row_tokens
    # Scores grow with the square of a row; without them everything grows in proportion.
    probed = row if eager else PROBE_TOKENS
    saved = _saved_bytes(model, probed, with_scores=eager) * sizes.tokens / probed
    one_layer = BACKWARD * saved / layers
    if sizes.checkpointing:
        # The input of every layer, and the last norm.
        saved = sizes.tokens * int(text.hidden_size) * bits * (layers + 2)
    whole = not architecture.reads_trees
    vocabulary = int(model.get_output_embeddings().weight.shape[0])
    sampling = row_bytes(config, sizes.dtype, row, vocabulary)
    return MemoryEstimate(
        count,
        vocabulary,
        whole,
        sizes,
        {
            "weights": count * bits,
            "masters": count * masters,
            "moments": 2 * count * width,
            "gradients": trained * count * (width + (bits if masters else 0)),
            "reference": count * bits * sizes.reference,
            "value model": count * (bits + masters + 2 * width) * sizes.value_model,
            "activations": trained * saved,
            "one layer": one_layer,
            "logits": _logits(sizes, vocabulary, whole=whole),
            "sampling": sampling + (count * bits + ENGINE_AWAKE if sizes.engine else 0.0),
        },
    )


def row_bytes(config: Any, dtype: torch.dtype, tokens: int, vocabulary: int) -> float:
    """Bytes of one rollout while it is sampled: keys and values of all its tokens, and its logits."""
    text = config.get_text_config()
    heads = int(text.num_attention_heads)
    shared = int(getattr(text, "num_key_value_heads", None) or heads)
    size = int(getattr(text, "head_dim", None) or text.hidden_size // heads)
    cache = 2 * int(text.num_hidden_layers) * shared * size * (torch.finfo(dtype).bits // 8)
    return tokens * cache + LOGITS_IN_SAMPLING * FLOAT32 * vocabulary


def refuse_what_cannot_fit(found: MemoryEstimate, memory: Memory, name: str) -> None:
    """Raise if an estimate exceeds what a run may ever have.

    Raises:
        InputError: it does not fit; the message says which model would.
    """
    if found.peak <= memory.most:
        return
    raise InputError(
        f"model {name!r} with {found.parameters / 1e9:.2f} billion parameters needs about {found.text()}; this device "
        f"has {memory.total / GIB:.0f} GiB, of which {memory.most / GIB:.0f} are for it",
        f"About {largest_that_fits(found, memory.most) / 1e9:.1f} billion parameters fit here with this recipe. Lower "
        "recipe.max_response_tokens or options.max_tokens_per_micro_batch, set recipe.kl_coef to 0 (no reference "
        "model), or take the backend openrlhf, verl or trl, which share a model between GPUs. The built-in runner is "
        "for models of about 0.5 to 3 billion parameters on one GPU.",
    )


def largest_that_fits(found: MemoryEstimate, room: float) -> float:
    """Parameters of the largest model of this kind whose peak is within `room` bytes.

    Width and depth shrink together: parameters with the cube of the width, activations with its square; logits stay.
    """
    by_parameter = found.states + found.parts["gradients"]
    rest = found.update - found.parts["gradients"] - found.parts["activations"]
    low, high = 0.0, 1.0
    for _ in range(40):
        middle = (low + high) / 2
        fits = by_parameter * middle + found.parts["activations"] * middle ** (2 / 3) + rest <= room
        low, high = (middle, high) if fits else (low, middle)
    return low * found.parameters


def _logits(sizes: Sizes, vocabulary: int, *, whole: bool) -> float:
    """Bytes of the logits of a micro-batch and of what is computed from them, in 32 bits and in bounded parts."""
    tensors, every = LOGITS_IN_TRAINING + (3 if sizes.entropy else int(sizes.reference)), sizes.tokens * vocabulary
    in_parts = tensors * FLOAT32 * min(every, max(KEPT_LOGITS, vocabulary))
    return in_parts + (WHOLE_LOGITS * every * (torch.finfo(sizes.dtype).bits // 8) if whole else 0.0)


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
