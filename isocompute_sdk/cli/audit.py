"""`isocompute audit`: what existing runs gained for their rollouts."""

from __future__ import annotations

import sys
from pathlib import Path
from shlex import quote
from typing import Annotated

import typer

from isocompute_sdk.cli.shared import options as opt
from isocompute_sdk.cli.shared.following import budget_of_study
from isocompute_sdk.cli.shared.options import with_option_groups
from isocompute_sdk.cli.shared.output import emit_json, say, terminal
from isocompute_sdk.cli.shared.reading_options import ReadingOptions
from isocompute_sdk.cli.shared.typed import Typed, without
from isocompute_sdk.phrases import short


@with_option_groups
def audit(
    *,
    logs: Annotated[
        list[Path] | None, typer.Argument(help="Tables or logs: files, folders or globs.", readable=False)
    ] = None,
    reading: ReadingOptions,
    eval_set: opt.EvalSet = None,
    pool: opt.Pool = None,
    bounds: opt.Bounds = (0.0, 1.0),
    level: opt.Level = 0.8,
    seed: opt.Seed = 0,
    output: opt.Save = None,
    plot: Annotated[Path | None, opt.option("Folder for one picture per group: audit_1.png ...", "Output")] = None,
    json: opt.Json = False,
) -> None:
    """Compare the group sizes of existing runs at equal compute.

    Runs are grouped by model, data and recipe. Each run is compared with the best known n at its compute: how far it
    is behind, what the same reward would have cost, and which runs cannot be compared and why. Nothing is trained or
    planned; isocompute next says whether another run is worth its cost.

    Examples:
        isocompute audit runs/

        isocompute audit old/*.csv --rename num_generations=n --set problems_per_batch=32 --plot pictures
    """
    from isocompute_sdk.auditing import audit as conduct

    left_out: dict[str, str] = {}
    runs = reading.read(logs, reading.metric, left_out=left_out)
    found = conduct(
        runs, reading.metric, eval_set, pool=tuple(pool or ()), level=level, bounds=bounds, rng=seed, left_out=left_out
    )
    written = [found.save(output)] if output is not None else []
    if plot is not None:
        from isocompute_sdk.plots import plot_group, save_figure

        fitted = [group for group in found.groups if group.fits is not None]
        written += [save_figure(plot_group(one, found.metric), plot / f"audit_{one.name}.png") for one in fitted]
    if json:
        emit_json(found.to_dict())
        return
    say(found.summary(terminal().width))
    # Runs of several groups are not planned together.
    if found.next_budget is not None and len(found.groups) == 1:
        budget = f"{short(found.next_budget)} rollouts"
        asked = Typed(tuple(without(sys.argv[1:], ("--level",)))).asking("next", f"--budget {short(found.next_budget)}")
        if logs and (own := budget_of_study(logs)) is not None:
            budget, asked = str(own[0]), " ".join(["isocompute next", quote(str(logs[0])), *filter(None, own[1:])])
        say(f"to see whether another run is worth its cost before spending {budget}: {asked}")
    for path in written:
        say(f"wrote {path}")
