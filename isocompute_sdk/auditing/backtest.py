"""Backtest: what each way of choosing n would have chosen on the past of real sweeps, and what it would have lost.

Every method sees a pilot and chooses among the n that were run. Pilots whose truth is their own run share its luck;
they are reported apart.

A pilot is what one seed showed up to a share of the compute. The truth is the best smoothed checkpoint of each n up to
the whole compute, averaged over seeds; an n whose runs end earlier keeps its best checkpoint. Where every n has another
seed the pilot's own is left out. Elsewhere pilot and truth are the same run and share its luck.
"""

from __future__ import annotations

import math
import warnings
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from isocompute_sdk import api
from isocompute_sdk.auditing.own_sweeps import own_sweeps
from isocompute_sdk.errors import FitError, IsoComputeError
from isocompute_sdk.fitting.arrays import Array
from isocompute_sdk.fitting.fits import Fits
from isocompute_sdk.fitting.surface.surface import LEARNED
from isocompute_sdk.laws.sweeps import RecordedSweep, holds_sweeps, sweeps
from isocompute_sdk.notebook import frame_of
from isocompute_sdk.phrases import listed, off
from isocompute_sdk.planning import Planner
from isocompute_sdk.planning.plan import VERDICTS
from isocompute_sdk.records import RunSet
from isocompute_sdk.tolerances import EQUAL, NEAR

if TYPE_CHECKING:
    from isocompute_sdk.notebook import Frame

CUTS = (1 / 8, 1 / NEAR, 1 / 2)
"""Shares of the compute that a pilot sees; the backtest of every fit hides what lies beyond the second."""
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
    ends: Mapping[int, float] = field(default_factory=dict[int, float])
    """n -> rollouts at which its runs end before the target, where its truth was measured."""

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
            apart = leave_seed_out and all(len(curves[n]) > 1 for n in shown)
            truth, ends = dict[int, float](), dict[int, float]()
            for n in shown:
                judging = [curve for other, (_, curve) in curves[n].items() if other != seed or not apart]
                reached = [best for curve in judging if (best := best_smoothed(curve, target)) > -math.inf]
                if reached:
                    truth[n] = float(np.mean(reached))
                    ends[n] = min(target, max(float(curve[0][-1]) for curve in judging))
            shown = {n: one for n, one in shown.items() if n in truth}
            if len(shown) < 2:
                continue
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
                ends=ends,
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


LEVEL = 0.8
"""Coverage of the intervals that are judged."""
FAR_BEHIND = 3 * EQUAL
"""Reward behind the best pilot's n, as a share of the range, from which a choice is listed by name."""
PUBLISHED = "qwen2.5-7b-instruct/guru-math-easy"


@dataclass(frozen=True, eq=False)
class Answer:
    """What a method says about a pilot. Arrays have one entry per n of `Pilot.sizes`."""

    group_size: int
    """The chosen n, one of `Pilot.sizes`."""
    mean_N: Array | None = None
    """Predicted reward of the best checkpoint up to the target; None if the method predicts none."""
    low_N: Array | None = None
    high_N: Array | None = None
    verdict: str | None = None
    """Kind of the plan's verdict."""


Method = Callable[[Pilot], Answer]
"""Raises `IsoComputeError` where it has no answer."""


def planner(pilot: Pilot) -> Answer:
    """The n of the plan among those that were run, with predictions for the ends of the runs that are the truth."""
    odds = pilot.fits.group_size_odds(pilot.target, pilot.sizes, pilot.problems_per_batch)
    ends = [pilot.ends.get(n, pilot.target) for n in pilot.sizes]
    found = pilot.fits.predict(ends, pilot.sizes, pilot.problems_per_batch, level=LEVEL)
    plan = Planner(pilot.fits).allocate(pilot.target, problems_per_batch=pilot.problems_per_batch)
    return Answer(int(odds.group_size[odds.best()]), *found, plan.verdict.kind)


def best_pilot(pilot: Pilot) -> Answer:
    """The n of the run that is best at the cut."""
    return Answer(max(pilot.curves, key=lambda n: best_smoothed(pilot.curves[n], pilot.cut * pilot.target)))


def largest(pilot: Pilot) -> Answer:
    """The largest n that was run."""
    return Answer(max(pilot.curves))


def paper(pilot: Pilot) -> Answer:
    """The n of the paper's workflow, fitted to the pilot."""
    fits = api.fit(pilot.runs, pilot.metric, method="paper", draws=0, bounds=pilot.sweep.provenance.bounds)
    plan = Planner(fits).allocate(pilot.target, problems_per_batch=pilot.problems_per_batch, spend="all")
    return Answer(pilot.nearest(plan.group_size))


