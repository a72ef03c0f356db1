"""What runs of OpenRLHF leave is read back exactly."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from isocompute_openrlhf import OpenRLHFBackend
from isocompute_openrlhf.logs import RESUMES
from isocompute_sdk.records import RunSet
from isocompute_sdk.specs import RunSpec
from isocompute_sdk.training import registry
from tests.backends.openrlhf.logs import LoggedRun, updates

BACKEND = OpenRLHFBackend()


@pytest.fixture
def logged(small: RunSpec, tmp_path: Path) -> LoggedRun:
    run = small.replace(update_steps=20, options={"save_every_steps": 2})
    return LoggedRun(tmp_path, run)


def table(source: Path | RunSet, metric: str, eval_set: str = "train", column: str = "value") -> dict[float, float]:
    """Step -> value of a column."""
    frame = (source if isinstance(source, RunSet) else BACKEND.read_records(source)).to_polars()
    frame = frame.filter((pl.col("eval_set") == eval_set) & (pl.col("metric") == metric))
    return dict(zip(frame["step"], frame[column], strict=True))


@pytest.mark.parametrize("before", [0, 2])
def test_a_broken_line_about_a_resume_is_named(logged: LoggedRun, before: int) -> None:
    logged.begin()
    logged.prints(updates([1]))
    good = '{"attempt": 2, "step": 1}\n'
    (logged.folder / RESUMES).write_text(f"{before * good}{{broken\n{good}")
    (note,) = BACKEND.read_records(logged.folder).notes
    assert (note.code, note.severity, note.data["line"]) == ("log-damaged", "warning", before + 1)
    assert f"{RESUMES}:{before + 1}:" in note.message


def test_a_console_that_a_kill_cut_off_keeps_its_whole_lines(logged: LoggedRun) -> None:
    logged.begin()
    logged.prints({step: {"policy_loss": -1.5e-05, "kl": float("nan")} for step in (1, 2, 3)})
    (console,) = logged.folder.glob("console.*.log")
    console.write_text(console.read_text()[:-30])
    assert table(logged.folder, "loss") == {1: -1.5e-05, 2: -1.5e-05}


@pytest.mark.slow
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
    assert {note.code for note in runs.notes} == {"values-not-finite"}
    (watch,) = registry.watches([resumed])
    status = watch.status()
    assert (status.run_id, status.state, status.step, status.rollouts) == ("contract", "finished", 7, small.rollouts)
    assert status.train_reward == pytest.approx(rewards[7], abs=1e-6)
    (average,) = runs.series(f"avg@{small.evaluation.samples}", "validation")
    assert status.headline == (f"avg@{small.evaluation.samples}", pytest.approx(average.value_T[-1], abs=1e-6))


@pytest.mark.slow
def test_evaluations_are_those_of_the_log(resumed_openrlhf: tuple[RunSpec, Path]) -> None:
    _, resumed = resumed_openrlhf
    runs = BACKEND.read_records(resumed)
    for metric in ("avg@4", "best@4"):
        assert set(table(runs, metric, "validation")) == {3.0, 6.0}
    assert table(runs, "response_length", "validation") == {3: 7.0, 6: 7.0}
