"""What runs beside TRL: the samples of an evaluation, and the choice of its batch."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

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


def test_a_failing_reward_scores_zero_is_counted_and_never_raises(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "reward.py").write_text("def reward(p, r, a):\n    return {'ok': 1.0, 'nan': float('nan')}[r]\n")
    (tmp_path / "inputs.json").write_text(
        json.dumps({"reward": {"path": str(tmp_path / "reward.py"), "function": None}})
    )
    logged: list[tuple[str, float]] = []
    clock = train.StepClock()
    reward = train.reward_function(tmp_path, 3, clock)
    asked = {"problem": ["a", "a", "b", "b"], "split": ["validation"] * 4, "question": ["?"] * 4, "answer": ["1"] * 4}
    completions = ["ok", "nan", [{"role": "assistant", "content": "ok"}], "missing"]
    state = SimpleNamespace(global_step=5)
    found = reward(completions=completions, trainer_state=state, log_metric=lambda *v: logged.append(v), **asked)
    assert found == [1.0, 0.0, 1.0, 0.0]
    assert logged == [("reward_error", 0.5)]
    assert train.read_samples(tmp_path, 5, 3) == {"a": [1.0, 0.0], "b": [1.0, 0.0]}
    assert capsys.readouterr().err.count("scores 0.0") == 1
    assert set(clock.parts) == {"reward"}


def test_the_parts_of_an_update_make_up_the_whole_and_an_evaluation_before_it_does_not_count() -> None:
    times = iter([0.0, 1.0, 9.0, 10.0, 11.0, 14.0, 15.0, 16.0, 18.0, 20.0])
    clock = train.StepClock(lambda: next(times))
    with clock.part("sampling"):  # of an evaluation
        pass
    clock.begin()
    for name in ("sampling", "reward"):
        with clock.part(name):
            pass
    clock.end()
    assert clock.seconds() == {"sampling": 3.0, "reward": 1.0, "training": 4.0}


def test_the_journal_names_metrics_as_every_reader_of_trl_logs_does() -> None:
    known = FORMAT.meanings(list(train.STEP_METRICS))
    assert len(known) >= 8
    assert {tag: train.STEP_METRICS[tag] for tag in known} == {tag: meaning.metric for tag, meaning in known.items()}


def test_prompts_above_the_limit_are_refused() -> None:
    def tokenizer(text: str) -> dict[str, list[str]]:
        return {"input_ids": text.split()}

    rows = [
        {"problem": "short", "split": "train", "prompt": "a b"},
        {"problem": "long", "split": "train", "prompt": "a b c"},
    ]
    train.check_lengths(tokenizer, rows, 3)
    with pytest.raises(train.InputError, match=r"2 tokens.*'long'.* 3"):
        train.check_lengths(tokenizer, rows, 2)
