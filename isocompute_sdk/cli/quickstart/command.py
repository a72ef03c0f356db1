"""`isocompute quickstart`: the closed loop on a built-in task, or the paper's data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from isocompute_sdk.cli.quickstart import closed_loop, paper
from isocompute_sdk.cli.shared import options as opt


def quickstart(
    use_paper: Annotated[
        bool, typer.Option("--paper", help="Plan from the paper's measurements instead of training anything.")
    ] = False,
    budget: Annotated[
        str | None,
        typer.Option(
            help=f"Rollouts of pilot and plan together, {closed_loop.BUDGET}; of the plan with --paper, {paper.BUDGET}."
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help=f"Folder for everything; {closed_loop.FOLDER} or {paper.FOLDER}."),
    ] = None,
    parallel: opt.Parallel = None,
    verbose: opt.Verbose = False,
    json: opt.Json = False,
) -> None:
    """Train a tiny model on built-in arithmetic: checks, pilot in rounds, fit, plan, train, compare, refit.

    Takes a few minutes on two cores and needs the extra torch. After an interruption the same command resumes.
    --paper fits and plans the paper's own measurements in a few seconds, without torch.

    Examples:
        isocompute quickstart

        isocompute quickstart --paper --budget 3M
    """
    if use_paper:
        paper.run_paper(budget or paper.BUDGET, output or paper.FOLDER, verbose=verbose, json=json)
    else:
        closed_loop.run_closed_loop(
            budget or closed_loop.BUDGET, output or closed_loop.FOLDER, parallel, verbose=verbose, json=json
        )