def published_law(pilot: Pilot) -> Answer:
    """The n of the law that the paper prints for its main model, whatever the runs say."""
    return Answer(pilot.nearest(float(api.published(PUBLISHED).law().predict(pilot.target))))


METHODS: Mapping[str, Method] = {
    "planner": planner,
    "best pilot": best_pilot,
    "largest n": largest,
    "paper": paper,
    "published law": published_law,
}


def backtest(
    source: RunSet | str | Path | Iterable[RecordedSweep] | None = None,
    *,
    metric: str | None = None,
    eval_set: str | None = None,
    bounds: tuple[float, float] = (0.0, 1.0),
    cuts: Sequence[float] = CUTS,
    seeds: int = 1,
    min_evaluations: int = MIN_EVALUATIONS,
    methods: Mapping[str, Method] = METHODS,
    progress: Callable[[int, int, str], object] | None = None,
) -> Backtest:
    """What the planner and simple rules would have chosen on the past of these runs, and what each would have lost.

    Args:
        source: runs; a folder of logs, or of sweeps with provenance; sweeps; None for the corpus that ships.
        metric: metric of runs that n is chosen for; None: avg@4, else the one that most runs have.
        eval_set: evaluation set of runs.
        bounds: range of the metric of runs; recorded sweeps have their own.
        cuts: shares of the compute that a pilot sees, between 0 and 1.
        seeds: pilots per cut, each of one seed.
        min_evaluations: evaluations after step 0 that an n needs in a pilot.
        methods: name -> method; the first is compared with the others.
        progress: called with the number of pilots that are done, that of all, and the name of the next.

    Raises:
        RecordError: nothing to read, or no two n that may be compared.
        FitError: cuts outside (0, 1), a reward outside `bounds`, or no pilot with two n.
    """
    if not cuts or not all(0 < cut < 1 for cut in cuts):
        raise FitError(
            f"cuts = {list(cuts)}; accepted: numbers between 0 and 1", "For example cuts=(1 / 8, 1 / 3, 1 / 2)."
        )
    if isinstance(source, str | Path) and not holds_sweeps(source):
        source = RunSet.read(source)
    if isinstance(source, RunSet):
        source = own_sweeps(source, metric, eval_set, bounds)
    elif source is None or isinstance(source, str | Path):
        source = sweeps(source)
    source = tuple(source)
    every = [one for sweep in source for one in pilots(sweep, cuts=cuts, seeds=seeds, min_evaluations=min_evaluations)]
    if not every:
        raise _no_pilot(source, cuts, min_evaluations)
    done = iter(range(len(every)))
    return judge(every, methods, None if progress is None else lambda name: progress(next(done), len(every), name))


def _no_pilot(source: Sequence[RecordedSweep], cuts: Sequence[float], min_evaluations: int) -> FitError:
    """What these sweeps lack for a pilot."""
    curves = [_curves(sweep.runs, metric)[0] for sweep in source for metric in sweep.provenance.metrics]
    if any(
        len({n for n in found if seed in found[n]}) > 1
        for found in curves
        for seeds in found.values()
        for seed in seeds
    ):
        return FitError(
            f"no pilot: no cut of {', '.join(f'{cut:.3g}' for cut in cuts)} leaves two n with {min_evaluations} "
            "evaluations of one seed",
            "Lower <--min-evaluations | min_evaluations=>, or raise <--cuts | cuts=>.",
        )
    runs = {(one.group_size, one.problems_per_batch or 1, one.seed) for sweep in source for one in sweep.runs.runs()}
    apart = len({seed for *_, seed in runs}) > 1
    ordered = sorted(runs, key=lambda one: (one[0], one[1], one[2] or 0))
    had = [f"n = {n} at B_p = {bp}{f' with seed {seed}' if apart else ''}" for n, bp, seed in ordered]
    return FitError(
        f"no pilot: two n with the same B_p (that of most runs) and seed are needed; found: {listed(had, 8)}",
        "Add a run of another n with the B_p and seed of one of these. isocompute fit uses runs of every B_p.",
    )


@dataclass(frozen=True)
class Row:
    """One n of one pilot, by a method that chose it or predicted its reward."""

    sweep: str
    family: str
    group: str
    pilot: str
    cut: float
    same_run: bool
    """Whether pilot and truth are the same run."""
    method: str
    group_size: int
    chosen: bool
    true: float
    regret: float
    """Reward of the best n of the pilot less that of this one."""
    predicted: float | None = None
    low: float | None = None
    high: float | None = None
    verdict: str | None = None
    width: float = 1.0
    """Width of the metric's range, of which `EQUAL` and `FAR_BEHIND` are shares."""

    @property
    def held(self) -> bool | None:
        """Whether the interval holds the truth; None without one."""
        return None if self.low is None or self.high is None else self.low <= self.true <= self.high


