"""`isocompute status`: how far runs are, one line each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from isocompute_sdk.cli.shared import options as opt
from isocompute_sdk.cli.shared.alerts import AlertOptions, follow_logs
from isocompute_sdk.cli.shared.following import described, follow_study, on_file, say_spending, status_dict
from isocompute_sdk.cli.shared.options import changed_options, with_option_groups
from isocompute_sdk.cli.shared.output import emit_json, say, widest
from isocompute_sdk.cli.shared.reading_options import ReadingOptions
from isocompute_sdk.errors import IsoComputeError, RecordError, SpecError
from isocompute_sdk.phrases import counted, joined, or_unknown, printable

if TYPE_CHECKING:
    from isocompute_sdk.notes import Note
    from isocompute_sdk.records import RunSet
    from isocompute_sdk.run_folders.store import RunStatus

SECONDS_OF_OURS, SECONDS_OF_LOGS = 5.0, 30.0
"""Seconds between two looks: the state of our own runs is small; logs of others may be large."""


@with_option_groups
def status(
    *,
    logs: Annotated[
        list[Path] | None, typer.Argument(help="Folder of a run, a study or a campaign; or any logs.")
    ] = None,
    reading: ReadingOptions,
    watch: Annotated[
        bool, opt.option("Keep checking until all runs have ended, and report problems.", None, "--watch")
    ] = False,
    interval: Annotated[
        float | None,
        typer.Option(help="Seconds between checks: 5 for runs started here, 30 for logs.", min=0.05),
    ] = None,
    alerts: AlertOptions,
    json: Annotated[
        bool, opt.option("Print one JSON document; with --watch one per line.", opt.OUTPUT, "--json")
    ] = False,
) -> None:
    """Show each run's progress and where it runs: its GPUs, or its Slurm or Ray job and the state of that job.

    For the folder of a study or campaign it also shows the predicted best n and those about equal to it, the cost of
    pilot, plan and evaluations, and the budget and time left. --watch fits new measurements at most once a minute and
    rewrites report.html in the folder, which an open browser reloads; without --watch it uses saved fits and writes
    nothing.

    --watch also reports collapse, drift, overfitting and other problems, each once. For logs of runs that were not
    started here it reports only these problems, waits for logs whose parent folder exists, and stops when no log has
    grown for 120 checks. The command of --on-alert is split as a shell does but runs without a shell, so nothing in a
    log is executed; for pipes use 'sh -c "..."'. If it fails, it gets the alert again at the next two checks.

    Unreadable runs are reported last, with exit code 1; so is a failed command when --watch or --once ends.

    Examples:
        isocompute status runs/quick

        isocompute status runs/quick --watch

        isocompute status logs --set n=8 --set problems_per_batch=32

        isocompute status runs/ --watch --on-alert 'mail -s trouble me@example.org'

        isocompute status wandb.csv --watch --once --json
    """
    from isocompute_sdk.campaigns.overview import overview
    from isocompute_sdk.run_folders import store

    reading.refuse_both(logs, "`isocompute status runs/quick`")
    folder = logs[0] if logs and len(logs) == 1 else None
    try:
        folders = store.find_runs(folder) if folder is not None else ()
    except RecordError as error:
        folders, nothing = (), error
    else:
        nothing = None
    if watch:
        ours = folder is not None and (bool(folders) or overview(folder) is not None)
        seconds = interval or (SECONDS_OF_OURS if ours else SECONDS_OF_LOGS)
        watcher = alerts.watcher(logs or (), reading, seconds, json=json)
        if ours and folder is not None and not alerts.once:
            follow_study(folder, watcher, seconds, json=json)
        else:
            follow_logs(watcher, json=json)
        return
    if refused := [*changed_options(alerts), *["--interval"] * (interval is not None)]:
        raise SpecError(f"{refused[0]} works only with --watch", "Add --watch.")
    if not folders or folder is None:
        _of_logs(logs, reading, nothing, json)
    else:
        _of_ours(folder, folders, json=json)


def _of_ours(folder: Path, folders: Sequence[Path], *, json: bool) -> None:
    """Say how far runs are that were started here, and their study.

    Raises:
        RecordError: runs that cannot be read, after the others.
    """
    from isocompute_sdk.training import registry

    found: list[RunStatus] = []
    unreadable: dict[str, IsoComputeError] = {}
    for one in registry.watches(folders):
        try:
            found.append(one.status())
        except IsoComputeError as error:
            unreadable[str(one.folder)] = error
    words = _engine_states(found)
    lines, study, refused = list[str](), dict[str, Any](), None
    if not unreadable:
        try:
            lines, study = on_file(folder)
        except IsoComputeError as error:
            refused = error
    if json:
        damaged = {name: error.message for name, error in unreadable.items()}
        shown = [{**status_dict(one), "job_state": words.get(one.folder)} for one in found]
        emit_json({"kind": "status", "runs": shown, "unreadable": damaged, **study})
    else:
        for one, line in zip(found, described(found, folder), strict=True):
            state = words.get(one.folder)
            say(line + (f": {state}" if state else ""))
        say_spending([one.folder for one in found])
        for line in lines:
            say(line)
    if refused is not None:
        raise refused
    for name, error in unreadable.items():
        raise RecordError(
            f"cannot read {counted(len(unreadable), 'run')}, such as {name}: {error.message}", error.shell_hint
        )


def _of_logs(paths: list[Path] | None, reading: ReadingOptions, nothing: RecordError | None, json: bool) -> None:
    """Say how far runs are that only their logs or tables tell of.

    Raises:
        RecordError: there are no logs either; the error of the folder, which is what was asked about.
    """
    from isocompute_sdk.health.detectors import findings
    from isocompute_sdk.health.findings import FALLS
    from isocompute_sdk.health.live_run import CHANGE_FIRST, is_recipe_first
    from isocompute_sdk.ingest.paths import Listing, is_log, tables_among
    from isocompute_sdk.records.asked import runs_without_sizes
    from isocompute_sdk.records.columns import TRAIN_SETS

    options: dict[str, Any] = {"without_sizes": True} if paths else {}
    try:
        runs = reading.read(paths, reading.metric, **options)
    except RecordError as error:
        # A folder without anything to read is one without runs; whatever can be read says itself what it lacks.
        there = Listing.of(paths[0]).files if paths else []
        if nothing is not None and paths and not (paths[0].is_file() or tables_among(there) or any(map(is_log, there))):
            raise nothing from error
        raise
    rows = _rows(runs, reading.metric)
    found = findings(runs, reading.metric)
    fell = {run: one for run, some in found.items() for one in some if one.code in FALLS}
    flat = _flat(runs, rows, {run: one.rollouts for run, one in fell.items() if one.rollouts is not None})
    sick = {run: [one for one in some if is_recipe_first(one)] for run, some in found.items()}
    for row in rows:
        fall = fell.get(row["run_id"])
        row["fault"] = None if fall is None else FALLS[fall.code]
        row["fault_step"], row["fault_rollouts"] = (None, None) if fall is None else (fall.step, fall.rollouts)
        row["rises"] = row["run_id"] not in flat
        row["trouble"] = [one.code for one in sick.get(row["run_id"], ())]
    if json:
        emit_json({"kind": "status", "runs": rows, "unreadable": {}})
        return
    copied = [note.message for note in runs.notes if "same_as" in note.data]
    for text in dict.fromkeys([*copied, *(note.message for note in flat.values() if note.data["runs"] > 1)]):
        say(printable(text))
    width = widest(row["run_id"] for row in rows)
    several = {one for one in runs.metrics if len({*runs.filter(metric=one).eval_sets} - {*TRAIN_SETS}) > 1}
    for row in rows:
        on = f" on {row['eval_set']}" if row["metric"] in several else ""
        value = f"last {row['metric']}{on} {row['value']:.3f}" if row["metric"] else ""
        rollouts = "?" if row["rollouts"] is None else f"{row['rollouts']:,.0f}"
        n, problems = or_unknown(row["group_size"]), or_unknown(row["problems_per_batch"])
        step = "?" if row["step"] is None else f"{row['step']:,.0f}"
        say(
            printable(
                f"{row['run_id']:<{width}} n = {n:<5} B_p = {problems:<5} step {step:>7}  C = {rollouts:<11} {value}"
            )
        )
        alone = flat.get(row["run_id"])
        if row["run_id"] in fell:
            say(printable(f"    {fell[row['run_id']].fall}"))
        elif alone is not None and alone.data["runs"] == 1:
            say(printable(f"    {alone.message}"))
        for one in found.get(row["run_id"], ()):
            if one.code == "low-last-evaluation":
                say(printable(f"    {one.trouble}"))
        for one in sick.get(row["run_id"], ()):
            say(printable(f"    {one.trouble}; {CHANGE_FIRST}"))
    if unsized := runs_without_sizes(runs):
        unknown = joined(list(dict.fromkeys(name for names in unsized.values() for name in names)))
        command = " ".join(["isocompute doctor", *reading.sources(paths)])
        say(printable(f"C is unknown: {counted(len(unsized), 'run')} without {unknown}; to look for them: {command}"))


def _flat(runs: RunSet, rows: Sequence[Mapping[str, Any]], fell: Mapping[str, float]) -> dict[str, Note]:
    """That a run does not rise in the reward of its row, by run id."""
    from isocompute_sdk.fitting.measured_runs import flat_runs

    found: dict[str, Note] = {}
    for metric, where in dict.fromkeys((row["metric"], row["eval_set"]) for row in rows if row["metric"] is not None):
        shown = {row["run_id"] for row in rows if (row["metric"], row["eval_set"]) == (metric, where)}
        found |= {run: note for run, note in flat_runs(runs, metric, where, fell).items() if run in shown}
    return found


def _rows(runs: RunSet, metric: str | None) -> list[dict[str, Any]]:
    """How far each run of a table is: last step, C, and the last value of its reward."""
    import polars as pl

    from isocompute_sdk.records.asked import runs_without_sizes
    from isocompute_sdk.records.reward_metrics import headline

    unsized = runs_without_sizes(runs)
    rows: list[dict[str, Any]] = []
    for run in runs.to_polars().partition_by("run_id", maintain_order=True):
        unknown = unsized.get(run["run_id"][0], ())
        names = [(m, s) for m, s in zip(run["metric"], run["eval_set"], strict=True) if metric in (None, m)]
        best = headline(names)
        values = None
        if best is not None:
            values = run.filter(pl.col("metric") == best[0], pl.col("eval_set") == best[1])["value"]
        rows.append(
            {
                "run_id": run["run_id"][0],
                "group_size": None if "group_size" in unknown else run["group_size"][0],
                "problems_per_batch": None if "problems_per_batch" in unknown else run["problems_per_batch"][0],
                "step": run["step"].max(),
                "rollouts": None if unknown else run["rollouts"].max(),
                "metric": None if best is None else best[0],
                "eval_set": None if best is None else best[1],
                "value": None if values is None else values[-1],
            }
        )
    return rows


def _engine_states(statuses: Sequence[RunStatus]) -> dict[Path, str]:
    """What the engine of each run says about its job, in its own words; only for engines of other machines."""
    from isocompute_sdk.campaigns.executors import ClusterExecutor, Job
    from isocompute_sdk.campaigns.executors.registry import executors_of
    from isocompute_sdk.run_folders.store import LOCAL
    from isocompute_sdk.training.backend import Launch

    asked = [one.folder for one in statuses if one.engine not in ("", LOCAL)]
    found: dict[Path, str] = {}
    try:
        engines = executors_of(asked)
    except IsoComputeError as error:
        return dict.fromkeys(asked, error.message)
    for folder, engine in engines.items():
        if isinstance(engine, ClusterExecutor):
            handle = engine.adopt(Job(folder.name, Launch(folder, (), ()), folder))
            found[folder] = engine.words([handle])[0] if handle is not None else ""
    return found
