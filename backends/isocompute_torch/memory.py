"""Memory of a run: what the device has, about what the run needs, and the sizes that fit.

The estimate counts tensors from the model's configuration. It is coarse: a step that runs out of memory all the same is
computed again with half of the tokens (`learner`).
"""

from __future__ import annotations

import ctypes
import math
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from isocompute_sdk.notes import Note
from isocompute_sdk.specs import Recipe
from isocompute_torch.configuration import InputError, TorchOptions
from isocompute_torch.learner import KEPT_LOGITS
from isocompute_torch.policy import architecture_of, cache_bytes

GIB = 2**30
MOST = 0.95
"""Share of the memory that a run may fill."""
WORKSPACE = {"cuda": 1.0 * GIB, "cpu": 0.25 * GIB}
"""CUDA context, libraries and fragments."""
CGROUP = Path("/sys/fs/cgroup")
OWN_GROUP = Path("/proc/self/cgroup")
FLOAT32 = 4
LOGITS_IN_TRAINING = 3
"""Tensors of the size of the logits that live at once: their log-softmax and two gradients. The reference scores its
own beside the policy's, and an entropy with gradient keeps three more."""
LOGITS_IN_SAMPLING = 4
"""Logits, their log-softmax, its rows for the rollouts, and the random numbers that decide."""
KEPT_WIDTHS, KEPT_FEED_FORWARD, KEPT_SCORES = 14, 4, 4
"""What one layer keeps of a token for its backward pass: multiples of the hidden width and of the feed-forward width
and, where attention keeps its scores, of the row's length per head."""
BACKWARD = 1.5
"""Memory of the backward pass of one layer, as a multiple of what its forward pass keeps."""
ENGINE_AWAKE = 2.0 * GIB
"""vLLM beside its weights and cache: a forward pass, logits and CUDA graphs. From vLLM's logs of models of 0.5 to 7
billion parameters."""
ENGINE_ASLEEP = 1.0 * GIB
"""What vLLM keeps while it sleeps: CUDA graphs and kernels. From the same logs."""
MAX_TOKENS = {"cuda": 32_768, "cpu": 8_192}
"""Tokens of a micro-batch that keep the device busy; more save no time."""
UNKNOWN_SHARE = 0.4
"""vLLM's share beside a model whose memory cannot be estimated."""
LARGEST_SHARE = 0.6
"""Largest share of a GPU for vLLM: beyond, its cache holds more rollouts than it decodes at once."""


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
    bounds = [(_meminfo("MemTotal"), _meminfo("MemAvailable")), *_control_groups()]
    total, free = (min(column) for column in zip(*bounds, strict=True))
    return Memory(total, max(0.0, free), WORKSPACE["cpu"])


def keep_freed_memory() -> None:
    """Make glibc keep freed memory for the whole process; no effect with another C library.

    Every step of training on a CPU needs the same blocks of some megabytes. Kept blocks save the system from clearing
    each page again at its next use, and cost up to as much memory again in fragments.
    """
    if sys.platform.startswith("linux"):
        with suppress(OSError, AttributeError):  # another C library
            mallopt = ctypes.CDLL(None).mallopt
            mallopt(-1, 2**30)  # M_TRIM_THRESHOLD
            mallopt(-3, 2**25)  # M_MMAP_THRESHOLD, the largest value that glibc accepts


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


@dataclass(frozen=True)
class Needed:
    """About what a run needs, in bytes on the device of the model."""

    parameters: int
    """Number of parameters of the policy."""
    states: float
    """Weights, masters, moments, reference and value model, which are there during the whole run."""
    gradients: float
    """What an update needs whatever the size of its micro-batches, such as gradients and a sleeping vLLM."""
    per_token: float
    """What an update keeps for each token of a micro-batch."""
    backward: float
    """What the backward pass of one layer needs for each of them; logits are gone by then."""
    vocabulary: int
    """Number of logits per token."""
    per_logit: tuple[float, float]
    """Bytes for each logit that is computed in bounded parts, and for each that is computed at once."""
    row: float
    """One rollout while it is sampled: keys and values of all its tokens, and its logits."""
    sampling: float
    """Sampling of one row, or vLLM with one row."""

    def peak(self, tokens: int) -> float:
        """Largest sum with micro-batches of this size: in an update, or while sampling one row."""
        every, (in_parts, at_once) = tokens * self.vocabulary, self.per_logit
        logits = in_parts * min(every, max(KEPT_LOGITS, self.vocabulary)) + at_once * every
        update = self.gradients + self.per_token * tokens + max(logits, self.backward * tokens)
        return self.states + max(update, self.sampling)


