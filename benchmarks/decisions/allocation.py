"""How much reward is lost by each way of choosing n, on simulated sweeps whose truth is known.

    python benchmarks/decisions/allocation.py --scenarios 300 --seed 1 --methods paper best-pilot-run --workers 2

Every scenario is a pilot sweep; each method chooses n for 1, 3, 10 and 30 times its largest budget. Regret is the best
true reward that any n in [n_min, 2 n_max] with at least 5 update steps reaches there, less that of the chosen n,
as a share of the scenario's reward range (the gain over the base model within reach at 10 times the budget).
A simulation: numbers say how methods compare on these families, not what a training run will return.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from left_out import Tried, chosen_by_charge, held_by_factor
from left_out import records as left_out_records
from paper_by_scipy import group_size_law

import isocompute_sdk as iso
from isocompute_sdk.errors import IsoComputeError
from isocompute_sdk.fitting.surface.answers.odds import PER_SQUARED_OCTAVE
from isocompute_sdk.records import RunSet
from isocompute_simulator import FAMILIES, REAL_FAMILIES, Scenario, draw_scenario
from isocompute_simulator.scenario import METRIC, STEPS_PER_OCTAVE

TUNING_SEED = 20_001
"""Scenarios that constants of the simulator and of the methods may be chosen on; so are those of 20002 to 20007."""
TEST_SEED = 90_001
"""Scenarios for reported numbers: nothing may be chosen on them."""
RATIOS = (1.0, 3.0, 10.0, 30.0)
MIN_UPDATE_STEPS = 5
NEAR_BEST = 0.005
"""A set of n covers where one of them loses at most this share of the reward range."""
SMOOTHING_SHARE = 0.1
"""Window of the moving average by which the best pilot run is found, as a share of its evaluations."""
LEVELS = (0.8, 0.9)
FAMILY_SETS = {"formula": FAMILIES, "real": REAL_FAMILIES, "all": (*FAMILIES, *REAL_FAMILIES)}
"""Families that scenarios of one seed take in turn."""
SIZES = {"up to 4": 4, "5 to 15": 15, "16 to 25": 25, "more": 10**6}
"""Classes of sweeps by their number of runs."""
MATERIAL, IMMATERIAL = 0.01, 0.005
"""Reward that a verdict must not lose, and reward for which nobody need go on."""

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Question:
    """What a method is asked: one target per ratio, and the group sizes it may choose."""

    targets: tuple[float, ...]
    n_min: int
    n_max: int
    """Largest level of the sweep: n may be up to twice as large."""
    problems_per_batch: int

    def sizes(self, target: float) -> Array:
        """Allowed n at a target: every eighth of an octave."""
        octaves = np.arange(np.log2(self.n_min), np.log2(2 * self.n_max) + 1e-9, 1 / STEPS_PER_OCTAVE)
        sizes = np.unique(np.rint(2.0**octaves))
        return sizes[self.allows(target, sizes)]

    def allows(self, target: float, n: npt.ArrayLike) -> npt.NDArray[np.bool_]:
        """Whether n is in range and leaves enough update steps."""
        size = np.asarray(n, dtype=float)
        steps = target / (size * self.problems_per_batch)
        return (size >= self.n_min) & (size <= 2 * self.n_max) & (steps >= MIN_UPDATE_STEPS)

    def nearest(self, target: float, n: float) -> int:
        """The allowed n that is nearest in octaves."""
        sizes = self.sizes(target)
        return int(sizes[np.argmin(np.abs(np.log2(sizes / n)))])


@dataclass(frozen=True)
class Answer:
    """What a method says, one entry per target."""

    chosen: tuple[int, ...]
    intervals: dict[float, tuple[tuple[float, float], ...]] = field(
        default_factory=dict[float, tuple[tuple[float, float], ...]]
    )
    """Level -> (low, high) of the true reward at the chosen n."""
    best_sets: tuple[tuple[int, ...], ...] | None = None
    """80 % sets for the best n."""
    failed: bool = False
    """The method had nothing to say and the best pilot run answered."""
    verdicts: tuple[str, ...] | None = None
    stops: tuple[tuple[int, int], ...] | None = None
    """(group size, rollouts) of the default plan, which may spend less than the budget."""


Method = Callable[[RunSet, Question], Answer]


def best_pilot_run(runs: RunSet, question: Question) -> Answer:
    """The n of the run that reached the highest smoothed reward, at every target."""
    best, reached = question.n_min, -np.inf
    for run in runs.series(METRIC):
        width = min(max(3, round(SMOOTHING_SHARE * len(run.value_T))), len(run.value_T))
        smooth_T = np.convolve(run.value_T, np.full(width, 1 / width), mode="valid")
        if smooth_T.max() > reached:
            best, reached = run.group_size, float(smooth_T.max())
    return Answer(tuple(question.nearest(target, best) for target in question.targets))


def paper(runs: RunSet, question: Question) -> Answer:
    """The paper's workflow: the law of n*, at the allowed n nearest to it; the best pilot run where the fit fails."""
    try:
        law = iso.fit(runs, METRIC, method="paper", draws=0).law()
        wanted = [float(law.predict(target)) for target in question.targets]
    except IsoComputeError:
        return Answer(best_pilot_run(runs, question).chosen, failed=True)
    return Answer(tuple(question.nearest(target, n) for target, n in zip(question.targets, wanted, strict=True)))


