"""TRL 1.16 in two tables: every setting of GRPOConfig that a run needs, and what TRL refuses or does differently.

Values fixed by the recipe are written even if they equal TRL's defaults, since several defaults differ from the recipe
(KL times a differentiable ratio, importance weights that mask whole responses, a CISPO cap of 0.2). GRPOConfig does not
check `loss_type`, hence LOSS_TYPES.

Facts about settings come from the 1.16.0 wheel: trl/trainer/grpo_config.py and grpo_trainer.py. Every field of a recipe
is applied exactly, refused, or covered by a note; a test changes each and checks that one of the three happens.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from isocompute_sdk.specs import RunSpec
from isocompute_sdk.specs.base import Count, Number
from isocompute_sdk.specs.base import Flag as Switch
from isocompute_sdk.training import FrameworkOptions, checks
from isocompute_sdk.training.backend import BackendInfo, Needs
from isocompute_sdk.training.existing import Setting
from isocompute_sdk.training.framework import (
    USUAL_NODE,
    Case,
    Check,
    Flag,
    FrameworkBackend,
    Rule,
    Section,
    own,
    plan,
    recipe,
)
from isocompute_sdk.training.payload import program

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
MIN_SHARE, MAX_SHARE = 0.3, 0.6
LOSS_TYPES = {
    ("grpo", "token-mean"): "dapo",
    ("grpo", "seq-mean-token-mean"): "grpo",
    ("cispo", "token-mean"): "cispo",
}
"""`loss_type` by algorithm and aggregation; any other combination is refused. `dapo` divides by the tokens of the
whole batch, `grpo` by each response's own and then by responses."""


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
    gradient_checkpointing: Switch = True
    """Recompute activations in the backward pass instead of keeping them."""
    chat_template: Switch = True
    """Apply the tokenizer's chat template to prompts; off: the model sees the plain text."""
    save_every_steps: Count | None = None
    """Update steps between checkpoints. None: at every evaluation; otherwise the best of those saved is kept."""
    keep_checkpoints: Annotated[int, Number(whole=True, ge=2)] = 3
    """Number of checkpoints kept: the best one and the latest others."""
    tensorboard: Switch = False
    """Also write TensorBoard events, under TRL's names."""
    wandb: Switch = False
    """Also log to Weights & Biases, with the login of the environment (WANDB_API_KEY or `wandb login`)."""
    mlflow: Switch = False
    """Also log to MLflow, at MLFLOW_TRACKING_URI."""


class TRLCase(Case[TRLOptions]):
    """A run with what TRL's settings derive from it."""

    framework: ClassVar[str] = "TRL"

    @property
    def processes(self) -> int:
        """Trainer processes, one per GPU; one on a CPU."""
        return 1 if self.cpu else self.gpus

    @property
    def gpus_per_node(self) -> int:
        """All of them: TRL runs on one machine here."""
        return self.processes

    @property
    def sharding(self) -> str | None:
        """How processes share the trainer; None for one."""
        return self.options.sharding if self.processes > 1 else None

    @property
    def cpu(self) -> bool:
        """Whether the trainer is on the CPU."""
        return self.options.device == "cpu"

    @property
    def vllm(self) -> bool:
        """Whether vLLM samples."""
        return self.options.sampler == "vllm"

    @property
    def share(self) -> int:
        """Rollouts of one process in an update."""
        return self.run.rollouts_per_batch // self.processes

    @property
    def samples_per_pass(self) -> int:
        """Rollouts per process in one pass: the largest divisor of the process's share up to the option."""
        share = self.share
        return max(d for d in range(1, min(share, self.options.samples_per_pass) + 1) if share % d == 0)

    @property
    def accumulation(self) -> int:
        """Passes of one update."""
        return self.run.rollouts_per_batch // (self.samples_per_pass * self.processes)

    @property
    def loss_type(self) -> str | None:
        """TRL's name of the loss; None if it has none."""
        return LOSS_TYPES.get((self.recipe.algorithm, self.recipe.loss_aggregation))

    @property
    def memory_share(self) -> float:
        """Share of GPU memory for vLLM: the option, or what remains beside the trainer's states.

        vLLM sleeps during updates, but weights, gradients and optimiser of the trainer stay on the GPU meanwhile.
        """
        if self.options.gpu_memory_utilization is not None:
            return self.options.gpu_memory_utilization
        size = checks.model_billions(self.run.model)
        if size is None:
            return MIN_SHARE
        shared = SHARED_BYTES[self.options.sharding]
        states = size * (STATE_BYTES - shared + shared / self.processes)
        return round(min(MAX_SHARE, max(MIN_SHARE, 1 - (states + RESERVED_GB) / CARD_GB)), 2)


