"""`Study`: a whole experiment in one file; `Pilot`: runs that are chosen while it goes on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Self, cast

from pydantic import Field, GetJsonSchemaHandler, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from isocompute_sdk.errors import SpecError
from isocompute_sdk.specs.base import Count, Flag, ModelName, Spec, Text, in_unit
from isocompute_sdk.specs.budget import Budget
from isocompute_sdk.specs.executor import AnyExecutor, Supervision
from isocompute_sdk.specs.problem_source import ProblemSource
from isocompute_sdk.specs.recipe import Recipe
from isocompute_sdk.specs.run import Data, Evaluation, FolderName, Hardware, Option, OptionName, RunSpec, batch_refusal
from isocompute_sdk.specs.sweep import Allocation, Seed, Sweep
from isocompute_sdk.specs.syntax.complaints import problem
from isocompute_sdk.specs.syntax.quantities import Number
from isocompute_sdk.specs.throughput import Throughput


class Pilot(Spec):
    """Runs chosen in rounds, from what the runs before have shown; `auto` alone stands for the defaults."""

    stop_early: Flag = True
    """End a run once it can no longer change the plan at the target budget."""
    slots: Annotated[Count | None, in_unit("runs")] = None
    """Runs of a round after the first, whose number is part of its design. None: as many as the executor carries out at
    a time, at most 8."""
    largest_share: Annotated[float, Number(gt=0, lt=1), in_unit("share of the budget")] = 0.35
    """Largest share of the budget that the pilot may cost."""
    seed: Seed = 0
    """Seed of the first runs, and of the random numbers behind the choices."""

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        if value == "auto":
            return {}
        if not isinstance(value, Mapping | Pilot):
            raise problem(accepted=f"auto, or a mapping with {', '.join(cls.model_fields)}")
        return cast("Any", value)

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """`auto`, or a mapping."""
        return {"anyOf": [{"const": "auto"}, handler(schema)]}


class Study(Spec):
    """A model, its problems, a recipe, and the runs to make with them."""

    name: FolderName
    """Name of the study; also the name of its folder below output_dir."""
    model: ModelName
    """Base model: a model hub's name or a local path."""
    data: Data
    """Problems and reward function."""
    problems: ProblemSource | None = None
    """Data set from which `isocompute problems` writes the files of `data`. None: they are yours."""
    recipe: Recipe
    """Training recipe: the name of a preset (easy, hard, mixture), or a mapping with `preset` and changes."""
    sweep: Sweep | None = None
    """Grid of pilot runs. None: no pilot runs."""
    runs: tuple[Allocation, ...] = ()
    """Single pilot runs beside the sweep, as `isocompute next` writes them; one with the n, B_p and seed of a run of
    the sweep replaces its length."""
    pilot: Pilot | None = None
    """`auto`: the budget pays for a pilot whose runs are chosen while it goes on, then for the planned run; `sweep` is
    not used. None: `sweep`, or `auto` in a study with a budget and no sweep."""
    budget: Budget | None = None
    """Budget of the final run, e.g. `3M` rollouts or `200 gpu_hours`. None: decided later."""
    hardware: Hardware = Hardware()
    """Limits on the rollout batch, and GPUs."""
    throughput: Throughput | None = None
    """Speed and price of the machines; needed for a budget that is not in rollouts. None: unknown."""
    evaluation: Evaluation = Evaluation()
    """How runs are measured."""
    backend: FolderName = "openrlhf"
    """Name of the training backend."""
    options: dict[OptionName, Option] = Field(default_factory=dict[str, str | int | float | bool])
    """Options of this backend; see `isocompute list backends NAME`."""
    output_dir: Text = "runs"
    """Folder that receives one folder per study, with one folder per run."""
    executor: AnyExecutor | None = None
    """What starts the runs: local, slurm, ray or another name, alone or with options. None: this machine."""
    supervision: Supervision = Supervision()
    """What happens to runs when the controller is told to leave, when they hang, and when they learn nothing."""

    @property
    def designed(self) -> Pilot | None:
        """The pilot that is chosen while it goes on; None if the study's runs are those of its sweep."""
        if self.pilot is not None:
            return self.pilot
        return Pilot() if not self.has_runs and self.budget is not None else None

    @property
    def has_runs(self) -> bool:
        """Whether the study names pilot runs, in a sweep or one by one."""
        return self.sweep is not None or bool(self.runs)

    def expand(self) -> tuple[RunSpec, ...]:
        """Every run of the sweep and of `runs`, named `n8-bp32-seed0`, or `n8-bp32-lr1e-06-seed0`, and so on.

        Raises:
            SpecError: the study has no sweep.
        """
        if not self.has_runs:
            raise SpecError(
                f"study {self.name!r} has no sweep; accepted: a study with a sweep section",
                "Add sweep: with group_size, problems_per_batch and rollouts, or plan from the budget instead.",
            )
        return tuple(self.run_of(cell, _run_id(cell)) for cell in self._cells())

    def run_of(self, size: Allocation, run_id: str) -> RunSpec:
        """The run of this study with these sizes, seed and learning rate."""
        rate = size.learning_rate_anchor
        return RunSpec(
            run_id=run_id,
            model=self.model,
            data=self.data,
            recipe=self.recipe if rate is None else self.recipe.replace(learning_rate_anchor=rate),
            group_size=size.group_size,
            problems_per_batch=size.problems_per_batch,
            update_steps=size.update_steps,
            seed=size.seed,
            evaluation=self.evaluation,
            hardware=self.hardware,
            backend=self.backend,
            options=self.options,
            output_dir=f"{self.output_dir.rstrip('/')}/{self.name}/{run_id}",
        )

    @model_validator(mode="after")
    def _pilot_has_a_budget(self) -> Self:
        if self.pilot is not None and self.budget is None:
            raise problem(
                message="received pilot without budget; accepted: both, the budget pays for the pilot",
                hint="Add budget: with what pilot and planned run may cost together.",
                field="pilot",
            )
        return self

    def _cells(self) -> tuple[Allocation, ...]:
        cells = (*(self.sweep.expand() if self.sweep is not None else ()), *self.runs)
        return tuple({_run_id(one): one for one in cells}.values())

    @model_validator(mode="after")
    def _every_batch_runs(self) -> Self:
        pairs = [*(self.sweep.pairs if self.sweep is not None else ())]
        pairs += [(one.group_size, one.problems_per_batch) for one in self.runs]
        for n, bp in pairs:
            refusal = batch_refusal(n, bp, self.hardware, self.recipe)
            if refusal is not None:
                raise problem(
                    message=refusal,
                    hint="Set sweep.max_rollouts_per_batch to leave such pairs out, or change hardware or recipe.",
                    field="sweep",
                )
        return self


def _run_id(cell: Allocation) -> str:
    rate = "" if cell.learning_rate_anchor is None else f"-lr{cell.learning_rate_anchor:.10g}"
    return f"n{cell.group_size}-bp{cell.problems_per_batch}{rate}-seed{cell.seed}"
