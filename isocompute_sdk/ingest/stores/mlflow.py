"""Runs of MLflow: the folder `mlruns/EXPERIMENT/RUN/` and the database `mlflow.db`, only read.

A database holds several runs, and another process may be writing it at the same time. A run has parameters, which are
text, and metrics with a step and a time.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from isocompute_sdk.errors import NothingMeasured, RecordError
from isocompute_sdk.files import parse_yaml
from isocompute_sdk.ingest.attempts import scalar_series
from isocompute_sdk.ingest.formats.log_format import Attempt, FoundRun, LogStore, RunLog, ScalarSeries
from isocompute_sdk.ingest.stores.saved_config import scalar
from isocompute_sdk.ingest.tables import read_text
from isocompute_sdk.notes import Note
from isocompute_sdk.phrases import counted

META, METRICS, PARAMS = "meta.yaml", "metrics", "params"
_SECONDS_TO_WAIT = 20.0
_Lines = tuple[list[float], list[float], list[float]]
"""Steps, times in milliseconds and values of one metric."""


Query = Callable[..., list[tuple[Any, ...]]]
"""SQL and its values -> the rows that it finds."""


@contextmanager
def connected(path: Path) -> Generator[Query]:
    """A connection that only reads.

    Raises:
        RecordError: the database cannot be read.
    """

    def opened(mode: str) -> sqlite3.Connection:
        connection = sqlite3.connect(f"{path.absolute().as_uri()}?{mode}", uri=True, timeout=_SECONDS_TO_WAIT)
        connection.execute("SELECT 1 FROM sqlite_master").fetchone()
        return connection

    try:
        try:
            connection = opened("mode=ro")
        except sqlite3.Error as error:
            # A database with a write-ahead log on a disk that may not be written to opens only as immutable.
            if not any(word in str(error) for word in ("unable to open", "readonly")):
                raise
            connection = opened("mode=ro&immutable=1")
        with closing(connection):

            def rows(query: str, *values: object) -> list[tuple[Any, ...]]:
                return connection.execute(query, values).fetchall()

            yield rows
    except sqlite3.Error as error:
        raise RecordError(
            f"{path} cannot be read as a database: {error}",
            "Copy it together with its -wal and -shm files, or try again if another program holds it.",
        ) from error


def _is_database(path: Path) -> bool:
    """Whether a file is an SQLite database with MLflow's tables."""
    if path.suffix not in (".db", ".sqlite", ".sqlite3"):
        return False
    try:
        with connected(path) as rows:
            there = {name for (name,) in rows("SELECT name FROM sqlite_master")}
            columns = {name for _, name, *_ in rows("PRAGMA table_info(metrics)")}
            return there >= {"runs", "metrics", "params"} and "run_uuid" in columns
    except RecordError:
        return False


def _holds_mlflow(path: Path) -> bool:
    of_folder = path.name == META and (path.parent / METRICS).is_dir() and (path.parent / PARAMS).is_dir()
    return of_folder or _is_database(path)


def _mlflow_runs(path: Path) -> list[FoundRun]:
    if path.name == META:
        meta = _meta(path)
        run = FoundRun(path.parent, str(meta.get("run_name") or path.parent.name), path.parent)
        return [] if meta.get("lifecycle_stage") == "deleted" else [run]
    query = "SELECT run_uuid, name FROM runs WHERE lifecycle_stage = 'active' ORDER BY start_time, run_uuid"
    with connected(path) as rows:
        return [FoundRun(path / str(run), str(name or run), path / str(run)) for run, name in rows(query)]


