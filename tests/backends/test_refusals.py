"""What a backend cannot carry out is refused by the field that decides it, and what may surprise is noted."""

from __future__ import annotations

from typing import Any

import pytest

from isocompute_sdk.errors import BackendError
from isocompute_sdk.specs import Data, Evaluation, Hardware, RunSpec
from isocompute_sdk.training import registry
from isocompute_sdk.training.framework import FrameworkBackend
from tests.backends.framework_runs import keyed, run_maker

GPUS_3 = {"hardware": Hardware(gpus=3, divisible_by=1)}
DATA = {"train": "t.jsonl", "validation": "v.jsonl", "reward": "r.py"}
EVERY: list[tuple[dict[str, Any], str]] = [
    ({"data": Data(**{**DATA, "train": "t.parquet"})}, "data.train"),
    ({"model": "~/model"}, "model"),
]
"""What every backend that trains refuses."""
EVERY_FRAMEWORK: list[tuple[dict[str, Any], str]] = [
    *EVERY,
    ({"recipe": {"zero_variance_filter_policy": True}}, "recipe.zero_variance_filter_policy"),
    ({"recipe": {"std_epsilon": 1e-2}}, "recipe.std_epsilon"),
    ({"hardware": Hardware(gpus=(4, 8))}, "hardware.gpus"),
    (GPUS_3, "problems_per_batch"),
    ({"hardware": Hardware(gpus=8), "options": {"tensor_parallel": 3}}, "options.tensor_parallel"),
    ({"options": {"gradient_checkpointing": "yes"}}, "options.gradient_checkpointing"),
    ({"options": {"tensor_paralel": 2}}, "options.tensor_paralel"),
]
BIG = {"group_size": 1024, "problems_per_batch": 64}
REFUSED: dict[str, list[tuple[dict[str, Any], str]]] = {
    "openrlhf": [
        *EVERY_FRAMEWORK,
        ({"recipe": {"algorithm": "cispo"}}, "recipe.algorithm"),
        ({"recipe": {"zero_variance_filter_kl": True}}, "recipe.zero_variance_filter_kl"),
        ({"recipe": {"zero_variance_filter_entropy": True}}, "recipe.zero_variance_filter_entropy"),
        ({"recipe": {"temperature": 0.001}}, "recipe.temperature"),
        ({"evaluation": Evaluation(top_p=0.9)}, "evaluation.top_p"),
        ({"hardware": Hardware(gpus=8), "options": {"nodes": 3}}, "options.nodes"),
        ({"hardware": Hardware(gpus=12), "group_size": 12}, "options.nodes"),
        ({"options": {"dynamic_batch": False, "max_tokens_per_gpu": 9}}, "options.max_tokens_per_gpu"),
        ({"options": {"dynamic_batch": True}, **BIG}, "options.dynamic_batch"),
        ({"options": {"dynamic_batch": True}, "recipe": {"updates_per_batch": 2}}, "options.dynamic_batch"),
        ({"options": {"zero_stage": 5}}, "options.zero_stage"),
        ({"options": {"nodes": 0}}, "options.nodes"),
        *[({"options": {name: 1}}, f"options.{name}") for name in ("rollout.n_samples_per_prompt", "actor.adam.lr")],
        *[({"options": {name: 1}}, f"options.{name}") for name in ("algo.kl.init_coef", "train.seed")],
    ],
    "verl": [
        *EVERY_FRAMEWORK,
        ({"recipe": {"algorithm": "ppo", "normalize_advantage": False}}, "recipe.normalize_advantage"),
        ({"recipe": {"updates_per_batch": 3}, "group_size": 3}, "recipe.updates_per_batch"),
        ({"update_steps": 1}, "update_steps"),
        ({"hardware": Hardware(gpus=4), "options": {"nodes": 3}}, "options.nodes"),
        ({"hardware": Hardware(gpus=12), "group_size": 12}, "options.nodes"),
        ({"hardware": Hardware(gpus=16), "options": {"tensor_parallel": 16}}, "options.tensor_parallel"),
        ({"recipe": {"temperature": 0.001}}, "recipe.temperature"),
        ({"options": {"nodes": 0}}, "options.nodes"),
        ({"output_dir": "runs/${USER}"}, "output_dir"),
        *[({"options": {name: 1}}, f"options.{name}") for name in ("data.train_batch_size", "algorithm.gamma")],
        *[({"options": {name: 1}}, f"options.{name}") for name in ("actor_rollout_ref.rollout.n", "++critic")],
    ],
    "trl": [
        *EVERY_FRAMEWORK,
        ({"recipe": {"algorithm": "ppo"}}, "recipe.algorithm"),
        ({"recipe": {"algorithm": "cispo", "loss_aggregation": "seq-mean-token-mean"}}, "recipe.loss_aggregation"),
        ({"recipe": {"updates_per_batch": 2}}, "recipe.updates_per_batch"),
        ({"recipe": {"kl_in": "reward"}}, "recipe.kl_in"),
        ({"recipe": {"kl_estimator": "k1"}}, "recipe.kl_in"),
        ({"evaluation": Evaluation(temperature=1.0)}, "evaluation.temperature"),
        ({"evaluation": Evaluation(top_p=0.9)}, "evaluation.top_p"),
        ({"update_steps": 1}, "update_steps"),
        ({"options": {"device": "cpu"}}, "options.device"),
        ({"recipe": {"temperature": 0.001}, "evaluation": Evaluation(temperature=0.001)}, "recipe.temperature"),
        ({"hardware": Hardware(gpus=16)}, "hardware.gpus"),
        *[({"options": {name: 1}}, f"options.{name}") for name in ("num_generations", "max_steps", "learning_rate")],
    ],
    "torch": [
        *EVERY,
        ({"hardware": Hardware(gpus=2)}, "hardware.gpus"),
        ({"recipe": {"updates_per_batch": 2}}, "recipe.updates_per_batch"),
        ({"options": {"sampler": "sglang"}}, "options.sampler"),
        ({"options": {"threads": 0}}, "options.threads"),
        ({"options": {"eval_sets": "validation=x.jsonl"}}, "options.eval_sets"),
        ({"options": {"eval_sets": "hard"}}, "options.eval_sets"),
        ({"options": {"sampler_": "torch"}}, "options.sampler_"),
    ],
}
UNPAIRED = {"kl_coef": 1e-3, "entropy_coef": 1e-3, "kl_estimator": "k1"}
TOP_P = {"recipe": {"top_p": 0.9}}
EVERY_NOTE: list[tuple[dict[str, Any], str, str]] = [
    ({"problems_per_batch": 16}, "below-problems-floor", "warning"),
    ({"update_steps": 5}, "few-update-steps", "warning"),
    ({"data": Data(**DATA, n_problems=4)}, "small-problem-set", "warning"),
    (TOP_P, "recipe-conflict", "warning"),
]
NOTED: dict[str, list[tuple[dict[str, Any], str, str]]] = {
    "torch": [
        *EVERY_NOTE,
        ({"recipe": UNPAIRED}, "recipe-conflict", "warning"),
        ({"recipe": {"kl_coef": 1e-3, "entropy_coef": 0}}, "kl-entropy-unpaired", "warning"),
        ({"recipe": {"algorithm": "ppo", "zero_variance_filter_policy": True}}, "recipe-conflict", "warning"),
    ],
    "trl": [
        *EVERY_NOTE,
        ({"group_size": 8}, "framework-differs", "info"),
        ({"group_size": 512}, "framework-differs", "warning"),
        ({"recipe": {"value_clip": 0.2}}, "recipe-conflict", "info"),
    ],
}


