"""`isocompute watch`: read runs in progress and report each problem once."""

from __future__ import annotations

import json as json_module
import os
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from isocompute_sdk.cli.running.watch.watched_paths import STATE_FILE, Together, refuse_hopeless, state_file, together
from isocompute_sdk.cli.shared import options as opt
from isocompute_sdk.cli.shared.option_groups import with_option_groups
from isocompute_sdk.cli.shared.output import OUTPUT_SCHEMA_VERSION, for_shell, say
from isocompute_sdk.cli.shared.reading_options import ReadingOptions
from isocompute_sdk.errors import IsoComputeError, RecordError, SpecError
from isocompute_sdk.phrases import printable

if TYPE_CHECKING:
    from isocompute_sdk.health.alerts import Alert, AlertBook, PlannedRun
    from isocompute_sdk.notes import Severity

STILL_LOOKS, STILL_SECONDS = 120, 60.0
"""Looks, and at least seconds, for which no log has grown when there is nothing left to watch: an hour by default."""
BLIND = 3
"""Failed readings in a row, after a successful one, that give an alert."""
ALL_RUNS = ANYWHERE = ""
"""Run and folder of an alert that is about all of them."""

Logs = Annotated[list[Path] | None, typer.Argument(help="Logs of runs, ours or not: files, folders or globs.")]


@with_option_groups
def watch(
    *,
    logs: Logs = None,
    on_alert: Annotated[
        str | None,
        typer.Option(help="Command for every alert; gets it as JSON on stdin and in ISOCOMPUTE_ALERT_* variables."),
    ] = None,
    plan: Annotated[
        Path | None, typer.Option(help="Saved plan: compares its run with the band that its fits predict.")
    ] = None,
    interval: Annotated[float, typer.Option(help="Seconds between two looks.", min=0.05)] = 30.0,
    once: Annotated[bool, typer.Option("--once", help="Look once and end; for cron.")] = False,
    info: Annotated[bool, typer.Option("--info", help="Also report notes of severity info.")] = False,
    eval_set: opt.EvalSet = None,
    reading: ReadingOptions,
    state: Annotated[
        Path | None, typer.Option(help=f"File of the alerts given so far; {STATE_FILE} beside the logs by default.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document a line.")] = False,
) -> None:
    """Watch runs in progress and report collapse, drift, overfitting and other problems, each once.

    The command of --on-alert is split into words as a shell would and runs without one, so that nothing in a log can
    become part of it; for pipes use 'sh -c "..."'. A failed command gets the alert again at the next two looks. Waits
    for logs whose parent folder exists. Ends with Ctrl-C, and when no log has grown for 120 looks. With --once and at
    such an end: exit code 0, or 1 if the command failed or something could not be read.

    Examples:
        isocompute watch runs/ --on-alert 'mail -s trouble me@example.org'

        isocompute watch runs/pilot --plan plan.json --interval 60

        isocompute watch wandb.csv --once --json

        isocompute watch --map map.yaml
    """
    reading.refuse_both(logs, "`isocompute watch runs/`")
    given, map = reading.arguments(), reading.map
    for path in logs or ():
        refuse_hopeless(path)
    if map is not None:
        from isocompute_sdk.ingest import RunMap

        # Only a person can mend it; later on it may be in the middle of being written.
        RunMap.load(map).readings(str(map))
    looked_at = [*(logs or ()), *([map] if map is not None else ())]
    from isocompute_sdk.cli.running.watch.alert_command import split_command
    from isocompute_sdk.health.alerts import AlertBook

    watcher = _Watcher(
        logs=looked_at,
        map=map,
        reading={"metric": reading.metric, **given},
        eval_set=eval_set,
        book=AlertBook(state_file(looked_at[0]) if state is None else state),
        command=None if on_alert is None else split_command(on_alert),
        planned=None if plan is None else _planned(plan),
        least="info" if info else "warning",
        json=json,
        interval=None if once else interval,
    )
    # Where alerts cannot be remembered, better now than at the first one.
    watcher.book.save()
    if once:
        watcher.look()
        watcher.close()
        # Silence alone could also mean that nothing was found to look at.
        seen = watcher.runs
        message = f"looked at {seen:,} run{'' if seen == 1 else 's'}; alerts that were given before are not repeated"
        print(f"{message} ({watcher.book.path})", file=sys.stderr)
        return
    try:
        while True:
            watcher.look_again()
            if (quiet := watcher.quiet_seconds) >= max(STILL_SECONDS, STILL_LOOKS * interval):
                print(f"no log has grown for {_spoken(quiet)}: the runs have ended, or hang. Stopped", file=sys.stderr)
                watcher.close()
                return
            time.sleep(interval)
    except KeyboardInterrupt:
        print("stopped; alerts given so far are remembered", file=sys.stderr)


