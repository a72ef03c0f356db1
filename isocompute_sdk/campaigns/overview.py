"""`Overview`: how far a study is, what it has spent by kind, and which n is best so far."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np

from isocompute_sdk import api
from isocompute_sdk.campaigns.campaign import CAMPAIGN, FITS, PLAN, REFIT, SETTINGS, CampaignSettings
from isocompute_sdk.campaigns.control import Controller, controller_of
from isocompute_sdk.campaigns.costs import Cost, run_cost
from isocompute_sdk.campaigns.decisions import Decisions, read_decisions
from isocompute_sdk.campaigns.study_changes import STUDY, STUDY_FILE
from isocompute_sdk.errors import IsoComputeError
from isocompute_sdk.fitting.fits import Fits
from isocompute_sdk.planning import Plan
from isocompute_sdk.records import RunSet
from isocompute_sdk.records.rewards import with_leading
from isocompute_sdk.run_folders import store
from isocompute_sdk.run_folders.store import RunStatus
from isocompute_sdk.specs import Study
from isocompute_sdk.timing.spending import seconds_left, spending
from isocompute_sdk.training import registry
from isocompute_sdk.training.backend import Backend, follow

Kind = Literal["qualification", "pilot", "plan", "evaluation"]
KINDS: tuple[Kind, ...] = ("qualification", "pilot", "plan", "evaluation")
HELD = 0.8
"""Probability that the set of the best n holds."""


@dataclass(frozen=True)
class Spent:
    """What runs of one kind have cost. Amounts are None if unknown."""

    rollouts: float = 0.0
    tokens: float | None = None
    gpu_hours: float | None = None
    usd: float | None = None

    def __add__(self, other: Spent) -> Spent:
        def both(name: str) -> float | None:
            one, two = getattr(self, name), getattr(other, name)
            return (one or 0.0) + (two or 0.0) if one is not None or two is not None else None

        return Spent(self.rollouts + other.rollouts, both("tokens"), both("gpu_hours"), both("usd"))

    def share(self, part: float) -> Spent:
        """A part of it."""

        def times(value: float | None) -> float | None:
            return None if value is None else value * part

        return Spent(self.rollouts * part, times(self.tokens), times(self.gpu_hours), times(self.usd))


@dataclass(frozen=True)
class BestSoFar:
    """The best n by the runs so far."""

    group_size: int
    sizes: tuple[int, ...]
    """Smallest set of n that holds the best with 80 % probability."""
    rollouts: float
    """At which they are compared: the budget, or the largest compute of a run."""
    reward: float
    metric: str


@dataclass(frozen=True)
class Overview:
    """A study at one moment."""

    study: Study
    folder: Path
    statuses: tuple[RunStatus, ...]
    kinds: Mapping[str, Spent]
    """Kind -> cost."""
    left: float | None
    """Of the budget, in its unit; None without a budget or where what was spent is unknown."""
    controller: Controller | None
    seconds_left: float | None
    """Until the runs that go on or wait are done; None if no run says how fast it is."""
    seconds_of_budget: float | None
    """Until what is left of the budget is spent, at the speed of these runs; None if unknown."""
    stage: str
    """What is going on, in a few words."""
    decisions: Decisions | None


def find_study(folder: Path) -> tuple[Study, CampaignSettings | None] | None:
    """The study that a folder is the campaign or the study folder of; None if it is neither."""
    if CAMPAIGN.holds(folder / SETTINGS):
        settings = CAMPAIGN.load(folder / SETTINGS)
        return settings.study, settings
    if STUDY.holds(folder / STUDY_FILE):
        return STUDY.load(folder / STUDY_FILE), None
    return None


def overview(folder: Path) -> Overview | None:
    """How far the study of a folder is; None if the folder is not that of a study or a campaign.

    Raises:
        IsoComputeError: a record is damaged.
    """
    found = find_study(folder)
    if found is None:
        return None
    study, _ = found
    try:
        places = store.find_runs(folder)
    except IsoComputeError:
        places = ()
    backend = registry.load(study.backend)
    statuses = tuple(follow(backend, place).status() for place in places)
    taken = read_decisions(folder) if study.designed is not None else None
    kinds = _by_kind(study, statuses, backend, taken)
    left, budget = None, study.budget
    if budget is not None:
        counted = [kinds[kind] for kind in KINDS if kind != "evaluation" or budget.unit in ("gpu_hours", "usd")]
        # A sweep is paid for beside the budget of its study.
        counted = counted if study.designed is not None else [kinds["plan"]]
        amounts = [getattr(one, budget.unit) for one in counted]
        if any(amount is not None for amount in amounts):
            left = budget.available - sum(amount or 0.0 for amount in amounts)
    return Overview(
        study,
        folder,
        statuses,
        kinds,
        left,
        _controller(folder, places),
        *_seconds_left(statuses, left if budget is not None and budget.unit == "rollouts" else None),
        _stage(folder, study, statuses, taken),
        taken,
    )


def best_so_far(folder: Path, study: Study) -> BestSoFar | None:
    """The best n by the newest fit on file, else by a fit of what was measured; None if that is too little."""
    fits = next((Fits.load(folder / name) for name in (REFIT, FITS) if (folder / name).exists()), None)
    try:
        fits = _fitted(folder, study) if fits is None else fits
        return _best(fits, study)
    except IsoComputeError:
        return None


def _best(fits: Fits, study: Study) -> BestSoFar | None:
    if fits.surface is None or fits.largest_compute is None:
        return None
    budget = study.budget
    at = budget.amount if budget is not None and budget.unit == "rollouts" else fits.largest_compute
    odds = fits.group_size_odds(max(at, fits.largest_compute))
    best = odds.best()
    order = [best, *(int(i) for i in np.argsort(-odds.probability_best) if int(i) != best)]
    total, held = 0.0, list[int]()
    for place in order:
        if total >= HELD * float(odds.probability_best.sum()):
            break
        held.append(int(odds.group_size[place]))
        total += float(odds.probability_best[place])
    return BestSoFar(
        int(odds.group_size[best]), tuple(sorted(held)), odds.compute, float(odds.reward[best]), fits.metric
    )


def _fitted(folder: Path, study: Study) -> Fits:
    backend, metric = registry.load(study.backend), f"avg@{study.evaluation.samples}"
    specs = {place: store.read_spec(place) for place in store.find_runs(folder)}
    own = [place for place, spec in specs.items() if spec is not None and spec.recipe == study.recipe]
    found: list[RunSet] = []
    for place in own:
        try:
            found.append(backend.read_records(place))
        except IsoComputeError:
            continue
    runs = found[0].concat(*found[1:]) if found else RunSet.from_columns({})
    return api.fit(with_leading(runs, metric, "validation"), metric, "validation", pool=("learning_rate",))


def _by_kind(
    study: Study, statuses: Sequence[RunStatus], backend: Backend, taken: Decisions | None
) -> dict[str, Spent]:
    kinds = {kind: Spent() for kind in KINDS}
    for status in statuses:
        cost = run_cost(status.folder, backend, study.throughput, study.hardware, status)
        if cost.on_cpu and (study.budget is None or not study.budget.timed):
            cost = replace(cost, gpu_hours=None, evaluation_hours=None, usd=None)
        training, evaluation = _split(cost)
        kinds["evaluation"] += evaluation
        for kind, part in _parts(status, taken).items():
            kinds[kind] += training.share(part)
    return kinds


def _split(cost: Cost) -> tuple[Spent, Spent]:
    """Training with starts and losses, and evaluation."""
    hours, price = cost.evaluation_hours, None
    if cost.usd is not None and cost.gpu_hours:
        price = cost.usd / cost.gpu_hours
    evaluation = Spent(cost.evaluation_rollouts, None, hours, None if price is None or hours is None else price * hours)
    left = None if cost.gpu_hours is None else max(cost.gpu_hours - (hours or 0.0), 0.0)
    training = Spent(float(cost.rollouts), cost.tokens, left, None if price is None or left is None else price * left)
    return training, evaluation


def _parts(status: RunStatus, taken: Decisions | None) -> dict[Kind, float]:
    """Shares of a run's cost by kind: a run may begin as a check, go on as a pilot run, and end as the plan."""
    if taken is None:
        return {"plan" if status.run_id.startswith("plan-") else "pilot": 1.0}
    checks = {one.run_id: one for one in ([] if taken.checks is None else taken.checks.runs)}
    chosen = {one.run_id: one.rollouts for one in taken.pilot_runs()}
    endings = {ending.run.run_id: ending for ending in taken.endings}
    total, name = float(max(status.rollouts, 1)), status.run_id
    check = float(checks[name].rollouts) if name in checks else 0.0
    if name not in endings:
        return {"qualification": min(check / total, 1.0), "pilot": max(1.0 - check / total, 0.0)}
    before = float(chosen.get(name, 0.0)) if endings[name].continues is not None else 0.0
    before = max(before, check)
    return {
        "qualification": min(check / total, 1.0),
        "pilot": max(min(before / total, 1.0) - check / total, 0.0),
        "plan": max(1.0 - before / total, 0.0),
    }


