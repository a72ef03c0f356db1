"""`isocompute replan`: what to do with the rest of a run's budget."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from isocompute_sdk.cli.shared import options as opt
from isocompute_sdk.cli.shared.option_groups import with_option_groups
from isocompute_sdk.cli.shared.output import emit_json, say
from isocompute_sdk.cli.shared.reading_options import ReadingOptions
from isocompute_sdk.errors import FitError, PlanError

if TYPE_CHECKING:
    from isocompute_sdk.fitting.fits import Fits
    from isocompute_sdk.planning.replan import Replan
    from isocompute_sdk.records import RunSet

Logs = Annotated[list[Path] | None, typer.Argument(help="Logs of runs, ours or not: files, folders or globs.")]
DEFAULT_PLAN = Path("replan-plan.json")


@with_option_groups
def replan(
    *,
    logs: Logs = None,
    remaining: Annotated[str, typer.Option("--remaining", help="What is left: 2M rollouts, 40 gpu_hours, 500 usd.")],
    run: Annotated[str | None, typer.Option("--run", help="The run; needed where the logs hold several.")] = None,
    follow: Annotated[
        str | None, typer.Option("--follow", help="Option whose commands are printed; by default the best one.")
    ] = None,
    plan: Annotated[
        Path, typer.Option("--plan", help="Where the plan is saved that the commands start from.")
    ] = DEFAULT_PLAN,
    backend: Annotated[
        str | None, opt.backend("Training framework of the commands; by default the one that wrote the logs.")
    ] = None,
    checkpoints: Annotated[
        list[Path] | None,
        typer.Option("--checkpoints", help="Folder of checkpoints, if not below the logs; repeatable."),
    ] = None,
    fits: Annotated[Path | None, typer.Option(help="Saved fits of a sweep of the same recipe.")] = None,
    throughput: Annotated[
        Path | None, typer.Option(help="Throughput (YAML of isocompute probe), for hours and money.")
    ] = None,
    max_rollouts_per_batch: Annotated[
        int | None, opt.count("--max-rollouts-per-batch", "Largest batch B_max of the hardware, e.g. 64k.")
    ] = None,
    reading: ReadingOptions,
    eval_set: opt.EvalSet = None,
    bounds: Annotated[tuple[float, float], typer.Option(help="Range of the metric.")] = (0.0, 1.0),
    seed: opt.Seed = 0,
    output: opt.Save = None,
    json: opt.Json = False,
) -> None:
    """Show what can be done with the rest of a run's budget, with predicted rewards, and the commands of the best.

    Finds where trouble began, the last healthy checkpoint on disk, and what is sunk. The options: go on; roll back with
    KL term and entropy bonus on (easy sets) or off (hard sets); halve the learning rate; another n from the checkpoint;
    stop. Each says whether its effect was measured in the paper, seen in your data, or is a guess.

    Examples:
        isocompute replan runs/mine --remaining 2M

        isocompute replan logs/ --run exp7 --remaining 800k --follow halve-learning-rate --backend verl

        isocompute replan wandb.csv --set n=8 --set problems_per_batch=32 --remaining 1M --json
    """
    from isocompute_sdk.fitting.fits import Fits
    from isocompute_sdk.ingest.saved_checkpoints import find_checkpoints, of_run
    from isocompute_sdk.planning import Planner
    from isocompute_sdk.specs import Hardware, Throughput, load_spec

    runs = reading.read(logs, reading.metric)
    found = Fits.load(fits) if fits is not None else _fitted(runs, run, reading.metric, eval_set, bounds, seed)
    planner = Planner(
        found,
        Hardware.model_validate({"max_rollouts_per_batch": max_rollouts_per_batch}),
        throughput=None if throughput is None else load_spec(throughput, Throughput),
    )
    saved = find_checkpoints([*(logs or ()), *(checkpoints or ())])
    name = next(iter(runs.run_ids)) if run is None and len(runs.run_ids) == 1 else run
    mine = saved if name is None else of_run(saved, name, [name] if checkpoints else runs.run_ids)
    answer = planner.replan(runs, remaining, run_id=name, checkpoints=mine, rng=seed)
    commands, refused = _commands(answer, follow, plan, backend)
    if commands and answer.plan is not None:
        answer.plan.save(plan)
    if output is not None:
        answer.save(output)
    if json:
        emit_json({**answer.to_dict(), "commands": list(commands)})
        return
    say(answer.summary())
    if commands:
        say(f"wrote {plan}")
        used = backend or answer.backend
        say(f"next, in the folder of your data and reward file, with {used} (another framework: --backend):")
        for line in commands:
            say(f"  {line}")
    if refused is not None:
        say(f"no commands: {refused.message}\n  {refused.hint}")
    if output is not None:
        say(f"wrote {output}")


def _fitted(
    runs: RunSet, run: str | None, metric: str | None, eval_set: str | None, bounds: tuple[float, float], seed: int
) -> Fits:
    """Fits of all runs; of the run alone where they do not belong together."""
    from isocompute_sdk import api
    from isocompute_sdk.health.live_run import live_run

    name = live_run(runs, run, metric, eval_set).one.run_id
    alone = runs.filter(run_id=name)
    try:
        return api.fit(runs, metric, eval_set, bounds=bounds, rng=seed)
    except FitError:
        if len(runs.run_ids) == 1:
            raise
        return api.fit(alone, metric, eval_set, bounds=bounds, rng=seed)


def _commands(
    answer: Replan, follow: str | None, plan: Path, backend: str | None
) -> tuple[tuple[str, ...], PlanError | None]:
    """Commands of the option that is followed; an option asked for by name that has none is an error."""
    try:
        return answer.commands(follow, str(plan), backend), None
    except PlanError as error:
        if follow is not None:
            raise
        return (), error
