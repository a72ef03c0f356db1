"""Learn what the surface believes of reward curves from the recorded sweeps, and write it for the model.

    python scripts/learn_prior.py

1. How plateaus and midpoints change with n, by the evidence of whole sweeps: expectation and maximisation, with every
   member of the ensemble weighed by its own evidence (Laplace) and every family counting the same.
2. Where a pilot's plateau and midpoint lie relative to what it shows: pilots as in `isocompute backtest`, against the
   fit of their whole sweep.
3. How far real curves leave the model's beyond the data: the departure with the least log interval score (80 %:
   width + 10 x miss), relative to that without one, each family judged with a prior that has not learned from it.

The file holds each family's numbers without it, for judging that family. Takes about six minutes.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import minimize

import isocompute_sdk as iso
from isocompute_sdk.auditing.backtest import Pilot, pilots
from isocompute_sdk.errors import IsoComputeError
from isocompute_sdk.fitting.arrays import Array
from isocompute_sdk.fitting.measured_runs import MeasuredRuns
from isocompute_sdk.fitting.surface.data import PreparedRun, prepare
from isocompute_sdk.fitting.surface.posterior import Data, Ensemble, Member, fit_surface
from isocompute_sdk.fitting.surface.prior import Prior
from isocompute_sdk.fitting.surface.surface import LEARNED_FILE
from isocompute_sdk.laws.sweeps import RecordedSweep
from isocompute_sdk.records import RunSet

Numbers = dict[str, Any]

START: Numbers = {
    "share_level_sd": 1.0,
    "kinds": [[0.09, 0.25], [0.0, 0.08]],
    "share_bend_sd": 0.12,
    "midpoint_level_sd": 1.0,
    "midpoint_step": [0.35, 0.4],
    "midpoint_bend_sd": 0.12,
}
"""Where the search begins: read off the paper's figures."""
WIDTHS: Array = np.array([0.45, 1.5, 1.5, 0.6, 1.5, 1.5, 1.5])
"""Standard deviations of a weak prior around the start, of means in their unit and of standard deviations in ln: seven
families do not determine all of them."""
ROUNDS = 6
LEVEL, DRAWS = 0.8, 200
DEPARTURES = [0.01 * i for i in range(31)]


@dataclass(frozen=True)
class Known:
    """A whole sweep, its family, its pilots and the metric of all."""

    sweep: RecordedSweep
    pilots: tuple[Pilot, ...]

    @property
    def family(self) -> str:
        """Model or task, whose sweeps are learned from together."""
        return self.sweep.provenance.family

    def prepared(self, runs: RunSet) -> tuple[PreparedRun, ...]:
        """Runs of the sweep, or of one of its pilots, as the surface takes them."""
        found = MeasuredRuns.of(runs, self.pilots[0].metric, None, stand_in=True).for_surface("log10_rollouts")
        found.sort(key=lambda run: (run.group_size, run.problems_per_batch or 0, run.run_id))
        low, high = self.sweep.provenance.bounds
        return prepare(found, high - low)

    def data(self, runs: RunSet) -> Data:
        """The same, padded."""
        return Data.of(self.prepared(runs), self.sweep.provenance.bounds)