FLAGS = (
    # One generation of n * B_p rollouts is one optimiser step: steps_per_generation follows the accumulation.
    Section(
        "batch",
        (
            plan("num_generations", "run.group_size"),
            plan("per_device_train_batch_size", "samples_per_pass"),
            plan("gradient_accumulation_steps", "accumulation"),
            Flag("num_iterations", 1, "plan"),
            plan("max_steps", "run.update_steps"),
            # The rows are already in training order.
            Flag("shuffle_dataset", False),
            own("seed", "run.seed"),
            own("data_seed", "run.seed"),
        ),
    ),
    Section(
        "optimiser",
        (
            Flag("optim", "adamw_torch"),
            plan("learning_rate", "run.learning_rate"),
            Flag("lr_scheduler_type", "constant_with_warmup", "plan"),
            plan("warmup_steps", "recipe.warmup_steps"),
            recipe("adam_beta1", lambda c: c.recipe.adam_betas[0]),
            recipe("adam_beta2", lambda c: c.recipe.adam_betas[1]),
            recipe("weight_decay", "recipe.weight_decay"),
            recipe("max_grad_norm", "recipe.gradient_clip"),
        ),
    ),
    Section(
        "loss",
        (
            recipe("loss_type", "loss_type"),
            Flag("importance_sampling_level", "token", "recipe"),
            recipe("scale_rewards", lambda c: "group" if c.recipe.normalize_advantage else "none"),
            recipe("epsilon", "recipe.ratio_clip"),
            # For CISPO the cap of the ratio itself; otherwise how far above 1 it may go.
            recipe("epsilon_high", lambda c: 1 + c.recipe.ratio_clip if c.cispo else c.recipe.ratio_clip),
            recipe("beta", "recipe.kl_coef"),
            # The default multiplies the KL by the policy ratio, which changes its gradient even at a ratio of 1.
            Flag("use_bias_correction_kl", False, "recipe"),
            recipe("entropy_coef", "recipe.entropy_coef"),
            Flag("mask_truncated_completions", False, "recipe"),
        ),
    ),
    Section(
        "sampling",
        (
            recipe("temperature", "recipe.temperature"),
            recipe("top_p", "recipe.top_p"),
            Flag("top_k", 0, "recipe"),
            recipe("max_completion_length", "recipe.max_response_tokens"),
            own("use_vllm", "vllm"),
        ),
    ),
    Section(
        "vLLM",
        (
            Flag("vllm_mode", "colocate"),
            own("vllm_max_model_length", "longest"),
            own("vllm_tensor_parallel_size", "options.tensor_parallel"),
            own("vllm_gpu_memory_utilization", "memory_share"),
            Flag("vllm_enable_sleep_mode", True),
            recipe("vllm_importance_sampling_correction", "tis"),
            Flag("vllm_importance_sampling_mode", "token_truncate", "recipe", when="tis"),
            recipe("vllm_importance_sampling_clip_max", "recipe.tis_cap", when="tis"),
        ),
        when="vllm",
    ),
    Section(
        "evaluation",
        (
            Flag("eval_strategy", "steps", "plan"),
            plan("eval_steps", "evaluation.every_steps"),
            Flag("eval_on_start", True, "plan"),
            plan("num_generations_eval", "evaluation.samples"),
            # Keeps this checkpoint among those that save_total_limit leaves.
            Flag("metric_for_best_model", "eval_reward"),
            Flag("greater_is_better", True),
        ),
    ),
    Section(
        "process",
        (
            own("use_cpu", "cpu"),
            own("bf16", lambda c: not c.cpu),
            # Weights and optimiser in full precision; passes run in bfloat16 on a GPU.
            Flag("model_init_kwargs", {"dtype": "float32"}),
            own("gradient_checkpointing", "options.gradient_checkpointing"),
            Flag("save_strategy", "steps"),
            own("save_steps", lambda c: c.options.save_every_steps or c.evaluation.every_steps),
            own("save_total_limit", "options.keep_checkpoints"),
            Flag("logging_steps", 1),
            own("report_to", "options.loggers"),
            own("run_name", "run.run_id"),
            Flag("disable_tqdm", True),
        ),
    ),
)
"""Arguments of GRPOConfig. `train.py` adds output_dir and per_device_eval_batch_size, which depend on the run folder
and the problem files."""


