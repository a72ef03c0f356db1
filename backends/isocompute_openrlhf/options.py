"""What `RunSpec.options` may hold for this backend: placement, memory and checkpoints, nothing of the recipe."""

from __future__ import annotations

from typing import Annotated

from isocompute_sdk.specs.base import Count, Flag, Number, Spec


class OpenRLHFOptions(Spec):
    """Options of one OpenRLHF run; every default works on one node of 80 GB GPUs with a 7B model."""

    nodes: Count | None = None
    """Machines. None: 1 up to 8 GPUs, else as many as give 8 GPUs each."""
    gpus_per_node: Count | None = None
    """GPUs on each machine. None: all of `hardware.gpus` divided by the machines."""
    tensor_parallel: Count = 1
    """GPUs that share one vLLM engine; the model's attention heads have to be divisible by it."""
    zero_stage: Annotated[int, Number(whole=True, ge=2, le=3)] = 3
    """DeepSpeed ZeRO stage: 2 shards gradients and optimiser, 3 the weights too."""
    adam_offload: Flag = False
    """Keep the optimiser state in CPU memory."""
    gradient_checkpointing: Flag = True
    """Recompute activations in the backward pass instead of keeping them."""
    dynamic_batch: Flag | None = None
    """Pack samples into micro-batches by tokens; off: a fixed number of samples per micro-batch. None: on, except
    for batches above 16,384 rollouts, several updates per batch, or where a micro-batch option is set."""
    max_tokens_per_gpu: Count | None = None
    """Tokens per micro-batch and GPU where `dynamic_batch` is on. None: the longest sample, at least 16,384."""
    micro_train_batch: Count = 1
    """Samples per GPU in one forward and backward pass where `dynamic_batch` is off."""
    micro_rollout_batch: Count = 1
    """Samples per GPU in one log-probability pass where `dynamic_batch` is off."""
    chat_template: Flag = True
    """Put prompts through the tokenizer's chat template; off: the model sees the text as it stands."""
    gpu_memory_utilization: Annotated[float, Number(gt=0, le=0.95)] = 0.6
    """Share of GPU memory for vLLM while it generates."""
    enforce_eager: Flag = False
    """Run vLLM without CUDA graphs: slower, less memory."""
    prefix_caching: Flag = False
    """Let vLLM reuse the prompt's cache between the rollouts of one problem."""
    save_every_steps: Count | None = None
    """Update steps between checkpoints. None: about 20 per run, always together with an evaluation."""
    keep_checkpoints: Count = 3
    """Regular checkpoints kept; those with the worst validation reward are removed first."""
    save_best: Flag = True
    """Also keep the checkpoint with the best validation reward."""
    save_hf: Flag = False
    """Write Hugging Face weights beside every checkpoint; these are never removed."""
