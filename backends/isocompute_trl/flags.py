"""All settings of TRL 1.16's GRPOConfig that a run needs; no other module writes settings.

Values fixed by the recipe are written even if they equal TRL's defaults, since several defaults differ from the recipe
(KL times a differentiable ratio, importance weights that mask whole responses, a CISPO cap of 0.2). GRPOConfig does not
check `loss_type`, hence LOSS_TYPES.

Facts about settings come from the 1.16.0 wheel: trl/trainer/grpo_config.py and grpo_trainer.py.
"""

from __future__ import annotations

from typing import Any

from isocompute_sdk.specs import Recipe, RunSpec
from isocompute_sdk.training.checks import model_billions
from isocompute_trl.options import TRLOptions

VERSION = "1.16.0"
"""The only TRL release these settings are for."""
CARD_GB = 80.0
"""GPU memory for which the defaults are chosen."""
RESERVED_GB = 12.0
"""For activations that are not freed, CUDA graphs and fragments."""
STATE_BYTES = 16.0
"""Bytes per parameter: weights, gradients and two moments, all in 32 bits."""
SHARED_BYTES = {"zero3": 16.0, "zero2": 12.0, "ddp": 0.0}
"""Those that are divided among the GPUs."""
LEAST_SHARE, MOST_SHARE = 0.3, 0.6
LOSS_TYPES = {
    ("grpo", "token-mean"): "dapo",
    ("grpo", "seq-mean-token-mean"): "grpo",
    ("cispo", "token-mean"): "cispo",
}
"""`loss_type` by algorithm and aggregation; any other combination is refused. `dapo` divides by the tokens of the
whole batch, `grpo` by each response's own and then by responses."""
STD_EPSILON = 1e-4
"""Added to the standard deviation of a group; not a setting."""


OF_PLAN = frozenset(
    {
        "num_generations",
        "per_device_train_batch_size",
        "gradient_accumulation_steps",
        "steps_per_generation",
        "num_iterations",
        "max_steps",
        "learning_rate",
        "lr_scheduler_type",
        "warmup_steps",
        "eval_strategy",
        "eval_steps",
        "eval_on_start",
        "num_generations_eval",
    }
)
"""Arguments that decide n, B_p, M, the learning rate, its schedule and the evaluation."""
OF_RECIPE = frozenset(
    {
        "adam_beta1",
        "adam_beta2",
        "weight_decay",
        "max_grad_norm",
        "loss_type",
        "importance_sampling_level",
        "scale_rewards",
        "epsilon",
        "epsilon_high",
        "beta",
        "use_bias_correction_kl",
        "entropy_coef",
        "mask_truncated_completions",
        "temperature",
        "top_p",
        "top_k",
        "max_completion_length",
        "vllm_importance_sampling_correction",
        "vllm_importance_sampling_mode",
        "vllm_importance_sampling_clip_max",
    }
)
"""Arguments that decide the objective and how responses are sampled."""


def trainer_settings(run: RunSpec, options: TRLOptions) -> dict[str, Any]:
    """Arguments of GRPOConfig that follow from the run.

    `train.py` adds output_dir and per_device_eval_batch_size, which depend on the run folder and the problem files.
    """
    return {
        **_batch(run, options),
        **_optimizer(run),
        **_loss(run.recipe),
        **_sampling(run, options),
        **_evaluation(run),
        **_process(run, options),
        **options.passed,
    }


def processes(run: RunSpec, options: TRLOptions) -> int:
    """Trainer processes, one per GPU; one on a CPU."""
    return 1 if options.device == "cpu" else max(run.hardware.gpu_counts)


def samples_per_pass(run: RunSpec, options: TRLOptions) -> int:
    """Rollouts per process in one pass: the largest divisor of the process's share up to the option."""
    share = run.rollouts_per_batch // processes(run, options)
    return max(d for d in range(1, min(share, options.samples_per_pass) + 1) if share % d == 0)


def memory_share(run: RunSpec, options: TRLOptions) -> float:
    """Share of GPU memory for vLLM: the option, or what remains beside the trainer's states.

    vLLM sleeps during updates, but weights, gradients and optimiser of the trainer stay on the GPU while it generates.
    """
    if options.gpu_memory_utilization is not None:
        return options.gpu_memory_utilization
    size = model_billions(run.model)
    if size is None:
        return LEAST_SHARE
    shared, count = SHARED_BYTES[options.sharding], processes(run, options)
    states = size * (STATE_BYTES - shared + shared / count)
    return round(min(MOST_SHARE, max(LEAST_SHARE, 1 - (states + RESERVED_GB) / CARD_GB)), 2)


