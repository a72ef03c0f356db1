"""What `RunSpec.options` may hold for this backend: sampler, sharding, memory, checkpoints; nothing of the recipe."""

from __future__ import annotations

from typing import Annotated, Literal

from isocompute_sdk.specs.base import Count, Flag, Number, Spec


class TRLOptions(Spec):
    """Options of one TRL run; the defaults are for 80 GB GPUs of one machine with a 7B model."""

    sampler: Literal["vllm", "transformers"] = "vllm"
    """Where rollouts are sampled: `vllm` (engines beside the trainer, with the weights copied into them before every
    batch) or `transformers` (the trained model itself: slow, and the only one for a CPU)."""
    device: Literal["cuda", "cpu"] = "cuda"
    """Device of the trainer."""
    sharding: Literal["zero3", "zero2", "ddp"] = "zero3"
    """How several GPUs share the trainer: DeepSpeed ZeRO stage 3 or 2, or a whole copy on each."""
    tensor_parallel: Count = 1
    """GPUs that share one vLLM engine; has to divide the GPUs, and the model's attention heads by it."""
    gpu_memory_utilization: Annotated[float, Number(gt=0, le=0.95)] = 0.3
    """Share of GPU memory for vLLM."""
    samples_per_pass: Count = 8
    """Most rollouts per GPU in one forward and backward pass; the largest number up to this that divides the batch is
    taken, and the rest is gradient accumulation."""
    eval_samples_per_pass: Count = 64
    """Most validation rollouts per GPU that are sampled at once; the largest number up to this with which no problem
    counts twice is taken."""
    gradient_checkpointing: Flag = True
    """Recompute activations in the backward pass instead of keeping them."""
    chat_template: Flag = True
    """Put prompts through the tokenizer's chat template; off: the model sees the text as it stands."""
    save_every_steps: Count | None = None
    """Update steps between checkpoints. None: about 20 per run, always together with an evaluation."""
    keep_checkpoints: Count = 3
    """Checkpoints kept, the latest ones."""
    tensorboard: Flag = False
    """Also write TensorBoard events, with TRL's own names."""
