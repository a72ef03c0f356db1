"""`Overview`: how far a study is, what it has spent by kind, and which n is best so far."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Any

from isocompute_sdk.campaigns.campaign import CAMPAIGN, FITS, PLAN, REFIT, SETTINGS, Campaign, CampaignSettings
from isocompute_sdk.campaigns.campaign import STUDY as STUDY_COPY
from isocompute_sdk.campaigns.carrying_out import records_of
from isocompute_sdk.campaigns.control import STUDY, STUDY_FILE, Controller, controller_of
from isocompute_sdk.campaigns.pilot_rounds import Decision, read_decisions
from isocompute_sdk.campaigns.study_runs import Cost, StudyRuns
from isocompute_sdk.errors import IsoComputeError, PlanError, RecordError
from isocompute_sdk.fitting.fits import Fits, FitsSet
from isocompute_sdk.phrases import counted, listed
from isocompute_sdk.planning import Plan, Planner
from isocompute_sdk.records import RunSet
from isocompute_sdk.run_folders import store
from isocompute_sdk.run_folders.store import RunStatus
from isocompute_sdk.specs import Allocation, Budget, Study
from isocompute_sdk.timing.spending import seconds_for, seconds_left
from isocompute_sdk.training import registry
from isocompute_sdk.training.backend import follow


@dataclass(frozen=True)
class Overview:
    """A study at one moment."""

    study: Study
    folder: Path
    statuses: tuple[RunStatus, ...]
    kinds: Mapping[str, Cost]
    """What pilot, plan and evaluation have cost."""
    left: float | None
    """Of the budget, in its unit; None without a budget or where what was spent is unknown."""
    controller: Controller | None
    seconds_left: float | None
    """Until the runs that go on or wait are done; None if no run says how fast it is."""
    seconds_of_budget: float | None
    """Until what is left of the budget is spent, at the speed of these runs; None if unknown."""
    stage: str
    """What is going on, in a few words."""
    done: bool
    """Whether nothing is left for a controller."""


def campaign_around(file: Path, study: Study) -> CampaignSettings | None:
    """The campaign in whose folder a study's file and its runs lie, as the quickstart's; None of other studies."""
    runs = file.parent / study.output_dir / study.name
    return CAMPAIGN.load(file.parent / SETTINGS) if runs.is_dir() and CAMPAIGN.holds(file.parent / SETTINGS) else None


def runs_begun(file: Path, study: Study) -> Path | None:
    """The folder of the runs of a study's file, if one of them has begun."""
    # A study by hand trains where it is started, a campaign beside its study file.
    places = [base / study.output_dir / study.name for base in (Path(), file.parent)]
    return next((place for place in places if any(map(store.has_begun, place.glob("*/")))), None)


def begun_runs(file: Path, study: Study) -> tuple[Allocation, ...]:
    """The runs of a study's file that have begun, as studies name them, at the length that they have."""
    folder, found = runs_begun(file, study), list[Allocation]()
    for place in () if folder is None else store.find_runs(folder):
        spec = store.read_spec(place)
        if spec is None or not store.has_begun(place) or spec.run_id.startswith("plan-"):
            continue
        rate, size = spec.recipe.learning_rate_anchor, ("group_size", "problems_per_batch", "update_steps", "seed")
        own = {} if rate == study.recipe.learning_rate_anchor else {"learning_rate_anchor": rate}
        found.append(Allocation.model_validate({**{name: getattr(spec, name) for name in size}, **own}))
    return tuple(found)


def folder_of(file: Path, study: Study) -> Path | None:
    """Where the runs of a study's file lie, or the campaign with them; None if none of them has begun."""
    begun = runs_begun(file, study)
    return begun if begun is None or campaign_around(file, study) is None else file.parent


def study_around(folder: Path) -> tuple[Study, Path] | None:
    """The study that a folder is of, with the folder; None of other folders.

    Raises:
        RecordError: none of its runs has measured anything.
    """
    study = study_of(folder)
    if study is None:
        return None
    if not any(map(store.has_begun, _places(folder))):
        file = study_file(folder)
        start = f": isocompute run {quote(str(file))}" if file is not None else " with its file"
        raise RecordError(f"no run of {study.name} in {folder} has measured anything yet", f"Run the study{start}.")
    return study, folder


def _places(folder: Path) -> tuple[Path, ...]:
    """The folders of the runs in a folder; none where there are none."""
    try:
        return store.find_runs(folder)
    except IsoComputeError:
        return ()


def study_of(folder: Path) -> Study | None:
    """The study that a folder is the campaign or the study folder of; None if it is neither.

    Raises:
        IsoComputeError: the record of a campaign is damaged.
    """
    # Another program may write a file of this name, but no decisions beside it.
    if CAMPAIGN.holds(folder / SETTINGS) or ((folder / SETTINGS).exists() and read_decisions(folder)):
        return CAMPAIGN.load(folder / SETTINGS).study
    return STUDY.load(folder / STUDY_FILE) if STUDY.holds(folder / STUDY_FILE) else None