def sharding_config(run: RunSpec, options: TRLOptions) -> dict[str, Any] | None:
    """The configuration file of `accelerate launch`; None for a single process, which is started without it."""
    count = processes(run, options)
    if count == 1:
        return None
    config: dict[str, Any] = {
        "compute_environment": "LOCAL_MACHINE",
        "distributed_type": "MULTI_GPU",
        "mixed_precision": "bf16",
        "num_machines": 1,
        "machine_rank": 0,
        "num_processes": count,
        "rdzv_backend": "static",
        "same_network": True,
        "main_training_function": "main",
        "use_cpu": False,
    }
    if options.sharding != "ddp":
        stage = int(options.sharding.removeprefix("zero"))
        config["distributed_type"] = "DEEPSPEED"
        config["deepspeed_config"] = {
            "deepspeed_multinode_launcher": "standard",
            "offload_optimizer_device": "none",
            "offload_param_device": "none",
            "zero3_init_flag": stage == 3,
            "zero3_save_16bit_model": stage == 3,
            "zero_stage": stage,
        }
    return config


def _batch(run: RunSpec, options: TRLOptions) -> dict[str, Any]:
    """One generation of n * B_p rollouts is one optimiser step: steps_per_generation follows the accumulation."""
    per_pass = samples_per_pass(run, options)
    return {
        "num_generations": run.group_size,
        "per_device_train_batch_size": per_pass,
        "gradient_accumulation_steps": run.rollouts_per_batch // (per_pass * processes(run, options)),
        "num_iterations": 1,
        "max_steps": run.update_steps,
        # The rows are already in training order.
        "shuffle_dataset": False,
        "seed": run.seed,
        "data_seed": run.seed,
    }


def _optimizer(run: RunSpec) -> dict[str, Any]:
    recipe = run.recipe
    return {
        "optim": "adamw_torch",
        "learning_rate": run.learning_rate,
        "lr_scheduler_type": "constant_with_warmup",
        "warmup_steps": recipe.warmup_steps,
        "adam_beta1": recipe.adam_betas[0],
        "adam_beta2": recipe.adam_betas[1],
        "weight_decay": recipe.weight_decay,
        "max_grad_norm": recipe.gradient_clip,
    }


def _loss(recipe: Recipe) -> dict[str, Any]:
    cispo = recipe.algorithm == "cispo"
    return {
        "loss_type": LOSS_TYPES.get((recipe.algorithm, recipe.loss_aggregation)),
        "importance_sampling_level": "token",
        "scale_rewards": "group" if recipe.normalize_advantage else "none",
        "epsilon": recipe.ratio_clip,
        # For CISPO the cap of the ratio itself; otherwise how far above 1 it may go.
        "epsilon_high": 1 + recipe.ratio_clip if cispo else recipe.ratio_clip,
        "beta": recipe.kl_coef,
        # The default multiplies the KL by the policy ratio, which changes its gradient even at a ratio of 1.
        "use_bias_correction_kl": False,
        "entropy_coef": recipe.entropy_coef,
        "mask_truncated_completions": False,
    }


def _sampling(run: RunSpec, options: TRLOptions) -> dict[str, Any]:
    recipe = run.recipe
    settings: dict[str, Any] = {
        "temperature": recipe.temperature,
        "top_p": recipe.top_p,
        "top_k": 0,
        "max_completion_length": recipe.max_response_tokens,
        "use_vllm": options.sampler == "vllm",
    }
    if options.sampler != "vllm":
        return settings
    return settings | {
        "vllm_mode": "colocate",
        "vllm_max_model_length": recipe.max_prompt_tokens + recipe.max_response_tokens,
        "vllm_tensor_parallel_size": options.tensor_parallel,
        "vllm_gpu_memory_utilization": memory_share(run, options),
        "vllm_enable_sleep_mode": True,
        **_importance_sampling(recipe),
    }


def _importance_sampling(recipe: Recipe) -> dict[str, Any]:
    if recipe.importance_sampling == "none":
        return {"vllm_importance_sampling_correction": False}
    return {
        "vllm_importance_sampling_correction": True,
        "vllm_importance_sampling_mode": "token_truncate",
        "vllm_importance_sampling_clip_max": recipe.tis_cap,
    }


def _evaluation(run: RunSpec) -> dict[str, Any]:
    return {
        "eval_strategy": "steps",
        "eval_steps": run.evaluation.every_steps,
        "eval_on_start": True,
        "num_generations_eval": run.evaluation.samples,
        # Keeps this checkpoint among those that save_total_limit leaves.
        "metric_for_best_model": "eval_reward",
        "greater_is_better": True,
    }


def _process(run: RunSpec, options: TRLOptions) -> dict[str, Any]:
    cpu = options.device == "cpu"
    return {
        "use_cpu": cpu,
        "bf16": not cpu,
        # Weights and optimiser in full precision; passes run in bfloat16 on a GPU.
        "model_init_kwargs": {"dtype": "float32"},
        "gradient_checkpointing": options.gradient_checkpointing,
        "save_strategy": "steps",
        "save_steps": options.save_every_steps or run.evaluation.every_steps,
        "save_total_limit": options.keep_checkpoints,
        "logging_steps": 1,
        "report_to": [name for name in ("tensorboard", "wandb", "mlflow") if getattr(options, name)],
        "run_name": run.run_id,
        "disable_tqdm": True,
    }
