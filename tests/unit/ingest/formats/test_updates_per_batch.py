"""C of TRL runs where n and B_p are given by hand: generations are counted, or asked for, never assumed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from isocompute_sdk.errors import RecordError
from isocompute_sdk.ingest import diagnose, propose
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
    (open_,) = diagnose(folder, set={"n": 12, "bp": 2}).runs
    assert (open_.group_size, open_.problems_per_batch, open_.readable) == ("12", "2", False)
    for updates, rollouts in ((1, 60 * 24), (1.5, 40 * 24), (4, 15 * 24)):
        runs = RunSet.read(folder, n=12, bp=2, set={"updates_per_batch": updates})
        assert runs.runs()[0].rollouts == rollouts
    answered = diagnose(folder, set={"n": 12, "bp": 2, "updates_per_batch": 1.5})
    assert answered.verdict == "ready"
    assert answered.runs[0].rollouts == 40 * 24
