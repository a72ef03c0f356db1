"""`Overview`: how far a study is, what it has spent; what its next start asks (`question`) and how it goes on."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Any

from isocompute_sdk.campaigns.campaign import (
    CAMPAIGN,
    COMPARISON,
    FITS,
    PLAN,
    REFIT,
    SETTINGS,
    Campaign,
    CampaignSettings,
    check_edit,
    edits,
    without_rise,
)
from isocompute_sdk.campaigns.campaign import STUDY as STUDY_COPY
from isocompute_sdk.campaigns.carrying_out import records_of
from isocompute_sdk.campaigns.comparison import COMPARISON as COMPARED
from isocompute_sdk.campaigns.comparison import Comparison, at_check, compare
from isocompute_sdk.campaigns.control import STUDY, STUDY_FILE, Controller, controller_of, describe
from isocompute_sdk.campaigns.pilot_rounds import Decision, read_decisions
from isocompute_sdk.campaigns.study_runs import Cost, StudyRuns
from isocompute_sdk.errors import IsoComputeError, PlanError, RecordError
from isocompute_sdk.fitting.fits import Fits, FitsSet
from isocompute_sdk.phrases import counted, listed
from isocompute_sdk.planning import Plan, Planner
from isocompute_sdk.records import RunSet
from isocompute_sdk.records.reward_metrics import no_rise
from isocompute_sdk.run_folders import store
from isocompute_sdk.run_folders.store import RunStatus
from isocompute_sdk.specs import Allocation, Budget, Study, load_study
from isocompute_sdk.timing.spending import elapsed, seconds_for, seconds_left, spending
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
    first: str
    """In words, what it does before it decides anew: trains runs, looks at paused ones; empty where it decides now."""
    speed: str
    """In words, how much slower its runs were than stated; empty if they were not."""
    late: str
    """In words, that its deadline passed; empty where it did not."""
    stage: str
    """What is going on, in a few words."""
    done: bool
    """Whether nothing is left for a controller."""


def campaign_around(file: Path, study: Study) -> CampaignSettings | None:
    """The campaign in whose folder a study's file and its runs lie, as the quickstart's; None of other studies."""
    runs = file.parent / study.output_dir / study.name
    return settings_of(file.parent) if runs.is_dir() else None


def settings_of(folder: Path) -> CampaignSettings | None:
    """What the campaign in a folder was started with last; None of other folders."""
    return CAMPAIGN.load(folder / SETTINGS) if CAMPAIGN.holds(folder / SETTINGS) else None


def lies_in_campaign(file: Path, study: Study) -> bool:
    """Whether a study's file lies in the folder of its own campaign."""
    settings = settings_of(file.parent)
    return settings is not None and settings.study.name == study.name


def runs_begun(file: Path, study: Study) -> Path | None:
    """The folder of the runs of a study's file, if one of them has begun."""
    # A study by hand trains where it is started, a campaign beside its study file.
    here, beside = (base / study.output_dir / study.name for base in (Path(), file.parent))
    places = (beside, file.parent) if lies_in_campaign(file, study) else (here, beside)
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
    return file.parent if begun is not None and lies_in_campaign(file, study) else begun


def study_around(folder: Path) -> tuple[Study, Path] | None:
    """The study that a folder is of, with the folder; None of other folders.

    Raises:
        RecordError: none of its runs has measured anything.
    """
    study = study_of(folder)
    if study is None:
        return None
    if not any(map(store.has_begun, _places(folder))):
        raise RecordError(
            f"no run of {study.name} in {folder} has measured anything yet", f"To go on: {to_go_on(folder)}"
        )
    return study, folder


def _places(folder: Path) -> tuple[Path, ...]:
    """The run folders below `folder`; empty if it has none."""
    try:
        return store.find_runs(folder)
    except IsoComputeError:
        return ()


