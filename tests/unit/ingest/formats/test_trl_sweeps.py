"""A folder of TRL states without their arguments: k of the evaluation and the batch have to be said, and are asked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from isocompute_sdk.cli.shared.reading_options import ReadingOptions
from isocompute_sdk.errors import RecordError
from isocompute_sdk.ingest import diagnose, propose, read_mapped
from isocompute_sdk.ingest.doctor import diagnose_map
from isocompute_sdk.records import RunSet

COMPLETIONS, TOKENS, PROMPT = 128, 200, 60
SIZES = {f"run-n{n}": {"group_size": n} for n in (4, 8, 32)}


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    """n = 4, 8 and 32 with 128 completions per update each, as gradient accumulation keeps them."""
    for n in (4, 8, 32):
        rows: list[dict[str, float]] = []
        for step in range(1, 41):
            reward = {"reward": 0.5 + step / 100, "kl": 0.01, "completions/mean_length": TOKENS + step % 7}
            rows.append({"step": step, **reward, "num_tokens": step * COMPLETIONS * (TOKENS + PROMPT)})
            if step % 10 == 0:
                rows.append({"step": step, "eval_reward": 0.3 + step / 200 + n / 1000, "eval_runtime": 3.0})
        folder = tmp_path / "sweep" / f"run-n{n}" / "checkpoint-40"
        folder.mkdir(parents=True)
        (folder / "trainer_state.json").write_text(json.dumps({"log_history": rows, "global_step": 40}))
    return tmp_path / "sweep"


@pytest.fixture
def sized(sweep: Path) -> Path:
    """The sweep with what says n and not B_p beside each run."""
    for n in (4, 8, 32):
        (sweep / f"run-n{n}" / "args.json").write_text(json.dumps({"num_generations": n}))
    return sweep


@pytest.fixture
def table(sweep: Path, tmp_path: Path) -> Path:
    """The runs of the sweep as `ingest` saves them."""
    saved = tmp_path / "runs.parquet"
    RunSet.read(sweep, rollouts_per_batch=COMPLETIONS, runs=SIZES).to_polars().write_parquet(saved)
    return saved


@pytest.mark.parametrize("given", [{"set": {"eval_samples": 8}}, {"metric": "avg@8"}])
def test_k_can_be_said_of_a_saved_table(table: Path, given: dict[str, Any]) -> None:
    runs = RunSet.read(table, **given)
    assert "avg@8" in runs.metrics
    assert "avg@?" not in runs.metrics


@pytest.mark.parametrize("metric", ["avg@8", "eval_reward"])
def test_the_metric_names_the_evaluation_of_a_log(sweep: Path, metric: str) -> None:
    runs = RunSet.read(sweep, metric=metric, n=8, rollouts_per_batch=COMPLETIONS)
    assert {len(one.value_T) for one in runs.series(metric)} == {4}


def test_a_mapping_takes_what_the_options_say(sized: Path, tmp_path: Path) -> None:
    target = tmp_path / "map.yaml"
    propose(sized, tmp_path).save(target)
    with pytest.raises(RecordError, match="open"):
        read_mapped(target)
    options = ReadingOptions(map=target, set_=[f"rollouts_per_batch={COMPLETIONS}", "eval_samples=4"], metric=None)
    runs = options.read(None)
    assert {(run.group_size, run.problems_per_batch) for run in runs.runs()} == {(4, 32), (8, 16), (32, 4)}
    assert "avg@4" in runs.metrics
    assert diagnose_map(target, options.mapping()).verdict == "ready"
    with pytest.raises(RecordError, match="no such"):
        ReadingOptions(map=target, set_=["no such=1"]).read(None)


def test_runs_of_several_n_are_asked_for_their_completions(sized: Path, tmp_path: Path) -> None:
    found = diagnose(sized)
    assert found.question is not None
    assert "--set rollouts_per_batch=R" in found.question
    (question,) = propose(sized).open_questions()
    assert question.field == "rollouts_per_batch"
    target = tmp_path / "map.yaml"
    propose(sized, tmp_path).save(target)
    text = target.read_text()
    target.write_text(text.replace("answer: null", f"answer: {COMPLETIONS}"))
    assert {run.rollouts for run in read_mapped(target).runs()} == {40.0 * COMPLETIONS}
    with pytest.raises(RecordError) as refused:
        RunSet.read(sized, runs=SIZES)
    assert refused.value.options == ("--set rollouts_per_batch=R",)
    with pytest.raises(RecordError) as refused:
        RunSet.read(sized, runs={"run-n4": {"group_size": 4}})
    assert refused.value.options


def test_a_table_of_several_n_is_asked_for_its_completions(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    path.write_text("n,step,avg@4\n" + "".join(f"{n},{i},0.{i + 3}\n" for n in (4, 8) for i in range(4)))
    with pytest.raises(RecordError) as refused:
        RunSet.read(path)
    assert refused.value.options == ("--set rollouts_per_batch=R",)
    assert "--set problems_per_batch=BP" in str(refused.value.shell_hint)
    assert "problems_per_batch=..." in str(refused.value.hint)
    assert [run.problems_per_batch for run in RunSet.read(path, rollouts_per_batch=64).runs()] == [16, 8]


def test_one_b_p_for_all_is_checked_against_the_tokens_of_the_log(sweep: Path) -> None:
    with pytest.raises(RecordError, match="num_tokens"):
        RunSet.read(sweep, runs=SIZES, problems_per_batch=32)