def paper_by_scipy(runs: RunSet, question: Question) -> Answer:
    """An independent implementation of the same workflow."""
    series = [(run.group_size, run.rollouts_T, run.value_T) for run in runs.series(METRIC)]
    try:
        law = group_size_law(series)
    except ValueError:
        return Answer(best_pilot_run(runs, question).chosen, failed=True)
    return Answer(tuple(question.nearest(target, law(target)) for target in question.targets))


def surface(runs: RunSet, question: Question, mode: Literal["expected", "conservative"] = "expected") -> Answer:
    """The joint surface as users meet it: the planner's answer; the best pilot run where there is none."""
    try:
        fits = iso.fit(runs, METRIC, method="surface")
        planner = iso.Planner(fits, recipe=iso.Recipe.preset("easy"))
        options: dict[str, Any] = {
            "problems_per_batch": question.problems_per_batch,
            "min_update_steps": MIN_UPDATE_STEPS,
            "mode": mode,
        }
        plans = [planner.allocate(target, spend="all", **options) for target in question.targets]
        default = [planner.allocate(target, **options) for target in question.targets]
    except IsoComputeError:
        return Answer(best_pilot_run(runs, question).chosen, failed=True)
    chosen = [plan.group_size for plan in plans]
    intervals: dict[float, tuple[tuple[float, float], ...]] = {}
    for level in LEVELS:
        found = fits.predict(question.targets, chosen, question.problems_per_batch, level=level, kind="mean")
        intervals[level] = tuple(zip(found.low.tolist(), found.high.tolist(), strict=True))
    return Answer(
        tuple(chosen),
        intervals,
        _best_sets(fits, question),
        verdicts=tuple(plan.verdict.kind for plan in default),
        stops=tuple((plan.group_size, plan.rollouts) for plan in default),
    )


def _best_sets(fits: iso.Fits, question: Question) -> tuple[tuple[int, ...], ...] | None:
    """Allowed n inside the 80 % interval of the best n, at each target; at least the one nearest to it."""
    interval = fits.law_interval(question.targets, level=0.8)
    if interval is None:
        return None
    sets: list[tuple[int, ...]] = []
    for target, low, high in zip(question.targets, *interval, strict=True):
        sizes = question.sizes(target)
        inside = sizes[(sizes >= low * (1 - 1e-9)) & (sizes <= high * (1 + 1e-9))]
        sets.append(tuple(int(n) for n in inside) or (question.nearest(target, float(np.sqrt(low * high))),))
    return tuple(sets)


def conservative(runs: RunSet, question: Question) -> Answer:
    """The surface in conservative mode."""
    return surface(runs, question, "conservative")


METHODS: dict[str, Method] = {
    "surface": surface,
    "surface-conservative": conservative,
    "paper": paper,
    "paper-by-scipy": paper_by_scipy,
    "best-pilot-run": best_pilot_run,
}
DEFAULT_METHODS = ("surface", "paper", "best-pilot-run")


