"""`isocompute watch`: look at runs while they go on, and tell of each trouble once."""

from __future__ import annotations

import json as json_module
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from isocompute_sdk.cli import options as opt
from isocompute_sdk.cli.output import OUTPUT_SCHEMA_VERSION, say
from isocompute_sdk.errors import RecordError, SpecError

if TYPE_CHECKING:
    from isocompute_sdk.health.alerts import Alert, AlertBook, PlannedRun
    from isocompute_sdk.notes import Severity
    from isocompute_sdk.records import RunSet

STATE_FILE = ".isocompute-watch.json"
BLIND = 3
"""Readings that fail in a row, after one that did not, before that is an alert of its own."""
BLIND_RUN = ""
"""Stands for all runs in that alert."""

Logs = Annotated[list[Path], typer.Argument(help="Logs of runs, ours or not: files, folders or globs.")]


def watch(
    logs: Logs,
    on_alert: Annotated[
        str | None,
        typer.Option(help="Command for every alert; gets it as JSON on stdin and in ISOCOMPUTE_ALERT_* variables."),
    ] = None,
    plan: Annotated[
        Path | None, typer.Option(help="Saved plan: its run is held against the band that its fits predict.")
    ] = None,
    interval: Annotated[float, typer.Option(help="Seconds between two looks.", min=0.05)] = 30.0,
    once: Annotated[bool, typer.Option("--once", help="Look once and end; for cron.")] = False,
    info: Annotated[bool, typer.Option("--info", help="Tell of what is only worth knowing, too.")] = False,
    metric: Annotated[str | None, typer.Option(help="Reward on held-out problems; avg@k by default.")] = None,
    eval_set: opt.EvalSet = None,
    set_: opt.Constants = None,
    state: Annotated[
        Path | None, typer.Option(help=f"File of the alerts given so far; {STATE_FILE} beside the logs by default.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document a line.")] = False,
) -> None:
    """Watch runs in progress and tell of collapse, drift, overfitting and the like, each once.

    The command of --on-alert is split into words as a shell would and run without one, so that nothing in a log can
    become part of it; for pipes use 'sh -c "..."'. It may fail twice and is given the alert again at the next looks.
    Ends with Ctrl-C; with --once with exit code 0, or 1 where the command failed.

    Examples:
        isocompute watch runs/ --on-alert 'mail -s trouble me@example.org'

        isocompute watch runs/pilot --plan plan.json --interval 60

        isocompute watch wandb.csv --once --json
    """
    from isocompute_sdk.cli.alert_command import split_command
    from isocompute_sdk.health.alerts import AlertBook

    watcher = _Watcher(
        logs=logs,
        reading={"metric": metric, **opt.assignments(set_, "--set")},
        eval_set=eval_set,
        book=AlertBook(_state_file(logs) if state is None else state),
        command=None if on_alert is None else split_command(on_alert),
        planned=None if plan is None else _planned(plan),
        least="info" if info else "warning",
        json=json,
    )
    # Where alerts cannot be remembered, better now than at the first one.
    watcher.book.save()
    if once:
        watcher.look()
        watcher.close()
        return
    try:
        while True:
            watcher.look_again()
            time.sleep(interval)
    except KeyboardInterrupt:
        print("stopped; alerts given so far are remembered", file=sys.stderr)


def _state_file(logs: list[Path]) -> Path:
    """Beside the first log: in its folder, or next to the file under its name."""
    first = logs[0]
    if first.is_dir():
        return first / STATE_FILE
    parent = first.parent if first.parent.is_dir() else Path()
    name = first.name if first.is_file() or not any(c in first.name for c in "*?[") else ""
    return parent / (f".{name}{STATE_FILE}" if name else STATE_FILE)


def _planned(path: Path) -> PlannedRun:
    from isocompute_sdk.health.alerts import PlannedRun
    from isocompute_sdk.planner import Plan

    plan = Plan.load(path)
    fits = plan.fits
    if fits is None or fits.surface is None:
        raise SpecError(
            f"--plan {path} predicts no band (its fits: {'none' if fits is None else fits.method}); accepted: a plan "
            "from fits of method 'surface'",
            "Plan from runs of your own: isocompute allocate RUNS --budget ... --output plan.json.",
        )
    if fits.compute != "log10_rollouts":
        raise SpecError(f"--plan {path} was fitted on tokens; accepted: a plan fitted on rollouts")
    return PlannedRun(plan.group_size, plan.problems_per_batch, fits)


