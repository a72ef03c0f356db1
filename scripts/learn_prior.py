"""Learn from the recorded sweeps how far curves leave the family of the fits, and write it for the model.

    python scripts/learn_prior.py

Every sweep is cut as in `isocompute backtest` and its surface predicts the rest. The departure is the one with the
least mean over families of the log interval score (80 %: width + 10 x miss), relative to that without a departure.
The file also holds what each family says if it is left out. Takes about a minute.
"""

from __future__ import annotations

import json
import sys
import warnings

import numpy as np

import isocompute_sdk as iso
from isocompute_sdk.auditing.pilots import Pilot, pilots
from isocompute_sdk.errors import IsoComputeError
from isocompute_sdk.fitting.arrays import Array
from isocompute_sdk.fitting.measured_runs import MeasuredRuns
from isocompute_sdk.fitting.surface.beyond import LEARNED_FILE
from isocompute_sdk.fitting.surface.data import prepare
from isocompute_sdk.fitting.surface.surface import fit_surface

LEVEL = 0.8
DRAWS = 200
GRID_G = np.arange(0.0, 0.305, 0.01)


def judged(pilot: Pilot) -> Array:
    """Whether the interval of each n held the truth, and its score, at every departure: shape (2, G, n)."""
    runs = MeasuredRuns.of(pilot.runs, pilot.metric, None, stand_in=True).for_surface("log10_rollouts")
    runs.sort(key=lambda run: (run.group_size, run.problems_per_batch or 0, run.run_id))
    bounds = pilot.sweep.provenance.bounds
    surface = fit_surface(prepare(runs, bounds[1] - bounds[0]), bounds, DRAWS, np.random.default_rng(0))
    true_N = np.array([pilot.truth[n] for n in pilot.sizes])
    sizes_N = np.array(pilot.sizes, dtype=float)
    out = np.empty((2, len(GRID_G), len(sizes_N)))
    for i, departure in enumerate(GRID_G):
        _, low_N, high_N = surface.interval("mean", LEVEL, pilot.target, sizes_N, pilot.problems_per_batch, departure)
        missed_N = np.maximum(np.maximum(low_N - true_N, true_N - high_N), 0.0)
        out[:, i] = missed_N == 0.0, high_N - low_N + 10.0 * missed_N
    return out


def main() -> int:
    """Learn and write."""
    found: dict[str, list[Array]] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for sweep in iso.sweeps():
            for pilot in pilots(sweep):
                try:
                    found.setdefault(sweep.provenance.family, []).append(judged(pilot))
                except IsoComputeError as error:
                    sys.stderr.write(f"{sweep.name} at {pilot.cut:.3g}: {error}\n")
    of_family = {family: np.concatenate(parts, axis=2).mean(axis=2) for family, parts in found.items()}

    def best(families: list[str]) -> int:
        return int(np.argmin(np.mean([np.log(of_family[f][1] / of_family[f][1, 0]) for f in families], axis=0)))

    evidence: dict[str, dict[str, float | list[float]]] = {}
    for family, (held_G, score_G) in of_family.items():
        left = best([other for other in of_family if other != family])
        evidence[family] = {
            "departure_without_it": round(float(GRID_G[left]), 2),
            "held_without_and_with": [round(float(held_G[0]), 2), round(float(held_G[left]), 2)],
            "score_without_and_with": [round(float(score_G[0]), 3), round(float(score_G[left]), 3)],
        }
    learned = {"version": 1, "departure": round(float(GRID_G[best(list(of_family))]), 2), "families": evidence}
    LEARNED_FILE.write_text(json.dumps(learned, indent=1) + "\n", encoding="utf-8")
    sys.stdout.write(LEARNED_FILE.read_text(encoding="utf-8"))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
