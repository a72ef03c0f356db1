"""veRL 0.9.1 in two tables: all Hydra keys that a run needs, and what veRL refuses or does differently.

Values fixed by the recipe are written even if they equal veRL's defaults. A value is plain JSON, except `Place`: the
model or a path below the run folder, both known only where the script runs; `{attempt}` in a path becomes the number of
the start.

Facts about keys come from the 0.9.1 wheel: trainer/config for the keys, trainer/ppo/v1/trainer_base.py for steps,
trainer/ppo/core_algos.py for losses. Every field of a recipe is applied exactly, refused, or covered by a note; a test
changes each and checks that one of the three happens.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar

from isocompute_sdk.notes import Note
from isocompute_sdk.specs import RunSpec
from isocompute_sdk.specs.base import Count, Number
from isocompute_sdk.specs.base import Flag as Switch
from isocompute_sdk.training import FrameworkOptions, checks
from isocompute_sdk.training.backend import BackendInfo
from isocompute_sdk.training.checks import unsupported
from isocompute_sdk.training.framework import (
    MODEL,
    Case,
    Check,
    Flag,
    FrameworkBackend,
    Part,
    Place,
    Rule,
    Section,
    looked_up,
    own,
    plan,
    recipe,
)
from isocompute_verl.payload.hydra_words import word

VERSION = "0.9.1"
"""The only veRL release these keys are for."""
KL_TYPES = {"k1": "kl", "k2": "mse", "k3": "low_var_kl"}
"""veRL's names of the KL estimators, in the loss and in the reward."""
NEVER_BINDING = 1e6
"""Value of the dual clip, which no recipe uses and veRL cannot turn off."""
MANY_EPOCHS = 100_000
"""The rows are one epoch of exactly M steps; if long prompts were removed, training needs more epochs."""
MIN_TOKENS_PER_GPU = 16_384
BYTES_PER_PARAMETER = 12
"""Of a checkpoint: a weight and two moments of four bytes."""
ACTOR, ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
VALIDATION = f"{ROLLOUT}.val_kwargs"
ENVIRONMENT = "+ray_kwargs.ray_init.runtime_env.env_vars"


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
    gradient_checkpointing: Switch = True
    """Recompute activations in the backward pass instead of keeping them."""
    offload: Switch = False
    """Keep weights and optimiser state in CPU memory while unused."""
    save_every_steps: Count | None = None
    """Update steps between checkpoints. None: at every evaluation; otherwise the best of those saved is kept."""
    keep_checkpoints: Annotated[int, Number(whole=True, ge=2)] = 2
    """Number of latest checkpoints kept, besides the best one."""
    tensorboard: Switch = False
    """Also write TensorBoard events, under veRL's names."""
    wandb: Switch = False
    """Also log to Weights & Biases, with the login of the environment (WANDB_API_KEY or `wandb login`)."""
    mlflow: Switch = False
    """Also log to MLflow, at MLFLOW_TRACKING_URI."""


class VeRLCase(Case[VeRLOptions]):
    """A run with what veRL's keys derive from it."""

    framework: ClassVar[str] = "veRL"

    @property
    def tokens_per_gpu(self) -> int:
        """Tokens of one micro-batch on one GPU."""
        return self.options.max_tokens_per_gpu or max(self.longest, MIN_TOKENS_PER_GPU)

    @property
    def checkpoint_gigabytes(self) -> float | None:
        """Size of a checkpoint; None if the model's name does not say its size."""
        size = checks.model_billions(self.run.model)
        return None if size is None else size * BYTES_PER_PARAMETER * (2 if self.ppo else 1)


def _optimizer(entity: str, learning_rate: str, schedule: Part, rest: Part) -> tuple[Flag, ...]:
    """The optimiser of the policy, or of the value model, which is not compared with a script."""
    return (
        Flag(f"{entity}.optim.lr", looked_up(learning_rate), schedule),
        Flag(f"{entity}.optim.lr_scheduler_type", "constant", schedule),
        Flag(f"{entity}.optim.lr_warmup_steps", looked_up("recipe.warmup_steps"), schedule),
        # veRL uses it if the number of warm-up steps is 0.
        Flag(f"{entity}.optim.lr_warmup_steps_ratio", 0.0, schedule),
        own(f"{entity}.optim.betas", lambda c: list(c.recipe.adam_betas)),
        Flag(f"{entity}.optim.weight_decay", looked_up("recipe.weight_decay"), rest),
        Flag(f"{entity}.optim.clip_grad", looked_up("recipe.gradient_clip"), rest),
        Flag(f"{entity}.grad_clip", looked_up("recipe.gradient_clip"), rest),
    )


