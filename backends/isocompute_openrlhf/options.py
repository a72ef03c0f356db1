"""Options of the OpenRLHF backend: placement, memory and checkpoints."""

from __future__ import annotations

from typing import Annotated, ClassVar

from isocompute_sdk.specs.base import Count, Flag, Number
from isocompute_sdk.training import FrameworkOptions


class OpenRLHFOptions(FrameworkOptions):
    """Options of one OpenRLHF run; the defaults are for a 7B model on one machine with 80 GB GPUs."""

    PASSES: ClassVar[tuple[str, ...]] = (
        "actor.gradient_checkpointing_reentrant",
        "ckpt.max_mem",
        "data.dataloader_num_workers",
        "ds.attn_implementation",
        "ds.deepcompile",
        "ds.experts_implementation",
        "ds.overlap_comm",
        "ds.use_liger_kernel",
        "ds.zpg",
        "logger.wandb.group",
        "logger.wandb.org",
        "logger.wandb.project",
        "ref.offload",
        "rollout.max_tokens_per_gpu",
        "train.full_determinism_enable",
        "vllm.sync_backend",
        "vllm.sync_with_ray",
    )

    nodes: Count | None = None
    """Machines. None: 1 up to 8 GPUs, else 8 GPUs each."""
    gpus_per_node: Count | None = None
    """GPUs per machine. None: `hardware.gpus` divided by the machines."""
    tensor_parallel: Count = 1
    """GPUs per vLLM engine; must divide the model's attention heads."""
    zero_stage: Annotated[int, Number(whole=True, ge=2, le=3)] = 3
    """DeepSpeed ZeRO stage: 2 shards gradients and optimiser, 3 the weights too."""
    adam_offload: Flag = False
    """Keep the optimiser state in CPU memory."""
    gradient_checkpointing: Flag = True
    """Recompute activations in the backward pass instead of keeping them."""
    dynamic_batch: Flag | None = None
    """Pack samples into micro-batches by tokens; off: as many samples per micro-batch as fit 32,768 tokens. None: on,
    except for batches above 16,384 rollouts or several updates per batch."""
    max_tokens_per_gpu: Count | None = None
    """Tokens per micro-batch and GPU if `dynamic_batch` is on. None: the longest sample, at least 16,384."""
    chat_template: Flag = True
    """Apply the tokenizer's chat template to prompts; off: the model sees the plain text."""
    gpu_memory_utilization: Annotated[float, Number(gt=0, le=0.95)] = 0.6
    """Share of GPU memory for vLLM while it generates."""
    enforce_eager: Flag = False
    """Run vLLM without CUDA graphs: slower, less memory."""
    prefix_caching: Flag = True
    """Reuse the prompt's vLLM cache between the rollouts of one problem."""
    save_every_steps: Count | None = None
    """Update steps between checkpoints. None: about 20 per run, each with an evaluation."""
    keep_checkpoints: Count = 2
    """Newest checkpoints kept, besides the best one."""
    save_best: Flag = True
    """Also keep the checkpoint with the best validation reward."""
    save_hf: Flag = False
    """Also write Hugging Face weights with every checkpoint; these are never removed."""
    wandb: Flag = False
    """Also log to Weights & Biases, with the login of the environment (WANDB_API_KEY or `wandb login`)."""
