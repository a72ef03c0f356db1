"""How a run uses the memory of its device: micro-batches, rows of the sampler, and vLLM's share."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import torch

from isocompute_sdk.notes import Note
from isocompute_sdk.specs import Recipe
from isocompute_torch.failures import InputError
from isocompute_torch.options import TorchOptions
from isocompute_torch.runner.memory import GIB, Memory
from isocompute_torch.runner.memory_estimate import MemoryEstimate, Sizes, estimate, refuse_what_cannot_fit, row_bytes

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
