"""`isocompute doctor`: the runs in a folder, what looks wrong with each; one table of them, or their speed."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from isocompute_sdk.cli.shared import options as opt
from isocompute_sdk.cli.shared.display import print_notes
from isocompute_sdk.cli.shared.options import YAML, with_option_groups
from isocompute_sdk.cli.shared.output import emit_json, say, widest
from isocompute_sdk.cli.shared.probing import save_speed
from isocompute_sdk.cli.shared.reading_options import ReadingOptions
from isocompute_sdk.cli.shared.typed import filled, with_numbers
from isocompute_sdk.errors import RecordError, SpecError
from isocompute_sdk.notes import Note
from isocompute_sdk.phrases import counted, listed, printable, short

if TYPE_CHECKING:
    from isocompute_sdk.ingest.doctor import Diagnosis, RunFinding
    from isocompute_sdk.records import RunSeries, RunSet
    from isocompute_sdk.records.grouping import Group

WRITERS = {".parquet": "write_parquet", ".csv": "write_csv", ".jsonl": "write_ndjson"}
SPEED = "Speed"
AFTER_A_FALL = {"collapse": "use only the data before it", "decay": "keep the best checkpoint"}
"""What to do about a run that fell."""


@with_option_groups
def doctor(
    *,
    paths: Annotated[
        list[Path] | None, typer.Argument(help="Folders, files or globs with logs or tables.", readable=False)
    ] = None,
    output: Annotated[
        Path | None,
        opt.option(
            "Write the runs here as one table (.parquet, .csv, .jsonl), or the open questions as a mapping to fill in "
            "(.yaml). With --speed: the throughput (.yaml).",
            None,
            "--output",
            "-o",
        ),
    ] = None,
    where: Annotated[
        list[str] | None,
        opt.option(
            "With --output, keep only runs with this value, e.g. --where train_data=math; null means unknown. "
            "Repeatable, also for several values of one column."
        ),
    ] = None,
    reading: ReadingOptions,
    speed: Annotated[bool, opt.option("Measure seconds per step and write them.", SPEED, "--speed")] = False,
    seconds: Annotated[str | None, opt.option("Metric that holds seconds per step.", SPEED)] = None,
    gpus: Annotated[int | None, opt.count("--gpus", "GPUs per run; as the logs say by default.", SPEED)] = None,
    usd_per_gpu_hour: Annotated[
        float | None, opt.quantity("--usd-per-gpu-hour", "Dollars per GPU-hour, saved with the speed.", SPEED)
    ] = None,
    json: opt.Json = False,
) -> None:
    """Check runs before fitting them: one line per run, with its problems and what to do about each.

    Ends with `ready`, a `question` or `not usable`, and the next command to run. Unreadable files are listed too;
    if no file can be read, the exit code is 1. Runs of one group may be pooled.

    --output writes all readable runs as one table and warns about the others. n and B_p come from the configuration
    saved beside a log, or from --set. For runs with odd names, --output map.yaml collects what the files say, with
    evidence: fill it in once, then read everything with --map. --speed writes the speed of the runs for --throughput.

    Examples:
        isocompute doctor logs

        isocompute doctor logs --output runs.parquet

        isocompute doctor logs exports/*.csv --output map.yaml

        isocompute doctor --map map.yaml --output runs.parquet

        isocompute doctor runs.csv --where train_data=math --output math.parquet

        isocompute doctor logs --speed --gpus 8
    """
    from isocompute_sdk.ingest import diagnose, diagnose_map

    reading.refuse_both(paths, "`isocompute doctor runs/`")
    if speed:
        from isocompute_sdk.timing.measuring import gpus_of

        runs = reading.read(paths, reading.metric)
        if gpus is None and not gpus_of(runs, seconds):
            raise SpecError("--speed without --gpus: these logs do not say how many GPUs each run had", "Add --gpus N.")
        source = " ".join(reading.sources(paths))
        save_speed(runs, gpus, seconds, usd_per_gpu_hour, output, source=source, json=json)
        return
    for option, value in (("--seconds", seconds), ("--gpus", gpus), ("--usd-per-gpu-hour", usd_per_gpu_hour)):
        if value is not None:
            raise SpecError(f"{option} works only with --speed", "Add --speed.")
    if where and output is None:
        raise SpecError("--where works only with --output", "Add --output runs.parquet.")
    if output is not None:
        _convert(paths or [], output, where, reading, json)
        return
    if reading.map is not None:
        found = diagnose_map(reading.map, reading.mapping(reading.metric))
        found = replace(found, next=" ".join([found.next, *reading.words()]))
    else:
        found = diagnose(paths or [], metric=reading.metric, **reading.arguments())
        found = replace(found, next=_of_tables(found, reading.sources(paths), reading.metric) or found.next)
    # Where a question is open, no other command reads these files.
    ready = found.verdict == "ready"
    causes = {one.metric: _causes(found, one.metric, reading, paths) if ready else "" for one in found.runs}
    found = replace(found, runs=tuple(_with_troubles(one, causes[one.metric]) for one in found.runs))
    groups = _grouped(found.runs)
    found = replace(found, remarks=(*_no_rise(groups), *found.remarks))
    numbers = {id(one): number for number, (_, members) in enumerate(groups, start=1) for one in members}
    if json:
        listed = [{**one.to_dict(), "context_group": numbers.get(id(one))} for one in found.runs]
        ending = {"remarks": found.remarks, "verdict": found.verdict, "question": found.question, "next": found.next}
        emit_json({"kind": "doctor", "runs": listed, "groups": [group.context for group, _ in groups], **ending})
    else:
        _print(found, [group for group, _ in groups], numbers)
    if not found.usable:
        raise RecordError(
            f"not usable: 0 of {len(found.runs)} can be read",
            "Do what the lines above say, then run the command again.",
        )


def _causes(found: Diagnosis, metric: str | None, reading: ReadingOptions, paths: Sequence[Path] | None) -> str:
    """The command that names causes, with a metric and the bounds of all runs that have it, unless usual."""
    import numpy as np

    from isocompute_sdk.records.reward_metrics import bounds_option

    words = reading.sources(paths)
    values = [series.value_T for one in found.runs if one.metric == metric for series in _rewards(one)]
    if values and (bounds := bounds_option(np.concatenate(values))) != "--bounds 0 1":
        words += [*([] if reading.metric or metric is None else [f"--metric {quote(metric)}"]), bounds]
    return " ".join(["isocompute forecast", *words, "-v"])


def _with_troubles(finding: RunFinding, causes: str) -> RunFinding:
    """The finding, with what is wrong with its run, and the command that names causes, if there is one."""
    from isocompute_sdk.health.detectors import findings
    from isocompute_sdk.health.findings import ADVICE, FALLS
    from isocompute_sdk.health.live_run import CHANGE_FIRST, is_recipe_first

    if finding.runs is None or finding.metric is None:
        return finding
    found = [one for some in findings(finding.runs, finding.metric).values() for one in some]
    named = causes and f"; {causes} names likely causes"
    fell = [(one.fall, f"{AFTER_A_FALL[FALLS[one.code]]}{named}") for one in found if one.code in FALLS]
    low = [(one.trouble, ADVICE[one.code].tries[0]) for one in found if one.code == "low-last-evaluation"]
    sick = [one.trouble for one in found if is_recipe_first(one)]
    return finding.saying(*fell, *low, *((text, f"{CHANGE_FIRST}{named}") for text in sick))


def _grouped(findings: Sequence[RunFinding]) -> list[tuple[Group, list[RunFinding]]]:
    """Each group of runs that may be pooled, as an audit groups them, with its members."""
    from isocompute_sdk.fitting.measured_runs import grouped

    readable = [one for one in findings if one.runs is not None and one.metric is not None]
    infos = [(info, one) for one in readable if one.runs is not None for info in one.runs.runs()]
    owners = {id(info): one for info, one in infos}
    rewards = {run.run_id: run for one in readable for run in _rewards(one)}
    found = grouped([info for info, _ in infos], rewards)
    return [(group, [owners[id(run)] for run in group.runs]) for group in found]


def _rewards(finding: RunFinding, metric: str | None = None) -> list[RunSeries]:
    """The reward of a run, or another metric, on each of its evaluation sets."""
    metric = metric or finding.metric
    if finding.runs is None or metric is None or metric not in finding.runs.metrics:
        return []
    measured = finding.runs.filter(metric=metric)
    return [one for where in measured.eval_sets for one in measured.series(metric, where)]


def _no_rise(groups: Sequence[tuple[Group, Sequence[RunFinding]]]) -> list[str]:
    """Of each group whose rewards do not rise, all runs together, that they do not."""
    from isocompute_sdk.records.reward_metrics import no_rise, no_rise_note

    found: list[str] = []
    for number, (_, members) in enumerate(groups, start=1):
        for metric in dict.fromkeys(one.metric for one in members if one.metric is not None):
            mine = {run.run_id: run.value_T for one in members for run in _rewards(one, metric)}
            if no_rise(mine.values()):
                group = f"group {number}: " if len(groups) > 1 else ""
                found.append(f"{group}{no_rise_note(metric, len(mine)).message}")
    return found


def _print(found: Diagnosis, groups: Sequence[Group], numbers: Mapping[int, int]) -> None:
    names = Counter(finding.name for finding in found.runs)
    width = widest(finding.name for finding in found.runs)
    for remark in found.remarks:
        say(printable(remark))
    all_told = Counter(pair for one in found.runs for pair in zip(one.problems, one.advice, strict=True))
    for finding in found.runs:
        say(describe(finding, width, numbers.get(id(finding)), with_source=names[finding.name] > 1))
        for problem, advice in zip(finding.problems, finding.advice, strict=True):
            # What is true of many runs is said of the first.
            if count := all_told.pop((problem, advice), 0):
                others = f" (same in {counted(count - 1, 'other run')})" if count > 1 else ""
                say(printable(f"    {problem}{others}"))
                say(printable(f"      -> {filled(advice, sys.argv[1:])}"))
    for number, group in enumerate(groups, start=1):
        stated = dict(group.context)
        if group.base_reward is not None and sum(one.context == group.context for one in groups) > 1:
            stated["reward at step 0"] = f"{group.base_reward:.3f}"
        known = ", ".join(f"{name} {v:.6g}" if isinstance(v, float) else f"{name} {v}" for name, v in stated.items())
        say(printable(f"group {number}: {known or 'context unknown'}"))
    if found.verdict == "ready":
        copies = sum(finding.readable and finding.runs is None for finding in found.runs)
        ready = sum(finding.readable for finding in found.runs) - copies
        more = f"; {copies} {'copy is' if copies == 1 else 'copies are'} left out" if copies else ""
        empty = sum(finding.empty for finding in found.runs)
        say(f"ready: {ready} of {len(found.runs) - copies - empty} can be read{more}")
    elif found.question is not None:
        say(printable(f"question: {found.question}"))
    if found.usable:
        say(printable(with_numbers(found.next)))


def describe(finding: RunFinding, width: int, group: int | None, *, with_source: bool = False) -> str:
    """One run on one line, with its group; with its file if several runs share its name."""
    name = printable(finding.name)
    start = f"{name:<{width}}  n = {finding.group_size:<5} B_p = {finding.problems_per_batch:<5}"
    if not finding.readable:
        return f"{start} not readable yet"
    guess = "?" * ("?" in f"{finding.group_size}{finding.problems_per_batch}")
    spent = finding.rollouts_spent
    more = f" ({spent:,.0f} spent)" if spent is not None and spent > (finding.rollouts or 0) else ""
    base = " + step 0" if finding.with_base else ""
    attempts = f", {finding.attempts} attempts" if finding.attempts > 1 else ""
    return (
        f"{start} C = {finding.rollouts:,.0f}{guess}{more}  {finding.evaluations} x {finding.metric}{base}{attempts}"
        f"{'' if group is None else f', group {group}'}{f', {printable(finding.source)}' if with_source else ''}"
    )


def _convert(paths: list[Path], output: Path, where: list[str] | None, reading: ReadingOptions, json: bool) -> None:
    """Write the runs as one table, or the questions about them as a mapping."""
    from isocompute_sdk.ingest.mapping import asked, map_name
    from isocompute_sdk.ingest.paths import Listing
    from isocompute_sdk.ingest.reader import collect
    from isocompute_sdk.records import RunSet
    from isocompute_sdk.records.asked import runs_without_sizes

    if output.suffix in YAML:
        if reading.map is not None:
            raise SpecError(f"--map with --output {output}; accepted: a table", "Edit the mapping.")
        _propose(paths, output, reading, json)
        return
    if output.suffix not in WRITERS:
        raise SpecError(
            f"--output {output}; accepted: a name that ends in {', '.join((*WRITERS, '.yaml'))}",
            "The suffix of the name chooses the format.",
        )
    # The output file must not be an input, by name or through a glob.
    named = [one for path in paths for one in ([path] if path.exists() else Listing.of(path).below)]
    if output.is_file() and any(one.is_file() and one.samefile(output) for one in named):
        raise SpecError(
            f"--output {output} is one of the files to read; accepted: another file", "Choose another name."
        )
    if reading.map is not None:
        runs = reading.read(None, reading.metric)
    else:
        # Runs whose n or B_p nothing says keep their steps as rollouts, and get a note.
        options = replace(asked(metric=reading.metric, **reading.arguments()), without_sizes=True)
        runs = collect(paths, options, ask=True).together()
    runs = _kept(runs, where)
    unsized, again = runs_without_sizes(runs), " ".join(["isocompute doctor", *reading.sources(paths)])
    lacking = [run for run, columns in unsized.items() if "group_size" in columns]
    if lacking and (sized := [run for run in runs.run_ids if run not in lacking]):
        # One run without n would make the table of all unreadable.
        notes = [one for one in runs.notes if one.code != "sizes-unknown" or not {*one.data["runs"]} <= {*lacking}]
        why = f"{listed(lacking, 4)} left out: n is unknown. To give it: {again} --output {map_name(paths)}"
        notes.append(Note("run-left-out", "warning", why, {"runs": lacking}))
        runs = RunSet(runs.filter(run_id=sized).to_polars(), notes)
        unsized = runs_without_sizes(runs)
    _write(runs, output)
    if json:
        infos = [{**vars(info), "context": dict(info.context)} for info in runs.runs()]
        about = {"metrics": runs.metrics, "eval_sets": runs.eval_sets, "notes": [one.to_dict() for one in runs.notes]}
        emit_json({"kind": "table", "output": str(output), "runs": infos, **about})
        return
    print_notes(runs.notes)
    say(printable(f"wrote {output}: {_held(runs, sized=not unsized)}"))
    if len(unsized) > 1:
        say(f"n and B_p are unknown; to collect what the files say: {again} --output {map_name(paths)}")
    elif unsized:
        say("n and B_p are unknown: add --set group_size=... --set problems_per_batch=... before a fit")
    else:
        target = quote(str(output))
        say(with_numbers(_next(runs, [target], reading.metric, written=True) or f"isocompute doctor {target}"))


def _held(runs: RunSet, *, sized: bool) -> str:
    """What a table holds, in words."""
    infos, sizes = runs.runs(), sorted({info.group_size for info in runs.runs()})
    held = f"{counted(len(infos), 'run')}, {counted(len(runs), 'value')} of {listed(runs.metrics, 8)}"
    n = f"{sizes[0]} to {sizes[-1]}" if len(sizes) > 1 else f"{sizes[0]}"
    return f"{held}; n = {n}, C up to {short(max(info.rollouts for info in infos))}" if sized else held


def _kept(runs: RunSet, where: list[str] | None) -> RunSet:
    """The runs with the values that were asked for."""
    from isocompute_sdk.records.columns import BY_NAME, canonical

    wanted: dict[str, list[object]] = {}
    for name, value in (one for text in where or [] for one in opt.assignments([text], "--where").items()):
        column = canonical(name) or name
        # A data set may be called 2024.
        text = column in BY_NAME and BY_NAME[column].kind == "text"
        asked = None if value in (None, "null", "none", "None") else str(value) if text else value
        wanted.setdefault(column, []).append(asked)
    one_or_more = {column: values[0] if len(values) == 1 else values for column, values in wanted.items()}
    return runs.filter(**one_or_more) if wanted else runs


def _of_tables(found: Diagnosis, sources: Sequence[str], asked: str | None) -> str | None:
    """A command that works on plain tables as they are; None of anything else."""
    runs = [one.runs for one in found.runs if one.runs is not None]
    if found.plain:
        with suppress(RecordError):
            return _next(runs[0].concat(*runs[1:]), sources, asked)
    return None


def _next(runs: RunSet, sources: Sequence[str], asked: str | None, *, written: bool = False) -> str | None:
    """A command that works on these runs: a fit of one group, an audit of several; of n = 1 alone a forecast.

    Args:
        runs: what was read.
        sources: where it lies, and how it is read, as typed.
        asked: the metric that was named.
        written: whether it was written just now, so that nothing in `sources` names the metric.

    Returns:
        None if nothing decides which metric to use.
    """
    from isocompute_sdk.fitting.measured_runs import MeasuredRuns, grouped
    from isocompute_sdk.records.columns import TRAIN_SETS
    from isocompute_sdk.records.grouping import choose_measure, kin
    from isocompute_sdk.records.reward_metrics import bounds_option, two_scales

    try:
        measure = choose_measure(runs, asked if asked in runs.metrics else None)
    except RecordError:
        return None
    table = runs.filter(metric=kin(measure.metric, runs.metrics))
    options = [f"--metric {quote(measure.metric)}"] if written else []
    if len([name for name in table.eval_sets if name not in TRAIN_SETS]) > 1:
        options.append(f"--eval-set {quote(measure.eval_set)}")
    values = table.filter(eval_set=measure.eval_set).to_polars()["value"].to_numpy()
    if (bounds := bounds_option(values)) != "--bounds 0 1":
        options.append(bounds)
    measured = MeasuredRuns.of(runs, measure.metric, measure.eval_set, stand_in=True)
    series = {one.run_id: one for one in measured.series}
    if two_scales(measure.metric, ((run, one.value_T) for run, one in series.items())) is not None:
        return None
    sizes = {info.group_size for info in table.runs()}
    one_group = len(grouped(table.runs(), series)) == 1 and len(sizes) > 1
    command = "fit" if one_group else "forecast" if sizes == {1} else "audit"
    return " ".join([f"isocompute {command}", *sources, *options])


def _propose(paths: list[Path], target: Path, reading: ReadingOptions, json: bool) -> None:
    from isocompute_sdk.ingest import propose
    from isocompute_sdk.ingest.mapping import table_name

    mapping = propose(paths, relative_to=target.parent, metric=reading.metric, **reading.arguments())
    mapping = mapping.keeping(target) if target.exists() else mapping
    mapping.save(target)
    if json:
        emit_json({"kind": "run-map", "output": str(target), "map": mapping.model_dump(mode="json")})
        return
    states = counted(len(mapping.runs), "run") if mapping.runs else "the files state n and B_p of all runs"
    say(f"wrote {target}: {states}")
    for name, run in mapping.runs.items():
        if run.skip:
            say(printable(f"left out (skip: true): {name}: {run.evidence.get('skip', '')}"))
    for question in mapping.open_questions():
        candidates = " | ".join(question.candidates) or "a number"
        say(printable(f"question ({counted(len(question.runs), 'run')}): {question.asks} [{candidates}]"))
    if mapping.open_questions():
        say(f"answer the questions in {target}")
    say(f"next: isocompute doctor --map {quote(str(target))} --output {quote(table_name(target))}")


def _write(runs: RunSet, output: Path) -> None:
    import polars as pl

    from isocompute_sdk.files import saving, write_with
    from isocompute_sdk.records.asked import runs_without_sizes

    frame = runs.to_polars()
    unsized = runs_without_sizes(runs)
    if unsized:
        counted = ("group_size", "problems_per_batch", "rollouts", "rollouts_spent")
        unknown = pl.col("run_id").is_in([*unsized])
        frame = frame.with_columns(pl.when(unknown).then(None).otherwise(pl.col(name)).alias(name) for name in counted)
    # Empty columns carry no information.
    kept = frame.select(series.name for series in frame if series.null_count() < len(series))
    with saving(output):
        write_with(output, getattr(kept, WRITERS[output.suffix]))
