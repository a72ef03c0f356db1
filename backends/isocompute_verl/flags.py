"""All Hydra keys of veRL 0.9.1 that a run needs; no other module writes keys.

Values fixed by the recipe are written even if they equal veRL's defaults. A value is plain JSON, except `Place`: the
model or a path below the run folder, both known only where the script runs.

Facts about keys come from the 0.9.1 wheel: trainer/config for the keys, trainer/ppo/v1/trainer_base.py for steps,
trainer/ppo/core_algos.py for losses.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from isocompute_sdk.errors import BackendError
from isocompute_sdk.notes import Note
from isocompute_sdk.specs import Recipe, RunSpec
from isocompute_sdk.training.checks import nodes_for
from isocompute_verl.options import VeRLOptions
from isocompute_verl.payload.hydra_words import word

VERSION = "0.9.1"
"""The only veRL release these keys are for."""
MODULE = "verl.trainer.main_ppo"
"""Program that takes them."""
STD_EPSILON = 1e-6
"""Added to the standard deviation of a group; not a setting."""
KL_TYPES = {"k1": "kl", "k2": "mse", "k3": "low_var_kl"}
"""veRL's names of the KL estimators, in the loss and in the reward."""
NEVER_BINDING = 1e6
"""Value of the dual clip, which no recipe uses and veRL cannot turn off."""
MANY_EPOCHS = 100_000
"""The rows are one epoch of exactly M steps; if long prompts were removed, training needs more epochs."""
LEAST_TOKENS_PER_GPU = 16_384


STEPS = "steps, checkpoints and logs"
OF_PLAN = frozenset(
    {
        "data.train_batch_size",
        "actor_rollout_ref.rollout.n",
        "actor_rollout_ref.actor.ppo_mini_batch_size",
        "actor_rollout_ref.actor.ppo_epochs",
        "actor_rollout_ref.actor.optim.lr",
        "actor_rollout_ref.actor.optim.lr_scheduler_type",
        "actor_rollout_ref.actor.optim.lr_warmup_steps",
        "actor_rollout_ref.actor.optim.lr_warmup_steps_ratio",
        "trainer.total_training_steps",
        "trainer.total_epochs",
        "trainer.test_freq",
        "trainer.val_before_train",
        "actor_rollout_ref.rollout.val_kwargs.n",
        "actor_rollout_ref.rollout.val_kwargs.temperature",
        "actor_rollout_ref.rollout.val_kwargs.top_p",
        "actor_rollout_ref.rollout.val_kwargs.do_sample",
    }
)
"""Keys that decide n, B_p, M, the learning rate, its schedule and the evaluation."""
OF_MACHINE = frozenset(
    {
        "actor_rollout_ref.actor.use_dynamic_bsz",
        "actor_rollout_ref.actor.ppo_max_token_len_per_gpu",
        "actor_rollout_ref.rollout.name",
        "actor_rollout_ref.rollout.tensor_model_parallel_size",
        "actor_rollout_ref.rollout.gpu_memory_utilization",
    }
)
"""Keys of memory and engines, which change no result."""


@dataclass(frozen=True)
class Place:
    """A value that start_training.py fills in."""

    mark: str


MODEL = Place("@model")


def below(path: str) -> Place:
    """A path below the run folder; `{attempt}` in it becomes the number of the start."""
    return Place(f"@run/{path}")


@dataclass(frozen=True)
class Section:
    """Overrides under one heading of the script."""

    title: str
    overrides: dict[str, Any]

    @property
    def words(self) -> list[str]:
        """`key=value` in Hydra's quoting; a `Place` stays a mark."""
        return [f"{k}={v.mark if isinstance(v, Place) else word(v)}" for k, v in self.overrides.items()]


def sections(run: RunSpec, options: VeRLOptions) -> tuple[Section, ...]:
    """All Hydra overrides of one run, in the order of the script."""
    named = {
        "data and reward": _data(run),
        "model": _model(options),
        "rollouts": _rollouts(run, options),
        "update": _update(run, options),
        "advantages and loss": _loss(run.recipe),
        "value model": _critic(run, options) if run.recipe.algorithm == "ppo" else {},
        "evaluation": _evaluation(run),
        STEPS: _trainer(run, options),
    }
    passed = options.passed
    kept = {title: {k: v for k, v in part.items() if k not in passed} for title, part in named.items()}
    return tuple(Section(title, part) for title, part in {**kept, "handed through": passed}.items() if part)


