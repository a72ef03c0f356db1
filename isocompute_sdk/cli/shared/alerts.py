"""Alerts of `isocompute status --watch`: logs are read again and again, and each problem is reported once."""

from __future__ import annotations

import contextlib
import glob
import json as json_module
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from isocompute_sdk.cli.shared import options as opt
from isocompute_sdk.cli.shared.output import OUTPUT_SCHEMA_VERSION, in_a_line, say
from isocompute_sdk.cli.shared.reading_options import ReadingOptions
from isocompute_sdk.errors import IsoComputeError, RecordError, SpecError
from isocompute_sdk.phrases import counted, duration, printable

if TYPE_CHECKING:
    from isocompute_sdk.health.alerts import Alert, AlertBook, PlannedRun
    from isocompute_sdk.notes import Severity
    from isocompute_sdk.records import RunSet

STATE_FILE = ".isocompute-watch.json"
STILL_LOOKS, STILL_SECONDS = 120, 60.0
"""Looks, and at least seconds, for which no log has grown when there is nothing left to watch: an hour by default."""
BLIND = 3
"""Failed readings in a row, after a successful one, that give an alert."""
ALL_RUNS = ANYWHERE = ""
"""Run and folder of an alert that is about all of them."""
COMMAND_SECONDS = 60.0
"""Longest time a command may take: watching stops meanwhile."""
MAX_VARIABLE = 4000
"""Characters of an environment variable: the system limits them, and run names come from outside."""
PREFIX = "ISOCOMPUTE_ALERT_"
_PANEL = "Alerts, with --watch"


@dataclass(frozen=True, kw_only=True)
class AlertOptions:
    """Which alerts to give, and to whom, as typed on the command line."""

    once: Annotated[bool, opt.option("Check once, report new alerts and exit; for cron.", _PANEL, "--once")] = False
    on_alert: Annotated[
        str | None,
        opt.option(
            "Command to run on each alert; gets it as JSON on stdin and in ISOCOMPUTE_ALERT_* variables.", _PANEL
        ),
    ] = None
    plan: Annotated[Path | None, opt.option("Saved plan: compares its run with the predicted band.", _PANEL)] = None
    info: Annotated[bool, opt.option("Also report notes of severity info.", _PANEL, "--info")] = False
    eval_set: opt.EvalSet = None
    state: Annotated[
        Path | None, opt.option(f"File that remembers past alerts; by default {STATE_FILE} beside the logs.", _PANEL)
    ] = None

    def watcher(self, logs: Sequence[Path], reading: ReadingOptions, interval: float, *, json: bool) -> Watcher:
        """The watcher of these logs, or of the mapping.

        Raises:
            RecordError: a path that can never hold logs.
            SpecError: a plan without a band, or a command that is none.
        """
        from isocompute_sdk.health.alerts import AlertBook

        for path in logs:
            refuse_hopeless(path)
        if reading.map is not None:
            from isocompute_sdk.ingest import RunMap

            # Only a person can mend it; later on it may be in the middle of being written.
            RunMap.load(reading.map).readings(str(reading.map))
        first = reading.map if reading.map is not None else logs[0]
        watcher = Watcher(
            logs=[first] if reading.map is not None else list(logs),
            map=reading.map,
            reading={"metric": reading.metric, **reading.arguments()},
            eval_set=self.eval_set,
            book=AlertBook(state_file(first) if self.state is None else self.state),
            command=None if self.on_alert is None else split_command(self.on_alert),
            planned=None if self.plan is None else _planned(self.plan),
            least="info" if self.info else "warning",
            interval=None if self.once else interval,
            give=partial(_give, json=json),
        )
        try:
            # Where alerts cannot be remembered, better now than at the first one.
            watcher.book.save()
        except IsoComputeError as error:
            raise error.in_shell("It remembers past alerts: name another file with --state.") from None
        return watcher


def _give(alert: Alert, *, json: bool) -> None:
    """Print an alert at once."""
    document = {"schema_version": OUTPUT_SCHEMA_VERSION, **alert.to_dict()}
    say(json_module.dumps(document, allow_nan=False) if json else describe_alert(alert))
    sys.stdout.flush()


def describe_alert(alert: Alert) -> str:
    """One alert on one line."""
    note = alert.note
    where = f" in {os.path.relpath(alert.folder)}" if alert.folder else ""
    return printable(f"{time.strftime('%H:%M:%S')} {note.severity} {note.code}{where}: {note.message}")