@dataclass(frozen=True)
class Row:
    """One method on one scenario at one target."""

    scenario: int
    family: str
    method: str
    ratio: float
    regret: float
    octaves_off: float
    """|log2 (chosen n / best n)|."""
    covered: dict[float, bool]
    """Level -> whether the interval holds the true reward of the chosen n."""
    set_covers: bool | None
    set_octaves: float | None
    failed: bool
    runs: int
    """Runs of the sweep."""
    loss: float
    """Reward lost, on the metric's own scale."""
    verdict: str | None
    left: float | None
    """Reward still to be had within the budget by who follows the default plan."""
    spent: float | None
    """Share of the budget that the default plan spends."""
    left_after_pilot: float
    """Reward that the best n gains from the pilot's largest compute to the target."""
    above_grid: bool
    """Whether the best n lies above the largest that was run."""
    absurd: bool
    """A chosen n that is not allowed, or an interval outside the metric's bounds."""
    seconds: float
    gain: float = float("nan")
    """Reward reached above the base model's, as a share of the range; not a number in rows of earlier releases."""


def examine(index: int, seed: int, methods: Sequence[str], families: Sequence[str] = FAMILIES) -> list[Row]:
    """All methods on one scenario; scenarios of one seed take the families in turn."""
    rng = np.random.default_rng([seed, index])
    scenario = draw_scenario(rng, families[index % len(families)])
    targets = tuple(ratio * scenario.largest_rollouts for ratio in RATIOS)
    levels = scenario.levels
    question = Question(targets, levels[0], levels[-1], scenario.problems_per_batch[0])
    rows: list[Row] = []
    for name in methods:
        begin = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            answer = METHODS[name](scenario.runs, question)
        seconds = time.perf_counter() - begin
        rows += [_judge(index, scenario, name, i, question, answer, seconds) for i in range(len(RATIOS))]
    return rows


def _judge(
    index: int, scenario: Scenario, name: str, which: int, question: Question, answer: Answer, seconds: float
) -> Row:
    target, chosen = question.targets[which], answer.chosen[which]
    best_n, best = scenario.best(target, question.n_min, question.n_max, MIN_UPDATE_STEPS)
    reward = float(scenario.true_reward(target, chosen))
    intervals = {level: pairs[which] for level, pairs in answer.intervals.items()}
    near = None if answer.best_sets is None else np.array(answer.best_sets[which], dtype=float)
    lost = None if near is None else (best - scenario.true_reward(target, near)) / scenario.reward_range
    stop = None if answer.stops is None else answer.stops[which]
    return Row(
        scenario=index,
        family=scenario.family,
        method=name,
        ratio=RATIOS[which],
        regret=max(best - reward, 0.0) / scenario.reward_range,
        octaves_off=abs(float(np.log2(chosen / best_n))),
        covered={level: low <= reward <= high for level, (low, high) in intervals.items()},
        set_covers=None if lost is None else bool(np.any(lost <= NEAR_BEST)),
        set_octaves=None if near is None else float(np.log2(near.max() / near.min())),
        failed=answer.failed,
        runs=len(scenario.design.runs),
        loss=max(best - reward, 0.0),
        verdict=None if answer.verdicts is None else answer.verdicts[which],
        left=None if stop is None else best - float(scenario.true_reward(stop[1], stop[0])),
        spent=None if stop is None else stop[1] / target,
        left_after_pilot=best - scenario.best(question.targets[0], question.n_min, question.n_max, MIN_UPDATE_STEPS)[1],
        above_grid=best_n > question.n_max,
        absurd=not question.allows(target, chosen) or any(not 0 <= a <= b <= 1 for a, b in intervals.values()),
        seconds=seconds,
        gain=(reward - scenario.truth.base_reward) / scenario.reward_range,
    )


def try_constants(index: int, seed: int, families: Sequence[str]) -> list[Tried]:
    """One scenario with every constant of `left_out`."""
    scenario = draw_scenario(np.random.default_rng([seed, index]), families[index % len(families)])
    levels, bp = scenario.levels, scenario.problems_per_batch[0]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fits = iso.fit(scenario.runs, METRIC)
    found: list[Tried] = []
    for ratio in RATIOS:
        target = ratio * scenario.largest_rollouts
        question = Question((target,), levels[0], levels[-1], bp)
        powers = [2**i for i in range(1, 31) if question.allows(target, 2**i)]
        chosen = chosen_by_charge(fits, target, powers or [levels[0]], bp)
        _, best = scenario.best(target, levels[0], levels[-1], MIN_UPDATE_STEPS)
        true = {n: float(scenario.true_reward(target, n)) for n in set(chosen.values())}
        regret = {charge: (best - true[n]) / scenario.reward_range for charge, n in chosen.items()}
        n = chosen[PER_SQUARED_OCTAVE]
        found.append(Tried(scenario.family, ratio, regret, held_by_factor(fits, target, n, bp, true[n])))
    return found


