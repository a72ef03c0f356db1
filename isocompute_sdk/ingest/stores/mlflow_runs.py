"""MLflow's stores: the folder `mlruns/EXPERIMENT/RUN/` and the SQLite file `mlflow.db`, both only read.

A run has parameters, which are text, and metrics with a step and a time. In the folder a `/` in a name is a folder of
its own. In the database several runs lie in one file, which another process may be writing at the same time.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isocompute_sdk.errors import RecordError
from isocompute_sdk.files import parse_yaml
from isocompute_sdk.ingest.attempts import Attempt, NothingMeasured, RunLog, scalar_series
from isocompute_sdk.ingest.formats.log_format import FoundRun, LogStore
from isocompute_sdk.ingest.stores.saved_config import scalar
from isocompute_sdk.ingest.tables.raw import read_text
from isocompute_sdk.notes import Note

META, METRICS, PARAMS, TAGS = "meta.yaml", "metrics", "params", "tags"
_MAGIC = b"SQLite format 3\0"
_TABLES = {"runs", "metrics", "params"}
_SECONDS_TO_WAIT = 20.0
_RUN_NAME = "mlflow.runName"


@dataclass(frozen=True)
class MlflowMetric:
    """The values of one metric, in the order in which they were written."""

    step_T: NDArray[np.int64]
    wall_time_T: NDArray[np.float64]
    """Seconds since 1970."""
    value_T: NDArray[np.float64]
    """The values; not-a-number is kept."""


@dataclass(frozen=True)
class MlflowRun:
    """One run."""

    path: Path
    """Folder of the run, or the database."""
    run_id: str
    name: str
    """Name that people see; the id if it has none."""
    started: float
    """Seconds since 1970; 0 if unknown."""
    params: Mapping[str, str]
    """Parameters as text."""
    metrics: Mapping[str, MlflowMetric]
    notes: tuple[Note, ...] = ()
    """What could not be read."""


def is_database(path: Path) -> bool:
    """Whether a file is a database of MLflow's tracking store, by its ending and tables."""
    return holds_tables(path, _TABLES, "run_uuid")


def holds_tables(path: Path, tables: Set[str], column: str) -> bool:
    """Whether a file is an SQLite database with these tables, whose table `metrics` has this column."""
    if path.suffix not in (".db", ".sqlite", ".sqlite3"):
        return False
    try:
        with path.open("rb") as file:
            if file.read(len(_MAGIC)) != _MAGIC:
                return False
        with Connected(path) as connection:
            if not {name for (name,) in connection.execute("SELECT name FROM sqlite_master")} >= tables:
                return False
            return column in {name for _, name, *_ in connection.execute("PRAGMA table_info(metrics)")}
    except (OSError, RecordError, sqlite3.Error):
        return False


def is_run_meta(path: Path) -> bool:
    """Whether a file is the description of a run in a folder of MLflow."""
    return path.name == META and (path.parent / METRICS).is_dir() and (path.parent / PARAMS).is_dir()


def runs_in_database(path: Path) -> dict[str, str]:
    """Id -> name of every run that was not deleted, oldest first.

    Raises:
        RecordError: the database cannot be read.
    """
    query = "SELECT run_uuid, name FROM runs WHERE lifecycle_stage = 'active' ORDER BY start_time, run_uuid"
    with Connected(path) as connection:
        return {str(run): str(name or run) for run, name in rows_of(path, connection, query)}


def read_from_database(path: Path, run_id: str) -> MlflowRun:
    """Read one run of a database.

    Raises:
        RecordError: the database cannot be read, or has no such run.
    """
    with Connected(path) as connection:
        found = rows_of(path, connection, "SELECT name, start_time FROM runs WHERE run_uuid = ?", run_id)
        if not found:
            raise RecordError(f"{path} has no run {run_id!r}", "It was deleted while it was read: try again.")
        name, started = found[0]
        params = rows_of(path, connection, "SELECT key, value FROM params WHERE run_uuid = ?", run_id)
        # The primary key sorts rows by time and step within a metric; a value that is none is stored as 0.
        query = (
            "SELECT key, step, timestamp, CASE WHEN is_nan THEN NULL ELSE value END FROM metrics "
            "WHERE run_uuid = ? ORDER BY key, timestamp, step"
        )
        columns: dict[str, tuple[list[int], list[float], list[float]]] = {}
        for key, step, wall, value in rows_of(path, connection, query, run_id):
            steps, walls, values = columns.setdefault(key, ([], [], []))
            steps.append(step)
            walls.append(wall)
            values.append(np.nan if value is None else value)
    return MlflowRun(
        path,
        run_id,
        str(name or run_id),
        float(started or 0) / 1e3,
        {str(key): str(value) for key, value in params},
        {key: _metric(*column) for key, column in columns.items()},
    )