def follow_logs(watcher: Watcher, *, json: bool) -> None:
    """Look once, or again and again until Ctrl-C or until no log has grown for long.

    Raises:
        SystemExit: with code 1 at the end if a command or a reading failed.
    """
    if watcher.interval is None:
        watcher.look()
        _close(watcher, json=json)
        # Silence alone could also mean that nothing was found to look at.
        seen = f"checked {counted(watcher.runs, 'run')}"
        print(f"{seen}; alerts already reported are not repeated ({watcher.book.path})", file=sys.stderr)
        return
    try:
        longest, told = max(STILL_SECONDS, STILL_LOOKS * watcher.interval), False
        while (quiet := watcher.look_again()) < longest:
            if watcher.runs and not told:
                watched = f"watching {counted(watcher.runs, 'run')} every {watcher.interval:g} s"
                ends = f"the last log grew {duration(quiet)} ago; stops when none has grown for {duration(longest)}"
                print(f"{watched}: {ends}", file=sys.stderr, flush=True)
                told = True
            time.sleep(watcher.interval)
        print(f"no log has grown for {duration(quiet)}: the runs have ended or hung. Stopped watching", file=sys.stderr)
        _close(watcher, json=json)
    except KeyboardInterrupt:
        print("stopped; past alerts are remembered", file=sys.stderr)


def _close(watcher: Watcher, *, json: bool) -> None:
    watcher.miss_the_planned()
    if json:
        counts = {"runs": watcher.runs, "unreadable": len(watcher.failed), "undelivered": len(watcher.undelivered)}
        say(json_module.dumps({"schema_version": OUTPUT_SCHEMA_VERSION, "kind": "watch", **counts}))
    if watcher.undelivered or watcher.failed:
        raise SystemExit(1)


def _planned(path: Path) -> PlannedRun:
    from isocompute_sdk.health.alerts import PlannedRun
    from isocompute_sdk.planning import Plan

    plan = Plan.load(path)
    fits = plan.fits
    if fits is None or fits.surface is None:
        raise SpecError(
            f"--plan {path} predicts no band (its fits: {'none' if fits is None else fits.method}); accepted: a plan "
            "from fits of method 'surface'",
            "Plan from your own runs: isocompute allocate RUNS --budget ... --output plan.json.",
        )
    if fits.compute != "log10_rollouts":
        raise SpecError(
            f"--plan {path} was fitted on tokens; accepted: a plan fitted on rollouts",
            "Fit the runs on rollouts and plan again.",
        )
    return PlannedRun(plan.group_size, plan.problems_per_batch, fits)


