"""The closed loop: sweep -> fit -> allocate -> train -> compare -> refit, for any backend and executor.

Every stage writes a file into the campaign's folder and is skipped if that file exists. A campaign that was stopped or
killed therefore resumes; each interrupted run goes on from its last checkpoint. To repeat a stage, delete its file and
those of the later stages. A study that was edited in a way that keeps what was run repeats what depends on it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from isocompute_sdk import api
from isocompute_sdk.campaigns.carrying_out import carry_out, given_up_notes, health_of, learned_nothing
from isocompute_sdk.campaigns.comparison import Comparison, compare
from isocompute_sdk.campaigns.control import controlling, study_changes
from isocompute_sdk.campaigns.executors import (
    ClusterExecutor,
    Executor,
    LocalExecutor,
    Stopped,
    stop_study,
)
from isocompute_sdk.campaigns.executors import (
    registry as executors,
)
from isocompute_sdk.campaigns.pilot_rounds import DesignedPilot, evaluated_as_planned
from isocompute_sdk.campaigns.study_runs import StudyRuns
from isocompute_sdk.documents import Document
from isocompute_sdk.errors import BackendError, PlanError, RecordError
from isocompute_sdk.files import write_text
from isocompute_sdk.fitting.fits import Fits
from isocompute_sdk.notes import Note
from isocompute_sdk.planning import Plan, PlanComparison, Planner
from isocompute_sdk.planning.comparing import Configuration
from isocompute_sdk.records import RunSet
from isocompute_sdk.run_folders import store
from isocompute_sdk.specs import Allocation, ExecutorSpec, RunSpec, Study, dump_spec
from isocompute_sdk.specs.run import batch_refusal
from isocompute_sdk.training import registry
from isocompute_sdk.training.backend import Backend, follow, needs_of
from isocompute_sdk.training.payload.run_files import differences

Stage = Literal["pilot", "sweep", "fit", "allocate", "train", "compare", "refit"]
Watch = Callable[[Stage, tuple[store.RunStatus, ...]], None]
"""Called when a stage begins, and repeatedly while its runs train."""
SETTINGS, STUDY = "campaign.json", "study.yaml"
FITS, PLAN, COMPARISON, REFIT = "fits.json", "plan.json", "comparison.json", "refit.json"
"""Files of the settings and of the stages."""
RESULTS = (FITS, PLAN, COMPARISON, REFIT)
MAX_SLOTS, DEFAULT_SLOTS = 8, 4
"""Runs of a round of a designed pilot: at most, and where nothing tells how many there is room for."""


@dataclass(frozen=True)
class CampaignSettings:
    """Content of campaign.json: what a folder's campaign was started with."""

    study: Study
    metric: str
    eval_set: str | None
    fit: dict[str, Any]
    """Options of `fit`."""
    plan: dict[str, Any]
    """Options of `Planner.allocate`."""


CAMPAIGN = Document(
    "campaign",
    1,
    CampaignSettings,
    typed=True,
    remedy=f"Rename it to {SETTINGS}.old, and {', '.join(RESULTS)} in the same way where they exist: runs and "
    "decisions are kept and taken up again.",
)


def planning_again(plan: Plan, fits: Fits, study: Study, options: Mapping[str, Any]) -> tuple[Planner, dict[str, Any]]:
    """The planner of a campaign's plan, and the arguments of `allocate` with which it makes the plan again."""
    return Planner.for_study(fits, study, plan.throughput), {"n_problems": study.data.n_problems, **options}


def edits(earlier: Study, now: Study) -> dict[str, tuple[Any, Any]]:
    """Every field whose edit lets a campaign decide again, with its old and its new value in JSON form."""
    old, new = (study.model_dump(mode="json", exclude={"executor", "supervision"}) for study in (earlier, now))
    return {field: (before, after) for field, before, after in differences(old, new)}


def check_edit(
    earlier: Study, now: Study, backend: Backend, folders: Sequence[Path], where: Path
) -> dict[str, tuple[Any, Any]]:
    """Every field of a campaign's study that was edited, with its old and its new value in JSON form.

    Raises:
        RecordError: an edit that would spoil what was run.
        PlanError: a smaller budget, which runs that have begun may already cost, or another unit.
    """
    changes, before, after = study_changes(earlier, now, backend, folders, where), earlier.budget, now.budget
    less = before is not None and after is not None and (after.unit != before.unit or after.amount < before.amount)
    if less and any(map(store.has_begun, folders)):
        raise PlanError(
            f"budget {after}: this campaign was started with {before}, and its runs have begun; accepted: that much or "
            f"more, in the same unit",
            "Give that much or more; a study with another name in another folder starts afresh.",
        )
    return changes