@dataclass(frozen=True)
class Question:
    """How the study or campaign in a folder asks for a plan."""

    planner: Planner
    budget: Budget
    """With what its runs have spent."""
    options: Mapping[str, Any]
    """Arguments of `Planner.allocate` besides the budget."""


def question(study: Study, folder: Path, fits: Fits | FitsSet, budget: Budget | None = None, **given: Any) -> Question:
    """What the study or campaign in a folder asks its planner, as its next start would.

    Args:
        study: the study.
        folder: where its runs lie.
        fits: of its runs.
        budget: in place of the study's; another deadline than the study's begins now.
        given: arguments of `Planner` in place of the study's.

    Raises:
        PlanError: nothing is left of the budget, or it is the study's own and its plan was trained.
    """
    saved = CAMPAIGN.load(folder / SETTINGS) if CAMPAIGN.holds(folder / SETTINGS) else None
    own, trained = study.budget, study.budget if saved is None else saved.study.budget
    asked = own if budget is None else budget if own is None else budget.in_place_of(own)
    if asked is None:
        raise PlanError(f"study {study.name!r} has no budget", "Add budget: to the study, or give one: --budget 3M.")
    kept = {} if saved is None else saved.plan
    campaign = _campaign_in(folder, study.replace(budget=asked))
    runs, designed = campaign.study_runs, campaign.designed
    taken = () if designed is None else designed.decisions()
    chosen = bool(taken) and taken[-1].what == "plan" and (folder / PLAN).exists()
    if asked == trained and ((folder / REFIT).exists() or chosen):
        how = (
            "is done: its plan has been trained"
            if (folder / REFIT).exists()
            else f"trains its plan, {Plan.load(folder / PLAN).sizes}"
        )
        raise PlanError(
            f"{study.name} {how}", "To plan more, raise the study's budget, or give a larger one: --budget C."
        )
    speed = runs.throughput(study.expand() if designed is None else designed.runs(taken))
    planner = Planner.for_study(fits, study, **{"throughput": speed, **given})
    options = {"n_problems": study.data.n_problems, **kept, **({} if designed is None else {"slots": designed.slots})}
    if budget is not None and budget.spent and budget != own:
        # Who says what was spent says all of it.
        return Question(planner, asked, options)
    if designed is None:
        return Question(planner, _less_plan(asked, folder), options)
    left = designed.left(taken)
    if own is None or asked.deadline_hours != own.deadline_hours:
        left = left.replace(deadline_hours=asked.deadline_hours)
    return Question(planner, left, {**designed.asked(planner.fits), **options})


def _campaign_in(folder: Path, study: Study) -> Campaign:
    """The campaign of a study whose runs lie in a folder, also where that was moved."""
    runs, where = Path(study.output_dir) / study.name, folder.resolve()
    if (folder / runs).is_dir():
        return Campaign(study, folder, base=folder)
    if where.parts[-len(runs.parts) :] == runs.parts:
        return Campaign(study, folder, base=where.parents[len(runs.parts) - 1])
    return Campaign(study.replace(output_dir=".", name=where.name), folder, base=where.parent)


def _less_plan(budget: Budget, folder: Path) -> Budget:
    """The budget of a study with a sweep, which is paid for beside it, less what a trained plan has cost."""
    ran = overview(folder)
    cost = None if ran is None else getattr(ran.kinds["plan"], budget.unit)
    spent = dict(budget.spent or {})
    return budget.replace(spent={**spent, "pilot": spent.get("pilot", 0.0) + cost}) if cost else budget


def study_file(folder: Path) -> Path | None:
    """The study's file in the folder of a campaign, if `isocompute run` with it, here, goes on with that campaign."""
    file = folder / STUDY_COPY
    if not file.is_file() or not CAMPAIGN.holds(folder / SETTINGS):
        return None
    study = CAMPAIGN.load(folder / SETTINGS).study
    here = (Path(study.output_dir) / study.name).resolve() == folder.resolve()
    return file if here or campaign_around(file, study) is not None else None


