"""`audit`: group runs that may be compared, fit each group, and judge every run against the fit.

Configurations are compared, not single runs: a surface gives rewards averaged over runs, so the luck of one run is not
read as an effect of its n. Differences are paired over the surface's draws.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from isocompute_sdk import api
from isocompute_sdk.auditing.result import Audit, GroupAudit, RunAudit, Standing
from isocompute_sdk.errors import FitError, PlanError
from isocompute_sdk.fitting.arguments import check_level, metric_range, whole_number
from isocompute_sdk.fitting.arrays import Array
from isocompute_sdk.fitting.fit_parts import Configuration
from isocompute_sdk.fitting.fits import Fits
from isocompute_sdk.fitting.measured_runs import MeasuredRuns, check_bounds, grouped, left_out
from isocompute_sdk.fitting.surface.answers import estimate, estimate_of_cost, first_reach
from isocompute_sdk.health.detectors import falls
from isocompute_sdk.health.findings import FALLS, Finding
from isocompute_sdk.notes import Note, unique
from isocompute_sdk.phrases import joined, short
from isocompute_sdk.planning import Plan, Planner
from isocompute_sdk.records import RunSet
from isocompute_sdk.records.comparable import check_pool
from isocompute_sdk.records.grouping import Group, Measure, choose_measure, differences, measured_as
from isocompute_sdk.records.runset import RunSeries, check_runs

SURE = 2.0
"""A tie needs an interval of the difference that ends below this many ties."""
FORECAST = 3.0
"""A configuration is compared up to this many times the compute of its last evaluation (docs/allocation.md)."""
SEEN = 1.25
"""A configuration counts as measured up to this many times the compute of its last evaluation."""
ABOVE = 4.0
"""Equal rewards are searched up to this many times the largest compute."""
PER_OCTAVE = 8

CARRIED = (
    "backtest-missed",
    "base-reward-unmeasured",
    "group-size-confounded",
    "low-last-evaluation",
    "one-seed-per-cell",
    "outlying-run",
)
"""Notes of a fit that an audit passes on; the others repeat what the audit itself says."""

OF_READING = ("column-assumed", "run-left-out", "sources-disagree")
"""Notes of the reader on what columns were taken for, and on copies."""


def audit(
    runs: RunSet,
    metric: str | None = None,
    eval_set: str | None = None,
    *,
    pool: Collection[str] = (),
    level: float = 0.8,
    bounds: tuple[float, float] = (0.0, 1.0),
    rng: np.random.Generator | int | None = None,
    draws: int = 200,
    left_out: Mapping[str, str] | None = None,
) -> Audit:
    """Compare each run and each n of existing runs with the best known n at the same compute.

    Runs are grouped by context (model, data, recipe). A run with unknown fields joins the only group it does not
    contradict. Each group is fitted separately; `GroupAudit.reason` says why one could not be fitted.

    Args:
        runs: runs of any number of models and studies.
        metric: metric to compare. None: avg@4, else the one that most runs have.
        eval_set: evaluation set. None: `validation`, else the one that most runs have.
        pool: context fields that may differ within a group.
        level: coverage of intervals.
        bounds: range of the metric; a value outside is an error.
        rng: generator or seed. None: a fixed seed.
        draws: draws from each group's posterior.
        left_out: files and columns that could not be read -> reason; shown beside the runs without the metric.

    Raises:
        RecordError: no run has the metric or the evaluation set.
        FitError: an unknown context field in `pool`, a level outside (0, 1), a reward outside `bounds`.
    """
    check_runs(runs)
    level = check_level(level)
    pool = check_pool(pool)
    bounds = metric_range(bounds)
    draws = whole_number("draws", draws)
    rng = rng if rng is None or isinstance(rng, np.random.Generator) else whole_number("rng", rng)
    measure = choose_measure(runs, metric, eval_set, bounds)
    table = runs.filter(eval_set=measure.eval_set)
    measured = MeasuredRuns.of(table, measure.metric, measure.eval_set, stand_in=True)
    series = {one.run_id: one for one in measured.series}
    check_bounds(series.values(), measure.metric, bounds)
    trained = {run for run, one in series.items() if one.rollouts_T[-1] > 0} or set(series)
    infos = [info for info in runs.runs() if info.run_id in trained]
    absent = dict(left_out or {})
    for info in runs.runs():
        if info.run_id not in trained:
            when = "after step 0" if info.run_id in series else f"on {measure.eval_set}"
            absent[info.run_id] = f"no {measure.metric} {when}"
    found = grouped(infos, series, measure.bounds, pool)
    seed = api.DEFAULT_SEED if rng is None else rng
    audited = [
        _audit_group(str(i + 1), group, runs, series, measure, level, np.random.default_rng(seed), draws)
        for i, group in enumerate(found)
    ]
    return Audit(
        metric=measure.metric,
        eval_set=measure.eval_set,
        bounds=measure.bounds,
        level=level,
        groups=tuple(audited),
        left_out=absent,
        apart=tuple(_apart(found, pool)),
        notes=unique([*measure.notes, *(note for note in runs.notes if note.code in OF_READING)]),
    )


def _audit_group(
    name: str,
    group: Group,
    runs: RunSet,
    series: Mapping[str, RunSeries],
    measure: Measure,
    level: float,
    rng: np.random.Generator,
    draws: int,
) -> GroupAudit:
    members = [series[info.run_id] for info in group.runs]
    fell = falls(runs.filter(run_id=[one.run_id for one in members]), measure.metric, measure.eval_set)
    plain = tuple(_plain_run(one, fell.get(one.run_id)) for one in members)
    spent = float(sum(run.rollouts for run in plain))
    try:
        fits = _fit(group, runs, measure, rng, draws)
    except FitError as error:
        reason = error.message
        return GroupAudit(
            name, group.context, plain, sentence=f"not fitted: {reason}", reason=reason, spent=spent, notes=group.notes
        )
    # The fit leaves them out: what others of their n reached is no merit of theirs.
    unused = left_out(fits.notes)
    still = {one.run_id: float(one.value_T.mean()) for one in members if one.run_id in unused}
    field = Field.of(fits, [run for run in plain if run.run_id not in still])
    sets = [None if info.context["n_problems"] is None else float(info.context["n_problems"]) for info in group.runs]
    if field.fits.surface is None or field.fits.surface.layout.set_reference is None:
        sets = [None] * len(sets)
    paths = {n_problems: field.path(n_problems) for n_problems in set(sets)}
    judged = [
        _judge(field, run, n_problems, paths[n_problems], level, still.get(run.run_id))
        for run, n_problems in zip(plain, sets, strict=True)
    ]
    if fits.no_rise:
        # The prior alone would speak.
        judged = [(run, np.zeros(1)) for run in plain]
    plan = _decided(fits)
    several, equal_RD = len(field.reach) > 1 and not fits.no_rise, np.array([equal_D for _, equal_D in judged])
    return GroupAudit(
        name=name,
        context=group.context,
        runs=tuple(run for run, _ in judged),
        decided_at=None if plan is None else float(plan.rollouts),
        verdict=None if plan is None else plan.verdict,
        sizes=() if plan is None else plan.alternatives,
        sentence=_sentence(fits, plan),
        spent=spent,
        equal_reward=estimate_of_cost(equal_RD.sum(axis=0), level) if several else None,
        notes=unique([*group.notes, *(note for note in fits.notes if _carried(note, group, fits))]),
        fits=fits,
    )


def _decided(fits: Fits) -> Plan | None:
    """The plan for the largest compute of these runs, all of it spent and no n above them; None if it pays for none."""
    planner = Planner(fits, allow_off_policy=True)
    try:
        return planner.allocate(
            fits.largest_compute or 0.0, min_update_steps=1, spend="all", mode="conservative", beyond_grid=0, slots=0
        )
    except PlanError:
        return None


def _sentence(fits: Fits, plan: Plan | None) -> str:
    for note in fits.no_rise:
        return note.message
    if fits.only_size or plan is None:
        return fits.only_size or "no n can be compared"
    problems = sorted({one.problems_per_batch for one in (plan, *plan.alternatives)})
    each = f" and B_p = {joined([*map(str, problems)])}" if len({bp for _, bp in fits.curves}) > 1 else ""
    # A group of several problem sets is judged on the one that a plan takes.
    on = "" if fits.n_problems is not None or plan.n_problems is None else f" on {plan.n_problems:,} problems"
    return f"at {short(plan.budget.amount)} rollouts{on}{each}: {plan.verdict.sentence}"


def _fit(group: Group, runs: RunSet, measure: Measure, rng: np.random.Generator, draws: int) -> Fits:
    # With all that they logged, as `fit` has them: best@k says how a curve goes on.
    table = runs.filter(run_id={info.run_id for info in group.runs})
    # If every run has a replacement, the replacement is the metric.
    known = table.filter(eval_set=measure.eval_set).metrics
    metric = measured_as(measure.metric, known) or measure.metric
    found = api.fit(table, metric, measure.eval_set, rng=rng, draws=draws, bounds=measure.bounds, pool=group.pooled)
    if not found.curves:
        raise FitError("no evaluation after step 0", "Evaluate during training.")
    return found


def _plain_run(one: RunSeries, fell: Finding | None) -> RunAudit:
    value = one.value_T
    return RunAudit(
        run_id=one.run_id,
        group_size=one.group_size,
        problems_per_batch=one.problems_per_batch,
        seed=one.seed,
        rollouts=float(one.rollouts_T[-1]),
        evaluations=len(value),
        reached=float(value.max()),
        fault=None if fell is None else FALLS[fell.code],
        fault_rollouts=None if fell is None else fell.rollouts,
    )


def _carried(note: Note, group: Group, fits: Fits) -> bool:
    if note.code in ("plateau-unidentified", "outlying-evaluations"):
        return note.code in fits.doubts and not fits.no_rise
    # A field on which the stated values agree is covered by the note context-taken-for-granted.
    return note.code in CARRIED and not (note.code == "group-size-confounded" and note.data["field"] in group.context)


def _apart(groups: Sequence[Group], pool: Collection[str]) -> list[str]:
    """Why each group cannot be compared with the earlier group that it resembles most."""
    found: list[str] = []
    for i, group in enumerate(groups[1:], start=1):
        between = [differences(group, other, pool) for other in groups[:i]]
        nearest = min(range(i), key=lambda j: len(between[j]))
        differing = "; ".join(
            f"{name} ({_value(mine)} and {_value(other)})" for name, (mine, other) in between[nearest].items()
        )
        why = f"differ in {differing}" if differing else "stay apart: their unstated context fields fit several groups"
        found.append(f"groups {i + 1} and {nearest + 1} {why}")
    return found


def _value(value: Any) -> str:
    if isinstance(value, list):
        return " and ".join(map(_value, value))
    return "not stated" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


@dataclass(frozen=True, eq=False)
class Path:
    """The best known configuration at every compute of a grid, with its drawn rewards."""

    compute_G: Array
    best_G: Sequence[Configuration]
    reward_DG: Array


@dataclass(frozen=True, eq=False)
class Field:
    """The fitted configurations of a group, against which its runs are judged."""

    fits: Fits
    reach: Mapping[Configuration, tuple[float, float]]
    """First and last compute at which each configuration was evaluated after step 0."""

    @classmethod
    def of(cls, fits: Fits, runs: Sequence[RunAudit]) -> Field:
        """Build it from a group's fits and runs; evaluations after a collapse do not count."""
        last = {key: curve.first_compute for key, curve in fits.curves.items()}
        for run in runs:
            key = (run.group_size, run.problems_per_batch)
            last[key] = max(last.get(key, 0.0), run.useful if run.fault == "collapse" else run.rollouts)
        return cls(fits, {key: (curve.first_compute, last[key]) for key, curve in fits.curves.items()})

    def known_at(self, compute: float) -> list[Configuration]:
        """Configurations whose evaluations reach this compute, or come within `FORECAST` of it; else all."""
        begun = max(compute, min(first for first, _ in self.reach.values()))
        known = [key for key, (first, last) in self.reach.items() if first <= begun and compute <= FORECAST * last]
        return known or list(self.reach)

    def draws(self, compute_G: Array, keys: Sequence[Configuration], n_problems: float | None) -> Array:
        """Rewards of configurations, shape (D, G, K)."""
        assert self.fits.surface is not None, "an audit fits a surface"
        sizes = np.array([n for n, _ in keys], dtype=float)
        problems = np.array([np.nan if bp is None else bp for _, bp in keys], dtype=float)
        shape = (len(compute_G), len(keys))
        at, n, bp = (np.broadcast_to(a, shape).ravel() for a in (compute_G[:, None], sizes, problems))
        return self.fits.surface.draws(at, n, bp, n_problems).reshape(-1, *shape)

    def path(self, n_problems: float | None) -> Path:
        """The configuration with the largest expected reward at every compute.

        Not the best of each draw: nobody could have chosen that one.
        """
        keys = list(self.reach)
        low = min(first for first, _ in self.reach.values()) / 2
        high = ABOVE * max(last for _, last in self.reach.values())
        compute_G = np.geomspace(low, high, int(np.ceil(np.log2(high / low) * PER_OCTAVE)) + 1)
        reward_DGK = self.draws(compute_G, keys, n_problems)
        allowed_GK = np.array([[key in known for key in keys] for known in map(self.known_at, compute_G)])
        best = np.argmax(np.where(allowed_GK, np.round(reward_DGK.mean(axis=0), 12), -np.inf), axis=1)
        reward_DG = np.take_along_axis(reward_DGK, best[None, :, None], axis=2)[:, :, 0]
        return Path(compute_G, [keys[k] for k in best], reward_DG)


