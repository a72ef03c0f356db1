"""Fits and plans for a terminal: tables, and notes wrapped to its width, the gravest first."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

    from isocompute_sdk.fitting.fits import Fits
    from isocompute_sdk.notes import Note
    from isocompute_sdk.planning import NextRuns, Plan

_COLOURS = {"refuse": "bold red", "warning": "yellow", "info": "cyan"}


def print_fits(fits: Fits, *, with_notes: bool = True) -> None:
    """Passport, laws, hand-overs, one row per curve, notes."""
    from rich.table import Table

    console = _console()
    console.print(f"[bold]{fits.metric}[/bold], method {fits.method}" + (f", {fits.model}" if fits.model else ""))
    for line in () if fits.passport is None else fits.passport.lines():
        console.print(line)
    for name, law in fits.laws.items():
        console.print(f"{name}: {law.describe()}", soft_wrap=False)
    if "group_size" in fits.unsupported:
        console.print(f"no law group_size: {fits.unsupported['group_size']}")
    if fits.curves:
        console.print(f"hand-overs: {fits.describe_handovers()}")
        table = Table("n", "B_p", "plateau", "half at C", "rms", "shape", "status", box=None, pad_edge=False)
        for curve in fits.select():
            table.add_row(
                str(curve.group_size),
                "?" if curve.problems_per_batch is None else str(curve.problems_per_batch),
                f"{curve.plateau:.3f}" + ("" if curve.plateau_identified else " (not seen)"),
                f"{curve.half_compute:.3g}",
                f"{curve.rms:.4f}",
                curve.shape.replace("_", " "),
                curve.status.value,
            )
        console.print(table)
    if with_notes:
        print_notes(fits.notes)


def print_plan(plan: Plan, first: NextRuns | None = None) -> None:
    """The plan, what else was close, notes, and the pilot that would narrow it.

    Args:
        plan: the plan.
        first: runs to make before it; they stand in place of the verdict.
    """
    from rich.table import Table

    from isocompute_sdk.planning.plan import describe, describe_pilot

    console = _console()
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    for label, text in plan.rows():
        table.add_row(label, first.reason if label == "verdict" and first is not None else text)
    for run in () if first is None else first.runs:
        table.add_row("run first", run.describe(first.unit) if first is not None else "")
    for alternative in plan.alternatives:
        if alternative.kind != "other":
            table.add_row(alternative.kind, describe(alternative))
    console.print(table)
    print_notes(plan.notes)
    if plan.pilot is not None:
        console.print(describe_pilot(plan.pilot))


def print_notes(notes: Iterable[Note]) -> None:
    """Code and message of each note, the gravest first."""
    from rich.padding import Padding
    from rich.text import Text

    from isocompute_sdk.cli.shared.output import printable
    from isocompute_sdk.notes import by_severity

    console = _console()
    for note in by_severity(notes):
        console.print(Text(f"{note.severity}: {note.code}", style=_COLOURS[note.severity]))
        console.print(Padding(Text(printable(note.message, keep="\n")), (0, 0, 0, 2)))


def _console() -> Console:
    from rich.console import Console

    # Numbers and names would be coloured at random otherwise.
    return Console(highlight=False)