def _try_constants(job: tuple[int, int, Sequence[str]]) -> list[Tried]:
    return try_constants(*job)


def leave_one_out(scenarios: int, seed: int, families: Sequence[str], workers: int) -> str:
    """Constants chosen without each family in turn, as a Markdown table."""
    jobs = [(index, seed, tuple(families)) for index in range(scenarios)]
    with get_context("spawn").Pool(workers) as pool:
        return plain_table(left_out_records([one for found in pool.map(_try_constants, jobs, 4) for one in found]))


def run(
    scenarios: int, seed: int, methods: Sequence[str], families: Sequence[str] = FAMILIES, workers: int = 1
) -> Iterator[list[Row]]:
    """Rows of one scenario after another."""
    jobs = [(index, seed, tuple(methods), tuple(families)) for index in range(scenarios)]
    if workers == 1:
        yield from (examine(*job) for job in jobs)
        return
    # Processes start fresh: forked ones would inherit the state of a BLAS that has begun its threads.
    with get_context("spawn").Pool(workers) as pool:
        yield from pool.imap(_examine, jobs, chunksize=4)


def _examine(job: tuple[int, int, Sequence[str], Sequence[str]]) -> list[Row]:
    return examine(*job)


def summarise(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """One record per method, family (and all of them) and ratio."""
    records: list[dict[str, Any]] = []
    for method in dict.fromkeys(row.method for row in rows):
        for family in ("all", *(f for f in FAMILY_SETS["all"] if any(row.family == f for row in rows))):
            for ratio in RATIOS:
                part = [r for r in rows if r.method == method and r.ratio == ratio and family in ("all", r.family)]
                records.append({"method": method, "family": family, "ratio": ratio, **_summary(part)})
    return records


def _summary(rows: Sequence[Row]) -> dict[str, Any]:
    regret = np.array([row.regret for row in rows])
    tenth = -(-len(rows) // 10)
    # Where n hardly matters, any set covers: those scenarios count only in their own line.
    families = {row.family for row in rows}
    sets = [row for row in rows if len(families) == 1 or row.family != "insensitive"]
    covers = [float(row.set_covers) for row in sets if row.set_covers is not None]
    widths = [row.set_octaves for row in sets if row.set_octaves is not None]
    found: dict[str, Any] = {
        "scenarios": len(rows),
        "mean": float(regret.mean()),
        "stderr": float(regret.std(ddof=1) / np.sqrt(len(regret))) if len(regret) > 1 else None,
        "median": float(np.median(regret)),
        "p90": float(np.quantile(regret, 0.9)),
        "worst": float(np.sort(regret)[-tenth:].mean()),
        "least_gain": float(np.sort([row.gain for row in rows])[:tenth].mean()),
        "octaves": float(np.median([row.octaves_off for row in rows])),
        "set_coverage": float(np.mean(covers)) if covers else None,
        "set_octaves": float(np.median(widths)) if widths else None,
        "failed": sum(row.failed for row in rows),
        "absurd": sum(row.absurd for row in rows),
        "seconds": float(np.median([row.seconds for row in rows])),
    }
    for level in LEVELS:
        inside = [float(row.covered[level]) for row in rows if level in row.covered]
        found[f"coverage_{level:.0%}"] = float(np.mean(inside)) if inside else None
    return found


def by_size(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Share of 80 % intervals that hold, by number of runs and ratio, with its 95 % binomial interval."""
    records: list[dict[str, Any]] = []
    least = 0
    for name, most in SIZES.items():
        for ratio in RATIOS:
            part = [r.covered[0.8] for r in rows if least < r.runs <= most and r.ratio == ratio and r.covered]
            if part:
                low, high = wilson(sum(part), len(part))
                share = float(np.mean(part))
                records.append({"runs": name, "ratio": ratio, "N": len(part), "80 %": share, "low": low, "high": high})
        least = most
    return records


def wilson(hits: int, count: int, z: float = 1.96) -> tuple[float, float]:
    """95 % interval of a share, by Wilson's formula."""
    share, denominator = hits / count, 1 + z**2 / count
    centre = (share + z**2 / (2 * count)) / denominator
    half = z * float(np.sqrt(share * (1 - share) / count + z**2 / (4 * count**2))) / denominator
    return centre - half, centre + half


def verdicts(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """What each verdict was said of and lost, and how stops fared, over all ratios and by ratio."""
    records: list[dict[str, Any]] = []
    said = [r for r in rows if r.verdict is not None]
    for ratio in (None, *RATIOS):
        part = [r for r in said if ratio in (None, r.ratio)]
        for kind in sorted({str(r.verdict) for r in part}):
            mine = [r for r in part if r.verdict == kind]
            records.append(
                {
                    "ratio": "all" if ratio is None else ratio,
                    "verdict": kind,
                    "share": len(mine) / len(part),
                    "loses > .01": float(np.mean([r.loss > MATERIAL for r in mine])),
                    "> .01 left": float(np.mean([(r.left or 0.0) > MATERIAL for r in mine])),
                }
            )
        little = [r for r in part if r.ratio > 1 and r.left_after_pilot < IMMATERIAL]
        if little:
            eased = float(np.mean([r.verdict == "stop-spending" or (r.spent or 1.0) < 0.9 for r in little]))
            records.append({"ratio": ratio or "all", "verdict": "(little left) stops or spends less", "share": eased})
    return records


COLUMNS = {
    "method": "method", "family": "family", "ratio": "x", "scenarios": "N", "mean": "regret", "stderr": "+-",
    "median": "median", "p90": "p90",
    "worst": "worst tenth", "least_gain": "least tenth of gains", "octaves": "octaves",
    "coverage_80%": "80 %", "coverage_90%": "90 %",
    "set_coverage": "n* set", "set_octaves": "width", "failed": "failed", "absurd": "absurd", "seconds": "s",
}  # fmt: skip


def table(records: Sequence[dict[str, Any]]) -> str:
    """A Markdown table."""
    lines = ["| " + " | ".join(COLUMNS.values()) + " |", "|" + "---|" * len(COLUMNS)]
    lines += ["| " + " | ".join(_cell(record[name]) for name in COLUMNS) + " |" for record in records]
    return "\n".join(lines)


def plain_table(records: Sequence[dict[str, Any]]) -> str:
    """A Markdown table with the records' own keys as columns."""
    names = list(dict.fromkeys(name for record in records for name in record))
    lines = ["| " + " | ".join(names) + " |", "|" + "---|" * len(names)]
    lines += ["| " + " | ".join(_cell(record.get(name)) for name in names) + " |" for record in records]
    return "\n".join(lines)


def _cell(value: object) -> str:
    if value is None:
        return ""
    return (
        f"{value:.3g}"
        if isinstance(value, float) and value >= 1
        else (f"{value:.3f}" if isinstance(value, float) else str(value))
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark from the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--scenarios", type=int, default=300)
    parser.add_argument("--seed", type=int, default=TUNING_SEED, help=f"tuning {TUNING_SEED}, test {TEST_SEED}")
    parser.add_argument("--methods", nargs="+", choices=sorted(METHODS), default=DEFAULT_METHODS)
    parser.add_argument("--families", nargs="+", default=["formula"], help=f"names, or {', '.join(FAMILY_SETS)}")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--json", type=Path, help="write every row and the summary here")
    parser.add_argument("--leave-one-out", action="store_true", help="choose constants without each family in turn")
    options = parser.parse_args(arguments)
    families = [name for one in options.families for name in FAMILY_SETS.get(one, (one,))]
    if options.leave_one_out:
        sys.stdout.write(leave_one_out(options.scenarios, options.seed, families, options.workers) + "\n")
        return 0
    rows = [
        row
        for found in run(options.scenarios, options.seed, options.methods, families, options.workers)
        for row in found
    ]
    records = summarise(rows)
    sys.stdout.write(f"{options.scenarios} simulated scenarios, seed {options.seed}\n\n{table(records)}\n")
    for more in (by_size(rows), verdicts(rows)):
        sys.stdout.write(f"\n{plain_table(more)}\n")
    if options.json is not None:
        document = {"seed": options.seed, "summary": records, "rows": [asdict(row) for row in rows]}
        options.json.write_text(json.dumps(document, indent=1), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
