"""The options of everything that plans, as one dataclass that commands take as one parameter."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from isocompute_sdk.cli import options as opt
from isocompute_sdk.cli.display import print_plan
from isocompute_sdk.cli.output import emit_json, say

if TYPE_CHECKING:
    from isocompute_sdk.fitting.fits import Fits, FitsSet
    from isocompute_sdk.planner import Plan

_FIX, _HARDWARE, _UNITS = "What to fix", "Hardware and recipe", "Budgets that are not rollouts"


@dataclass(frozen=True, kw_only=True)
class Planning:
    """Budget, constraints and output of a plan, as typed on the command line."""

    budget: Annotated[
        str, typer.Option(help="What may be spent: 3M (rollouts), '200 gpu_hours', '2B tokens', '500 usd'.")
    ]
    model: Annotated[str | None, typer.Option(help="Model to be trained: hub name or local folder.")] = None
    allow_other_model: Annotated[
        bool, typer.Option("--allow-other-model", help="Use a published law although the model is another one.")
    ] = False
    problems_per_batch: Annotated[int | None, typer.Option(help="Fix B_p.", min=1, rich_help_panel=_FIX)] = None
    update_steps: Annotated[int | None, typer.Option(help="Fix M.", min=1, rich_help_panel=_FIX)] = None
    rollouts_per_batch: Annotated[int | None, typer.Option(help="Fix B = n * B_p.", min=1, rich_help_panel=_FIX)] = None
    mode: Annotated[str, typer.Option(help="expected or conservative.", rich_help_panel=_FIX)] = "expected"
    beyond_grid: Annotated[
        str, typer.Option(help="Octaves above the largest n that was run, or auto.", rich_help_panel=_FIX)
    ] = "auto"
    n_problems: Annotated[
        int | None, typer.Option(help="Distinct training problems D.", min=1, rich_help_panel=_FIX)
    ] = None
    min_update_steps: Annotated[
        int | None, typer.Option(help="Fewest updates; twice the warm-up by default.", min=1, rich_help_panel=_FIX)
    ] = None
    spend: Annotated[str, typer.Option(help="worthwhile or all.", rich_help_panel=_FIX)] = "worthwhile"
    any_group_size: Annotated[
        bool, typer.Option("--any-group-size", help="Allow n that is not a power of two.", rich_help_panel=_FIX)
    ] = False
    max_rollouts_per_batch: Annotated[
        str | None, typer.Option(help="Largest batch B_max, e.g. 16k.", rich_help_panel=_HARDWARE)
    ] = None
    gpus: Annotated[int, typer.Option(help="GPUs; batches are a multiple.", min=1, rich_help_panel=_HARDWARE)] = 1
    recipe: Annotated[
        str | None, typer.Option(help="Preset easy, hard or mixture, or a YAML file.", rich_help_panel=_HARDWARE)
    ] = None
    step_overhead_seconds: Annotated[
        float | None, typer.Option(help="Seconds per step besides sampling.", rich_help_panel=_UNITS)
    ] = None
    rollouts_per_second: Annotated[float | None, typer.Option(help="Rollouts per second.", rich_help_panel=_UNITS)] = (
        None
    )
    tokens_per_rollout: Annotated[float | None, typer.Option(help="Mean sampled tokens.", rich_help_panel=_UNITS)] = (
        None
    )
    usd_per_gpu_hour: Annotated[float | None, typer.Option(help="Price.", rich_help_panel=_UNITS)] = None
    deadline_hours: Annotated[float | None, typer.Option(help="Wall-clock limit.", rich_help_panel=_UNITS)] = None
    output: opt.Save = None
    plot: opt.Plot = None
    json: opt.Json = False

    def allocate(self, fits: Fits | FitsSet, *, allow_other_model: bool | None = None) -> Plan:
        """Plan the budget from fits."""
        from isocompute_sdk.planner import Planner
        from isocompute_sdk.specs import Budget, Hardware, Throughput

        names = ("step_overhead_seconds", "rollouts_per_second", "tokens_per_rollout", "usd_per_gpu_hour")
        rates = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        budget = Budget.parse(self.budget)
        if self.deadline_hours is not None:
            budget = budget.replace(deadline_hours=self.deadline_hours)
        planner = Planner(
            fits,
            Hardware.model_validate({"max_rollouts_per_batch": self.max_rollouts_per_batch, "gpus": self.gpus}),
            _recipe(self.recipe),
            Throughput.model_validate({**rates, "gpus": self.gpus}) if rates else None,
            model=self.model,
            allow_other_model=self.allow_other_model if allow_other_model is None else allow_other_model,
        )
        choices: dict[str, Any] = {"mode": self.mode, "spend": self.spend}
        return planner.allocate(
            budget,
            problems_per_batch=self.problems_per_batch,
            update_steps=self.update_steps,
            rollouts_per_batch=self.rollouts_per_batch,
            beyond_grid=opt.scalar(self.beyond_grid),  # pyright: ignore[reportArgumentType]  # checked by allocate
            n_problems=self.n_problems,
            min_update_steps=self.min_update_steps,
            powers_of_two=not self.any_group_size,
            **choices,
        )

    def show(self, plan: Plan) -> None:
        """Print the plan, save it and draw it where asked."""
        if self.output is not None:
            plan.save(self.output)
        pictures = opt.save_pictures(plan, self.plot) if self.plot is not None else []
        if self.json:
            emit_json(plan.to_dict(with_fits=False))
            return
        print_plan(plan)
        for path in [self.output, *pictures]:
            if path is not None:
                say(f"wrote {path}")
        if self.output is not None:
            say(f"next: isocompute launch {self.output} --dry-run")


def with_planning(command: Callable[..., None]) -> Callable[..., None]:
    """Replace the command's parameter `planning` by one option per field of `Planning`."""
    hints = get_type_hints(Planning, include_extras=True)
    own = [p for p in inspect.signature(command, eval_str=True).parameters.values() if p.name != "planning"]
    options = [
        inspect.Parameter(
            f.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if f.name == "budget" else f.default,
            annotation=hints[f.name],
        )
        for f in fields(Planning)
    ]

    def flat(**values: Any) -> None:
        planning = Planning(**{f.name: values.pop(f.name) for f in fields(Planning)})
        command(**values, planning=planning)

    parameters = [*(p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own), *options]
    flat.__signature__ = inspect.Signature(parameters)  # pyright: ignore[reportFunctionMemberAccess]
    flat.__annotations__ = {p.name: p.annotation for p in parameters}
    flat.__doc__, flat.__name__ = command.__doc__, command.__name__
    return flat


def _recipe(text: str | None) -> Any:
    from isocompute_sdk.specs import Recipe, load_spec

    if text is None:
        return None
    return load_spec(Path(text), Recipe) if text.endswith((".yaml", ".yml")) else Recipe.preset(text)  # pyright: ignore[reportArgumentType]