def run_of(backend: str, changes: dict[str, Any]) -> RunSpec:
    return run_maker(backend=backend, evaluation=Evaluation(n_problems=320))(**changes)


@pytest.mark.parametrize(
    ("backend", "changes", "field"),
    [(backend, *case) for backend, cases in REFUSED.items() for case in cases],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_be_carried_out_is_refused(backend: str, changes: dict[str, Any], field: str) -> None:
    run, loaded = run_of(backend, changes), registry.load(backend)
    refused = keyed(loaded.preflight(run), "refuse")
    assert set(refused) == {field}
    with pytest.raises(BackendError, match=r"\[unsupported: "):
        loaded.script(run)


@pytest.mark.parametrize(
    ("backend", "changes", "code", "severity"),
    [(backend, *case) for backend, cases in NOTED.items() for case in cases],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_may_surprise_is_noted(backend: str, changes: dict[str, Any], code: str, severity: str) -> None:
    notes = registry.load(backend).preflight(run_of(backend, changes))
    assert keyed(notes)[code].severity == severity
    assert not keyed(notes, "refuse")


def test_openrlhf_says_where_the_aggregation_does_not_reach_and_only_there() -> None:
    def differences(aggregation: str) -> int:
        run = run_of("openrlhf", {"recipe": {"loss_aggregation": aggregation}})
        return [note.code for note in registry.load("openrlhf").preflight(run)].count("framework-differs")

    assert differences("seq-mean-token-mean") == differences("token-mean") + 1


@pytest.mark.parametrize("name", ["openrlhf", "trl", "verl"])
def test_nothing_is_written_elsewhere_unless_it_is_asked_for(name: str) -> None:
    backend: Any = registry.load(name)

    def flags(**options: bool) -> object:
        return backend.sections(run_of(name, {"options": options}))

    extra = {"tensorboard", "wandb", "mlflow"} & {option.name for option in backend.describe().options}
    assert extra
    for option in extra:
        assert flags(**{option: False}) == flags() != flags(**{option: True})


@pytest.mark.parametrize(
    ("hardware", "options", "expected"),
    [
        (Hardware(gpus=1), {}, (1, 1, 1)),
        (Hardware(gpus=8), {}, (1, 8, 1)),
        (Hardware(gpus=32), {}, (4, 8, 1)),
        (Hardware(gpus=8), {"nodes": 2}, (2, 4, 1)),
        (Hardware(gpus=16), {"nodes": 1}, (1, 16, 1)),
        (Hardware(gpus=16), {"nodes": 2, "tensor_parallel": 4}, (2, 8, 4)),
    ],
)
@pytest.mark.parametrize(
    ("name", "places"),
    [
        ("openrlhf", ("actor.num_nodes", "actor.num_gpus_per_node", "vllm.tensor_parallel_size")),
        ("verl", ("trainer.nnodes", "trainer.n_gpus_per_node", "actor_rollout_ref.rollout.tensor_model_parallel_size")),
    ],
)
def test_gpus_are_placed_on_nodes(
    name: str, places: tuple[str, ...], hardware: Hardware, options: dict[str, Any], expected: tuple[int, int, int]
) -> None:
    run, backend = run_of(name, {"hardware": hardware, "options": options}), registry.load(name)
    assert keyed(backend.preflight(run), "refuse") == {}
    assert isinstance(backend, FrameworkBackend)
    flags = {flag.name: flag.value for section in backend.sections(run) for flag in section.flags}
    assert tuple(flags[place] for place in places) == expected
    assert (backend.needs(run).nodes, backend.needs(run).gpus) == expected[:2]