def read_folder(folder: Path) -> MlflowRun:
    """Read one run of a file store; a line that was cut off is left out with a note.

    Raises:
        RecordError: the description of the run cannot be read.
    """
    meta = _meta(folder / META)
    notes: list[Note] = []
    metrics: dict[str, MlflowMetric] = {}
    for key, path in _keys(folder / METRICS):
        steps, walls, values, broken = _lines(path)
        if broken:
            notes.append(_cut_off(path, broken))
        if steps:
            metrics[key] = _metric(steps, walls, values)
    params = {key: read_text(path)[0] for key, path in _keys(folder / PARAMS)}
    tags = {key: read_text(path)[0] for key, path in _keys(folder / TAGS)}
    run_id = str(meta.get("run_id") or meta.get("run_uuid") or folder.name)
    name = str(meta.get("run_name") or tags.get(_RUN_NAME) or run_id)
    return MlflowRun(folder, run_id, name, float(meta.get("start_time") or 0) / 1e3, params, metrics, tuple(notes))


def _metric(steps: Sequence[int], walls: Sequence[float], values: Sequence[float]) -> MlflowMetric:
    seconds = np.array(walls, dtype=np.float64) / 1e3
    return MlflowMetric(np.array(steps, dtype=np.int64), seconds, np.array(values, dtype=np.float64))


def _holds(path: Path) -> bool:
    return is_run_meta(path) or is_database(path)


def _runs_of(path: Path) -> list[FoundRun]:
    if path.name == META:
        described = _meta(path)
        return [FoundRun(path.parent, str(described.get("run_name") or path.parent.name), path.parent)]
    return [FoundRun(path / run, name, path / run) for run, name in runs_in_database(path).items()]


def read_mlflow(paths: Sequence[Path], name: str) -> RunLog:
    """One run of either store.

    Raises:
        RecordError: it cannot be read, or has no metric.
    """
    (part,) = paths
    run = read_folder(part) if part.is_dir() else read_from_database(part.parent, part.name)
    if not run.metrics:
        raise NothingMeasured(
            f"{part}: run {name!r} has logged nothing yet", "Wait for its first update, or leave the run out."
        )
    series = {
        # MLflow allows no @ in a name.
        re.sub(r"_at_(?=\d)", "@", key): replace(scalar_series(one.step_T, one.value_T), wall_time_T=one.wall_time_T)
        for key, one in run.metrics.items()
    }
    attempt = Attempt(run.path, series, run.started, None, run.notes)
    # What was None is the text "None" in a parameter.
    settings = {key.replace("/", "."): scalar(value) for key, value in run.params.items() if value != "None"}
    return RunLog(name, part, "mlflow", (attempt,), run.notes, settings=((run.path, settings),))


STORE = LogStore("mlflow", _holds, lambda path: path.parent, read_mlflow, runs_of=_runs_of)
"""Both stores of MLflow."""


class Connected:
    """A connection that only reads, for a `with` statement."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __enter__(self) -> sqlite3.Connection:
        where = self.path.absolute().as_uri()
        for mode in ("mode=ro", "mode=ro&immutable=1"):
            try:
                self.connection = sqlite3.connect(f"{where}?{mode}", uri=True, timeout=_SECONDS_TO_WAIT)
                self.connection.execute("SELECT 1 FROM sqlite_master").fetchone()
                return self.connection
            except sqlite3.OperationalError as error:
                # A database with a write-ahead log on a disk that may not be written to opens only as immutable.
                if "unable to open" not in str(error) and "readonly" not in str(error):
                    raise _refused(self.path, error) from error
                last = error
            except sqlite3.Error as error:
                raise _refused(self.path, error) from error
        raise _refused(self.path, last)

    def __exit__(self, *error: object) -> None:
        self.connection.close()


def rows_of(path: Path, connection: sqlite3.Connection, query: str, *values: object) -> list[tuple[Any, ...]]:
    """What a query finds.

    Raises:
        RecordError: the database cannot be read.
    """
    try:
        return connection.execute(query, values).fetchall()
    except sqlite3.Error as error:
        raise _refused(path, error) from error


def _refused(path: Path, error: sqlite3.Error) -> RecordError:
    return RecordError(
        f"{path} cannot be read as a database: {error}",
        "Copy it together with its -wal and -shm files, or try again if another program holds it.",
    )


def _keys(folder: Path) -> Iterator[tuple[str, Path]]:
    """Name and file of each entry; a `/` in a name is a folder."""
    if folder.is_dir():
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                yield path.relative_to(folder).as_posix(), path


def _lines(path: Path) -> tuple[list[int], list[float], list[float], int]:
    """Steps, times in milliseconds and values of a metric, and how many lines make no sense."""
    steps, walls, values, broken = list[int](), list[float](), list[float](), 0
    text = read_text(path, "drop")[0]
    whole, _, rest = text.rpartition("\n")
    for line in whole.split("\n"):
        parts = line.split()
        try:
            wall, value, step = float(parts[0]), float(parts[1]), int(parts[2]) if len(parts) > 2 else 0
        except (ValueError, IndexError):
            broken += bool(line.strip())
            continue
        steps.append(step)
        walls.append(wall)
        values.append(value)
    return steps, walls, values, broken + bool(rest.strip())


def _cut_off(path: Path, lines: int) -> Note:
    message = f"{path}: {lines} lines are cut off or damaged and are left out; the rest is kept."
    return Note("log-cut-off", "info", message, {"file": str(path), "lines": lines})


def _meta(path: Path) -> Mapping[str, Any]:
    try:
        found: Any = parse_yaml(read_text(path)[0])
    except ValueError as error:
        raise RecordError(f"{path} is not YAML: {error}", "Copy it again.") from error
    return found if isinstance(found, dict) else {}
