"""Packed files, and files with bytes that are no text: reported, never passed over in silence."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from isocompute_sdk.errors import RecordError
from isocompute_sdk.ingest import diagnose
from isocompute_sdk.records import RunSet
from isocompute_verl.files import looks_like_dump
from tests.unit.ingest.log_files import by_name, write_hydra, write_verl


def table(run: str) -> str:
    return "run_id,n,bp,step,avg@4\n" + "".join(f"{run},8,32,{step},0.5\n" for step in range(6))


@pytest.mark.parametrize(
    "name",
    ["old.log.gz", "log_attempt-2.jsonl.bz2", "events.out.tfevents.1.xz", "trainer_state.json.zip", "runs.tar.gz"],
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


@pytest.mark.parametrize("name", ["b.csv.gz", "b.xlsx"])
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


def test_bytes_that_are_no_text_are_never_replaced_in_silence(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(table("rün").encode("latin-1"))
    (note,) = RunSet.read(path).notes
    assert (note.code, note.data["line"]) == ("text-not-utf8", 2)
    (finding,) = diagnose(path).runs
    assert "a.csv:2" in finding.problems[0]
    assert (finding.evaluations, finding.with_base) == (5, True)


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


def test_a_dump_of_responses_is_known_where_one_is_no_text(tmp_path: Path) -> None:
    rows = [{"input": "?", "output": f"{i} \xff", "gts": "", "score": i % 2, "step": 10} for i in range(4)]
    dump = tmp_path / "10.jsonl"
    dump.write_bytes("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode("latin-1"))
    assert looks_like_dump(dump)
