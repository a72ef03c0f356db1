"""Pilots cut from real sweeps: what one seed showed up to a share of the compute, and what became of every n.

The truth is the best smoothed checkpoint of each n up to the whole compute, averaged over seeds; an n whose runs end
earlier keeps its best checkpoint. Where every n has another seed the pilot's own is left out. Elsewhere pilot and truth
are the same run and share its luck.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product

import numpy as np

from isocompute_sdk import api
from isocompute_sdk.auditing.audit_runs import grouped
from isocompute_sdk.auditing.grouping import choose_measure
from isocompute_sdk.errors import RecordError
from isocompute_sdk.fitting.arrays import Array
from isocompute_sdk.fitting.fits import Fits
from isocompute_sdk.fitting.surface.model import LEARNED
from isocompute_sdk.laws.sweeps import Provenance, RecordedSweep
from isocompute_sdk.records import RunSet

CUTS = (1 / 8, 0.3, 0.5)
"""Shares of the compute that a pilot sees."""
MIN_EVALUATIONS = 4
"""Evaluations after step 0 that an n needs in a pilot."""
WINDOW = 1.3
"""Evaluations within this factor of a compute are averaged."""

Curve = tuple[Array, Array]
"""Rollouts and rewards of one run, by increasing rollouts."""


@dataclass(frozen=True, eq=False)
class Pilot:
    """What one seed of a sweep showed up to a share of the compute."""

    sweep: RecordedSweep
    metric: str
    cut: float
    """Share of the target that the runs reach."""
    seed: int | None
    target: float
    """Budget in rollouts that n is chosen for."""
    runs: RunSet
    curves: dict[int, Curve]
    """n -> evaluations of the metric in `runs`, one run each, by increasing n."""
    truth: dict[int, float]
    """n -> reward of its best checkpoint up to the target, of every n that may be chosen."""
    same_run: bool
    """Whether the truth is that of the pilot's own runs."""
    problems_per_batch: int
    best: float
    """Reward that regret is measured against: that of the best n."""
    scale: float = 1.0
    """Reward that counts as a regret of 1."""

    @property
    def sizes(self) -> list[int]:
        """The n to choose among, in real sweeps those that were run."""
        return list(self.truth)

    @property
    def name(self) -> str:
        """Sweep, metric, seed, cut and target."""
        seed = "" if self.seed is None else f", seed {self.seed}"
        return f"{self.sweep.name}, {self.metric}{seed}, {self.cut:.3g} of {self.target:,.0f}"

    @cached_property
    def fits(self) -> Fits:
        """The surface, fitted once, with a prior that has not learned from the family of the sweep."""
        about = self.sweep.provenance
        without = about.family if about.family in LEARNED["families"] else None
        return api.fit(self.runs, self.metric, bounds=about.bounds, without=without)

    @cached_property
    def best_so_far(self) -> dict[int, float]:
        """N -> best smoothed reward of the pilot."""
        return {n: best_smoothed(curve, self.cut * self.target) for n, curve in self.curves.items()}

    def nearest(self, group_size: float) -> int:
        """The n of `sizes` that is nearest in octaves."""
        return min(self.sizes, key=lambda n: abs(math.log2(n / group_size)))


def best_smoothed(curve: Curve, rollouts: float) -> float:
    """Largest mean of the evaluations within `WINDOW` of each one, up to a compute."""
    usable = (curve[0] > 0) & (curve[0] <= 1.02 * rollouts)
    if not usable.any():
        return -math.inf
    log, value = np.log(curve[0][usable]), curve[1][usable]
    near = np.abs(log[:, None] - log[None, :]) <= math.log(WINDOW)
    return float(np.max(near @ value / near.sum(axis=1)))


def pilots(
    sweep: RecordedSweep,
    *,
    cuts: Sequence[float] = CUTS,
    seeds: int = 1,
    min_evaluations: int = MIN_EVALUATIONS,
    leave_seed_out: bool = True,
) -> Iterator[Pilot]:
    """The pilots of one sweep: for every metric, target and cut those of its first seeds.

    Args:
        sweep: runs with provenance, of which the most usual B_p is used.
        cuts: shares of the target that a pilot sees.
        seeds: pilots per cut, of the seeds that most n were run with; of drawn curves, draws of the noise.
        min_evaluations: evaluations after step 0 that an n needs in a pilot; pilots of fewer than two n are left out.
        leave_seed_out: leave the pilot's seed out of the truth where every n has another.
    """
    about = sweep.provenance
    for metric in about.metrics:
        curves, bp = _curves(sweep.runs, metric)
        known = sorted({seed for found in curves.values() for seed in found}, key=lambda seed: seed or 0)
        shared = {seed: sum(seed in found for found in curves.values()) for seed in known}
        whole = [seed for seed in known if shared[seed] == max(shared.values())]
        # Of drawn curves, which have no seeds, each draw of the noise is one.
        drawn = [(whole[0], draw) for draw in range(seeds)] if about.evaluation_sd else [(s, 0) for s in whole[:seeds]]
        longest = max(curve[0][-1] for found in curves.values() for _, curve in found.values())
        for target, cut, (seed, draw) in product(about.targets or (float(longest),), cuts, drawn):
            shown: dict[int, tuple[str, Curve]] = {}
            for n, found in curves.items():
                if seed in found:
                    run, curve = found[seed]
                    noise = f"{sweep.name} {run} {cut:.4f}{f' {draw}' if draw else ''}"
                    part = seen(curve, cut * target, about.evaluation_sd, noise)
                    if np.sum(part[0] > 0) >= min_evaluations:
                        shown[n] = run, part
            if len(shown) < 2:
                continue
            apart = leave_seed_out and all(len(curves[n]) > 1 for n in shown)
            truth: dict[int, float] = {}
            for n in shown:
                judging = [curve for other, (_, curve) in curves[n].items() if other != seed or not apart]
                truth[n] = float(np.mean([best_smoothed(curve, target) for curve in judging]))
            yield Pilot(
                sweep=sweep,
                metric=metric,
                cut=cut,
                seed=draw if about.evaluation_sd else seed,
                target=target,
                runs=as_runs(sweep, metric, shown, cut * target),
                curves={n: curve for n, (_, curve) in shown.items()},
                truth=truth,
                same_run=not apart,
                problems_per_batch=bp,
                best=max(truth.values()),
            )


