"""Forecasts of one run from its first part, beside simple ones, on curves that its prior was not made from.

    python benchmarks/decisions/forecast.py

Sets: the digitised figures of the IsoCompute Playbook (arXiv 2603.12151; smooth, so evaluation noise is added), the
recorded runs of the built-in task, and one set per family of the simulator, whose truth is known. Each curve is shown
up to a half and a quarter of its compute and forecast at 2 and 4 times what was shown. The prior of a forecast is
learned from all other sets (`learn`); `--learn` prints the one that ships, learned from all of them.

Truth: the drawn curve, the simulator's mean reward, or for recorded runs a line in log compute through the evaluations
within a factor of 1.6. The target of a recorded run lies a factor of 1.25 before its end, so that both sides count.

Beside it: the mean of the last three evaluations, a line in log compute through the second half of the evaluations,
and a sigmoid by `scipy.optimize.curve_fit` as ScaleRL fits it (arXiv 2510.13786).
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
from isocompute_sdk.fitting.one_run.curve_posterior import (
    DEFAULT_PRIOR,
    CurvePrior,
    OneRun,
    Posterior,
    announced,
    posterior,
)
from panels import EVALUATIONS, PROBLEMS_PER_BATCH, panels
from recorded import DATA, Recorded

import isocompute_sdk as iso
from isocompute_sdk.fitting.surface.data import SurfaceRun, prepare
from isocompute_simulator.design import draw_design
from isocompute_simulator.observation.noise import draw_noise, evaluation_noise, run_effects
from isocompute_simulator.truths.scenario_families import FAMILIES, draw_truth

SEED = 61_007
FACTORS = (2.0, 4.0)
SHARES = (0.5, 0.25)
PROBLEM_RUNS = 4
"""Runs of the simulated set with best@4, for each of the other families: its lead is small beside the noise."""
FEWEST = 8
"""Evaluations after step 0 that a shown part needs."""
SIDE = 1.6
RECORDED_END = 1.25
DRAWS = 400
BOUNDS = (0.0, 1.0)
PACES = (0.15, 0.25, 0.35, 0.45, 0.55, 0.7, 0.85, 1.0)
STRAIGHT = (0.0, 0.25, 0.5, 0.75)
MOST_LEAD = 2.0
GAINS = (0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 1.0, 1.05, 1.1)
"""Shares of the foreseen gain per doubling, and gaps to the training reward, that are tried."""
GAPS = (0.08, 0.1, 0.12, 0.15, 0.2, 0.3)
COVERAGE = 0.81
"""Share of 80 % intervals that shall hold: the middle of what is accepted."""
SHRINK = 2.0
"""Sets that the wide prior counts for in the learned moments."""
WIDE = replace(
    DEFAULT_PRIOR, share=(0.0, 1.6), midpoint=(0.0, 1.8), slope=(0.0, 0.35), falls=0.2, pace=(0.0, 0.0), straight=0.0
)

Array = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Curve:
    """One run with its truth."""

    set: str
    kind: str
    """`panel`, `recorded` or `simulated`."""
    run: SurfaceRun
    truth: Callable[[float], float]
    end: float
    """Largest compute of a target."""
    best_at_4: tuple[Array, Array] | None = None
    """Compute and best@4 of the evaluations, where recorded."""
    train: tuple[Array, Array] | None = None
    """Compute and training reward, where recorded."""

    def shown(self, share: float) -> SurfaceRun:
        """The part up to a share of the end."""
        keep = self.run.compute_T <= share * self.end * 1.0001
        return replace(self.run, compute_T=self.run.compute_T[keep], reward_T=self.run.reward_T[keep])

    def best(self, low: float, high: float) -> float:
        """Reward of the best checkpoint up to `high`."""
        return max(self.truth(float(c)) for c in np.geomspace(low, high, 40))


def curves(simulated: int) -> Iterator[Curve]:
    """Every curve; `simulated` runs of each family."""
    for panel in panels():
        for n, (at, reward) in panel.curves.items():
            rng = np.random.default_rng([SEED, n, len(panel.name)])
            step = max(1, round(len(at) / EVALUATIONS))
            noisy = np.clip(reward[::step] + rng.normal(0.0, panel.noise, len(reward[::step])), *BOUNDS)
            name = f"{panel.name} n{n}"
            yield Curve(
                f"fig. 6 {panel.name}" if panel.name in ("Easy", "Hard") else panel.name,
                "panel",
                SurfaceRun(name, n, PROBLEMS_PER_BATCH, at[::step], noisy),
                _drawn(at, reward),
                float(at[-1]),
                train=panel.trained.get(n),
            )
    for name in ("easy", "hard"):
        for one in _recorded(Recorded.read(name).runs):
            yield replace(one, set=f"recorded {name}", kind="recorded")
    for table, kind in (("other_tasks", "other"), ("few_problems", "few")):
        for one in _recorded(iso.RunSet.read(str(DATA / f"{table}.csv"))):
            yield replace(one, set=one.set.rsplit("-", 3)[0], kind=kind)
    for family in FAMILIES:
        for index in range(simulated):
            yield _simulated(family, np.random.default_rng([SEED, index, len(family), ord(family[0])]))
    for index in range(PROBLEM_RUNS * simulated):
        yield _problems(np.random.default_rng([SEED, index]))


def _recorded(runs: iso.RunSet) -> Iterator[Curve]:
    """Runs of the built-in task, each as a set of its own name."""
    trained = {one.run_id: one for one in runs.series("train_reward")} if "train_reward" in runs.metrics else {}
    for one, best in zip(runs.series("avg@4"), runs.series("best@4"), strict=True):
        at, reward = one.rollouts_T, one.value_T
        train = trained.get(one.run_id)
        run = SurfaceRun(one.run_id, one.group_size, 16, at, reward)
        truth, end = _fitted(at, reward), float(at[-1]) / RECORDED_END
        columns = None if train is None else (train.rollouts_T, train.value_T)
        yield Curve(one.run_id, "", run, truth, end, (best.rollouts_T, best.value_T), columns)


def _problems(rng: np.random.Generator) -> Curve:
    """A run of problems that learn, the one simulated set with best@4."""
    size = float(2 ** rng.integers(2, 8))
    start = rng.normal(rng.normal(-1.5, 1.3), rng.uniform(1.0, 2.5), 120)
    talent, pull = np.exp(rng.normal(0.0, 0.4, 120)), rng.uniform(0.0, 0.1)
    time = np.arange(-6.0, 12.0, 0.1)
    mean, best = learned(time, size, start, talent, pull)
    reached = time[int(np.argmax(mean - mean[0] >= rng.uniform(0.1, 0.9) * (mean.max() - mean[0])))]
    log, noise = np.linspace(reached - 5.0, reached, int(rng.integers(20, 50))), rng.uniform(0.004, 0.012)
    compute = np.exp(log - reached) * 1e5
    reward, best_at_4 = (
        np.clip(np.interp(log, time, values) + rng.normal(0.0, noise, len(log)), *BOUNDS) for values in (mean, best)
    )
    run = SurfaceRun(f"problems-n{size:g}", int(size), 16, np.r_[0.0, compute], np.r_[mean[0], reward])

    def truth(c: float) -> float:
        return float(np.interp(np.log(c / 1e5) + reached, time, mean))

    return Curve("simulated problems", "simulated", run, truth, 1e5 * FACTORS[0], (compute, best_at_4))


def learned(
    time: npt.NDArray[np.floating[Any]], size: float, start: Array, talent: Array, pull: float
) -> tuple[Array, Array]:
    """avg@1 and best@4 over log time of problems whose pass rates p grow at a speed like p (1 - p) (1 - (1 - p)^n).

    Args:
        time: in steps of .1.
        size: n.
        start: logit of each problem's p at first.
        talent: speed of each problem.
        pull: of the logits back to their start.
    """
    logit, passes = start.copy(), np.empty((len(time), len(start)))
    for i, now in enumerate(time):
        p = 1.0 / (1.0 + np.exp(-logit))
        signal = talent * (1.0 - (1.0 - p) ** size) * (1.0 - p) * np.sqrt(np.maximum(p, 1e-3))
        step = 0.1 * np.exp(now)
        logit = logit + np.clip(step * (signal - pull * (logit - start)) / (1.0 + step * (1.0 + pull)), -0.4, 0.4)
        passes[i] = 1.0 / (1.0 + np.exp(-logit))
    return passes.mean(axis=1), (1.0 - (1.0 - passes) ** 4).mean(axis=1)


def _simulated(family: str, rng: np.random.Generator) -> Curve:
    """One healthy run of a drawn sweep, with its own gain and delay, of which the truth is known."""
    design = draw_design(rng)
    task, noise = draw_truth(family, design, rng), draw_noise(rng)
    planned = design.runs[int(rng.integers(len(design.runs)))]
    sizes = planned.group_size, planned.problems_per_batch
    factor, delay = (float(effect) for effect in run_effects(noise, rng))

    def truth(c: float) -> float:
        gain = float(task.mean(c, *sizes, delay=delay)) - task.base_reward
        return float(np.clip(task.base_reward + factor * gain, *BOUNDS))

    compute = np.array(design.evaluated_steps(planned.update_steps)) * float(sizes[0] * sizes[1])
    reward = np.array([truth(c) for c in compute]) + evaluation_noise(noise, len(compute), rng)
    run = SurfaceRun(f"{family}-n{sizes[0]}", *sizes, compute, np.clip(reward, *BOUNDS))
    # Of a simulated run everything is shown, or half of it: its truth is known beyond.
    return Curve(f"simulated {family}", "simulated", run, truth, float(compute[-1]) * FACTORS[0])


def _drawn(at: Array, reward: Array) -> Callable[[float], float]:
    return lambda c: float(np.interp(np.log(c), np.log(at), reward))


def _fitted(at: Array, reward: Array) -> Callable[[float], float]:
    log, value = np.log(np.maximum(at, 1.0)), reward

    def truth(c: float) -> float:
        near = (at > 0) & (np.abs(log - np.log(c)) <= np.log(SIDE))
        if near.sum() < 3:
            return float(np.interp(np.log(c), log, value))
        return float(np.polyfit(log[near] - np.log(c), value[near], 1)[1])

    return truth


@dataclass(frozen=True, eq=False)
class Case:
    """A part of a curve, and what the rest shows."""

    curve: Curve
    share: float
    run: SurfaceRun
    true: dict[float, float]
    """Reward at each factor."""
    best: dict[float, float]

    @property
    def last(self) -> float:
        """Compute that was shown."""
        return float(self.run.compute_T[-1])

    @property
    def one(self) -> OneRun:
        """The shown part as a forecast takes it."""
        return OneRun.of(self.run, BOUNDS, self.curve.best_at_4, self.curve.train)


def cases(every: Sequence[Curve]) -> list[Case]:
    """Parts with enough evaluations and a target."""
    found: list[Case] = []
    for curve in every:
        for share in SHARES:
            run = curve.shown(share)
            if np.sum(run.compute_T > 0) < FEWEST:
                continue
            last, first = float(run.compute_T[-1]), float(run.compute_T[run.compute_T > 0][0])
            far = [f for f in FACTORS if f * last <= curve.end * 1.02 or curve.kind == "simulated"]
            true = {f: curve.truth(f * last) for f in far}
            if true:
                found.append(Case(curve, share, run, true, {f: curve.best(first, f * last) for f in far}))
    return found


def continuing(known: Posterior, one: OneRun, pace: tuple[float, float]) -> Posterior:
    """The same posterior of the past, going on as the prior that ships says, at another pace."""
    usual = known.given.processes[0].prior
    ahead = DEFAULT_PRIOR
    prior = replace(usual, pace=pace, straight=ahead.straight, lead=ahead.lead, overfit=ahead.overfit)
    processes = tuple(replace(process, run=one, prior=prior) for process in known.given.processes)
    return replace(known, given=replace(known.given, run=one, processes=processes))


@dataclass(frozen=True)
class Learned:
    """What one curve teaches."""

    set: str
    means: tuple[float, float, float]
    """a, m less ln C of the end, and ln h."""
    variances: tuple[float, float, float]
    decline: float | None
    """Share of the gain lost per unit of ln C, if it fell."""


def lesson(curve: Curve) -> Learned:
    """Fit a whole curve under the wide prior."""
    one = OneRun.of(curve.run, BOUNDS)
    found = posterior(one, WIDE, np.random.default_rng(SEED))
    values, weight = found.particles.values_N5[:, :3], found.weight_N
    mean = weight @ values
    variance = weight @ (values - mean) ** 2
    decline = prepare([curve.run])[0].decline
    return Learned(curve.set, tuple(mean.tolist()), tuple(variance.tolist()), decline)


def learn(lessons: Sequence[Learned], tried: Sequence[Tried]) -> CurvePrior:
    """A prior from whole curves, with the pace that best predicts cases."""
    sets = list(dict.fromkeys(one.set for one in lessons))
    wide = np.array([WIDE.share, WIDE.midpoint, WIDE.slope])
    # A run that is going on has seen a part: its end lies earlier than that of a whole curve.
    shift = np.array([0.0, float(np.mean(-np.log(SHARES))) / 2.0, 0.0])
    centres = np.array([np.mean([one.means for one in lessons if one.set == name], axis=0) for name in sets]) + shift
    within = np.array(
        [
            np.mean([one.variances for one in lessons if one.set == name], axis=0)
            + np.var([one.means for one in lessons if one.set == name], axis=0)
            for name in sets
        ]
    )
    share = SHRINK / (SHRINK + len(sets))
    centre = share * wide[:, 0] + (1 - share) * centres.mean(axis=0)
    variance = share * wide[:, 1] ** 2 + (1 - share) * (within.mean(axis=0) + centres.var(axis=0))
    fell = [np.mean([one.decline is not None for one in lessons if one.set == name]) for name in sets]
    rates = np.log([one.decline for one in lessons if one.decline is not None] or [DEFAULT_PRIOR.rate[0]])
    moments = [(round(float(c), 2), round(float(np.sqrt(v)), 2)) for c, v in zip(centre, variance, strict=True)]
    found = replace(
        DEFAULT_PRIOR,
        share=moments[0],
        midpoint=moments[1],
        slope=moments[2],
        falls=round(float((1.0 - share) * np.mean(fell) + share * WIDE.falls), 2),
        rate=(round(float(np.exp(np.median(rates))), 2), DEFAULT_PRIOR.rate[1]),
    )
    sets_tried = list(dict.fromkeys(one.set for one in tried))

    def miss(pace: float) -> float:
        # Every set counts alike, however many runs it has; the factor that holds least decides.
        shares: list[float] = []
        for factor in FACTORS:
            by_set = [
                [one.held[pace][factor] for one in tried if one.set == name and factor in one.held[pace]]
                for name in sets_tried
            ]
            shares.append(float(np.mean([np.mean(some) for some in by_set if some])))
        return abs(min(shares) - COVERAGE)

    gain, straight, lead = continued([one for one in tried if one.gap < GAPS[0]])
    sd = min(PACES, key=miss)
    return replace(
        found,
        pace=(round(gain - sd**2 / 2.0, 3), sd),
        straight=straight,
        lead=(lead, DEFAULT_PRIOR.lead[1]),
        overfit=overfitting([one for one in tried if one.gap > 0.0], gain, straight),
    )


def continued(tried: Sequence[Tried]) -> tuple[float, float, float]:
    """How runs go on: log of the share of the foreseen gain that comes per doubling, weight of the straight line in
    what is foreseen, factor of best@4.

    Least squares; every set counts alike. The factor is learned from runs that were trained: the simulated problems
    have next to none.
    """
    best = (np.inf, 0.0, 0.0, 0.0)
    weights = _weights(tried)
    told = [one.announced * (one.kind != "simulated") for one in tried]
    known = max(sum(w * float(x @ x) for w, x in zip(weights, told, strict=True)), 1e-12)
    for share, straight in itertools.product(GAINS, STRAIGHT):
        left = [one.gained - share**one.doublings * one.ahead(straight) for one in tried]
        lead = sum(w * float(x @ y) for w, x, y in zip(weights, told, left, strict=True)) / known
        lead = min(max(lead, 0.0), MOST_LEAD)
        error = sum(w * float(np.sum((y - lead * x) ** 2)) for w, x, y in zip(weights, told, left, strict=True))
        best = min(best, (error, float(np.log(share)), straight, round(lead, 2)))
    return best[1:]


def _weights(tried: Sequence[Tried]) -> list[float]:
    """One over the cases of the set of each."""
    sets = [one.set for one in tried]
    return [1.0 / sets.count(name) for name in sets]


def overfitting(tried: Sequence[Tried], gain: float, straight: float) -> tuple[float, float, float]:
    """The gap that takes rises away, the loss per doubling and its spread that best predict cases; sets count alike."""
    best: tuple[float, tuple[float, float, float]] = (np.inf, DEFAULT_PRIOR.overfit)
    weights = _weights(tried)
    for most in GAPS:
        kept = [float(np.clip(2.0 - one.gap / most, 0.0, 1.0)) for one in tried]
        foreseen = [np.exp(gain * one.doublings) * one.ahead(straight) for one in tried]
        missing = [
            np.where(said > 0, share * said, said) - one.gained
            for one, share, said in zip(tried, kept, foreseen, strict=True)
        ]
        counts = [(1.0 - share) * one.doublings for one, share in zip(tried, kept, strict=True)]
        below = max(sum(w * float(c @ c) for w, c in zip(weights, counts, strict=True)), 1e-9)
        loss = max(sum(w * float(m @ c) for w, m, c in zip(weights, missing, counts, strict=True)) / below, 0.0)
        left = [float(np.sum((m - loss * c) ** 2)) for m, c in zip(missing, counts, strict=True)]
        spread = sum(w * e for w, e, c in zip(weights, left, counts, strict=True) if c.any()) / below
        error = sum(w * e for w, e in zip(weights, left, strict=True))
        best = min(best, (error, (most, round(loss, 3), round(float(np.sqrt(spread)), 3))))
    return best[1]


@dataclass(frozen=True)
class Tried:
    """How often the intervals of one case hold with each pace."""

    set: str
    kind: str
    held: dict[float, dict[float, bool]]
    """By pace and factor."""
    foreseen: Array
    """Gain up to each target that the curve alone foresees."""
    line: Array
    """The same of the straight line."""
    gained: Array
    doublings: Array
    announced: Array
    """What one unit of the factor of best@4 adds."""
    gap: float
    """To the training reward; 0 where it was not recorded."""

    def ahead(self, straight: float) -> Array:
        """Gain that is foreseen with this weight of the line."""
        return (1.0 - straight) * self.foreseen + straight * self.line


def attempt(case: Case) -> Tried:
    """Fit the part that was shown under the wide prior, and try every pace; the lead is learned without best@4."""
    one = case.one
    alone = replace(one, leading=0.0, gap=0.0)
    known = posterior(alone, WIDE, np.random.default_rng(SEED))
    line = known.given.line(np.log(list(case.true)))
    held = {pace: _held(case, continuing(known, one, (-(pace**2) / 2.0, pace))) for pace in PACES}
    drawn, _ = known.draws(np.log([1.0, *case.true]), DRAWS, np.random.default_rng(SEED))
    now, *ahead = drawn.mean(axis=0)
    doublings = np.log2(list(case.true))
    gained = np.array(list(case.true.values())) - now
    more = announced(one.leading, doublings)
    foreseen = np.array(ahead) - now
    return Tried(case.curve.set, case.curve.kind, held, foreseen, line, gained, doublings, more, one.gap)


def _held(case: Case, known: Posterior) -> dict[float, bool]:
    """Whether the truth at each factor lies in its 80 % interval."""
    drawn, _ = known.draws(np.log(list(case.true)), DRAWS, np.random.default_rng(SEED))
    low, high = np.quantile(drawn, [0.1, 0.9], axis=0)
    true = np.array(list(case.true.values()))
    return dict(zip(case.true, ((low <= true) & (true <= high)).tolist(), strict=True))


@dataclass(frozen=True)
class Row:
    """One forecast."""

    set: str
    kind: str
    run: str
    share: float
    factor: float
    error: float
    """Forecast less true reward."""
    held: bool
    width: float
    best_error: float
    """The same for the best checkpoint up to there."""
    best_held: bool
    last: float
    line: float
    sigmoid: float
    """Errors of the simple forecasts."""


def forecast(case: Case, prior: CurvePrior) -> list[Row]:
    """Forecast one case."""
    one = case.one
    rng = np.random.default_rng(SEED)
    past = np.linspace(float(one.log_compute_T[0]), 0.0, 30)
    at = np.unique(np.concatenate([past, np.linspace(0.0, np.log(max(FACTORS)), 21)]))
    drawn, _ = posterior(one, prior, rng).draws(at, DRAWS, rng)
    best = np.maximum.accumulate(drawn, axis=1)
    simple = baselines(case.run)
    rows: list[Row] = []
    for factor, true in case.true.items():
        place = int(np.searchsorted(at, np.log(factor) - 1e-9))
        low, high = np.quantile(drawn[:, place], [0.1, 0.9])
        best_low, best_high = np.quantile(best[:, place], [0.1, 0.9])
        others = {name: found(factor * case.last) - true for name, found in simple.items()}
        rows.append(
            Row(
                case.curve.set,
                case.curve.kind,
                case.run.run_id,
                case.share,
                factor,
                float(drawn[:, place].mean()) - true,
                bool(low <= true <= high),
                float(high - low),
                float(best[:, place].mean()) - case.best[factor],
                bool(best_low <= case.best[factor] <= best_high),
                others["last"],
                others["line"],
                others["sigmoid"],
            )
        )
    return rows


def baselines(run: SurfaceRun) -> dict[str, Callable[[float], float]]:
    """The simple forecasts."""
    from scipy.optimize import curve_fit

    trained = run.compute_T > 0
    log, reward = np.log(run.compute_T[trained]), run.reward_T[trained]
    last = float(np.mean(reward[-3:]))
    half = max(len(log) // 2, 3)
    line = np.polyfit(log[-half:], reward[-half:], 1)
    known = run.reward_T[~trained]
    base = float(known[0]) if known.size else float(reward[0])

    def sigmoid(x: Array, top: float, middle: float, slope: float) -> Array:
        return base + (top - base) / (1.0 + np.exp(-np.clip(slope * (x - middle), -60.0, 60.0)))

    start = (min(float(reward.max()) + 0.02, 0.99), float(np.median(log)), 1.0)
    limits = ([0.0, log[0] - 5.0, 0.05], [1.0, log[-1] + 5.0, 10.0])
    found: Array | None = None
    with warnings.catch_warnings(), suppress(RuntimeError, ValueError):
        warnings.simplefilter("ignore")
        found, _ = curve_fit(sigmoid, log, reward, start, bounds=limits, max_nfev=4000)

    def of_sigmoid(c: float) -> float:
        return last if found is None else float(sigmoid(np.array([np.log(c)]), *found)[0])

    def of_line(c: float) -> float:
        return float(np.clip(np.polyval(line, np.log(c)), *BOUNDS))

    return {"last": lambda _: last, "line": of_line, "sigmoid": of_sigmoid}


def in_sweep(name: str) -> list[tuple[float, bool, float, bool]]:
    """First halves of recorded runs, forecast at 2x with the other n as prior, and alone.

    The other runs reach as far as they were recorded; other seeds of the same n are left out. Errors and whether the
    80 % interval holds, with the sweep and alone. Alone the prior is the one that ships, to which this set belongs.
    """
    recorded = Recorded.read(name)
    fits = iso.fit(recorded.runs, "avg@4", draws=20)
    found: list[tuple[float, bool, float, bool]] = []
    for series in recorded.runs.series("avg@4"):
        end = float(series.rollouts_T[-1]) / RECORDED_END
        own, same_size = pl.col("run_id") == series.run_id, pl.col("group_size") == series.group_size
        shown = recorded.runs.filter((own & (pl.col("rollouts") <= end / 2.0)) | ~(own | same_size))
        row: list[Any] = []
        for sweep in (fits, None):
            ahead = iso.forecast(shown, series.run_id, "avg@4", to=2.0, sweep=sweep).at(2.0)
            true = _fitted(series.rollouts_T, series.value_T)(ahead.rollouts)
            row += [ahead.reward - true, ahead.low <= true <= ahead.high]
        found.append((row[0], row[1], row[2], row[3]))
    return found


def sweep_table() -> str:
    """A Markdown table of `in_sweep`."""
    lines = [
        "| set | runs | with the sweep: rms | bias | holds | alone: rms | bias | holds |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name in ("easy", "hard"):
        rows = np.array(in_sweep(name), dtype=float)
        cells = [name, str(len(rows))]
        for error, held in (rows[:, :2].T, rows[:, 2:].T):
            cells += [f"{np.sqrt(np.mean(error**2)):.3f}", f"{error.mean():+.3f}", f"{held.mean():.2f}"]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def table(rows: Sequence[Row]) -> str:
    """A Markdown table: a line per set, share and factor, then all together."""
    lines = [
        "| set | shown | at | forecasts | rms | bias | 80 % holds | width | best checkpoint: rms, holds | last value | "
        "line | sigmoid |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    names = list(dict.fromkeys(row.set for row in rows))
    for share in SHARES:
        for factor in FACTORS:
            for name in [*names, "panels and recorded", "other tasks", "few problems", "simulated", "all"]:
                mine = [
                    row
                    for row in rows
                    if (row.share, row.factor) == (share, factor)
                    and (
                        name in ("all", row.set, row.kind)
                        or (name == "panels and recorded" and row.kind in ("panel", "recorded"))
                        or (name == "other tasks" and row.kind == "other")
                        or (name == "few problems" and row.kind == "few")
                    )
                ]
                if mine:
                    lines.append(_line(name, share, factor, mine))
    return "\n".join(lines)


def _line(name: str, share: float, factor: float, rows: Sequence[Row]) -> str:
    def rms(field: str) -> str:
        return f"{np.sqrt(np.mean([getattr(row, field) ** 2 for row in rows])):.3f}"

    cells = [
        name,
        f"{share:g}",
        f"{factor:g}x",
        str(len(rows)),
        rms("error"),
        f"{np.mean([row.error for row in rows]):+.3f}",
        f"{np.mean([row.held for row in rows]):.2f}",
        f"{np.mean([row.width for row in rows]):.3f}",
        f"{rms('best_error')}, {np.mean([row.best_held for row in rows]):.2f}",
        rms("last"),
        rms("line"),
        rms("sigmoid"),
    ]
    return "| " + " | ".join(cells) + " |"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark from the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--simulated", type=int, default=6, help="runs of each family of the simulator")
    parser.add_argument("--learn", action="store_true", help="only print the prior learned from all sets")
    parser.add_argument("--sweep", action="store_true", help="only recorded runs with the other n as prior")
    parser.add_argument("--json", type=Path, help="write every row here")
    options = parser.parse_args(arguments)
    if options.sweep:
        sys.stdout.write(f"{sweep_table()}\n")
        return 0
    every = list(curves(options.simulated))
    lessons = [lesson(curve) for curve in every]
    asked = cases(every)
    tried = [attempt(case) for case in asked]
    if options.learn:
        sys.stdout.write(f"{learn(lessons, tried)}\n")
        return 0
    rows: list[Row] = []
    for name in dict.fromkeys(curve.set for curve in every):
        others = [one for one in lessons if one.set != name]
        prior = learn(others, [one for one in tried if one.set != name])
        sys.stderr.write(f"{name}: {prior}\n")
        for case in asked:
            if case.curve.set == name:
                rows += forecast(case, prior)
    sys.stdout.write(table(rows) + "\n")
    if options.json is not None:
        options.json.write_text(json.dumps([asdict(row) for row in rows], indent=1), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
