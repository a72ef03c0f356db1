"""Backtest: what each way of choosing n would have chosen on the past of real sweeps, and what it would have lost.

A pilot is what a sweep showed up to a share of its compute: one seed of every n with at least `MIN_EVALUATIONS`
evaluations by then. Every method chooses among these n for the whole compute. The truth is the best smoothed
checkpoint of each n, averaged over seeds; where every n has another seed, the pilot's own is left out, elsewhere the
rows are marked as the same run: pilot and truth then share the luck of that run.
"""

from __future__ import annotations

import math
import warnings
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from isocompute_sdk import api
from isocompute_sdk.errors import IsoComputeError
from isocompute_sdk.fitting.arrays import Array
from isocompute_sdk.fitting.fits import Fits
from isocompute_sdk.laws.sweeps import RecordedSweep
from isocompute_sdk.planning import Planner
from isocompute_sdk.records import RunSet

CUTS = (1 / 8, 0.3, 0.5)
"""Shares of the compute that a pilot sees."""
MIN_EVALUATIONS = 4
"""Evaluations after step 0 that an n needs by then."""
WINDOW = 1.3
"""Evaluations within this factor of a compute are averaged."""
LEVEL = 0.8
"""Coverage of the intervals that are judged."""
PUBLISHED = "qwen2.5-7b-instruct/guru-math-easy"

Curve = tuple[Array, Array]
"""Rollouts and rewards of one run."""


def best_smoothed(curve: Curve, rollouts: float) -> float:
    """Largest mean of the evaluations within `WINDOW` of each one, up to a compute."""
    usable = (curve[0] > 0) & (curve[0] <= 1.02 * rollouts)
    log, value = np.log(curve[0][usable]), curve[1][usable]
    near = np.abs(log[:, None] - log[None, :]) <= math.log(WINDOW)
    return float(np.max(near @ value / near.sum(axis=1)))


@dataclass(frozen=True, eq=False)
class Pilot:
    """What one seed of a sweep showed up to a share of its compute."""

    sweep: RecordedSweep
    cut: float
    seed: int | None
    target: float
    """Budget in rollouts that n is chosen for."""
    runs: RunSet
    """One run per n, up to `cut` of the target."""
    curves: dict[int, Curve]
    """n -> the evaluations of the metric among `runs`, increasing in n."""
    truth: dict[int, float]
    """n -> reward of the best checkpoint up to the target."""
    same_run: bool
    """Whether the truth is that of the pilot's own runs."""
    problems_per_batch: int

    @property
    def sizes(self) -> list[int]:
        """The n that were run."""
        return list(self.curves)

    @property
    def name(self) -> str:
        """Sweep, seed, target and cut."""
        seed = "" if self.seed is None else f" seed {self.seed}"
        return f"{self.sweep.name}{seed} {self.cut:.3g} of {self.target:,.0f}"

    @property
    def metric(self) -> str:
        """The metric that n is chosen for."""
        return self.sweep.provenance.metric

    @property
    def best_so_far(self) -> dict[int, float]:
        """N -> best smoothed reward of its run in the pilot."""
        return {n: best_smoothed(curve, self.cut * self.target) for n, curve in self.curves.items()}

    @cached_property
    def fits(self) -> Fits:
        """The surface of the pilot, fitted once."""
        return api.fit(self.runs, self.metric)

    def nearest(self, group_size: float) -> int:
        """The n among those run that is nearest in octaves."""
        return min(self.sizes, key=lambda n: abs(math.log2(n / group_size)))


@dataclass(frozen=True, eq=False)
class Answer:
    """What a method says about a pilot."""

    group_size: int
    """The chosen n, one of `Pilot.sizes`."""
    mean_N: Array | None = None
    """Predicted reward of the best checkpoint of every n of the pilot; None if the method predicts none."""
    low_N: Array | None = None
    high_N: Array | None = None


Method = Callable[[Pilot], Answer]
"""Raises `IsoComputeError` where it has no answer."""