@dataclass
class Watcher:
    """Reads logs and reports new alerts."""

    logs: list[Path]
    map: Path | None
    reading: dict[str, Any]
    eval_set: str | None
    book: AlertBook
    command: list[str] | None
    planned: PlannedRun | None
    least: Severity
    give: Callable[[Alert], None]
    interval: float | None
    """Seconds between two looks; None: a single look."""
    waits_in_silence: bool = False
    """Whether paths that never held logs are not worth a line."""
    failed: dict[str, int] = field(default_factory=dict[str, int])
    """Failed readings in a row, by folder."""
    undelivered: set[tuple[str, ...]] = field(default_factory=set[tuple[str, ...]])
    """Alerts whose command failed."""
    _files: dict[str, object] = field(default_factory=dict[str, object])
    """By folder, its files with sizes and times at the last successful look."""
    _grown: float = 0.0
    """When a log was last written."""
    _runs: dict[str, int] = field(default_factory=dict[str, int])
    """Number of runs by folder that was read at least once."""
    _held: set[str] = field(default_factory=set[str])
    """Paths that held logs at least once."""
    _missing: set[str] = field(default_factory=set[str])
    """Paths without logs at the last look."""
    _planned_seen: bool = False
    _complaints: set[str] = field(default_factory=set[str])

    @property
    def runs(self) -> int:
        """Runs that were read at least once."""
        return sum(self._runs.values())

    def look(self) -> None:
        """Read all logs and report new alerts; an unreadable folder does not hide the others.

        Raises:
            RecordError: no logs, or none that can be read.
        """
        groups, missing = together(self.logs, self.map)
        self._held |= {*map(str, self.logs)} - missing.keys()
        for path in self._missing - missing.keys():
            self._recovered(path)
        self._missing = set(missing)
        errors: dict[str, RecordError] = dict(missing)
        for folder, paths in groups.items():
            try:
                self._look_at(folder, paths)
            except RecordError as error:
                errors[folder] = error
        alone = len(errors) == len(groups) + len(missing)
        for where, error in errors.items() if self.interval is not None or not alone else ():
            self._blind(where, error)
        if alone:
            raise next(iter(errors.values()))

    def look_again(self) -> float:
        """As `look`, without raising when nothing can be read yet.

        Returns:
            Seconds since a log last grew; 0 while logs or the delivery of an alert are waited for.
        """
        try:
            self.look()
            self._recovered(ANYWHERE)
            self.miss_the_planned()
        except (IsoComputeError, OSError) as error:
            if self.failed.keys() - {ANYWHERE}:
                self._complain_of(error, known=bool(self._runs))
            else:
                self._blind(ANYWHERE, error)
        waits = self._missing or self.undelivered or not self._files
        return 0.0 if waits else time.time() - self._grown

    def _recovered(self, folder: str) -> None:
        self.failed.pop(folder, None)
        self.book.forget(folder, ALL_RUNS)

    def _look_at(self, folder: str, paths: Mapping[Path, Sequence[Path]]) -> None:
        from isocompute_sdk.health.alerts import notes_now
        from isocompute_sdk.health.traces import gather
        from isocompute_sdk.records.asked import runs_without_sizes

        files = [file for some in paths.values() for file in some]
        state = [(file, file.stat().st_size, file.stat().st_mtime_ns) for file in files]
        self._grown = max([self._grown, *(written / 1e9 for _, _, written in state)])
        if state == self._files.get(folder) and not self.undelivered and folder not in self.failed:
            return
        if all(_has_only_begun(file) for file in files):
            return
        runs = self._read(list(paths))
        self.book.forget_restarted({one.run_id: one.rollouts for one in runs.runs()}, folder)
        self._recovered(folder)
        if self.eval_set is not None and self.eval_set not in runs.eval_sets:
            there = ", ".join(runs.eval_sets)
            self._complain(f"no run has the evaluation set {self.eval_set!r} so far; found: {there}")
        traces = gather(runs, self.reading["metric"], self.eval_set)
        self._planned_seen |= self.planned is not None and any(self.planned.is_it(run) for run in traces)
        for alert in self.book.due(notes_now(traces, self.planned, [*runs_without_sizes(runs)]), folder, self.least):
            self._tell(alert)
        self._files[folder], self._runs[folder] = state, len(traces)

    def _read(self, paths: list[Path]) -> RunSet:
        from isocompute_sdk.ingest import RunMap, read_mapped
        from isocompute_sdk.records import RunSet

        if self.map is None:
            return RunSet.read(paths, on_duplicate="last", without_sizes=True, **self.reading)
        runs = read_mapped(self.map, RunMap.load(self.map).told(**self.reading))
        for note in runs.notes:
            if note.code in ("run-left-out", "files-not-read"):
                self._complain(note.message)
        return runs

    def _blind(self, folder: str, error: Exception) -> None:
        """Warn, and after a few failures in a row give an alert: these runs are not being watched."""
        from isocompute_sdk.health.alerts import Alert
        from isocompute_sdk.notes import Note

        known = bool(self._runs) if folder == ANYWHERE else folder in self._runs or folder in self._held
        self._complain_of(error, known=known)
        self.failed[folder] = self.failed.get(folder, 0) + 1
        if not known or self.failed[folder] < BLIND:
            return
        message = f"Logs could not be read {BLIND} times in a row; these runs are no longer watched: {in_a_line(error)}"
        alert = Alert(Note("log-damaged", "warning", message), ALL_RUNS, folder)
        if self.book.is_due(alert):
            self._tell(alert)

    def miss_the_planned(self) -> None:
        """Say that the plan's run was not there."""
        if self.planned is not None and not self._planned_seen:
            n, bp = self.planned.group_size, self.planned.problems_per_batch
            self._complain(f"no run has the plan's n = {n} and B_p = {bp} so far")

    def _tell(self, alert: Alert) -> None:
        if self.book.is_new(alert):
            self.give(alert)
        trouble = None if self.command is None else run_command(self.command, alert)
        self.book.record(alert, delivered=trouble is None)
        self.undelivered.discard(alert.key)
        if trouble is not None:
            self._complain(f"--on-alert: {trouble}")
            if self.book.is_due(alert):
                self.undelivered.add(alert.key)

    def _complain(self, text: str) -> None:
        """Print each text once."""
        if text not in self._complaints:
            print(printable(text), file=sys.stderr, flush=True)
            self._complaints.add(text)

    def _complain_of(self, error: Exception, *, known: bool) -> None:
        """Print each reading error once; paths that never held logs are waited for."""
        text = in_a_line(error)
        if known or self.interval is None:
            self._complain(f"cannot read yet: {text}")
        elif not self.waits_in_silence:
            self._complain(f"waiting, checking every {self.interval:g} s until Ctrl-C: {text}")


def _has_only_begun(file: Path) -> bool:
    """Whether a file is the journal of a run without a measurement yet."""
    from isocompute_sdk.ingest.formats.registry import journal_of

    form = journal_of(file)
    return form is not None and form.journal is not None and not form.journal.read(file).columns["value"]


