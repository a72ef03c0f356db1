"""The command tree: one module per command, in four panels, and the commands that went away."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from inspect import getdoc
from itertools import takewhile
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from isocompute_sdk import __version__
from isocompute_sdk.cli import (
    allocate,
    audit,
    backtest,
    doctor,
    fit,
    forecast,
    launch,
    listing,
    plan,
    problems,
    quickstart,
    report,
    run,
    status,
    stop,
)
from isocompute_sdk.cli import next as next_
from isocompute_sdk.cli.shared.output import say
from isocompute_sdk.errors import SpecError
from isocompute_sdk.phrases import printable

UsageError: Any = typer.BadParameter.__base__
"""What typer raises on words that it does not understand."""


class _Group(TyperGroup):
    """Says of words that it does not understand which command would; control characters of them are shown as escapes,
    since typer writes past our streams."""

    def make_context(self, info_name: str | None, args: list[str], *rest: Any, **options: Any) -> Any:
        with _escaped():
            _refuse_open_budget(args)
            return super().make_context(info_name, args, *rest, **options)

    def invoke(self, ctx: Any) -> Any:
        with _escaped():
            return super().invoke(ctx)


@contextmanager
def _escaped() -> Generator[None]:
    try:
        yield
    except UsageError as error:
        error.message = printable(error.message)
        if hasattr(error, "possibilities") and (takers := _takers(error.option_name)):
            error.message += f". These commands take it: {', '.join(takers)}"
            error.possibilities = ()
        raise


def _refuse_open_budget(words: Sequence[str]) -> None:
    """Name the quotes that `--budget 3 million` lacks: a shell makes a path of its second word."""
    for at in (at for at, word in enumerate(words) if word == "--budget"):
        amount = list(takewhile(lambda word: not word.startswith("-"), words[at + 1 :]))
        if len(amount) < 2 or not re.fullmatch(r"[A-Za-z][A-Za-z-]*", amount[1]) or os.path.exists(amount[1]):
            continue
        from isocompute_sdk.specs import Budget

        # Behind a budget a path may follow.
        for budget in (" ".join(amount[:end]) for end in range(len(amount), 1, -1)):
            with suppress(SpecError):
                Budget.parse(budget)
                raise UsageError(
                    f"no such file or folder: {amount[1]}. A budget of several words needs quotes: "
                    f"--budget {shlex.quote(budget)}"
                )


def _takers(option: str) -> list[str]:
    return [name for name, one in _tree.commands.items() if any(option in other.opts for other in one.params)]


app = typer.Typer(
    cls=_Group,
    name="isocompute",
    help="How should I spend C rollouts on RL post-training? Fit allocation laws to your runs, plan the next one, "
    "launch it.\n\nStart with `isocompute quickstart`.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)

PANELS: dict[str, dict[str, Callable[..., None]]] = {
    "Plan": {
        "quickstart": quickstart.quickstart,
        "plan": plan.plan,
        "allocate": allocate.allocate,
        "next": next_.next_runs,
        "forecast": forecast.forecast,
    },
    "Read": {
        "doctor": doctor.doctor,
        "fit": fit.fit,
        "audit": audit.audit,
        "backtest": backtest.backtest,
    },
    "Run": {
        "problems": problems.problems,
        "launch": launch.launch,
        "run": run.run,
        "status": status.status,
        "stop": stop.stop,
    },
    "Explain": {
        "report": report.report,
        "list": listing.list_,
    },
}
"""Commands by the panel of `isocompute --help`."""
MOVED = {
    "backends": "list backends",
    "ingest": "doctor",
    "plot": "report",
    "probe": "run --probe",
    "published": "list published",
    "replan": "forecast",
    "schema": "list schema",
    "scorecard": "report",
    "sweep": "run --prepare",
    "watch": "status --watch",
}
"""Commands that went away, and what does the same."""


def _version(wanted: bool) -> None:
    if wanted:
        say(f"isocompute {__version__}")
        raise typer.Exit


@app.callback()
def _common(  # pyright: ignore[reportUnusedFunction]
    _: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
    __: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    pass


for _panel, _commands in PANELS.items():
    for _name, _function in _commands.items():
        # Without an empty line the first example would be part of the paragraph "Examples:".
        _help = (getdoc(_function) or "").replace("Examples:\n", "Examples:\n\n")
        app.command(name=_name, help=_help, rich_help_panel=_panel)(_function)

_tree: Any = typer.main.get_command(app)
"""The tree as a function, built once: that takes longer than a short command."""


def command() -> None:
    """Run the command that was typed; exit code 2 for one that went away, with the one that took its place."""
    old, *rest = sys.argv[1:] or [""]
    if old in MOVED:
        new = " ".join(["isocompute", MOVED[old], *([shlex.join(rest)] if rest else [])])
        print(f"error: isocompute {old} is now: {new}", file=sys.stderr)
        raise SystemExit(2)
    _tree()
