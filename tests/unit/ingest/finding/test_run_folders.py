"""Folders that launch scripts of this package filled, one line each; and folders that are put together from links."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from isocompute_openrlhf import OpenRLHFBackend
from isocompute_sdk.errors import RecordError
from isocompute_sdk.ingest import diagnose, propose, read
from isocompute_sdk.ingest.find import MARKS
from isocompute_sdk.ingest.paths import files_below
from isocompute_sdk.records import RunSet
from isocompute_sdk.run_folders.journal_records import START, Start
from isocompute_sdk.specs import Data, Recipe, RunSpec
from isocompute_sdk.training.registry import watches
from isocompute_verl import VeRLBackend
from tests.unit.ingest.log_files import OPENRLHF, by_name, write_events, write_verl

RUN = RunSpec(
    run_id="a",
    model="qwen",
    data=Data(train="train.jsonl", validation="validation.jsonl", reward="reward.py"),
    recipe=Recipe(),
    group_size=8,
    problems_per_batch=32,
    update_steps=50,
)
JOURNAL = [
    {"kind": "run", "schema_version": 1, "run_id": "ours", "group_size": 4, "problems_per_batch": 32},
    *(
        {
            "kind": "evaluation",
            "schema_version": 1,
            "run_id": "ours",
            "step": step,
            "rollouts": step * 128,
            "tokens": 0,
            "metrics": {"avg@4": 0.5 + step / 100},
            "eval_set": "validation",
        }
        for step in range(5)
    ),
]


def of_openrlhf(run: RunSpec) -> str:
    return OpenRLHFBackend().documents(run)["request.json"]


def of_verl(run: RunSpec) -> str:
    return VeRLBackend().documents(run)["request.json"]


def launched(folder: Path, request: Callable[[RunSpec], str] = of_openrlhf) -> Path:
    """What a launch script leaves in the folder of a run beside its log."""
    folder.mkdir(parents=True)
    (folder / "request.json").write_text(request(RUN.replace(run_id=folder.name)))
    (folder / "claim_folder.py").write_text("")
    assert all((folder / name).exists() for name in MARKS)
    (folder / "attempts.jsonl").write_text(START.to_text(Start(attempt=1, started=1.5)))
    (folder / "resumed.jsonl").write_text('{"attempt": 1, "step": 0}\n')
    (folder / "train_rows.jsonl").write_text('{"input": "?", "label": "{}", "datasource": "train"}\n')
    (folder / "validation" / "1").mkdir(parents=True)
    (folder / "validation" / "1" / "0.jsonl").write_text('{"input": "?", "output": "!", "score": 1.0, "step": 0}\n')
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_events(launched(tmp_path / "a") / "tensorboard" / "a", range(1, 51), OPENRLHF)
    lines = [f"Global step {step}: {{'rollout/reward_mean': 0.5}}\n" for step in range(1, 51)]
    (tmp_path / "a" / "console.1.log").write_text("".join(lines))
    run = launched(tmp_path / "b", of_verl)
    write_verl(run / "logs" / "attempt-1.jsonl", range(31))
    write_verl(run / "logs" / "attempt-2.jsonl", range(20, 51))
    write_events(run / "tensorboard" / "b", range(51), {"critic/score/mean": lambda step: 0.5})
    launched(tmp_path / "waiting")
    return tmp_path


def test_a_run_of_a_launch_script_is_one_line_under_its_own_name(folder: Path) -> None:
    found = by_name(folder)
    assert sorted(found) == ["a", "b", "waiting"]
    assert (found["a"].group_size, found["a"].rollouts) == ("8", 50 * 256)
    # The second start goes on from step 19, so that the first one had sampled 11 updates in vain.
    assert (found["b"].attempts, found["b"].rollouts, found["b"].rollouts_spent) == (2, 50 * 256, 61 * 256)
    assert not found["waiting"].readable
    assert sorted(propose(folder).runs) == ["a", "b"]
    assert not propose(folder).questions
    assert by_name(folder / "a").keys() == {"a"}


def test_runs_beside_those_of_the_built_in_runner_are_not_lost(folder: Path) -> None:
    ours = folder / "ours"
    (ours / "checkpoints" / "checkpoint-4").mkdir(parents=True)
    (ours / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in JOURNAL))
    (ours / "checkpoints" / "checkpoint-4" / "trainer_state.json").write_text('{"log_history": [], "global_step": 4}')
    (ours / "samples.jsonl").write_text('{"step": 0, "score": 0.5}\n')
    found = by_name(folder)
    assert sorted(found) == ["a", "b", "ours", "waiting"]
    assert (found["ours"].evaluations, found["ours"].rollouts) == (4, 512)
    runs = RunSet.read(folder)
    assert runs.run_ids == ("ours",)
    (note,) = [note for note in runs.notes if note.code == "files-not-read"]
    assert {Path(name).name for name in note.data["files"]} == {"a", "b", "waiting"}


def test_what_is_given_for_runs_that_lack_it_changes_none_of_ours(folder: Path) -> None:
    (folder / "ours").mkdir()
    (folder / "ours" / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in JOURNAL))
    write_events(folder / "other", range(1, 51), OPENRLHF)
    paths = [folder / name for name in ("a", "ours", "other")]
    for given in ({"n": 2, "problems_per_batch": 5}, {"group_size": 2, "rollouts_per_batch": 10}):
        sizes = {one.run_id: (one.group_size, one.problems_per_batch) for one in read(paths, set=given).runs()}
        assert sizes == {"a": (8, 32), "ours": (4, 32), "other": (2, 5)}
        shown = {one.name: one.group_size for one in diagnose(paths, set=given).runs}
        assert shown == {"a": "8", "ours": "4", "other": "2"}


def journal_of_a_failed_start(folder: Path) -> None:
    end = {"kind": "end", "schema_version": 1, "run_id": "a", "status": "failed", "message": "no module named trl"}
    (folder / "metrics.jsonl").write_text(json.dumps(end) + "\n")


def exit_of_a_failed_start(folder: Path) -> None:
    (folder / "exit.json").write_text('{"kind": "run-exit", "schema_version": 2, "exit_code": 1}')
    (folder / "console.1.log").write_text("no module named trl\n")


def long_ago(folder: Path) -> None:
    for name in ("attempts.jsonl", "started.json"):
        os.utime(folder / name, (1.0, 1.0))


def no_rows(folder: Path) -> None:
    (folder / "started.json").unlink()
    ended = time.time() - 3.0
    os.utime(folder / "attempts.jsonl", (ended, ended))


@pytest.mark.parametrize("failed", [journal_of_a_failed_start, exit_of_a_failed_start, long_ago, no_rows])
def test_a_run_that_ended_before_its_first_update_failed_and_other_runs_are_read(
    tmp_path: Path, failed: Callable[[Path], None]
) -> None:
    run = launched(tmp_path / "n8", of_verl)
    (run / "started.json").write_text("{}")
    failed(run)
    assert [one.status().state for one in watches([run])] == ["failed"]
    with pytest.raises(RecordError, match="failed before its first update"):
        RunSet.read(run)
    (tmp_path / "table.csv").write_text("n,bp,step,avg@4\n8,32,0,0.5\n8,32,10,0.6\n")
    read = RunSet.read([tmp_path / "table.csv", run])
    assert (len(read.run_ids), [note.code for note in read.notes]) == (1, ["run-left-out"])


def names_below(root: Path) -> list[str]:
    return sorted(str(file.relative_to(root)) for file in files_below(root))


def test_a_run_behind_a_link_is_a_run_like_any_other(tmp_path: Path) -> None:
    write_events(tmp_path / "disk" / "one", range(1, 41), OPENRLHF)
    (tmp_path / "disk" / "table.csv").write_text("n,bp,step,avg@4\n8,32,0,0.5\n8,32,10,0.6\n")
    runs = tmp_path / "runs"
    runs.mkdir()
    (runs / "n8_bp32").symlink_to(tmp_path / "disk" / "one")
    (runs / "other.csv").symlink_to(tmp_path / "disk" / "table.csv")
    assert [finding.name for finding in diagnose(runs).runs] == ["n8-bp32-seed0", "n8_bp32"]
    assert RunSet.read(runs, group_size=8, problems_per_batch=32).run_ids == ("n8_bp32",)


def test_what_several_names_lead_to_is_read_once_by_the_name_that_is_no_link(tmp_path: Path) -> None:
    write_events(tmp_path / "run-1", range(1, 41), OPENRLHF)
    (tmp_path / "a-latest").symlink_to("run-1")
    (tmp_path / "z.csv").write_text("")
    (tmp_path / "a.csv").symlink_to("z.csv")
    assert {Path(name).parts[0] for name in names_below(tmp_path)} == {"run-1", "z.csv"}


def test_circles_hidden_names_and_links_to_nowhere_are_left_out(tmp_path: Path) -> None:
    root = tmp_path / "runs"
    (root / "a" / ".hidden").mkdir(parents=True)
    for file in ("a/log.csv", "a/.secret.csv", "a/.hidden/log.csv"):
        (root / file).write_text("")
    (tmp_path / "beside.csv").write_text("")
    (root / "a" / "up").symlink_to("..")
    (root / "above").symlink_to(os.pardir)
    (root / "gone").symlink_to("nowhere")
    assert names_below(root) == ["a/log.csv"]
