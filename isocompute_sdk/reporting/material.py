"""What a report is made from: a plan, fits, runs, an audit or a campaign's folder, brought into one form."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from os import PathLike
from pathlib import Path
from shlex import quote
from typing import Any

from isocompute_sdk import api, files
from isocompute_sdk.auditing import Audit
from isocompute_sdk.auditing import audit as conduct_audit
from isocompute_sdk.auditing.result import AUDIT
from isocompute_sdk.campaigns import campaign as campaigns
from isocompute_sdk.campaigns.comparison import Comparison
from isocompute_sdk.campaigns.overview import Overview, edited, outcome_of, overview, question, resuming, study_of
from isocompute_sdk.errors import FitError, IsoComputeError, PlanError, RecordError, SpecError, typed_value
from isocompute_sdk.fitting.fits import FITS, Fits, FitsSet
from isocompute_sdk.ingest.paths import is_log
from isocompute_sdk.phrases import NOT_NEXT, parted
from isocompute_sdk.planning import Plan, Planner
from isocompute_sdk.planning.inheritance import FITTED
from isocompute_sdk.planning.plan import DOCUMENT as PLAN
from isocompute_sdk.planning.plan_parts import Alternative
from isocompute_sdk.plots.best_n import plans_around
from isocompute_sdk.records import RunSet
from isocompute_sdk.records.grouping import choose_measure
from isocompute_sdk.reporting.wording import (
    budget_option,
    fitted_words,
    going_on,
    limit_options,
    load_plan,
    named_from_here,
    runs_behind,
    speed_options,
)
from isocompute_sdk.run_folders import store
from isocompute_sdk.specs import Budget, Study

Source = Plan | Fits | FitsSet | Audit | RunSet | Sequence[str | PathLike[str]] | str | PathLike[str]
ABOUT_RUNS = ("--map", "--set", "--rename", "--ignore", "--metric", "--eval-set", "--bounds", "--pool")
"""Options that say what is read, which commands about runs share."""
REACH = 3.0
"""Budget of a page that was given none, over the largest compute of the runs."""
STEPS = 65
"""Budgets of the slider: eight per octave, so that half, twice and four times that of the page are among them."""
BELOW, ABOVE = 32.0, 8.0
"""They reach from this part of the page's budget to this multiple of it."""


@dataclass(frozen=True)
class Asked:
    """What whoever asks for the page wants planned, and how."""

    budget: Budget | None = None
    """None: `REACH` times the largest compute of the runs, or what the source says."""
    compare: str | None = None
    """Configuration that is run today, such as `n=16,bp=32`."""
    planner: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Arguments of `Planner`."""
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Arguments of `Planner.allocate` besides the budget."""
    fit: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Arguments of `fit`: metric, eval_set, pool, ..."""
    reading: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Arguments of `RunSet.read`: rename, set, ignore."""
    words: tuple[str, ...] = ()
    """The same as typed on the command line, quoted for a shell, without the budget, `--against` and `--output`."""
    output: str = ""
    """`--output` and the page's file as a shell takes it; empty for the usual one."""
    must_plan: bool = False
    """Whether a budget that cannot be planned is an error, and not a page without a plan."""


