"""OpenRLHF 0.11.2 in two tables: all flags that a run needs, and what OpenRLHF refuses or does differently.

Names are written in full: the parser accepts any unambiguous prefix, so a misspelt flag can set another one. Values
fixed by the recipe are written even if they equal OpenRLHF's defaults, because those differ between releases (betas
0.9 / 0.95, KL 0.01 in the reward, importance weights masked outside [0.5, 5], rewards clipped at 10).

Facts about flags come from the 0.11.2 wheel: cli/train_ppo_ray.py for the parser and its checks,
trainer/ppo_trainer.py for steps, models/loss.py for the losses. Every field of a recipe is applied exactly, refused, or
covered by a note; a test changes each and checks that one of the three happens.

Trainer, reference model, critic and vLLM engines share all GPUs and take turns (OpenRLHF's colocated, sleeping mode),
so one number of GPUs describes the whole run.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar

from isocompute_sdk.notes import Note
from isocompute_sdk.specs.base import Count, Number
from isocompute_sdk.specs.base import Flag as Switch
from isocompute_sdk.training import FrameworkOptions, checks
from isocompute_sdk.training.checks import unsupported
from isocompute_sdk.training.framework import (
    MODEL,
    Case,
    Check,
    Flag,
    Part,
    Place,
    Rule,
    Section,
    looked_up,
    own,
    plan,
    recipe,
)
from isocompute_sdk.training.payload.run_files import ROW_FILES

VERSION = "0.11.2"
"""The only OpenRLHF release these flags are for."""
MISREAD_IN_PATHS = (",", "@", "*", "?", "[", "::", "://")
"""OpenRLHF splits data paths at commas and "@"; Hugging Face datasets reads the other marks as a glob or a URL."""
EVAL_SET = "validation"
"""Name of the validation set in OpenRLHF's metrics: avg@k is `eval/eval_validation_pass1`."""
MAX_ROWS = 10**8
"""OpenRLHF's default limit of rows, which also applies to the validation set."""
REWARD_RANGE = (-1000, 1000)
"""Clip range that never binds. It acts on normalised advantages: a lone success among n reaches
(n - 1) / sqrt(n), more than the default of 10 from n = 102 on."""
MAX_PACKED_BATCH = 16384
"""Largest batch in rollouts that is packed by tokens.

OpenRLHF's partitioning (utils/seqlen_balancing.py) takes time and memory that grow with the square of the
batch; measured with samples of 2,000 tokens and 16,384 tokens per GPU: 2 s and 0.1 GB per step at 2,048
rollouts, 24 s and 1.7 GB at 8,192, 108 s and 6.5 GB at 16,384, hence about half an hour and 100 GB at 65,536."""
FIXED_TOKENS = 32_768
"""Tokens of a pass with a fixed number of samples, if all have full length."""


class OpenRLHFOptions(FrameworkOptions):
    """Options of one OpenRLHF run; the defaults are for a 7B model on one machine with 80 GB GPUs."""

    PASSES: ClassVar[tuple[str, ...]] = (
        "actor.gradient_checkpointing_reentrant",
        "ckpt.max_mem",
        "ckpt.save_hf",
        "data.dataloader_num_workers",
        "ds.adam_offload",
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
        "vllm.enable_prefix_caching",
        "vllm.enforce_eager",
        "vllm.sync_backend",
        "vllm.sync_with_ray",
    )

    nodes: Count | None = None
    """Machines; `hardware.gpus` is the GPUs of all of them. None: 1 up to 8 GPUs, else 8 GPUs each."""
    tensor_parallel: Count = 1
    """GPUs per vLLM engine; must divide the model's attention heads."""
    zero_stage: Annotated[int, Number(whole=True, ge=2, le=3)] = 3
    """DeepSpeed ZeRO stage: 2 shards gradients and optimiser, 3 the weights too."""
    gradient_checkpointing: Switch = True
    """Recompute activations in the backward pass instead of keeping them."""
    dynamic_batch: Switch | None = None
    """Pack samples into micro-batches by tokens; off: as many samples per micro-batch as fit 32,768 tokens. None: on,
    except for batches above 16,384 rollouts or several updates per batch."""
    max_tokens_per_gpu: Count | None = None
    """Tokens per micro-batch and GPU if `dynamic_batch` is on. None: the longest sample, at least 16,384."""
    chat_template: Switch = True
    """Apply the tokenizer's chat template to prompts; off: the model sees the plain text."""
    gpu_memory_utilization: Annotated[float, Number(gt=0, le=0.95)] = 0.6
    """Share of GPU memory for vLLM while it generates."""
    save_every_steps: Count | None = None
    """Update steps between checkpoints. None: about 20 per run, each with an evaluation."""
    keep_checkpoints: Count = 2
    """Newest checkpoints kept, besides the best one."""
    save_best: Switch = True
    """Also keep the checkpoint with the best validation reward."""
    wandb: Switch = False
    """Also log to Weights & Biases, with the login of the environment (WANDB_API_KEY or `wandb login`)."""