def together(
    logs: Sequence[Path], map: Path | None
) -> tuple[dict[str, dict[Path, Sequence[Path]]], dict[str, RecordError]]:
    """Paths to read together with their files, by folder; and for each path without logs the reason.

    Tables are read folder by folder, since runs of one name in two are two runs; logs of frameworks, which name runs by
    their folders, as they were asked for.

    Args:
        logs: files, folders and globs.
        map: a mapping in their place.
    """
    from isocompute_sdk.ingest.find import find_logs
    from isocompute_sdk.ingest.paths import Listing, find_files, holds_journals

    if map is not None:
        return {str(map.absolute()): {map: [map, *_searched(map)]}}, {}
    found: dict[str, dict[Path, Sequence[Path]]] = {}
    missing: dict[str, RecordError] = {}
    for path in logs:
        listing = Listing.of(path)
        sources = [] if holds_journals(listing) else find_logs(listing)
        if sources:
            found[str(path.absolute())] = {path: sorted({file for source in sources for file in source.files})}
            continue
        try:
            for file in find_files(listing, "auto"):
                found.setdefault(str(file.parent.absolute()), {})[file] = [file]
        except RecordError as error:
            missing[str(path)] = error
    return found, missing


def _searched(map: Path) -> list[Path]:
    """The files behind a mapping."""
    from isocompute_sdk.ingest import RunMap
    from isocompute_sdk.ingest.paths import Listing

    return sorted({file for one in RunMap.load(map).searched for file in Listing.of(map.parent / one).files})


def refuse_hopeless(path: Path) -> None:
    """Raise on a path that can never hold logs; a path that training may still create is accepted.

    Raises:
        RecordError: its parent folder does not exist, or it is a file of an unknown format.
    """
    from isocompute_sdk.ingest.paths import format_of, is_log

    home = _home(path)
    if not home.is_dir():
        there = next(above for above in (*home.parents, Path()) if above.is_dir())
        what = "is a file, not a folder" if home.exists() else "does not exist"
        raise RecordError(
            f"{path} will not appear: folder {home} {what}",
            f"Correct the path; or watch {there}: it is searched at any depth, now and later.",
        )
    if path.is_file() and not is_log(path):
        format_of(path)


def state_file(path: Path) -> Path:
    """File that remembers alerts: inside a folder of logs, or beside a file or a folder that does not exist yet."""
    home = _home(path)
    pattern = home != path.parent or (glob.has_magic(path.name) and not path.exists())
    beside = home / (STATE_FILE if pattern else f".{path.name}{STATE_FILE}")
    # A folder that was waited for has it beside itself.
    return path / STATE_FILE if path.is_dir() and not (path.name and beside.is_file()) else beside


def _home(path: Path) -> Path:
    """The parent folder; for a glob the last folder before its first wildcard."""
    home = path.parent
    while not path.exists() and glob.has_magic(str(home)):
        home = home.parent
    return home


def split_command(text: str) -> list[str]:
    """The words of a command as typed; no shell is involved.

    Raises:
        SpecError: an empty text, or a quote that is not closed.
    """
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise SpecError(f"--on-alert {text!r}: {error}", "Close the quote.") from error
    if not words:
        raise SpecError("--on-alert is empty; accepted: a command with its arguments", "For example 'notify-send'.")
    return words


def run_command(words: list[str], alert: Alert) -> str | None:
    """Run a command with an alert as JSON on its input and in variables `ISOCOMPUTE_ALERT_*`; the problem, or None.

    Its output goes to stderr, so that stdout holds alerts only.
    """
    fields = alert.to_dict()
    body = json_module.dumps({"schema_version": OUTPUT_SCHEMA_VERSION, **fields}, allow_nan=False) + "\n"
    variables = {
        PREFIX + name.upper(): _variable(fields[name])
        for name in ("code", "severity", "run_id", "folder", "step", "rollouts", "message")
    }
    try:
        # A group of its own, so that what a shell has started ends with it.
        process = subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=2,
            text=True,
            encoding="utf-8",
            env={**os.environ, **variables},
            start_new_session=True,
        )
    except OSError as error:
        return f"{words[0]} cannot be run: {error.strerror}"
    try:
        process.communicate(body, timeout=COMMAND_SECONDS)
    except subprocess.TimeoutExpired:
        return f"{words[0]} took longer than {COMMAND_SECONDS:.0f} s and was stopped"
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return None if process.returncode == 0 else f"{words[0]} ended with exit code {process.returncode}"


def _variable(value: object) -> str:
    text = "" if value is None else f"{value:.10g}" if isinstance(value, float) else str(value)
    return text.replace("\0", "")[:MAX_VARIABLE]