def _judge(
    field: Field, run: RunAudit, n_problems: float | None, path: Path, level: float, measured: float | None
) -> tuple[RunAudit, Array]:
    """One run with its standing in its group, and draws of the rollouts that reach its reward at the best known n.

    Its reward is that of its n, or what it measured where that is given.
    """
    own = (run.group_size, run.problems_per_batch)
    useful = max(run.useful, min(first for first, _ in field.reach.values()))
    known = field.known_at(run.rollouts)
    reward_DK = field.draws(np.array([run.rollouts]), known, n_problems)[:, 0]
    place = int(np.argmax(np.round(reward_DK.mean(axis=0), 12)))
    best, there_D = known[place], reward_DK[:, place]
    here_D = field.draws(np.array([useful]), [own], n_problems)[:, 0, 0]
    if measured is not None:
        here_D, own = np.full(len(here_D), measured), None
    behind = estimate(there_D - here_D, level)
    equal_D = np.full(len(here_D), useful)
    if best != own:
        equal_D = np.exp(first_reach(np.log(path.compute_G), path.reward_DG, here_D)[0])
    tie = field.fits.tolerances.equal
    standing: Standing = "undecided"
    if len(field.reach) == 1 and run.fault is None:
        standing = "alone"
    elif own == best and run.fault != "collapse":
        standing = "best"
    elif behind.low > 0 and behind.mean > tie:
        standing = "behind"
    elif behind.mean <= tie and behind.high <= SURE * tie:
        standing = "level"
    judged = replace(
        run,
        standing=standing,
        expected=float(here_D.mean()),
        best_group_size=best[0],
        best_problems_per_batch=best[1],
        best_reward=float(there_D.mean()),
        behind=behind,
        equal_reward=estimate_of_cost(equal_D, level),
        forecast=field.reach[best][1] * SEEN < run.rollouts,
    )
    return judged, equal_D