class OpenRLHFCase(Case[OpenRLHFOptions]):
    """A run with its placement and what else OpenRLHF's flags derive from it."""

    framework: ClassVar[str] = "OpenRLHF"

    @property
    def engines(self) -> int:
        """Number of vLLM engines: together they use every GPU."""
        return self.gpus // self.options.tensor_parallel

    @property
    def rows(self) -> int:
        """Rows of the training file, exactly M steps."""
        return self.run.problems_per_batch * self.run.update_steps

    @property
    def update_samples(self) -> int:
        """Rollouts of one optimiser update."""
        return self.run.rollouts_per_batch // self.recipe.updates_per_batch

    @property
    def warmup_ratio(self) -> float:
        """Ratio that OpenRLHF turns into exactly `warmup_steps`: it takes ceil(ratio * steps).

        warmup_steps / steps itself rounds up to one step more for some numbers of steps, so the ratio aims half a
        step lower.
        """
        steps = self.run.update_steps * self.recipe.updates_per_batch
        return float(f"{max(0.0, self.recipe.warmup_steps - 0.5) / steps:.6g}")

    @property
    def std_kept_out(self) -> bool:
        """Whether PPO's advantages are not divided by their deviation."""
        return self.ppo and not self.recipe.normalize_advantage

    @property
    def has_kl(self) -> bool:
        """Whether there is a KL term."""
        return self.recipe.kl_coef > 0

    @property
    def kl_in_loss(self) -> bool:
        """Whether the KL is a term of the loss."""
        return self.has_kl and self.recipe.kl_in == "loss"

    @property
    def packs(self) -> bool:
        """Whether micro-batches are packed by tokens instead of holding a fixed number of samples."""
        if self.options.dynamic_batch is not None:
            return self.options.dynamic_batch
        return self.recipe.updates_per_batch == 1 and self.run.rollouts_per_batch <= MAX_PACKED_BATCH

    @property
    def micro_batch(self) -> int:
        """Samples per GPU in a pass: as many as fit `FIXED_TOKENS` at full length and share a GPU's work equally.

        They are packed without padding, so that short samples cost what they hold.
        """
        share = self.update_samples // self.gpus
        most = 1 if self.packs else max(1, FIXED_TOKENS // self.longest)
        return max((size for size in range(1, most + 1) if share and share % size == 0), default=1)

    @property
    def save_every(self) -> int:
        """Update steps between checkpoints: the option, else whole evaluation intervals, about 20 per run."""
        every, steps = self.evaluation.every_steps, self.run.update_steps
        return self.options.save_every_steps or min(every * max(1, -(-steps // (20 * every))), steps)


def tokens_per_gpu(case: OpenRLHFCase) -> int:
    """Tokens of a packed micro-batch."""
    return case.options.max_tokens_per_gpu or max(16384, case.longest)


def _optimizer(entity: str, learning_rate: str, schedule: Part) -> tuple[Flag, ...]:
    return (
        Flag(f"{entity}.optim", "adam", "recipe"),
        Flag(f"{entity}.adam.lr", looked_up(learning_rate), schedule),
        recipe(f"{entity}.adam.betas", "recipe.adam_betas"),
        recipe(f"{entity}.adam.weight_decay", "recipe.weight_decay"),
        recipe(f"{entity}.max_norm", "recipe.gradient_clip"),
        Flag(f"{entity}.lr_scheduler", "constant_with_warmup", schedule),
        Flag(f"{entity}.lr_warmup_ratio", looked_up("warmup_ratio"), schedule),
    )


FLAGS = (
    Section(
        "model and data",
        (
            Flag("actor.model_name_or_path", MODEL),
            Flag("data.prompt_dataset", Place("train_rows.jsonl")),
            Flag("data.prompt_split", "train"),
            Flag("data.input_key", "input"),
            Flag("data.label_key", "label"),
            own("data.apply_chat_template", "options.chat_template"),
            own("data.max_samples", lambda c: max(MAX_ROWS, c.rows)),
            recipe("data.max_len", "longest"),
            Flag("reward.remote_url", Place("reward_wrapper.py")),
        ),
    ),
    Section(
        "rollouts",
        (
            plan("rollout.batch_size", "run.problems_per_batch"),
            plan("rollout.n_samples_per_prompt", "run.group_size"),
            recipe("rollout.temperature", "recipe.temperature"),
            recipe("rollout.top_p", "recipe.top_p"),
            recipe("rollout.max_new_tokens", "recipe.max_response_tokens"),
        ),
    ),
    Section(
        "update",
        (
            plan("train.batch_size", "update_samples"),
            Flag("train.max_epochs", 1, "plan"),
            Flag("train.num_episodes", 1),
            own("train.seed", "run.seed"),
            *_optimizer("actor", "run.learning_rate", "plan"),
            recipe("actor.eps_clip", "recipe.ratio_clip"),
            Flag("actor.policy_loss_type", "ppo", "recipe"),
            recipe("actor.loss_agg_mode", "recipe.loss_aggregation"),
            recipe("actor.entropy_coef", "recipe.entropy_coef"),
        ),
    ),
    Section(
        "advantages and loss",
        (
            recipe(
                "algo.advantage.estimator",
                lambda c: "gae" if c.ppo else "group_norm" if c.recipe.normalize_advantage else "dr_grpo",
            ),
            recipe("algo.advantage.no_std_norm", "std_kept_out"),
            Flag("reward.clip_range", REWARD_RANGE),
            recipe("algo.advantage.is_correction_level", lambda c: "token" if c.tis else "off"),
            Flag("algo.advantage.is_correction_mode", "clip", "recipe", when="tis"),
            Flag("algo.advantage.is_correction_gating", "ratio", "recipe", when="tis"),
            # One value is an upper bound only; two would clamp from below as well.
            recipe("algo.advantage.is_correction_threshold", "recipe.tis_cap", when="tis"),
            # 0 also leaves the reference model out.
            recipe("algo.kl.init_coef", lambda c: c.recipe.kl_coef or 0),
            recipe("algo.kl.estimator", "recipe.kl_estimator", when="has_kl"),
            recipe("algo.kl.use_loss", "kl_in_loss"),
        ),
    ),
    Section(
        "value model",
        (
            Flag("critic.model_name_or_path", MODEL),
            recipe("critic.num_nodes", "nodes"),
            recipe("critic.num_gpus_per_node", "gpus_per_node"),
            *_optimizer("critic", "recipe.value_learning_rate", "recipe"),
            recipe("critic.value_clip", "recipe.value_clip"),
            Flag("critic.freezing_steps", -1, "recipe"),
            recipe("algo.advantage.lambd", "recipe.gae_lambda"),
            recipe("algo.advantage.gamma", "recipe.gae_gamma"),
        ),
        when="ppo",
    ),
    Section(
        "placement and memory",
        (
            Flag("train.colocate_all", True),
            Flag("vllm.enable_sleep", True),
            Flag("ds.enable_sleep", True),
            recipe("actor.num_nodes", "nodes"),
            recipe("actor.num_gpus_per_node", "gpus_per_node"),
            own("ref.num_nodes", "nodes"),
            own("ref.num_gpus_per_node", "gpus_per_node"),
            own("vllm.num_engines", "engines"),
            own("vllm.tensor_parallel_size", "options.tensor_parallel"),
            own("vllm.gpu_memory_utilization", "options.gpu_memory_utilization"),
            own("ds.zero_stage", "options.zero_stage"),
            Flag("vllm.enable_prefix_caching", True),
            recipe("actor.gradient_checkpointing_enable", "options.gradient_checkpointing"),
            own("train.dynamic_batch_enable", "packs"),
            Flag("ds.packing_samples", True),
            own("train.max_tokens_per_gpu", tokens_per_gpu, when="packs"),
            recipe("rollout.max_tokens_per_gpu", tokens_per_gpu, when="packs"),
            own("train.micro_batch_size", "micro_batch"),
            recipe("rollout.micro_batch_size", "micro_batch"),
        ),
    ),
    Section(
        "evaluation",
        (
            Flag("eval.dataset", Place(ROW_FILES["evaluation"])),
            Flag("eval.split", "train"),
            plan("eval.steps", "evaluation.every_steps"),
            plan("eval.temperature", "evaluation.temperature"),
            plan("eval.n_samples_per_prompt", "evaluation.samples"),
        ),
    ),
    Section(
        "checkpoints and logs",
        (
            Flag("ckpt.path", Place("checkpoints")),
            Flag("ckpt.output_dir", Place("model")),
            own("ckpt.save_steps", "save_every"),
            # At this limit OpenRLHF removes the worst one; supervise.py removes others before it is reached.
            own("ckpt.max_num", lambda c: c.options.keep_checkpoints + 2),
            own("ckpt.best_metric_key", lambda c: f"eval_{EVAL_SET}_pass1" if c.options.save_best else "none"),
            Flag("ckpt.load_enable", True),
            Flag("logger.tensorboard_dir", Place("tensorboard")),
            own("logger.wandb.run_name", "run.run_id"),
            # A key turns it on; wandb itself takes the login of the environment first.
            Flag("logger.wandb.key", "from-the-environment", when="options.wandb"),
            Flag("logger.logging_steps", 1),
        ),
    ),
)
"""True is a switch; False leaves it out."""


def length_flags(case: OpenRLHFCase) -> tuple[Flag, Flag]:
    """M in a command of one's own: rows times episodes over B_p. Our script writes exactly B_p * M rows instead.

    With fewer problems than that, whole batches of them are repeated; M is then at least what was asked for.
    """
    batch, known = case.run.problems_per_batch, case.run.data.n_problems
    rows = case.rows if known is None else min(case.rows, max(batch, known // batch * batch))
    return Flag("data.max_samples", rows, "plan"), Flag("train.num_episodes", -(-case.rows // rows), "plan")


def _checkpoints(case: OpenRLHFCase) -> Iterator[Note]:
    """What checkpoints are kept."""
    options, interval = case.options, case.save_every
    copies = options.keep_checkpoints + options.save_best + 1
    best = " and the best" if options.save_best else ""
    critic = ", and as much again for the value model" if case.ppo else ""
    message = (
        f"a checkpoint every {interval} steps; the newest {options.keep_checkpoints}{best} are kept: up to {copies} on "
        f"disk, about 14 bytes per parameter each{critic}. A resumed run continues from the last one with the same "
        "order of problems, but other random numbers."
    )
    data = {"every_steps": interval, "newest": options.keep_checkpoints, "most": copies}
    yield Note("before-start", "info", message, data)


def _token_means(case: OpenRLHFCase) -> Iterator[Note]:
    recipe = case.recipe
    if recipe.loss_aggregation != "token-mean":
        message = (
            f"loss_aggregation = {recipe.loss_aggregation} applies to the policy loss; OpenRLHF averages the KL, "
            "entropy and value terms over tokens in any case."
        )
        severity = "warning" if recipe.kl_coef > 0 or recipe.entropy_coef > 0 or case.ppo else "info"
        yield Note("framework-differs", severity, message)


def _gaps(case: OpenRLHFCase) -> Iterator[Note]:
    every, steps = case.evaluation.every_steps, case.run.update_steps
    if every > steps:
        message = (
            f"evaluation every {every} steps, but the run has only {steps}: OpenRLHF never evaluates it. Set "
            f"evaluation.every_steps to about {max(1, steps // 10)}."
        )
        yield Note("framework-differs", "warning", message)


def _paths(case: OpenRLHFCase) -> Iterator[Note]:
    """Refusals of paths that bash or OpenRLHF would misread."""
    for field, value in case.paths.items():
        if "\0" in value:
            yield unsupported(field, f"{field} = {value!r} contains a NUL character. Remove it.")
    bad = [mark for mark in MISREAD_IN_PATHS if mark in case.run.output_dir]
    if bad:
        message = (
            f"output_dir = {case.run.output_dir!r} contains {', '.join(map(repr, bad))}: OpenRLHF splits paths at ',' "
            "and '@', and its data loader reads the others as a pattern or an address. Choose another folder."
        )
        yield unsupported("output_dir", message, characters=bad)


CHECKS: tuple[Check[OpenRLHFCase], ...] = (
    checks.several_gpu_counts,
    checks.gpus_fill_nodes,
    checks.tensor_parallel,
    # Otherwise ranks get unequal work, for which the others would wait forever.
    lambda c: checks.batch_not_divisible(c.run, c.gpus),
    Rule[OpenRLHFCase](
        "options.max_tokens_per_gpu",
        lambda c: not c.packs and c.options.max_tokens_per_gpu is not None,
        "option max_tokens_per_gpu has no effect while micro-batches hold a fixed number of samples. Turn "
        "dynamic_batch on, or remove it.",
    ),
    Rule[OpenRLHFCase](
        "options.dynamic_batch",
        lambda c: c.packs and c.recipe.updates_per_batch > 1,
        "dynamic_batch assigns the samples of a batch to its {recipe.updates_per_batch} updates by length, not at "
        "random, so the updates would see different lengths. Turn the option dynamic_batch off.",
    ),
    Rule[OpenRLHFCase](
        "options.dynamic_batch",
        lambda c: c.packs and c.run.rollouts_per_batch > MAX_PACKED_BATCH,
        "dynamic_batch with {run.rollouts_per_batch} rollouts per batch: partitioning takes time and memory that grow "
        f"with the square of the batch (108 s and 6.5 GB per step at {MAX_PACKED_BATCH} samples of 2,000 tokens). Turn "
        "the option dynamic_batch off.",
    ),
    _checkpoints,
    Rule[OpenRLHFCase](
        "recipe.algorithm",
        lambda c: c.cispo,
        "OpenRLHF has no CISPO loss. With one update per batch the policy ratio is 1 and the gradient of CISPO equals "
        "that of GRPO's clipped loss: set recipe.algorithm to grpo.",
    ),
    checks.zero_variance_filters(
        "OpenRLHF cannot leave groups out of a loss term. Its dynamic filtering replaces them by groups of new "
        "problems instead, which uses up problems and changes the number of update steps. Set them to false: a group "
        "of equal rewards has no policy gradient anyway."
    ),
    checks.std_epsilon(
        "OpenRLHF",
        1e-9,
        with_ppo="divides PPO's advantages by their deviation over the batch, at least 1e-4, without adding anything.",
        remark=" With other rewards a group of equal rewards, such as 0.1, can get advantages up to 1 from rounding "
        "alone; use rewards that are multiples of 1/2, 1/4 ...",
    ),
    Rule[OpenRLHFCase](
        "recipe.normalize_advantage",
        lambda c: c.std_kept_out,
        "normalize_advantage is off: OpenRLHF still subtracts the batch mean from PPO's advantages.",
        "framework-differs",
        "info",
    ),
    checks.kl_without_gradient,
    Rule[OpenRLHFCase](
        "recipe.kl_in",
        lambda c: c.has_kl and not c.kl_in_loss and not c.ppo,
        "kl_in = reward: OpenRLHF subtracts the KL per token after the rewards of a group were normalised, so its "
        "weight is in units of advantages, not of rewards.",
        "framework-differs",
        "warning",
    ),
    _token_means,
    checks.low_temperature,
    checks.biased_weights,
    checks.unused_fields,
    lambda c: checks.warmup_from_zero(c.run, c.run.update_steps * c.recipe.updates_per_batch),
    checks.evaluation_top_p,
    _gaps,
    Rule[OpenRLHFCase](
        "recipe.max_prompt_tokens",
        lambda _: True,
        "prompts longer than {recipe.max_prompt_tokens} tokens (recipe.max_prompt_tokens) are cut at the beginning, "
        "with only a warning in the log. Remove such problems first.",
        "framework-differs",
        "info",
    ),
    _paths,
    Rule[OpenRLHFCase](
        "seed",
        lambda c: c.run.seed + c.engines > 2**32,
        f"seed = {{run.seed}}: engine i uses seed + i, which must stay below 2^32 = {2**32} for {{c.engines}} engines.",
    ),
    checks.several_nodes,
    *checks.PROBLEMS,
)
