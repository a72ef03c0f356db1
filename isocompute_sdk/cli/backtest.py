"""`isocompute backtest`: what the planner and simple rules would have chosen on the past of real sweeps."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from isocompute_sdk.cli.shared import options as opt
from isocompute_sdk.cli.shared.options import with_option_groups
from isocompute_sdk.cli.shared.output import emit_json, say, terminal
from isocompute_sdk.cli.shared.reading_options import ReadingOptions

SECONDS_BETWEEN_LINES = 10.0


@with_option_groups
def backtest(
    *,
    logs: Annotated[
        list[Path] | None,
        typer.Argument(help="Your runs, or a folder of sweeps with provenance. Default: the corpus.", readable=False),
    ] = None,
    reading: ReadingOptions,
    eval_set: opt.EvalSet = None,
    bounds: opt.Bounds = (0.0, 1.0),
    sweeps: opt.Sweeps = None,
    cuts: Annotated[
        list[float] | None, opt.option("Share of the compute that a pilot sees; repeatable. Default: 1/8, 1/3, 1/2.")
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Pilots per cut, one seed each.")] = 1,
    min_evaluations: Annotated[int, typer.Option(min=1, help="Minimum evaluations of each n in a pilot.")] = 4,
    csv: Annotated[Path | None, opt.option("Write every row here.", "Output")] = None,
    json: opt.Json = False,
) -> None:
    """Hide the later part of past sweeps, let the planner choose n, and look up what each n reached.

    Beside the planner: the n of the best pilot run, the largest n, the paper's workflow, its published law. Every
    method chooses among the n that were run. Nothing is trained.

    Examples:
        isocompute backtest

        isocompute backtest runs/ --json
    """
    from isocompute_sdk.auditing.backtest import CUTS
    from isocompute_sdk.auditing.backtest import backtest as conduct
    from isocompute_sdk.laws.sweeps import holds_sweeps
    from isocompute_sdk.laws.sweeps import sweeps as corpus
    from isocompute_sdk.records import RunSet

    begun = said = time.monotonic()

    def progress(done: int, count: int, name: str) -> None:
        nonlocal said
        if done and time.monotonic() - said > SECONDS_BETWEEN_LINES:
            said = time.monotonic()
            left = (said - begun) / done * (count - done)
            print(f"{done} of {count} pilots, about {left:.0f} s left; {name}", file=sys.stderr, flush=True)

    if logs and len(logs) == 1 and holds_sweeps(logs[0]):
        source = corpus(logs[0])
    elif logs or reading.map is not None:
        source = reading.read(logs, reading.metric)
    else:
        source = corpus() if sweeps is None else (*corpus(), *corpus(sweeps))
    found = conduct(
        source,
        metric=reading.metric,
        eval_set=eval_set,
        bounds=bounds,
        cuts=cuts or CUTS,
        seeds=seeds,
        min_evaluations=min_evaluations,
        progress=progress,
    )
    if csv is not None:
        found.to_frame().write_csv(csv)
    if json:
        emit_json(found.to_dict())
        return
    for title, rows in zip(TITLES, found.tables(), strict=False):
        say(title)
        _print(rows)
    for line in found.behind_most():
        say(line)
    if isinstance(source, RunSet):
        say(
            "`isocompute fit` prints another backtest: the first third of each run predicts its last evaluations, "
            "without anything after a fall."
        )
    if csv is not None:
        say(f"wrote {csv}")


TITLES = (
    "Reward lost against the best n: on average, and at worst",
    "Predicted best reward of each n against what was measured",
    "Verdicts of the planner",
)


def _print(rows: Sequence[Sequence[str]]) -> None:
    """A table, titles first; on its side where only that fits the terminal, and never cut."""
    from rich.table import Table

    def width(rows: Sequence[Sequence[str]]) -> int:
        return sum(max(map(len, column)) + 2 for column in zip(*rows, strict=True))

    console, turned = terminal(), [*zip(*rows, strict=True)]
    if width(turned) <= console.width < width(rows):
        rows = turned
    table = Table(*rows[0], box=None, pad_edge=False)
    for row in rows[1:]:
        table.add_row(*row)
    console.print(table, width=max(console.width, width(rows)), crop=False)
    say()
