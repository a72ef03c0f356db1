"""Fits and plans for a terminal: the answer on one screen, everything else on request."""

from __future__ import annotations

import sys
import textwrap
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from isocompute_sdk.cli.shared.output import terminal
from isocompute_sdk.cli.shared.typed import filled, with_words
from isocompute_sdk.phrases import counted, or_unknown, short

if TYPE_CHECKING:
    from pathlib import Path

    from isocompute_sdk.cli.shared.typed import Typed
    from isocompute_sdk.fitting.allocation import AllocationLaw
    from isocompute_sdk.fitting.fits import Fits
    from isocompute_sdk.notes import Note
    from isocompute_sdk.planning import NextRun, Plan, PlanComparison

_COLOURS = {"refuse": "bold red", "warning": "yellow", "info": "cyan"}
NOTE_LINES = 4
"""Lines for the notes of a plan unless more are asked for. A note is shown whole or not at all; the first always is."""


def print_fits(fits: Fits, *, verbose: bool = False, with_notes: bool = True) -> None:
    """Passport, laws, hand-overs, one row per curve, notes; laws in steps only if `verbose`."""
    from rich.text import Text

    console = terminal()
    for note in fits.no_rise:
        console.print(note.message)
    model = f", {fits.model}" if fits.model else ""
    console.print(Text(fits.metric, style="bold") + Text(f", method {fits.method}{model}"))
    if fits.no_rise:
        _print_runs(fits)
    else:
        _print_answer(fits, verbose=verbose)
    if with_notes:
        print_notes(one for one in fits.notes if _shown(one, fits, verbose=verbose))


def _shown(note: Note, fits: Fits, *, verbose: bool) -> bool:
    """Whether a note is printed: without a rise none about laws and plateaus, otherwise none about unused laws."""
    from isocompute_sdk.reporting.wording import OF_CURVES, about_unused_law

    if fits.no_rise:
        return note not in fits.no_rise and (verbose or note.code not in OF_CURVES)
    return verbose or not about_unused_law(note, fits)


def _print_runs(fits: Fits) -> None:
    """What was measured, where the curves mean nothing."""
    from rich.table import Table

    table = Table("n", "B_p", "evaluations", "mean", "lowest", "highest", box=None, pad_edge=False)
    for curve in fits.select() if fits.curves else ():
        seen = curve.reward_T
        values = (f"{value:.3f}" for value in (seen.mean(), seen.min(), seen.max()))
        table.add_row(str(curve.group_size), or_unknown(curve.problems_per_batch), str(len(seen)), *values)
    terminal().print(table)


def _print_answer(fits: Fits, *, verbose: bool) -> None:
    """Passport, laws, hand-overs and curves."""
    from rich.table import Table

    from isocompute_sdk.reporting.wording import STEP_LAWS

    console = terminal()
    for line in () if fits.passport is None else fits.passport.lines():
        console.print(line)
    if fits.surface is not None and "group_size" in fits.laws:
        console.print(f"best n, as plans choose it: {_best_sizes(fits)}")
    # Plans from a surface ask the surface and no law.
    unused = () if verbose else STEP_LAWS if fits.surface is None else {*fits.laws, *fits.unsupported}
    for name, law in fits.laws.items():
        if name not in unused:
            console.print(f"law {name}: {_in_words(fits, law)}", soft_wrap=False)
        if verbose:
            console.print(f"  {law.describe()}", soft_wrap=False)
    for name, reason in fits.unsupported.items():
        if name not in unused:
            console.print(f"no law {name}: {reason}")
    if fits.curves:
        if fits.surface is None:
            console.print(f"best n changes: {fits.describe_handovers()}")
        table = Table("n", "B_p", "plateau", "half at C", "rms", "shape", "status", box=None, pad_edge=False)
        for curve in fits.select():
            table.add_row(*curve.cells, curve.shape.replace("_", " "), curve.status.value)
        console.print(table)


def _best_sizes(fits: Fits) -> str:
    """The n that plans choose at a tenth, one and ten times the largest run."""
    largest, unit = fits.largest_compute or 0.0, fits.compute.removeprefix("log10_")
    places = [largest * factor for factor in (0.1, 1.0, 10.0)]
    sizes = fits.best_group_size(places)
    return ", ".join(f"{n:.0f} at {short(c)} {unit}" for n, c in zip(sizes, places, strict=True))


def _in_words(fits: Fits, law: AllocationLaw) -> str:
    """What a law says at a tenth, one and ten times the largest run; a law in steps at 100 and 1,000 steps."""
    largest = fits.largest_compute
    if law.x == "update_steps" or largest is None:
        places = [(f"{m:,} steps", float(m)) for m in (100, 1000)] if law.x == "update_steps" else []
    else:
        unit = law.x.removeprefix("log10_")
        places = [(f"{short(largest * factor)} {unit}", largest * factor) for factor in (0.1, 1.0, 10.0)]
    said = [f"about {float(law.predict(value)):.0f} at {where}" for where, value in places]
    status = "" if law.status.value == "converged" else f" ({law.status.value.replace('_', ' ')})"
    return f"best {', '.join([*said, f'levels off at {law.saturation:.0f}'])}{status}"


