"""C of TRL runs where n and B_p are given by hand: generations are counted, or asked for, never assumed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from isocompute_sdk.errors import RecordError
from isocompute_sdk.ingest import diagnose, propose
from isocompute_sdk.ingest.attempts import Attempt, RunLog, counted_from_one, scalar_series
from isocompute_sdk.ingest.log_table import Reading, tabulate
from isocompute_sdk.records import RunSet

ARGUMENTS = {
    "num_generations": 12,
    "per_device_train_batch_size": 1,
    "steps_per_generation": 12,
    "gradient_accumulation_steps": 8,
    "generation_batch_size": 24,
    "num_iterations": 1,
    "reward_weights": None,
    "loss_type": "grpo",
    "adam_beta1": 0.9,
    "max_grad_norm": 1.0,
}
"""Twelve steps for a generation over eight of accumulation: 1.5 updates use the 24 rollouts of one."""


def write(folder: Path, rewarded: str, every: int = 1, arguments: dict[str, object] | None = None) -> Path:
    """A state of 60 updates; `rewarded` says of each update of a period whether it generated: `yyn`."""
    folder.mkdir()
    rows = []
    for step in range(every, 61, every):
        row: dict[str, float] = {"step": step, "loss": 0.1, "grad_norm": 0.2}
        if rewarded[(step - 1) % len(rewarded)] == "y":
            row |= {"reward": 0.2 + 0.002 * step, "reward_std": 0.1, "frac_reward_zero_std": 0.1}
        rows.append(row)
    state = {"log_history": rows, "global_step": 60, "max_steps": 60, "logging_steps": every, "train_batch_size": 1}
    (folder / "trainer_state.json").write_text(json.dumps(state))
    if arguments is not None:
        (folder / "args.json").write_text(json.dumps(arguments))
    return folder


@pytest.mark.parametrize(("rewarded", "batches"), [("y", 60), ("yn", 30), ("yyn", 40), ("ynnn", 15), ("yyynn", 36)])
def test_generations_are_counted_from_the_updates_that_log_a_reward(
    tmp_path: Path, rewarded: str, batches: int
) -> None:
    folder = write(tmp_path / "run", rewarded)
    runs = RunSet.read(folder, n=12, bp=2)
    last = max(step for step in range(1, 61) if rewarded[(step - 1) % len(rewarded)] == "y")
    assert runs.series("train_reward")[0].rollouts_T[-1] == pytest.approx(last * batches / 60 * 24)
    assert runs.series("loss")[0].rollouts_T[-1] == pytest.approx(batches * 24)
    assert {question.field for question in propose(folder).questions.values()} == {"group_size", "problems_per_batch"}


@pytest.mark.parametrize("given", [{}, {"n": 12}, {"bp": 2}, {"n": 12, "bp": 2}, {"n": 12, "rollouts_per_batch": 24}])
@pytest.mark.parametrize("told", [True, False])
def test_what_the_arguments_say_of_generations_holds_beside_values_given_by_hand(
    tmp_path: Path, given: dict[str, int], told: bool
) -> None:
    # Without generation_batch_size nothing says how many processes there were, but 12 over 8 is known all the same.
    arguments = {name: value for name, value in ARGUMENTS.items() if told or name != "generation_batch_size"}
    folder = write(tmp_path / "run", "y", every=10, arguments=arguments)
    if not told and not {"bp", "rollouts_per_batch"} & given.keys():
        with pytest.raises(RecordError, match="problems_per_batch"):
            RunSet.read(folder, **given)
        return
    runs = RunSet.read(folder, **given)
    assert runs.runs()[0].rollouts == 60 / 1.5 * 24
    assert not {"updates-per-batch-assumed"} & {note.code for note in runs.notes}


def test_what_cannot_be_counted_is_asked(tmp_path: Path) -> None:
    folder = write(tmp_path / "run", "y", every=10)
    with pytest.raises(RecordError) as refused:
        RunSet.read(folder, n=12, bp=2)
    assert refused.value.options == ("--set updates_per_batch=U",)
    with pytest.raises(RecordError) as refused:
        RunSet.read(folder)
    assert len(refused.value.options) == 3
    fields = {question.field for question in propose(folder).questions.values()}
    assert fields == {"group_size", "problems_per_batch", "updates_per_batch"}
    assert diagnose(folder).verdict == "question"
    for updates, rollouts in ((1, 60 * 24), (1.5, 40 * 24), (4, 15 * 24)):
        runs = RunSet.read(folder, n=12, bp=2, set={"updates_per_batch": updates})
        assert runs.runs()[0].rollouts == rollouts
    answered = diagnose(folder, set={"n": 12, "bp": 2, "updates_per_batch": 1.5})
    assert answered.verdict == "ready"
    assert answered.runs[0].rollouts == 40 * 24


def test_a_wandb_run_that_ended_before_its_trainer_logged_counts_generations() -> None:
    """Every row has the step 0; TRL times the rewards of each generation, before which a reward function logs."""
    clock = np.arange(4) * 20.0
    named = {
        "train/avg_reward": (clock, [0.1, 0.3, 0.2, 0.4]),
        "train/accuracy": (clock, [0.5, 0.6, 0.7, 0.8]),
        "profiling/Time taken: OwnGRPOTrainer._calculate_rewards": (clock[:3] + 0.1, [0.1, 0.1, 0.1]),
        "profiling/Time taken: OwnGRPOTrainer.compute_loss": (clock[:3] + 5, [3.0, 3.0, 3.0]),
    }
    series = {
        tag: replace(scalar_series(np.zeros(len(values)), values), wall_time_T=wall)
        for tag, (wall, values) in named.items()
    }
    path = Path("run-1.wandb")
    attempts = (Attempt(path, series, 0.0, None, ()),)
    log = RunLog("run", path, "wandb", attempts, step_name="train/global_step", settings=((path, ARGUMENTS),))
    frame, _ = tabulate(counted_from_one(log), Reading(12, 2, steps_per_batch=1.5))
    assert frame["metric"].unique().to_list() == ["train_reward"]
    assert frame["value"].to_list() == [0.1, 0.3, 0.2, 0.4]
    assert frame["rollouts"].to_list() == [24, 48, 72, 96]
