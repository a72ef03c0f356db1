"""What runs of OpenRLHF leave is read back exactly."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from isocompute_openrlhf import OpenRLHFBackend
from isocompute_openrlhf.logs import RESUMES
from isocompute_sdk.errors import RecordError
from isocompute_sdk.notes import Note
from isocompute_sdk.records import RunSet
from isocompute_sdk.specs import Data, RunSpec
from isocompute_sdk.training import registry
from tests.backends.openrlhf.logs import LoggedRun, updates

BACKEND = OpenRLHFBackend()
BATCH = 6
IDS = ("val0", "val1")


@pytest.fixture
def logged(small: RunSpec, tmp_path: Path) -> LoggedRun:
    run = small.replace(update_steps=20, options={"save_every_steps": 2})
    return LoggedRun(tmp_path, run)


def table(source: Path | RunSet, metric: str, eval_set: str = "train", column: str = "value") -> dict[float, float]:
    """Step -> value of a column."""
    frame = (source if isinstance(source, RunSet) else BACKEND.read_records(source)).to_polars()
    frame = frame.filter((pl.col("eval_set") == eval_set) & (pl.col("metric") == metric))
    return dict(zip(frame["step"], frame[column], strict=True))


def note(folder: Path, code: str) -> Note:
    (found,) = [note for note in BACKEND.read_records(folder).notes if note.code == code]
    return found


def codes(folder: Path) -> list[str]:
    return [note.code for note in BACKEND.read_records(folder).notes]


def evaluated(pass1: float, pass4: float) -> dict[str, float]:
    return {"eval_validation_pass1": pass1, "eval_validation_pass4": pass4}


def test_steps_made_twice_count_once_on_the_curve_and_twice_in_what_was_spent(logged: LoggedRun) -> None:
    logged.begin()
    logged.prints(updates(range(1, 10), policy_loss=1.0))
    logged.begin(from_step=6)
    logged.prints(updates(range(7, 13), policy_loss=2.0))
    assert table(logged.folder, "loss") == {s: 1.0 if s <= 6 else 2.0 for s in range(1, 13)}
    assert table(logged.folder, "loss", column="rollouts") == {s: BATCH * s for s in range(1, 13)}
    assert table(logged.folder, "train_reward", column="rollouts_spent") == {
        s: BATCH * (s if s <= 6 else s + 3) for s in range(1, 13)
    }
    assert table(logged.folder, "loss", column="gpu_seconds")[12] == 24.0
    assert table(logged.folder, "loss", column="tokens")[12] == 12 * BATCH * 10.0
    assert codes(logged.folder) == ["attempts-stitched"]


def test_exact_metrics_come_from_the_samples_of_all_processes(logged: LoggedRun) -> None:
    attempt = logged.begin()
    rng = np.random.default_rng(0)
    scores = rng.integers(0, 2, (2, 2, 4)).astype(float)  # evaluation, problem, sample
    for index in range(2):
        for problem in (0, 1):
            rows = {IDS[problem]: scores[index, problem].tolist()}
            logged.samples(attempt, "validation", rows, process=(index + problem) % 2)
    means, best = scores.mean(axis=(1, 2)), scores.max(axis=2).mean(axis=1)
    evaluations = {3 * (i + 1): evaluated(means[i], best[i]) for i in range(2)}
    logged.prints(updates(range(1, 8)), evaluations)
    worst = scores.min(axis=2).mean(axis=1)
    assert table(logged.folder, "avg@4", "validation") == {3: means[0], 6: means[1]}
    assert table(logged.folder, "worst@4", "validation") == {3: worst[0], 6: worst[1]}
    assert codes(logged.folder) == []


def test_where_log_and_samples_disagree_the_log_counts_and_a_note_says_so(logged: LoggedRun) -> None:
    attempt = logged.begin()
    logged.samples(attempt, "validation", {name: [1.0, 0.0, 0.0, 0.0] for name in IDS})
    logged.prints(updates([1, 2, 3]), {3: evaluated(0.5, 1.0)})
    assert table(logged.folder, "avg@4", "validation") == {3: 0.5}
    with pytest.raises(RecordError, match="worst@4"):
        BACKEND.read_records(logged.folder).series("worst@4")
    found = note(logged.folder, "records-disagree-with-log")
    assert found.severity == "warning"
    assert found.data == {
        "run_id": "tiny",
        "values": 1,
        "step": 3,
        "eval_set": "validation",
        "metric": "avg@4",
        "exact": 0.25,
        "logged": 0.5,
    }


def test_an_evaluation_under_way_is_not_taken_for_a_whole_one(logged: LoggedRun) -> None:
    attempt = logged.begin()
    logged.samples(attempt, "validation", {"val0": [1.0] * 8, "val1": [1.0] * 4})
    logged.prints(updates(range(1, 7)), {3: evaluated(1.0, 1.0), 6: evaluated(0.5, 1.0)})
    assert table(logged.folder, "worst@4", "validation") == {3: 1.0}
    assert table(logged.folder, "avg@4", "validation") == {3: 1.0, 6: 0.5}
    assert note(logged.folder, "records-incomplete").data == {"run_id": "tiny", "evaluations": 1}


def test_an_evaluation_that_was_not_logged_any_more_is_recovered_from_its_samples(logged: LoggedRun) -> None:
    attempt = logged.begin()
    logged.prints(updates([1, 2, 3]))
    logged.samples(attempt, "validation", {name: [1.0, 0.0, 0.0, 0.0] for name in IDS})
    assert table(logged.folder, "avg@4", "validation") == {3: 0.25}
    assert table(logged.folder, "avg@4", "validation", "rollouts") == {3: 3 * BATCH}


def test_failures_of_the_reward_function_and_lost_lines_are_said(logged: LoggedRun) -> None:
    attempt = logged.begin()
    logged.samples(attempt, "train", {"tra0": [0.0]}, error="ValueError: no")
    with (logged.folder / "samples.1.jsonl").open("a") as file:
        file.write('{"id": "tra1", "spl\n')
    logged.samples(attempt, "train", {"tra2": [1.0]})
    logged.prints(updates([1]))
    assert note(logged.folder, "reward-errors").data == {"run_id": "tiny", "failed": 1, "samples": 2}
    assert note(logged.folder, "log-damaged").data == {"run_id": "tiny", "lines": 1}


@pytest.mark.parametrize("before", [0, 2])
def test_a_broken_line_about_a_resume_is_named(logged: LoggedRun, before: int) -> None:
    logged.begin()
    logged.prints(updates([1]))
    good = '{"attempt": 2, "step": 1}\n'
    (logged.folder / RESUMES).write_text(f"{before * good}{{broken\n{good}")
    with pytest.raises(RecordError, match=rf"{RESUMES}:{before + 1}:"):
        BACKEND.read_records(logged.folder)


def test_a_console_that_a_kill_cut_off_keeps_its_whole_lines(logged: LoggedRun) -> None:
    logged.begin()
    logged.prints({step: {"policy_loss": -1.5e-05, "kl": float("nan")} for step in (1, 2, 3)})
    (console,) = logged.folder.glob("console.*.log")
    console.write_text(console.read_text()[:-30])
    assert table(logged.folder, "loss") == {1: -1.5e-05, 2: -1.5e-05}


def test_a_folder_of_another_release_is_refused_with_its_version(logged: LoggedRun) -> None:
    logged.begin()
    path = logged.folder / "request.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "version": "0.10.2"}))
    with pytest.raises(RecordError, match=r"0\.10\.2.*0\.11\.2"):
        BACKEND.read_records(logged.folder)


def test_the_context_is_that_of_the_run(small: RunSpec, tmp_path: Path) -> None:
    data = Data(train="train.jsonl", validation="validation.jsonl", reward="reward.py", n_problems=5)
    one = LoggedRun(tmp_path, small.replace(data=data, recipe=small.recipe.replace(kl_coef=0.01)))
    one.begin()
    one.prints(updates([1]))
    (info,) = BACKEND.read_records(tmp_path).runs()
    sizes = {"group_size": 2, "problems_per_batch": 3, "seed": 0, "framework": info.framework}
    assert {**info.context, **sizes} == one.run.context()


def samples(folder: Path) -> list[dict[str, Any]]:
    lines = [line for file in folder.glob("samples.*.jsonl") for line in file.read_text().splitlines()]
    return sorted(map(json.loads, lines), key=lambda record: record["time"])


def test_a_killed_and_resumed_run_is_read_back_exactly(resumed_openrlhf: tuple[RunSpec, Path]) -> None:
    small, resumed = resumed_openrlhf
    runs = BACKEND.read_records(resumed)
    # The one of step 4 came from the first attempt, although the first attempt's events were lost with it.
    assert table(runs, "loss", "train") == {step: -0.25 * step for step in (1, 3, 4, 5, 6, 7)}
    summary = json.loads((resumed / "model" / "summary.json").read_text())
    rewards = table(runs, "train_reward", "train")
    assert [rewards[step] for step in (5, 6, 7)] == pytest.approx([np.mean(r) for r in summary["rewards"]], abs=1e-6)
    frame = runs.to_polars()
    assert frame.filter(pl.col("step") == 7)["rollouts_spent"].unique().to_list() == [small.rollouts + 6]
    assert frame.filter(pl.col("step") == 7)["rollouts"].unique().to_list() == [small.rollouts]
    assert frame.filter(pl.col("step") == 7)["tokens"].unique().to_list() == [42 * 10.0]
    assert frame.filter(pl.col("step") == 7)["gpu_seconds"].unique().to_list() == [7 * 1.25]
    (info,) = runs.runs()
    assert info.context == {**{k: v for k, v in small.context().items() if k in info.context}, "n_problems": 5}
    assert (info.group_size, info.problems_per_batch, info.seed) == (2, 3, 0)
    assert {note.code for note in runs.notes} == {"values-not-finite", "attempts-stitched"}
    (watch,) = registry.watches([resumed])
    status = watch.status()
    assert (status.run_id, status.state, status.step, status.rollouts) == ("contract", "finished", 7, small.rollouts)
    assert status.train_reward == pytest.approx(rewards[7], abs=1e-6)
    (average,) = runs.series(f"avg@{small.evaluation.samples}", "validation")
    assert status.headline == (f"avg@{small.evaluation.samples}", pytest.approx(average.value_T[-1], abs=1e-6))


def test_evaluations_are_exact_and_agree_with_the_log(resumed_openrlhf: tuple[RunSpec, Path]) -> None:
    _, resumed = resumed_openrlhf
    runs = BACKEND.read_records(resumed)
    records = samples(resumed)
    for attempt, step in ((1, 3), (2, 6)):
        mine = [r["score"] for r in records if (r["attempt"], r["split"]) == (attempt, "validation")]
        scores = np.array(mine).reshape(2, 4)
        exact = {"avg@4": scores.mean(), "best@4": scores.max(axis=1).mean(), "worst@4": scores.min(axis=1).mean()}
        for metric, value in exact.items():
            assert table(runs, metric, "validation")[step] == pytest.approx(value)
    assert set(table(runs, "avg@2", "validation")) == {3.0, 6.0}
    assert table(runs, "response_length", "validation") == {3: 7.0, 6: 7.0}