def read_mlflow(paths: Sequence[Path], name: str) -> RunLog:
    """One run of a folder or a database; a line that was cut off is left out with a note.

    Raises:
        RecordError: it cannot be read, or has no metric.
    """
    (part,) = paths
    params, metrics, notes = _mlflow_folder(part) if part.is_dir() else _mlflow_database(part.parent, part.name)
    if not metrics:
        raise NothingMeasured(
            f"{part}: run {name!r} has logged nothing yet", "Wait for its first update, or leave the run out."
        )
    # MLflow allows no @ in a name.
    series = {re.sub(r"_at_(?=\d)", "@", key): _timed(*lines) for key, lines in metrics.items()}
    started = min(float(one.wall_time_T[0]) for one in series.values())
    # What was None is the text "None" in a parameter.
    settings = {key.replace("/", "."): scalar(value) for key, value in params.items() if value != "None"}
    attempt = Attempt(part, series, started, None, notes)
    return RunLog(name, part, "mlflow", (attempt,), notes, settings=((part, settings),))


def _mlflow_database(path: Path, run: str) -> tuple[dict[str, str], dict[str, _Lines], tuple[Note, ...]]:
    with connected(path) as rows:
        params = rows("SELECT key, value FROM params WHERE run_uuid = ?", run)
        # The primary key sorts rows by time and step within a metric; a value that is none is stored as 0.
        query = (
            "SELECT key, step, timestamp, CASE WHEN is_nan THEN NULL ELSE value END FROM metrics "
            "WHERE run_uuid = ? ORDER BY key, timestamp, step"
        )
        metrics: dict[str, _Lines] = {}
        for key, *row in rows(query, run):
            for column, cell in zip(metrics.setdefault(key, ([], [], [])), row, strict=True):
                column.append(np.nan if cell is None else cell)
    return {str(key): str(value) for key, value in params}, metrics, ()


def _mlflow_folder(folder: Path) -> tuple[dict[str, str], dict[str, _Lines], tuple[Note, ...]]:
    notes: list[Note] = []
    metrics: dict[str, _Lines] = {}
    for key, path in _keys(folder / METRICS):
        lines, broken = _metric_lines(path)
        if broken:
            message = f"{path}: {counted(broken, 'line')} cut off or damaged, left out; the rest is kept."
            notes.append(Note("log-damaged", "info", message, {"file": str(path), "lines": broken}))
        if lines[0]:
            metrics[key] = lines
    return {key: read_text(path)[0] for key, path in _keys(folder / PARAMS)}, metrics, tuple(notes)


def _keys(folder: Path) -> Iterator[tuple[str, Path]]:
    """Name and file of each entry; a `/` in a name is a folder."""
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            yield path.relative_to(folder).as_posix(), path


def _metric_lines(path: Path) -> tuple[_Lines, int]:
    """The lines `ms value step` of a metric, and how many make no sense."""
    found: _Lines = ([], [], [])
    whole, _, rest = read_text(path)[0].rpartition("\n")
    broken = int(bool(rest.strip()))
    for line in whole.split("\n"):
        parts = line.split()
        row: tuple[float, float, float] | None = None
        with suppress(ValueError, IndexError, OverflowError):
            row = float(int(parts[2])), float(parts[0]), float(parts[1])
        # Name and digest of a data set may follow. A step like a time was one, in a line that lost its beginning.
        if row is None or len(parts) not in (3, 5) or row[0] >= row[1]:
            broken += bool(line.strip())
            continue
        for column, cell in zip(found, row, strict=True):
            column.append(cell)
    return found, broken


def _timed(steps: Sequence[float], walls: Sequence[float], values: Sequence[float]) -> ScalarSeries:
    return replace(scalar_series(steps, values), wall_time_T=np.array(walls, dtype=np.float64) / 1e3)


def _meta(path: Path) -> Mapping[str, Any]:
    try:
        raw: Any = parse_yaml(read_text(path)[0])
    except ValueError as error:
        raise RecordError(f"{path} is not YAML: {error}", "Copy it again.") from error
    return raw if isinstance(raw, dict) else {}


STORE = LogStore("mlflow", _holds_mlflow, lambda path: path.parent, read_mlflow, runs_of=_mlflow_runs)
