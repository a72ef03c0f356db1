"""Which runs a pilot sweep has: levels of n and B_p, seeds, lengths, and when they are evaluated."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

ONE_SEED_SHARE = 0.65
"""Share of sweeps with one seed per configuration."""
PROBLEMS_LEVELS_SHARES = (0.55, 0.30, 0.15)
"""Shares of sweeps with one, two and three levels of B_p."""
EQUAL_LENGTH_SHARE = 0.4
"""Share of sweeps whose runs all get the same compute; in the others larger n get more of it."""
EVERY_SO_MANY_STEPS_SHARE = 0.6
"""Share of sweeps that evaluate after so many update steps, whatever n is: small n then have more evaluations. The
others evaluate every run as often."""
LOG_SPACED_SHARE = 0.35
"""Share of sweeps that evaluate evenly in ln C."""
MIN_EVALUATIONS, MAX_EVALUATIONS = 10, 100
EARLY_STOP_RATE = 0.05
"""Share of runs that end before their time."""
SMALLEST_EXPONENTS = (2, 3, 3, 3, 4, 4)
LARGEST_EXPONENT = 10
MIN_STEPS = 8
LARGE = (26, 60)
"""Runs of a large sweep."""


@dataclass(frozen=True)
class PlannedRun:
    """One run of a sweep."""

    group_size: int
    problems_per_batch: int
    seed: int
    update_steps: int


@dataclass(frozen=True)
class SweepDesign:
    """A pilot sweep before anything has been trained."""

    levels: tuple[int, ...]
    """Levels of n, increasing."""
    problems_per_batch: tuple[int, ...]
    """Levels of B_p, increasing."""
    runs: tuple[PlannedRun, ...]
    evaluations: int
    """Evaluations of a run of the largest n, about; the base model's one not counted."""
    by_steps: bool
    """Whether runs with more update steps have more evaluations."""
    log_spaced: bool
    """Whether evaluations are spaced evenly in ln C rather than in C."""

    @property
    def largest_rollouts(self) -> int:
        """Compute of the longest run."""
        return max(r.group_size * r.problems_per_batch * r.update_steps for r in self.runs)

    def evaluated_steps(self, update_steps: int) -> list[int]:
        """Update steps after which a run of that length is evaluated, 0 and the last one included."""
        count = self.evaluations
        if self.by_steps:
            fewest_steps = min(run.update_steps for run in self.runs)
            count = min(round(count * update_steps / fewest_steps), MAX_EVALUATIONS)
        count = min(count, update_steps)
        spread = np.geomspace if self.log_spaced else np.linspace
        first = max(update_steps / 100, 1.0) if self.log_spaced else update_steps / count
        return sorted({0, update_steps, *(int(step) for step in np.rint(spread(first, update_steps, count)))})


def draw_design(rng: np.random.Generator) -> SweepDesign:
    """A sweep as users run them: 3 to 8 levels of n between 4 and 1,024, 1 to 3 levels of B_p, mostly one seed."""
    levels = _levels(rng)
    smallest = int(rng.choice([8, 16, 32, 32, 32, 64, 128]))
    count = 1 + int(rng.choice(3, p=PROBLEMS_LEVELS_SHARES))
    factor = int(rng.choice([2, 4]))
    problems = tuple(smallest * factor**i for i in range(count))
    seeds = 1 if rng.random() < ONE_SEED_SHARE else int(rng.integers(2, 4))
    # The largest n has the fewest steps: it decides how much compute a sweep of that size takes.
    top_steps = np.exp(rng.uniform(np.log(15), np.log(150)))
    largest = levels[-1] * smallest * top_steps
    lean = 0.0 if rng.random() < EQUAL_LENGTH_SHARE else rng.uniform(0.1, 0.35)
    runs: list[PlannedRun] = []
    for index, bp in enumerate(problems):
        for n in levels:
            # Sweeps over both sizes are seldom complete.
            if index and rng.random() > 0.6:
                continue
            compute = largest * (n / levels[-1]) ** lean
            for seed in range(seeds):
                cut = rng.uniform(0.3, 0.8) if rng.random() < EARLY_STOP_RATE else rng.uniform(0.85, 1.0)
                runs.append(PlannedRun(n, bp, seed, max(MIN_STEPS, round(cut * compute / (n * bp)))))
    evaluations = round(np.exp(rng.uniform(np.log(MIN_EVALUATIONS), np.log(MAX_EVALUATIONS))))
    by_steps = bool(rng.random() < EVERY_SO_MANY_STEPS_SHARE)
    return SweepDesign(levels, problems, tuple(runs), evaluations, by_steps, bool(rng.random() < LOG_SPACED_SHARE))


def draw_large_design(rng: np.random.Generator) -> SweepDesign:
    """A sweep of 26 to 60 runs: as `draw_design`, with 2 to 4 seeds."""
    while True:
        design = draw_design(rng)
        seeds = int(rng.integers(2, 5))
        first = [run for run in design.runs if run.seed == 0]
        runs = tuple(
            PlannedRun(r.group_size, r.problems_per_batch, seed, r.update_steps) for r in first for seed in range(seeds)
        )
        if LARGE[0] <= len(runs) <= LARGE[1]:
            return replace(design, runs=runs, evaluations=min(design.evaluations, 40))


def typical_design(rollouts: int) -> SweepDesign:
    """The paper's grid at B_p = 32, n = 8 to 512, each run as long as `rollouts` allow: what a task is laid out for."""
    levels = tuple(2**e for e in range(3, 10))
    runs = tuple(PlannedRun(n, 32, 0, max(1, round(rollouts / (32 * n)))) for n in levels)
    return SweepDesign(levels, (32,), runs, 40, False, False)


def _levels(rng: np.random.Generator) -> tuple[int, ...]:
    first = int(rng.choice(SMALLEST_EXPONENTS))
    last = int(rng.integers(max(first + 4, 8), LARGEST_EXPONENT + 1))
    count = int(rng.integers(3, 9))
    return tuple(sorted({2 ** round(e) for e in np.linspace(first, last, count)}))
