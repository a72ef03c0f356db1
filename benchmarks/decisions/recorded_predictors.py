"""How well any simple rule forecasts the recorded runs at 8 times the pilot, chosen on one problem set for the other.

    python benchmarks/decisions/recorded_predictors.py

Each rule continues one curve by itself: a line or a parabola in ln C through the last part of the pilot, on one of five
scales of reward, its change beyond the pilot multiplied by a factor. There are 200; the one whose largest bias over n
(or root mean square error) is least on one set is judged on the other. Cases are those of
`benchmarks/decisions/recorded.py`.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from recorded import LEAST_STEPS, ORIGINS, PROBLEMS_PER_BATCH, SEEDS, SETS, Array, Recorded

FACTOR = 8.0
WINDOWS = (3.0, 8.0, 30.0, 1e9)
"""Part of the pilot that a rule looks at: evaluations within this factor of its end."""
DEGREES = (1, 2)
GROWTHS = (0.5, 0.75, 1.0, 1.25, 1.5)
"""Factors on the change that a rule predicts."""
FEWEST = 4
"""Evaluations that a rule looks at at least."""
LEAST = 0.003


@dataclass(frozen=True)
class Case:
    """One curve of one pilot."""

    set: str
    n: int
    log_compute: Array
    """Less that of the pilot's end."""
    reward: Array
    base: float
    true: float


def _logit(share: Array) -> Array:
    inside = np.clip(share, LEAST, 1.0 - LEAST)
    return np.log(inside / (1.0 - inside))


def _inverse(value: Array) -> Array:
    return 1.0 / (1.0 + np.exp(-value))


SCALES: dict[str, tuple[Callable[[Array, float], Array], Callable[[Array, float], Array]]] = {
    "reward": (lambda y, b: y, lambda z, b: z),
    "logit of reward": (lambda y, b: _logit(y), lambda z, b: _inverse(z)),
    "log of gain": (lambda y, b: np.log(np.maximum(y - b, LEAST)), lambda z, b: b + np.exp(z)),
    "log of 1 - reward": (lambda y, b: np.log(np.maximum(1.0 - y, LEAST)), lambda z, b: 1.0 - np.exp(z)),
    "logit of gain over headroom": (
        lambda y, b: _logit((y - b) / (1.0 - b)),
        lambda z, b: b + (1.0 - b) * _inverse(z),
    ),
}


def cases() -> list[Case]:
    """Every forecast of `recorded` at 8 times the pilot."""
    found: list[Case] = []
    for name in SETS:
        recorded = Recorded.read(name)
        for origin, (seed,) in itertools.product(ORIGINS, SEEDS[:2]):
            able = [n for n in recorded.curves if origin / (n * PROBLEMS_PER_BATCH) >= LEAST_STEPS]
            true = {n: value for n in able if (value := recorded.best(n, FACTOR * origin)) is not None}
            if len(true) < 3:
                continue
            for n, value in true.items():
                at, reward = recorded.curves[n][seed]
                seen = (at > 0) & (at <= origin * 1.001)
                log = np.log(at[seen]) - np.log(origin)
                found.append(Case(name, n, log, reward[seen], recorded.base(), value))
    return found


def forecast(case: Case, scale: str, window: float, degree: int, growth: float) -> float:
    """Reward of the best checkpoint by one rule."""
    to, back = SCALES[scale]
    near = case.log_compute >= -np.log(window)
    near[-FEWEST:] = True
    line = np.polynomial.Polynomial.fit(case.log_compute[near], to(case.reward[near], case.base), degree)
    end = float(line(0.0))
    value = np.array([end + growth * (float(line(np.log(FACTOR))) - end)])
    return max(float(np.clip(back(value, case.base), 0.0, 1.0)[0]), float(case.reward[near][-3:].mean()))


def main() -> int:
    """Print which rule wins on each set, and how it does on the other."""
    found = cases()
    errors = {
        rule: np.array([case.true - forecast(case, *rule) for case in found])
        for rule in itertools.product(SCALES, WINDOWS, DEGREES, GROWTHS)
    }
    set_Q, n_Q = np.array([case.set for case in found]), np.array([case.n for case in found])

    def bias(error_Q: Array, name: str) -> dict[int, float]:
        return {n: float(error_Q[(set_Q == name) & (n_Q == n)].mean()) for n in sorted({*n_Q[set_Q == name].tolist()})}

    def worst(error_Q: Array, name: str) -> float:
        return max(abs(value) for value in bias(error_Q, name).values())

    def rms(error_Q: Array, name: str) -> float:
        return float(np.sqrt(np.mean(error_Q[set_Q == name] ** 2)))

    lines = ["| chosen by | on | rule | largest bias there | on the other set | rms there | on the other set |"]
    lines.append("|---|---|---|---|---|---|---|")
    for label, score in (("largest bias", worst), ("rms error", rms)):
        for name, other in (SETS, SETS[::-1]):
            rule = min(errors, key=lambda r: score(errors[r], name))
            part = f"last {rule[1]:g}x" if rule[1] < max(WINDOWS) else "all"
            text = f"{rule[0]}, {part}, degree {rule[2]}, change x {rule[3]:g}"
            numbers = [score(errors[rule], where) for score in (worst, rms) for where in (name, other)]
            lines.append(f"| {label} | {name} | {text} | " + " | ".join(f"{number:.3f}" for number in numbers) + " |")
    either = min(max(worst(error, name) for name in SETS) for error in errors.values())
    within = sum(all(worst(error, name) <= 0.03 for name in SETS) for error in errors.values())
    sys.stdout.write("\n".join(lines) + "\n\n")
    sys.stdout.write(f"{len(errors)} rules, {len(found)} cases; within .03 for every n on both sets: {within}; ")
    sys.stdout.write(f"least largest bias on both sets, chosen with the answer: {either:.3f}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