@dataclass(frozen=True)
class Material:
    """Everything a page can be made from; parts that the source does not have are None or empty."""

    name: str
    asked: Asked
    source: str | None = None
    """The source as a shell takes it; None for objects in memory."""
    plan: Plan | None = None
    fits: Fits | None = None
    planner: Planner | None = None
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Arguments of `allocate` with which the planner makes `plan` again."""
    plan_file: bool = False
    """True if the source is a plan."""
    planned_again: bool = True
    """False if the planner makes another plan than the one of the source."""
    assumed_budget: bool = False
    """True if nobody gave a budget."""
    runs: RunSet | None = None
    audit: Audit | None = None
    comparison: Comparison | None = None
    refit: Fits | None = None
    """Fits of all runs of a campaign, the trained plan among them."""
    study: Study | None = None
    folders: tuple[Path, ...] = ()
    """Folders of runs that were started here."""
    campaign: Overview | None = None
    """How far the campaign is."""
    problem: str = ""
    """Why there is no plan."""
    remedy: str = ""
    in_python: str = ""
    """The remedy for who holds the source in memory."""
    mends: tuple[str, ...] = ()
    """Options that, added to the command of the page, would mend the problem."""

    @cached_property
    def ladder(self) -> Sequence[Plan]:
        """Plans by increasing budget, that of the page among them: what the slider picks from; none without planner."""
        if self.planner is None or self.plan is None:
            return ()
        here, plan = self.plan.budget.amount, self.plan
        if not self.planned_again:
            # A plan that was changed by hand is not the best for its budget.
            options = dict[str, Any](self.options)
            options["slots"] = 0
            plan = self.planner.allocate(plan.budget, **options)
        return plans_around(plan, self.planner, self.options, (here / BELOW, here * ABOVE), STEPS)

    @cached_property
    def ended(self) -> int:
        """How many of the runs that were started here have ended."""
        return sum(store.is_finished(folder) or bool(store.read_abandoned(folder)) for folder in self.folders)

    @property
    def resuming(self) -> str:
        """The command that goes on with the campaign; empty while it is controlled, and where none does from here."""
        if self.campaign is None or self.campaign.done or self.campaign.controller is not None:
            return ""
        return resuming(self.campaign.folder)

    @property
    def spent_since(self) -> float:
        """What a campaign has spent on the plan that it trains, in the unit of its budget; 0 of other plans."""
        campaign, plan = self.campaign, self.plan
        if campaign is None or plan is None or self.comparison is not None or self.asked.budget is not None:
            return 0.0
        since = 0.0 if campaign.left is None else plan.budget.available - campaign.left
        return since if since > 1e-6 * plan.budget.amount else 0.0

    @property
    def flat(self) -> bool:
        """Whether no run rises beyond noise, so that predictions mean nothing."""
        return self.fits is not None and self.fits.flat_runs is not None

    @property
    def metric(self) -> str:
        """Metric that everything is about."""
        for one in (self.plan, self.fits, self.audit):
            if one is not None:
                return one.metric
        with suppress(RecordError):
            if self.runs is not None:
                return choose_measure(self.runs, self.asked.fit.get("metric")).metric
        return "reward"

    @property
    def eval_set(self) -> str | None:
        """Evaluation set that was fitted; None if the runs have one only."""
        if self.fits is not None:
            return self.fits.eval_set
        return None if self.audit is None else self.audit.eval_set

    @property
    def saved_plan(self) -> str | None:
        """The file of the plan that is the source, as a shell takes it; None of other sources."""
        return self.source if self.plan_file else None

    @property
    def planned_anew(self) -> bool:
        """Whether its plan is another than the saved one, since other values were asked for."""
        asked = self.asked
        return self.plan_file and bool(asked.budget is not None or asked.planner or asked.options)

    @property
    def typed(self) -> str:
        """The source in a command: as typed, a word to fill in, or nothing where `--map` names it."""
        mapped = any(word.partition("=")[0] == "--map" for word in self.asked.words)
        return self.source or ("" if mapped else "RUNS")

    @property
    def behind(self) -> str:
        """What the runs behind fits and plans were read from, as typed, or a word to fill in."""
        return runs_behind(self.fits)

    @property
    def advice(self) -> str:
        """What to do about the problem, with these runs in its command."""
        _, meant = parted(self.asked.words, ("--rename", "--set", "--ignore"))
        return self.remedy.replace("isocompute doctor RUNS", " ".join(["isocompute doctor", self.typed, *meant]))

    @property
    def with_runs(self) -> str:
        """The command that plans the same budget, or any, from runs; empty where they must be mended first."""
        if self.problem and not self.mends:
            return ""
        budget = self.asked.budget if self.plan is None else self.plan.budget
        option = "--budget 3M" if budget is None else self.asked_for(budget)
        return self.with_others(option) if self.runs is None else self.asking(option, *self.mends)

    def with_others(self, *options: str, command: str = "allocate", source: str = "") -> str:
        """A command about runs that the source does not hold, with what it says of their metric and of speed."""
        known = self.audit if self.fits is None else self.fits
        words = [f"isocompute {command}", source or self.behind]
        if known is not None and (self.fits is None or self.fits.method in FITTED):
            words += [f"--metric {quote(known.metric)}", *fitted_words(known)]
        said = [] if self.plan is None else [*speed_options(self.plan), *limit_options(self.plan)]
        words += [one for one in said if command != "next" or one.split()[0] not in NOT_NEXT]
        return " ".join(word for word in [*words, *options] if word)

    def asked_for(self, budget: Budget) -> str:
        """`--budget` for these runs: the folder of a study says itself what they have spent."""
        return budget_option(budget if self.study is None else budget.replace(spent=None))

    def asking(self, *options: str, command: str = "allocate") -> str:
        """The command that plans the same runs with everything that was asked for but the budget, or another one."""
        if self.plan_file or (self.audit is not None and self.runs is None):
            return self.with_others(*options, command=command)
        typed = parted(self.asked.words, NOT_NEXT)[0] if command == "next" else self.asked.words
        words = [f"isocompute {command}", self.typed, *typed, *options]
        return " ".join(word for word in words if word)

    def costs(self, plan: Plan, every: Sequence[Plan | Alternative]) -> list[dict[str, float]]:
        """What each n costs in every known unit; none for budgets in hours or money, of which each n takes the same."""
        if self.planner is None or plan.budget.unit not in ("rollouts", "tokens"):
            return []
        pricing = replace(self.planner.pricing(plan.budget), throughput=plan.throughput)
        return [pricing.all_costs(one.rollouts_per_batch, one.update_steps) for one in every]

    @property
    def first(self) -> str:
        """The command that writes the scripts of what to run first."""
        plan, fits = self.plan, self.fits
        assert plan is not None, "asked of plans"
        budget = self.asked_for(plan.budget)
        laws = {} if fits is None else {"prior": "--prior", "published": f"--published {fits.source}"}
        if not self.plan_file or fits is None or fits.method not in laws:
            return self.asking(budget, command="next")
        model = "" if plan.model is None else f"--model {quote(plan.model)}"
        return self.with_others(budget, model, command="next", source=laws[fits.method])

    @property
    def going_on(self) -> str:
        """The command that asks whether a run so far should go on instead of the plan; empty where that gains no more.

        Of the options that were typed it has those that say what is read.
        """
        assert self.plan is not None, "asked of plans"
        _, words = parted(self.asked.words, ABOUT_RUNS)
        if self.runs is None and self.fits is not None:
            words = [f"--metric {quote(self.fits.metric)}", *fitted_words(self.fits)]
        source = self.behind if self.runs is None else self.typed
        return going_on(self.plan).replace("RUNS", " ".join(word for word in (source, *words) if word))

    def instead(self, option: str) -> str:
        """The command with another budget or reward."""
        changed = self.saved_plan is not None and option.startswith("--budget")
        return self.again(option) if changed else self.asking(option)

    def again(self, *options: str) -> str:
        """The command that makes this page, with everything that was asked for; `options` replace those of their name.

        Args:
            options: such as `--budget 3M`.
        """
        asked, new = self.asked, {option.partition(" ")[0] for option in options}
        own = None if self.study is None else self.study.budget
        made = [] if asked.budget is None or asked.budget == own else [budget_option(asked.budget)]
        made += [] if asked.compare is None else [f"--against {quote(asked.compare)}"]
        kept = [option for option in made if option.partition(" ")[0] not in new]
        words = ["isocompute report", self.typed, *kept, *asked.words, *options, asked.output]
        return " ".join(word for word in words if word)


def gather(source: Source, asked: Asked, study: Study | None = None) -> Material:
    """Bring a source into one form; what cannot be fitted or planned is left out with the reason.

    Raises:
        IsoComputeError: nothing readable is there.
    """
    match source:
        case Plan():
            return _of_plan(source, asked, "plan")
        case Fits() | FitsSet():
            return _of_fits(source, asked, "fits")
        case Audit():
            return Material("audit", asked, audit=source)
        case str() | PathLike():
            paths = [Path(source)]
        case Sequence():
            paths = [Path(one) for one in source]
        case RunSet():
            return _of_runs(source, asked, "runs")
        case other:  # pyright: ignore[reportUnnecessaryComparison]  # notebooks pass any type
            raise SpecError(
                f"received {typed_value(other)}; accepted: a plan, fits, an audit, runs, or paths of them",
                "isocompute_sdk.read(...) makes runs of a table or of logs.",
            )
    return _of_paths(paths, asked, study)


def _of_paths(paths: Sequence[Path], asked: Asked, study: Study | None) -> Material:
    if not paths:
        raise SpecError("received no source; accepted: a plan, fits, an audit, runs or a folder", "Give one.")
    first = paths[0]
    typed = " ".join(quote(str(path)) for path in paths)
    name = first.resolve().name if first.name in ("", ".", "..") else first.name
    if len(paths) == 1 and first.is_file() and first.suffix == ".json" and not is_log(first):
        return replace(_document(first, asked, name), source=typed)
    if len(paths) == 1 and first.is_dir() and (first / campaigns.SETTINGS).exists():
        return replace(_of_campaign(first, asked, name), source=typed)
    if len(paths) == 1 and (planned := _plan_in(first, asked)) is not None:
        return replace(_of_plan(planned, asked, name), source=quote(str(first / campaigns.PLAN)))
    study = study_of(first) if study is None and len(paths) == 1 else study
    reading = {name: value for name, value in asked.reading.items() if value}
    runs = RunSet.read(list(paths), metric=asked.fit.get("metric"), **reading)
    found = _of_runs(runs, asked, name, study, None if study is None else first)
    return replace(found, source=typed, folders=_own_folders(first) if len(paths) == 1 else ())


def _plan_in(folder: Path, asked: Asked) -> Plan | None:
    """The plan in a folder without started runs; None if it is asked for runs fitted or planned in another way."""
    plan = folder / campaigns.PLAN
    otherwise = any(asked.fit.values()) or any(asked.reading.values()) or any(asked.planner.values())
    return load_plan(plan) if not otherwise and PLAN.holds(plan) and not _own_folders(folder) else None


def _own_folders(path: Path) -> tuple[Path, ...]:
    """Folders of runs that were started here; none for other logs."""
    try:
        return store.find_runs(path) if path.is_dir() else ()
    except RecordError:
        return ()


def _document(path: Path, asked: Asked, name: str) -> Material:
    """What a saved plan, fits or audit holds.

    Raises:
        IsoComputeError: another file.
    """
    try:
        raw = files.parse_json(files.read_text(path, what="a saved plan, fits or audit (JSON)"))
    except json.JSONDecodeError as error:
        raise IsoComputeError(
            f"{path} is not valid JSON (line {error.lineno}: {error.msg})", "Save it again."
        ) from None
    kind = raw.get("kind") if isinstance(raw, dict) else None
    if kind == PLAN.kind:
        return _of_plan(load_plan(path), asked, name)
    if kind == FITS.kind:
        return _of_fits(named_from_here(Fits.load(path), path.parent), asked, name)
    if kind == AUDIT.kind:
        return Material(name, asked, audit=AUDIT.load(path))
    raise IsoComputeError(
        f"{path} holds {kind!r}; accepted: a saved plan, fits or audit, or the folder of a campaign",
        "Make one with: isocompute allocate RUNS --budget 3M --output plan.json",
    )


def _of_plan(plan: Plan, asked: Asked, name: str) -> Material:
    options = {**plan.options, **asked.options}
    asked = replace(asked, compare=asked.compare or plan.compared_with)
    if plan.fits is not None and (asked.budget is not None or asked.planner or asked.options):
        budget = plan.budget if asked.budget is None else asked.budget.in_place_of(plan.budget)
        plan = Planner.of(plan, **asked.planner).allocate(budget, **options)
    found = Material(name, asked, plan=plan, fits=plan.fits, plan_file=True)
    if plan.fits is None:
        return found
    planner, made = Planner.of(plan), (plan.group_size, plan.problems_per_batch, plan.update_steps)
    with suppress(IsoComputeError):
        same = planner.allocate(plan.budget, slots=0, **options)
        if (same.group_size, same.problems_per_batch, same.update_steps) == made:
            return replace(found, planner=planner, options=options)
    fixed = {"problems_per_batch": plan.problems_per_batch, "update_steps": None}
    return replace(found, planner=planner, options=fixed, planned_again=False)


def _of_fits(
    given: Fits | FitsSet,
    asked: Asked,
    name: str,
    runs: RunSet | None = None,
    study: Study | None = None,
    campaign: Path | None = None,
) -> Material:
    fits = given.first if isinstance(given, FitsSet) else given
    found = Material(name, asked, fits=fits, runs=fits.table if runs is None else runs, study=study)
    try:
        arguments, options = asked.planner, asked.options
        budget = asked.budget if asked.budget is not None else _usual_budget(fits)
        if study is not None and campaign is not None:
            own = question(study, campaign, given, budget, **arguments)
            planner, budget, options = own.planner, own.budget, {**own.options, **options}
        else:
            planner = Planner(given, **arguments)
        plan = planner.allocate(budget, **options)
    except IsoComputeError as error:
        if asked.must_plan:
            raise
        return _without_plan(found, error)
    options = {name: value for name, value in options.items() if name != "slots"}
    return replace(found, plan=plan, planner=planner, options=options, assumed_budget=asked.budget is None)


def _without_plan(found: Material, error: IsoComputeError, more: str = "") -> Material:
    """Material with why there is no plan, and what to do about it; `more` says how to do it in Python."""
    remedy, in_python = error.shell_hint or error.hint or "", f"{error.hint or ''}{more}"
    return replace(found, problem=error.message, remedy=remedy, in_python=in_python, mends=error.options)


def _usual_budget(fits: Fits) -> Budget:
    """A budget for a page that was given none.

    Raises:
        PlanError: fits without runs, whose compute says nothing of a budget.
    """
    if fits.largest_compute is None or fits.method not in FITTED or fits.compute != "log10_rollouts":
        raise PlanError("no budget was given", "Add <--budget 3M | budget='3M'>.")
    return Budget(rollouts=float(f"{REACH * fits.largest_compute:.2g}"))


_TO_FIT = " The arguments of fit go to report as fit={...}, such as fit={'bounds': (0, 1)}."


def _of_runs(
    runs: RunSet, asked: Asked, name: str, study: Study | None = None, campaign: Path | None = None
) -> Material:
    """Fit and plan runs; where they cannot be fitted together, audit them."""
    if study is not None:
        options = {"n_problems": study.data.n_problems, **asked.options}
        asked = replace(asked, budget=study.budget if asked.budget is None else asked.budget, options=options)
    try:
        fits = _fit(runs, asked)
    except IsoComputeError as error:
        found = Material(name, asked, runs=runs, study=study)
        try:
            metric, where, bounds = (asked.fit.get(name) for name in ("metric", "eval_set", "bounds"))
            audit = conduct_audit(runs, metric, where, bounds=bounds or (0.0, 1.0))
        except IsoComputeError as wrong:
            # What stands in the way of an audit too comes first.
            return _without_plan(found, wrong if wrong.options else error, _TO_FIT)
        return replace(_without_plan(found, error, _TO_FIT), audit=audit)
    return _of_fits(fits, asked, name, runs, study, campaign)


def _fit(runs: RunSet, asked: Asked) -> Fits | FitsSet:
    """Fits of runs; evaluations are taken from `validation` where a metric was measured on several sets."""
    options = {option: value for option, value in asked.fit.items() if value is not None}
    try:
        return api.fit(runs, **options)
    except FitError:
        if "pool" in options or len({one.context.get("learning_rate") for one in runs.runs()}) < 2:
            raise
        # Few batches do not show the rule of a learning rate; the fit says in a note what that may hide.
        with suppress(FitError):
            return api.fit(runs, **options, pool=("learning_rate",))
        raise


def _of_campaign(folder: Path, asked: Asked, name: str) -> Material:
    """A campaign's folder, as far as it is."""
    settings, study = campaigns.CAMPAIGN.load(folder / campaigns.SETTINGS), study_of(folder)
    assert study is not None, "of a campaign"
    folders = _own_folders(folder)
    try:
        runs = store.read_journals(folder) if folders else None
    except RecordError:
        # Until the first run has measured something there is nothing to read.
        runs = None
    found = Material(name, asked, runs=runs, study=study, folders=folders, campaign=overview(folder))
    if (folder / campaigns.REFIT).exists():
        found = replace(found, refit=Fits.load(folder / campaigns.REFIT))
    if asked.budget is not None or not (folder / campaigns.PLAN).exists() or edited(folder, study):
        fitting = {"metric": settings.metric, "eval_set": settings.eval_set, **settings.fit, **asked.fit}
        fits = Fits.load(folder / campaigns.FITS) if (folder / campaigns.FITS).exists() else None
        told = "" if fits else "The campaign fits the runs when they have ended."
        if runs is None:
            stage = "" if found.campaign is None else f" So far: {found.campaign.stage}."
            return replace(found, fits=fits, problem=f"No run here has measured anything yet.{stage}")
        so_far = _of_runs(runs, replace(asked, fit=fitting), name, study, folder)
        problem = so_far.problem and f"{told} {so_far.problem}".strip()
        return replace(so_far, folders=folders, campaign=found.campaign, refit=found.refit, problem=problem)
    fits, plan = Fits.load(folder / campaigns.FITS), Plan.load(folder / campaigns.PLAN)
    planner, options = campaigns.planning_again(plan, fits, study, {**settings.plan, **asked.options})
    outcome = None if found.campaign is None else outcome_of(found.campaign)
    return replace(found, fits=fits, plan=plan, planner=planner, options=options, comparison=outcome)
