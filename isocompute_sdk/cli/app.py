"""The command tree: one module per subcommand, in three groups."""

from __future__ import annotations

from inspect import getdoc
from typing import Annotated

import typer

from isocompute_sdk import __version__
from isocompute_sdk.cli import backends, schema
from isocompute_sdk.cli.planning import allocate, fit, forecast, launch, plan, plot, published, replan, report
from isocompute_sdk.cli.planning import next as next_
from isocompute_sdk.cli.quickstart import command as quickstart
from isocompute_sdk.cli.reading import audit, backtest, doctor, ingest, listing
from isocompute_sdk.cli.running import probe, problems, run, scorecard, status, stop, sweep
from isocompute_sdk.cli.running.watch import command as watch
from isocompute_sdk.cli.shared.output import say

app = typer.Typer(
    name="isocompute",
    help="How should I spend C rollouts on RL post-training? Fit allocation laws to your runs, plan the next one, "
    "launch it.\n\nStart with `isocompute quickstart`.",
    no_args_is_help=True,
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
    ("next", next_.next_runs),
    ("plot", plot.plot),
    ("forecast", forecast.forecast),
    ("replan", replan.replan),
    ("ingest", ingest.ingest),
    ("doctor", doctor.doctor),
    ("audit", audit.audit),
    ("backtest", backtest.backtest),
    ("launch", launch.launch),
    ("sweep", sweep.sweep),
    ("run", run.run),
    ("problems", problems.problems),
    ("probe", probe.probe),
    ("status", status.status),
    ("stop", stop.stop),
    ("watch", watch.watch),
    ("report", report.report),
    ("scorecard", scorecard.scorecard),
    ("list", listing.list_),
    ("published", published.published),
    ("backends", backends.backends),
    ("schema", schema.schema),
):
    # Without an empty line the first example would be part of the paragraph "Examples:".
    app.command(name=_name, help=(getdoc(_function) or "").replace("Examples:\n", "Examples:\n\n"))(_function)

command = typer.main.get_command(app)
"""The tree as a function, built once: that takes longer than a short command."""
