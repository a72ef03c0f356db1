"""No file makes reading wait forever, or take memory or time without bound: it is refused by name."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from isocompute_sdk import files
from isocompute_sdk.errors import RecordError
from isocompute_sdk.ingest import propose
from isocompute_sdk.ingest import tables as packed
from isocompute_sdk.ingest.stores.event_files import read_event_file
from isocompute_sdk.ingest.stores.trainer_state import read_training_args
from isocompute_sdk.records import RunSet
from tests.parameters import few

SECONDS = 60.0
"""Far more than it takes anywhere, and far less than what grows with the square of the columns."""
WIDE = 30_000
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
    # polars takes seconds to write as many as in the other files; it reads their names in one piece.
    names = [f"m{i}" for i in range(packed.MAX_COLUMNS)]
    pl.DataFrame({**{name: [value] for name, value in ROW.items()}, **{name: [0.5] for name in names}}).write_parquet(
        path
    )


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
def test_too_many_columns_are_refused_in_seconds(tmp_path: Path, name: str, write: Callable[[Path], None]) -> None:
    write(tmp_path / name)
    RunSet.from_columns({"n": [8], "C": [1], "avg@4": [0.5]})  # imports are no part of it
    began = time.process_time()
    with pytest.raises(RecordError, match=name):
        RunSet.read(tmp_path / name)
    assert time.process_time() - began < SECONDS


@pytest.mark.parametrize("name", ["runs.csv", "runs.jsonl", "trainer_state.json"])
def test_a_file_above_the_limit_is_refused_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    # No document of a trainer may be as large as a table may be.
    largest = packed.LARGEST_TEXT if name == "trainer_state.json" else 2**20
    monkeypatch.setattr(packed, "LARGEST_TEXT", largest)
    with (tmp_path / name).open("wb") as file:
        file.truncate(largest + 1)
    with pytest.raises(RecordError, match=name):
        RunSet.read(tmp_path / name, n=8, bp=32)


@pytest.mark.parametrize("name", few(["runs.csv", "runs.jsonl"], 1))
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


def test_a_parquet_file_that_unpacks_to_billions_of_cells_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packed, "MAX_CELLS", 10**6)
    rows = packed.MAX_CELLS // 4 + 1
    frame = pl.DataFrame({"n": [8], "bp": [32], "step": [1], "avg@4": [0.5]}).select(pl.all().repeat_by(rows).explode())
    frame.write_parquet(tmp_path / "runs.parquet")
    del frame
    with pytest.raises(RecordError, match=r"runs\.parquet"):
        RunSet.read(tmp_path / "runs.parquet")


@pytest.mark.parametrize("name", ["runs.csv", "runs.jsonl", "runs.parquet", "events.out.tfevents.1"])
def test_a_pipe_is_refused_wherever_a_table_or_log_is_read(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / name)
    for read in (RunSet.read, read_event_file) if "tfevents" in name else (RunSet.read,):
        with pytest.raises(RecordError, match=name):
            read(tmp_path / name)
    with pytest.raises(RecordError):
        RunSet.read(tmp_path)


def _log(folder: Path) -> None:
    """A log whose configuration lies beside it."""
    rows = [{"step": i, "env/all/reward/total": 0.1 * i, "env/all/total_episodes": 64} for i in range(5)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def _doctor(folder: Path) -> tuple[str, int]:
    """What `doctor` says about a folder, and the memory it took above the imports, in kilobytes."""
    program = (
        "import resource, sys\nfrom isocompute_sdk.ingest import diagnose\nimport polars, ruamel.yaml\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "resource.setrlimit(resource.RLIMIT_CPU, (60, 60))\n"
        "found = diagnose(sys.argv[1])\n"
        "print(*[problem for run in found.runs for problem in run.problems], sep='\\n')\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)\n"
    )
    done = subprocess.run([sys.executable, "-c", program, str(folder)], capture_output=True, text=True, check=True)
    *said, memory = done.stdout.splitlines()
    return "\n".join(said), int(memory)


def _nested(first: str, level: str) -> str:
    """YAML in which every level names the one before ten times."""
    return first + "".join(level.format(i=i, before=", ".join([f"*a{i - 1}"] * 10)) for i in range(1, 9))


@pytest.mark.parametrize(
    "text",
    [
        _nested("a0: &a0 [0]\n", "a{i}: &a{i} [{before}]\n"),
        _nested("a0: &a0 {k: 1}\n", "a{i}: &a{i}\n  <<: [{before}]\n"),
        "a: &a [*a]\n",
        "[" * 5000 + "]" * 5000,
    ],
    ids=["lists", "merges", "in itself", "deep"],
)
def test_aliases_of_a_small_yaml_text_do_not_unfold_without_bound(text: str) -> None:
    with pytest.raises(ValueError, match="values"):
        files.parse_yaml(text)


def test_a_doctor_goes_on_beside_settings_that_unfold_without_bound(tmp_path: Path) -> None:
    rows = [{"step": i, "reward": 0.1 * i, "kl": 0.0, "completion_length": 9.0} for i in range(1, 5)]
    state = {"global_step": 4, "max_steps": 4, "logging_steps": 1, "train_batch_size": 4, "log_history": rows}
    (tmp_path / "trl").mkdir()
    (tmp_path / "trl" / "trainer_state.json").write_text(json.dumps(state))
    with zipfile.ZipFile(tmp_path / "trl" / "training_args.bin", "w") as archive:
        # An empty list, remembered under the number 2**28: the unpickler in C makes room for as many.
        archive.writestr("training_args/data.pkl", b"\x80\x02]r" + (2**28).to_bytes(4, "little") + b".")
    (tmp_path / "tinker").mkdir()
    _log(tmp_path / "tinker")
    (tmp_path / "tinker" / "config.yaml").write_text(_nested("a0: &a0 {k: 1}\n", "a{i}: &a{i}\n  <<: [{before}]\n"))
    said, memory = _doctor(tmp_path)
    assert said.count("not known: n") == 2
    assert memory < 300_000


def test_a_few_aliases_are_read(tmp_path: Path) -> None:
    assert files.parse_yaml("a: &a {n: 8}\nb: {<<: *a, bp: 4}\nc: &c [1]\nd: *c\n") == {
        **{"a": {"n": 8}, "b": {"n": 8, "bp": 4}},
        **{"c": [1], "d": [1]},
    }


def test_shared_lists_of_a_pickle_do_not_unfold_without_bound(tmp_path: Path) -> None:
    shared: list[Any] = [0] * 10
    for _ in range(8):
        shared = [shared] * 10
    for state in ({"num_generations": 8, "shared": shared}, {"num_generations": 8}):
        # The object of a class, and its state, as torch saves it.
        content = b"\x80\x02ctrl\nGRPOConfig\n)\x81" + pickle.dumps(state, 2)[2:-1] + b"b."
        with zipfile.ZipFile(tmp_path / "training_args.bin", "w") as archive:
            archive.writestr("training_args/data.pkl", content)
        if "shared" in state:
            with pytest.raises(RecordError, match="values"):
                read_training_args(tmp_path / "training_args.bin")
    assert read_training_args(tmp_path / "training_args.bin")["num_generations"] == 8


def test_a_name_with_a_nul_is_no_run_of_its_own(tmp_path: Path) -> None:
    rows = [f"{name},8,32,{step},0.{step}" for name, step in [("a", 1), ("a", 2), ("b", 1), ("b\0", 2)]]
    (tmp_path / "runs.csv").write_text("\n".join(["run,n,bp,step,avg@4", *rows, ""]))
    runs = RunSet.read(tmp_path / "runs.csv")
    assert runs.run_ids == ("a", "b")
    assert [note.code for note in runs.notes] == ["text-not-utf8"]


def test_a_login_in_a_url_is_not_handed_on(tmp_path: Path) -> None:
    _log(tmp_path)
    settings = "model_name: https://me:hunter2@hub/org/m\ngroup_size: 8\nproblems_per_batch: 4\n"
    (tmp_path / "config.yaml").write_text(settings)
    text = propose(tmp_path).save(tmp_path / "map.yaml").read_text()
    assert "https://hub/org/m" in text
    assert "hunter2" not in text
    runs = RunSet.from_columns({"n": [8], "C": [1], "avg@4": [0.5]}, model="https://me:hunter2@hub/org/m")
    assert "hunter2" not in str(runs.to_dict())
