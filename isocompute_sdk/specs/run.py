"""`RunSpec`: one training run, with all values that a backend needs, its `Hardware` among them."""

from __future__ import annotations

import math
import re
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BeforeValidator, Field, GetCoreSchemaHandler, WithJsonSchema, model_validator
from pydantic_core import CoreSchema, core_schema

from isocompute_sdk.specs.base import ModelName, Spec, Text, in_unit
from isocompute_sdk.specs.recipe import Recipe
from isocompute_sdk.specs.sweep import GroupSize, Seed, Sized
from isocompute_sdk.specs.syntax.complaints import problem
from isocompute_sdk.specs.syntax.quantities import Count, Levels, Number, finite_scalar

_OPTION_NAME = re.compile(r"\+{0,2}[A-Za-z][A-Za-z0-9._-]{0,127}")
_SAFE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


def _safe(name: str) -> str:
    if not _SAFE_NAME.fullmatch(name):
        raise problem(accepted="1 to 128 letters, digits, '.', '_' and '-', the first a letter or a digit")
    return name


FolderName = Annotated[str, AfterValidator(_safe)]
"""A name that is safe as one folder name on every file system, and on a command line."""


def _option_name(name: str) -> str:
    if not _OPTION_NAME.fullmatch(name):
        raise problem(accepted="option names of 1 to 128 letters, digits, '.', '_' and '-', the first a letter or '+'")
    return name


OptionName = Annotated[str, AfterValidator(_option_name)]
"""Name of an option, as the backend documents it."""

Option = Annotated[
    str | int | float | bool,
    BeforeValidator(finite_scalar),
    WithJsonSchema({"type": ["string", "number", "boolean"]}),
]
"""One option for a backend: text, a finite number, true or false."""


class _OneOrSeveral:
    """Read like `Levels`, but keep one number as a plain int."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        levels = handler.generate_schema(Levels)
        plain = core_schema.simple_ser_schema("any")
        return core_schema.no_info_after_validator_function(_unwrap, levels, serialization=plain)


def _unwrap(counts: tuple[int, ...]) -> int | tuple[int, ...]:
    return counts[0] if len(counts) == 1 else counts


class Hardware(Spec):
    """Limits on the rollout batch B = group_size * problems_per_batch, and the GPUs that a run may have."""

    max_rollouts_per_batch: Annotated[Count | None, in_unit("rollouts")] = None
    """Largest rollout batch, B_max, in rollouts. None: not limited."""
    gpus: Annotated[int | tuple[int, ...], _OneOrSeveral(), in_unit("GPUs")] = 1
    """GPUs that train one run; several numbers if the run must fit several machine sizes. A plan in time chooses one of
    them if the throughput has `gpu_exponent`."""
    divisible_by: Annotated[Count | None, in_unit("rollouts")] = None
    """Every rollout batch must be a multiple of this. None: of every number in `gpus`."""

    @property
    def gpu_counts(self) -> tuple[int, ...]:
        """`gpus` as a tuple, also if it is one number."""
        return (self.gpus,) if isinstance(self.gpus, int) else self.gpus

    @property
    def divisor(self) -> int:
        """The number of which every rollout batch must be a multiple (1: any batch will do)."""
        return self.divisible_by if self.divisible_by is not None else math.lcm(*self.gpu_counts)

    def refusal(self, rollouts_per_batch: int) -> str | None:
        """Why this rollout batch cannot run here, with the arithmetic; None if it can."""
        limit, divisor = self.max_rollouts_per_batch, self.divisor
        if limit is not None and rollouts_per_batch > limit:
            return f"{rollouts_per_batch} rollouts per batch > max_rollouts_per_batch = {limit}"
        if rollouts_per_batch % divisor:
            rest = rollouts_per_batch % divisor
            return f"{rollouts_per_batch} rollouts per batch is not a multiple of {divisor} (remainder {rest})"
        return None


class Evaluation(Spec):
    """How a run is measured on the held-out validation problems."""

    every_steps: Annotated[Count, in_unit("update steps")] = 10
    """Update steps between two evaluations. Runs that a campaign chooses are evaluated four times at least, and the run
    of its plan as the plan says."""
    count: Annotated[Count | None, in_unit("evaluations")] = None
    """Evaluations of a run after the base model's, evenly spaced in rollouts up to its end: at the same rollouts for
    every group size, within a batch. Replaces every_steps. None: every_steps."""
    samples: Annotated[Count, in_unit("responses per problem")] = 4
    """Responses sampled per problem, k; metrics up to avg@k, best@k and worst@k follow."""
    temperature: Annotated[float, Number(ge=0)] = 0.6
    """Sampling temperature; 0 is greedy decoding."""
    top_p: Annotated[float, Number(gt=0, le=1)] | None = None
    """Nucleus sampling mass; 1 samples from the whole distribution. None: as in training."""
    n_problems: Annotated[Count | None, in_unit("problems")] = 300
    """Validation problems used: the first ones of the validation file. None: all of them."""

    def interval(self, update_steps: int) -> int:
        """Update steps between two evaluations of a run of this length, rounded."""
        return self.every_steps if self.count is None else max(1, round(update_steps / self.count))

    def steps(self, update_steps: int) -> frozenset[int]:
        """Update steps after which a run of this length is evaluated; 0, the base model, and the last one are there."""
        if self.count is None:
            return frozenset({*range(0, update_steps, self.every_steps), update_steps})
        return frozenset(round(i * update_steps / self.count) for i in range(self.count + 1))


class Data(Spec):
    """Where problems and rewards come from. Paths are written into the launch script as they are."""

    train: Text
    """Training problems: path of a JSON-lines or Parquet file, one problem a row."""
    validation: Text
    """Held-out problems: path of a file of the same form."""
    reward: Text
    """Reward function: path of a Python file in the form that the backend documents."""
    prompt_key: Text | None = None
    """Column that holds the prompt. None: the backend's default."""
    answer_key: Text | None = None
    """Column that holds the reference answer. None: the backend's default."""
    n_problems: Annotated[Count | None, in_unit("problems")] = None
    """Number of distinct training problems, D. None: unknown, and epochs cannot be computed."""


