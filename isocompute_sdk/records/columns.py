"""The columns a table of evaluations may have: names, aliases, units, what each accepts."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from isocompute_sdk.errors import RecordError

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


def _context(name: str, kind: Kind, meaning: str, minimum: int | None = None, *, lenient: bool = False) -> Column:
    return Column(name, kind, meaning, minimum=minimum, per_run=True, context=True, lenient=lenient)


# Frameworks' own names; those that count samples in one framework and prompts in another are left out.
_GROUP_SIZE = (
    "num_generations",
    "n_samples_per_prompt",
    "generations_per_prompt",
    "rollouts_per_prompt",
    "rollouts_per_problem",
    "rollout.n",
    "actor_rollout_ref.rollout.n",
)
_PROBLEMS = ("prompts_per_step", "prompts_per_batch", "problems_per_step", "data.train_batch_size")

COLUMNS: tuple[Column, ...] = (
    Column("run_id", "text", "name of the training run", ("run", "run_name", "experiment", "experiment_name")),
    Column("group_size", "integer", "rollouts per problem in one update, n", ("n", *_GROUP_SIZE), 1, per_run=True),
    Column(
        "problems_per_batch", "integer", "problems per update, B_p", ("bp", "Bp", "B_p", *_PROBLEMS), 1, per_run=True
    ),
    Column("seed", "integer", "seed of the run", per_run=True),
    Column("step", "number", "update steps done, 0 = base model", ("Step", "_step", "update_steps", "M"), 0),
    Column("rollouts", "number", "rollouts sampled so far, C = n B_p M", ("C", "compute"), 0),
    Column("metric", "text", "name of the metric, kept as written"),
    Column("eval_set", "text", "name of the set the metric was measured on"),
    Column("value", "number", "the measured value", ("reward",)),
    Column("tokens", "number", "tokens sampled so far", minimum=0),
    Column(
        "rollouts_spent", "number", "rollouts paid for so far, those of attempts that were given up included", minimum=0
    ),
    Column("gpu_seconds", "number", "GPU time used so far, seconds times GPUs", minimum=0),
    _context("model", "text", "base model"),
    _context("train_data", "text", "training problems"),
    _context("algorithm", "text", "grpo, ppo, cispo or another"),
    _context("learning_rate", "number", "peak learning rate", 0),
    _context("kl_coef", "number", "coefficient of the KL term"),
    _context("entropy_coef", "number", "coefficient of the entropy bonus"),
    _context("updates_per_batch", "integer", "gradient updates per rollout batch", 1),
    _context("max_tokens", "integer", "most tokens in one response", 1),
    _context("eval_temperature", "number", "sampling temperature of the evaluation", 0),
    _context("eval_samples", "integer", "samples per problem in the evaluation", 1),
    _context("n_problems", "integer", "distinct training problems, D", 1),
    _context("temperature", "number", "sampling temperature in training", 0, lenient=True),
    _context("top_p", "number", "nucleus sampling mass in training, 1 = everything", 0, lenient=True),
    _context("max_prompt_tokens", "integer", "longest prompt, tokens", 1, lenient=True),
    _context("filter", "text", "groups left out: none, zero-variance, dynamic (others sampled)", lenient=True),
    _context("off_policy", "text", "rollouts of older weights: none, async, or how stale they may be", lenient=True),
)
"""Every column, in the order of `RunSet.to_polars`."""

BY_NAME: dict[str, Column] = {column.name: column for column in COLUMNS}
CONTEXT_FIELDS: tuple[str, ...] = tuple(column.name for column in COLUMNS if column.context)
"""Fields that decide which runs may be pooled; unknown is None, and None pools with None."""
LENIENT: tuple[str, ...] = tuple(column.name for column in COLUMNS if column.lenient)
"""Context fields in which None pools with every value."""
PER_RUN: tuple[str, ...] = tuple(column.name for column in COLUMNS if column.per_run)
DEFAULT_EVAL_SET = "validation"
TRAIN_SETS = ("train", "train_probe")
"""Evaluation sets of training problems: what each update measured, and a fixed probe. Never chosen unasked where the
metric was also measured on held-out problems."""

_CANONICAL: dict[str, str] = {
    spelling: column.name for column in COLUMNS for spelling in (column.name, *column.aliases)
}


def canonical(name: str) -> str | None:
    """Canonical name of a known column or alias; None for any other name."""
    return _CANONICAL.get(name)


def known_names() -> str:
    """Every accepted column with its aliases, for error messages."""
    return ", ".join(" / ".join((column.name, *column.aliases)) for column in COLUMNS)


def close(name: str, candidates: Iterable[str], *, cutoff: float = 0.6) -> str | None:
    """The candidate most like `name`, ignoring case; None if none is near."""
    folded = {candidate.lower(): candidate for candidate in candidates}
    found = difflib.get_close_matches(name.lower(), list(folded), n=1, cutoff=cutoff)
    return folded[found[0]] if found else None


def did_you_mean(name: str, candidates: Sequence[str]) -> str:
    """A sentence with the nearest candidate, or an empty string."""
    nearest = close(name, candidates)
    return "" if nearest is None else f"Did you mean {nearest!r}? "


def _squeezed(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower()).removesuffix("s")


def misspelt(name: str) -> str | None:
    """The known column that `name` is most likely a slip of; None for a name that stands on its own.

    Strict on purpose: a numeric column of another name is a metric, so only near-identical names count.
    """
    squeezed = _SQUEEZED.get(_squeezed(name))
    if squeezed is not None:
        return squeezed
    # Names of other lengths cannot be that near; tables may have thousands of columns.
    near = (spelling for spelling in _CANONICAL if len(spelling) >= 4 and 0.8 < len(name) / len(spelling) < 1.25)
    return close(name, near, cutoff=0.9)


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
