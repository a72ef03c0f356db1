"""How well any simple rule forecasts recorded runs at 8 times the pilot, or what digitised curves reach in the end.

    python benchmarks/decisions/simple_rules.py recorded
    python benchmarks/decisions/simple_rules.py panels --seeds 20

Each rule continues one curve by itself: a line or a parabola in ln C through the last part of the data, on one of five
scales of reward, its change beyond the data multiplied by a factor. On recorded runs (cases of `recorded.py`) the one
whose largest bias over n, or root mean square error, is least on one set is judged on the other. On panels (decisions
of `panels.py`) a rule forecasts every n, takes the best, and is judged there; the one with the least mean absolute
error on three panels is judged on the fourth.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from panels import SEED, SHARES, Panel, panels
from recorded import LEAST_STEPS, ORIGINS, PROBLEMS_PER_BATCH, SEEDS, SETS, Array, Recorded, best_smoothed

FACTOR = 8.0
WINDOWS = (3.0, 8.0, 30.0, 1e9)
"""Part of the pilot that a rule looks at: evaluations within this factor of its end."""
DEGREES = (1, 2)
GROWTHS = (0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5)
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
    """Less that of the end of the data."""
    reward: Array
    base: float
    true: float
    reached: float
    """Best reward of the data."""
    ahead: float
    """Log compute of the target, on the same scale."""


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
                reached = float(reward[seen][-3:].mean())
                found.append(Case(name, n, log, reward[seen], recorded.base(), value, reached, float(np.log(FACTOR))))
    return found


def decisions(panel: Panel, share: float, seed: int) -> list[Case]:
    """Every n of one decision of `panels`."""
    runs = panel.runs(share, np.random.default_rng([SEED, seed, round(100 * share), len(panel.name)]))
    origin, found = share * panel.largest, list[Case]()
    first = min(float(at[0]) for at, _ in panel.curves.values())
    base = float(np.mean([reward[0] for at, reward in panel.curves.values() if at[0] <= 2.0 * first]))
    for one in runs.series("avg@4"):
        at, reward = one.rollouts_T, one.value_T
        true = panel.best(one.group_size, panel.largest)
        reached = best_smoothed(at, reward, origin)
        log = np.log(np.maximum(at, 1.0) / origin)
        found.append(Case(panel.name, one.group_size, log, reward, base, true, reached, -float(np.log(share))))
    return found


def forecast(case: Case, scale: str, window: float, degree: int, growth: float) -> float:
    """Reward of the best checkpoint by one rule."""
    to, back = SCALES[scale]
    near = case.log_compute >= -np.log(window)
    near[-FEWEST:] = True
    line = np.polynomial.Polynomial.fit(case.log_compute[near], to(case.reward[near], case.base), degree)
    end = float(line(0.0))
    value = np.array([end + growth * (float(line(case.ahead)) - end)])
    return max(float(np.clip(back(value, case.base), 0.0, 1.0)[0]), case.reached)


def on_recorded() -> None:
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
            numbers = [score(errors[rule], where) for score in (worst, rms) for where in (name, other)]
            lines.append(
                f"| {label} | {name} | {_named(rule)} | " + " | ".join(f"{number:.3f}" for number in numbers) + " |"
            )
    either = min(max(worst(error, name) for name in SETS) for error in errors.values())
    within = sum(all(worst(error, name) <= 0.03 for name in SETS) for error in errors.values())
    sys.stdout.write("\n".join(lines) + "\n\n")
    sys.stdout.write(f"{len(errors)} rules, {len(found)} cases; within .03 for every n on both sets: {within}; ")
    sys.stdout.write(f"least largest bias on both sets, chosen with the answer: {either:.3f}\n")


def on_panels(seeds: int) -> None:
    """Print which rule wins on three panels, and how it does on the fourth."""
    every = panels()
    groups = [
        (panel.name, share, decisions(panel, share, seed))
        for panel, share, seed in itertools.product(every, SHARES, range(seeds))
    ]
    name_G, share_G = np.array([name for name, _, _ in groups]), np.array([share for _, share, _ in groups])
    rules = list(itertools.product(SCALES, WINDOWS, DEGREES, GROWTHS))
    missed_KG = np.empty((len(rules), len(groups)))
    for k, rule in enumerate(rules):
        for g, (_, _, found) in enumerate(groups):
            said = [forecast(case, *rule) for case in found]
            best = int(np.argmax(said))
            missed_KG[k, g] = abs(said[best] - found[best].true)
    lines = [
        "| left out | rule chosen on the other three | error there | left out | by what was shown |",
        "|---|---|---|---|---|",
    ]
    left: list[float] = []
    for panel in every:
        out_G = name_G == panel.name
        by_panel_KP = np.stack([missed_KG[:, name_G == p.name].mean(axis=1) for p in every if p is not panel], axis=1)
        k = int(np.argmin(by_panel_KP.mean(axis=1)))
        error = float(missed_KG[k, out_G].mean())
        parts = " / ".join(f"{missed_KG[k, out_G & (share_G == share)].mean():.4f}" for share in SHARES)
        lines.append(f"| {panel.name} | {_named(rules[k])} | {by_panel_KP[k].mean():.4f} | {error:.4f} | {parts} |")
        left.append(error)
    best = int(np.argmin(missed_KG.mean(axis=1)))
    parts = " / ".join(f"{missed_KG[best, share_G == share].mean():.4f}" for share in SHARES)
    lines.append(f"| mean | | | {np.mean(left):.4f} | |")
    lines.append(f"| none, with the answer | {_named(rules[best])} | {missed_KG[best].mean():.4f} | | {parts} |")
    sys.stdout.write("\n".join(lines) + f"\n\n{len(rules)} rules, {len(groups)} decisions\n")


def _named(rule: tuple[str, float, int, float]) -> str:
    part = f"last {rule[1]:g}x" if rule[1] < max(WINDOWS) else "all"
    return f"{rule[0]}, {part}, degree {rule[2]}, change x {rule[3]:g}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the comparison from the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("curves", choices=("recorded", "panels"))
    parser.add_argument("--seeds", type=int, default=20, help="noise seeds of the panels")
    options = parser.parse_args(arguments)
    if options.curves == "recorded":
        on_recorded()
    else:
        on_panels(options.seeds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
