"""Reading a million rows of tables, W&B, MLflow, prime-rl and a console, and a million TensorBoard events.

Usage: `reading.py [ROWS] [EVENTS]`.

Each file is written first, read once to warm the disk's cache, then read by polars and pandas alone (typed columns, no
checks) and by `RunSet.read` (every cell checked, repeats refused, rows put in order) in the same process. Seconds are
those of the processor, over all threads, since other programs may be running; `wall` is the clock. The column `ratio`
is `RunSet.read` over plain polars; of events, over walking the file's records without looking into them.
"""

from __future__ import annotations

import sqlite3
import struct
import sys
import tempfile
import time
import zlib
from collections.abc import Callable
from contextlib import closing
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


def write_wandb(path: Path, rows: int) -> None:
    """One run of W&B with three keys in every row, as an offline start leaves it."""

    def field(number: int, content: bytes) -> bytes:
        return _varint(number << 3 | 2) + _varint(len(content)) + content

    blocks = bytearray(b":W&B\xe1\xbe\x00")

    def put(record: bytes) -> None:
        first = True
        while first or record:
            room = 32768 - len(blocks) % 32768
            if room < 7:
                blocks.extend(bytes(room))
                continue
            part, record = record[: room - 7], record[room - 7 :]
            kind = (1 if not record else 2) if first else (4 if not record else 3)
            checksum = zlib.crc32(part, zlib.crc32(bytes((kind,))))
            blocks.extend(struct.pack("<IHB", checksum, len(part), kind) + part)
            first = False

    for step in range(rows):
        values = {"train/global_step": step, "train/reward": step / rows, "train/frac_reward_zero_std": 0.0}
        items = (field(2, key.encode()) + field(16, repr(value).encode()) for key, value in values.items())
        put(field(2, b"".join(field(1, item) for item in items)))
    path.write_bytes(blocks)


def _varint(number: int) -> bytes:
    found = b""
    while number >= 0x80:
        found += bytes((number & 0x7F | 0x80,))
        number >>= 7
    return found + bytes((number,))


def write_mlflow(path: Path, rows: int) -> None:
    """One run in a database with the columns of MLflow that are read."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE runs (run_uuid TEXT, name TEXT, start_time INT, lifecycle_stage TEXT)")
        connection.execute("CREATE TABLE params (key TEXT, value TEXT, run_uuid TEXT)")
        connection.execute(
            "CREATE TABLE metrics (key TEXT, value REAL, timestamp INT, run_uuid TEXT, step INT, is_nan INT, "
            "PRIMARY KEY (key, timestamp, step, run_uuid, value, is_nan))"
        )
        connection.execute("INSERT INTO runs VALUES ('1', 'run', 0, 'active')")
        tags = ("train/reward", "train/frac_reward_zero_std")
        values = ((tag, i / rows, i, "1", i, 0) for tag in tags for i in range(rows // len(tags)))
        connection.executemany("INSERT INTO metrics VALUES (?, ?, ?, ?, ?, ?)", values)


def write_prime_rl(path: Path, rows: int) -> None:
    """`metrics.jsonl` with a row of the orchestrator and one of the trainer for every step."""
    with path.open("w", encoding="utf-8") as file:
        for step in range(rows // 2):
            sizes = f'"progress/samples": 256, "progress/problems": 32, "reward/all/mean": {step / rows}'
            file.write(f'{{"step": {step}, {sizes}, "progress/total_problems": {32 * step}}}\n')
            file.write(f'{{"step": {step}, "optim/lr": 1e-06, "optim/grad_norm": 0.5, "mismatch_kl/all/mean": 0.1}}\n')


def write_console(path: Path, rows: int) -> None:
    """What veRL prints under Ray."""
    with path.open("w", encoding="utf-8") as file:
        for step in range(1, rows + 1):
            file.write(
                f"(TaskRunner pid=7) step:{step} - critic/score/mean:{step / rows} - training/global_step:{step}\n"
            )


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
        logs = {
            "wandb run": ("run-x.wandb", write_wandb),
            "mlflow": ("mlflow.db", write_mlflow),
            "prime-rl": ("metrics.jsonl", write_prime_rl),
            "console": ("train.log", write_console),
        }
        for kind, (file, write) in logs.items():
            path = folder / kind / file
            path.parent.mkdir()
            write(path, rows)
            ours, wall = seconds(partial(RunSet.read, path, n=8, bp=32, updates_per_batch=1))
            print(f"{kind:<12} {ours:>12.2f} {'':>8} {'':>8} {'':>7} {wall:>7.2f}")


if __name__ == "__main__":
    main()