def study_of(folder: Path) -> Study | None:
    """The study that a folder is the campaign or the study folder of; None if it is neither.

    Raises:
        IsoComputeError: the record of a campaign is damaged, or its study.yaml is no study.
    """
    # Another program may write a file of this name, but no decisions beside it.
    if CAMPAIGN.holds(folder / SETTINGS) or ((folder / SETTINGS).exists() and read_decisions(folder)):
        saved, copy = CAMPAIGN.load(folder / SETTINGS).study, folder / STUDY_COPY
        # Its next start takes what was edited there.
        now = load_study(copy) if copy.is_file() and not copy.is_symlink() else saved
        return now if now.name == saved.name else saved
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
        budget: instead of the study's; another deadline than the study's begins now.
        given: arguments of `Planner` instead of the study's.

    Raises:
        PlanError: nothing is left of the budget, it is less than at the campaign's last start, or it is the study's own
            and its plan was trained.
    """
    saved, own = settings_of(folder), study.budget
    asked = own if budget is None else budget if own is None else budget.in_place_of(own)
    if asked is None:
        raise PlanError(
            f"study {study.name!r} has no budget", "Add budget: to the study, or give one: <--budget 3M | budget='3M'>."
        )
    says_all = budget is not None and bool(budget.spent) and budget != own
    kept, now = {} if saved is None else saved.plan, study.replace(budget=asked)
    if saved is not None:
        check_edit(saved.study, study if says_all else now, registry.load(study.backend), _places(folder), folder)
    campaign = _campaign_in(folder, now)
    runs, designed = campaign.study_runs, campaign.designed
    taken = () if designed is None else designed.decisions()
    if has_its_plan(folder) and saved is not None and not edits(saved.study, now):
        how, goes_on = "is done: its plan has been trained", ""
        if not (folder / REFIT).exists() and (found := overview(folder)) is not None:
            how, goes_on = f"has its plan: {found.stage}", f" To go on: {to_go_on(folder)}"
        raise PlanError(
            f"{study.name} {how}",
            f"To plan more, raise the study's budget, or give a larger one: <--budget C | budget=C>.{goes_on}",
        )
    speed = runs.throughput(study.expand() if designed is None else designed.runs(taken))
    planner = Planner.for_study(fits, study, **{"throughput": speed, **given})
    options = {"n_problems": study.data.n_problems, **kept, **({} if designed is None else {"slots": designed.slots})}
    if says_all:
        # Who says what was spent says all of it.
        return Question(planner, asked, options)
    if designed is None:
        return Question(planner, _less_plan(asked, folder), options)
    left = designed.left(taken)
    if own is None or asked.deadline_hours != own.deadline_hours:
        left = left.replace(deadline_hours=asked.deadline_hours)
    return Question(planner, left, {**designed.asked(planner.fits), **options})


def has_its_plan(folder: Path) -> bool:
    """Whether the campaign in a folder trains its plan, or has trained it."""
    taken = read_decisions(folder)
    return (folder / REFIT).exists() or (bool(taken) and taken[-1].what == "plan" and (folder / PLAN).exists())


def _campaign_in(folder: Path, study: Study) -> Campaign:
    """The campaign of a study whose runs lie in a folder, also where that was moved."""
    base, where = _base(folder, study), folder.resolve()
    if base is not None:
        return Campaign(study, folder, base=base)
    return Campaign(study.replace(output_dir=".", name=where.name), folder, base=where.parent)


def _base(folder: Path, study: Study) -> Path | None:
    """What the paths of a study are relative to, by where its folder lies; None where that was moved."""
    runs, where = Path(study.output_dir) / study.name, folder.resolve()
    if (folder / runs).is_dir():
        return folder
    if runs.resolve() == where:
        return Path()
    return where.parents[len(runs.parts) - 1] if where.parts[-len(runs.parts) :] == runs.parts else None


def _less_plan(budget: Budget, folder: Path) -> Budget:
    """The budget of a study with a sweep, which is paid for beside it, less what a trained plan has cost."""
    ran = overview(folder)
    cost = None if ran is None else getattr(ran.kinds["plan"], budget.unit)
    spent = dict(budget.spent or {})
    return budget.replace(spent={**spent, "pilot": spent.get("pilot", 0.0) + cost}) if cost else budget


def is_at_hand(folder: Path, study: Study) -> bool:
    """Whether `isocompute run` in the current folder goes on with the campaign in a folder."""
    return CAMPAIGN.holds(folder / SETTINGS) and _base(folder, study) in (folder, Path())


def resuming(folder: Path, file: Path | None = None) -> str:
    """The command that goes on with the campaign in a folder; empty where none does.

    Args:
        folder: the campaign's folder.
        file: the study's file as typed; None for the one in the folder.
    """
    study, own = study_of(folder), folder / STUDY_COPY
    base = None if study is None else _base(folder, study)
    if study is None or base is None or not CAMPAIGN.holds(folder / SETTINGS) or not own.is_file():
        return ""
    shown = own if file is None or lies_in_campaign(file, study) else file
    if is_at_hand(folder, study):
        return f"isocompute run {quote(str(shown))}"
    return f"cd {quote(str(base))} && isocompute run {quote(os.path.relpath(shown.resolve(), base))}"


def to_go_on(folder: Path | None, file: Path | None = None, edit: str = "") -> str:
    """How to go on with a study: a command, or words where none does from here.

    Args:
        folder: the study's folder; None before its first run.
        file: as for `resuming`.
        edit: what to set in its file first.
    """
    how, when, copy = f"isocompute run {quote(str(file))}", "", file
    if folder is not None:
        study, copy = study_of(folder), file or folder / STUDY_COPY
        asked = study if file is None else load_study(file)
        if asked is not None and not edit and (stop := _without_rise(folder, asked)) is not None:
            advice = stop.hint or ""
            return f"it stopped ({stop.message}): {advice[:1].lower()}{advice[1:-1]}"
        moved = study is not None and CAMPAIGN.holds(folder / SETTINGS) and _base(folder, study) is None
        how = resuming(folder, file) or "isocompute run with its study file, where it was started"
        if moved and study is not None:
            runs = Path(study.output_dir) / study.name
            how = f"move {folder} back to {runs} where it was started, and run its study there"
        if _controller_in(folder, _places(folder)) is not None:
            how = how if edit else f"isocompute status {quote(str(folder))} --watch"
            when = ", when its controller has ended"
    return f"set {edit} in {quote(str(copy))}, then{when}: {how}" if edit else how


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
    controller, changes = _controller_in(folder, places), edited(folder, study)
    stage, done = _stage(folder, study, statuses, taken)
    return Overview(
        study,
        folder,
        statuses,
        kinds,
        left,
        controller,
        seconds_left(statuses),
        None if left is None or budget is None or budget.unit != "rollouts" else seconds_for(left, statuses),
        "" if not taken else _first(taken[-1], statuses, "next start" if controller is None else "controller"),
        "" if done or study.designed is None else _speed(folder, study),
        _late(folder, study),
        f"{stage}; {changes}" if changes else stage,
        done and not changes,
    )


def _speed(folder: Path, study: Study) -> str:
    campaign = _campaign_in(folder, study)
    return campaign.study_runs.slowdown(campaign.runs())


def _late(folder: Path, study: Study) -> str:
    deadline, taken = None if study.budget is None else study.budget.deadline_hours, read_decisions(folder)
    if deadline is None or not taken or (designed := _campaign_in(folder, study).designed) is None:
        return ""
    planned = taken[-1].planned
    if planned and (folder / PLAN).exists():
        plan = Plan.load(folder / PLAN)
        own = spending([designed.own.place(designed.spec(taken[-1].named[planned]))]).hours
        gone = deadline - (plan.budget.deadline_hours or 0.0) + own - plan.past.get("wall_hours", 0.0)
    else:
        hours = [spending([designed.own.place(run)]).hours for run in designed.runs(taken)]
        gone = elapsed(hours, designed.slots)
    return f"the deadline passed: {gone:,.1f} of {deadline:,g} hours are gone" if gone > deadline else ""


def in_the_way(found: Overview) -> IsoComputeError | None:
    """What stops the next start of a campaign before its next decision; None if nothing that is known does."""
    if found.study.designed is None or found.done or found.controller is not None:
        return None
    if (found.folder / PLAN).exists():
        return _without_rise(found.folder, found.study)
    try:
        campaign = _campaign_in(found.folder, found.study)
        designed = campaign.designed
        if designed is not None and (taken := designed.decisions()):
            campaign.study_runs.throughput(designed.runs(taken))
            designed.left(taken)
    except PlanError as error:
        return error
    return None


def _without_rise(folder: Path, study: Study) -> PlanError | None:
    """The error with which the next start of a campaign ends since no reward rises; None where it plans anew."""
    has_plan = CAMPAIGN.holds(folder / SETTINGS) and (folder / PLAN).exists()
    return without_rise(Plan.load(folder / PLAN)) if has_plan and not edited(folder, study) else None


def goes_on_flat(found: Overview) -> str:
    """In words, that the runs of a pilot are made longer since no reward rises yet; empty where they are not."""
    study, folder = found.study, found.folder
    if study.designed is None or found.controller is not None or found.first or (folder / PLAN).exists():
        return ""
    runs, records = _runs_of(study), _records(folder, study)
    if not no_rise([one.value_T for one in records.series(runs.metric, runs.eval_set)]):
        return ""
    try:
        asked = question(study, folder, runs.fit(records))
        first = asked.planner.allocate(asked.budget, **asked.options).next_runs
    except IsoComputeError:
        return ""
    return "" if first is None or not first.runs else f"its next start: {first.reason}"


def _controller_in(folder: Path, places: Sequence[Path]) -> Controller | None:
    """Who controls the study in a folder, or its runs."""
    return next(filter(None, map(controller_of, dict.fromkeys((folder, *(place.parent for place in places))))), None)


def _first(last: Decision, statuses: Sequence[RunStatus], who: str) -> str:
    """What a campaign does before it decides anew."""
    ended = {one.run_id: one.update_steps or 0 for one in statuses if one.state == "finished"}
    short = [one for one in last.runs if ended.get(one.run_id, 0) < one.update_steps]
    trains = listed([f"{one.run_id} to step {one.update_steps:,}" for one in short], 4)
    paused = listed([one.paused for one in last.pausing], 4)
    looks = "decides which paused runs continue" if last.pausing else ""
    parts = [f"trains {trains}" if short else "", looks if short or not looks else f"{looks}: {paused}"]
    return f"its {who} first {' and then '.join(filter(None, parts))}" if any(parts) else ""


def outcome_of(found: Overview) -> Comparison | None:
    """How a campaign's plan came out, on file or by what its run has measured; None until that has ended."""
    folder = found.folder
    if (folder / COMPARISON).exists():
        return COMPARED.load(folder / COMPARISON)
    if not (folder / PLAN).exists():
        return None
    run = _run_of_plan(Plan.load(folder / PLAN), found.statuses, read_decisions(folder))
    records = None if run is None else records_of(registry.load(found.study.backend), run.folder)
    return None if records is None else compare(Fits.load(folder / FITS), records)


