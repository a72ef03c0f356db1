"""Options of the veRL backend: placement, memory and checkpoints."""

from __future__ import annotations

from typing import Annotated

from isocompute_sdk.specs.base import Count, Flag, Number, Spec


class VeRLOptions(Spec):
    """Options of one veRL run; the defaults are for a 7B model on one machine with 80 GB GPUs."""

    nodes: Count | None = None
    """Machines; `hardware.gpus` is the GPUs of all of them. None: 1 up to 8 GPUs, else 8 GPUs each."""
    tensor_parallel: Count = 1
    """GPUs per vLLM engine; must divide the model's attention heads."""
    gpu_memory_utilization: Annotated[float, Number(gt=0, le=0.95)] = 0.5
    """Share of GPU memory for vLLM while it generates."""
    max_tokens_per_gpu: Count | None = None
    """Tokens per micro-batch and GPU. None: the longest sample, at least 16,384."""
    gradient_checkpointing: Flag = True
    """Recompute activations in the backward pass instead of keeping them."""
    offload: Flag = False
    """Keep weights and optimiser state in CPU memory while unused."""
    save_every_steps: Count | None = None
    """Update steps between checkpoints. None: about 20 per run, each with an evaluation."""
    keep_checkpoints: Count = 3
    """Number of latest checkpoints kept."""
    tensorboard: Flag = False
    """Also write TensorBoard events, under veRL's names."""
