"""Step logs of simulated runs whose law of seconds is known, for tests and time_planning.py."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from isocompute_sdk.records import RunSet
from isocompute_simulator.observation import Clock


def run_hours(
    clock: Clock, batch: int, steps: int, gpus: int | None = None, evaluations: Sequence[int] = (), samples: float = 0.0
) -> float:
    """Mean wall-clock hours of a whole run, summed step by step.

    Args:
        clock: the law.
        batch: rollouts per batch B.
        steps: update steps M.
        gpus: GPUs; None for the clock's own number.
        evaluations: update steps after which the run is evaluated.
        samples: samples of one evaluation.
    """
    middle = (np.arange(steps) + 0.5) * batch
    length = 1.0 + clock.growth * np.log1p(middle / clock.scale)
    speed = clock.rate * ((gpus or clock.gpus) / clock.gpus) ** clock.exponent
    training = float(np.sum(clock.overhead + length * (clock.floor + batch / speed)))
    measuring = sum(clock.evaluation_seconds(samples, step * batch, gpus) for step in evaluations)
    return (clock.startup + training + measuring) / 3600.0


def timed_logs(
    clock: Clock,
    batches: Sequence[tuple[int, int]],
    steps: int | Sequence[int],
    rng: np.random.Generator,
    *,
    gpus: int | None = None,
    with_sampling: bool = True,
    samples: int = 1200,
    prefix: str = "timed",
) -> RunSet:
    """Step logs of one run for each (n, B_p), as a training framework writes them: seconds, lengths, an evaluation.

    Args:
        clock: the law.
        batches: (group size, problems per batch) of each run.
        steps: logged steps: their number, counted from the first, or the steps themselves.
        rng: randomness of steps and runs.
        gpus: GPUs of all runs; None for the clock's own number.
        with_sampling: log the seconds of sampling too.
        samples: samples of the evaluation after the last step.
        prefix: begins the names of the runs.
    """
    columns: dict[str, list[Any]] = {
        name: [] for name in ("run_id", "n", "problems_per_batch", "step", "metric", "eval_set", "value")
    }

    def add(run: int, step: int, metric: str, value: float, eval_set: str = "train") -> None:
        n, bp = batches[run]
        row = (f"{prefix}-{run}-n{n}-bp{bp}", n, bp, step, metric, eval_set, value)
        for name, item in zip(columns, row, strict=True):
            columns[name].append(item)

    logged = range(1, steps + 1) if isinstance(steps, int) else steps
    for run, (n, bp) in enumerate(batches):
        batch = n * bp
        run_factor = math.exp(rng.normal(0.0, clock.run_noise) - clock.run_noise**2 / 2)
        add(run, 0, "startup_seconds", clock.startup * run_factor, "validation")
        step = 0
        for step in logged:
            at = (step - 0.5) * batch
            noise = run_factor * math.exp(rng.normal(0.0, clock.step_noise) - clock.step_noise**2 / 2)
            total = clock.step_seconds(batch, at, gpus)
            # Three quarters of what a rollout costs is sampling.
            sampling = clock.length(at) * clock.floor + 0.75 * (total - clock.overhead - clock.length(at) * clock.floor)
            add(run, step, "step_seconds", total * noise)
            if with_sampling:
                add(run, step, "sampling_seconds", sampling * noise)
            add(run, step, "response_length", clock.tokens * clock.length(at) * math.exp(rng.normal(0.0, 0.02)))
        seconds = clock.evaluation_seconds(samples, step * batch, gpus) * run_factor
        add(run, step, "evaluation_seconds", seconds, "validation")
        add(run, step, "evaluation_rollouts", float(samples), "validation")
    return RunSet.from_columns(columns)
