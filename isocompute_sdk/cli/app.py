"""The command tree: one module per subcommand."""

from __future__ import annotations

from typing import Annotated

import typer

from isocompute_sdk import __version__
from isocompute_sdk.cli import (
    allocate,
    audit,
    backends,
    doctor,
    fit,
    forecast,
    ingest,
    launch,
    plan,
    probe,
    problems,
    published,
    run,
    schema,
    scorecard,
    status,
    stop,
    sweep,
)
from isocompute_sdk.cli.quickstart import command as quickstart
from isocompute_sdk.cli.shared.output import say
from isocompute_sdk.cli.watch import command as watch

app = typer.Typer(
    name="isocompute",
    help="How should I spend C rollouts on RL post-training? Fit allocation laws to your runs, plan the next one, "
    "launch it.\n\nStart with `isocompute quickstart`.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)


def _version(wanted: bool) -> None:
    if wanted:
        say(f"isocompute {__version__}")
        raise typer.Exit


@app.callback()
def _common(  # pyright: ignore[reportUnusedFunction]
    _: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass


for _name, _function in (
    ("quickstart", quickstart.quickstart),
    ("plan", plan.plan),
    ("fit", fit.fit),
    ("allocate", allocate.allocate),
    ("forecast", forecast.forecast),
    ("ingest", ingest.ingest),
    ("doctor", doctor.doctor),
    ("audit", audit.audit),
    ("launch", launch.launch),
    ("sweep", sweep.sweep),
    ("run", run.run),
    ("problems", problems.problems),
    ("probe", probe.probe),
    ("status", status.status),
    ("stop", stop.stop),
    ("watch", watch.watch),
    ("scorecard", scorecard.scorecard),
    ("published", published.published),
    ("backends", backends.backends),
    ("schema", schema.schema),
):
    app.command(name=_name)(_function)