def overview(folder: Path) -> Overview | None:
    """How far the study of a folder is; None if the folder is not that of a study or a campaign.

    Raises:
        IsoComputeError: a record is damaged.
    """
    study = study_of(folder)
    if study is None:
        return None
    places = _places(folder)
    runs = _runs_of(study)
    statuses = tuple(follow(runs.backend, place).status() for place in places)
    taken = read_decisions(folder) if study.designed is not None else None
    kinds = _by_kind(runs, statuses, taken)
    left, budget = None, study.budget
    if budget is not None:
        counted = [kinds["plan"]]
        # A sweep is paid for beside the budget of its study.
        if study.designed is not None:
            counted += [kinds["pilot"], *([kinds["evaluation"]] if budget.unit in ("gpu_hours", "usd") else [])]
        amounts = [getattr(one, budget.unit) for one in counted]
        if any(amount is not None for amount in amounts):
            left = budget.available - sum(amount or 0.0 for amount in amounts)
    return Overview(
        study,
        folder,
        statuses,
        kinds,
        left,
        next(filter(None, map(controller_of, dict.fromkeys((folder, *(place.parent for place in places))))), None),
        seconds_left(statuses),
        None if left is None or budget is None or budget.unit != "rollouts" else seconds_for(left, statuses),
        *_stage(folder, study, statuses, taken),
    )


def in_the_way(found: Overview) -> IsoComputeError | None:
    """What stops the next start of a campaign before its next decision; None if nothing that is known does."""
    if found.study.designed is None or found.done or found.controller is not None or (found.folder / PLAN).exists():
        return None
    try:
        campaign = _campaign_in(found.folder, found.study)
        designed = campaign.designed
        taken = () if designed is None else designed.decisions()
        if designed is not None and taken:
            campaign.study_runs.throughput(designed.runs(taken))
            designed.left(taken)
    except PlanError as error:
        return error
    return None


def best_so_far(folder: Path, study: Study) -> Plan | None:
    """The plan, else the one that its next start would make of what was measured; None of too little."""
    if (folder / PLAN).exists() and not (folder / REFIT).exists():
        plan = Plan.load(folder / PLAN)
        return None if plan.fits is not None and plan.fits.no_rise else plan
    saved = next((Fits.load(folder / name) for name in (REFIT, FITS) if (folder / name).exists()), None)
    try:
        fits = _fitted(folder, study) if saved is None else saved
        if fits.surface is None or fits.largest_compute is None:
            return None
        if study.budget is None or (folder / REFIT).exists():
            planner = Planner.for_study(fits, study)
            return planner.allocate(fits.largest_compute, n_problems=study.data.n_problems, slots=0)
        asked = question(study, folder, fits)
        options = dict[str, Any](asked.options)
        options["slots"] = 0
        return asked.planner.allocate(asked.budget, **options)
    except IsoComputeError:
        return None


def _fitted(folder: Path, study: Study) -> Fits:
    runs, specs = _runs_of(study), {place: store.read_spec(place) for place in store.find_runs(folder)}
    own = [place for place, spec in specs.items() if spec is not None and spec.recipe == study.recipe]
    found = [records for records in (records_of(runs.backend, place) for place in own) if records is not None]
    return runs.fit(found[0].concat(*found[1:]) if found else RunSet.from_columns({}))


def _runs_of(study: Study) -> StudyRuns:
    """The runs of a study as `isocompute run` carries them out in the current folder."""
    return StudyRuns(study, registry.load(study.backend), Path.cwd(), f"avg@{study.evaluation.samples}")


def _by_kind(runs: StudyRuns, statuses: Sequence[RunStatus], taken: Sequence[Decision] | None) -> dict[str, Cost]:
    """What each kind of run has cost; a pilot run that goes on as the plan counts as the plan's, as the plan says."""
    kinds = {"pilot": Cost(), "plan": Cost(), "evaluation": Cost()}
    planned = {one.planned for one in taken or () if one.what == "plan"}
    for status in statuses:
        training, evaluation = runs.costs(status)
        of_plan = status.run_id.startswith("plan-") if taken is None else status.run_id in planned
        kinds["plan" if of_plan else "pilot"] += training
        kinds["evaluation"] += evaluation
    return kinds


def _stage(
    folder: Path, study: Study, statuses: Sequence[RunStatus], taken: Sequence[Decision] | None
) -> tuple[str, bool]:
    """What is going on, and whether nothing is left to do."""
    finished = sum(status.state == "finished" for status in statuses)
    if (folder / REFIT).exists():
        return "done", True
    if (folder / PLAN).exists():
        plan = Plan.load(folder / PLAN)
        if plan.fits is not None and plan.fits.no_rise:
            return "stopped before its plan: no run's reward rises beyond noise", False
        return f"training the plan: n = {plan.group_size}, B_p = {plan.problems_per_batch}", False
    if taken is None:
        total = len(study.expand()) if study.sweep is not None else len(statuses)
        return f"sweep: {finished} of {counted(total, 'run')} finished", finished == total
    if not taken:
        return "designing the pilot", False
    paused = [one.paused for one in taken[-1].pausing]
    first = f"; its next start looks which go on first: {listed(paused, 4)}" if paused else ""
    return f"pilot, {taken[-1].reason}{first}", False