def check_so_far(found: Overview, plan: Plan, runs: RunSet) -> str:
    """What the run of a campaign's plan has measured at the step of its approval, in words; empty before that."""
    run = _run_of_plan(plan, found.statuses, read_decisions(found.folder), ended=False)
    return "" if run is None else at_check(plan, run.run_id, runs, ended=False)


def _run_of_plan(
    plan: Plan, statuses: Sequence[RunStatus], taken: Sequence[Decision], *, ended: bool = True
) -> RunStatus | None:
    """The run of a plan, once it has ended unless it may go on."""
    name, size, steps = "plan-", (plan.group_size, plan.problems_per_batch), plan.update_steps
    if taken:
        name = taken[-1].planned or name
        steps = taken[-1].named[name].update_steps if taken[-1].planned else steps
    own = (one for one in statuses if one.run_id.startswith(name) and (one.group_size, one.problems_per_batch) == size)
    if not ended:
        return next((one for one in own if (one.update_steps or 0) >= steps), None)
    return next((one for one in own if one.state == "finished" and one.step >= steps), None)


def edited(folder: Path, study: Study) -> str:
    """What was edited in a campaign's study since its last start, so that it decides again; empty if nothing was."""
    saved = settings_of(folder)
    changes = {} if saved is None else edits(saved.study, study)
    if saved is None or not changes:
        return ""
    told, earlier = "; ".join(describe(field, *values) for field, values in changes.items()), saved.study
    try:
        check_edit(earlier, study, registry.load(earlier.backend), _places(folder), folder)
    except IsoComputeError:
        told += ", which its next start refuses: restore it"
    return f"its study was edited since its last start: {told}"