def planner(pilot: Pilot) -> Answer:
    """N of the plan among those that were run, with its predictions."""
    odds = pilot.fits.group_size_odds(pilot.target, pilot.sizes, pilot.problems_per_batch)
    return Answer(int(odds.group_size[odds.best()]), *predicted(pilot))


def predicted(pilot: Pilot) -> tuple[Array, Array, Array]:
    """Mean and interval of every n at the target, by the fits of the pilot."""
    found = pilot.fits.predict(pilot.target, pilot.sizes, pilot.problems_per_batch, level=LEVEL)
    return found.mean, found.low, found.high


def best_pilot(pilot: Pilot) -> Answer:
    """N of the run that is best at the cut."""
    return Answer(max(pilot.sizes, key=pilot.best_so_far.__getitem__))


def largest(pilot: Pilot) -> Answer:
    """The largest n."""
    return Answer(pilot.sizes[-1])


def paper(pilot: Pilot) -> Answer:
    """N of the paper's workflow."""
    plan = Planner(api.fit(pilot.runs, pilot.metric, method="paper", draws=0)).allocate(
        pilot.target, problems_per_batch=pilot.problems_per_batch, spend="all"
    )
    return Answer(pilot.nearest(plan.group_size))


def published_law(pilot: Pilot) -> Answer:
    """N of the law that the paper prints for its main model, whatever the runs say."""
    return Answer(pilot.nearest(float(api.published(PUBLISHED).law().predict(pilot.target))))


METHODS: Mapping[str, Method] = {
    "planner": planner,
    "best pilot": best_pilot,
    "largest n": largest,
    "paper": paper,
    "published law": published_law,
}


def pilots(
    sweep: RecordedSweep, cuts: Sequence[float] = CUTS, seeds: int = 1, *, leave_seed_out: bool = True
) -> Iterator[Pilot]:
    """The pilots of one sweep: every target, cut and of the first `seeds` seeds; those with fewer than two n are left out.

    Args:
        sweep: runs with provenance.
        cuts: shares of the target that a pilot sees.
        seeds: pilots per cut.
        leave_seed_out: leave the pilot's seed out of the truth where every n has another.
    """
    about = sweep.provenance
    series = sweep.runs.series(about.metric)
    problems = [one.problems_per_batch or 1 for one in series]
    bp = max(sorted(set(problems)), key=problems.count)
    runs_of: dict[int, dict[int | None, tuple[str, Curve]]] = {}
    for one in sorted(series, key=lambda one: (one.group_size, one.seed or 0, one.run_id)):
        if (one.problems_per_batch or 1) == bp:
            found = runs_of.setdefault(one.group_size, {})
            found.setdefault(one.seed, (one.run_id, (one.rollouts_T, one.value_T)))
    every_seed = {seed for found in runs_of.values() for seed in found}
    shared = {seed: sum(seed in found for found in runs_of.values()) for seed in every_seed}
    whole = [seed for seed in sorted(every_seed, key=lambda seed: seed or 0) if shared[seed] == max(shared.values())]
    longest = max(float(curve[0][-1]) for found in runs_of.values() for _, curve in found.values())
    for target in about.targets or (longest,):
        for cut in cuts:
            for seed in whole[:seeds]:
                shown: dict[int, tuple[str, Curve]] = {}
                for n, found in runs_of.items():
                    if seed in found:
                        run, curve = found[seed]
                        part = _seen(curve, cut * target, about.evaluation_sd, f"{sweep.name} {run} {cut:.4f}")
                        if np.sum(part[0] > 0) >= MIN_EVALUATIONS:
                            shown[n] = run, part
                if len(shown) < 2:
                    continue
                apart = leave_seed_out and all(len(runs_of[n]) > 1 for n in shown)
                truth = {
                    n: float(
                        np.mean(
                            [
                                best_smoothed(curve, target)
                                for other, (_, curve) in runs_of[n].items()
                                if not (apart and other == seed)
                            ]
                        )
                    )
                    for n in shown
                }
                yield Pilot(
                    sweep,
                    cut,
                    seed,
                    target,
                    _as_runs(sweep, shown, cut * target),
                    {n: c for n, (_, c) in shown.items()},
                    truth,
                    not (leave_seed_out and apart),
                    bp,
                )


