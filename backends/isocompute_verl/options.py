"""Options of the veRL backend: placement, memory and checkpoints."""

from __future__ import annotations

from typing import Annotated, ClassVar

from isocompute_sdk.specs.base import Count, Flag, Number
from isocompute_sdk.training import FrameworkOptions


class VeRLOptions(FrameworkOptions):
    """Options of one veRL run; the defaults are for a 7B model on one machine with 80 GB GPUs."""

    PASSES: ClassVar[tuple[str, ...]] = (
        "actor_rollout_ref.*.fsdp_config.*",
        "actor_rollout_ref.*.profiler.*",
        "actor_rollout_ref.model.enable_activation_offload",
        "actor_rollout_ref.model.trust_remote_code",
        "actor_rollout_ref.model.use_fused_kernels",
        "actor_rollout_ref.model.use_liger",
        "actor_rollout_ref.model.use_remove_padding",
        "actor_rollout_ref.model.use_shm",
        "actor_rollout_ref.rollout.agent.num_workers",
        "actor_rollout_ref.rollout.disable_log_stats",
        "actor_rollout_ref.rollout.enable_chunked_prefill",
        "actor_rollout_ref.rollout.enable_prefix_caching",
        "actor_rollout_ref.rollout.enforce_eager",
        "actor_rollout_ref.rollout.engine_kwargs.*",
        "actor_rollout_ref.rollout.free_cache_engine",
        "actor_rollout_ref.rollout.load_format",
        "actor_rollout_ref.rollout.log_prob_max_token_len_per_gpu",
        "actor_rollout_ref.rollout.max_num_batched_tokens",
        "actor_rollout_ref.rollout.max_num_seqs",
        "actor_rollout_ref.rollout.prometheus.*",
        "critic.fsdp.*",
        "data.dataloader_num_workers",
        "data.filter_overlong_prompts_workers",
        "data.trust_remote_code",
        "global_profiler.*",
        "ray_kwargs.*",
        "reward.num_workers",
        "trainer.balance_batch",
        "trainer.device",
        "trainer.log_val_generations",
        "trainer.project_name",
        "trainer.ray_wait_register_center_timeout",
        "trainer.rollout_data_dir",
        "transfer_queue.*",
    )

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
    """Update steps between checkpoints. None: at every evaluation; otherwise the best of those saved is kept."""
    keep_checkpoints: Annotated[int, Number(whole=True, ge=2)] = 2
    """Number of latest checkpoints kept, besides the best one."""
    tensorboard: Flag = False
    """Also write TensorBoard events, under veRL's names."""
    wandb: Flag = False
    """Also log to Weights & Biases, with the login of the environment (WANDB_API_KEY or `wandb login`)."""
    mlflow: Flag = False
    """Also log to MLflow, at MLFLOW_TRACKING_URI."""