def best_so_far(folder: Path, study: Study) -> Plan | None:
    """The plan, else the one that its next start would make of what was measured; None of too little."""
    changed = bool(edited(folder, study))
    if (folder / PLAN).exists() and not (folder / REFIT).exists() and not changed:
        plan = Plan.load(folder / PLAN)
        return None if without_rise(plan) is not None else plan
    saved = next((Fits.load(folder / name) for name in (REFIT, FITS) if (folder / name).exists()), None)
    try:
        fits = _runs_of(study).fit(_records(folder, study)) if saved is None else saved
        if fits.surface is None or fits.largest_compute is None or fits.no_rise:
            return None
        if study.budget is None or ((folder / REFIT).exists() and not changed):
            # As `isocompute audit` asks about the same runs.
            return Planner(fits, allow_off_policy=True).allocate(
                fits.largest_compute, min_update_steps=1, spend="all", mode="conservative", beyond_grid=0, slots=0
            )
        asked = question(study, folder, fits)
        options = dict[str, Any](asked.options)
        options["slots"] = 0
        return asked.planner.allocate(asked.budget, **options)
    except IsoComputeError:
        return None


def _records(folder: Path, study: Study) -> RunSet:
    """What the runs of a study with its present recipe have measured."""
    runs, specs = _runs_of(study), {place: store.read_spec(place) for place in store.find_runs(folder)}
    own = [place for place, spec in specs.items() if spec is not None and spec.recipe == study.recipe]
    found = [records for records in (records_of(runs.backend, place) for place in own) if records is not None]
    return found[0].concat(*found[1:]) if found else RunSet.from_columns({})


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
        if without_rise(plan) is not None:
            return "stopped before its plan: no run's reward rises beyond noise", False
        ended = _run_of_plan(plan, statuses, taken or ()) is not None
        stage = "the run of the plan has ended, its next start compares it" if ended else "training the plan"
        return f"{stage}: n = {plan.group_size}, B_p = {plan.problems_per_batch}", False
    if taken is None:
        total = len(study.expand()) if study.sweep is not None else len(statuses)
        return f"sweep: {finished} of {counted(total, 'run')} finished", finished == total
    if not taken:
        return "designing the pilot", False
    return f"pilot, {taken[-1].reason}", False