@dataclass(frozen=True)
class Fitted:
    """What the fit of a whole sweep says of its surface."""

    known: Known
    data: Data
    members: tuple[Member, ...]
    weight_M: Array
    mean_MP: Array
    covariance_MPP: Array

    @classmethod
    def of(cls, known: Known, data: Data, prior: Prior) -> Fitted:
        """Fit the whole sweep."""
        found, size = Ensemble.of(data, prior), data.layout.size
        # Without the runs' effects.
        covariance_MPP = np.linalg.inv(found.problem.precision(found.parameters_MQ))[:, :size, :size]
        return cls(known, data, found.members, found.weight_M, found.parameters_MQ[:, :size], covariance_MPP)

    def log_prior(self, prior: Prior) -> float:
        """Expected log density of the surface under a prior."""
        total, layout, end = 0.0, self.data.layout, float(self.data.log_compute_RJ.max())
        for kind in range(len(prior.kinds)):
            rows, wanted = prior.rows(layout, end, self.data.base, kind)
            precision = rows.T @ rows
            least = float(np.sum((rows @ np.linalg.lstsq(rows, wanted)[0] - wanted) ** 2))
            scale = float(np.linalg.slogdet(precision)[1]) / 2 + least / 2
            for i, member in enumerate(self.members):
                if member.kind == kind:
                    off = rows @ self.mean_MP[i] - wanted
                    squares = off @ off + np.sum(precision * self.covariance_MPP[i])
                    total += float(self.weight_M[i]) * (scale - 0.5 * float(squares))
        return total

    def level(self, first: int, weight_P: Array) -> tuple[float, float]:
        """Mean and variance over the members of a weighed sum of parameters from the place `first` on."""
        part = slice(first, first + len(weight_P))
        mean_M = self.mean_MP[:, part] @ weight_P
        spread_M = np.einsum("p,mpq,q->m", weight_P, self.covariance_MPP[:, part, part], weight_P)
        mean = float(self.weight_M @ mean_M)
        return mean, float(self.weight_M @ (spread_M + (mean_M - mean) ** 2))


def packed(numbers: Numbers) -> Array:
    """What whole sweeps are asked for, standard deviations as logarithms."""
    (growth, spread), (_, small) = numbers["kinds"]
    step, bends = numbers["midpoint_step"], [numbers["share_bend_sd"], numbers["midpoint_bend_sd"]]
    return np.array([growth, np.log(spread), np.log(small), step[0], np.log(step[1]), *np.log(bends)])


def unpacked(values: Array, numbers: Numbers) -> Numbers:
    """The numbers with these in place."""
    growth, step = values[[0, 3]].tolist()
    spread, small, step_sd, share_bend_sd, midpoint_bend_sd = np.exp(values[[1, 2, 4, 5, 6]]).tolist()
    return {
        **numbers,
        "kinds": [[growth, spread], [0.0, small]],
        "share_bend_sd": share_bend_sd,
        "midpoint_step": [step, step_sd],
        "midpoint_bend_sd": midpoint_bend_sd,
    }


def per_family(families: Sequence[str]) -> Array:
    """Weights under which every family counts the same, with sum 1."""
    weight = np.array([1.0 / families.count(family) for family in families])
    return weight / weight.sum()


def by_evidence(sweeps: Sequence[tuple[Known, Data]]) -> Numbers:
    """Step 1."""
    numbers, begin = START, packed(START)
    families = [known.family for known, _ in sweeps]
    weight = per_family(families) * len(set(families))
    for _ in range(ROUNDS):
        fitted = [Fitted.of(known, data, Prior.of(numbers)) for known, data in sweeps]

        def cost(values: Array, fitted: Sequence[Fitted] = fitted, numbers: Numbers = numbers) -> float:
            prior = Prior.of(unpacked(values, numbers))
            said = sum(w * one.log_prior(prior) for w, one in zip(weight, fitted, strict=True))
            return 0.5 * float(np.sum(((values - begin) / WIDTHS) ** 2)) - said

        found = minimize(cost, packed(numbers), method="L-BFGS-B", options={"maxiter": 25})
        numbers = unpacked(np.asarray(found.x, dtype=float), numbers)
    return numbers


