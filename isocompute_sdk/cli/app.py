"""The command tree: one module per subcommand."""

from __future__ import annotations

import typer

from isocompute_sdk.cli import (
    allocate,
    audit,
    backends,
    doctor,
    fit,
    ingest,
    launch,
    plan,
    probe,
    published,
    quickstart,
    run,
    schema,
    scorecard,
    status,
    sweep,
    watch,
)

app = typer.Typer(
    name="isocompute",
    help="How should I spend C rollouts on RL post-training? Fit allocation laws to your runs, plan the next one, "
    "launch it.\n\nStart with `isocompute quickstart`.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)
for _name, _function in (
    ("quickstart", quickstart.quickstart),
    ("plan", plan.plan),
    ("fit", fit.fit),
    ("allocate", allocate.allocate),
    ("ingest", ingest.ingest),
    ("doctor", doctor.doctor),
    ("audit", audit.audit),
    ("launch", launch.launch),
    ("sweep", sweep.sweep),
    ("run", run.run),
    ("probe", probe.probe),
    ("status", status.status),
    ("scorecard", scorecard.scorecard),
    ("watch", watch.watch),
    ("published", published.published),
    ("backends", backends.backends),
    ("schema", schema.schema),
):
    app.command(name=_name)(_function)