def _controller(folder: Path, places: Sequence[Path]) -> Controller | None:
    folders = dict.fromkeys((folder, *(place.parent for place in places)))
    return next((found for one in folders if (found := controller_of(one)) is not None), None)


def _seconds_left(statuses: Sequence[RunStatus], left: float | None) -> tuple[float | None, float | None]:
    """Until the runs are done, and until `left` rollouts are, each run that is under way at its mean speed."""
    speed = 0.0
    for status in statuses:
        if status.state != "running" or not status.step or status.update_steps is None:
            continue
        hours = spending([status.folder])
        used = 3600 * (hours.training_hours + hours.evaluation_hours)
        if used:
            speed += status.rollouts / used
    return seconds_left(statuses), left / speed if left is not None and speed else None


def _stage(folder: Path, study: Study, statuses: Sequence[RunStatus], taken: Decisions | None) -> str:
    finished = sum(status.state == "finished" for status in statuses)
    if (folder / REFIT).exists():
        return "done"
    if (folder / PLAN).exists():
        plan = Plan.load(folder / PLAN)
        return f"training the plan: n = {plan.group_size}, B_p = {plan.problems_per_batch}"
    if taken is None:
        total = len(study.expand()) if study.sweep is not None else len(statuses)
        return f"sweep: {finished} of {total} runs finished"
    if not taken.rounds:
        return "checking the recipe" if taken.qualified is None else taken.qualified.reason
    number = len(taken.rounds)
    stops = [look.reason for look in taken.looks.get(number, ()) if any(one.stopped for one in look.judged)]
    now = stops[-1] if stops else taken.rounds[-1].reason
    return "pilot is over" if taken.ended else f"pilot, round {number}: {now}"
