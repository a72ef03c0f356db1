"""`Scenario`: a pilot sweep together with the truth behind it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from isocompute_sdk.records import RunSet
from isocompute_simulator.families import (
    FAMILIES,
    PROCESSES,
    SweepDesign,
    draw_design,
    draw_large_design,
    draw_process,
    draw_truth,
)
from isocompute_simulator.observation import Noise, draw_noise, draw_rough_noise, measured_curve
from isocompute_simulator.truth import Array, Task

REAL_FAMILIES = (*PROCESSES, "outlying", "large")
"""Families with what recorded curves have and `FAMILIES` lack. `outlying`: any of `PROCESSES` with wrong evaluations
and odd runs; `large`: any of them with a sweep of 26 to 60 runs."""

METRIC = "avg@4"
RANGE_RATIO = 10.0
"""The reward range of a scenario is what can be gained with this many times its largest pilot budget."""
STEPS_PER_OCTAVE = 8
"""Density of the group sizes among which the best one is looked for."""


@dataclass(frozen=True, eq=False)
class Scenario:
    """A simulated pilot sweep and its truth."""

    family: str
    """One of `FAMILIES` or `REAL_FAMILIES`."""
    runs: RunSet
    """The sweep as a user would read it: metric avg@4, rewards of the base model included."""
    truth: Task = field(repr=False)
    design: SweepDesign = field(repr=False)
    noise: Noise = field(repr=False)

    @property
    def levels(self) -> tuple[int, ...]:
        """Levels of n in the sweep, increasing."""
        return self.design.levels

    @property
    def problems_per_batch(self) -> tuple[int, ...]:
        """Levels of B_p in the sweep, increasing."""
        return self.design.problems_per_batch

    @property
    def largest_rollouts(self) -> float:
        """Compute of the longest run of the sweep."""
        return float(self.design.largest_rollouts)

    @property
    def reward_range(self) -> float:
        """Gain over the base model of the best n at 10 times the largest pilot budget: regrets are shares of it."""
        _, reward = self.best(RANGE_RATIO * self.largest_rollouts, self.levels[0], self.levels[-1])
        return reward - self.truth.base_reward

    def true_reward(
        self, rollouts: npt.ArrayLike, group_size: npt.ArrayLike, problems_per_batch: npt.ArrayLike | None = None
    ) -> Array:
        """Noise-free reward of the best checkpoint up to C, averaged over runs without faults.

        Args:
            rollouts: compute C, at least 0; broadcast with the others.
            group_size: n.
            problems_per_batch: B_p; None for the smallest of the sweep.
        """
        return self.truth.best(rollouts, group_size, problems_per_batch)

    def allowed_group_sizes(
        self, rollouts: float, n_min: int, n_max: int, min_update_steps: int = 5
    ) -> npt.NDArray[np.int64]:
        """Group sizes in [n_min, 2 n_max] that leave enough update steps at the smallest B_p, increasing."""
        octaves = np.arange(np.log2(n_min), np.log2(2 * n_max) + 1e-9, 1 / STEPS_PER_OCTAVE)
        sizes = np.unique(np.rint(2.0**octaves).astype(np.int64))
        allowed = sizes[sizes * self.problems_per_batch[0] * min_update_steps <= rollouts]
        return allowed if allowed.size else sizes[:1]

    def best(self, rollouts: float, n_min: int, n_max: int, min_update_steps: int = 5) -> tuple[int, float]:
        """The best n in [n_min, 2 n_max] at the smallest B_p, and its true reward.

        Args:
            rollouts: budget C.
            n_min: smallest n allowed.
            n_max: largest level of the sweep; n may go one octave beyond.
            min_update_steps: least M that a choice has to leave.
        """
        sizes = self.allowed_group_sizes(rollouts, n_min, n_max, min_update_steps)
        rewards = self.true_reward(rollouts, sizes)
        index = int(np.argmax(rewards))
        return int(sizes[index]), float(rewards[index])


def draw_scenario(rng: np.random.Generator, family: str | None = None) -> Scenario:
    """Draw a task and a pilot sweep on it.

    Args:
        rng: randomness; the same state gives the same scenario.
        family: one of `FAMILIES` or `REAL_FAMILIES`; None draws one of `FAMILIES`, all equally likely.
    """
    if family in REAL_FAMILIES:
        return _draw_real(family, rng)
    if family is not None and family not in FAMILIES:
        raise ValueError(f"family = {family!r}; accepted: {', '.join((*FAMILIES, *REAL_FAMILIES))}")
    drawn = FAMILIES[int(rng.integers(len(FAMILIES)))] if family is None else family
    design = draw_design(rng)
    truth, noise = draw_truth(drawn, design, rng), draw_noise(rng)
    return Scenario(drawn, _train(drawn, design, truth, noise, rng), truth, design, noise)


def _draw_real(family: str, rng: np.random.Generator) -> Scenario:
    design = draw_large_design(rng) if family == "large" else draw_design(rng)
    process = family if family in PROCESSES else PROCESSES[int(rng.integers(len(PROCESSES)))]
    truth, noise = draw_process(process, design, rng), draw_rough_noise(rng, outlying=family == "outlying")
    return Scenario(family, _train(family, design, truth, noise, rng), truth, design, noise)


def _train(family: str, design: SweepDesign, truth: Task, noise: Noise, rng: np.random.Generator) -> RunSet:
    columns: dict[str, list[Any]] = {}
    for run in design.runs:
        steps_T = np.array(design.evaluated_steps(run.update_steps))
        logged = logged_run(truth, noise, steps_T, run.group_size, run.problems_per_batch, run.seed, rng)
        for name, values in logged.items():
            columns.setdefault(name, []).extend(values)
    context: dict[str, Any] = {"model": f"simulation/{family}", "algorithm": "simulation", "learning_rate": 1e-6}
    if truth.n_problems is not None:
        context["n_problems"] = truth.n_problems
    return RunSet.from_columns(columns, metric=METRIC, **context)


def logged_run(
    truth: Task,
    noise: Noise,
    steps_T: npt.NDArray[np.int64],
    group_size: int,
    problems_per_batch: int,
    seed: int,
    rng: np.random.Generator,
) -> dict[str, list[Any]]:
    """What one run logs at these update steps, as columns of a `RunSet`; missing evaluations are left out."""
    rollouts_T = steps_T.astype(np.float64) * (group_size * problems_per_batch)
    value_T = measured_curve(truth, noise, rollouts_T, group_size, problems_per_batch, rng)
    seen = np.flatnonzero(~np.isnan(value_T))
    same = {
        "run_id": f"n{group_size}-bp{problems_per_batch}-s{seed}",
        "group_size": group_size,
        "problems_per_batch": problems_per_batch,
        "seed": seed,
    }
    repeated = {name: [value] * len(seen) for name, value in same.items()}
    return {**repeated, "step": steps_T[seen].tolist(), "value": value_T[seen].tolist()}