def by_pilots(sweeps: Sequence[tuple[Known, Data]], numbers: Numbers) -> Numbers:
    """Step 2."""
    rows: list[tuple[float, ...]] = []
    families: list[str] = []
    for known, data in sweeps:
        whole = Fitted.of(known, data, Prior.of(numbers))
        for pilot in known.pilots:
            shown = known.data(pilot.runs)
            middle = shown.layout.knots_K[len(shown.layout.knots_K) // 2]
            hats_K = data.layout.hats(np.array([middle]))[0]
            share = whole.level(1, hats_K)
            midpoint = whole.level(1 + len(hats_K), hats_K)
            octaves = np.log2(shown.layout.problems_reference / data.layout.problems_reference)
            later = octaves * whole.level(5 + 2 * len(hats_K) - 1, np.ones(1))[0]
            rows.append((float(shown.log_compute_RJ.max()) - midpoint[0] - later, midpoint[1], *share))
            families.append(known.family)
    before_E, midpoint_variance_E, share_E, share_variance_E = np.array(rows).T
    weight_E = per_family(families)
    return {
        **numbers,
        "share_level_sd": float(np.sqrt(weight_E @ (share_E**2 + share_variance_E))),
        "midpoint_level_sd": float(np.sqrt(weight_E @ (before_E**2 + midpoint_variance_E))),
    }


def rounded(value: Any) -> Any:
    """Three significant digits."""
    return [rounded(one) for one in value] if isinstance(value, list) else float(f"{value:.3g}")


def learned(sweeps: Sequence[tuple[Known, Data]]) -> Numbers:
    """Steps 1 and 2."""
    numbers = by_pilots(sweeps, by_evidence(sweeps))
    return {name: rounded(value) for name, value in numbers.items()}


def judged(known: Known, prior: Prior) -> Array:
    """Whether intervals hold and their score at every departure, over the pilots of a sweep: shape (2, G, n)."""
    parts: list[Array] = []
    for pilot in known.pilots:
        bounds = pilot.sweep.provenance.bounds
        surface = fit_surface(known.prepared(pilot.runs), bounds, DRAWS, np.random.default_rng(0), prior)
        true_N, sizes_N = np.array(list(pilot.truth.values())), np.array(pilot.sizes, dtype=float)
        out = np.empty((2, len(DEPARTURES), len(sizes_N)))
        for i, departure in enumerate(DEPARTURES):
            place = pilot.target, sizes_N, pilot.problems_per_batch
            _, low_N, high_N = surface.interval("mean", LEVEL, *place, departure)
            missed_N = np.maximum(np.maximum(low_N - true_N, true_N - high_N), 0.0)
            out[:, i] = missed_N == 0.0, high_N - low_N + 10.0 * missed_N
        parts.append(out)
    return np.concatenate(parts, axis=2)


def departures(known: Sequence[Known], priors: Mapping[str, Prior]) -> tuple[float, Numbers]:
    """Step 3: the departure, and what each family says of it."""
    families = list(priors)
    of_family = {f: np.concatenate([judged(k, priors[f]) for k in known if k.family == f], axis=2) for f in families}
    of_family = {family: found.mean(axis=2) for family, found in of_family.items()}

    def best(chosen: Sequence[str]) -> int:
        return int(np.argmin(np.mean([np.log(of_family[f][1] / of_family[f][1, 0]) for f in chosen], axis=0)))

    said: Numbers = {}
    for family, (held_G, score_G) in of_family.items():
        left = best([other for other in families if other != family])
        said[family] = {
            "departure_without": rounded(float(DEPARTURES[left])),
            "held_without_and_with_departure": rounded([float(held_G[0]), float(held_G[left])]),
            "score_without_and_with_departure": rounded([float(score_G[0]), float(score_G[left])]),
        }
    return float(DEPARTURES[best(families)]), said


def main() -> int:
    """Learn and write."""
    known: list[Known] = []
    for sweep in iso.sweeps():
        if found := tuple(pilots(sweep)):
            known.append(Known(sweep, found))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sweeps: list[tuple[Known, Data]] = []
        for one in known:
            try:
                sweeps.append((one, one.data(one.sweep.runs)))
            except IsoComputeError as error:
                sys.stderr.write(f"{one.sweep.name}: {error}\n")
        families = sorted({one.family for one in known})
        numbers: dict[str, Numbers] = {}
        for family in families:
            sys.stderr.write(f"without {family}\n")
            numbers[family] = learned([item for item in sweeps if item[0].family != family])
        sys.stderr.write("all\n")
        prior = learned(sweeps)
        departure, said = departures(known, {family: Prior.of(found) for family, found in numbers.items()})
    document = {
        "version": 2,
        "prior": prior,
        "departure": rounded(departure),
        "families": {family: {"prior_without": numbers[family], **said[family]} for family in families},
    }
    LEARNED_FILE.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    sys.stdout.write(json.dumps({"prior": prior, "departure": document["departure"]}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
