"""A plan for a stated number of minutes, trained for real on the built-in task, beside the rollout-optimal one.

Needs the folder of a finished `isocompute quickstart` (its task, study and pilot fits). Seconds per step are probed
first, in this very moment; then a plan for the minutes is trained, and after it the n and B_p that are best per
rollout, with as many steps as the same minutes are predicted to hold. Both are stopped by their number of steps, not
by a clock: what they really take is the test.

    python benchmarks/planned_minutes.py --folder isocompute-quickstart --minutes 3
"""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass
from pathlib import Path

import isocompute_sdk as iso
from isocompute_sdk import api
from isocompute_sdk.campaigns.carrying_out import carry_out
from isocompute_sdk.campaigns.executors import LocalExecutor
from isocompute_sdk.run_folders import journal_records
from isocompute_sdk.specs import RunSpec, Study, load_study
from isocompute_sdk.timing.probe import probe_pairs, probe_runs
from isocompute_sdk.training import registry
from isocompute_sdk.training.backend import run_folder

PROBLEMS = 200
"""Validation problems of the built-in task."""


@dataclass(frozen=True)
class Result:
    """One run, planned and real."""

    plan: str
    rollouts: int
    predicted_minutes: float
    minutes: float
    predicted: float
    reward: float


def train(folder: Path, runs: tuple[RunSpec, ...]) -> None:
    """Train here, one after the other."""
    carry_out(runs, registry.load("torch"), LocalExecutor(1), folder)


def probe(study: Study, folder: Path, steps: int) -> iso.Throughput:
    """Seconds per step at three batches, now."""
    runs = probe_runs(study, registry.load("torch").describe(), probe_pairs(study), steps)
    train(folder, runs)
    return iso.Throughput.measure(iso.RunSet.read([folder / run_folder(run) / "metrics.jsonl" for run in runs]))


def carried_out(study: Study, folder: Path, plan: iso.Plan, name: str, minutes: float) -> Result:
    """Train one plan and read what it took and reached."""
    run = api.run_spec(
        plan,
        "torch",
        model=study.model,
        train_data=study.data.train,
        eval_data=study.data.validation,
        reward=study.data.reward,
        seed=7,
    )
    run = run.replace(run_id=name, data=study.data, options=study.options, output_dir=f"{study.output_dir}/{name}")
    train(folder, (run,))
    records = journal_records.read(folder / run_folder(run) / "metrics.jsonl")
    values = [r["metrics"]["avg@4"] for r in records if r["kind"] == "evaluation" and r["eval_set"] == "validation"]
    last = values[-min(3, len(values)) :]
    return Result(
        f"n = {plan.group_size}, B_p = {plan.problems_per_batch}, M = {plan.update_steps:,}",
        plan.rollouts,
        minutes,
        records[-1]["wall_seconds"] / 60,
        plan.predicted_reward or float("nan"),
        sum(last) / len(last),
    )


def main() -> None:
    """Probe, plan, train twice, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=3.0)
    parser.add_argument("--probe-steps", type=int, default=60)
    arguments = parser.parse_args()
    folder: Path = arguments.folder.absolute()
    loaded = load_study(folder / "study.yaml")
    study = loaded.replace(
        name=f"minutes-{os.getpid()}",
        evaluation=loaded.evaluation.replace(n_problems=PROBLEMS),
        options={k: v for k, v in loaded.options.items() if k != "evaluations_per_decade"},
        output_dir=f"{loaded.output_dir}/minutes-{os.getpid()}",
    )
    fits = iso.Fits.load(folder / "fits.json")
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores", flush=True)
    throughput = probe(study, folder, arguments.probe_steps)
    print(throughput.summary(), flush=True)
    planner = iso.Planner(fits, None, study.recipe, throughput, evaluation=study.evaluation)
    plan = planner.allocate(iso.Budget(gpu_hours=arguments.minutes / 60), spend="all")
    by_rollouts = iso.Planner(fits, None, study.recipe).allocate(plan.rollouts, spend="all")
    other = planner.allocate(
        iso.Budget(gpu_hours=arguments.minutes / 60),
        rollouts_per_batch=by_rollouts.rollouts_per_batch,
        problems_per_batch=by_rollouts.problems_per_batch,
        spend="all",
    )
    print(plan.summary(), flush=True)
    results: list[tuple[str, Result]] = []
    for name, one in (("in-time", plan), ("in-rollouts", other)):
        assert one.wall_hours is not None
        results.append((name, carried_out(study, folder, one, f"{study.name}-{name}", 60 * one.wall_hours)))
        print(f"load {os.getloadavg()[0]:.1f}", flush=True)
    print("| planned | configuration | rollouts | minutes planned | minutes taken | predicted avg@4 | measured |")
    print("|---|---|---|---|---|---|---|")
    for name, r in results:
        print(
            f"| {name} | {r.plan} | {r.rollouts:,} | {r.predicted_minutes:.2f} | {r.minutes:.2f} "
            f"({r.minutes / r.predicted_minutes - 1:+.0%}) | {r.predicted:.3f} | {r.reward:.3f} |"
        )


if __name__ == "__main__":
    main()
