"""Logs as veRL writes them, read back: attempts merged, broken tails lost alone."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import isocompute_sdk as iso
from isocompute_sdk.errors import RecordError
from isocompute_sdk.records import RunSet
from isocompute_sdk.specs import Evaluation, RunSpec
from isocompute_verl import VeRLBackend

MakeRun = Callable[..., RunSpec]


class Trainer:
    """Writes what one start of veRL would write."""

    def __init__(self, run: RunSpec, folder: Path, attempt: int) -> None:
        self.run, self.folder, self.attempt = run, folder, attempt
        for name in ("logs", f"validation/{attempt}"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        (folder / "request.json").write_text(VeRLBackend().documents(run)["request.json"])
        self.log = folder / "logs" / f"attempt-{attempt}.jsonl"
        self.log.write_text("")

    def step(self, step: int, rewards_PN: np.ndarray | None = None, **values: float | None) -> None:
        """One line of the log, with the evaluation of `rewards_PN` where there was one."""
        data: dict[str, float | None] = {
            "training/global_step": step,
            **{k.replace("__", "/"): v for k, v in values.items()},
        }
        if rewards_PN is not None:
            k = rewards_PN.shape[1]
            # veRL's bootstrap with replacement: never what the exact metric says.
            data |= {"val-core/validation/acc/best@4/mean": 0.111, "val-aux/validation/acc/worst@4/mean": 0.999}
            data[f"val-core/validation/acc/mean@{k}"] = float(rewards_PN.mean())
            data[f"val-aux/validation/reward_error/mean@{k}"] = 0.25
        with self.log.open("a") as file:
            file.write(json.dumps({"step": step, "data": data}) + "\n")


def rewards(seed: int, problems: int = 6, samples: int = 4) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 2, (problems, samples)).astype(float)


@pytest.fixture
def run(make_run: MakeRun) -> RunSpec:
    return make_run(evaluation=Evaluation(samples=4))


def values(runs: RunSet, metric: str, eval_set: str = "validation") -> dict[float, float]:
    (series,) = runs.series(metric, eval_set)
    return dict(zip(series.step_T.tolist(), series.value_T.tolist(), strict=True))


def test_steps_carry_compute_tokens_gpu_time_and_context(make_run: MakeRun, tmp_path: Path) -> None:
    run = make_run(hardware=iso.Hardware(gpus=8))
    trainer = Trainer(run, tmp_path, 1)
    for step in (1, 2):
        trainer.step(
            step, critic__score__mean=0.1 * step, response_length__mean=100.0, timing_s__step=30.0, actor__entropy=None
        )
    runs = VeRLBackend().read_records(tmp_path)
    (series,) = runs.series("train_reward", "train")
    assert series.rollouts_T.tolist() == [512, 1024]
    assert series.tokens_T is not None
    assert series.tokens_T.tolist() == [51_200, 102_400]
    assert runs.to_polars()["gpu_seconds"].unique().sort().to_list() == [240.0, 480.0]
    assert series.context["learning_rate"] == run.learning_rate
    assert series.context["eval_samples"] == 4
    assert "entropy" not in runs.metrics  # veRL logs NaN as null


def test_a_resumed_run_is_one_run_and_the_later_start_counts(run: RunSpec, tmp_path: Path) -> None:
    first = Trainer(run, tmp_path, 1)
    first.step(0, rewards(0))
    for step in range(1, 9):
        first.step(step, rewards(step) if step % 4 == 0 else None, critic__score__mean=step / 10)
    second = Trainer(run, tmp_path, 2)
    second.step(6, rewards(106))  # goes on from the checkpoint of step 6, which it evaluates again
    second.step(7, critic__score__mean=7.0)
    runs = VeRLBackend().read_records(tmp_path)
    trained = values(runs, "train_reward", "train")
    assert trained == {1: 0.1, 2: 0.2, 3: 0.3, 4: 0.4, 5: 0.5, 6: 0.6, 7: 7.0}
    assert set(values(runs, "avg@4")) == {0, 4, 6}
    assert values(runs, "avg@4")[6] == pytest.approx(rewards(106).mean())
    assert {"best@4:bootstrap", "worst@4:bootstrap"} <= {*runs.metrics}
    assert runs.run_ids == ("small",)
    # Steps 7 and 8 of the first start were sampled and given up.
    batch = run.rollouts_per_batch
    spent = {row["step"]: row["rollouts_spent"] - row["rollouts"] for row in runs.to_polars().iter_rows(named=True)}
    assert spent == {0: 0, 1: 0, 2: 0, 3: 0, 4: 0, 5: 0, 6: 0, 7: 2 * batch}
    assert not runs.notes


def test_a_line_that_was_cut_off_is_lost_alone_and_another_is_named(run: RunSpec, tmp_path: Path) -> None:
    trainer = Trainer(run, tmp_path, 1)
    trainer.step(1, critic__score__mean=0.1)
    with trainer.log.open("a") as file:
        file.write('{"step":2,"da')
    runs = VeRLBackend().read_records(tmp_path)
    assert values(runs, "train_reward", "train") == {1: 0.1}
    assert [note.code for note in runs.notes] == ["log-damaged"]
    for before in (0, 1, 3):
        trainer.log.write_text('{"step":1,"data":{}}\n' * before + '{"step":1}\n{"step":2,"data":{}}\n')
        with pytest.raises(RecordError, match=rf"logs/attempt-1\.jsonl:{before + 1}:"):
            VeRLBackend().read_records(tmp_path)