@dataclass
class _Watcher:
    """Looks at logs, and tells of what is new."""

    logs: list[Path]
    reading: dict[str, Any]
    eval_set: str | None
    book: AlertBook
    command: list[str] | None
    planned: PlannedRun | None
    least: Severity
    json: bool
    _seen: object = None
    _read: bool = False
    _failed: int = 0
    _complaint: str = ""
    _runs: int = 0
    _undelivered: set[str] = field(default_factory=set[str])

    def look(self) -> None:
        """Read all logs and tell of what is new.

        Raises:
            RecordError: they cannot be read.
        """
        self._tell_of(self._runs_now())

    def _runs_now(self) -> RunSet:
        from isocompute_sdk.records import RunSet

        return RunSet.read(self.logs, on_truncated="drop", on_duplicate="last", **self.reading)

    def _tell_of(self, runs: RunSet) -> None:
        from isocompute_sdk.health.alerts import notes_now
        from isocompute_sdk.health.traces import gather

        self.book.forget_restarted({one.run_id: one.rollouts for one in runs.runs()})
        traces = gather(runs, self.reading["metric"], self.eval_set)
        self._runs = len(traces)
        if self.planned is not None and not any(self.planned.is_it(run) for run in traces):
            self._complain(f"no run has the plan's n = {self.planned.group_size}")
        for alert in self.book.due(notes_now(traces, self.planned), self.least):
            self._tell(alert)

    def look_again(self) -> None:
        """As `look`, but only where something has changed, and going on where logs cannot be read for now."""
        try:
            seen = self._signature()
            if seen == self._seen and not self._undelivered:
                return
            runs = self._runs_now()
        except (RecordError, OSError) as error:
            self._complain(f"cannot read for now: {error}")
            self._failed += 1
            alert = _blind(str(error))
            if self._read and self._failed >= BLIND and self.book.is_due(alert):
                self._tell(alert)
            return
        self._tell_of(runs)
        self._seen, self._read, self._failed = seen, True, 0
        self.book.forget(BLIND_RUN)

    def close(self) -> None:
        """Say how it stands after a single look; exit code 1 where a command failed."""
        if self.json:
            self._line({"kind": "watch", "runs": self._runs, "undelivered": len(self._undelivered)})
        if self._undelivered:
            raise SystemExit(1)

    def _signature(self) -> object:
        from isocompute_sdk.ingest.paths import find_files

        found = [file for one in self.logs for file in find_files(one, "auto")]
        return [(file, file.stat().st_size, file.stat().st_mtime_ns) for file in found]

    def _tell(self, alert: Alert) -> None:
        from isocompute_sdk.cli.alert_command import run_command

        if self.book.is_new(alert):
            if self.json:
                self._line(alert.to_dict())
            else:
                say(
                    printable(
                        f"{time.strftime('%H:%M:%S')} {alert.note.severity} {alert.note.code}: {alert.note.message}"
                    )
                )
            sys.stdout.flush()
        trouble = None if self.command is None else run_command(self.command, alert)
        self.book.record(alert, delivered=trouble is None)
        name = f"{alert.run_id}\n{alert.note.code}\n{alert.note.severity}"
        if trouble is None or not self.book.is_due(alert):
            self._undelivered.discard(name)
        if trouble is not None:
            self._complain(f"--on-alert: {trouble}")
            if self.book.is_due(alert):
                self._undelivered.add(name)

    def _complain(self, text: str) -> None:
        """Once, until something else is the matter."""
        if text != self._complaint:
            print(printable(text), file=sys.stderr, flush=True)
            self._complaint = text

    def _line(self, payload: dict[str, Any]) -> None:
        say(json_module.dumps({"schema_version": OUTPUT_SCHEMA_VERSION, **payload}, allow_nan=False))


def printable(text: str) -> str:
    """Text on one line of a terminal: control characters of run names, line ends included, are shown as escapes."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _blind(error: str) -> Alert:
    from isocompute_sdk.health.alerts import Alert
    from isocompute_sdk.notes import Note

    message = f"The logs could not be read {BLIND} times in a row, and nobody is looking at these runs: {error}"
    return Alert(Note("logs-unreadable", "warning", message), BLIND_RUN)
