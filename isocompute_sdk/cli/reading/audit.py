"""`isocompute audit`: what existing runs gained for their rollouts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from isocompute_sdk.cli.shared import options as opt
from isocompute_sdk.cli.shared.option_groups import with_option_groups
from isocompute_sdk.cli.shared.output import emit_json, say, terminal
from isocompute_sdk.cli.shared.reading_options import ReadingOptions

if TYPE_CHECKING:
    from rich.console import Console

    from isocompute_sdk.auditing import Audit, GroupAudit

WIDE = 110
"""Columns of a terminal from which the whole table fits."""


@with_option_groups
def audit(
    *,
    logs: Annotated[
        list[Path] | None, typer.Argument(help="Tables or logs: files, folders or globs.", readable=False)
    ] = None,
    reading: ReadingOptions,
    eval_set: opt.EvalSet = None,
    pool: opt.Pool = None,
    bounds: Annotated[
        tuple[float, float] | None, typer.Option(help="Range of the metric; guessed from its values.")
    ] = None,
    level: Annotated[float, typer.Option(help="Coverage of the intervals.")] = 0.8,
    seed: opt.Seed = 0,
    output: opt.Save = None,
    plot: Annotated[
        Path | None, typer.Option(help="Folder for one picture per group: audit_1.png ...", rich_help_panel="Output")
    ] = None,
    json: opt.Json = False,
) -> None:
    """Compare the group sizes of existing runs at equal compute.

    Runs are grouped by model, data and recipe. Each run is compared with the best known n at its compute: how far it
    is behind, what the same reward would have cost, which runs cannot be compared and why, and which few runs would
    settle open questions. Nothing is trained or planned.

    Examples:
        isocompute audit runs/

        isocompute audit old/*.csv --rename num_generations=n --set problems_per_batch=32 --plot pictures
    """
    from isocompute_sdk.auditing import audit as conduct
    from isocompute_sdk.records import RunSet

    reading.refuse_both(logs, "`isocompute audit runs/`")
    left_out: dict[str, str] = {}
    if reading.map is not None:
        runs = reading.read(None, reading.metric)
    else:
        given = reading.arguments()
        runs = RunSet.read(logs or [], metric=reading.metric, on_truncated="drop", left_out=left_out, **given)
    found = conduct(
        runs, reading.metric, eval_set, pool=tuple(pool or ()), level=level, bounds=bounds, rng=seed, left_out=left_out
    )
    written = [found.save(output)] if output is not None else []
    if plot is not None:
        written += _pictures(found, plot)
    if json:
        emit_json(found.to_dict())
        return
    _print(found)
    for path in written:
        say(f"wrote {path}")


def _pictures(found: Audit, folder: Path) -> list[Path]:
    from isocompute_sdk import plots
    from isocompute_sdk.plots import plot_group

    fitted = [group for group in found.groups if group.fits is not None]
    return [plots.save_figure(plot_group(group, found.metric), folder / f"audit_{group.name}.png") for group in fitted]


def _print(found: Audit) -> None:
    """The audit for a terminal: the same words as `Audit.summary`, wrapped, with a table for each group."""
    from rich.padding import Padding
    from rich.text import Text

    from isocompute_sdk.cli.shared.display import print_notes

    console = terminal()
    for group in found.groups:
        for note in group.notes:
            if note.code == "no-rise-seen":
                console.print(f"group {group.name}: {note.message}")
    console.print(found.headline())
    for group in found.groups:
        console.print()
        console.print(Text(found.title(group), style="bold"))
        for line in group.findings():
            console.print(Padding(line.strip(), (0, 0, 0, 2)))
        _print_table(console, group)
        for line in group.proposal_lines():
            console.print(Padding(line.strip(), (0, 0, 0, 4 if line.startswith(" ") else 2)))
        print_notes(note for note in group.notes if note.code != "no-rise-seen")
    console.print()
    for line in found.closing():
        console.print(Padding(line.strip(), (0, 0, 0, 2 if line.startswith(" ") else 0)))
    print_notes(found.notes)


def _print_table(console: Console, group: GroupAudit) -> None:
    from isocompute_sdk.auditing.result import COLUMNS

    rows = [COLUMNS, *(run.row() for run in group.runs)]
    # Columns that no run fills say nothing.
    filled = [i for i in range(len(COLUMNS)) if any(row[i] for row in rows[1:])]
    if console.width < WIDE:
        filled = [i for i in filled if COLUMNS[i] not in ("reached", "best there")]
        equal = COLUMNS.index("equal at")
        rows = [(*row[:equal], row[equal].partition(" (")[0], *row[equal + 1 :]) for row in rows]
    widths = [max(len(row[i]) for row in rows) for i in filled]
    # A name that leaves no room for its numbers stands above them: nobody can copy one that is broken.
    beside = sum(widths) + len(widths) < console.width - 2
    for row in rows:
        name, *cells = (row[i].ljust(width) for i, width in zip(filled, widths, strict=True))
        start = f"  {name} " if beside else f"  {name.rstrip()}\n    "
        console.print((start + " ".join(cells)).rstrip(), soft_wrap=True)
