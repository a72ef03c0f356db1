"""Trackio's databases, `PROJECT.db` in its folder, only read: a row for each call of `log`, as W&B has them."""

from __future__ import annotations

import sqlite3
from array import array
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, cast

import numpy as np

from isocompute_sdk.errors import RecordError
from isocompute_sdk.files import parse_json
from isocompute_sdk.ingest.attempts import NothingMeasured, RunLog
from isocompute_sdk.ingest.formats.log_format import FoundRun, LogStore
from isocompute_sdk.ingest.stores.mlflow_runs import Connected, holds_tables, rows_of
from isocompute_sdk.ingest.stores.wandb_run import STEP, TIMESTAMP, WandbColumn, WandbRun, to_attempt

_NOT_FINITE = {"NaN": np.nan, "Infinity": np.inf, "-Infinity": -np.inf}


def is_database(path: Path) -> bool:
    """Whether a file is a database of Trackio, by its ending and tables."""
    return holds_tables(path, {"metrics", "configs"}, "run_name")


def _key(path: Path, connection: sqlite3.Connection) -> str:
    """Column that tells runs apart: their id, which early releases lack."""
    columns = {name for _, name, *_ in rows_of(path, connection, "PRAGMA table_info(metrics)")}
    return "run_id" if "run_id" in columns else "run_name"


def _runs_of(path: Path) -> list[FoundRun]:
    with Connected(path) as connection:
        key = _key(path, connection)
        query = f"SELECT {key}, run_name FROM metrics GROUP BY {key} ORDER BY MIN(id)"
        return [FoundRun(path / str(run), str(name), path / str(run)) for run, name in rows_of(path, connection, query)]


def read_trackio_run(path: Path, run_id: str) -> WandbRun:
    """Read one run of a database.

    Raises:
        RecordError: the database cannot be read.
    """
    with Connected(path) as connection:
        key = _key(path, connection)
        query = f"SELECT run_name, step, timestamp, metrics FROM metrics WHERE {key} = ? ORDER BY id"
        logged = rows_of(path, connection, query, run_id)
        configured = rows_of(path, connection, f"SELECT config FROM configs WHERE {key} = ? ORDER BY id", run_id)
    columns: dict[str, tuple[array[int], array[float]]] = {}
    started = 0.0
    for row, (_, step, stamp, text) in enumerate(logged):
        seconds = datetime.fromisoformat(str(stamp)).timestamp()
        started = started or seconds
        for name, value in {**_object(path, text), STEP: step, TIMESTAMP: seconds}.items():
            number = _NOT_FINITE.get(value) if isinstance(value, str) else value
            if isinstance(number, int | float) and not isinstance(number, bool):
                at, values = columns.setdefault(name, (array("q"), array("d")))
                at.append(row)
                values.append(float(number))
    return WandbRun(
        path=path,
        run_id=run_id,
        name=str(logged[0][0]) if logged else run_id,
        project=path.stem,
        started=started,
        columns={name: WandbColumn(np.array(at), np.array(values)) for name, (at, values) in columns.items()},
        config=_object(path, configured[-1][0]) if configured else {},
        console=(),
        arguments=(),
        gpus=None,
        ended=False,
        notes=(),
    )


def read_trackio(paths: Sequence[Path], name: str) -> RunLog:
    """One run.

    Raises:
        RecordError: the database cannot be read, or the run has no metric.
    """
    (part,) = paths
    run = read_trackio_run(part.parent, part.name)
    attempt, step = to_attempt(run)
    if not attempt.series:
        raise NothingMeasured(
            f"{part}: run {name!r} has logged nothing yet", "Wait for its first update, or leave the run out."
        )
    settings = ((run.path, run.config),) if run.config else ()
    return RunLog(name, part, "trackio", (attempt,), step_name=step, settings=settings)


def _object(path: Path, text: str | bytes) -> dict[str, Any]:
    try:
        found = parse_json(text if isinstance(text, str) else text.decode())
    except ValueError as error:
        raise RecordError(f"{path}: a row is not JSON: {error}", "Copy the database again.") from error
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


STORE = LogStore("trackio", is_database, lambda path: path.parent, read_trackio, runs_of=_runs_of)
"""Databases of Trackio."""