def estimate(config: Any, recipe: Recipe, dtype: torch.dtype, *, checkpointing: bool, engine: bool) -> Needed:
    """The memory of a run.

    Args:
        config: transformers' configuration of the model.
        recipe: lengths and terms of the loss.
        dtype: number format of the model.
        checkpointing: whether layers are computed again in the backward pass.
        engine: whether vLLM samples on the same device, with weights and a cache of its own.
    """
    import transformers

    architecture = architecture_of(config.to_dict())
    with torch.device("meta"):
        model: Any = transformers.AutoModelForCausalLM.from_config(config)
    count = sum(parameter.numel() for parameter in model.parameters())
    vocabulary = int(model.get_output_embeddings().weight.shape[0])
    bits = torch.finfo(dtype).bits // 8
    masters = FLOAT32 if bits < FLOAT32 else 0
    moments = 2 * max(bits, FLOAT32)
    reference, ppo = recipe.kl_coef > 0, recipe.algorithm == "ppo"
    text, tokens = config.get_text_config(), recipe.max_prompt_tokens + recipe.max_response_tokens
    width, layers, heads = int(text.hidden_size), int(text.num_hidden_layers), int(text.num_attention_heads)
    inner = int(getattr(text, "intermediate_size", None) or 4 * width)
    layer = bits * (KEPT_WIDTHS * width + KEPT_FEED_FORWARD * inner)
    layer += bits * KEPT_SCORES * heads * tokens if architecture.caps_attention else 0
    kept = bits * width * (layers + 2) if checkpointing else layer * layers
    tensors = LOGITS_IN_TRAINING + (3 if recipe.entropy_coef > 0 else int(reference))
    row = cache_bytes(text, dtype) * tokens + LOGITS_IN_SAMPLING * FLOAT32 * vocabulary
    trained = 2 if ppo else 1
    return Needed(
        parameters=count,
        states=count * (trained * (bits + masters + moments) + bits * reference),
        gradients=trained * count * (max(bits, FLOAT32) + (bits if masters else 0)) + ENGINE_ASLEEP * engine,
        per_token=trained * kept,
        backward=BACKWARD * layer,
        vocabulary=vocabulary,
        per_logit=(tensors * FLOAT32, 0.0 if architecture.reads_trees else 3.0 * bits),
        row=row,
        sampling=row + (count * bits + ENGINE_AWAKE if engine else 0.0),
    )


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

    Raises:
        InputError: the run does not fit on the device even with one row at a time.
    """
    longest = recipe.max_prompt_tokens + recipe.max_response_tokens
    most, asked = MAX_TOKENS[device.type], options.max_tokens_per_micro_batch
    budget, engine = asked or max(most, longest), sampler == "vllm" and device.type == "cuda"
    try:
        needed = estimate(config, recipe, dtype, checkpointing=checkpoints(options, device), engine=engine)
    except Exception:  # configurations differ, and a run does not depend on this
        share = options.vllm_memory_share or UNKNOWN_SHARE
        return Sizing(budget, options.sampling_batch, share, keeps_freed_memory=True)
    _refuse_what_cannot_fit(needed, max(longest, asked or 0), memory, name)
    while asked is None and budget > longest and needed.peak(budget) > memory.room:
        budget = max(longest, budget // 2)
    peak = needed.peak(max(longest, budget))
    notes: list[Note] = []
    if budget < most and asked is None:
        notes.append(_smaller(budget, most, peak, memory))
    rows = max(1, math.floor((memory.room - needed.states) / needed.row))
    share = _share(options, needed, memory) if engine else 0.0
    return Sizing(budget, min(rows, options.sampling_batch), share, 2 * peak <= memory.room, tuple(notes))


def checkpoints(options: TorchOptions, device: torch.device) -> bool:
    """Whether layers are computed again in the backward pass."""
    return device.type == "cuda" if options.gradient_checkpointing is None else options.gradient_checkpointing


def _refuse_what_cannot_fit(needed: Needed, tokens: int, memory: Memory, name: str) -> None:
    peak = needed.peak(tokens)
    if peak <= memory.most:
        return
    raise InputError(
        f"model {name!r} with {needed.parameters / 1e9:.2f} billion parameters needs about {peak / GIB:.1f} GiB; this "
        f"device has {memory.total / GIB:.0f} GiB, {memory.most / GIB:.0f} of them usable",
        f"About {needed.parameters * memory.most / peak / 1e9:.1f} billion parameters fit here with this recipe. Lower "
        "recipe.max_response_tokens or options.max_tokens_per_micro_batch, set recipe.kl_coef to 0 (no reference "
        "model), or use the backend openrlhf, verl or trl, which share a model between GPUs. The built-in runner is "
        "for models of about 0.5 to 3 billion parameters on one GPU.",
    )


def _smaller(budget: int, most: int, peak: float, memory: Memory) -> Note:
    fits = peak <= memory.room
    outlook = "" if fits else " Even one row may not fit: free memory on this device."
    message = (
        f"{memory.free / GIB:.1f} GiB of memory are free: micro-batches of {budget:,} tokens instead of {most:,}. The "
        f"gradient is the same; steps take longer. The run needs about {peak / GIB:.1f} GiB.{outlook}"
    )
    data = {"tokens": budget, "free_bytes": memory.free, "peak_bytes": peak}
    return Note("micro-batches-smaller", "info" if fits else "warning", message, data)


def _share(options: TorchOptions, needed: Needed, memory: Memory) -> float:
    """Share of the GPU that vLLM may fill while the trainer keeps its states only."""
    if options.vllm_memory_share is not None:
        return options.vllm_memory_share
    left = memory.room - needed.states
    share = min(LARGEST_SHARE, math.floor(100 * left / memory.total) / 100)
    if share * memory.total < needed.sampling:
        raise InputError(
            f"vLLM needs {needed.sampling / GIB:.1f} GiB beside the trainer; {max(left, 0.0) / GIB:.1f} GiB are free",
            "Set options.sampler to torch, or use a smaller model.",
        )
    return share
