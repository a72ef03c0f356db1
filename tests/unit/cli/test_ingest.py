"""`isocompute doctor` as a newcomer and as a program meet them."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from isocompute_sdk.records import RunSet

Command = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """Two veRL runs that only their names tell apart, one with a broken tail, and a file that is no table."""
    folder = tmp_path / "logs"
    for n in (4, 16):
        run = folder / f"grpo_n{n}_bp32"
        run.mkdir(parents=True)
        lines = [
            json.dumps({"step": step, "data": {"val-core/gsm/acc/mean@4": 0.5 + step / 1000, **updated}})
            for step, updated in ((step, {"critic/score/mean": 0.5} if step else {}) for step in range(0, 60, 10))
        ]
        (run / "log.jsonl").write_text("\n".join([*lines, '{"step": 60, "da']))
    (folder / "broken.parquet").write_bytes(b"PAR1")
    return folder


def test_a_folder_of_odd_names_becomes_a_table_with_one_confirmation(
    isocompute: Command, logs: Path, tmp_path: Path
) -> None:
    target, table = tmp_path / "map.yaml", tmp_path / "runs.parquet"
    said = isocompute("doctor", logs, "--output", target)
    assert said.returncode == 0, said.stderr
    assert str(target) in said.stdout
    refused = isocompute("doctor", "--map", target, "--output", table)
    assert refused.returncode == 1
    assert str(target) in refused.stderr
    assert not table.exists()
    text = target.read_text()
    target.write_text(text.replace("answer: null", "answer: 16"))
    done = isocompute("doctor", "--map", target, "--output", table, "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["schema_version"] == 1
    assert {note["code"] for note in document["notes"]} == {"log-cut-off", "files-not-read"}
    assert [run["group_size"] for run in document["runs"]] == [16, 16]
    runs = RunSet.read(table)
    assert runs.series("avg@4", "gsm")[0].rollouts_T[-1] == 50 * 256


def test_the_doctor_fails_only_where_nothing_can_be_read(isocompute: Command, logs: Path, tmp_path: Path) -> None:
    folder = tmp_path / "damaged"
    folder.mkdir()
    (folder / "cut.parquet").write_bytes(b"PAR1")
    (folder / "empty.csv").write_bytes(b"")
    for options in ((), ("--json",)):
        said = isocompute("doctor", folder, *options)
        assert said.returncode == 1
        assert "empty.csv" in said.stdout
    assert len(json.loads(said.stdout)["runs"]) == 2
    assert isocompute("doctor", folder, logs).returncode == 0


def test_what_is_printed_of_odd_names_stays_on_one_line_and_can_be_pasted(isocompute: Command, tmp_path: Path) -> None:
    folder = tmp_path / "my $runs"
    odd = folder / "n8_bp32\n\x1b[31m"
    odd.mkdir(parents=True)
    line = {"critic/score/mean": 0.5, "val-core/gsm/acc/mean@4": 0.5}
    (odd / "log.jsonl").write_text("".join(json.dumps({"step": i, "data": line}) + "\n" for i in range(5)))
    for name in ("first.csv", "second.csv"):
        (folder / name).write_text("run,n,bp,step,avg@4\n" + "".join(f"same,8,32,{i},0.{i}\n" for i in range(5)))
    said = isocompute("doctor", folder).stdout
    assert "\x1b" not in said
    assert [line for line in said.splitlines() if line.startswith("n8_bp32\\n\\x1b[31m")]
    lines = [line for line in said.splitlines() if line.startswith("same")]
    assert [line.rpartition("/")[2] for line in lines] == ["first.csv", "second.csv"]
    assert f"isocompute doctor '{folder}' --output map.yaml" in said
    refused = isocompute("fit", odd / "log.jsonl").stderr
    assert "group_size" in refused
    assert "\x1b" not in refused
