"""The columns a table of evaluations may have: names, aliases, units, what each accepts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from isocompute_sdk.errors import RecordError, close, did_you_mean

Kind = Literal["text", "integer", "number"]


@dataclass(frozen=True)
class Column:
    """One column of a `RunSet`."""

    name: str
    """Canonical name, as `RunSet.to_polars` shows it."""
    kind: Kind
    """`text`, `integer` (64 bit) or `number` (float64, finite)."""
    meaning: str
    """What it holds, with its unit."""
    aliases: tuple[str, ...] = ()
    """Other names accepted on the way in."""
    minimum: int | None = None
    """Smallest accepted number; None: any."""
    per_run: bool = False
    """True if a run has one value in all its rows."""
    context: bool = False
    """True if runs with different values are pooled only on request."""
    lenient: bool = False
    """True if an unknown value agrees with any other: tables of earlier releases lack the column."""

    @property
    def accepted(self) -> str:
        """What a cell may hold, in words."""
        if self.kind == "text":
            return "text"
        noun = "whole numbers" if self.kind == "integer" else "finite numbers"
        return noun if self.minimum is None else f"{noun} >= {self.minimum}"


def _context(
    name: str, kind: Kind, meaning: str, minimum: int | None = None, *aliases: str, lenient: bool = False
) -> Column:
    return Column(name, kind, meaning, aliases, minimum, per_run=True, context=True, lenient=lenient)


_RUN = ("run", "run_name", "experiment", "experiment_name", "exp_name", "trial_name")
_GROUP_SIZE = (
    "n",
    "num_generations",
    "num_generations_per_prompt",
    "n_samples_per_prompt",
    "rollout.n_samples_per_prompt",
    "generator.n_samples_per_prompt",
    "generations_per_prompt",
    "samples_per_prompt",
    "completions_per_prompt",
    "responses_per_prompt",
    "rollouts_per_prompt",
    "rollouts_per_problem",
    "rollouts_per_example",
    "rollout.n",
    "rollout_n",
    "actor_rollout_ref.rollout.n",
)
_PROBLEMS = (
    "bp",
    "Bp",
    "B_p",
    "prompts_per_step",
    "prompts_per_batch",
    "prompts_per_update",
    "num_prompts_per_step",
    "problems_per_step",
    "problems_per_update",
    "groups_per_batch",
    "rollout_batch_size",
    "rollout.batch_size",
    "train_batch_size",
    "data.train_batch_size",
    "trainer.train_batch_size",
)
_BATCH = ("rollouts_per_step", "completions_per_step", "samples_per_step", "generation_batch_size")
_STEP = (
    "Step",
    "_step",
    "update_steps",
    "update_step",
    "M",
    "global_step",
    "train/global_step",
    "trainer/global_step",
    "training/global_step",
    "training_step",
    "train_step",
)

COLUMNS: tuple[Column, ...] = (
    Column("run_id", "text", "name of the training run", _RUN),
    Column("group_size", "integer", "rollouts per problem in one update, n", _GROUP_SIZE, 1, per_run=True),
    Column("problems_per_batch", "integer", "problems per update, B_p", _PROBLEMS, 1, per_run=True),
    Column("seed", "integer", "seed of the run", per_run=True),
    Column("step", "number", "update steps done, 0 = base model", _STEP, 0),
    Column(
        "rollouts",
        "number",
        "rollouts sampled so far, C = n B_p M",
        ("C", "compute", "total_rollouts", "cumulative_rollouts"),
        0,
    ),
    Column("metric", "text", "name of the metric, kept as written"),
    Column("eval_set", "text", "name of the set the metric was measured on", ("set", "split")),
    Column("value", "number", "the measured value", ("reward",)),
    Column("tokens", "number", "tokens sampled so far", minimum=0),
    Column(
        "rollouts_spent", "number", "rollouts paid for so far, those of attempts that were given up included", minimum=0
    ),
    Column("gpu_seconds", "number", "GPU time used so far, seconds times GPUs", minimum=0),
    Column("framework", "text", "what trained the run: openrlhf, verl, trl, torch or another", per_run=True),
    _context("model", "text", "base model", None, "model_name", "model_name_or_path", "base_model"),
    _context("train_data", "text", "training problems", None, "dataset_name", "dataset", "data_set"),
    _context("algorithm", "text", "grpo, ppo, cispo or another", None, "algo"),
    _context("learning_rate", "number", "peak learning rate", 0, "lr"),
    _context("kl_coef", "number", "coefficient of the KL term", None, "kl_coeff", "kl_loss_coef"),
    _context("entropy_coef", "number", "coefficient of the entropy bonus"),
    _context("updates_per_batch", "integer", "gradient updates per rollout batch", 1),
    _context("max_tokens", "integer", "most tokens in one response", 1, "max_completion_length", "max_response_length"),
    _context("eval_temperature", "number", "sampling temperature of the evaluation", 0),
    _context("eval_samples", "integer", "samples per problem in the evaluation", 1),
    _context("n_problems", "integer", "distinct training problems, D", 1, "num_problems"),
    _context("temperature", "number", "sampling temperature in training", 0, lenient=True),
    _context("top_p", "number", "nucleus sampling mass in training, 1 = everything", 0, lenient=True),
    _context("max_prompt_tokens", "integer", "longest prompt, tokens", 1, lenient=True),
    _context("filter", "text", "groups left out: none, zero-variance, dynamic (others sampled)", lenient=True),
    _context("off_policy", "text", "rollouts of older weights: none, async, or how stale they may be", lenient=True),
)
"""Every column, in the order of `RunSet.to_polars`."""

BATCH = Column("rollouts_per_batch", "integer", "rollouts per update, n B_p; in place of B_p", _BATCH, 1)
"""A column that is accepted on the way in, and gives `problems_per_batch`."""
PLACEHOLDERS = {"group_size": "N", "problems_per_batch": "BP", BATCH.name: "R", "updates_per_batch": "U"}
"""What stands for a number that a person has to fill in, in `--set group_size=N`."""


def batch_asked(sizes: Iterable[object]) -> str:
    """What to ask for where B_p is unknown: what all runs may share.

    Several n may have had one n B_p, as trainers that count completions keep it; one B_p for all would be wrong then.

    Args:
        sizes: every n.
    """
    return BATCH.name if len({str(size) for size in sizes}) > 1 else "problems_per_batch"


COUNTED_DIFFERENTLY = "train_batch_size"
"""Counts problems in veRL and SkyRL, rollouts in TRL and OpenRLHF: taken for problems, with a warning beside
`OTHER_COUNTS`."""
OTHER_COUNTS = ("num_generations", "n_samples_per_prompt", "rollout.n_samples_per_prompt")
"""Names of n in frameworks where `COUNTED_DIFFERENTLY` counts rollouts."""
WANDB_STEPS = ("_step", "Step")
"""W&B's own step, which counts calls of its `log`: the trainer's counts if both are there."""
_WEAK = {"name": "run_id", "samples": "group_size", "eval_step": "step"}
"""Names that stand for a column where no other name in the table does."""

_INPUT = (*COLUMNS, BATCH)
BY_NAME: dict[str, Column] = {column.name: column for column in _INPUT}
CONTEXT_FIELDS: tuple[str, ...] = tuple(column.name for column in COLUMNS if column.context)
"""Fields that decide which runs may be pooled; unknown is None, and None pools with None."""
LENIENT: tuple[str, ...] = tuple(column.name for column in COLUMNS if column.lenient)
"""Context fields in which None pools with every value."""
PER_RUN: tuple[str, ...] = tuple(column.name for column in COLUMNS if column.per_run)
SAYS_ITSELF = re.compile(r"(avg|best|worst|pass|mean)@\d+|train_reward")
"""Names of metrics that say themselves what they hold."""
DEFAULT_EVAL_SET = "validation"
TRAIN_SETS = ("train", "train_probe")
"""Evaluation sets of training problems: what each update measured, and a fixed probe. Never chosen unasked where the
metric was also measured on held-out problems."""

_CANONICAL: dict[str, str] = {spelling: column.name for column in _INPUT for spelling in (column.name, *column.aliases)}


def folded(name: str) -> str:
    """The name in small letters with `_` for other separators, without what W&B and Hydra put before a setting."""
    plain = re.sub(r"^(config|cfg|args|params|hparams|hyperparameters)[./]", "", name.strip().lower())
    return re.sub(r"[\s-]+", "_", plain)


# What is spent or measured is not told from its total by another spelling: `Tokens` may be those of one update.
_FOLDED: dict[str, str] = {
    plain: column.name
    for column in _INPUT
    if column.per_run or column.name in ("run_id", "step", "rollouts", "value", BATCH.name)
    for spelling in (column.name, *column.aliases)
    if len(plain := folded(spelling)) > 2 or plain == "bp"
}


def canonical(name: str) -> str | None:
    """Canonical name of a known column or alias, in any case and with any separator; None for any other name."""
    return _CANONICAL.get(name) or _FOLDED.get(folded(name))


def fields(names: Iterable[str]) -> dict[str, str | None]:
    """Name -> canonical name of its column, None for any other name.

    Of several names of one column, a weak one gives way and has None.
    """
    found = {name: canonical(name) for name in names}
    strong = {column for name, column in found.items() if name not in WANDB_STEPS}
    weak = {name: column for name in found if (column := _WEAK.get(folded(name))) not in {None, *found.values()}}
    return {name: None if name in WANDB_STEPS and column in strong else column for name, column in found.items()} | weak


def known_names() -> str:
    """Every accepted column with a few of its aliases, for error messages."""
    return ", ".join(" / ".join((column.name, *column.aliases[:3])) for column in _INPUT)


def _squeezed(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower()).removesuffix("s")


def misspelt(name: str) -> str | None:
    """The known column that `name` is most likely a slip of; None for a name that stands on its own.

    Strict on purpose: a numeric column of another name is a metric, so only near-identical names count.
    """
    if "@" in name:
        return None
    squeezed = _SQUEEZED.get(_squeezed(name))
    if squeezed is not None:
        return squeezed
    # Names of other lengths cannot be that near; tables may have thousands of columns.
    near = (spelling for spelling in _CANONICAL if len(spelling) >= 4 and 0.8 < len(name) / len(spelling) < 1.25)
    found = close(name, near, cutoff=0.9)
    return found if found is not None and alike(name, found) else None


def alike(name: str, other: str) -> bool:
    """Whether two names have as many words, each like its fellow: `mean_length` is no slip of `max_length`."""
    mine, theirs = (re.split(r"[^a-z0-9]+", text.lower()) for text in (name, other))
    return len(mine) == len(theirs) and all(close(a, [b]) is not None for a, b in zip(mine, theirs, strict=True))


_SQUEEZED = {_squeezed(spelling): spelling for spelling in reversed(_CANONICAL)}


def check_fields(fields: Iterable[str], accepted: Sequence[str], what: str) -> None:
    """Raise on any of `fields` that is not in `accepted`.

    Raises:
        RecordError: naming the first unknown field, the accepted ones and the nearest match.
    """
    for field in fields:
        if field not in accepted:
            raise RecordError(
                f"{what}: received {field!r}; accepted: {', '.join(accepted)}",
                f"{did_you_mean(str(field), accepted)}Use one of the accepted names.",
            )