CHECKS: tuple[Check[TRLCase], ...] = (
    checks.several_gpu_counts,
    Rule[TRLCase](
        "options.device",
        lambda c: c.cpu and (c.gpus > 1 or c.vllm),
        "option device = cpu with sampler = {options.sampler} and hardware.gpus = {c.gpus}; accepted: sampler = "
        "transformers and one process (hardware.gpus = 1).",
    ),
    Rule[TRLCase](
        "hardware.gpus",
        lambda c: c.processes > USUAL_NODE,
        f"{{c.processes}} GPUs: this backend runs on one machine of up to {USUAL_NODE}. For several machines use the "
        "backend openrlhf or verl.",
    ),
    lambda c: checks.batch_not_divisible(c.run, c.processes),
    lambda c: checks.tensor_parallel(c) if c.vllm else (),
    lambda c: checks.low_temperature(c) if c.vllm else (),
    lambda c: checks.biased_weights(c) if c.vllm else (),
    Rule[TRLCase](
        "recipe.algorithm",
        lambda c: c.ppo,
        "TRL 1.16 has no PPO trainer. Use the backend openrlhf, verl or torch, or set recipe.algorithm to grpo.",
    ),
    Rule[TRLCase](
        "recipe.loss_aggregation",
        lambda c: not c.ppo and c.loss_type is None,
        "loss_aggregation = {recipe.loss_aggregation} with algorithm = {recipe.algorithm}: TRL averages this loss over "
        "all tokens of the batch. Set loss_aggregation to token-mean.",
    ),
    checks.zero_variance_filters(
        "TRL cannot leave groups out of a loss term. Set them to false (groups of equal rewards have no policy "
        "gradient anyway), or use the backend torch."
    ),
    Rule[TRLCase](
        "recipe.updates_per_batch",
        lambda c: c.recipe.updates_per_batch > 1,
        "updates_per_batch = {recipe.updates_per_batch}: TRL's max_steps and warm-up count optimiser steps, and this "
        "backend makes one per rollout batch. Set it to 1.",
    ),
    Rule[TRLCase](
        "recipe.kl_in",
        lambda c: c.recipe.kl_coef > 0 and (c.recipe.kl_in != "loss" or c.recipe.kl_estimator != "k3"),
        "kl_in = {recipe.kl_in} with kl_estimator = {recipe.kl_estimator}: TRL has the estimator k3 as a term of the "
        "loss only. Set kl_in to loss and kl_estimator to k3, or use the backend openrlhf, verl or torch.",
    ),
    checks.std_epsilon("TRL", 1e-4),
    checks.unused_fields,
    Rule[TRLCase](
        "evaluation.temperature",
        lambda c: c.evaluation.temperature != c.recipe.temperature,
        "evaluation.temperature = {evaluation.temperature:g} and recipe.temperature = {recipe.temperature:g}: TRL "
        "evaluates with the temperature of training. Make both the same (of a plan: launch --change "
        "evaluation.temperature={recipe.temperature:g}), or use another backend.",
    ),
    checks.evaluation_top_p,
    lambda c: checks.warmup_from_zero(c.run, c.run.update_steps),
    *checks.PROBLEMS,
)


