"""`isocompute ingest`: logs and tables -> one table of runs."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from isocompute_sdk.cli.shared import options as opt
from isocompute_sdk.cli.shared.display import print_notes
from isocompute_sdk.cli.shared.option_groups import changed_options, with_option_groups
from isocompute_sdk.cli.shared.output import emit_json, printable, say
from isocompute_sdk.cli.shared.reading_options import ReadingOptions
from isocompute_sdk.errors import SpecError

if TYPE_CHECKING:
    from isocompute_sdk.ingest.assistant.mapping import RunMap
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
    map: opt.Map = None,
    reading: ReadingOptions,
    json: opt.Json = False,
) -> None:
    """Read logs (TensorBoard, W&B, MLflow, veRL, TRL, tinker, prime-rl, consoles) and plain tables as one table.

    Logs do not hold n and B_p. They come from the configuration saved beside a log, or from --set. For runs with odd
    names, --propose collects what files and names say into one mapping, with evidence: correct and confirm it once,
    then read everything with --map. Ambiguous values are questions in that file; none is guessed.

    Consoles (*.log, *.out) and veRL's dumped responses beside a log restore attempts that the log has lost. Files
    packed with gzip (.gz) are read too.

    Examples:
        isocompute ingest logs --output runs.parquet

        isocompute ingest logs exports/*.csv --propose map.yaml

        isocompute ingest --map map.yaml --output runs.parquet
    """
    from isocompute_sdk.ingest import read_mapped

    if (map is None) == (not paths):
        received = "a mapping and paths" if paths else "neither a mapping nor paths"
        raise SpecError(
            f"received {received}; accepted: PATHS, or --map FILE",
            "Try `isocompute ingest PATH --propose map.yaml`.",
        )
    beside = ["--propose"] * (propose is not None) + changed_options(reading)
    if map is not None and beside:
        raise SpecError(f"--map with {', '.join(beside)}; accepted: --map alone, with --output", "Edit the mapping.")
    if output is not None and output.suffix not in WRITERS:
        raise SpecError(
            f"--output {output}; accepted: a name that ends in {', '.join(WRITERS)}",
            "Choose the format by the end of the name.",
        )
    if propose is not None:
        _propose(paths or [], propose, json)
        return
    if output is not None:
        _refuse_source(output, paths or [])
    runs = read_mapped(map) if map is not None else reading.read(paths or [], on_truncated="drop")
    if output is not None:
        _write(runs, output)
    if json:
        emit_json({"kind": "ingest", "output": None if output is None else str(output), **_summary(runs)})
        return
    print_notes(runs.notes)
    say(repr(runs))
    say(f"wrote {output}" if output is not None else "nothing written: add --output runs.parquet")
    if output is not None:
        say(f"next: isocompute fit {quote(str(output))} --metric {quote(_headline(runs))}")


def _refuse_source(output: Path, paths: list[Path]) -> None:
    """Raise if the output file is also an input, by name or through a glob."""
    from isocompute_sdk.ingest.walking import Listing

    if not output.is_file():
        return
    for path in paths:
        named = [path] if path.exists() else Listing.of(path).below
        if any(one.is_file() and one.samefile(output) for one in named):
            raise SpecError(
                f"--output {output} is one of the files to read; accepted: another file",
                "Choose another name.",
            )


def _propose(paths: list[Path], target: Path, json: bool) -> None:
    from isocompute_sdk.ingest import propose

    mapping = propose(paths, relative_to=target.parent)
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
    from isocompute_sdk.files import saving, write_with

    frame = runs.to_polars()
    # Empty columns carry no information.
    kept = frame.select(series.name for series in frame if series.null_count() < len(series))
    with saving(output):
        write_with(output, getattr(kept, WRITERS[output.suffix]))


def _summary(runs: RunSet) -> dict[str, object]:
    infos = [{**vars(info), "context": dict(info.context)} for info in runs.runs()]
    notes = [note.to_dict() for note in runs.notes]
    return {"runs": infos, "metrics": runs.metrics, "eval_sets": runs.eval_sets, "notes": notes}


def _headline(runs: RunSet) -> str:
    from isocompute_sdk.records.rewards import headline

    frame = runs.to_polars()
    found = headline(zip(frame["metric"].to_list(), frame["eval_set"].to_list(), strict=True))
    return runs.metrics[0] if found is None else found[0]