def print_plan(
    plan: Plan,
    typed: Typed | None = None,
    *,
    comparison: PlanComparison | None = None,
    verbose: bool = False,
    plan_file: Path | None = None,
    saved: Sequence[object] = (),
) -> None:
    """The plan on one screen: verdict first, then what it costs and yields, what was close, two notes, what to do next.

    Args:
        plan: the plan.
        typed: the command that made it; None shows no commands.
        comparison: the plan against a configuration: one row, and all of it if `verbose`.
        verbose: also all notes, and the details behind the plan.
        plan_file: file that the plan was saved to; None if it was not.
        saved: all files that were written.
    """
    from isocompute_sdk.errors import shell_form
    from isocompute_sdk.notes import unique
    from isocompute_sdk.planning.plan import answer, details

    console = terminal()
    first, rows = plan.next_runs, [(label, shell_form(text)) for label, text in answer(plan)]
    if comparison is not None:
        rows += [("comparison", comparison.verdict), *(comparison.details() if verbose else [])]
        plan = replace(plan, notes=unique([*plan.notes, *comparison.notes]))
    if not verbose:
        short = iter(() if first is None else [briefly(run, plan, first.unit) for run in first.runs])
        rows = [(label, next(short, text) if label == "run first" else text) for label, text in rows]
        width = max(console.width - max(len(label) for label, _ in rows) - 2, 30)
        rows = [(label, _whole_items(text, width) if label == "assumed" else text) for label, text in rows]
    _print_rows(rows)
    following = [] if typed is None else what_next(plan, typed, plan_file)
    # Screens of plans that are not approved have room for it.
    beside = following[1:] if plan.approval is None or plan.approval.kind != "do-not" else []
    if verbose:
        print_notes([*_notes(plan), *(() if first is None else first.notes)])
        _print_rows(details(plan))
    else:
        print_first_notes(plan, NOTE_LINES - len(textwrap.wrap(" ".join(beside), console.width)))
    for path in saved:
        console.print(f"wrote {path}", soft_wrap=True)
    for line in following:
        console.print(line, soft_wrap=True)


def _whole_items(text: str, width: int) -> str:
    """As many items of a list as fit into the width, and where the others are."""
    more, kept = ", ... (all: -v)", text
    while len(kept) + len(more) > width and ", " in kept and len(text) > width:
        kept = kept.rpartition(", ")[0]
    return text if kept == text else f"{kept}{more}"


def _print_rows(rows: Sequence[tuple[str, str]]) -> None:
    from rich.table import Table

    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    for label, text in rows:
        table.add_row(label, text)
    terminal().print(table)


def briefly(run: NextRun, plan: Plan, unit: str) -> str:
    """A run to make first, its cost and what it saves on one line; its B_p where that is not the plan's."""
    from isocompute_sdk.planning.pricing import amount_text

    problems = "" if run.problems_per_batch == plan.problems_per_batch else f", B_p = {run.problems_per_batch}"
    what = f"n = {run.group_size}{problems}, M = {run.update_steps:,}" + (f", seed {run.seed}" if run.seed else "")
    if run.continues:
        what = f"continue {run.continues} (n = {run.group_size}{problems}) to M = {run.update_steps:,}"
    return f"{what}: {amount_text(run.cost, unit)}" + (f", saves {run.gain}" if run.gain else "")


def _notes(plan: Plan) -> Sequence[Note]:
    """The notes of a plan; where no run rises, those of its runs."""
    fits = plan.fits
    return plan.notes if fits is None or not fits.no_rise else [n for n in fits.notes if _shown(n, fits, verbose=False)]


