"""Run folders of W&B, written by the real `wandb` offline."""

from __future__ import annotations

import shutil
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from isocompute_sdk.errors import RecordError
from isocompute_sdk.ingest import diagnose
from isocompute_sdk.ingest.stores.wandb_run import read_wandb_run
from isocompute_sdk.records import RunSet
from tests.processes import need

need("wandb", whole_module=True)
PROGRAM = Path(__file__).parents[1] / "loggers" / "log_to_wandb.py"


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """What one program logged, since W&B takes a second to start."""
    both = tmp_path_factory.mktemp("wandb"), tmp_path_factory.mktemp("long")
    done = subprocess.run([sys.executable, PROGRAM, *both], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return both


@pytest.fixture(scope="module")
def logged(folders: tuple[Path, Path]) -> Path:
    """A folder with three starts of two runs."""
    return folders[0]


def run_files(folder: Path, id: str = "*") -> list[Path]:
    return sorted(folder.glob(f"wandb/*run-*/run-{id}.wandb"))


def test_runs_are_read_without_a_question(logged: Path) -> None:
    found = diagnose(logged)
    assert {one.name: (one.group_size, one.problems_per_batch, one.metric, one.attempts) for one in found.runs} == {
        "first": ("8", "4", "avg@8", 1),
        "second": ("8", "4", "avg@8", 2),
    }
    assert "--output" in found.next
    runs = RunSet.read(logged)
    for series in runs.series("avg@8"):
        assert series.rollouts_T.tolist() == [32 * step for step in series.step_T]
        assert series.value_T == pytest.approx(np.array(series.step_T) / 50)
    training = {one.run_id: one for one in runs.series("train_reward")}
    assert training["first"].step_T.tolist() == list(range(1, 11))
    assert training["second"].step_T.tolist() == list(range(1, 21))
    # Steps 11 and 12 were made twice.
    assert max(training["second"].rollouts_T) == 20 * 32
    (info,) = [one for one in runs.runs() if one.run_id == "second"]
    assert info.rollouts_spent == 22 * 32


def test_a_run_without_its_history_is_named_and_not_counted(
    isocompute: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path, logged: Path
) -> None:
    shutil.copytree(logged, tmp_path / "logs", symlinks=True)
    files = tmp_path / "logs" / "wandb" / "run-20260511_081901-6hh0iwo7" / "files"
    files.mkdir(parents=True)
    for name in ("config.yaml", "wandb-summary.json"):
        (files / name).write_text("{}")
    (lost,) = [one for one in diagnose(tmp_path).runs if not one.readable]
    assert lost.name == str(files.parent)
    assert "ready: 2 of 2" in isocompute("doctor", "logs").stdout


def test_a_start_that_was_resumed_under_a_new_id_is_said_to_begin_late(logged: Path, tmp_path: Path) -> None:
    for path in run_files(logged, "kept")[1:]:
        shutil.copytree(path.parent, tmp_path / "wandb" / path.parent.name)
    (note,) = [note for note in RunSet.read(tmp_path).notes if note.code == "log-starts-late"]
    assert (note.severity, note.data["step"]) == ("warning", 10)


def test_a_copy_that_followed_links_counts_once(logged: Path, tmp_path: Path) -> None:
    shutil.copytree(logged, tmp_path / "copy")
    assert len(run_files(tmp_path / "copy")) == 3
    assert (tmp_path / "copy" / "wandb" / "latest-run").is_dir()
    spent = {one.run_id: one.rollouts_spent for one in RunSet.read(tmp_path).runs()}
    assert spent == {"first": 10 * 32, "second": 22 * 32}


def test_one_file_says_what_was_logged_and_configured(logged: Path) -> None:
    first, second = (read_wandb_run(path) for path in run_files(logged, "kept"))
    assert (first.run_id, first.name) == ("kept", "second")
    assert first.config["num_generations"] == 8
    assert first.config["learning_rate"] == 1e-6
    assert second.columns["nested.deep.x"].value_T.tolist() == [15, 20]
    assert np.isnan(first.columns["nan"].value_T).all()
    assert "text" not in first.columns
    assert first.started <= second.started


def test_numbers_that_are_not_written_as_json_are_read(logged: Path, tmp_path: Path) -> None:
    from wandb.proto import wandb_internal_pb2 as written

    records = [written.Record(run=written.RunRecord(run_id="typed"))]
    for count, share in ((-3, 0.25), (2**40, 0.5)):
        items = [written.HistoryItem(key="count", integer=count), written.HistoryItem(key="share", number=share)]
        records.append(written.Record(history=written.HistoryRecord(item=items)))
    content = run_files(logged)[0].read_bytes()[:7]  # what every file of W&B begins with
    for data in (record.SerializeToString() for record in records):
        content += struct.pack("<IHB", zlib.crc32(data, zlib.crc32(b"\1")), len(data), 1) + data
    (tmp_path / "run-typed.wandb").write_bytes(content)
    found = read_wandb_run(tmp_path / "run-typed.wandb")
    assert found.columns["count"].value_T.tolist() == [-3, 2**40]
    assert found.columns["share"].value_T.tolist() == [0.25, 0.5]


@pytest.mark.parametrize("share", [0.3, 0.7, 0.95])
def test_a_cut_tail_costs_only_itself(logged: Path, tmp_path: Path, share: float) -> None:
    (path,) = [path for path in run_files(logged) if read_wandb_run(path).name == "first"]
    whole = read_wandb_run(path)
    content = path.read_bytes()
    cut = tmp_path / path.name
    cut.write_bytes(content[: int(len(content) * share)])
    found = read_wandb_run(cut)
    assert [note.code for note in found.notes] in ([], ["log-damaged"])
    for key, column in found.columns.items():
        assert column.value_T.tolist() == pytest.approx(whole.columns[key].value_T[: len(column.value_T)], nan_ok=True)


def test_damage_is_noted_and_what_follows_is_kept(logged: Path, tmp_path: Path) -> None:
    path = run_files(logged)[0]
    content = bytearray(path.read_bytes())
    at = content.find(b"train/reward", len(content) // 2)
    content[at] ^= 0xFF
    broken = tmp_path / path.name
    broken.write_bytes(content)
    whole, found = read_wandb_run(path), read_wandb_run(broken)
    assert [note.code for note in found.notes] == ["log-damaged"]
    rows = len(whole.columns["train/global_step"].row_T)
    assert rows - 1 <= len(found.columns["train/global_step"].row_T) <= rows


def test_another_file_of_that_name_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "run-x.wandb"
    path.write_bytes(b"no run at all")
    with pytest.raises(RecordError):
        read_wandb_run(path)


def test_values_longer_than_a_block_are_read(folders: tuple[Path, Path]) -> None:
    (path,) = run_files(folders[1])
    found = read_wandb_run(path)
    assert len(found.config["long"]) == 100_000
    assert found.config["short"] == 3
    assert [found.columns[f"key {i}"].value_T.tolist() for i in range(3000)] == [[i / 7] for i in range(3000)]
    assert not found.notes