def nodes(run: RunSpec, options: VeRLOptions) -> int:
    """Number of machines of an accepted run.

    Raises:
        BackendError: the GPUs do not fill equal machines.
    """
    found = nodes_for(max(run.hardware.gpu_counts), options.nodes)
    if isinstance(found, Note):
        raise BackendError(found.message, "Change hardware.gpus, or the option nodes.")
    return found


def tokens_per_gpu(run: RunSpec, options: VeRLOptions) -> int:
    """Tokens of one micro-batch on one GPU."""
    longest = run.recipe.max_prompt_tokens + run.recipe.max_response_tokens
    return options.max_tokens_per_gpu or max(longest, LEAST_TOKENS_PER_GPU)


def _data(run: RunSpec) -> dict[str, Any]:
    return {
        "data.train_files": below("train_rows.jsonl"),
        "data.val_files": below("evaluation_rows.jsonl"),
        "data.train_batch_size": run.problems_per_batch,
        "data.max_prompt_length": run.recipe.max_prompt_tokens,
        "data.max_response_length": run.recipe.max_response_tokens,
        "data.filter_overlong_prompts": True,
        "data.truncation": "error",
        # The rows are already in training order.
        "data.shuffle": False,
        "data.validation_shuffle": False,
        "data.seed": run.seed,
        "reward.custom_reward_function.path": below("reward_score.py"),
        "reward.custom_reward_function.name": "compute_score",
    }


def _model(options: VeRLOptions) -> dict[str, Any]:
    return {
        "actor_rollout_ref.model.path": MODEL,
        "actor_rollout_ref.model.enable_gradient_checkpointing": options.gradient_checkpointing,
        "actor_rollout_ref.actor.fsdp_config.param_offload": options.offload,
        "actor_rollout_ref.actor.fsdp_config.optimizer_offload": options.offload,
        "actor_rollout_ref.ref.fsdp_config.param_offload": options.offload,
    }


def _rollouts(run: RunSpec, options: VeRLOptions) -> dict[str, Any]:
    recipe, rollout = run.recipe, "actor_rollout_ref.rollout"
    return {
        f"{rollout}.name": "vllm",
        f"{rollout}.n": run.group_size,
        f"{rollout}.temperature": recipe.temperature,
        f"{rollout}.top_p": recipe.top_p,
        f"{rollout}.top_k": -1,
        f"{rollout}.seed": run.seed,
        f"{rollout}.calculate_log_probs": True,
        f"{rollout}.tensor_model_parallel_size": options.tensor_parallel,
        f"{rollout}.gpu_memory_utilization": options.gpu_memory_utilization,
        "algorithm.rollout_correction.rollout_is": "token" if recipe.importance_sampling == "tis" else None,
        # A number clamps from above only; a pair written as text would mask what lies outside.
        "algorithm.rollout_correction.rollout_is_threshold": recipe.tis_cap,
        "algorithm.rollout_correction.bypass_mode": False,
    }


def _update(run: RunSpec, options: VeRLOptions) -> dict[str, Any]:
    actor = "actor_rollout_ref.actor"
    return {
        # In problems: veRL multiplies it by the group size.
        f"{actor}.ppo_mini_batch_size": run.problems_per_batch // run.recipe.updates_per_batch,
        f"{actor}.ppo_epochs": 1,
        f"{actor}.use_dynamic_bsz": True,
        f"{actor}.ppo_max_token_len_per_gpu": tokens_per_gpu(run, options),
        f"{actor}.data_loader_seed": run.seed,
        **_optimizer(actor, run, run.learning_rate),
    }


def _optimizer(entity: str, run: RunSpec, learning_rate: float) -> dict[str, Any]:
    recipe = run.recipe
    return {
        f"{entity}.optim.lr": learning_rate,
        f"{entity}.optim.lr_scheduler_type": "constant",
        f"{entity}.optim.lr_warmup_steps": recipe.warmup_steps,
        # veRL uses it if the number of warm-up steps is 0.
        f"{entity}.optim.lr_warmup_steps_ratio": 0.0,
        f"{entity}.optim.betas": list(recipe.adam_betas),
        f"{entity}.optim.weight_decay": recipe.weight_decay,
        f"{entity}.optim.clip_grad": recipe.gradient_clip,
        f"{entity}.grad_clip": recipe.gradient_clip,
    }


