"""`Clock`: a known law of seconds per step, and logs of simulated runs with these times.

It shares no code with the SDK's cost model, so that it can test that model.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from isocompute_sdk.records import RunSet


@dataclass(frozen=True)
class Clock:
    """Seconds of a step of B rollouts on G GPUs after C rollouts: overhead + L(C) (floor + B / (rate (G / G0)^e)).

    Responses are tokens L(C) long, L(C) = 1 + growth ln(1 + C / scale).
    """

    overhead: float = 20.0
    floor: float = 10.0
    """Seconds to generate the longest response, at the start."""
    rate: float = 60.0
    """Rollouts per second on `gpus` GPUs at the start."""
    gpus: int = 8
    exponent: float = 0.9
    tokens: float = 600.0
    """Tokens of a response at the start."""
    growth: float = 0.25
    scale: float = 1e5
    evaluation_rate: float = 150.0
    """Rollouts per second of an evaluation, on `gpus` GPUs at the start."""
    startup: float = 120.0
    step_noise: float = 0.1
    """Standard deviation of the logarithm of a step's seconds around its mean."""
    run_noise: float = 0.0
    """The same between runs, which may be on slower or faster machines."""

    def length(self, rollouts: float) -> float:
        """Mean response length after C rollouts, relative to the start."""
        return 1.0 + self.growth * math.log1p(rollouts / self.scale)

    def step_seconds(self, batch: float, rollouts: float = 0.0, gpus: int | None = None) -> float:
        """Mean seconds of a step."""
        speed = self.rate * ((gpus or self.gpus) / self.gpus) ** self.exponent
        return self.overhead + self.length(rollouts) * (self.floor + batch / speed)

    def evaluation_seconds(self, samples: float, rollouts: float = 0.0, gpus: int | None = None) -> float:
        """Mean seconds of an evaluation of `samples` samples."""
        speed = self.evaluation_rate * ((gpus or self.gpus) / self.gpus) ** self.exponent
        return self.length(rollouts) * (self.floor + samples / speed)

    def run_hours(
        self, batch: int, steps: int, gpus: int | None = None, evaluations: Sequence[int] = (), samples: float = 0.0
    ) -> float:
        """Mean wall-clock hours of a whole run, summed step by step.

        Args:
            batch: rollouts per batch B.
            steps: update steps M.
            gpus: GPUs; None for the clock's own number.
            evaluations: update steps after which the run is evaluated.
            samples: samples of one evaluation.
        """
        middle = (np.arange(steps) + 0.5) * batch
        length = 1.0 + self.growth * np.log1p(middle / self.scale)
        speed = self.rate * ((gpus or self.gpus) / self.gpus) ** self.exponent
        training = float(np.sum(self.overhead + length * (self.floor + batch / speed)))
        measuring = sum(self.evaluation_seconds(samples, step * batch, gpus) for step in evaluations)
        return (self.startup + training + measuring) / 3600.0


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
    from isocompute_sdk.records import RunSet

    return RunSet.from_columns(columns)
