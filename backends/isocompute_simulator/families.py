"""Families of simulated tasks: six by formulas, `PROCESSES` by a model of training or as in digitised curves.

In the formulas the gain of training, and when it comes, depend on the group size. Numbers are near those of the paper:
rewards of the base model and plateaus of fig. 6, midpoints that come later for larger n (section 4), a low plateau of
n* on hard problems (fig. 7), overfitting on few problems (section 6).

No process uses the curve shapes of the fits. They have features of digitised and recorded curves that the formula
families lack: late declines whose onset depends on n, rises in two stages, early dips, exponents that depend on n.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from isocompute_simulator.truth import OCTAVES_X, SHAPES, Array, TabulatedTruth, Truth, log_grid, rise_at

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


Range = tuple[float, float]
Relative = Callable[[SweepDesign, np.random.Generator], Array]


def _octaves(design: SweepDesign) -> tuple[float, float]:
    """log2 of the smallest and the largest n."""
    return float(np.log2(design.levels[0])), float(np.log2(design.levels[-1]))


def _saturating(design: SweepDesign, rng: np.random.Generator) -> Array:
    """Relative amplitude: a sigmoid of log2 n from a floor to 1."""
    low, high = _octaves(design)
    floor = rng.uniform(0.3, 0.7)
    late_X = rng.uniform(0.6, 1.3) * (OCTAVES_X - rng.uniform(low + 1, high + 0.5))
    return floor + (1 - floor) * (1.0 / (1.0 + np.exp(-late_X)))


def _falling(design: SweepDesign, rng: np.random.Generator) -> Array:
    low, high = _octaves(design)
    peak = rng.uniform(0.5 * (low + high), high + 0.3)
    fall = rng.uniform(0.15, 0.5) * np.maximum(OCTAVES_X - peak, 0) ** rng.uniform(1.0, 1.6)
    return _saturating(design, rng) * np.exp(-fall)


def _linear(design: SweepDesign, rng: np.random.Generator) -> Array:
    return 1 + rng.uniform(0.25, 0.6) * np.maximum(OCTAVES_X - _octaves(design)[0], -1.5)


def _flat(design: SweepDesign, rng: np.random.Generator) -> Array:
    return 1 + rng.normal(0, 0.004) * OCTAVES_X


def _noise(rng: np.random.Generator, low: float, high: float) -> Array:
    """Independent deviations at each octave, interpolated."""
    return np.interp(OCTAVES_X, np.arange(0.0, 15.0), rng.normal(0, rng.uniform(low, high), 15))


@dataclass(frozen=True)
class Formula:
    """A family: amplitudes by log2 n, and ranges from which the rest is drawn."""

    relative: Relative
    """Amplitude relative to that of other n."""
    gain: Range
    slope: Range
    """Delay in ln C per octave of n."""
    seen: Range
    """Share of its gain that the middle n reaches at the end of the sweep."""
    steepness: Range = (0.85, 2.0)
    base: Range = (0.2, 0.5)
    overfits: bool = False
    rough: bool = False
    """Whether amplitudes and midpoints of neighbouring n differ irregularly."""


FORMULAS = {
    "easy": Formula(_saturating, gain=(0.05, 0.4), slope=(0.3, 0.65), seen=(0.4, 0.98)),
    "hard": Formula(_falling, gain=(0.05, 0.2), slope=(0.2, 0.55), seen=(0.33, 0.9), base=(0.02, 0.25)),
    "unsaturated": Formula(_linear, gain=(0.1, 0.4), slope=(0.25, 0.55), seen=(0.15, 0.55), steepness=(0.5, 1.1)),
    "insensitive": Formula(_flat, gain=(0.05, 0.4), slope=(0.0, 0.03), seen=(0.33, 0.98)),
    "overfitting": Formula(_saturating, gain=(0.05, 0.4), slope=(0.25, 0.55), seen=(0.4, 0.98), overfits=True),
    "rough": Formula(_saturating, gain=(0.05, 0.4), slope=(0.25, 0.55), seen=(0.4, 0.95), rough=True),
}
FAMILIES = tuple(FORMULAS)
"""Names of the families by formulas."""


def draw_truth(family: str, design: SweepDesign, rng: np.random.Generator) -> Truth:
    """A task of a family, placed so that the sweep sees a third to all of the rise."""
    formula = FORMULAS[family]
    low, high = _octaves(design)
    n_problems, begin = 0, 0.0
    if formula.overfits:
        n_problems = int(rng.choice([200, 300, 500, 1000, 2000]))
        begin = np.log(design.largest_rollouts) + rng.uniform(1.0, 4.0)
    rough = [_noise(rng, 0.06, 0.14), _noise(rng, 0.1, 0.3)] if formula.rough else [0.0, 0.0]
    relative_X = formula.relative(design, rng) * np.exp(rough[0])
    slope = rng.uniform(*formula.slope)
    overfit: dict[str, Any] = {}
    if formula.overfits:
        overfit = {
            "n_problems": n_problems,
            "overfit_at": float(begin - np.log(n_problems / 1000.0)),
            "overfit_cap": float(rng.uniform(low + 1, high - 0.5)),
            "overfit_haste": float(rng.uniform(0.5, 1.5)),
            "overfit_rate": float(rng.uniform(0.6, 1.5)),
        }
    shape = SHAPES[int(rng.integers(3))]
    centre = 0.5 * (low + high)
    h = np.exp(rng.uniform(*np.log(formula.steepness)))
    steepness_X = h * np.exp(rng.normal(0, 0.02) * (OCTAVES_X - centre))
    share = rng.uniform(*formula.seen)
    # The delay keeps growing beyond the largest n, where runs have too few updates.
    midpoint_X = slope * (OCTAVES_X - centre) + 0.5 * rng.uniform(0, 0.06) * (OCTAVES_X - centre) ** 2
    midpoint_X = midpoint_X + np.log(design.largest_rollouts) - rise_at(shape, share) / h + rough[1]
    allowed = (low <= OCTAVES_X) & (high + 1 >= OCTAVES_X)
    height = np.exp(rng.uniform(*np.log(formula.gain))) / float(relative_X[allowed].max())
    return Truth(
        shape=shape,
        base_reward=float(rng.uniform(*formula.base)),
        amplitude_X=height * relative_X,
        midpoint_X=midpoint_X,
        steepness_X=steepness_X,
        problems_per_batch=design.problems_per_batch[0],
        problems_delay=float(rng.normal(0.15, 0.15)),
        **overfit,
    )


GAIN = (0.05, 0.3)
BASE = (0.05, 0.5)
DECLINE = (0.2, 0.75)
ONSET_PER_OCTAVE = (0.05, 0.25)
"""Mean and standard deviation."""
SKILLS = 40
"""Problems that stand for a set."""
TIME_PER_UNIT = 16
"""Integration steps per unit of log time."""


def draw_process(family: str, design: SweepDesign, rng: np.random.Generator) -> TabulatedTruth:
    """A task of a family, placed so that the sweep sees a quarter to all of the rise."""
    return _DRAW_PROCESS[family](design, rng)


def _skills(design: SweepDesign, rng: np.random.Generator) -> TabulatedTruth:
    """Problems learned one by one, by expected policy gradient on their success rates."""
    progress_XT, time_T = learned(rng)
    # Progress depends on C / sqrt(n B_p), so larger n reach the same progress at larger C.
    lag_X = 0.5 * np.log(2.0) * _centred(design)
    return _placed(design, rng, _scaled(progress_XT, design, rng), time_T, seen=(0.3, 0.97), lag_X=lag_X)


def _memorising(design: SweepDesign, rng: np.random.Generator) -> TabulatedTruth:
    """Skills on few problems: after some epochs the validation reward falls."""
    truth = _skills(design, rng)
    return _with_decline(truth, design, rng, n_problems=int(rng.choice([300, 500, 1000, 2000, 6000])))


def _declining(design: SweepDesign, rng: np.random.Generator) -> TabulatedTruth:
    """Curves as in the digitised panels: an exponential rise, then a decline linear in ln C."""
    x = _centred(design)
    plateau_X = 1.0 + rng.uniform(0.0, 0.14) * x - rng.uniform(0.0, 0.02) * np.maximum(x, 0.0) ** 2
    plateau_X = np.maximum(plateau_X, 0.2)
    time_T = log_grid(1.0)
    rise_T = -np.expm1(-np.exp(rng.uniform(0.75, 1.1) * time_T))
    gain_XT = _scaled(plateau_X[:, None] * rise_T, design, rng)
    truth = _placed(design, rng, gain_XT, time_T, seen=(0.6, 0.995), lag_X=rng.uniform(0.1, 0.5) * x)
    return _with_decline(truth, design, rng, n_problems=None)


def _two_stage(design: SweepDesign, rng: np.random.Generator) -> TabulatedTruth:
    """Two groups of problems: the second is learned after the first."""
    x = _centred(design)
    second = rng.uniform(0.25, 0.6)
    second_X = second * np.maximum(1.0 + rng.uniform(-0.02, 0.2) * x, 0.1)
    later_X = rng.uniform(1.3, 3.2) + rng.uniform(-0.25, 0.1) * x
    time_T = log_grid(1.0)
    speed, speed_later = rng.uniform(0.9, 2.0, 2)
    gain_XT = (1.0 - second) / (1.0 + np.exp(-speed * time_T[None, :]))
    gain_XT = gain_XT + second_X[:, None] / (1.0 + np.exp(-speed_later * (time_T[None, :] - later_X[:, None])))
    gain_XT = _scaled(gain_XT, design, rng)
    return _placed(design, rng, gain_XT, time_T, seen=(0.35, 0.95), lag_X=rng.uniform(0.1, 0.5) * x)


def _dipping(design: SweepDesign, rng: np.random.Generator) -> TabulatedTruth:
    """Validation declines a little before it rises, as when the format of answers changes first."""
    truth = _skills(design, rng)
    depth, width = rng.uniform(0.01, 0.05), rng.uniform(0.5, 1.0)
    where_X = np.log(design.largest_rollouts) - rng.uniform(2.5, 4.5) + rng.uniform(0.0, 0.4) * _centred(design)
    late_XT = (truth.log_compute_T[None, :] - where_X[:, None]) / width
    dip_XT = min(depth, 0.6 * truth.base_reward) * np.exp(-0.5 * late_XT**2)
    return replace(truth, gain_XT=truth.gain_XT - dip_XT)


def _tilted(design: SweepDesign, rng: np.random.Generator) -> TabulatedTruth:
    """A power-law approach to the plateau with an exponent that depends on n: some n rise long after others stopped."""
    x = _centred(design)
    exponent_X = np.exp(rng.uniform(-1.2, 0.3) + np.clip(rng.normal(0.1, 0.2), -0.4, 0.4) * x)
    top_X = np.maximum(1.0 + rng.uniform(-0.02, 0.08) * x, 0.3)
    time_T = log_grid(1.0)
    gain_XT = top_X[:, None] * (1.0 - (1.0 + np.exp(time_T[None, :])) ** -exponent_X[:, None])
    gain_XT = _scaled(gain_XT, design, rng)
    return _placed(design, rng, gain_XT, time_T, seen=(0.25, 0.9), lag_X=rng.uniform(0.1, 0.5) * x)


def learned(rng: np.random.Generator) -> tuple[Array, Array]:
    """Gain in the mean success rate of a set of problems, shape (X, T), and ln of C / sqrt(n B_p), shape (T,).

    Each problem's logit z follows dz/dt = s(p, n) - q n^-g (1 - p) mean(s) - k (z - z0), with s the expected size of a
    group-normalised advantage.
    """
    spread = rng.uniform(0.8, 2.4)
    start_P = rng.normal(rng.normal(-0.8, 1.0), spread, SKILLS)
    talent_P = np.exp(rng.normal(0.0, rng.uniform(0.3, 1.2), SKILLS))
    interference = rng.uniform(0.5, 4.0) * 2.0 ** (-rng.uniform(0.2, 0.8) * OCTAVES_X[:, None])
    pull = rng.uniform(0.01, 0.25)
    sizes = 2.0 ** OCTAVES_X[:, None]

    def speed(logit_XP: Array) -> Array:
        p = 1.0 / (1.0 + np.exp(-np.clip(logit_XP, -30.0, 30.0)))
        mixed = 1.0 - p**sizes - (1.0 - p) ** sizes
        signal = talent_P * np.sqrt(p * (1.0 - p)) * np.maximum(mixed, 0.0)
        others = signal.mean(axis=1, keepdims=True)
        return signal - interference * (1.0 - p) * others - pull * (logit_XP - start_P)

    time_T = np.asarray(np.arange(-5.0, 9.0, 1.0 / TIME_PER_UNIT), dtype=np.float64)
    logit_XP = np.repeat(start_P[None, :], len(OCTAVES_X), axis=0)
    mean_XT = np.empty((len(OCTAVES_X), len(time_T)))
    for t, now in enumerate(time_T):
        step = np.exp(now) - (np.exp(time_T[t - 1]) if t else 0.0)
        rate = speed(logit_XP)
        stiff = np.maximum((rate - speed(logit_XP + 1e-4)) / 1e-4, 0.0)
        # Linearly implicit: equilibria are reached without overshoot however long a step is.
        logit_XP = logit_XP + np.clip(step * rate / (1.0 + step * stiff), -0.5, 0.5)
        mean_XT[:, t] = (1.0 / (1.0 + np.exp(-logit_XP))).mean(axis=1)
    return mean_XT - float((1.0 / (1.0 + np.exp(-start_P))).mean()), time_T


def _with_decline(
    truth: TabulatedTruth, design: SweepDesign, rng: np.random.Generator, n_problems: int | None
) -> TabulatedTruth:
    """The same task with a decline whose onset lies around the end of the pilot."""
    x = _centred(design)
    onset_X = np.log(design.largest_rollouts) + rng.uniform(-1.3, 1.8) + rng.normal(*ONSET_PER_OCTAVE) * x
    decline_X = rng.uniform(*DECLINE) * np.exp(rng.normal(0.0, 0.08) * x)
    return replace(
        truth,
        n_problems=n_problems,
        onset_X=np.asarray(onset_X),
        onset_problems=n_problems,
        decline_X=np.asarray(decline_X),
    )


def _placed(
    design: SweepDesign,
    rng: np.random.Generator,
    gain_XT: Array,
    time_T: Array,
    *,
    seen: tuple[float, float],
    lag_X: Array,
) -> TabulatedTruth:
    """A task from curves over `time_T`, shifted so that the middle n reaches a share of its gain at the pilot's end."""
    middle = int(np.argmin(np.abs(_centred(design))))
    wanted = rng.uniform(*seen) * float(gain_XT[middle].max())
    at = float(time_T[int(np.argmax(gain_XT[middle] >= wanted))])
    log_compute_T = log_grid(float(design.largest_rollouts))
    own_XT = log_compute_T[None, :] - np.log(design.largest_rollouts) + at - lag_X[:, None]
    table_XT = np.stack([np.interp(own, time_T, row, left=0.0) for own, row in zip(own_XT, gain_XT, strict=True)])
    base, delay = float(rng.uniform(*BASE)), float(rng.normal(0.2, 0.12))
    return TabulatedTruth(base, log_compute_T, table_XT, design.problems_per_batch[0], delay)


def _scaled(gain_XT: Array, design: SweepDesign, rng: np.random.Generator) -> Array:
    """Gains scaled so that the best n up to an octave above the grid has a gain as published."""
    allowed = np.log2(design.levels[-1]) + 1 >= OCTAVES_X
    return gain_XT * rng.uniform(*GAIN) / float(gain_XT[allowed].max())


def _centred(design: SweepDesign) -> Array:
    """Octaves from the middle of the grid."""
    return OCTAVES_X - 0.5 * (np.log2(design.levels[0]) + np.log2(design.levels[-1]))


_DRAW_PROCESS: dict[str, Callable[[SweepDesign, np.random.Generator], TabulatedTruth]] = {
    "skills": _skills,
    "memorising": _memorising,
    "declining": _declining,
    "two-stage": _two_stage,
    "dipping": _dipping,
    "tilted": _tilted,
}
PROCESSES = tuple(_DRAW_PROCESS)
"""Names of the families by a model of training."""
