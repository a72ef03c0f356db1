"""No file makes reading wait forever, or take memory or time without bound: it is refused by name."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from isocompute_sdk.errors import RecordError, SpecError
from isocompute_sdk.ingest.stores.event_files import read_event_file
from isocompute_sdk.ingest.tables import raw
from isocompute_sdk.records import RunSet
from isocompute_sdk.specs import Study, Throughput, load_spec

SECONDS = 5.0
WIDE = 100_000
ROW = {"n": 8, "bp": 32, "step": 1}


def _wide_csv(path: Path) -> None:
    names = [f"m{i}" for i in range(WIDE)]
    path.write_text(f"{','.join([*ROW, *names])}\n8,32,1,{','.join(['0.5'] * WIDE)}\n")


def _repeated_csv(path: Path) -> None:
    path.write_text(f"{','.join([*ROW, *(['m'] * WIDE)])}\n8,32,1,{','.join(['0.5'] * WIDE)}\n")


def _wide_jsonl(path: Path) -> None:
    path.write_text(json.dumps({**ROW, **{f"m{i}": 0.5 for i in range(WIDE)}}) + "\n")


def _ragged_jsonl(path: Path) -> None:
    path.write_text("".join(json.dumps({**ROW, "step": i, f"m{i}": 0.5}) + "\n" for i in range(WIDE)))


def _wide_parquet(path: Path) -> None:
    pl.DataFrame(
        {**{name: [value] for name, value in ROW.items()}, **{f"m{i}": [0.5] for i in range(WIDE)}}
    ).write_parquet(path)


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("runs.csv", _wide_csv),
        ("runs.csv", _repeated_csv),
        ("runs.jsonl", _wide_jsonl),
        ("runs.jsonl", _ragged_jsonl),
        ("runs.parquet", _wide_parquet),
    ],
)
def test_a_hundred_thousand_columns_are_refused_in_seconds(
    tmp_path: Path, name: str, write: Callable[[Path], None]
) -> None:
    write(tmp_path / name)
    RunSet.from_columns({"n": [8], "C": [1], "avg@4": [0.5]})  # imports are no part of it
    began = time.process_time()
    with pytest.raises(RecordError, match=name):
        RunSet.read(tmp_path / name)
    assert time.process_time() - began < SECONDS


def test_a_thousand_columns_are_read(tmp_path: Path) -> None:
    names = [f"m{i}" for i in range(1000)]
    (tmp_path / "runs.csv").write_text(f"{','.join([*ROW, *names])}\n8,32,1,{','.join(['0.5'] * 1000)}\n")
    assert len(RunSet.read(tmp_path / "runs.csv").metrics) == 1000


@pytest.mark.parametrize("name", ["runs.csv", "runs.jsonl", "trainer_state.json"])
def test_a_file_above_the_limit_is_refused_by_name_without_reading_it(tmp_path: Path, name: str) -> None:
    with (tmp_path / name).open("wb") as file:
        file.truncate(raw.LARGEST_TEXT + 1)
    began = time.process_time()
    with pytest.raises(RecordError, match=name):
        RunSet.read(tmp_path / name, n=8, bp=32)
    assert time.process_time() - began < SECONDS


def test_what_a_small_packed_file_holds_is_bounded_too(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv.gz"
    path.write_bytes(gzip.compress(b"8,32,1,0.5\n" * 50_000))
    assert path.stat().st_size < 10_000
    assert len(raw.read_text(path, largest=550_000)[0]) == 550_000
    with pytest.raises(RecordError, match=r"runs\.csv\.gz"):
        raw.read_text(path, largest=549_999)


@pytest.mark.parametrize("name", ["runs.csv", "runs.jsonl"])
def test_a_line_without_end_is_refused_in_little_memory(tmp_path: Path, name: str) -> None:
    with (tmp_path / name).open("wb") as file:
        file.write(b'{"n": 8, "bp": 32, "step": 1, "values": [' if name.endswith("l") else b"n,bp,step,avg@4\n8,32,1,")
        for _ in range(60):
            file.write(b"0.5," * 2**18)
    program = (
        "import resource, sys\nfrom isocompute_sdk.records import RunSet\n"
        "RunSet.from_columns({'n': [8], 'C': [1], 'avg@4': [0.5]})\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "try:\n    RunSet.read(sys.argv[1])\n"
        "except ValueError as error:\n    assert sys.argv[1] in str(error), error\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)\n"
    )
    said = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / name)], capture_output=True, text=True, check=True
    )
    assert int(said.stdout) < 300_000, "kilobytes above what imports take; the file has 60,000"


def test_a_parquet_file_that_unpacks_to_billions_of_cells_is_refused(tmp_path: Path) -> None:
    rows = raw.MOST_CELLS // 4 + 1
    frame = pl.DataFrame({"n": [8], "bp": [32], "step": [1], "avg@4": [0.5]}).select(pl.all().repeat_by(rows).explode())
    frame.write_parquet(tmp_path / "runs.parquet")
    del frame
    with pytest.raises(RecordError, match=r"runs\.parquet"):
        RunSet.read(tmp_path / "runs.parquet")


@pytest.mark.parametrize("name", ["runs.csv", "runs.csv.gz", "runs.jsonl", "runs.parquet", "events.out.tfevents.1"])
def test_a_pipe_is_refused_wherever_a_table_or_log_is_read(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / name)
    for read in (RunSet.read, read_event_file) if "tfevents" in name else (RunSet.read,):
        with pytest.raises(RecordError, match=name):
            read(tmp_path / name)
    with pytest.raises(RecordError):
        RunSet.read(tmp_path)


@pytest.mark.parametrize("type", [Study, Throughput])
def test_specs_are_read_from_regular_files_of_bounded_size(tmp_path: Path, type: type) -> None:
    os.mkfifo(tmp_path / "pipe.yaml")
    with (tmp_path / "large.yaml").open("wb") as file:
        file.truncate(200 * 2**20)
    for name in ("pipe.yaml", "large.yaml", "/dev/zero", "/dev/stdin"):
        began = time.process_time()
        with pytest.raises(SpecError, match=name):
            load_spec(tmp_path / name, type)
        assert time.process_time() - began < SECONDS