def judge(
    every: Iterable[Pilot], methods: Mapping[str, Method] = METHODS, progress: Callable[[str], object] | None = None
) -> Backtest:
    """Ask every method about every pilot."""
    rows: list[Row] = []
    for pilot in every:
        if progress is not None:
            progress(pilot.name)
        about = pilot.sweep.provenance
        place = (pilot.sweep.name, about.family, about.group, pilot.name, pilot.cut, pilot.same_run)
        width = about.bounds[1] - about.bounds[0]
        for name, method in methods.items():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    answer = method(pilot)
                except IsoComputeError:
                    continue
            for i, (n, true) in enumerate(pilot.truth.items()):
                if answer.mean_N is None and n != answer.group_size:
                    continue
                said = (answer.mean_N, answer.low_N, answer.high_N)
                mean, low, high = (None if value_N is None else float(value_N[i]) for value_N in said)
                lost = (pilot.best - true) / pilot.scale
                chosen = n == answer.group_size
                rows.append(Row(*place, name, n, chosen, true, lost, mean, low, high, answer.verdict, width))
    return Backtest(tuple(rows), tuple(methods))


@dataclass(frozen=True, eq=False)
class Backtest:
    """What the methods chose and predicted. A method without an answer has no row for that pilot."""

    rows: tuple[Row, ...]
    methods: tuple[str, ...]
    """The first is compared with the best pilot's n."""

    @property
    def choices(self) -> list[Row]:
        """The rows of chosen n."""
        return [row for row in self.rows if row.chosen]

    def behind(self) -> dict[Row, float]:
        """Choice of the first method -> its regret less that of the best pilot's n."""
        lost = {row.pilot: row.regret for row in self.choices if row.method == "best pilot"}
        mine = [row for row in self.choices if row.method == self.methods[0]]
        return {row: row.regret - lost[row.pilot] for row in mine if row.pilot in lost}

    def regrets(self) -> list[dict[str, Any]]:
        """Per group, apart where pilot and truth are the same run: regrets, also less that of the best pilot's n.

        `behind` is the mean difference of regret with its standard error clustered by sweep (None of one sweep);
        `differs` counts the pilots where the two n differ, `gained` and `lost` sum what that won and cost.
        """
        found: list[dict[str, Any]] = []
        behind = self.behind()
        for (group, same_run), rows in _split(self.choices, "group", "same_run"):
            row: dict[str, Any] = {"group": group, "same_run": same_run, "pilots": len({row.pilot for row in rows})}
            for method in self.methods:
                lost = [one.regret for one in rows if one.method == method]
                mean = float(np.mean(lost)) if lost else None
                row[method] = {"answers": len(lost), "mean": mean, "worst": max(lost, default=None)}
            mine = [one for one in rows if one in behind]
            row["behind"], row["standard_error"] = clustered([one.sweep for one in mine], [behind[one] for one in mine])
            kept = {one.pilot: one.group_size for one in rows if one.method == "best pilot"}
            moved = [behind[one] for one in mine if one.group_size != kept[one.pilot]]
            row["differs"], row["lost"] = len(moved), sum(d for d in moved if d > 0)
            row["gained"] = -sum(d for d in moved if d < 0)
            found.append(row)
        return found

    def accuracy(self) -> list[dict[str, Any]]:
        """Per method, group and cut: mean absolute error of the peak, intervals that hold, bias and interval score.

        The bias is the mean of predicted less true. The interval score is the width and, at 80 %, 10 x the distance by
        which the truth lies outside.
        """
        found: list[dict[str, Any]] = []
        keys = ("method", "group", "same_run", "cut")
        for place, rows in _split([row for row in self.rows if row.predicted is not None], *keys):
            true, mean, low, high = (
                np.array([getattr(r, k) for r in rows]) for k in ("true", "predicted", "low", "high")
            )
            miss = np.maximum(np.maximum(low - true, true - high), 0.0)
            found.append(
                {
                    **dict(zip(keys, place, strict=True)),
                    "predictions": len(rows),
                    "bias": float(np.mean(mean - true)),
                    "error": float(np.mean(np.abs(mean - true))),
                    "held": int(np.sum(miss == 0.0)),
                    "score": float(np.mean(high - low + 2 / (1 - LEVEL) * miss)),
                }
            )
        return found

    def verdicts(self) -> list[dict[str, Any]]:
        """Per verdict of the first method: choices, and how many of them lose more than `EQUAL`."""
        said = [row for row in self.choices if row.method == self.methods[0] and row.verdict is not None]
        return [
            {"verdict": kind, "choices": len(rows), "lose": sum(row.regret > EQUAL * row.width for row in rows)}
            for (kind,), rows in _split(said, "verdict")
        ]

    def worst(self) -> list[tuple[Row, float]]:
        """Choices of the first method `FAR_BEHIND` the best pilot's n, the worst first; at least the worst three."""
        ordered = sorted(self.behind().items(), key=lambda item: -item[1])
        return [
            item for i, item in enumerate(ordered) if item[1] > FAR_BEHIND * item[0].width or (i < 3 and item[1] > 0)
        ]

    def tables(self) -> list[list[tuple[str, ...]]]:
        """Regrets, accuracy and verdicts as rows of text, titles first; the last is left out without a verdict."""
        first = self.methods[0]
        regrets = [("group", "truth", "pilots", *self.methods, f"{first} less best pilot", "n differs: gained, lost")]
        for row in self.regrets():
            error = "" if row["standard_error"] is None else f" +- {row['standard_error']:.4f}"
            ahead = "" if row["behind"] is None else f"{row['behind']:+.4f}{error}"
            moved = f"{row['differs']}: {row['gained']:.3f}, {row['lost']:.3f}"
            cells = [_lost(row[method], row["pilots"]) for method in self.methods]
            regrets.append((row["group"], _truth(row), str(row["pilots"]), *cells, ahead, moved))
        accuracy: list[tuple[str, ...]] = [
            ("method", "group", "truth", "distance", "error", "on average", "80 % intervals hold", "interval score")
        ]
        for row in self.accuracy():
            numbers = f"{row['error']:.4f}", f"{off(row['bias'], 4)}", f"{row['held']} of {row['predictions']}"
            place = row["method"], row["group"], _truth(row), f"{1 / row['cut']:.2g}x"
            accuracy.append((*place, *numbers, f"{row['score']:.3f}"))
        widths = {row.width for row in self.rows}
        material = f"{EQUAL * widths.pop():g}" if len(widths) == 1 else f"{EQUAL:.0%} of the range"
        verdicts = [(VERDICTS[row["verdict"]], str(row["choices"]), str(row["lose"])) for row in self.verdicts()]
        titles = ("verdict", "choices", f"lose more than {material}")
        return [regrets, accuracy, *([[titles, *verdicts]] if verdicts else [])]

    def behind_most(self) -> list[str]:
        """The worst cases, a line each."""
        lines = [
            f"- {row.pilot}: n = {row.group_size} loses {row.regret:.3f}, {lost:.3f} more than the best pilot's n"
            for row, lost in self.worst()
        ]
        return [f"Furthest behind the best pilot's n, {self.methods[0]}:", *lines] if lines else []

    def table(self) -> str:
        """The tables and the worst cases as Markdown."""
        parts = [
            [_line(*titles), "|---" * len(titles) + "|", *(_line(*row) for row in rows)]
            for titles, *rows in self.tables()
        ]
        return "\n\n".join("\n".join(lines) for lines in [*parts, self.behind_most()] if lines)

    def to_dict(self) -> dict[str, Any]:
        """The tables and every row as plain data."""
        worst = [{"pilot": row.pilot, "group_size": row.group_size, "behind": lost} for row, lost in self.worst()]
        tables = {"regrets": self.regrets(), "accuracy": self.accuracy(), "verdicts": self.verdicts(), "worst": worst}
        return {"kind": "backtest", "methods": list(self.methods), **tables, "rows": [asdict(row) for row in self.rows]}

    def to_frame(self) -> Frame:
        """Every row as a polars frame."""
        return frame_of({one.name: [getattr(row, one.name) for row in self.rows] for one in fields(Row)})


def _line(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _lost(row: Mapping[str, Any], asked: int) -> str:
    """Mean and worst regret, with the number of answers where some are missing."""
    if not row["answers"]:
        return "no answer"
    some = "" if row["answers"] == asked else f" ({row['answers']} answers)"
    return f"{row['mean']:.4f}, {row['worst']:.3f}{some}"


def clustered(clusters: Sequence[str], values: Sequence[float]) -> tuple[float | None, float | None]:
    """Mean and its standard error with whole clusters as units; None of no value, and of one cluster."""
    names = sorted(set(clusters))
    if not names:
        return None, None
    mean = float(np.mean(values))
    if len(names) < 2:
        return mean, None
    off = [sum(v - mean for c, v in zip(clusters, values, strict=True) if c == name) for name in names]
    return mean, math.sqrt(sum(o * o for o in off) * len(names) / (len(names) - 1)) / len(values)


def _split(rows: Iterable[Row], *keys: str) -> list[tuple[tuple[Any, ...], list[Row]]]:
    found: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        found.setdefault(tuple(getattr(row, key) for key in keys), []).append(row)
    return list(found.items())


def _truth(row: Mapping[str, Any]) -> str:
    return "same run" if row["same_run"] else "other seeds"