def print_first_notes(plan: Plan, room: int = NOTE_LINES, *, alone: bool = False) -> None:
    """The notes that matter most: the gravest first, of those falls, what casts doubt on n, what is about this plan.

    Args:
        plan: the plan.
        room: lines for them; one note is always shown.
        alone: only warnings, and nothing about the notes that are not shown.
    """
    from rich.text import Text

    from isocompute_sdk.health.findings import FALLS
    from isocompute_sdk.notes import by_severity
    from isocompute_sdk.reporting.wording import about_unused_law

    console = terminal()
    notes = _notes(plan)
    relevant = [note for note in notes if "update_steps" in plan.binding or not about_unused_law(note, plan.fits)]
    of_fits = () if plan.fits is None else plan.fits.notes
    grave, doubts = (
        {
            *FALLS,
            "column-assumed",
            "context-taken-for-granted",
            "decline-within-budget",
            "low-last-evaluation",
            "outlying-run",
            "run-left-out",
            "sources-disagree",
        },
        plan.verdict.doubts,
    )
    # What is grave in the runs comes before what is so in the plan, which rests on them.
    relevant.sort(
        key=lambda note: (note.code not in grave, note.code not in doubts, (note in of_fits) != (note.code in grave))
    )
    shown, used = list["Note"](), 0
    ordered = [note for note in by_severity(relevant) if not alone or note.severity != "info"]
    for note in ordered:
        lines = textwrap.wrap(
            f"{note.code}: {filled(note.message, sys.argv[1:])}",
            width=max(console.width - len(note.severity) - 2, 20),
            break_on_hyphens=False,
        )
        used += len(lines)
        # Which of several metrics decides has no other place on the screen.
        if shown and used > room and (note.code, note.severity) != ("metric-chosen", "warning"):
            continue
        shown.append(note)
        console.print(Text(f"{note.severity} ", style=_COLOURS[note.severity]) + Text("\n  ".join(lines)))
    more = len(notes) - len(shown)
    if more > 0 and not alone:
        hidden = [note.code for note in ordered if note not in shown and note.severity != "info"]
        named = f" ({', '.join(dict.fromkeys(hidden))})" if hidden else ""
        console.print(f"-v shows {counted(more, 'more note')}{named}, evaluations and fit checks")


def what_next(plan: Plan, typed: Typed, saved: Path | None = None) -> list[str]:
    """What to do next, as commands; where no run rises, the same question with a run that does.

    Args:
        plan: the plan.
        typed: the command that made it.
        saved: file that the plan was saved to.
    """
    return with_words(_what_next(plan, typed, saved))


def _what_next(plan: Plan, typed: Typed, saved: Path | None) -> list[str]:
    from shlex import quote

    from isocompute_sdk.reporting.wording import instead, reward_test
    from isocompute_sdk.training.checks import model_option

    train = typed.saving()
    if saved is not None:
        # Only what the plan leaves open is asked for.
        gpus = f" --gpus {plan.gpus}" if len(plan.hardware.gpu_counts) > 1 else ""
        backend = "" if plan.backend is None else f" --backend {plan.backend}"
        train = f"isocompute launch {quote(str(saved))}{backend}{model_option(plan.model)}{gpus}"
    if plan.approval is None or plan.approval.kind != "do-not":
        launched = f"or from scratch, outside the campaign: {train}" if typed.campaign else f"next: {train}"
        return [*filter(None, [typed.campaign]), launched, *going_on("or", plan, typed)]
    # Where no runs were looked for, a borrowed n still asks for a pilot.
    first = plan.verdict.kind == "borrowed" if plan.next_runs is None else bool(plan.next_runs.runs)
    lines = [f"next: {typed.asking('next')}"] if first else []
    lines += going_on("or" if first else "next", plan, typed)
    if (other := instead(plan, campaign=bool(typed.campaign))) is not None:
        what, option = other
        return [*lines, f"{'or' if lines else 'next'}, {what}: {typed.instead(option)}"]
    if not first and plan.fits is not None and plan.fits.flat_runs is not None:
        test, again = reward_test(plan, typed.study), typed.asking("allocate", "NEW_RUN")
        first = [f"next, to test the reward and how hard the problems are for the model: {test}"] if test else []
        return [*first, f"{'then' if test else 'next'}, with the log of a run whose reward rises: {again}"]
    if plan.gains_nothing:
        page = typed.asking("report") if saved is None else f"isocompute report {quote(str(saved))}"
        return lines or [f"next, to see why on one page: {page}"]
    if first and typed.campaign:
        how = "let the campaign go on, which makes such runs first"
        return [*lines, f"or {how}: {typed.campaign.removeprefix('next: ')}"]
    anyway = typed.campaign.removeprefix("next: ") or train
    what = "save" if anyway == train and saved is None else "run"
    return [*lines, f"{'or' if first else 'to'} {what} this plan anyway: {anyway}"]


def going_on(lead: str, plan: Plan, typed: Typed) -> list[str]:
    """How to ask whether a run so far should go on instead of the plan, behind a first word; empty without one."""
    from isocompute_sdk.reporting import wording

    command = filled(wording.going_on(plan), typed.words)
    return [f"{lead}, to see {wording.whether_to_go_on(plan)}: {command}"] if command else []


def print_notes(notes: Iterable[Note]) -> None:
    """Code and message of each note, the gravest first; what is true of many runs is said of the first."""
    from rich.padding import Padding
    from rich.text import Text

    from isocompute_sdk.notes import by_severity

    console, told = terminal(), [(note, note.without_run()) for note in by_severity(notes)]
    counts = Counter((note.code, text) for note, text in told)
    for note, text in told:
        if count := counts.pop((note.code, text), 0):
            others = f" (same in {counted(count - 1, 'other run')})" if count > 1 else ""
            console.print(Text(f"{note.severity}: {note.code}", style=_COLOURS[note.severity]))
            console.print(Padding(Text(f"{filled(note.message, sys.argv[1:])}{others}"), (0, 0, 0, 2)))