FLAGS = (
    Section(
        "data and reward",
        (
            Flag("data.train_files", Place("train_rows.jsonl")),
            Flag("data.val_files", Place("evaluation_rows.jsonl")),
            plan("data.train_batch_size", "run.problems_per_batch"),
            recipe("data.max_prompt_length", "recipe.max_prompt_tokens"),
            recipe("data.max_response_length", "recipe.max_response_tokens"),
            Flag("data.filter_overlong_prompts", True, "recipe"),
            Flag("data.truncation", "error", "recipe"),
            # The rows are already in training order.
            Flag("data.shuffle", False, "recipe"),
            Flag("data.validation_shuffle", False, "recipe"),
            recipe("data.seed", "run.seed"),
            Flag("reward.custom_reward_function.path", Place("reward_score.py")),
            Flag("reward.custom_reward_function.name", "compute_score", "recipe"),
        ),
    ),
    Section(
        "model",
        (
            Flag("actor_rollout_ref.model.path", MODEL),
            own("actor_rollout_ref.model.enable_gradient_checkpointing", "options.gradient_checkpointing"),
            own(f"{ACTOR}.fsdp_config.param_offload", "options.offload"),
            own(f"{ACTOR}.fsdp_config.optimizer_offload", "options.offload"),
            own("actor_rollout_ref.ref.fsdp_config.param_offload", "options.offload"),
        ),
    ),
    Section(
        "rollouts",
        (
            Flag(f"{ROLLOUT}.name", "vllm"),
            plan(f"{ROLLOUT}.n", "run.group_size"),
            recipe(f"{ROLLOUT}.temperature", "recipe.temperature"),
            recipe(f"{ROLLOUT}.top_p", "recipe.top_p"),
            Flag(f"{ROLLOUT}.top_k", -1, "recipe"),
            recipe(f"{ROLLOUT}.seed", "run.seed"),
            Flag(f"{ROLLOUT}.calculate_log_probs", True, "recipe"),
            own(f"{ROLLOUT}.tensor_model_parallel_size", "options.tensor_parallel"),
            own(f"{ROLLOUT}.gpu_memory_utilization", "options.gpu_memory_utilization"),
            recipe("algorithm.rollout_correction.rollout_is", lambda c: "token" if c.tis else None),
            # A number clamps from above only; a pair written as text would mask what lies outside.
            recipe("algorithm.rollout_correction.rollout_is_threshold", "recipe.tis_cap"),
            Flag("algorithm.rollout_correction.bypass_mode", False, "recipe"),
        ),
    ),
    Section(
        "update",
        (
            # In problems: veRL multiplies it by the group size.
            plan(f"{ACTOR}.ppo_mini_batch_size", lambda c: c.run.problems_per_batch // c.recipe.updates_per_batch),
            Flag(f"{ACTOR}.ppo_epochs", 1, "plan"),
            Flag(f"{ACTOR}.use_dynamic_bsz", True),
            own(f"{ACTOR}.ppo_max_token_len_per_gpu", "tokens_per_gpu"),
            recipe(f"{ACTOR}.data_loader_seed", "run.seed"),
            *_optimizer(ACTOR, "run.learning_rate", "plan", "recipe"),
        ),
    ),
    Section(
        "advantages and loss",
        (
            recipe("algorithm.adv_estimator", lambda c: "gae" if c.ppo else "grpo"),
            recipe("algorithm.norm_adv_by_std_in_grpo", "recipe.normalize_advantage"),
            Flag("algorithm.filter_groups.enable", False, "recipe"),
            recipe(f"{ACTOR}.policy_loss.loss_mode", lambda c: "cispo" if c.cispo else "vanilla"),
            recipe(f"{ACTOR}.loss_agg_mode", "recipe.loss_aggregation"),
            recipe(f"{ACTOR}.clip_ratio", "recipe.ratio_clip"),
            # CISPO has no lower limit of the ratio; 1 - 1 = 0 is none.
            recipe(f"{ACTOR}.clip_ratio_low", lambda c: 1.0 if c.cispo else c.recipe.ratio_clip),
            recipe(f"{ACTOR}.clip_ratio_high", "recipe.ratio_clip"),
            Flag(f"{ACTOR}.clip_ratio_c", NEVER_BINDING, "recipe"),
            recipe(f"{ACTOR}.entropy_coeff", "recipe.entropy_coef"),
            recipe(f"{ACTOR}.use_kl_loss", lambda c: c.recipe.kl_coef > 0 and c.recipe.kl_in == "loss"),
            recipe(f"{ACTOR}.kl_loss_coef", "recipe.kl_coef"),
            recipe(f"{ACTOR}.kl_loss_type", lambda c: KL_TYPES[c.recipe.kl_estimator]),
            recipe("algorithm.use_kl_in_reward", lambda c: c.recipe.kl_coef > 0 and c.recipe.kl_in == "reward"),
            recipe("algorithm.kl_penalty", lambda c: KL_TYPES[c.recipe.kl_estimator]),
            Flag("algorithm.kl_ctrl.type", "fixed", "recipe"),
            recipe("algorithm.kl_ctrl.kl_coef", "recipe.kl_coef"),
        ),
    ),
    Section(
        "value model",
        (
            Flag("critic.model.path", MODEL),
            own("critic.model.enable_gradient_checkpointing", "options.gradient_checkpointing"),
            own("critic.ppo_max_token_len_per_gpu", "tokens_per_gpu"),
            own("critic.cliprange_value", "recipe.value_clip"),
            *_optimizer("critic", "recipe.value_learning_rate", "", ""),
            own("algorithm.lam", "recipe.gae_lambda"),
            own("algorithm.gamma", "recipe.gae_gamma"),
            Flag("trainer.critic_warmup", 0),
            own("trainer.max_critic_ckpt_to_keep", "options.keep_checkpoints"),
        ),
        when="ppo",
    ),
    Section(
        "evaluation",
        (
            plan("trainer.test_freq", "evaluation.every_steps"),
            Flag("trainer.val_before_train", True, "plan"),
            Flag("trainer.validation_data_dir", Place("validation/{attempt}")),
            plan(f"{VALIDATION}.n", "evaluation.samples"),
            plan(f"{VALIDATION}.temperature", "evaluation.temperature"),
            plan(f"{VALIDATION}.top_p", "run.evaluation_top_p"),
            plan(f"{VALIDATION}.do_sample", lambda c: c.evaluation.temperature > 0),
        ),
    ),
    Section(
        "steps, checkpoints and logs",
        (
            Flag("trainer.use_v1", True),
            Flag("trainer.v1.trainer_mode", "sync"),
            own("trainer.nnodes", "nodes"),
            own("trainer.n_gpus_per_node", "gpus_per_node"),
            plan("trainer.total_training_steps", "run.update_steps"),
            Flag("trainer.total_epochs", MANY_EPOCHS, "plan"),
            Flag("trainer.project_name", "isocompute"),
            own("trainer.experiment_name", "run.run_id"),
            own("trainer.logger", lambda c: ["console", "file", *c.options.loggers]),
            Flag("trainer.default_local_dir", Place("checkpoints")),
            own("trainer.save_freq", lambda c: c.options.save_every_steps or c.evaluation.every_steps),
            own("trainer.max_actor_ckpt_to_keep", "options.keep_checkpoints"),
            Flag("trainer.resume_mode", "auto"),
            # veRL empties its log at every start, so every start has its own log.
            Flag(f"{ENVIRONMENT}.VERL_FILE_LOGGER_PATH", Place("logs/attempt-{attempt}.jsonl")),
            Flag(f"{ENVIRONMENT}.TENSORBOARD_DIR", Place("tensorboard"), when="options.tensorboard"),
        ),
    ),
)


def _disk(case: VeRLCase) -> Iterator[Note]:
    """`before-start`: what checkpoints take, if the model's name says its size."""
    one, kept = case.checkpoint_gigabytes, case.options.keep_checkpoints + 2
    if one is None:
        return
    message = (
        f"a checkpoint of {checks.model_billions(case.run.model):g} billion parameters takes about {one:.0f} GB "
        f"(weights and two moments in 32 bits); the newest {case.options.keep_checkpoints}, the best one and the one "
        f"being written take {one * kept:.0f} GB. save_every_steps writes fewer."
    )
    yield Note("before-start", "info", message, {"gigabytes": one * kept})


def _paths(case: VeRLCase) -> Iterator[Note]:
    for field in ("model", "output_dir"):
        if "${" in case.paths[field]:
            message = (
                f"{field} = {case.paths[field]!r} contains '${{', which veRL's configuration reads as a reference. "
                "Choose another name."
            )
            yield unsupported(field, message)


CHECKS: tuple[Check[VeRLCase], ...] = (
    checks.several_gpu_counts,
    checks.gpus_fill_nodes,
    checks.tensor_parallel,
    checks.several_nodes,
    Rule[VeRLCase](
        "recipe.updates_per_batch",
        lambda c: bool(c.run.problems_per_batch % c.recipe.updates_per_batch),
        "updates_per_batch = {recipe.updates_per_batch} with {run.problems_per_batch} problems per batch: veRL splits "
        "a batch by problems, not by rollouts. Make problems_per_batch a multiple of {recipe.updates_per_batch}.",
    ),
    lambda c: (
        () if c.run.problems_per_batch % c.recipe.updates_per_batch else checks.batch_not_divisible(c.run, c.gpus)
    ),
    _disk,
    checks.zero_variance_filters(
        "veRL cannot leave groups out of a loss term. Its filter_groups samples new problems in their place, which "
        "uses more rollouts and problems than planned. Set them to false (groups of equal rewards have no policy "
        "gradient anyway), or use the backend torch."
    ),
    Rule[VeRLCase](
        "recipe.normalize_advantage",
        lambda c: c.ppo and not c.recipe.normalize_advantage,
        "normalize_advantage is off: veRL always divides PPO's advantages by their deviation over the batch. Set it to "
        "true, or use the backend torch.",
    ),
    checks.std_epsilon(
        "veRL",
        1e-6,
        with_ppo="adds 1e-8 to the variance of PPO's advantages over the batch instead; the difference is below a "
        "thousandth for deviations above 0.001.",
    ),
    checks.kl_without_gradient,
    checks.low_temperature,
    checks.biased_weights,
    checks.unused_fields,
    # veRL's schedule counts batches, however many updates each has.
    lambda c: checks.warmup_from_zero(c.run, c.run.update_steps, "update step"),
    Rule[VeRLCase](
        "recipe.max_prompt_tokens",
        lambda _: True,
        "prompts longer than {recipe.max_prompt_tokens} tokens (recipe.max_prompt_tokens) are left out, in training "
        "and in validation.",
        "framework-differs",
        "info",
    ),
    _paths,
    *checks.PROBLEMS,
)


MODULE = "verl.trainer.main_ppo"
"""Program that takes the keys."""


class VeRLBackend(FrameworkBackend[VeRLCase]):
    """Writes launch scripts for veRL 0.9.1; imports nothing of it."""

    name: str = "verl"
    packages: tuple[str, ...] = ("verl",)
    log_format: str = "verl"
    INFO = BackendInfo(
        name="verl",
        framework="veRL",
        version=VERSION,
        summary="GRPO, PPO and CISPO on Ray, FSDP and vLLM; trainer and engines share all GPUs and take turns.",
        needs=(
            f"verl[vllm,fsdp]=={VERSION} and TransferQueue in the interpreter named by PYTHON (default: python3)",
            "NVIDIA GPUs, as many as hardware.gpus says, and a model with a chat template",
            "training and validation problems as JSON lines, and a Python file with the reward function",
            "for several nodes: a running Ray cluster and a shared file system",
        ),
        algorithms=("grpo", "ppo", "cispo"),
        install=(
            "python3 -m venv verl-env && source verl-env/bin/activate",
            f"pip install 'verl[vllm,fsdp]=={VERSION}' 'TransferQueue>=0.1.10'",
            "export PYTHON=$PWD/verl-env/bin/python",
        ),
    )
    OPTIONS = VeRLOptions
    CASE = VeRLCase
    FLAGS = FLAGS
    CHECKS = CHECKS
    # A sharded checkpoint loads only with the same number.
    SAME = ("nodes", "gpus")
    PROGRAMS = ("prepare_rows.py", "reward_score.py", "hydra_words.py", "start_training.py", "keep_best.py")

    def values(self, run: RunSpec) -> dict[str, Any]:
        """Variables of the template."""
        case = self.case(run)
        overrides = [(part.title, [override(flag) for flag in part.flags]) for part in self.sections(run)]
        return {"gpus": case.gpus, "nodes": case.nodes, "sections": overrides, "module": MODULE}

    def words(self, flag: Flag) -> tuple[str, ...]:
        """A Hydra override."""
        return (override(flag),)

    def update_steps(self, keys: Mapping[str, Any]) -> float | None:
        """`trainer.total_training_steps`."""
        steps = keys.get("trainer.total_training_steps")
        return float(steps) if isinstance(steps, int | float) else None


def override(flag: Flag) -> str:
    """`key=value` in Hydra's quoting; a `Place` becomes a mark that start_training.py fills in."""
    if isinstance(flag.value, Place):
        return f"{flag.name}={f'@run/{flag.value.path}' if flag.value.path else '@model'}"
    return f"{flag.name}={word(flag.value)}"
