"""`isocompute report`: the answer on one page."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from isocompute_sdk.cli.shared import options as opt
from isocompute_sdk.cli.shared.fitting_options import FittingOptions
from isocompute_sdk.cli.shared.option_groups import with_option_groups
from isocompute_sdk.cli.shared.output import emit_json, say
from isocompute_sdk.cli.shared.planning_options import BudgetOptions
from isocompute_sdk.phrases import printable

LEFT_OUT = ("--budget", "--compare", "--output", "-o")
"""Options that commands on the page give anew."""
USUAL = Path("report.html")


@with_option_groups
def report(
    *,
    source: Annotated[
        list[Path] | None,
        typer.Argument(help="Folder of a campaign or of runs; saved plan, fits or audit (JSON); tables or logs."),
    ] = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="File to write.", rich_help_panel=opt.OUTPUT)] = USUAL,
    fitting: FittingOptions,
    planning: BudgetOptions,
    json: opt.Json = False,
) -> None:
    """Write the answer on one page: one HTML file that needs no network and opens in any browser.

    What to run, what it costs and what to expect, and how sure that is; then a slider over budgets, the curves, the
    backtest, the health of the runs, the launch script. What cannot be fitted or planned is named on the page.

    Examples:
        isocompute report isocompute-quickstart

        isocompute report plan.json -o plan.html

        isocompute report runs/ --budget 3M --compare n=16,bp=32

        isocompute report runs.csv --budget "500 usd" --throughput speed.yaml --usd-per-gpu-hour 2.5
    """
    from isocompute_sdk.reporting.build_page import build
    from isocompute_sdk.reporting.drawing.html import write
    from isocompute_sdk.reporting.material import Asked, gather

    fitting.refuse_both(source, "`isocompute report runs/`")
    plain = BudgetOptions()
    asked = Asked(
        budget=None if planning.budget is None else planning.amount(),
        compare=planning.compare,
        planner=_changed(planning.planner_arguments(), plain.planner_arguments()),
        options=_changed(planning.choices(), plain.choices()),
        fit=_changed(
            fitting.fit_arguments(max_rollouts_per_batch=planning.max_rollouts_per_batch),
            FittingOptions().fit_arguments(),
        ),
        reading=fitting.arguments(),
        words=_words(sys.argv[2:], source or ()),
        output="" if output == USUAL else f"--output {shlex.quote(str(output))}",
        must_plan=planning.budget is not None,
    )
    material = gather(source if source is not None else fitting.read(None), asked)
    path = write(build(material), output)
    if json:
        emit_json({"kind": "report", "file": str(path)})
        return
    say(f"wrote {path}")
    if material.plan is None and material.problem:
        say(printable(f"it holds no plan: {material.problem}"))


def _changed(given: Mapping[str, Any], default: Mapping[str, Any]) -> dict[str, Any]:
    """What was given beside the defaults: a campaign or a plan has its own values for the rest."""
    return {name: value for name, value in given.items() if name not in default or value != default[name]}


def _words(typed: Sequence[str], source: Sequence[Path]) -> tuple[str, ...]:
    """What was typed, quoted, without the source and the options that commands on the page give anew."""
    kept: list[str] = []
    skip = False
    for word in typed:
        flag = word.partition("=")[0]
        if skip:
            skip = False
        elif flag in LEFT_OUT:
            skip = "=" not in word
        elif word != "--json" and Path(word) not in source:
            kept.append(shlex.quote(word))
    return tuple(kept)
