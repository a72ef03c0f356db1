"""Memory of a run: what the device has, what the run needs, and the sizes that fit.

The estimate builds the model without storage and runs one forward pass of the longest row without data: autograd then
names every tensor that it would keep for the backward pass.
"""

from __future__ import annotations

import ctypes
import math
import resource
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from isocompute_sdk.notes import Note
from isocompute_sdk.specs import Recipe
from isocompute_torch.architecture import architecture_of
from isocompute_torch.configuration import InputError, TorchOptions
from isocompute_torch.learner import KEPT_LOGITS

GIB = 2**30
MOST = 0.95
"""Share of the memory that a run may fill."""
WORKSPACE = {"cuda": 1.0 * GIB, "cpu": 0.25 * GIB}
"""CUDA context, libraries and fragments."""
CGROUP = Path("/sys/fs/cgroup")
OWN_GROUP = Path("/proc/self/cgroup")
TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3
"""Parameters of glibc's mallopt."""
KEPT_BYTES = 2**30
"""Free memory at the end of the heap above which glibc returns some."""
LARGEST_BYTES = 2**25
"""Blocks up to this size come from the heap; the largest value that glibc accepts."""
RETURNED_BYTES = 2**17
"""Smallest block that is returned at once where memory is short."""


@dataclass(frozen=True)
class Memory:
    """Memory that one process may use, in bytes."""

    total: float
    """Memory of the device, or the limit of the process if that is lower."""
    free: float
    """What of it is free now."""
    workspace: float
    """What torch needs beside tensors."""

    @property
    def most(self) -> float:
        """Bytes for tensors if nothing else used the device."""
        return MOST * self.total - self.workspace

    @property
    def room(self) -> float:
        """Bytes for tensors now."""
        return MOST * min(self.total, self.free) - self.workspace


def memory_of(device: torch.device) -> Memory:
    """The memory of a GPU, or of this process on a CPU; call it before the weights are loaded."""
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        return Memory(total, free, WORKSPACE["cuda"])
    bounds = [(_meminfo("MemTotal"), _meminfo("MemAvailable")), *_control_groups(), *_address_space()]
    total, free = (min(column) for column in zip(*bounds, strict=True))
    return Memory(total, max(0.0, free), WORKSPACE["cpu"])


def keep_freed_memory(*, keep: bool = True) -> None:
    """Make glibc keep freed memory, or return it at once, for the whole process; no effect with another C library.

    Every step of training on a CPU needs the same blocks of some megabytes. Kept blocks save the system from clearing
    each page again at its next use, and cost up to as much memory again in fragments.
    """
    if not sys.platform.startswith("linux"):
        return
    with suppress(OSError, AttributeError):  # another C library
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(TRIM_THRESHOLD, KEPT_BYTES if keep else RETURNED_BYTES)
        mallopt(MMAP_THRESHOLD, LARGEST_BYTES if keep else RETURNED_BYTES)


def _meminfo(name: str) -> float:
    """A line of /proc/meminfo in bytes; infinity on another system."""
    with suppress(OSError, ValueError):
        text = Path("/proc/meminfo").read_text(encoding="utf-8")
        return int(text.partition(f"{name}:")[2].split()[0]) * 1024
    return float("inf")


def _control_groups() -> Iterator[tuple[float, float]]:
    """Limits of this container or job, and what of each is free (cgroup v2)."""
    with suppress(OSError):
        own = next((line[3:] for line in OWN_GROUP.read_text("utf-8").splitlines() if line.startswith("0::")), "/")
        here = CGROUP / own.strip("/")
        for group in (here, *here.parents):
            with suppress(OSError, ValueError):  # no limit here: no file, or "max"
                limit = int((group / "memory.max").read_text("utf-8"))
                used = int((group / "memory.current").read_text("utf-8"))
                yield float(limit), float(limit - used)


def _address_space() -> Iterator[tuple[float, float]]:
    """Limit of this process's address space (`ulimit -v`), and what of it is free."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    with suppress(OSError, ValueError, IndexError):
        if limit != resource.RLIM_INFINITY:
            pages = int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[0])
            yield float(limit), float(limit - pages * resource.getpagesize())


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


MOST_TOKENS = {"cuda": 32_768, "cpu": 8_192}
"""Tokens of a micro-batch that keep the device busy; more save no time."""
UNKNOWN_SHARE = 0.4
"""vLLM's share beside a model whose memory cannot be estimated."""
LARGEST_SHARE = 0.6
"""Largest share of a GPU for vLLM: beyond, its cache holds more rollouts than it decodes at once."""


