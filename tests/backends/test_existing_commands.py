"""A plan for a command that somebody already has, in each framework's documented style."""

from __future__ import annotations

import json
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from isocompute_sdk import Planner, api, published
from isocompute_sdk.errors import BackendError
from isocompute_sdk.planning import Plan
from isocompute_sdk.specs import RunSpec
from isocompute_sdk.training import existing, registry

COMMANDS = Path(__file__).parent / "commands"
N, PROBLEMS, STEPS = "group_size", "problems_per_batch", "update_steps"
SAYS = {
    "verl": {
        N: 8,
        PROBLEMS: 1024,
        STEPS: 435,
        "rollouts": 8 * 1024 * 435,
        "learning_rate": 1e-6,
        "updates_per_batch": 4,
    },
    "openrlhf": {N: 8, PROBLEMS: 128, STEPS: 400, "rollouts": 8 * 128 * 400, "learning_rate": 5e-7, "kl_coef": 1e-3},
    "trl": {N: 8, PROBLEMS: 32, STEPS: 500, "rollouts": 8 * 32 * 500, "learning_rate": 1e-5, "max_tokens": 256},
}
"""What the commands run, worked out by hand."""
STYLES: dict[str, tuple[str, dict[str, Any]]] = {
    "openrlhf_ray_job.sh": (
        "openrlhf",
        {N: 16, PROBLEMS: 64, STEPS: 200, "rollouts": 16 * 64 * 200, "learning_rate": 1e-6, "kl_coef": 0}
        | {"max_tokens": 3072, "max_prompt_tokens": 1024, "algorithm": "grpo", "updates_per_batch": 1}
        | {"algo.advantage.estimator": "dr_grpo"},
    ),
    "openrlhf_array.sh": (
        "openrlhf",
        {N: 8, PROBLEMS: 128, STEPS: 300, "rollouts": 8 * 128 * 300, "learning_rate": 5e-7, "kl_coef": 0}
        | {"max_tokens": 8192, "max_prompt_tokens": 1024, "updates_per_batch": 2, "temperature": 1.0}
        | {"filter": "dynamic", "algo.advantage.estimator": None},
    ),
    "openrlhf_slurm.sh": (
        "openrlhf",
        {N: 8, PROBLEMS: 128, STEPS: 200, "rollouts": 8 * 128 * 200, "learning_rate": 5e-7, "kl_coef": 1e-3}
        | {"max_tokens": 2048, "max_prompt_tokens": 1024, "algorithm": "grpo"},
    ),
    "verl_ray_job.sh": (
        "verl",
        {N: 16, PROBLEMS: 512, STEPS: None, "rollouts": None, "learning_rate": 1e-6, "kl_coef": 0}
        | {"max_tokens": 8192, "max_prompt_tokens": 2048, "updates_per_batch": 16, "filter": "dynamic"}
        | {"actor_rollout_ref.actor.clip_ratio_high": 0.28, "temperature": 1.0, "eval_samples": 1},
    ),
    "verl_array.sh": (
        "verl",
        {N: 12, PROBLEMS: 256, STEPS: 200, "rollouts": 12 * 256 * 200, "learning_rate": 2e-6, "kl_coef": 0.001}
        | {"max_tokens": 4096, "max_prompt_tokens": 1024, "updates_per_batch": 1, "temperature": 0.6}
        | {"actor_rollout_ref.actor.loss_agg_mode": "seq-mean-token-mean"},
    ),
    "verl_outside.sh": (
        "verl",
        {N: 4, PROBLEMS: None, STEPS: None, "rollouts": None, "learning_rate": 3e-6, "max_tokens": 2048},
    ),
    "trl_recipe.sh": (
        "trl",
        {N: 16, PROBLEMS: 8, STEPS: 250, "rollouts": 16 * 8 * 250, "learning_rate": 2e-6, "kl_coef": 0.04}
        | {"max_tokens": 2048, "temperature": 0.7, "loss_type": "grpo"},
    ),
    "trl_torchrun.sh": (
        "trl",
        {N: 8, PROBLEMS: 128, STEPS: 300, "rollouts": 8 * 128 * 300, "learning_rate": 1e-5, "updates_per_batch": 2}
        | {"max_tokens": 1024, "top_p": 0.95},
    ),
    "trl_program.py": (
        "trl",
        {N: 8, PROBLEMS: None, STEPS: 100, "rollouts": None, "learning_rate": 1e-6, "kl_coef": 0.0}
        | {"max_tokens": 1024, "loss_type": "dr_grpo"},
    ),
    "trl_deepspeed.sh": (
        "trl",
        {N: 4, PROBLEMS: 64, STEPS: None, "rollouts": None, "learning_rate": 3e-6, "kl_coef": 0.001},
    ),
}
"""Scripts in the styles of each framework's documentation and examples, and what they run, worked out by hand."""
OPEN = {
    "openrlhf_slurm.sh": "before 0.10.2",
    "verl_ray_job.sh": "trainer.total_epochs = 10",
    "verl_outside.sh": "$BATCH",
    "trl_program.py": "64 rollouts",
    "trl_deepspeed.sh": "num_train_epochs = 3",
}
"""What a script leaves open is named."""


