"""Reading metrics.jsonl of the built-in runner."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from isocompute_sdk.errors import RecordError
from isocompute_sdk.records import CONTEXT_FIELDS, RunSet

CONTEXT: dict[str, Any] = {
    "model": "task/model",
    "train_data": "task/train.jsonl",
    "algorithm": "grpo",
    "learning_rate": 1e-4,
    "kl_coef": 0.0,
    "entropy_coef": 0.0,
    "updates_per_batch": 1,
    "max_tokens": 5,
    "eval_temperature": 1.0,
    "eval_samples": 4,
    "n_problems": 911,
}


def journal(run_id: str = "n4-bp16-seed1", n: int = 4, steps: int = 2) -> list[dict[str, Any]]:
    """Records as the runner writes them: the run, the base model, then steps with an evaluation at the end."""
    batch = n * 16

    def record(kind: str, step: int, **fields: Any) -> dict[str, Any]:
        common = {"schema_version": 1, "kind": kind, "run_id": run_id, "attempt": 1, "step": step}
        return {**common, "rollouts": step * batch, "tokens": step * batch * 5, "wall_seconds": 0.1 * step, **fields}

    def evaluation(step: int, value: float, eval_set: str = "validation") -> dict[str, Any]:
        metrics = {"avg@4": value, "best@4": value + 0.1, "worst@4": value - 0.1}
        counts = {"pass_counts": [4, 0, 2], "samples": 4, "zero_pass_share": 1 / 3}
        return record("evaluation", step, eval_set=eval_set, metrics=metrics, **counts)

    lines = [record("run", 0, group_size=n, problems_per_batch=16, seed=1, versions={"torch": "2.13.0"}, **CONTEXT)]
    lines += [evaluation(0, 0.4), evaluation(0, 0.5, "train_probe")]
    for step in range(1, steps + 1):
        metrics = {"train_reward": 0.4 + 0.1 * step, "entropy": 0.5, "kl": None}
        lines.append(record("step", step, metrics=metrics, seconds={"sampling": 0.1, "training": 0.2}))
    lines += [evaluation(steps, 0.6), record("end", steps, status="finished", message="")]
    return lines


def write(folder: Path, lines: list[dict[str, Any]], cut: int = 0) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(line) + "\n" for line in lines)
    path = folder / "metrics.jsonl"
    path.write_text(text[: len(text) - cut])
    return path


def test_evaluations_and_steps_become_rows_with_the_context_of_their_run(tmp_path: Path) -> None:
    runs = RunSet.read(write(tmp_path, journal()))
    assert runs.run_ids == ("n4-bp16-seed1",)
    measured = {"avg@4", "best@4", "entropy", "train_reward", "worst@4", "zero_pass_share"}
    assert set(runs.metrics) == measured | {"step_seconds", "sampling_seconds"}
    assert runs.eval_sets == ("train", "train_probe", "validation")
    (series,) = runs.series("avg@4", "validation")
    assert series.step_T.tolist() == [0, 2]
    assert series.rollouts_T.tolist() == [0, 128]
    assert series.value_T.tolist() == [0.4, 0.6]
    assert series.tokens_T is not None
    assert series.tokens_T.tolist() == [0, 640]
    assert (series.group_size, series.problems_per_batch, series.seed) == (4, 16, 1)
    assert dict(series.context) == {**dict.fromkeys(CONTEXT_FIELDS), **CONTEXT}
    assert runs.series("train_reward")[0].value_T == pytest.approx([0.5, 0.6])


def test_a_folder_of_run_folders_is_one_run_set_whatever_else_lies_there(tmp_path: Path) -> None:
    write(tmp_path / "runs" / "n4", journal("n4", 4))
    write(tmp_path / "runs" / "n16", journal("n16", 16))
    (tmp_path / "train.jsonl").write_text('{"prompt": "1*1=", "answer": "0001"}\n')
    (tmp_path / "runs.csv").write_text("n,C,avg@4\n8,1,0.5\n")
    runs = RunSet.read(tmp_path)
    assert runs.run_ids == ("n16", "n4")
    assert {run.group_size for run in runs.runs()} == {4, 16}
    assert runs == RunSet.read(tmp_path, "isocompute") == RunSet.read(str(tmp_path / "runs" / "*" / "metrics.jsonl"))


def test_a_run_that_has_only_begun_does_not_keep_the_others_from_being_read(tmp_path: Path) -> None:
    write(tmp_path / "n4", journal("n4"))
    write(tmp_path / "n16", journal("n16", 16)[:1])
    (tmp_path / "n64").mkdir()
    (tmp_path / "n64" / "metrics.jsonl").touch()
    assert RunSet.read(tmp_path).run_ids == ("n4",)
    with pytest.raises(RecordError):
        RunSet.read(tmp_path / "n16")


@pytest.mark.parametrize("lost", [{}, {"kind": "rum"}])
def test_a_journal_that_lost_its_beginning_is_no_table(tmp_path: Path, lost: dict[str, Any]) -> None:
    first, *rest = journal()
    with pytest.raises(RecordError, match="beginning"):
        RunSet.read(write(tmp_path, [{**first, **lost}, *rest] if lost else rest))


def test_a_line_cut_off_is_left_out(tmp_path: Path) -> None:
    write(tmp_path, journal(), cut=30)
    assert RunSet.read(tmp_path) == RunSet.read(write(tmp_path, journal()[:-1]))


def test_the_same_run_resumed_is_one_run_and_a_changed_setting_is_not(tmp_path: Path) -> None:
    first, *rest = journal(steps=4)
    resumed = {**first, "attempt": 2, "step": 2, "versions": {"torch": "2.14.0"}}
    whole = RunSet.read(write(tmp_path, [first, *rest]))
    assert RunSet.read(write(tmp_path, [first, *rest[:4], resumed, *rest[4:]])) == whole
    write(tmp_path, [first, *rest[:4], {**resumed, "learning_rate": 2e-4}, *rest[4:]])
    with pytest.raises(RecordError, match="learning_rate"):
        RunSet.read(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda lines: lines[1:], ":1:.*'evaluation'"),
        (lambda lines: [lines[0], {**lines[1], "schema_version": 2}], r":2: schema_version: received 2"),
        (lambda lines: [lines[0], {**lines[1], "metrics": [0.5]}], r":2: metrics: received \[0.5\]"),
        (lambda lines: [lines[0], {**lines[1], "metrics": {"avg@4": "high"}}], r":2: metrics.*'high'"),
        (lambda lines: [{**lines[0], "group_size": "4"}], r":1: group_size: received '4'"),
        (lambda lines: [lines[0], {**lines[1], "step": -1}], r":2: step: received -1"),
    ],
)
def test_damage_is_named_by_line(tmp_path: Path, change: Any, message: str) -> None:
    path = write(tmp_path, change(journal()))
    with pytest.raises(RecordError, match=message):
        RunSet.read(path, "isocompute")


def test_an_evaluation_without_its_set_is_damage(tmp_path: Path) -> None:
    lines = journal()
    del lines[1]["eval_set"]
    with pytest.raises(RecordError, match=r"metrics\.jsonl:2.*eval_set"):
        RunSet.read(write(tmp_path, lines))
