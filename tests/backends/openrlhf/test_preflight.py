"""What would go wrong later is refused before, and no field of a recipe is dropped in silence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from isocompute_openrlhf import OpenRLHFBackend
from isocompute_sdk.errors import BackendError
from isocompute_sdk.notes import Note
from isocompute_sdk.specs import Hardware, RunSpec
from tests.backends.framework_runs import keyed

MakeRun = Callable[..., RunSpec]


def refusals(run: RunSpec) -> dict[str, Note]:
    return keyed(OpenRLHFBackend().preflight(run), "refuse")


@pytest.mark.parametrize(
    ("recipe", "code", "words"),
    [
        ({"algorithm": "cispo"}, "recipe.algorithm", "recipe.algorithm"),
        ({"zero_variance_filter_policy": True}, "recipe.zero_variance_filter_policy", "zero_variance_filter_policy"),
        ({"zero_variance_filter_kl": True}, "recipe.zero_variance_filter_kl", "zero_variance_filter_kl"),
        ({"zero_variance_filter_entropy": True}, "recipe.zero_variance_filter_entropy", "zero_variance_filter_entropy"),
        ({"std_epsilon": 1e-3}, "recipe.std_epsilon", "1e-9"),
        ({"std_epsilon": 2.1e-5}, "recipe.std_epsilon", "2e-05"),
        ({"temperature": 0.001}, "recipe.temperature", "vLLM"),
        ({"top_p": 0.9}, "evaluation.top_p", "top_p"),
    ],
)
def test_recipes_that_openrlhf_cannot_carry_out_are_refused(
    make_run: MakeRun, recipe: dict[str, Any], code: str, words: str
) -> None:
    run = make_run(recipe=recipe)
    assert list(refusals(run)) == [code]
    assert words in refusals(run)[code].message
    with pytest.raises(BackendError, match=rf"\[unsupported: {code}\]"):
        OpenRLHFBackend().script(run)


def test_std_epsilon_is_refused_where_the_group_is_too_large_for_it(make_run: MakeRun) -> None:
    assert "recipe.std_epsilon" in refusals(make_run(group_size=4096, recipe={"std_epsilon": 1.9e-5}))
    assert refusals(make_run(group_size=2048, recipe={"std_epsilon": 1.9e-5}, options={"dynamic_batch": False})) == {}


@pytest.mark.parametrize(
    ("hardware", "options", "expected"),
    [
        (Hardware(gpus=1), {}, (1, 1, 1)),
        (Hardware(gpus=8), {}, (1, 8, 1)),
        (Hardware(gpus=32), {}, (4, 8, 1)),
        (Hardware(gpus=8), {"nodes": 2}, (2, 4, 1)),
        (Hardware(gpus=16), {"gpus_per_node": 4}, (4, 4, 1)),
        (Hardware(gpus=16), {"gpus_per_node": 16}, (1, 16, 1)),
        (Hardware(gpus=(4, 8)), {"gpus_per_node": 4}, (1, 4, 1)),
        (Hardware(), {"gpus_per_node": 8}, (1, 8, 1)),
        (Hardware(), {"nodes": 2, "gpus_per_node": 8, "tensor_parallel": 4}, (2, 8, 4)),
    ],
)
def test_gpus_are_placed_on_nodes(
    make_run: MakeRun, hardware: Hardware, options: dict[str, Any], expected: tuple[int, int, int]
) -> None:
    run = make_run(hardware=hardware, options=options)
    assert refusals(run) == {}
    case = OpenRLHFBackend().case(run)
    assert (case.nodes, case.gpus_per_node, case.options.tensor_parallel) == expected
    assert case.engines * case.options.tensor_parallel == case.gpus


@pytest.mark.parametrize(
    ("changes", "code", "words"),
    [
        (
            {"hardware": Hardware(gpus=8), "options": {"gpus_per_node": 3}, "group_size": 12},
            "options.gpus_per_node",
            "3 GPUs",
        ),
        ({"hardware": Hardware(gpus=(4, 8))}, "hardware.gpus", "4, 8"),
        ({"hardware": Hardware(gpus=8), "options": {"nodes": 3}}, "options.nodes", "3 "),
        ({"hardware": Hardware(gpus=12), "group_size": 12}, "options.nodes", "12 "),
        ({"hardware": Hardware(gpus=8), "options": {"tensor_parallel": 3}}, "options.tensor_parallel", "3"),
        (
            {"hardware": Hardware(gpus=8, divisible_by=1), "group_size": 3, "problems_per_batch": 33},
            "problems_per_batch",
            "96 and 104",
        ),
        (
            {"options": {"dynamic_batch": False, "max_tokens_per_gpu": 9}},
            "options.max_tokens_per_gpu",
            "max_tokens_per_gpu",
        ),
        (
            {"options": {"dynamic_batch": True}, "group_size": 1024, "problems_per_batch": 64},
            "options.dynamic_batch",
            "dynamic_batch",
        ),
        (
            {"options": {"dynamic_batch": True}, "recipe": {"updates_per_batch": 2}},
            "options.dynamic_batch",
            "dynamic_batch",
        ),
        ({"options": {"tensor_paralel": 2}}, "options.tensor_paralel", "tensor_parallel?"),
        ({"options": {"zero_stage": 5}}, "options.zero_stage", "zero_stage"),
        ({"options": {"nodes": 0}}, "options.nodes", ">= 1"),
        ({"options": {"save_hf": "yes"}}, "options.save_hf", "true or false"),
    ],
)
def test_placements_and_options_that_cannot_work_are_refused(
    make_run: MakeRun, changes: dict[str, Any], code: str, words: str
) -> None:
    found = refusals(make_run(**changes))
    assert list(found) == [code]
    assert words in found[code].message