@pytest.fixture(scope="module")
def plan() -> Plan:
    return Planner(published("qwen2.5-7b-instruct/guru-math-easy")).allocate("1M")


def run_of(plan: Plan, backend: str, gpus: int = 8) -> RunSpec:
    return api.run_spec(plan, backend, gpus=gpus)


def words(plan: Plan, backend: str) -> list[str]:
    """The command's own words and, behind them, what bash makes of the printed overrides."""
    run = run_of(plan, backend)
    printed = existing.overrides(existing.settings_of(registry.load(backend), backend, run))
    script = (COMMANDS / f"{backend}.sh").read_text().rstrip().removesuffix("$@").rstrip(" \\")
    fake = 'python3() { printf "%s\\0" "$@"; }\naccelerate() { printf "%s\\0" "$@"; }\n'
    text = f"{fake}{script.replace('set -x', '')} \\\n  {printed}\n"
    done = subprocess.run(["bash"], input=text.encode(), capture_output=True, check=True)
    return done.stdout.decode().split("\0")[:-1]


@pytest.mark.parametrize("backend", sorted(SAYS))
def test_a_script_is_shown_as_it_would_run(plan: Plan, backend: str) -> None:
    run = run_of(plan, backend)
    rows = existing.against(registry.load(backend), backend, run, COMMANDS / f"{backend}.sh").rows
    found = {row.name: row for row in rows}
    assert {name: found[name].script for name in SAYS[backend]} == SAYS[backend]
    ours = {N: run.group_size, PROBLEMS: run.problems_per_batch, STEPS: run.update_steps, "rollouts": run.rollouts}
    assert {name: found[name].plan for name in ours} == ours
    assert found["learning_rate"].plan == run.learning_rate
    assert all(row.same == (row.script == row.plan) for row in rows)
    assert all(row.evidence for row in rows if row.script is not None)


@pytest.mark.parametrize("script", sorted(STYLES))
def test_a_script_in_any_documented_style_is_understood(plan: Plan, script: str) -> None:
    backend, says = STYLES[script]
    run = run_of(plan, backend)
    shown = existing.against(registry.load(backend), backend, run, COMMANDS / "style" / script)
    found = {row.name: row.script for row in shown.rows}
    assert {name: found.get(name) for name in says} == says
    assert not any("per_gpu" in name or "memory" in name for name in found)
    assert (OPEN[script] in "; ".join(shown.gaps)) if script in OPEN else shown.gaps == []
    if script == "trl_program.py":
        # It sets the batch, of an unknown number of processes.
        assert {row.name for row in shown.rows if row.script is None and row.evidence} == {PROBLEMS, "rollouts"}


