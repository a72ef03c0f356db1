"""Reading a million rows of CSV, JSONL and Parquet, and a million TensorBoard events: `reading.py [ROWS] [EVENTS]`.

Each file is written first, read once to warm the disk's cache, then read by polars and pandas alone (typed columns, no
checks) and by `RunSet.read` (every cell checked, repeats refused, rows put in order) in the same process. Seconds are
those of the processor, over all threads, since other programs may be running; `wall` is the clock. The column `ratio`
is `RunSet.read` over plain polars; of events, over walking the file's records without looking into them.
"""

from __future__ import annotations

import struct
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.record_writer import RecordWriter

from isocompute_sdk.records import RunSet

RUNS = 100
TAGS = ("train/reward", "train/policy_loss", "train/entropy_loss", "train/kl", "eval/eval_math_pass1")


def table(rows: int) -> pl.DataFrame:
    """Long form: `RUNS` runs, two metrics."""
    rng = np.random.default_rng(0)
    steps = rows // RUNS // 2
    return pl.DataFrame(
        {
            "run_id": np.repeat([f"run-{i}" for i in range(RUNS)], steps * 2),
            "group_size": np.repeat(rng.choice([8, 16, 32, 64], RUNS), steps * 2),
            "problems_per_batch": np.full(RUNS * steps * 2, 32),
            "step": np.tile(np.repeat(np.arange(steps), 2), RUNS),
            "metric": np.tile(["avg@4", "best@4"], RUNS * steps),
            "value": rng.random(RUNS * steps * 2).round(6),
            "model": np.repeat("qwen", RUNS * steps * 2),
        }
    )


def write_events(path: Path, events: int) -> None:
    """One run's event file with five tags."""
    with path.open("wb") as file:
        writer = RecordWriter(file)
        for step in range(events // len(TAGS)):
            for tag in TAGS:
                summary = Summary(value=[Summary.Value(tag=tag, simple_value=0.5)])
                writer.write(Event(wall_time=float(step), step=step, summary=summary).SerializeToString())


def walk(path: Path) -> int:
    """Number of records in an event file."""
    count, raw, at = 0, path.read_bytes(), 0
    while at < len(raw):
        at += struct.unpack_from("<Q", raw, at)[0] + 16
        count += 1
    return count


def seconds(read: Callable[[], object]) -> tuple[float, float]:
    """Processor and wall time of one call."""
    began = time.process_time(), time.perf_counter()
    read()
    return time.process_time() - began[0], time.perf_counter() - began[1]


def main() -> None:
    """Write, read, print."""
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    count = int(sys.argv[2]) if len(sys.argv) > 2 else rows
    RunSet.from_columns({"n": [8], "C": [1], "avg@4": [0.5]})  # imports are no part of it
    print(f"{rows:,} rows, {count:,} events")
    print(f"{'format':<12} {'RunSet.read':>12} {'polars':>8} {'pandas':>8} {'ratio':>7} {'wall':>7}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        frame = table(rows)
        frame.write_csv(folder / "runs.csv")
        frame.write_ndjson(folder / "runs.jsonl")
        frame.write_parquet(folder / "runs.parquet")
        peers: dict[str, tuple[Callable[[Path], object], Callable[[Path], object]]] = {
            "csv": (pl.read_csv, pd.read_csv),
            "jsonl": (pl.read_ndjson, lambda path: pd.read_json(path, lines=True)),
            "parquet": (pl.read_parquet, pd.read_parquet),
        }
        for kind, (polars, pandas) in peers.items():
            path = folder / f"runs.{kind}"
            path.read_bytes()
            ours, wall = seconds(partial(RunSet.read, path))
            plain, other = seconds(partial(polars, path))[0], seconds(partial(pandas, path))[0]
            print(f"{kind:<12} {ours:>12.2f} {plain:>8.2f} {other:>8.2f} {ours / plain:>7.1f} {wall:>7.2f}")
        events = folder / "tb" / "events.out.tfevents.0.host"
        events.parent.mkdir()
        write_events(events, count)
        ours, wall = seconds(partial(RunSet.read, events.parent, n=8, bp=32))
        plain, _ = seconds(partial(walk, events))
        print(f"{'tensorboard':<12} {ours:>12.2f} {'':>8} {'':>8} {ours / plain:>7.1f} {wall:>7.2f}")


if __name__ == "__main__":
    main()
