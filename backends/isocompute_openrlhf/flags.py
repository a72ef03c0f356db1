"""All command-line flags of OpenRLHF 0.11.2 that a run needs; no other module writes flags.

Names are written in full: the parser accepts any unambiguous prefix, so a misspelt flag can set another one. Values
fixed by the recipe are written even if they equal OpenRLHF's defaults, because those differ between releases (betas
0.9 / 0.95, KL 0.01 in the reward, importance weights masked outside [0.5, 5], rewards clipped at 10).

Facts about flags come from the 0.11.2 wheel: cli/train_ppo_ray.py for the parser and its checks,
trainer/ppo_trainer.py for steps, models/loss.py for the losses.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from isocompute_openrlhf.options import OpenRLHFOptions
from isocompute_openrlhf.payload.supervise import log_spaced
from isocompute_openrlhf.placement import Placement, fixed_batches, packs
from isocompute_sdk.specs import Recipe, RunSpec
from isocompute_sdk.training.payload.run_files import ROW_FILES
from isocompute_sdk.training.request_file import checkpoint_interval

VERSION = "0.11.2"
"""The only OpenRLHF release these flags are for."""
MODULE = "openrlhf.cli.train_ppo_ray"
"""Program that takes them."""
EARLIER_RELEASES = (
    ("0.10.2", "flat flags (--train_batch_size)"),
    ("0.11.2", "earlier dotted flags (--algo.advantage.is_correction_enable)"),
)
"""(version, flags of the releases before it), ascending."""
MISREAD_IN_PATHS = (",", "@", "*", "?", "[", "::", "://")
"""OpenRLHF splits data paths at commas and "@"; Hugging Face datasets reads the other marks as a glob or a URL."""
EVAL_SET = "validation"
"""Name of the validation set in OpenRLHF's metrics: avg@k is `eval/eval_validation_pass1`."""

OF_PLAN = frozenset(
    {
        "rollout.batch_size",
        "rollout.n_samples_per_prompt",
        "train.batch_size",
        "train.max_epochs",
        "train.num_episodes",
        "data.max_samples",
        "actor.adam.lr",
        "actor.lr_scheduler",
        "actor.lr_warmup_ratio",
        "eval.steps",
        "eval.temperature",
        "eval.n_samples_per_prompt",
    }
)
"""Flags that decide n, B_p, M, the learning rate, its schedule and the evaluation."""
FILE_FLAGS = frozenset({"data.input_key", "data.label_key", "data.apply_chat_template", "data.prompt_split"})
"""Flags about the rows that our script writes."""
MAX_ROWS = 10**8
"""OpenRLHF's default limit of rows, which also applies to the validation set."""
REWARD_RANGE = ("-1000", "1000")
"""Clip range that never binds. It acts on normalised advantages: a lone success among n reaches
(n - 1) / sqrt(n), more than the default of 10 from n = 102 on."""


@dataclass(frozen=True)
class Flag:
    """One flag and what follows it."""

    name: str
    """Full name, without the leading dashes."""
    values: tuple[str, ...] = ()
    """Its values; none for a switch."""
    base: Literal["", "run", "model"] = ""
    """`run`: the value is a path below the run folder; `model`: the value is the model, found at run time."""

    @property
    def joined(self) -> bool:
        """Whether name and value must be one argument: a value with a leading dash would be read as a flag."""
        return len(self.values) == 1 and self.values[0].startswith("-") and self.base != "run"

    def arguments(self, run_folder: str, model: str) -> list[str]:
        """The arguments that OpenRLHF receives."""
        values = {"": list(self.values), "run": [f"{run_folder}/{v}" for v in self.values], "model": [model]}[self.base]
        return [f"--{self.name}={values[0]}"] if self.joined else [f"--{self.name}", *values]


@dataclass(frozen=True)
class Section:
    """Flags under one heading of the script."""

    title: str
    flags: tuple[Flag, ...]


def sections(run: RunSpec, options: OpenRLHFOptions, placement: Placement) -> tuple[Section, ...]:
    """All flags of one run, in the order of the script."""
    named = [
        ("model and data", _data(run, options)),
        ("rollouts", _rollouts(run)),
        ("update", _update(run)),
        ("advantages and loss", _loss(run.recipe)),
        ("placement and memory", _placement(run, options, placement)),
        ("evaluation", _evaluation(run)),
        ("checkpoints and logs", _files(run, options)),
    ]
    if run.recipe.algorithm == "ppo":
        named.insert(4, ("value model", _critic(run, placement)))
    passed = options.passed
    kept = [(title, [flag for flag in flags if flag.name not in passed]) for title, flags in named]
    kept.append(("handed through", [_passed(name, value) for name, value in passed.items() if value is not False]))
    return tuple(Section(title, tuple(flags)) for title, flags in kept if flags)


