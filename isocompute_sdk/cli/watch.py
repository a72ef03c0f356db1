"""`isocompute watch`: look at runs while they go on, and tell of each trouble once."""

from __future__ import annotations

import json as json_module
import os
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from isocompute_sdk.cli import options as opt
from isocompute_sdk.cli.output import OUTPUT_SCHEMA_VERSION, printable, say
from isocompute_sdk.errors import RecordError, SpecError

if TYPE_CHECKING:
    from isocompute_sdk.health.alerts import Alert, AlertBook, PlannedRun
    from isocompute_sdk.notes import Severity

STATE_FILE = ".isocompute-watch.json"
BLIND = 3
"""Readings that fail in a row, after one that did not, before that is an alert of its own."""
ALL_RUNS = ANYWHERE = ""
"""Stand for the run and the folder of an alert that is about all of them."""

Logs = Annotated[list[Path] | None, typer.Argument(help="Logs of runs, ours or not: files, folders or globs.")]


def watch(
    logs: Logs = None,
    on_alert: Annotated[
        str | None,
        typer.Option(help="Command for every alert; gets it as JSON on stdin and in ISOCOMPUTE_ALERT_* variables."),
    ] = None,
    plan: Annotated[
        Path | None, typer.Option(help="Saved plan: its run is held against the band that its fits predict.")
    ] = None,
    interval: Annotated[float, typer.Option(help="Seconds between two looks.", min=0.05)] = 30.0,
    once: Annotated[bool, typer.Option("--once", help="Look once and end; for cron.")] = False,
    map: Annotated[
        Path | None, typer.Option(help="Confirmed mapping of `isocompute ingest --propose`, in place of logs.")
    ] = None,
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

        isocompute watch --map map.yaml
    """
    if (map is None) == (not logs):
        received = "a mapping and logs" if logs else "neither logs nor a mapping"
        raise SpecError(f"received {received}; accepted: LOGS, or --map FILE", "For example `isocompute watch runs/`.")
    if map is not None and set_:
        raise SpecError("--map with --set; accepted: one of them", "Write what holds for all runs into its `shared`.")
    looked_at = [*(logs or ()), *([map] if map is not None else ())]
    from isocompute_sdk.cli.alert_command import split_command
    from isocompute_sdk.health.alerts import AlertBook

    watcher = _Watcher(
        logs=looked_at,
        map=map,
        reading={"metric": metric, **opt.assignments(set_, "--set")},
        eval_set=eval_set,
        book=AlertBook(_state_file(looked_at) if state is None else state),
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
        raise SpecError(
            f"--plan {path} was fitted on tokens; accepted: a plan fitted on rollouts",
            "Fit the runs on rollouts and plan again.",
        )
    return PlannedRun(plan.group_size, plan.problems_per_batch, fits)


@dataclass(frozen=True)
class _Group:
    """Logs that are read together."""

    paths: list[Path]
    """What is read."""
    files: list[Path]
    """The files behind it, to see whether anything has changed."""


@dataclass
class _Watcher:
    """Looks at logs, and tells of what is new."""

    logs: list[Path]
    map: Path | None
    reading: dict[str, Any]
    eval_set: str | None
    book: AlertBook
    command: list[str] | None
    planned: PlannedRun | None
    least: Severity
    json: bool
    _seen: dict[str, object] = field(default_factory=dict[str, object])
    """Files with their sizes and times by folder, as they were at the last look that worked."""
    _runs: dict[str, int] = field(default_factory=dict[str, int])
    """Runs by folder that was read at least once."""
    _failed: dict[str, int] = field(default_factory=dict[str, int])
    """Readings in a row that failed, by folder."""
    _planned_seen: bool = False
    _complaints: set[str] = field(default_factory=set[str])
    _undelivered: set[tuple[str, ...]] = field(default_factory=set[tuple[str, ...]])

    def look(self) -> None:
        """Read all logs and tell of what is new; a folder that cannot be read does not hide the others.

        Raises:
            RecordError: there is nothing to read, or nothing that can be.
        """
        groups = self._groups()
        errors: list[RecordError] = []
        for folder, group in groups.items():
            try:
                self._look_at(folder, group)
            except RecordError as error:
                errors.append(error)
                self._blind(folder, error)
        if len(errors) == len(groups):
            raise errors[0]

    def look_again(self) -> None:
        """As `look`, going on where nothing can be read for now."""
        try:
            self.look()
            self._failed.pop(ANYWHERE, None)
            self.book.forget(ANYWHERE, ALL_RUNS)
            self._miss_the_planned()
        except (RecordError, OSError) as error:
            self._complain(f"cannot read for now: {' '.join(str(error).split())}")
            if not self._failed.keys() - {ANYWHERE}:
                self._blind(ANYWHERE, error)

    def _groups(self) -> dict[str, _Group]:
        """What to read together, by folder: tables folder by folder, since runs of one name in two are two runs;
        logs of frameworks, which name runs by their folders, as they were asked for."""
        from isocompute_sdk.ingest.logs import find_logs
        from isocompute_sdk.ingest.paths import find_files, holds_journals
        from isocompute_sdk.ingest.walking import Listing

        if self.map is not None:
            return {str(self.map.absolute()): _Group([self.map], [self.map, *_searched(self.map)])}
        found: dict[str, _Group] = {}
        for path in self.logs:
            listing = Listing.of(path)
            sources = [] if holds_journals(listing) else find_logs(listing)
            if sources:
                parts = {part for source in sources for part in (*source.paths, *source.events)}
                below = {file for part in parts for file in (part.iterdir() if part.is_dir() else (part,))}
                found[str(path.absolute())] = _Group([path], sorted(below))
                continue
            for file in find_files(listing, "auto"):
                group = found.setdefault(str(file.parent.absolute()), _Group([], []))
                if file not in group.files:
                    group.paths.append(file)
                    group.files.append(file)
        return found

    def _look_at(self, folder: str, group: _Group) -> None:
        from isocompute_sdk.health.alerts import notes_now
        from isocompute_sdk.health.traces import gather
        from isocompute_sdk.ingest import read_mapped
        from isocompute_sdk.records import RunSet

        state = [(file, file.stat().st_size, file.stat().st_mtime_ns) for file in group.files]
        if state == self._seen.get(folder) and not self._undelivered and folder not in self._failed:
            return
        if all(_has_only_begun(file) for file in group.files):
            return
        if self.map is None:
            runs = RunSet.read(group.paths, on_truncated="drop", on_duplicate="last", **self.reading)
        else:
            runs = read_mapped(self.map)
            for note in runs.notes:
                if note.code in ("run-not-in-mapping", "file-unreadable"):
                    self._complain(note.message)
        self.book.forget_restarted({one.run_id: one.rollouts for one in runs.runs()}, folder)
        self.book.forget(folder, ALL_RUNS)
        traces = gather(runs, self.reading["metric"], self.eval_set)
        self._planned_seen |= self.planned is not None and any(self.planned.is_it(run) for run in traces)
        for alert in self.book.due(notes_now(traces, self.planned), folder, self.least):
            self._tell(alert)
        self._seen[folder], self._runs[folder] = state, len(traces)
        self._failed.pop(folder, None)

    def _blind(self, folder: str, error: Exception) -> None:
        """Complain, and after a few times in a row alert: nobody is looking at these runs."""
        from isocompute_sdk.health.alerts import Alert
        from isocompute_sdk.notes import Note

        self._complain(f"cannot read for now: {' '.join(str(error).split())}")
        self._failed[folder] = self._failed.get(folder, 0) + 1
        known = bool(self._runs) if folder == ANYWHERE else folder in self._runs
        if not known or self._failed[folder] < BLIND:
            return
        message = f"Logs could not be read {BLIND} times in a row, and nobody is looking at these runs: {error}"
        alert = Alert(Note("logs-unreadable", "warning", message), ALL_RUNS, folder)
        if self.book.is_due(alert):
            self._tell(alert)

    def close(self) -> None:
        """Say how it stands after a single look; exit code 1 where a command or a reading failed."""
        self._miss_the_planned()
        if self.json:
            counts = {"runs": sum(self._runs.values()), "unreadable": len(self._failed)}
            self._line({"kind": "watch", **counts, "undelivered": len(self._undelivered)})
        if self._undelivered or self._failed:
            raise SystemExit(1)

    def _miss_the_planned(self) -> None:
        if self.planned is not None and not self._planned_seen:
            n, bp = self.planned.group_size, self.planned.problems_per_batch
            self._complain(f"no run has the plan's n = {n} and B_p = {bp} so far")

    def _tell(self, alert: Alert) -> None:
        from isocompute_sdk.cli.alert_command import run_command

        if self.book.is_new(alert):
            if self.json:
                self._line(alert.to_dict())
            else:
                note = alert.note
                where = f" in {os.path.relpath(alert.folder)}" if alert.folder else ""
                say(printable(f"{time.strftime('%H:%M:%S')} {note.severity} {note.code}{where}: {note.message}"))
            sys.stdout.flush()
        trouble = None if self.command is None else run_command(self.command, alert)
        self.book.record(alert, delivered=trouble is None)
        key = (alert.folder, alert.run_id, alert.note.code, alert.note.severity)
        self._undelivered.discard(key)
        if trouble is not None:
            self._complain(f"--on-alert: {trouble}")
            if self.book.is_due(alert):
                self._undelivered.add(key)

    def _complain(self, text: str) -> None:
        """Each thing once."""
        if text not in self._complaints:
            print(printable(text), file=sys.stderr, flush=True)
            self._complaints.add(text)

    def _line(self, payload: dict[str, Any]) -> None:
        say(json_module.dumps({"schema_version": OUTPUT_SCHEMA_VERSION, **payload}, allow_nan=False))


def _searched(map: Path) -> list[Path]:
    """The files behind a mapping."""
    from isocompute_sdk.ingest import RunMap
    from isocompute_sdk.ingest.walking import Listing

    return sorted({file for one in RunMap.load(map).searched for file in Listing.of(map.parent / one).files})


def _has_only_begun(file: Path) -> bool:
    """Whether a file is the journal of a run that has not measured anything yet."""
    from isocompute_sdk.ingest.journal import looks_like_journal, read_journal

    return looks_like_journal(file) and not read_journal(file, "drop").columns["value"]
