"""The settings of GRPOConfig that a run turns into, and what is refused because TRL would do something else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from isocompute_sdk.specs import Hardware, RunSpec
from isocompute_trl import TRLBackend

MakeRun = Callable[..., RunSpec]


def settings(run: RunSpec) -> dict[str, Any]:
    return TRLBackend().trainer_settings(run)


def test_one_generation_is_one_optimiser_step_whatever_the_gpus(make_run: MakeRun) -> None:
    for gpus in (1, 2, 4, 8):
        for limit in (1, 3, 8, 1000):
            run = make_run(hardware=Hardware(gpus=gpus), options={"samples_per_pass": limit})
            found = settings(run)
            per_pass, passes = found["per_device_train_batch_size"], found["gradient_accumulation_steps"]
            assert per_pass * passes * gpus == run.rollouts_per_batch
            assert per_pass <= limit
            assert "steps_per_generation" not in found


def test_the_cispo_cap_is_the_ratio_itself_and_the_default_of_one_fifth_is_never_left(make_run: MakeRun) -> None:
    found = settings(make_run(recipe={"algorithm": "cispo", "ratio_clip": 0.3}))
    assert (found["loss_type"], found["epsilon_high"]) == ("cispo", 1.3)
    assert settings(make_run())["epsilon_high"] == 0.2