@dataclass(frozen=True)
class Sizing:
    """Sizes of one run on one device."""

    token_budget: int
    """Most tokens in one forward and backward pass."""
    rows: int
    """Most rollouts in the cache of the torch sampler."""
    vllm_share: float
    """Share of the GPU's memory for vLLM; 0 without it."""
    keeps_freed_memory: bool
    """Whether there is room for the fragments that kept blocks leave, on a CPU."""
    needed: MemoryEstimate | None
    """The estimate with these sizes; None for a model whose memory cannot be estimated."""
    notes: tuple[Note, ...] = ()
    """What was made smaller than usual."""


def size_run(
    name: str,
    config: Any,
    recipe: Recipe,
    options: TorchOptions,
    memory: Memory,
    *,
    device: torch.device,
    dtype: torch.dtype,
    sampler: Literal["torch", "vllm"],
) -> Sizing:
    """Sizes that fit into the free memory of a device.

    Args:
        name: the model, for messages.
        config: transformers' configuration of it.
        recipe: lengths and terms of the loss.
        options: what the user set; a size that is set there is kept.
        memory: memory of the device before the model is loaded.
        device: where the run trains.
        dtype: number format of the model.
        sampler: what draws the rollouts.

    Raises:
        InputError: the run does not fit on the device even with one row at a time.
    """
    longest = recipe.max_prompt_tokens + recipe.max_response_tokens
    most, asked = MOST_TOKENS[device.type], options.max_tokens_per_micro_batch
    sizes = Sizes(
        tokens=max(longest, asked or 0),
        row_tokens=longest,
        dtype=dtype,
        reference=recipe.kl_coef > 0,
        value_model=recipe.algorithm == "ppo",
        entropy=recipe.entropy_coef > 0,
        checkpointing=checkpoints(options, device),
        engine=sampler == "vllm" and device.type == "cuda",
    )
    budget = asked or max(most, longest)
    try:
        needed = estimate(config, sizes)
    except Exception as error:  # models differ in what their forward pass looks at, and a run does not depend on this
        reason = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
        message = f"The memory of model {name!r} cannot be estimated ({reason}): sizes are the usual ones."
        share = options.vllm_memory_share or UNKNOWN_SHARE
        note = Note("memory-not-estimated", "info", message)
        return Sizing(budget, options.sampling_batch, share, keeps_freed_memory=True, needed=None, notes=(note,))
    refuse_what_cannot_fit(needed, memory, name)
    while asked is None and budget > longest and needed.of(budget).peak > memory.room:
        budget = max(longest, budget // 2)
    needed = needed.of(max(longest, budget))
    notes: list[Note] = []
    if budget < most and asked is None:
        notes.append(_smaller(budget, most, needed, memory))
    free = memory.room - needed.states
    rows = max(1, math.floor(free / row_bytes(config, dtype, longest, needed.vocabulary)))
    share = _share(options, needed, memory) if sizes.engine else 0.0
    keeps = 2 * needed.peak <= memory.room
    return Sizing(
        budget, min(rows, options.sampling_batch), share, keeps_freed_memory=keeps, needed=needed, notes=tuple(notes)
    )


def checkpoints(options: TorchOptions, device: torch.device) -> bool:
    """Whether layers are computed again in the backward pass."""
    return device.type == "cuda" if options.gradient_checkpointing is None else options.gradient_checkpointing


def _smaller(budget: int, most: int, needed: MemoryEstimate, memory: Memory) -> Note:
    fits = needed.peak <= memory.room
    outlook = "" if fits else " Even one row may not fit: free memory on this device."
    message = (
        f"{memory.free / GIB:.1f} GiB of memory are free: micro-batches of {budget:,} tokens instead of {most:,}. The "
        f"gradient is the same, a step takes longer. The run needs about {needed.text()}.{outlook}"
    )
    data = {"tokens": budget, "free_bytes": memory.free, "peak_bytes": needed.peak}
    return Note("micro-batches-smaller", "info" if fits else "warning", message, data)


def _share(options: TorchOptions, needed: MemoryEstimate, memory: Memory) -> float:
    """Share of the GPU that vLLM may fill while the trainer keeps its states only.

    Raises:
        InputError: not enough is left for weights, one rollout and a forward pass.
    """
    if options.vllm_memory_share is not None:
        return options.vllm_memory_share
    left, least = memory.room - needed.states, needed.parts["sampling"]
    share = min(LARGEST_SHARE, math.floor(100 * left / memory.total) / 100)
    if share * memory.total < least:
        raise InputError(
            f"vLLM needs {least / GIB:.1f} GiB beside the trainer; {max(left, 0.0) / GIB:.1f} GiB are free for it",
            "Set options.sampler to torch, or take a smaller model.",
        )
    return share