def length_flags(run: RunSpec) -> list[Flag]:
    """M in a command of one's own: rows times episodes over B_p. Our script writes exactly B_p * M rows instead.

    With fewer problems than that, whole batches of them are repeated; M is then at least what was asked for.
    """
    batch, wanted = run.problems_per_batch, run.problems_per_batch * run.update_steps
    known = run.data.n_problems
    rows = wanted if known is None else min(wanted, max(batch, known // batch * batch))
    return [_flag("data.max_samples", rows), _flag("train.num_episodes", -(-wanted // rows))]


def arguments(parts: Iterable[Section], run_folder: str, model: str) -> list[str]:
    """The argument list that OpenRLHF receives from a script started with these sections."""
    return [a for section in parts for flag in section.flags for a in flag.arguments(run_folder, model)]


def warmup_ratio(run: RunSpec) -> float:
    """Ratio that OpenRLHF turns into exactly `warmup_steps`: it takes ceil(ratio * steps).

    warmup_steps / steps itself rounds up to one step more for some numbers of steps, so the ratio aims half a
    step lower.
    """
    steps = run.recipe.warmup_steps
    return max(0.0, (steps - 0.5) / (run.update_steps * run.recipe.updates_per_batch))


def most_checkpoints(run: RunSpec, options: OpenRLHFOptions) -> int:
    """Limit at which OpenRLHF removes the worst checkpoint; supervise.py removes others before it is reached."""
    spaced = log_spaced(checkpoint_interval(run, options.save_every_steps), run.update_steps)
    return len(spaced) + options.keep_checkpoints + 2


def longest_sample(recipe: Recipe) -> int:
    """Tokens of prompt and response together."""
    return recipe.max_prompt_tokens + recipe.max_response_tokens


def _flag(name: str, *values: float | str) -> Flag:
    return Flag(name, tuple(v if isinstance(v, str) else repr(v) for v in values))


def _passed(name: str, value: str | int | float | bool) -> Flag:
    """A flag that the user named; true is a switch, and false leaves the switch out."""
    return Flag(name) if value is True else _flag(name, value)


def _switches(**on: bool) -> list[Flag]:
    """Flags without a value; the first underscore-pair of a keyword stands for the dot."""
    return [Flag(name.replace("__", ".")) for name, value in on.items() if value]


def _data(run: RunSpec, options: OpenRLHFOptions) -> list[Flag]:
    rows = run.problems_per_batch * run.update_steps
    return [
        Flag("actor.model_name_or_path", (run.model,), base="model"),
        Flag("data.prompt_dataset", ("train_rows.jsonl",), base="run"),
        _flag("data.prompt_split", "train"),
        _flag("data.input_key", "input"),
        _flag("data.label_key", "label"),
        *_switches(data__apply_chat_template=options.chat_template),
        _flag("data.max_samples", max(MAX_ROWS, rows)),
        _flag("data.max_len", longest_sample(run.recipe)),
        Flag("reward.remote_url", ("reward_wrapper.py",), base="run"),
    ]


def _rollouts(run: RunSpec) -> list[Flag]:
    return [
        _flag("rollout.batch_size", run.problems_per_batch),
        _flag("rollout.n_samples_per_prompt", run.group_size),
        _flag("rollout.temperature", run.recipe.temperature),
        _flag("rollout.top_p", run.recipe.top_p),
        _flag("rollout.max_new_tokens", run.recipe.max_response_tokens),
    ]


def _update(run: RunSpec) -> list[Flag]:
    recipe = run.recipe
    return [
        _flag("train.batch_size", run.rollouts_per_batch // recipe.updates_per_batch),
        _flag("train.max_epochs", 1),
        _flag("train.num_episodes", 1),
        _flag("train.seed", run.seed),
        *_optimizer("actor", run, run.learning_rate),
        _flag("actor.eps_clip", recipe.ratio_clip),
        _flag("actor.policy_loss_type", "ppo"),
        _flag("actor.loss_agg_mode", recipe.loss_aggregation),
        _flag("actor.entropy_coef", recipe.entropy_coef),
    ]


def _optimizer(entity: str, run: RunSpec, learning_rate: float) -> list[Flag]:
    recipe = run.recipe
    return [
        _flag(f"{entity}.optim", "adam"),
        _flag(f"{entity}.adam.lr", learning_rate),
        _flag(f"{entity}.adam.betas", *recipe.adam_betas),
        _flag(f"{entity}.adam.weight_decay", recipe.weight_decay),
        _flag(f"{entity}.max_norm", recipe.gradient_clip),
        _flag(f"{entity}.lr_scheduler", "constant_with_warmup"),
        _flag(f"{entity}.lr_warmup_ratio", warmup_ratio(run)),
    ]


def _loss(recipe: Recipe) -> list[Flag]:
    if recipe.algorithm == "ppo":
        estimator = [
            _flag("algo.advantage.estimator", "gae"),
            *_switches(algo__advantage__no_std_norm=not recipe.normalize_advantage),
        ]
    else:
        estimator = [_flag("algo.advantage.estimator", "group_norm" if recipe.normalize_advantage else "dr_grpo")]
    return [
        *estimator,
        Flag("reward.clip_range", REWARD_RANGE),
        *_importance_sampling(recipe),
        *_kl(recipe),
    ]


def _kl(recipe: Recipe) -> list[Flag]:
    if recipe.kl_coef == 0:
        return [_flag("algo.kl.init_coef", 0)]
    return [
        _flag("algo.kl.init_coef", recipe.kl_coef),
        _flag("algo.kl.estimator", recipe.kl_estimator),
        *_switches(algo__kl__use_loss=recipe.kl_in == "loss"),
    ]


def _importance_sampling(recipe: Recipe) -> list[Flag]:
    if recipe.importance_sampling == "none":
        return [_flag("algo.advantage.is_correction_level", "off")]
    return [
        _flag("algo.advantage.is_correction_level", "token"),
        _flag("algo.advantage.is_correction_mode", "clip"),
        _flag("algo.advantage.is_correction_gating", "ratio"),
        # One value is an upper bound only; two would clamp from below as well.
        _flag("algo.advantage.is_correction_threshold", recipe.tis_cap),
    ]


def _critic(run: RunSpec, placement: Placement) -> list[Flag]:
    recipe = run.recipe
    return [
        Flag("critic.model_name_or_path", (run.model,), base="model"),
        _flag("critic.num_nodes", placement.nodes),
        _flag("critic.num_gpus_per_node", placement.gpus_per_node),
        *_optimizer("critic", run, recipe.value_learning_rate),
        _flag("critic.value_clip", recipe.value_clip),
        _flag("critic.freezing_steps", -1),
        _flag("algo.advantage.lambd", recipe.gae_lambda),
        _flag("algo.advantage.gamma", recipe.gae_gamma),
    ]


def _placement(run: RunSpec, options: OpenRLHFOptions, placement: Placement) -> list[Flag]:
    return [
        *_switches(train__colocate_all=True, vllm__enable_sleep=True, ds__enable_sleep=True),
        _flag("actor.num_nodes", placement.nodes),
        _flag("actor.num_gpus_per_node", placement.gpus_per_node),
        _flag("ref.num_nodes", placement.nodes),
        _flag("ref.num_gpus_per_node", placement.gpus_per_node),
        _flag("vllm.num_engines", placement.engines),
        _flag("vllm.tensor_parallel_size", placement.tensor_parallel),
        _flag("vllm.gpu_memory_utilization", options.gpu_memory_utilization),
        _flag("ds.zero_stage", options.zero_stage),
        *_switches(
            vllm__enforce_eager=options.enforce_eager,
            vllm__enable_prefix_caching=options.prefix_caching,
            ds__adam_offload=options.adam_offload,
            actor__gradient_checkpointing_enable=options.gradient_checkpointing,
        ),
        *_micro_batches(run, options, placement),
    ]


def _micro_batches(run: RunSpec, options: OpenRLHFOptions, placement: Placement) -> list[Flag]:
    if not packs(run, options):
        train, rollout = fixed_batches(run, options, placement.gpus)
        return [
            *_switches(ds__packing_samples=True),
            _flag("train.micro_batch_size", train),
            _flag("rollout.micro_batch_size", rollout),
        ]
    tokens = options.max_tokens_per_gpu or max(16384, longest_sample(run.recipe))
    return [
        *_switches(train__dynamic_batch_enable=True, ds__packing_samples=True),
        _flag("train.max_tokens_per_gpu", tokens),
        _flag("rollout.max_tokens_per_gpu", tokens),
        _flag("train.micro_batch_size", 1),
        _flag("rollout.micro_batch_size", 1),
    ]


def _evaluation(run: RunSpec) -> list[Flag]:
    return [
        Flag("eval.dataset", (ROW_FILES["evaluation"],), base="run"),
        _flag("eval.split", "train"),
        _flag("eval.steps", run.evaluation.every_steps),
        _flag("eval.temperature", run.evaluation.temperature),
        _flag("eval.n_samples_per_prompt", run.evaluation.samples),
    ]


def _files(run: RunSpec, options: OpenRLHFOptions) -> list[Flag]:
    return [
        Flag("ckpt.path", ("checkpoints",), base="run"),
        Flag("ckpt.output_dir", ("model",), base="run"),
        _flag("ckpt.save_steps", checkpoint_interval(run, options.save_every_steps)),
        _flag("ckpt.max_num", most_checkpoints(run, options)),
        _flag("ckpt.best_metric_key", f"eval_{EVAL_SET}_pass1" if options.save_best else "none"),
        *_switches(ckpt__load_enable=True, ckpt__save_hf=options.save_hf),
        Flag("logger.tensorboard_dir", ("tensorboard",), base="run"),
        _flag("logger.wandb.run_name", run.run_id),
        # A key turns it on; wandb itself takes the login of the environment first.
        *([_flag("logger.wandb.key", "from-the-environment")] if options.wandb else []),
        _flag("logger.logging_steps", 1),
    ]