def _spoken(seconds: float) -> str:
    return (
        f"{seconds:.0f} s"
        if seconds < 600
        else f"{seconds / 60:.0f} min"
        if seconds < 7200
        else f"{seconds / 3600:.0f} h"
    )


def _planned(path: Path) -> PlannedRun:
    from isocompute_sdk.health.alerts import PlannedRun
    from isocompute_sdk.planning import Plan

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


@dataclass
class _Watcher:
    """Reads logs and reports new alerts."""

    logs: list[Path]
    map: Path | None
    reading: dict[str, Any]
    eval_set: str | None
    book: AlertBook
    command: list[str] | None
    planned: PlannedRun | None
    least: Severity
    json: bool
    interval: float | None
    """Seconds between two looks; None: a single look."""
    _seen: dict[str, object] = field(default_factory=dict[str, object])
    """By folder, its files with sizes and times at the last successful look."""
    _grown: float = 0.0
    """When a log was last written."""
    _runs: dict[str, int] = field(default_factory=dict[str, int])
    """Number of runs by folder that was read at least once."""
    _failed: dict[str, int] = field(default_factory=dict[str, int])
    """Failed readings in a row, by folder."""
    _held: set[str] = field(default_factory=set[str])
    """Paths that held logs at least once."""
    _missing: set[str] = field(default_factory=set[str])
    """Paths without logs at the last look."""
    _planned_seen: bool = False
    _complaints: set[str] = field(default_factory=set[str])
    _errors: set[str] = field(default_factory=set[str])
    _undelivered: set[tuple[str, ...]] = field(default_factory=set[tuple[str, ...]])

    @property
    def runs(self) -> int:
        """Runs that were read at least once."""
        return sum(self._runs.values())

    @property
    def quiet_seconds(self) -> float:
        """Time since a log last grew; 0 while logs or the delivery of an alert are waited for."""
        if self._missing or self._undelivered or not self._seen:
            return 0.0
        return time.time() - self._grown

    def look(self) -> None:
        """Read all logs and report new alerts; an unreadable folder does not hide the others.

        Raises:
            RecordError: no logs, or none that can be read.
        """
        groups, missing = together(self.logs, self.map)
        self._held |= {*map(str, self.logs)} - missing.keys()
        for path in self._missing - missing.keys():
            self._failed.pop(path, None)
            self.book.forget(path, ALL_RUNS)
        self._missing = set(missing)
        errors: dict[str, RecordError] = dict(missing)
        for folder, group in groups.items():
            try:
                self._look_at(folder, group)
            except RecordError as error:
                errors[folder] = error
        alone = len(errors) == len(groups) + len(missing)
        for where, error in errors.items() if self.interval is not None or not alone else ():
            self._blind(where, error)
        if alone:
            raise next(iter(errors.values()))

    def look_again(self) -> None:
        """As `look`, without raising when nothing can be read yet."""
        try:
            self.look()
            self._failed.pop(ANYWHERE, None)
            self.book.forget(ANYWHERE, ALL_RUNS)
            self._miss_the_planned()
        except (IsoComputeError, OSError) as error:
            self._complain_of(error, known=bool(self._runs))
            if not self._failed.keys() - {ANYWHERE}:
                self._blind(ANYWHERE, error)

    def _look_at(self, folder: str, group: Together) -> None:
        from isocompute_sdk.health.alerts import notes_now
        from isocompute_sdk.health.traces import gather
        from isocompute_sdk.ingest import RunMap, read_mapped
        from isocompute_sdk.records import RunSet
        from isocompute_sdk.records.table import runs_without_sizes

        state = [(file, file.stat().st_size, file.stat().st_mtime_ns) for file in group.files]
        self._grown = max([self._grown, *(written / 1e9 for _, _, written in state)])
        if state == self._seen.get(folder) and not self._undelivered and folder not in self._failed:
            return
        if all(_has_only_begun(file) for file in group.files):
            return
        if self.map is None:
            runs = RunSet.read(
                group.paths, on_truncated="drop", on_duplicate="last", without_sizes=True, **self.reading
            )
        else:
            told = {name: self.reading[name] for name in ("metric", "rename", "ignore", "set")}
            runs = read_mapped(self.map, RunMap.load(self.map).told(**told))
            for note in runs.notes:
                if note.code in ("run-not-in-mapping", "file-unreadable"):
                    self._complain(note.message)
        self.book.forget_restarted({one.run_id: one.rollouts for one in runs.runs()}, folder)
        self.book.forget(folder, ALL_RUNS)
        if self.eval_set is not None and self.eval_set not in runs.eval_sets:
            there = ", ".join(runs.eval_sets)
            self._complain(f"no run has the evaluation set {self.eval_set!r} so far; there are: {there}")
        traces = gather(runs, self.reading["metric"], self.eval_set)
        self._planned_seen |= self.planned is not None and any(self.planned.is_it(run) for run in traces)
        unsized = runs_without_sizes(runs)
        for alert in self.book.due(notes_now(traces, self.planned, unsized), folder, self.least):
            self._tell(alert)
        self._seen[folder], self._runs[folder] = state, len(traces)
        self._failed.pop(folder, None)

    def _blind(self, folder: str, error: Exception) -> None:
        """Warn, and after a few failures in a row give an alert: these runs are not being watched."""
        from isocompute_sdk.health.alerts import Alert
        from isocompute_sdk.notes import Note

        known = bool(self._runs) if folder == ANYWHERE else folder in self._runs or folder in self._held
        self._complain_of(error, known)
        self._failed[folder] = self._failed.get(folder, 0) + 1
        if not known or self._failed[folder] < BLIND:
            return
        message = f"Logs could not be read {BLIND} times in a row; these runs are not being watched: {for_shell(error)}"
        alert = Alert(Note("logs-unreadable", "warning", message), ALL_RUNS, folder)
        if self.book.is_due(alert):
            self._tell(alert)

    def close(self) -> None:
        """Summarise a single look; exit code 1 if a command or a reading failed."""
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
        from isocompute_sdk.cli.running.watch.alert_command import run_command

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
        self._undelivered.discard(alert.key)
        if trouble is not None:
            self._complain(f"--on-alert: {trouble}")
            if self.book.is_due(alert):
                self._undelivered.add(alert.key)

    def _complain(self, text: str) -> None:
        """Print each text once."""
        if text not in self._complaints:
            print(printable(text), file=sys.stderr, flush=True)
            self._complaints.add(text)

    def _complain_of(self, error: Exception, known: bool) -> None:
        """Print each reading error once; keep waiting for paths that never held logs."""
        text = " ".join(for_shell(error).split())
        if text in self._errors:
            return
        self._errors.add(text)
        waiting = not known and self.interval is not None
        self._complain(
            f"waiting, with a look every {self.interval:g} s until Ctrl-C: {text}"
            if waiting
            else f"cannot read for now: {text}"
        )

    def _line(self, payload: dict[str, Any]) -> None:
        say(json_module.dumps({"schema_version": OUTPUT_SCHEMA_VERSION, **payload}, allow_nan=False))


def _has_only_begun(file: Path) -> bool:
    """Whether a file is the journal of a run without a measurement yet."""
    from isocompute_sdk.ingest.formats.registry import journal_of

    form = journal_of(file)
    return form is not None and form.journal is not None and not form.journal.read(file, "drop").columns["value"]
