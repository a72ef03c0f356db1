"""`isocompute scorecard`: predictions beside outcomes, over time."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import Annotated

import typer

from isocompute_sdk.cli.shared import options as opt
from isocompute_sdk.cli.shared.option_groups import with_option_groups
from isocompute_sdk.cli.shared.output import emit_json, say
from isocompute_sdk.cli.shared.reading_options import ReadingOptions
from isocompute_sdk.errors import RecordError, SpecError


@with_option_groups
def scorecard(
    *,
    folder: Annotated[Path, typer.Argument(help="Folder with plans and campaigns; everything below counts.")] = Path(),
    add: Annotated[Path | None, typer.Option("--add", help="Saved plan that has been carried out.")] = None,
    runs: Annotated[
        list[Path] | None, typer.Option("--runs", help="What was measured: file, folder or glob; repeatable.")
    ] = None,
    eval_set: opt.EvalSet = None,
    reading: ReadingOptions,
    json: opt.Json = False,
) -> None:
    """Show how predictions compare with what was measured.

    Campaigns and quickstarts save their comparison themselves. To score a plan that you trained on your own, use --add
    and --runs; the score is saved beside the plan. Plans without an outcome are listed too. Without any score or plan
    the exit code is 1.

    Examples:
        isocompute scorecard studies/

        isocompute scorecard studies/ --add studies/plan.json --runs runs/plan
    """
    from isocompute_sdk.campaigns.scorecard import keep_score, read_scorecard

    if (add is None) != (not runs and reading.map is None):
        raise SpecError(
            "accepted: --add and --runs (or --map) together", "For example --add plan.json --runs runs/plan."
        )
    if add is not None:
        from isocompute_sdk.planning import Plan

        table = reading.read(runs, reading.metric or Plan.load(add).metric)
        for path in keep_score(add, table, eval_set):
            if not json:
                say(f"wrote {path}")
    found = read_scorecard(folder)
    if json:
        emit_json(found.to_dict())
    else:
        for line in found.summary().splitlines():
            say(line)
    if not (found.scores or found.waiting):
        there = "" if add is None else f" Scores lie beside their plans: isocompute scorecard {quote(str(add.parent))}."
        raise RecordError(
            f"{folder} holds no score and no plan with a predicted reward, at any depth",
            f"Give the folder with your plans (allocate --output ...) or campaigns.{there}",
        )
