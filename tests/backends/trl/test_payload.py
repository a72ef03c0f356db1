"""What runs beside TRL: the samples of an evaluation, and the choice of its batch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from isocompute_sdk.metrics import avg_at_k, best_at_k, worst_at_k
from isocompute_trl import payload as own
from isocompute_trl.logs import FORMAT
from tests.backends.programs import load

train = load("train", own)


@given(
    st.integers(1, 9).flatmap(
        lambda k: st.lists(st.lists(st.floats(-5, 5), min_size=k, max_size=k), min_size=1, max_size=6)
    )
)
def test_metrics_beside_the_training_equal_the_exact_estimators(groups: list[list[float]]) -> None:
    k_most = len(groups[0])
    found = train.sample_metrics({str(i): group for i, group in enumerate(groups)}, k_most)
    rewards = np.array(groups)
    for name, value in found.items():
        kind, _, k = name.partition("@")
        expected = {"avg": avg_at_k, "best": best_at_k, "worst": worst_at_k}[kind](rewards, int(k))
        assert value == pytest.approx(expected, abs=1e-9), name
    assert {f"{kind}@{k_most}" for kind in ("avg", "best", "worst")} <= set(found)


def test_samples_of_several_processes_and_attempts_are_told_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for process, attempt, problem, scores in [(1, 1, "a", [0, 0]), (7, 2, "a", [1, 0]), (8, 2, "b", [1, 1])]:
        monkeypatch.setattr(train.os, "getpid", lambda process=process: process)
        records = [{"problem": problem, "score": float(score), "error": None} for score in scores]
        train.write_samples(tmp_path, 10, attempt, records)
    assert train.read_samples(tmp_path, 10, 2) == {"a": [1.0, 0.0], "b": [1.0, 1.0]}
    assert train.sample_metrics(train.read_samples(tmp_path, 10, 2), 2) == {
        "avg@2": 0.75,
        "best@2": 1.0,
        "worst@2": 0.5,
    }
    with pytest.raises(RuntimeError, match=" 2 "):
        train.sample_metrics(train.read_samples(tmp_path, 20, 2), 2)


def test_a_problem_that_padding_repeats_counts_once() -> None:
    assert train.sample_metrics({"a": [1.0, 1.0, 0.0, 0.0], "b": [0.0, 0.0]}, 2)["avg@2"] == 0.5


@given(st.integers(1, 400), st.integers(1, 16), st.integers(1, 16), st.integers(1, 300))
def test_the_evaluation_batch_holds_whole_groups_and_repeats_no_problem_where_it_can(
    problems: int, k: int, processes: int, most: int
) -> None:
    size = train.eval_batch(problems, k, processes, most)
    assert size % k == 0
    assert size <= max(most, k)
    if problems % processes == 0:
        assert (problems * k) % (size * processes) == 0


def test_only_whole_checkpoints_are_gone_on_from(tmp_path: Path) -> None:
    assert train.last_checkpoint(tmp_path) is None
    for step, text in [(4, '{"global_step": 4}'), (20, '{"global_step": 20}'), (24, '{"global_st'), (28, None)]:
        (tmp_path / f"checkpoint-{step}").mkdir()
        if text is not None:
            (tmp_path / f"checkpoint-{step}" / "trainer_state.json").write_text(text)
    assert train.last_checkpoint(tmp_path) == str(tmp_path / "checkpoint-20")


def test_the_journal_names_metrics_as_every_reader_of_trl_logs_does() -> None:
    known = FORMAT.meanings(list(train.STEP_METRICS))
    assert len(known) >= 8
    assert {tag: train.STEP_METRICS[tag] for tag in known} == {tag: meaning.metric for tag, meaning in known.items()}