def _curves(runs: RunSet, metric: str) -> tuple[dict[int, dict[int | None, tuple[str, Curve]]], int]:
    """N -> seed -> name and curve, of the most usual B_p, and that B_p."""
    series = runs.series(metric)
    problems = [one.problems_per_batch or 1 for one in series]
    bp = max(sorted(set(problems)), key=problems.count)
    found: dict[int, dict[int | None, tuple[str, Curve]]] = {}
    for one in sorted(series, key=lambda one: (one.group_size, one.seed or 0, one.run_id)):
        if (one.problems_per_batch or 1) == bp:
            found.setdefault(one.group_size, {}).setdefault(one.seed, (one.run_id, (one.rollouts_T, one.value_T)))
    return found, bp


def seen(curve: Curve, rollouts: float, evaluation_sd: float | None, name: str) -> Curve:
    """A curve up to a compute; a drawn one gets the noise of its evaluations."""
    at, value = (array[curve[0] <= rollouts * 1.0001] for array in curve)
    if evaluation_sd is not None:
        rng = np.random.default_rng(zlib.crc32(name.encode()))
        value = np.clip(value + rng.normal(0.0, evaluation_sd, len(value)), 0.0, 1.0)
    return at, value


def as_runs(sweep: RecordedSweep, metric: str, shown: Mapping[int, tuple[str, Curve]], rollouts: float) -> RunSet:
    """The shown runs of a sweep up to a compute, n -> name and curve; drawn ones with the noise of `shown`."""
    import polars as pl

    mine = pl.col("run_id").is_in([run for run, _ in shown.values()])
    runs = sweep.runs.filter(mine & (pl.col("rollouts") <= rollouts * 1.0001))
    if sweep.provenance.evaluation_sd is None:
        return runs
    frame = runs.to_polars()
    value = frame["value"].to_numpy().copy()
    for run, (_, noisy) in shown.values():
        value[((frame["metric"] == metric) & (frame["run_id"] == run)).to_numpy()] = noisy
    return RunSet.from_frame(frame.with_columns(value=value))


def own_sweeps(runs: RunSet, metric: str | None = None, eval_set: str | None = None) -> tuple[RecordedSweep, ...]:
    """Runs as sweeps: those that may be compared, with at least two n.

    Args:
        runs: runs of any number of models and studies.
        metric: metric that n is chosen for; None: avg@4, else the one that most runs have.
        eval_set: evaluation set; None: `validation`, else the one that most runs have.

    Raises:
        RecordError: the metric or the set is not there, or no two n may be compared.
    """
    import polars as pl

    measure = choose_measure(runs, metric, eval_set)
    series = {one.run_id: one for one in runs.series(measure.metric, measure.eval_set)}
    groups = grouped([run for run in runs.runs() if run.run_id in series], series, measure)
    elsewhere = (pl.col("metric") == measure.metric) & (pl.col("eval_set") != measure.eval_set)
    found: list[RecordedSweep] = []
    for i, group in enumerate(groups):
        if len({run.group_size for run in group.runs}) > 1:
            name, names = f"group {i + 1}", [run.run_id for run in group.runs]
            stated = {
                key: str(group.context.get(key) or "not recorded") for key in ("model", "train_data", "algorithm")
            }
            about = Provenance(
                title=name,
                source="runs given",
                licence="not shipped",
                model=stated["model"],
                data=stated["train_data"],
                algorithm=stated["algorithm"],
                differs=", ".join(group.pooled) or "nothing known",
                read="as logged",
                family=name,
                group=name,
                metrics=(measure.metric,),
                bounds=measure.bounds,
            )
            found.append(RecordedSweep(name, runs.filter(~elsewhere & pl.col("run_id").is_in(names)), about))
    if not found:
        sizes = sorted({one.group_size for one in series.values()})
        raise RecordError(
            f"no two group sizes that may be compared: {len(series)} run(s) with {measure.metric}, n = {sizes}; "
            "accepted: runs of at least two n that agree in model, data and recipe",
            "isocompute audit RUNS says which runs may be compared, and why.",
        )
    return tuple(found)
