"""`isocompute ingest`: logs and tables -> one table of runs."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from isocompute_sdk.cli.shared import options as opt
from isocompute_sdk.cli.shared.display import print_notes
from isocompute_sdk.cli.shared.option_groups import with_option_groups
from isocompute_sdk.cli.shared.output import emit_json, say
from isocompute_sdk.cli.shared.reading_options import ReadingOptions
from isocompute_sdk.errors import RecordError, SpecError
from isocompute_sdk.phrases import printable

if TYPE_CHECKING:
    from isocompute_sdk.ingest.mapping import RunMap
    from isocompute_sdk.records import RunSet

WRITERS = {".parquet": "write_parquet", ".csv": "write_csv", ".jsonl": "write_ndjson"}


@with_option_groups
def ingest(
    *,
    paths: Annotated[list[Path] | None, typer.Argument(help="Logs and tables: files, folders or globs.")] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write the runs here: .parquet, .csv or .jsonl.")
    ] = None,
    propose: Annotated[
        Path | None, typer.Option(help="Write a mapping for you to confirm here (YAML), and read nothing yet.")
    ] = None,
    where: Annotated[
        list[str] | None,
        typer.Option(
            help="Keep only runs with this value, e.g. --where train_data=math; null where it is unknown; repeatable."
        ),
    ] = None,
    reading: ReadingOptions,
    json: opt.Json = False,
) -> None:
    """Read logs (TensorBoard, W&B, MLflow, veRL, TRL, tinker, prime-rl, consoles) and plain tables as one table.

    Logs do not hold n and B_p. They come from the configuration saved beside a log, or from --set. For runs with odd
    names, --propose collects what files say into one mapping, with evidence: correct and confirm it once,
    then read everything with --map. Ambiguous values are questions in that file; none is guessed.

    Files packed with gzip (.gz) are read too.

    Examples:
        isocompute ingest logs --output runs.parquet

        isocompute ingest logs exports/*.csv --propose map.yaml

        isocompute ingest --map map.yaml --output runs.parquet

        isocompute ingest runs.csv --where train_data=math --output math.parquet
    """
    if propose is not None and reading.map is not None:
        raise SpecError("--map with --propose; accepted: --map alone, with --output", "Edit the mapping.")
    reading.refuse_both(paths, "`isocompute ingest PATH --propose map.yaml`")
    if output is not None and output.suffix not in WRITERS:
        raise SpecError(
            f"--output {output}; accepted: a name that ends in {', '.join(WRITERS)}",
            "Choose the format by the end of the name.",
        )
    if propose is not None:
        _propose(paths or [], propose, reading, json)
        return
    if output is not None:
        _refuse_source(output, paths or [])
    runs = _kept(_read(reading, paths), where)
    if output is not None:
        _write(runs, output)
    if json:
        emit_json({"kind": "ingest", "output": None if output is None else str(output), **_summary(runs)})
        return
    print_notes(runs.notes)
    say(repr(runs))
    from isocompute_sdk.records.table import runs_without_sizes

    unsized = runs_without_sizes(runs)
    if output is not None:
        say(f"wrote {output}")
        if len(unsized) > 1:
            shown = " ".join(["isocompute ingest", *_paths(paths, reading.map), *reading.words()])
            say(f"n and B_p are unknown: collect what files say, {shown} --propose map.yaml")
        elif unsized:
            say("n and B_p are unknown: add --set group_size=... --set problems_per_batch=... before a fit")
        else:
            say(f"next: {_next(runs, output, reading.metric)}")
        return
    kept = [f"--where {quote(text)}" for text in where or ()]
    again = " ".join(["isocompute ingest", *_paths(paths, reading.map), *kept, *reading.words()])
    say(f"nothing written\nnext: {again} --output runs.parquet")


def _paths(paths: list[Path] | None, map: Path | None) -> list[str]:
    return [quote(str(path)) for path in paths or ()] if map is None else [f"--map {quote(str(map))}"]


def _read(reading: ReadingOptions, paths: list[Path] | None) -> RunSet:
    """The runs; those whose n or B_p nothing says with their steps as rollouts, and a note."""
    if reading.map is not None:
        return reading.read(paths, reading.metric)
    return reading.read(paths, reading.metric, on_truncated="drop", without_sizes=True)


def _kept(runs: RunSet, where: list[str] | None) -> RunSet:
    """The runs with the values that were asked for."""
    from isocompute_sdk.records.columns import BY_NAME, canonical

    wanted: dict[str, object] = {}
    for name, value in opt.assignments(where, "--where").items():
        column = canonical(name) or name
        # A data set may be called 2024.
        text = column in BY_NAME and BY_NAME[column].kind == "text"
        wanted[column] = None if value in (None, "null", "none", "None") else str(value) if text else value
    return runs.filter(**wanted) if wanted else runs


def _next(runs: RunSet, output: Path, asked: str | None) -> str:
    """A command that works on what was written: a fit of one group, or an audit of several."""
    from isocompute_sdk.auditing.measure_choice import choose_measure
    from isocompute_sdk.records.columns import TRAIN_SETS

    try:
        measure = choose_measure(runs, asked if asked in runs.metrics else None)
    except RecordError:
        return f"isocompute doctor {quote(str(output))}"
    table = runs.filter(metric=measure.metric)
    options = [f"--metric {quote(measure.metric)}"]
    if len([name for name in table.eval_sets if name not in TRAIN_SETS]) > 1:
        options.append(f"--eval-set {quote(measure.eval_set)}")
    if measure.bounds != (0.0, 1.0):
        options.append(f"--bounds {measure.bounds[0]:.6g} {measure.bounds[1]:.6g}")
    one_group = len(table.context_groups()) == 1 and len({info.group_size for info in table.runs()}) > 1
    return " ".join([f"isocompute {'fit' if one_group else 'audit'}", quote(str(output)), *options])


def _refuse_source(output: Path, paths: list[Path]) -> None:
    """Raise if the output file is also an input, by name or through a glob."""
    from isocompute_sdk.ingest.paths import Listing

    if not output.is_file():
        return
    for path in paths:
        named = [path] if path.exists() else Listing.of(path).below
        if any(one.is_file() and one.samefile(output) for one in named):
            raise SpecError(
                f"--output {output} is one of the files to read; accepted: another file",
                "Choose another name.",
            )


def _propose(paths: list[Path], target: Path, reading: ReadingOptions, json: bool) -> None:
    from isocompute_sdk.ingest import propose

    mapping = propose(paths, relative_to=target.parent, metric=reading.metric, **reading.arguments())
    mapping.save(target)
    if json:
        emit_json({"kind": "run-map", "output": str(target), "map": mapping.model_dump(mode="json")})
        return
    say(f"wrote {target}: " + (f"{len(mapping.runs)} runs" if mapping.runs else "all files say n and B_p themselves"))
    for name, run in mapping.runs.items():
        if run.skip:
            say(printable(f"left out (skip: true): {name}: {run.evidence.get('skip', '')}"))
    for line in describe_questions(mapping):
        say(printable(line))
    if mapping.confirmed:
        say("every value is certain; nothing to confirm")
    elif mapping.runs:
        say(f"look at {target}, answer its questions, set `confirmed: true`")
    say(f"next: isocompute ingest --map {quote(str(target))} --output runs.parquet")


def describe_questions(mapping: RunMap) -> list[str]:
    """Every open question on one line, with its candidates."""
    return [
        f"question ({len(question.runs)} runs): {question.asks} [{' | '.join(question.candidates) or 'a number'}]"
        for question in mapping.open_questions()
    ]


def _write(runs: RunSet, output: Path) -> None:
    import polars as pl

    from isocompute_sdk.files import saving, write_with
    from isocompute_sdk.records.table import runs_without_sizes

    frame = runs.to_polars()
    unsized = runs_without_sizes(runs)
    if unsized:
        counted = ("group_size", "problems_per_batch", "rollouts", "rollouts_spent")
        unknown = pl.col("run_id").is_in(unsized)
        frame = frame.with_columns(pl.when(unknown).then(None).otherwise(pl.col(name)).alias(name) for name in counted)
    # Empty columns carry no information.
    kept = frame.select(series.name for series in frame if series.null_count() < len(series))
    with saving(output):
        write_with(output, getattr(kept, WRITERS[output.suffix]))


def _summary(runs: RunSet) -> dict[str, object]:
    infos = [{**vars(info), "context": dict(info.context)} for info in runs.runs()]
    notes = [note.to_dict() for note in runs.notes]
    return {"runs": infos, "metrics": runs.metrics, "eval_sets": runs.eval_sets, "notes": notes}
