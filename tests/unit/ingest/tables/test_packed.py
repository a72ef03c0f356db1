"""Packed files, and files with bytes that are no text: read, or reported; never passed over in silence."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path

import pytest

from isocompute_sdk.errors import RecordError
from isocompute_sdk.ingest import RunFinding, diagnose
from isocompute_sdk.records import RunSet
from isocompute_verl.files import dumped_rewards, looks_like_dump
from tests.unit.ingest.log_files import OPENRLHF, write_events, write_hydra, write_verl


def table(run: str) -> str:
    return "run_id,n,bp,step,avg@4\n" + "".join(f"{run},8,32,{step},0.5\n" for step in range(6))


def pack(path: Path) -> Path:
    """Replace a file by its packed form."""
    packed = path.with_name(f"{path.name}.gz")
    packed.write_bytes(gzip.compress(path.read_bytes()))
    path.unlink()
    return packed


def by_name(folder: Path) -> dict[str, RunFinding]:
    return {Path(finding.name).name: finding for finding in diagnose(folder).runs}


def test_packed_tables_are_read_like_any_other(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(table("a"))
    (tmp_path / "b.csv").write_text(table("b"))
    pack(tmp_path / "b.csv")
    assert RunSet.read(tmp_path).run_ids == ("a", "b")
    assert {name: one.evaluations for name, one in by_name(tmp_path).items()} == {"a": 6, "b": 6}
    rows = [{"n": 8, "bp": 32, "step": step, "avg@4": 0.5} for step in range(6)]
    lines = tmp_path / "lines" / "c.jsonl"
    lines.parent.mkdir()
    lines.write_text("".join(json.dumps(row) + "\n" for row in rows))
    plain = RunSet.read(lines)
    assert RunSet.read(pack(lines)).to_polars().equals(plain.to_polars())


def test_a_file_and_its_packed_copy_are_not_two_runs(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(table("a"))
    shutil.copy(tmp_path / "a.csv", tmp_path / "copy.csv")
    pack(tmp_path / "copy.csv")
    with pytest.raises(RecordError, match=r"a\.csv.*copy\.csv\.gz"):
        RunSet.read(tmp_path)


def test_packed_attempts_of_a_verl_run_are_attempts_of_the_same_run(tmp_path: Path) -> None:
    write_hydra(tmp_path / "exp")
    pack(write_verl(tmp_path / "exp" / "log_attempt-1.jsonl", range(31)))
    write_verl(tmp_path / "exp" / "log_attempt-2.jsonl", range(20, 51))
    runs = RunSet.read(tmp_path)
    assert runs.run_ids == ("exp/log",)
    assert [note.code for note in runs.notes if note.code == "attempts-stitched"]
    assert by_name(tmp_path)["log"].attempts == 2


def test_packed_events_are_read(tmp_path: Path) -> None:
    write_events(tmp_path / "n8_bp32", range(1, 31), OPENRLHF)
    write_events(tmp_path / "n8_bp32", range(21, 51), OPENRLHF, began=1000)
    plain = RunSet.read(tmp_path, n=8, bp=32)
    first = min((tmp_path / "n8_bp32").iterdir())
    pack(first)
    assert RunSet.read(tmp_path, n=8, bp=32).to_polars().equals(plain.to_polars())


def test_a_packed_state_and_a_packed_configuration_are_read(tmp_path: Path) -> None:
    history = [
        {"step": step, "eval_reward": 0.5, "reward": 0.4, "completions/mean_length": 9} for step in range(0, 60, 10)
    ]
    (tmp_path / "run" / "checkpoint-50").mkdir(parents=True)
    state = tmp_path / "run" / "checkpoint-50" / "trainer_state.json"
    state.write_text(json.dumps({"log_history": history}))
    plain = RunSet.read(tmp_path, n=8, bp=32, updates_per_batch=1)
    pack(state)
    assert RunSet.read(tmp_path, n=8, bp=32, updates_per_batch=1).to_polars().equals(plain.to_polars())
    write_hydra(tmp_path / "exp", n=4, problems=32)
    write_verl(tmp_path / "exp" / "log.jsonl", range(31))
    pack(tmp_path / "exp" / ".hydra" / "config.yaml")
    assert RunSet.read(tmp_path / "exp").runs()[0].group_size == 4


@pytest.mark.parametrize(
    "name",
    ["old.log.zst", "log_attempt-2.jsonl.bz2", "events.out.tfevents.1.xz", "trainer_state.json.zip", "runs.tar.gz"],
)
def test_logs_that_are_packed_otherwise_are_named(tmp_path: Path, name: str) -> None:
    write_verl(tmp_path / "log.jsonl", range(31))
    plain = RunSet.read(tmp_path, n=4, bp=32)
    assert "files-not-read" not in {note.code for note in plain.notes}
    (tmp_path / name).write_bytes(b"(\xb5/\xfd" * 99)
    runs = RunSet.read(tmp_path, n=4, bp=32)
    assert runs.to_polars().equals(plain.to_polars())
    (note,) = [note for note in runs.notes if note.code == "files-not-read"]
    assert (note.severity, note.data["files"]) == ("warning", [str(tmp_path / name)])
    assert by_name(tmp_path)[name].advice[0].startswith("Unpack it")


def test_a_packed_file_that_was_cut_off_says_so(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(table("a"))
    packed = pack(tmp_path / "a.csv")
    packed.write_bytes(packed.read_bytes()[:-12])
    with pytest.raises(RecordError):
        RunSet.read(packed)
    assert "cannot be unpacked" in by_name(tmp_path)["a.csv.gz"].problems[0]


@pytest.mark.parametrize("name", ["b.csv.zst", "b.xlsx"])
def test_tables_that_are_not_read_are_named(tmp_path: Path, name: str) -> None:
    (tmp_path / "a.csv").write_text(table("a"))
    (tmp_path / name).write_bytes(b"(\xb5/\xfd")
    runs = RunSet.read(tmp_path)
    assert runs.run_ids == ("a",)
    (note,) = runs.notes
    assert (note.code, note.severity, note.data["files"]) == ("files-not-read", "warning", [str(tmp_path / name)])
    finding = by_name(tmp_path)[name]
    assert finding.advice[0].startswith("Unpack it")
    (tmp_path / "a.csv").unlink()
    for path in (tmp_path, tmp_path / name):
        with pytest.raises(RecordError, match=name):
            RunSet.read(path)


def test_tables_beside_the_logs_that_a_glob_matches_are_named(tmp_path: Path) -> None:
    write_events(tmp_path / "a", range(1, 31), OPENRLHF)
    (tmp_path / "runs.csv.gz").write_bytes(gzip.compress(table("b").encode()))
    runs = RunSet.read(tmp_path / "*", n=8, bp=32)
    (note,) = [note for note in runs.notes if note.code == "files-not-read"]
    assert note.data["files"] == [str(tmp_path / "runs.csv.gz")]


def test_bytes_that_are_no_text_are_never_replaced_in_silence(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(table("rün").encode("latin-1"))
    with pytest.raises(RecordError):
        RunSet.read(path)
    (note,) = RunSet.read(path, on_truncated="drop").notes
    assert (note.code, note.data["line"]) == ("text-not-utf8", 2)
    (finding,) = diagnose(path).runs
    assert "a.csv:2" in finding.problems[0]
    assert finding.evaluations == 6


def test_a_log_and_its_configuration_survive_bytes_that_are_no_text(tmp_path: Path) -> None:
    write_hydra(tmp_path / "exp", n=4, problems=32)
    config = tmp_path / "exp" / ".hydra" / "config.yaml"
    config.write_bytes(b"# gr\xf6sser\n" + config.read_bytes())
    log = write_verl(tmp_path / "exp" / "log.jsonl", range(31))
    log.write_bytes(log.read_bytes().replace(b'"critic/score/mean"', b'"n\xf6te": 1, "critic/score/mean"', 1))
    runs = RunSet.read(tmp_path)
    (info,) = runs.runs()
    assert (info.group_size, info.rollouts) == (4, 30 * 128)
    assert "text-not-utf8" in {note.code for note in runs.notes}


def test_a_response_that_is_no_text_does_not_cost_its_evaluation(tmp_path: Path) -> None:
    rows = [{"input": "?", "output": f"{i} \xff", "gts": "", "score": i % 2, "step": 10} for i in range(4)]
    dump = tmp_path / "10.jsonl"
    dump.write_bytes("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode("latin-1"))
    assert looks_like_dump(dump)
    rewards = dumped_rewards(dump)
    assert rewards is not None
    assert rewards.mean() == 0.5
