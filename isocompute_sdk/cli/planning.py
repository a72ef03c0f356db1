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
    from isocompute_sdk.specs import Evaluation, Hardware, Throughput

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
    gpus: Annotated[
        str | None,
        typer.Option(
            help="GPUs; batches are a multiple. Several, as in 8,16,32, to choose from.", rich_help_panel=_HARDWARE
        ),
    ] = None
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
    gpu_exponent: Annotated[
        float | None, typer.Option(help="How speed grows with GPUs; 1 is ideal.", rich_help_panel=_UNITS)
    ] = None
    throughput: Annotated[
        Path | None, typer.Option(help="Speed as `isocompute probe` wrote it (YAML).", rich_help_panel=_UNITS)
    ] = None
    evaluation: Annotated[
        str | None,
        typer.Option(help="Evaluation to pay for: problems x samples, e.g. 300x4.", rich_help_panel=_UNITS),
    ] = None
    evaluation_share: Annotated[
        float, typer.Option(help="Largest share of training that evaluations cost.", rich_help_panel=_UNITS)
    ] = 0.05
    spent: Annotated[
        list[str] | None,
        typer.Option(
            "--spent",
            help="Spent of the budget already: pilot=20, labelling=3, probes=1, lost=4; repeatable.",
            rich_help_panel=_UNITS,
        ),
    ] = None
    deadline_hours: Annotated[float | None, typer.Option(help="Wall-clock limit.", rich_help_panel=_UNITS)] = None
    output: opt.Save = None
    plot: opt.Plot = None
    json: opt.Json = False

    def allocate(self, fits: Fits | FitsSet, *, allow_other_model: bool | None = None) -> Plan:
        """Plan the budget from fits."""
        from isocompute_sdk.planner import Planner
        from isocompute_sdk.specs import Budget

        budget = Budget.parse(self.budget)
        if self.deadline_hours is not None:
            budget = budget.replace(deadline_hours=self.deadline_hours)
        if self.spent:
            budget = budget.replace(spent=opt.assignments(self.spent, "--spent"))
        hardware = self._hardware()
        planner = Planner(
            fits,
            hardware,
            _recipe(self.recipe),
            self._throughput(hardware),
            evaluation=_evaluation(self.evaluation),
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
            evaluation_share=self.evaluation_share,
            **choices,
        )

    def _hardware(self) -> Hardware:
        from isocompute_sdk.specs import Hardware

        gpus = {} if self.gpus is None else {"gpus": [part.strip() for part in self.gpus.split(",")]}
        return Hardware.model_validate({"max_rollouts_per_batch": self.max_rollouts_per_batch, **gpus})

    def _throughput(self, hardware: Hardware) -> Throughput | None:
        """From a file, from single options, or from a file with some of them changed."""
        from isocompute_sdk.specs import Throughput, load_spec

        names = ("step_overhead_seconds", "rollouts_per_second", "tokens_per_rollout", "usd_per_gpu_hour")
        given = {name: getattr(self, name) for name in (*names, "gpu_exponent") if getattr(self, name) is not None}
        if self.throughput is not None:
            return load_spec(self.throughput, Throughput).replace(**given)
        return Throughput.model_validate({**given, "gpus": hardware.gpu_counts[0]}) if given else None

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


def _evaluation(text: str | None) -> Evaluation | None:
    from isocompute_sdk.specs import Evaluation

    if text is None:
        return None
    problems, _, samples = text.partition("x")
    return Evaluation.model_validate({"n_problems": problems.strip(), "samples": samples.strip()})


def _recipe(text: str | None) -> Any:
    from isocompute_sdk.specs import Recipe, load_spec

    if text is None:
        return None
    return load_spec(Path(text), Recipe) if text.endswith((".yaml", ".yml")) else Recipe.preset(text)  # pyright: ignore[reportArgumentType]
