"""A plan, its launch script, the log of that run, the runs read from it, and a plan from them: the same run again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import isocompute_sdk as iso
from isocompute_sdk import Planner, RunSet
from isocompute_sdk.api import run_spec
from isocompute_sdk.planning.changes import change_plan
from isocompute_sdk.run_folders.run_journal import Journal
from isocompute_sdk.specs import RunSpec
from isocompute_sdk.training import registry
from tests.backends.test_progress import console, file_log
from tests.parameters import few

CONTEXT: dict[str, Any] = {
    "model": "Qwen/Qwen2.5-0.5B-Instruct",
    "kl_coef": 0.002,
    "entropy_coef": 0.0,
    "temperature": 0.8,
    "max_tokens": 2048,
    "max_prompt_tokens": 768,
    "eval_temperature": 0.8,
    "eval_samples": 4,
    "n_problems": 640,
    "algorithm": "grpo",
}
"""Of the sweep: hardly a value is that of a preset."""
STEPS, EVERY = 60, 4


def reward(n: int, compute: float) -> float:
    return 0.3 + (0.1 + 0.02 * float(np.log2(n))) * -float(np.expm1(-compute / (300 * n)))


def sweep() -> RunSet:
    levels, compute = (2, 4, 8), np.geomspace(200, 2e4, 12)
    rows = [(n, float(c), reward(n, float(c)), 3e-6 * (n / 8) ** 0.5) for n in levels for c in compute]
    names = ("n", "C", "avg@4", "learning_rate")
    columns: dict[str, Any] = {name: list(column) for name, column in zip(names, zip(*rows, strict=True), strict=True)}
    return RunSet.from_columns(columns, problems_per_batch=32, **CONTEXT)


def leave_log(run: RunSpec, folder: Path) -> None:
    """What the programs of the script write while it trains."""
    batch = run.group_size * run.problems_per_batch
    values = [(step, reward(run.group_size, step * batch)) for step in range(0, run.update_steps + 1, EVERY)]
    # Before the first update there is no training reward.
    if run.backend == "openrlhf":
        (folder / "console.1.log").write_text(
            "".join(console(step, value if step else None, value) for step, value in values)
        )
    elif run.backend == "verl":
        (folder / "logs").mkdir()
        lines = "".join(file_log(step, value if step else None, value) for step, value in values)
        (folder / "logs" / "attempt-1.jsonl").write_text(lines)
    else:
        journal = Journal(folder / "metrics.jsonl", run.run_id, 1)
        journal.begin(resumed_step=None, **run.context())
        for step, value in values:
            counts: dict[str, Any] = {"step": step, "rollouts": step * batch, "tokens": 0}
            journal.append("evaluation", **counts, eval_set="validation", metrics={"avg@4": value})
        journal.close()


@pytest.mark.parametrize("name", few(registry.available(), {"torch", "verl"}))
def test_the_plan_of_a_planned_run_is_that_run(name: str, tmp_path: Path) -> None:
    backend = registry.load(name)
    plan = Planner(iso.fit(sweep(), draws=10)).allocate(20_000, update_steps=STEPS, spend="all")
    run = run_spec(plan, name)
    folder = tmp_path / "runs" / run.run_id
    backend.prepare(run, folder)
    leave_log(run, folder)
    runs = RunSet.read(tmp_path / "runs")
    (one,) = runs.runs()
    assert (one.group_size, one.problems_per_batch, one.rollouts) == (
        plan.group_size,
        plan.problems_per_batch,
        plan.rollouts,
    )
    assert one.context.items() <= run.context().items()
    fits = iso.fit(runs, eval_set="validation", draws=10)
    again = Planner(fits).allocate(20_000, problems_per_batch=plan.problems_per_batch, update_steps=STEPS, spend="all")
    again = run_spec(change_plan(again, {"group_size": plan.group_size}), name)
    assert again.context() == run.context()
    # One run shows its learning rate, and neither the batch that the rule was anchored at nor the smallest B_p.
    unknown = ("learning_rate_anchor", "learning_rate_anchor_batch", "min_problems_per_batch")
    recipe = again.recipe.replace(**{field: getattr(run.recipe, field) for field in unknown})
    assert backend.script(again.replace(recipe=recipe)) == backend.script(run)