def _seen(curve: Curve, rollouts: float, evaluation_sd: float | None, name: str) -> Curve:
    """A curve up to a compute; drawn ones get the noise of an evaluation."""
    at, value = (array[curve[0] <= rollouts * 1.0001] for array in curve)
    if evaluation_sd is not None:
        rng = np.random.default_rng(zlib.crc32(name.encode()))
        value = np.clip(value + rng.normal(0.0, evaluation_sd, len(value)), 0.0, 1.0)
    return at, value


def _as_runs(sweep: RecordedSweep, shown: Mapping[int, tuple[str, Curve]], rollouts: float) -> RunSet:
    import polars as pl

    runs, about = sweep.runs, sweep.provenance
    part = runs.filter(
        (pl.col("rollouts") <= rollouts * 1.0001) & pl.col("run_id").is_in([r for r, _ in shown.values()])
    )
    if about.evaluation_sd is None:
        return part
    noisy = {run: value for run, (_, value) in shown.values()}
    frame = part.to_polars()
    mine = frame["metric"] == about.metric
    values = frame["value"].to_numpy().copy()
    for run, value in noisy.items():
        values[(mine & (frame["run_id"] == run)).to_numpy()] = value
    return RunSet.from_frame(frame.with_columns(value=pl.Series(values)))


@dataclass(frozen=True)
class Choice:
    """What one method chose for one pilot."""

    sweep: str
    family: str
    group: str
    pilot: str
    cut: float
    seed: int | None
    same_run: bool
    method: str
    group_size: int | None
    """None where the method has no answer."""
    best: int
    """The best n of the pilot in truth."""
    regret: float | None
    """Reward lost against it."""


@dataclass(frozen=True)
class Prediction:
    """What one method predicted for one n of one pilot."""

    sweep: str
    family: str
    group: str
    pilot: str
    cut: float
    seed: int | None
    same_run: bool
    method: str
    group_size: int
    true: float
    predicted: float
    low: float
    high: float

    @property
    def held(self) -> bool:
        """Whether the interval holds the truth."""
        return self.low <= self.true <= self.high

    @property
    def score(self) -> float:
        """Interval score: width + 10 x miss."""
        return self.high - self.low + 2 / (1 - LEVEL) * max(self.low - self.true, self.true - self.high, 0.0)


@dataclass(frozen=True, eq=False)
class Backtest:
    """Rows of a backtest."""

    choices: tuple[Choice, ...]
    predictions: tuple[Prediction, ...]


def judge(every: Iterable[Pilot], methods: Mapping[str, Method] = METHODS) -> Backtest:
    """Ask every method about every pilot."""
    choices: list[Choice] = []
    predictions: list[Prediction] = []
    for pilot in every:
        about = pilot.sweep.provenance
        place = (pilot.sweep.name, about.family, about.group, pilot.name, pilot.cut, pilot.seed, pilot.same_run)
        best = max(pilot.truth, key=pilot.truth.__getitem__)
        for name, method in methods.items():
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    answer = method(pilot)
            except IsoComputeError:
                choices.append(Choice(*place, name, None, best, None))
                continue
            lost = pilot.truth[best] - pilot.truth[answer.group_size]
            choices.append(Choice(*place, name, answer.group_size, best, lost))
            if answer.mean_N is not None and answer.low_N is not None and answer.high_N is not None:
                predictions += [
                    Prediction(*place, name, n, true, float(mean), float(low), float(high))
                    for (n, true), mean, low, high in zip(
                        pilot.truth.items(), answer.mean_N, answer.low_N, answer.high_N, strict=True
                    )
                ]
    return Backtest(tuple(choices), tuple(predictions))