def _loss(recipe: Recipe) -> dict[str, Any]:
    actor, cispo = "actor_rollout_ref.actor", recipe.algorithm == "cispo"
    in_loss = recipe.kl_coef > 0 and recipe.kl_in == "loss"
    in_reward = recipe.kl_coef > 0 and recipe.kl_in == "reward"
    return {
        "algorithm.adv_estimator": "gae" if recipe.algorithm == "ppo" else "grpo",
        "algorithm.norm_adv_by_std_in_grpo": recipe.normalize_advantage,
        "algorithm.filter_groups.enable": False,
        f"{actor}.policy_loss.loss_mode": "cispo" if cispo else "vanilla",
        f"{actor}.loss_agg_mode": recipe.loss_aggregation,
        f"{actor}.clip_ratio": recipe.ratio_clip,
        # CISPO has no lower limit of the ratio; 1 - 1 = 0 is none.
        f"{actor}.clip_ratio_low": 1.0 if cispo else recipe.ratio_clip,
        f"{actor}.clip_ratio_high": recipe.ratio_clip,
        f"{actor}.clip_ratio_c": NEVER_BINDING,
        f"{actor}.entropy_coeff": recipe.entropy_coef,
        f"{actor}.use_kl_loss": in_loss,
        f"{actor}.kl_loss_coef": recipe.kl_coef,
        f"{actor}.kl_loss_type": KL_TYPES[recipe.kl_estimator],
        "algorithm.use_kl_in_reward": in_reward,
        "algorithm.kl_penalty": KL_TYPES[recipe.kl_estimator],
        "algorithm.kl_ctrl.type": "fixed",
        "algorithm.kl_ctrl.kl_coef": recipe.kl_coef,
    }


def _critic(run: RunSpec, options: VeRLOptions) -> dict[str, Any]:
    recipe = run.recipe
    return {
        "critic.model.path": MODEL,
        "critic.model.enable_gradient_checkpointing": options.gradient_checkpointing,
        "critic.ppo_max_token_len_per_gpu": tokens_per_gpu(run, options),
        "critic.cliprange_value": recipe.value_clip,
        **_optimizer("critic", run, recipe.value_learning_rate),
        "algorithm.lam": recipe.gae_lambda,
        "algorithm.gamma": recipe.gae_gamma,
        "trainer.critic_warmup": 0,
        "trainer.max_critic_ckpt_to_keep": options.keep_checkpoints,
    }


def _evaluation(run: RunSpec) -> dict[str, Any]:
    evaluation, values = run.evaluation, "actor_rollout_ref.rollout.val_kwargs"
    return {
        "trainer.test_freq": evaluation.every_steps,
        "trainer.val_before_train": True,
        "trainer.validation_data_dir": below("validation/{attempt}"),
        f"{values}.n": evaluation.samples,
        f"{values}.temperature": evaluation.temperature,
        f"{values}.top_p": evaluation.top_p,
        f"{values}.do_sample": evaluation.temperature > 0,
    }


def _trainer(run: RunSpec, options: VeRLOptions) -> dict[str, Any]:
    others = {"tensorboard": options.tensorboard, "wandb": options.wandb, "mlflow": options.mlflow}
    loggers = ["console", "file", *(name for name, used in others.items() if used)]
    environment = "+ray_kwargs.ray_init.runtime_env.env_vars"
    return {
        "trainer.use_v1": True,
        "trainer.v1.trainer_mode": "sync",
        "trainer.nnodes": nodes(run, options),
        "trainer.n_gpus_per_node": max(run.hardware.gpu_counts) // nodes(run, options),
        "trainer.total_training_steps": run.update_steps,
        "trainer.total_epochs": MANY_EPOCHS,
        "trainer.project_name": "isocompute",
        "trainer.experiment_name": run.run_id,
        "trainer.logger": loggers,
        "trainer.default_local_dir": below("checkpoints"),
        "trainer.save_freq": options.save_every_steps or run.evaluation.every_steps,
        "trainer.max_actor_ckpt_to_keep": options.keep_checkpoints,
        "trainer.resume_mode": "auto",
        # veRL empties its log at every start, so every start has its own log.
        f"{environment}.VERL_FILE_LOGGER_PATH": below("logs/attempt-{attempt}.jsonl"),
        **({f"{environment}.TENSORBOARD_DIR": below("tensorboard")} if options.tensorboard else {}),
    }