def test_a_text_file_with_flags_is_read_as_the_command_is(plan: Plan, tmp_path: Path) -> None:
    flags = "--learning_rate 1e-6 --num_generations 8 --max_steps 500"
    for text in (flags, f"trl grpo {flags}"):
        (tmp_path / "flags.txt").write_text(text)
        rows = existing.against(registry.load("trl"), "trl", run_of(plan, "trl"), tmp_path / "flags.txt").rows
        assert {row.name: row.script for row in rows[:3]} == {N: 8, PROBLEMS: None, STEPS: 500}


def test_a_configuration_that_is_not_there_is_named(plan: Plan, tmp_path: Path) -> None:
    alone = tmp_path / "run.sh"
    alone.write_text((COMMANDS / "style" / "trl_recipe.sh").read_text())
    with pytest.raises(BackendError, match=r"trl_recipe\.yaml"):
        existing.against(registry.load("trl"), "trl", run_of(plan, "trl"), alone)


def test_a_script_of_another_framework_is_compared_with_its_backend(plan: Plan) -> None:
    with pytest.raises(BackendError) as refused:
        existing.against(registry.load("openrlhf"), "openrlhf", run_of(plan, "openrlhf"), COMMANDS / "verl.sh")
    assert refused.value.options == ("--backend verl",)


def test_settings_of_the_objective_that_differ_are_shown(plan: Plan) -> None:
    rows = existing.against(registry.load("verl"), "verl", run_of(plan, "verl"), COMMANDS / "verl.sh").rows
    (row,) = [row for row in rows if row.name.endswith("kl_loss_type")]
    assert (row.script, row.plan) == ("kl", "low_var_kl")


@pytest.mark.parametrize("backend", sorted(SAYS))
def test_nothing_of_the_plan_differs_once_the_overrides_are_appended(plan: Plan, backend: str, tmp_path: Path) -> None:
    changed = tmp_path / "changed.sh"
    changed.write_text("run " + shlex.join(words(plan, backend)))
    rows = existing.against(registry.load(backend), backend, run_of(plan, backend), changed).rows
    sizes = (N, PROBLEMS, STEPS, "rollouts", "learning_rate", "updates_per_batch", "eval_samples")
    assert all(row.same for row in rows if row.name in sizes), [row for row in rows if row.name in sizes]


def test_the_command_line_prints_both(
    isocompute: Callable[..., subprocess.CompletedProcess[str]], plan: Plan, tmp_path: Path
) -> None:
    plan.save(tmp_path / "plan.json")
    command = ["launch", "plan.json", "--backend=trl", "--gpus=8"]
    script = str(COMMANDS / "trl.sh")
    both = [*command, "--overrides", "--against", script]
    shown = isocompute(*both).stdout
    assert f"--num_generations {plan.group_size}" in shown
    as_json = isocompute(*both, "--json").stdout
    rows = {row["name"]: row for row in json.loads(as_json)["against"]}
    assert rows[N]["script"] == 8
    assert not rows[N]["same"]
    refused = isocompute(*command, "--backend=verl", "--against", script)
    assert refused.returncode == 1
    assert "trl" in refused.stderr
    assert not (tmp_path / "launch.sh").exists()


@pytest.mark.parametrize(("backend", "gpus"), [("openrlhf", 8), ("verl", 8), ("trl", 8), ("trl", 1)])
def test_a_script_of_ours_differs_in_nothing_from_its_plan(plan: Plan, backend: str, gpus: int, tmp_path: Path) -> None:
    run = run_of(plan, backend, gpus)
    (tmp_path / "launch.sh").write_text(registry.load(backend).script(run))
    shown = existing.against(registry.load(backend), backend, run, tmp_path / "launch.sh")
    assert [row for row in shown.rows if not row.same and row.script is not None] == []
    assert PROBLEMS in [row.name for row in shown.rows if row.same]