def without_rise(plan: Plan) -> PlanError | None:
    """Why a campaign does not train its plan: no run's reward rises; None where one does."""
    if plan.fits is None or not plan.fits.no_rise:
        return None
    return PlanError(
        f"no run's reward rises beyond noise, so nothing is trained for the rest of {plan.budget}",
        "Look at the reward and at how hard the problems are for the model (isocompute problems --help); then change "
        "the study and rename it.",
    )


@dataclass(frozen=True)
class Outcome:
    """Results of a campaign."""

    fits: Fits
    """Fits of the sweep."""
    plan: Plan
    comparison: Comparison
    refitted: Fits
    """Fits of the sweep and the planned run together."""
    notes: tuple[Note, ...] = ()
    """Runs that were given up, and what the health checks found in the others."""


@dataclass(frozen=True)
class Campaign:
    """One study as a closed loop in one folder.

    The study needs a budget, which limits the planned run after its sweep. Without a sweep, or with `pilot: auto`, the
    budget pays for everything, and the pilot's runs are chosen in rounds (`pilot.py`).
    A stage first carries out the stages before it: `run()` does everything, `fit()` stops after the fit.

    Raises:
        PlanError: the study has no budget.
    """

    study: Study
    folder: str | Path
    """Receives the files of the campaign."""
    executor: Executor | ExecutorSpec | str | None = None
    """What starts the runs: a name such as `local`, `slurm` or `ray`, its spec, or an object. None: the study's."""
    backend: Backend | None = None
    """Training backend. None: the one named in the study."""
    metric: str = "avg@4"
    eval_set: str | None = "validation"
    fit_options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Further arguments of `fit`, such as `method` or `pool`."""
    plan_options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Further arguments of `Planner.allocate`, such as `spend`."""
    watch: Watch | None = None
    on_edit: Callable[[Mapping[str, tuple[Any, Any]]], None] | None = None
    """Called with what was edited in the study since the last start: field -> its old and its new value."""
    on_decision: Callable[[str], object] | None = None
    """Called with every decision about the pilot and its reason, in words."""
    base: str | Path | None = None
    """Folder to which the paths of the study are relative, those of its runs included. None: the campaign's folder."""

    def __post_init__(self) -> None:
        if self.study.budget is None:
            raise PlanError(
                f"study {self.study.name!r} has no budget; a campaign needs one",
                "Add budget: to the study. Without a sweep it pays for the pilot too.",
            )

    @property
    def root(self) -> Path:
        """Absolute path of the campaign's folder."""
        return Path(self.folder).absolute()

    @property
    def origin(self) -> Path:
        """Absolute path of the folder to which the study's paths are relative."""
        return self.root if self.base is None else Path(self.base).absolute()

    @property
    def study_folder(self) -> Path:
        """Folder of the run folders."""
        return self.origin / self.study.output_dir / self.study.name

    @property
    def study_runs(self) -> StudyRuns:
        """Where the runs lie, what they cost, and how they are fitted."""
        return StudyRuns(self.study, self._backend(), self.origin, self.metric, self.eval_set, self.fit_options)

    @property
    def designed(self) -> DesignedPilot | None:
        """The pilot whose runs are chosen while it goes on; None if they are those of the sweep."""
        pilot = self.study.designed
        if pilot is None:
            return None
        return DesignedPilot(
            self.study_runs,
            pilot,
            self.root,
            pilot.slots if pilot.slots is not None else self._slots(),
            train=lambda runs: self._carry_out("pilot", runs),
            tell=self.on_decision or (lambda _: None),
        )

    def run(self) -> Outcome:
        """Carry out every stage that is not done.

        Raises:
            BackendError: another controller is at work on this campaign, or a run is refused or failed.
            RecordError: the folder holds another campaign, or the study was edited in a way that spoils what was run.
        """
        # What would end it at once is refused before anything is written.
        self._backend()
        if (designed := self.designed) is not None and not designed.decisions():
            designed.first_round()
        with controlling(self.study_folder):
            return Outcome(self.fit(), self.allocate(), self.compare(), self.refit(), self.notes())

    def judge(self, today: Configuration) -> PlanComparison:
        """The plan judged against what is run today, such as `"n=16,bp=128"`, with what was left when it was planned.

        Raises:
            PlanError: a configuration that the fit of the pilot cannot predict.
        """
        plan = self.allocate()
        planner, options = planning_again(plan, self.fit(), self.study, self.plan_options)
        return planner.compare(today, plan=plan, **options)

    def status(self) -> tuple[store.RunStatus, ...]:
        """How far every run of the sweep, and the planned run once there is a plan, has got."""
        return tuple(follow(self._backend(), folder).status() for folder in self._folders())

    def stop(self) -> Stopped:
        """End the runs that go on, on whatever executor, and a controller in another process; `run` resumes them.

        Raises:
            BackendError: the controller cannot be ended from here; the message names it.
            IsoComputeError: the executor of a run is not installed here.
        """
        return stop_study(self.study_folder, [folder for folder in self._folders() if folder.is_dir()])

    def notes(self) -> tuple[Note, ...]:
        """Runs that were given up, and what the health checks find in the others, by what is on disk."""
        folders = self._folders()
        given_up = {folder.name: store.read_abandoned(folder) for folder in folders}
        lost = tuple(given_up_notes({name: why for name, why in given_up.items() if why}, len(folders)))
        return (*lost, *health_of(self._backend(), [one for one in folders if not given_up[one.name]]).notes)

    def runs(self) -> tuple[RunSpec, ...]:
        """All runs so far: those of the sweep or the pilot, and the planned run once there is a plan."""
        designed = self.designed
        if designed is None:
            return self.study.expand() + ((self.planned_run(),) if (self.root / PLAN).exists() else ())
        return designed.runs(designed.decisions())

    def _folders(self) -> tuple[Path, ...]:
        return tuple(map(self.study_runs.place, self.runs()))

    def sweep(self) -> RunSet:
        """Train the unfinished runs of the sweep, or carry out the designed pilot, and return all their measurements.

        Raises:
            BackendError: the backend refuses a run, or a run failed.
        """
        self._open()
        designed = self.designed
        if designed is None:
            return self._train("sweep", self.study.expand())
        return self.study_runs.records(self.study_runs.kept(designed.carry_out()))

    def fit(self) -> Fits:
        """Fit the sweep."""
        self._open()
        path = self.root / FITS
        if path.exists():
            return Fits.load(path)
        runs = self.sweep()
        self._tell("fit")
        fits = self.study_runs.fit(runs)
        fits.save(path)
        return fits

    def allocate(self) -> Plan:
        """Plan the study's budget from the fit."""
        self._open()
        path = self.root / PLAN
        if path.exists():
            return Plan.load(path)
        fits, study, designed = self.fit(), self.study, self.designed
        self._tell("allocate")
        if designed is not None:
            plan = designed.plan(fits, self.plan_options)
        else:
            assert study.budget is not None, "__post_init__ refuses a study without a budget"
            planner = self.study_runs.planner(fits, study.expand())
            plan = planner.allocate(study.budget, n_problems=study.data.n_problems, **self.plan_options)
        plan.save(path)
        return plan

    def planned_run(self) -> RunSpec:
        """The run of the plan, with a seed that no other run has, or a pilot run that it continues.

        Raises:
            PlanError: no run's reward rises beyond noise, so that there is no plan to train.
        """
        plan, designed = self.allocate(), self.designed
        if (stop := without_rise(plan)) is not None:
            raise stop
        if designed is not None:
            return designed.planned_run(plan)
        seeds = [run.seed for run in self.study.expand()]
        # An earlier plan, for a smaller budget, may have left a run of that name.
        runs = (self._planned(seed) for seed in itertools.count(max(seeds) + 1))
        return next(run for run in runs if self._is_free(run))

    def _is_free(self, run: RunSpec) -> bool:
        """Whether the folder of a run is that run's, or holds nothing."""
        folder = self.study_runs.place(run)
        earlier = store.read_spec(folder) if folder.is_dir() else None
        return earlier is None or store.another(earlier, run) is None

    def _planned(self, seed: int) -> RunSpec:
        study, plan = self.study, self.allocate()
        run = api.run_spec(
            plan,
            study.backend,
            model=study.model,
            train_data=study.data.train,
            eval_data=study.data.validation,
            reward=study.data.reward,
            prompt_key=study.data.prompt_key,
            answer_key=study.data.answer_key,
            evaluation=plan.evaluation,
            update_steps=plan.update_steps,
            seed=seed,
        )
        run_id = f"plan-{run.run_id}"
        output_dir = f"{study.output_dir.rstrip('/')}/{study.name}/{run_id}"
        run = run.replace(run_id=run_id, data=study.data, options=study.options, output_dir=output_dir)
        return evaluated_as_planned(run)

    def train(self) -> RunSet:
        """Train the planned run if it is unfinished, and return its measurements."""
        self._open()
        return self._train("train", (self.planned_run(),))

    def compare(self) -> Comparison:
        """Compare the planned run with the prediction of the sweep's fit.

        Raises:
            RecordError: the run has not measured the metric.
        """
        self._open()
        path = self.root / COMPARISON
        if path.exists():
            return Comparison.load(path)
        fits, runs = self.fit(), self.train()
        self._tell("compare")
        comparison = compare(fits, runs)
        comparison.save(path)
        return comparison

    def refit(self) -> Fits:
        """Fit the sweep and the planned run together."""
        self._open()
        path = self.root / REFIT
        if path.exists():
            return Fits.load(path)
        fits, runs, designed = self.fit(), self.train(), self.designed
        self._tell("refit")
        if designed is None:
            refitted = api.refit(fits, runs)
        else:
            kept = self.study_runs.kept(designed.runs(designed.decisions()))
            refitted = self.study_runs.fit(self.study_runs.records(kept))
        refitted.save(path)
        return refitted

    def _open(self) -> None:
        """Write the settings into the folder; refuse a folder with other settings or other results."""
        settings = CampaignSettings(
            self.study, self.metric, self.eval_set, dict(self.fit_options), dict(self.plan_options)
        )
        path = self.root / SETTINGS
        if path.exists():
            self._take_over(CAMPAIGN.load(path), settings)
            return
        stray = [name for name in RESULTS if (self.root / name).exists()]
        if stray:
            raise RecordError(
                f"{self.root} holds {', '.join(stray)}, but no campaign",
                "Choose another folder: these files would be taken for results of this campaign.",
            )
        write_text(self.root / STUDY, dump_spec(self.study))
        CAMPAIGN.save(path, settings)

    def _take_over(self, earlier: CampaignSettings, now: CampaignSettings) -> None:
        """Go on with a campaign that may have been edited; results of what was edited are set aside."""
        before, after = (CAMPAIGN.to_dict(one) for one in (earlier, now))
        changed = [name for name in after if name not in ("study", "digest") and before[name] != after[name]]
        if changed:
            raise RecordError(
                f"{self.root} holds a campaign with another {', '.join(changed)}",
                "Choose another folder, or remove this one to start again.",
            )
        if before == after:
            return
        # Those of the earlier study: one with another name would share this folder with it.
        place = self.origin / earlier.study.output_dir / earlier.study.name
        folders = sorted(path.parent for path in place.glob(f"*/{store.SPEC_FILE}"))
        changes = check_edit(earlier.study, self.study, self._backend(), folders, self.root)
        if self.on_edit is not None and changes:
            self.on_edit(changes)
        sections = {field.partition(".")[0] for field in edits(earlier.study, self.study)}
        designed = self.designed
        if sections:
            stale = (PLAN, COMPARISON, REFIT) if sections <= {"budget", "throughput"} and designed is None else RESULTS
            for path in (self.root / name for name in stale if (self.root / name).exists()):
                free = next(k for k in itertools.count(1) if not path.with_suffix(f".{k}.json").exists())
                path.rename(path.with_suffix(f".{free}.json"))
            if designed is not None:
                designed.reopen()
        write_text(self.root / STUDY, dump_spec(self.study))
        CAMPAIGN.save(self.root / SETTINGS, now)

    def _train(self, stage: Stage, runs: Sequence[RunSpec]) -> RunSet:
        return self.study_runs.records(self._carry_out(stage, runs))

    def _carry_out(self, stage: Stage, runs: Sequence[RunSpec]) -> list[RunSpec]:
        """Train runs; returns those that were not given up."""
        study, backend = self.study, self._backend()
        results = carry_out(
            runs,
            backend,
            self._engine(),
            self.origin,
            lambda statuses: self._tell(stage, statuses),
            study.supervision,
        )
        kept = [run for run, result in zip(runs, results, strict=True) if not result.reason]
        healthy = health_of(backend, map(self.study_runs.place, kept))
        if len(learned_nothing(healthy)) == len(kept):
            raise BackendError(
                f"all {len(kept)} runs of the stage {stage!r} have learned nothing: {healthy.notes[0].message}",
                "Change the study, and start it in another folder.",
            )
        return kept

    def _engine(self) -> Executor:
        return executors.load(self.executor if self.executor is not None else self.study.executor)

    def _slots(self) -> int:
        """Runs that the executor carries out at a time, as far as it can be known."""
        engine = self._engine()
        if isinstance(engine, LocalExecutor):
            study, problems = self.study, self.study.recipe.min_problems_per_batch
            sizes = [n * max(study.hardware.divisor, 2) for n in (8, 4, 2, 1)]
            able = [n for n in sizes if batch_refusal(n, problems, study.hardware, study.recipe) is None]
            if not able:
                return DEFAULT_SLOTS
            batch = Allocation(group_size=able[0], problems_per_batch=problems, update_steps=1)
            return min(engine.slots(needs_of(self._backend(), study.run_of(batch, "sample"))).count, MAX_SLOTS)
        parallel = engine.spec.parallel if isinstance(engine, ClusterExecutor) and engine.spec is not None else None
        return min(parallel or DEFAULT_SLOTS, MAX_SLOTS)

    def _backend(self) -> Backend:
        return self.backend if self.backend is not None else registry.load(self.study.backend)

    def _tell(self, stage: Stage, statuses: tuple[store.RunStatus, ...] = ()) -> None:
        if self.watch is not None:
            self.watch(stage, statuses)
