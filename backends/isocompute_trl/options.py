"""Options of the TRL backend: sampler, sharding, memory and checkpoints."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from isocompute_sdk.specs.base import Count, Flag, Number
from isocompute_sdk.training import FrameworkOptions


class TRLOptions(FrameworkOptions):
    """Options of one TRL run; the defaults are for a 7B model on one machine with 80 GB GPUs."""

    PASSES: ClassVar[tuple[str, ...]] = (
        "dataloader_num_workers",
        "dataloader_persistent_workers",
        "dataloader_pin_memory",
        "dataloader_prefetch_factor",
        "ddp_*",
        "ds3_gather_for_generation",
        "eval_accumulation_steps",
        "full_determinism",
        "log_completions",
        "log_level",
        "log_level_replica",
        "logging_nan_inf_filter",
        "num_completions_to_print",
        "pad_to_multiple_of",
        "project",
        "skip_memory_metrics",
        "tf32",
        "torch_compile",
        "torch_compile_backend",
        "torch_compile_mode",
        "torch_empty_cache_steps",
        "trust_remote_code",
        "use_cache",
        "vllm_group_port",
        "vllm_model_impl",
    )

    sampler: Literal["vllm", "transformers"] = "vllm"
    """Sampler of rollouts: `vllm` (engines beside the trainer, which receive the weights before every batch) or
    `transformers` (the trained model itself; slow, and the only one on a CPU)."""
    device: Literal["cuda", "cpu"] = "cuda"
    """Device of the trainer."""
    sharding: Literal["zero3", "zero2", "ddp"] = "zero3"
    """How GPUs share the trainer: DeepSpeed ZeRO stage 3 or 2, or a full copy on each (ddp)."""
    tensor_parallel: Count = 1
    """GPUs per vLLM engine; must divide the number of GPUs and the model's attention heads."""
    gpu_memory_utilization: Annotated[float, Number(gt=0, le=0.95)] | None = None
    """Share of GPU memory for vLLM, which sleeps during updates. None: what the trainer's states leave of 80 GB,
    between 0.3 and 0.6; 0.3 if the model's name does not say its size."""
    samples_per_pass: Count = 8
    """Most rollouts per GPU in one forward and backward pass; the largest divisor of the batch up to this is used, with
    gradient accumulation."""
    eval_samples_per_pass: Count = 64
    """Most validation rollouts per GPU sampled at once; the largest number up to this without repeated problems is
    used."""
    gradient_checkpointing: Flag = True
    """Recompute activations in the backward pass instead of keeping them."""
    chat_template: Flag = True
    """Apply the tokenizer's chat template to prompts; off: the model sees the plain text."""
    save_every_steps: Count | None = None
    """Update steps between checkpoints. None: at every evaluation; otherwise the best of those saved is kept."""
    keep_checkpoints: Annotated[int, Number(whole=True, ge=2)] = 3
    """Number of checkpoints kept: the best one and the latest others."""
    tensorboard: Flag = False
    """Also write TensorBoard events, under TRL's names."""
    wandb: Flag = False
    """Also log to Weights & Biases, with the login of the environment (WANDB_API_KEY or `wandb login`)."""
    mlflow: Flag = False
    """Also log to MLflow, at MLFLOW_TRACKING_URI."""