class TRLBackend(FrameworkBackend[TRLCase]):
    """Writes launch scripts for TRL 1.16.0; imports nothing of it."""

    name: str = "trl"
    packages: tuple[str, ...] = ("trl",)
    INFO = BackendInfo(
        name="trl",
        framework="TRL",
        version=VERSION,
        summary="GRPO and CISPO with Hugging Face's trainer and vLLM on one machine, or on a CPU.",
        needs=(
            f"trl[vllm]=={VERSION} in the interpreter named by PYTHON (default: python3)",
            "NVIDIA GPUs in one machine, as many as hardware.gpus says, and deepspeed for more than one; or "
            "options device = cpu and sampler = transformers",
            "training and validation problems as JSON lines, and a Python file with the reward function",
        ),
        algorithms=("grpo", "cispo"),
        install=(
            "python3 -m venv trl-env && source trl-env/bin/activate",
            f"pip install 'trl[vllm]=={VERSION}' deepspeed",
            "export PYTHON=$PWD/trl-env/bin/python",
        ),
    )
    OPTIONS = TRLOptions
    CASE = TRLCase
    FLAGS = FLAGS
    CHECKS = CHECKS
    SAME = ("options.chat_template", "options.sampler", "processes", "sharding")
    PROGRAMS = ("prepare_rows.py", "train.py")

    def needs(self, run: RunSpec) -> Needs:
        """One GPU for each trainer process; none if the option `device` is cpu."""
        case = self.case(run)
        return Needs(0 if case.cpu else case.processes)

    def values(self, run: RunSpec) -> dict[str, Any]:
        """Variables of the template."""
        case = self.case(run)
        return {
            "processes": case.processes,
            "vllm": case.vllm,
            "deepspeed": case.processes > 1 and case.options.sharding != "ddp",
            "trainer": json.dumps(self.trainer_settings(run), indent=1),
            "sharding": json.dumps(sharding_config(case), indent=1),
        }

    def trainer_settings(self, run: RunSpec) -> dict[str, Any]:
        """Arguments of GRPOConfig by name."""
        return {flag.name: flag.value for section in self.sections(run) for flag in section.flags}

    def words(self, flag: Flag) -> tuple[str, ...]:
        """As TRL's own parser takes it."""
        return (f"--{flag.name}", str(flag.value))

    def settings(self, run: RunSpec) -> tuple[Setting, ...]:
        """The flags of plan and recipe; one batch is one update, which a command may have set by another flag."""
        steps = Flag("steps_per_generation", self.case(run).accumulation, "plan")
        return (*super().settings(run), Setting(steps.name, steps.value, self.words(steps), True))

    def update_steps(self, keys: Mapping[str, Any]) -> float | None:
        """`max_steps`, over the updates of one generation."""
        steps, iterations = keys.get("max_steps"), keys.get("num_iterations") or 1
        return steps / iterations if isinstance(steps, int | float) and steps > 0 else None

    def documents(self, run: RunSpec) -> dict[str, str]:
        """The request, the programs of the script, and the journal they write."""
        return {**super().documents(run), "run_journal.py": program("run_journal.py", "isocompute_sdk.run_folders")}


def sharding_config(case: TRLCase) -> dict[str, Any] | None:
    """The configuration file of `accelerate launch`; None for a single process, which is started without it."""
    if case.processes == 1:
        return None
    config: dict[str, Any] = {
        "compute_environment": "LOCAL_MACHINE",
        "distributed_type": "MULTI_GPU",
        "mixed_precision": "bf16",
        "num_machines": 1,
        "machine_rank": 0,
        "num_processes": case.processes,
        "rdzv_backend": "static",
        "same_network": True,
        "main_training_function": "main",
        "use_cpu": False,
    }
    if case.options.sharding != "ddp":
        stage = int(case.options.sharding.removeprefix("zero"))
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
