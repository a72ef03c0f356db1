"""What `RunSpec.options` may hold for this backend: placement, memory and checkpoints, nothing of the recipe."""

from __future__ import annotations

from typing import Annotated

from isocompute_sdk.specs.base import Count, Flag, Number, Spec


class VeRLOptions(Spec):
    """Options of one veRL run; every default works on one node of 80 GB GPUs with a 7B model."""

    nodes: Count | None = None
    """Machines; `hardware.gpus` counts the GPUs of all of them. None: 1 up to 8 GPUs, else as many as give 8 GPUs
    each."""
    tensor_parallel: Count = 1
    """GPUs that share one vLLM engine; the model's attention heads have to be divisible by it."""
    gpu_memory_utilization: Annotated[float, Number(gt=0, le=0.95)] = 0.5
    """Share of GPU memory for vLLM while it generates."""
    max_tokens_per_gpu: Count | None = None
    """Tokens per micro-batch and GPU. None: the longest sample, at least 16,384."""
    gradient_checkpointing: Flag = True
    """Recompute activations in the backward pass instead of keeping them."""
    offload: Flag = False
    """Keep weights and optimiser state in CPU memory while they are not needed."""
    save_every_steps: Count | None = None
    """Update steps between checkpoints. None: about 20 per run, always together with an evaluation."""
    keep_checkpoints: Count = 3
    """Checkpoints kept, the latest ones."""
    tensorboard: Flag = False
    """Also write TensorBoard events, with veRL's own names."""
