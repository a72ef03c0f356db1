"""The settings of GRPOConfig that a run turns into, and what is refused because TRL would do something else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from isocompute_sdk.errors import BackendError
from isocompute_sdk.notes import Note
from isocompute_sdk.specs import Data, Evaluation, Hardware, RunSpec
from isocompute_trl import TRLBackend
from tests.backends.framework_runs import keyed

MakeRun = Callable[..., RunSpec]


def settings(run: RunSpec) -> dict[str, Any]:
    return TRLBackend().trainer_settings(run)


def codes(run: RunSpec, *severities: str) -> dict[str, Note]:
    return keyed(TRLBackend().preflight(run), *severities)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"recipe": {"algorithm": "ppo"}}, "recipe.algorithm"),
        ({"recipe": {"algorithm": "cispo", "loss_aggregation": "seq-mean-token-mean"}}, "recipe.loss_aggregation"),
        ({"recipe": {"zero_variance_filter_policy": True}}, "recipe.zero_variance_filter_policy"),
        ({"recipe": {"updates_per_batch": 2}}, "recipe.updates_per_batch"),
        ({"recipe": {"kl_in": "reward"}}, "recipe.kl_in"),
        ({"recipe": {"kl_estimator": "k1"}}, "recipe.kl_in"),
        ({"recipe": {"std_epsilon": 1e-2}}, "recipe.std_epsilon"),
        ({"evaluation": Evaluation(temperature=1.0)}, "evaluation.temperature"),
        ({"evaluation": Evaluation(top_p=0.9)}, "evaluation.top_p"),
        ({"update_steps": 1}, "update_steps"),
        ({"hardware": Hardware(gpus=(4, 8))}, "hardware.gpus"),
        ({"hardware": Hardware(gpus=3, divisible_by=1)}, "problems_per_batch"),
        ({"options": {"tensor_parallel": 2}}, "options.tensor_parallel"),
        ({"options": {"device": "cpu"}}, "options.device"),
        ({"options": {"sampling": "vllm"}}, "options.sampling"),
        ({"recipe": {"temperature": 0.001}, "evaluation": Evaluation(temperature=0.001)}, "recipe.temperature"),
        ({"data": Data(train="t.parquet", validation="v.jsonl", reward="r.py")}, "data.train"),
        ({"model": "~/model"}, "model"),
        ({"hardware": Hardware(gpus=16)}, "hardware.gpus"),
    ],
)
def test_what_trl_cannot_do_is_refused_with_what_to_do(make_run: MakeRun, changes: dict[str, Any], code: str) -> None:
    run = make_run(**changes)
    assert set(codes(run, "refuse")) == {code}
    with pytest.raises(BackendError, match=rf"\[unsupported: {code}\]"):
        TRLBackend().script(run)


@pytest.mark.parametrize(
    ("changes", "code", "severity"),
    [
        ({"group_size": 8}, "std-epsilon-fixed", "info"),
        ({"group_size": 512}, "std-epsilon-fixed", "warning"),
        ({"evaluation": Evaluation(n_problems=300), "hardware": Hardware(gpus=8)}, "evaluation-padded", "info"),
        ({"options": {"device": "cpu", "sampler": "transformers"}}, "importance-sampling-not-needed", "info"),
        ({"recipe": {"top_p": 0.9}, "evaluation": Evaluation(top_p=0.9)}, "importance-weights-biased", "warning"),
        ({"update_steps": 5}, "warmup-longer-than-run", "warning"),
        ({"problems_per_batch": 16}, "below-problems-floor", "warning"),
        ({"recipe": {"value_clip": 0.2}}, "recipe-field-unused", "info"),
        ({"data": Data(train="t", validation="v", reward="r", n_problems=4)}, "batch-repeats-problems", "warning"),
    ],
)
def test_what_may_surprise_is_said(make_run: MakeRun, changes: dict[str, Any], code: str, severity: str) -> None:
    run = make_run(**changes)
    assert codes(run)[code].severity == severity
    assert not codes(run, "refuse")


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