class RunSpec(Sized, Spec):
    """One run: n rollouts for each of B_p problems per batch, for M update steps."""

    run_id: FolderName
    """Name of the run, unique in its study; also the name of its folder."""
    model: ModelName
    """Base model: a model hub's name or a local path."""
    data: Data
    """Problems and reward function."""
    recipe: Recipe
    """Training recipe."""
    group_size: Annotated[GroupSize, in_unit("rollouts per problem")]
    """Rollouts per problem in one batch, n."""
    problems_per_batch: Annotated[Count, in_unit("problems")]
    """Distinct problems per batch, B_p."""
    update_steps: Annotated[Count, in_unit("update steps")]
    """Policy updates, M."""
    seed: Seed = 0
    """Seed of the run."""
    evaluation: Evaluation = Evaluation()
    """How the run is measured."""
    hardware: Hardware = Hardware()
    """Limits on the rollout batch, and GPUs."""
    backend: FolderName = "openrlhf"
    """Name of the training backend."""
    options: dict[OptionName, Option] = Field(default_factory=dict[str, str | int | float | bool])
    """Options of this backend; see `isocompute list backends NAME`."""
    output_dir: Text = "runs"
    """Folder for checkpoints, logs and metrics of this run."""

    @property
    def learning_rate(self) -> float:
        """Learning rate after warm-up, by the recipe's rule for this batch."""
        return self.recipe.learning_rate(self.rollouts_per_batch)

    @property
    def evaluation_top_p(self) -> float:
        """Nucleus sampling mass of evaluations."""
        return self.recipe.top_p if self.evaluation.top_p is None else self.evaluation.top_p

    def context(self) -> dict[str, str | int | float | None]:
        """Columns and context fields that all records of this run share, under the names of `RunSet`."""
        recipe = self.recipe
        filters = (
            recipe.zero_variance_filter_policy,
            recipe.zero_variance_filter_kl,
            recipe.zero_variance_filter_entropy,
        )
        return {
            "group_size": self.group_size,
            "problems_per_batch": self.problems_per_batch,
            "seed": self.seed,
            "framework": self.backend,
            "gpus": max(self.hardware.gpu_counts),
            "model": self.model,
            "train_data": self.data.train,
            "algorithm": recipe.algorithm,
            "learning_rate": self.learning_rate,
            "kl_coef": recipe.kl_coef,
            "entropy_coef": recipe.entropy_coef,
            "updates_per_batch": recipe.updates_per_batch,
            "max_tokens": recipe.max_response_tokens,
            "eval_temperature": self.evaluation.temperature,
            "eval_samples": self.evaluation.samples,
            "n_problems": self.data.n_problems,
            "temperature": recipe.temperature,
            "top_p": recipe.top_p,
            "max_prompt_tokens": recipe.max_prompt_tokens,
            "filter": "zero-variance" if any(filters) else "none",
            # Every launch script waits for the update before it samples again.
            "off_policy": "none",
        }

    @model_validator(mode="after")
    def _evaluates(self) -> Self:
        """Write the interval that `evaluation.count` means into every_steps, which backends read."""
        every = self.evaluation.interval(self.update_steps)
        object.__setattr__(self, "evaluation", self.evaluation.replace(every_steps=every))
        return self

    @model_validator(mode="after")
    def _batch_runs(self) -> Self:
        refusal = batch_refusal(self.group_size, self.problems_per_batch, self.hardware, self.recipe)
        if refusal is not None:
            raise problem(
                message=refusal,
                hint="Change group_size or problems_per_batch, or the limits in hardware and recipe.",
            )
        return self


def batch_refusal(group_size: int, problems_per_batch: int, hardware: Hardware, recipe: Recipe) -> str | None:
    """Why this pair cannot run on this hardware with this recipe, with the arithmetic; None if it can."""
    batch, updates = group_size * problems_per_batch, recipe.updates_per_batch
    refusal = hardware.refusal(batch)
    if refusal is None and batch % updates:
        refusal = f"{batch} rollouts per batch cannot be split into updates_per_batch = {updates} parts"
    if refusal is None:
        return None
    return f"group_size = {group_size} with problems_per_batch = {problems_per_batch}: {refusal}"
