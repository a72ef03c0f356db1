"""`DesignedPilot`: choose runs in rounds until another one is not worth its cost; every decision is a file.

A decision holds every run with the length that it is to have now, and is written before it is carried out. The last one
is therefore the state of the campaign: at every start its runs are trained, then the next decision is taken.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from isocompute_sdk.campaigns.study_runs import StudyRuns
from isocompute_sdk.documents import Converted, Document
from isocompute_sdk.errors import PlanError
from isocompute_sdk.files import write_text
from isocompute_sdk.fitting.fits import Fits
from isocompute_sdk.fitting.surface.data import MIN_EVALUATIONS
from isocompute_sdk.health.findings import falls_in
from isocompute_sdk.laws import hedged_prior
from isocompute_sdk.planning import Plan
from isocompute_sdk.planning.next_runs import NextRun, NextRuns
from isocompute_sdk.planning.pilot_design import PILOT_SHARES as SHARES
from isocompute_sdk.planning.pilot_design import PilotDesign
from isocompute_sdk.planning.pricing import amount_text
from isocompute_sdk.planning.trials import CHANCE, LOOKS, prospects
from isocompute_sdk.run_folders import store
from isocompute_sdk.specs import Allocation, Budget, RunSpec, Study
from isocompute_sdk.specs.study import Pilot
from isocompute_sdk.specs.sweep import Sized
from isocompute_sdk.timing.spending import in_time_left
from isocompute_sdk.tolerances import MIN_UPDATES
from isocompute_sdk.training.backend import extends_runs, follow, speed_options_of

FOLDER = "decisions"
MIN_REST = 0.03
"""Share of the budget that the rest of a round must cost for a look at it: each look costs restarts."""
MAX_ROUNDS = 20
"""Rounds after which a pilot ends in any case."""
KEEP_OPTION = "keep_state"
"""Option of backends whose finished runs can be made longer only if they are asked to keep their state."""
SCHEDULE_OPTION = "evaluations_per_decade"
"""Option that places evaluations otherwise than `Evaluation` says."""

Kind = Literal["round", "look", "end", "plan", "edit"]
"""`round`: new runs; `look`: which of them go on; `end`: the pilot is over; `plan`: how the plan is trained; `edit`:
the study was edited, and the question of a further round is open again."""
Natural = Annotated[int, Field(ge=0)]


@dataclass(frozen=True)
class Chosen(Sized):
    """One run, with the length that it is to have now."""

    run_id: str
    group_size: Annotated[int, Field(ge=2)]
    problems_per_batch: Annotated[int, Field(ge=1)]
    update_steps: Annotated[int, Field(ge=1)]
    """M, counted from the start of the run also where it continues one."""
    seed: Natural
    final_steps: Natural
    """M that it is to have if no look ends it."""
    first_step: Natural = 0
    """M before its round."""
    every_steps: Annotated[int, Field(ge=1)] | None = None
    """Update steps between two evaluations; None for those of the study."""
    stopped: Annotated[float, Field(ge=0, le=1)] | None = None
    """Probability that its n is the best, with which a look has ended it; None if none has."""

    @property
    def paused(self) -> str:
        """Where it pauses, in words."""
        return f"{self.run_id} at {self.update_steps:,} of {self.final_steps:,} steps"

    def leg(self, share: float) -> Chosen:
        """The run after this share of the way that its round adds to it."""
        steps = self.first_step + math.ceil(share * (self.final_steps - self.first_step))
        return replace(self, update_steps=min(max(steps, self.first_step, 1), self.final_steps))


@dataclass(frozen=True)
class Known:
    """One run at the time of a decision."""

    run_id: str
    rollouts: Natural
    reward: float | None
    """Its last measured reward."""


@dataclass(frozen=True)
class Decision:
    """What was known, what was chosen, and why."""

    number: Annotated[int, Field(ge=1)]
    what: Kind
    reason: str
    runs: tuple[Chosen, ...]
    """Every run so far, those that this decision adds among them."""
    known: tuple[Known, ...]
    spent: Annotated[float, Field(ge=0)]
    """By then, in the budget's unit; of a plan without what it takes over from the run that it continues."""
    looks: tuple[Annotated[float, Field(gt=0, lt=1)], ...] = ()
    """Shares of the round's way at which its runs are still to be looked at."""
    target: Annotated[float, Field(ge=0)] = 0.0
    """Rollouts that the plan would spend, at which a look judges runs."""
    planned: str = ""
    """The plan's run."""
    continues: str = ""
    """Pilot run that it continues."""
    asked: Annotated[NextRuns, Converted(NextRuns.to_dict, NextRuns.from_dict, dict[str, Any])] | None = None
    """What the planner advised; None where it was not asked."""
    design: Annotated[PilotDesign, Converted(PilotDesign.to_dict, PilotDesign.from_dict, dict[str, Any])] | None = None
    """The design of the first round."""

    @property
    def pausing(self) -> tuple[Chosen, ...]:
        """Runs that pause for a look, of which the next decision says which go on."""
        return tuple(one for one in self.runs if one.update_steps < one.final_steps) if self.looks else ()

    @property
    def named(self) -> dict[str, Chosen]:
        """Its runs by name."""
        return {run.run_id: run for run in self.runs}


DECISION = Document("campaign-decision", 1, Decision, remedy="Remove this file and the later ones to decide again.")


def decision_file(root: Path, number: int, kind: str) -> Path:
    """Where a decision is kept."""
    return root / FOLDER / f"{number}-{kind}.json"


def read_decisions(root: Path) -> tuple[Decision, ...]:
    """The decisions in a campaign's folder, in order.

    Raises:
        IsoComputeError: a file is damaged.
    """
    found: list[Decision] = []
    while paths := list((root / FOLDER).glob(f"{len(found) + 1}-*.json")):
        found.append(DECISION.load(paths[0]))
    return tuple(found)


def share_of_plan(taken: Sequence[Decision], run_id: str) -> float:
    """Share of a run's rollouts that belongs to a plan rather than to the pilot; 0 for a run without a plan."""
    for earlier, one in itertools.pairwise(taken):
        if one.what == "plan" and one.planned == run_id:
            before = earlier.named[run_id].rollouts if one.continues else 0
            return max(1.0 - before / taken[-1].named[run_id].rollouts, 0.0)
    return 0.0


def evaluated_as_planned(run: RunSpec) -> RunSpec:
    """The run of a plan, which has counted and priced its evaluations, without another schedule of its backend."""
    return run.replace(options={name: value for name, value in run.options.items() if name != SCHEDULE_OPTION})


@dataclass(frozen=True)
class DesignedPilot:
    """The pilot of one campaign."""

    own: StudyRuns
    """Its runs."""
    pilot: Pilot
    root: Path
    """Folder of the decisions."""
    slots: int
    """Runs of a round."""
    train: Callable[[Sequence[RunSpec]], object]
    """Trains runs to their end."""
    tell: Callable[[str], object]
    """Called with every decision in words, once it is on file."""

    @property
    def study(self) -> Study:
        """The study."""
        return self.own.study

    @property
    def extends(self) -> bool:
        """Whether finished runs can be made longer."""
        return extends_runs(self.own.backend)

    @property
    def budget(self) -> Budget:
        """The study's budget."""
        assert self.study.budget is not None, "a campaign has one"
        return self.study.budget

    def decisions(self) -> tuple[Decision, ...]:
        """The decisions so far."""
        return read_decisions(self.root)

    def carry_out(self) -> tuple[RunSpec, ...]:
        """Train and decide until the pilot is over; returns its runs.

        Raises:
            BackendError: a run failed.
            PlanError: nothing fits the budget.
        """
        while True:
            taken = self.decisions()
            if taken and self._shortened(taken):
                continue
            if taken:
                self._mark_stopped(taken[-1])
                self.train(self.runs(taken))
                if taken[-1].what in ("end", "plan"):
                    return self.runs(taken)
            if taken and taken[-1].pausing:
                self._look(taken)
            else:
                self._next_round(taken)

    def runs(self, taken: Sequence[Decision]) -> tuple[RunSpec, ...]:
        """All runs at the length that they are to have now; planned runs are among them."""
        return tuple(map(self.spec, taken[-1].runs)) if taken else ()

    def spec(self, one: Chosen) -> RunSpec:
        """The run as backends take it."""
        size = Allocation(
            group_size=one.group_size,
            problems_per_batch=one.problems_per_batch,
            update_steps=one.update_steps,
            seed=one.seed,
        )
        run = self.study.run_of(size, one.run_id)
        if KEEP_OPTION in (speed_options_of(self.own.backend) or ()):
            run = run.replace(options={KEEP_OPTION: True, **run.options})
        # A short run shows its curve only if it is evaluated more often than the study says.
        most = one.every_steps or max(one.final_steps // MIN_EVALUATIONS, 1)
        counted = self.study.evaluation.count is not None
        if one.every_steps is not None or (most < run.evaluation.every_steps and not counted):
            run = run.replace(evaluation=self.study.evaluation.replace(every_steps=most, count=None))
        return run if one.every_steps is None else evaluated_as_planned(run)

    def plan(self, fits: Fits, options: Mapping[str, Any]) -> Plan:
        """The plan for what is left of the budget; a pilot run that it continues counts towards it.

        Raises:
            PlanError: nothing fits what is left, or the plan of this budget was trained.
        """
        taken = self.decisions()
        last = taken[-1]
        if last.what == "plan" and store.is_finished(self.own.place(self.spec(last.named[last.planned]))):
            raise PlanError(f"its plan was trained: {last.planned}", "To plan more, raise the budget in the study.")
        asked = {**self.asked(fits), **options}
        return self.own.planner(fits, self.runs(taken)).allocate(self.left(taken), **asked)

    def asked(self, fits: Fits) -> dict[str, Any]:
        """How it asks for its plan: with what that may take over from the pilot. A round asks about this very plan."""
        taken = self.decisions()
        continued = {size: self._status(one).step for size, one in self._longest(taken, fits).items()}
        rounds = sum(one.what == "round" for one in taken)
        most = max(self._most(taken), 0.0) if rounds < MAX_ROUNDS else 0.0
        # A run that was stopped early stays so: otherwise looks and rounds could undo each other for ever.
        ended = {run.run_id for run in (taken[-1].runs if taken else ()) if run.stopped is not None or not self.extends}
        return {"n_problems": self.study.data.n_problems, "continued": continued, "most": most, "ended": ended}

    def planned_run(self, plan: Plan) -> RunSpec:
        """The run that trains a plan; decided once."""
        taken = self.decisions()
        if taken[-1].what == "plan":
            return self.spec(taken[-1].named[taken[-1].planned])
        assert plan.fits is not None, "a plan of runs has their fits"
        size, spent = (plan.group_size, plan.problems_per_batch), self._spent(taken)
        continued = self._longest(taken, plan.fits).get(size)
        if continued is not None:
            steps, every = max(plan.update_steps, continued.update_steps), plan.evaluation.every_steps
            run = replace(continued, update_steps=steps, final_steps=steps, stopped=None, every_steps=every)
            spent -= self.own.cost(self.spec(continued))
            goes_on = f"continues from {continued.update_steps:,} steps and becomes the planned run"
            if steps == continued.update_steps:
                goes_on = f"and no fewer steps than its {plan.update_steps:,}: nothing more is trained"
            reason = f"{continued.run_id} has the plan's n and B_p, {goes_on}"
        else:
            n, problems, steps = plan.group_size, plan.problems_per_batch, plan.update_steps
            seed = 1 + max(one.seed for one in taken[-1].runs)
            every = plan.evaluation.every_steps
            run = Chosen(f"plan-n{n}-bp{problems}-seed{seed}", n, problems, steps, seed, steps, every_steps=every)
            reason = "no pilot run has the plan's n and B_p"
            if not self.extends:
                reason = f"backend {self.own.backend.name} cannot make a finished run longer"
        reason = f"planned run {run.run_id}, {run.update_steps:,} steps: {reason}"
        continues = "" if continued is None else continued.run_id
        self._save(taken, "plan", reason, [run], spent=max(spent, 0.0), planned=run.run_id, continues=continues)
        return self.spec(run)

    def reopen(self) -> None:
        """Let an edited study decide again whether the pilot is over, and what to plan; runs are kept."""
        taken = self.decisions()
        if taken and taken[-1].what in ("end", "plan"):
            self._save(taken, "edit", "the study was edited", [])

    def _save(self, taken: Sequence[Decision], kind: Kind, reason: str, changed: Sequence[Chosen], **more: Any) -> None:
        """Write the next decision: the runs so far, with those that it changes or adds."""
        known: list[Known] = []
        for run in taken[-1].runs if taken else ():
            status = self._status(run)
            known.append(Known(run.run_id, status.rollouts, status.metrics.get(self.own.metric)))
        runs = {**(taken[-1].named if taken else {}), **{run.run_id: run for run in changed}}
        number = len(taken) + 1
        values: dict[str, Any] = {"spent": self._spent(taken), **more}
        decided = Decision(number, kind, reason, tuple(runs.values()), tuple(known), **values)
        DECISION.save(decision_file(self.root, number, kind), decided)
        self.tell("; ".join(filter(None, (reason, self.own.slowdown(self.runs(taken))))))

    def _status(self, one: Chosen) -> store.RunStatus:
        """How far a run is."""
        return follow(self.own.backend, self.own.place(self.spec(one))).status()

    def _spent(self, taken: Sequence[Decision]) -> float:
        """What the runs have cost by now, in the budget's unit."""
        return sum(map(self.own.cost, self.runs(taken)))

    def left(self, taken: Sequence[Decision]) -> Budget:
        """The budget with what was spent on the pilot, and the hours that its runs leave until the deadline."""
        spent, other = self._spent(taken), self.budget.spent or {}
        if self.budget.committed + spent >= self.budget.amount:
            cost = amount_text(spent, self.budget.unit)
            raise PlanError(
                f"the pilot has cost {cost} of {self.budget}: nothing is left for the plan",
                "Raise the budget in the study, and start again.",
            )
        left = in_time_left(self.budget, map(self.own.place, self.runs(taken)), self.slots)
        return left.replace(spent={**other, "pilot": other.get("pilot", 0.0) + spent}) if spent else left

    def _longest(self, taken: Sequence[Decision], fits: Fits) -> dict[tuple[int, int], Chosen]:
        """The longest healthy run of each (n, B_p), which a plan with them continues; none if the backend cannot."""
        if not self.extends or not taken:
            return {}
        runs = sorted(taken[-1].runs, key=lambda one: one.update_steps)
        kept = {run.run_id for run in self.own.kept(self.runs(taken))} - set(falls_in(fits.notes))
        return {(one.group_size, one.problems_per_batch): one for one in runs if one.run_id in kept}

    def _fit(self, taken: Sequence[Decision]) -> Fits:
        """A fit of all runs that were not given up."""
        return self.own.fit(self.own.records(self.own.kept(self.runs(taken))))

    # Rounds.

    def _next_round(self, taken: Sequence[Decision]) -> None:
        number, most = 1 + sum(one.what == "round" for one in taken), self._most(taken)
        if number == 1:
            design = self.first_round(taken)
            chosen = self._chosen(design.runs, taken)
            self._save_round(taken, 1, chosen, design.first.reason, design.runs, design=design)
            return
        asked, runs, judged = None, list[Chosen](), ()
        if number > MAX_ROUNDS or most <= 0:
            largest = self.pilot.largest_share
            reason = f"the pilot ends: it has cost {largest - most / self.budget.amount:.0%} of the budget"
            reason += f", of at most {largest:.0%}" if most <= 0 else ""
        else:
            fits = self._fit(taken)
            planner = self.own.planner(fits, self.runs(taken))
            asked = planner.next_runs(self.left(taken), slots=self.slots, **self.asked(fits))
            runs, reason = self._chosen(asked.runs, taken), asked.reason
            # Without a rise no look can tell which of them may win.
            judged = () if fits.no_rise else asked.runs
        self._save_round(taken, number, runs, reason, judged, asked=asked)

    def _most(self, taken: Sequence[Decision]) -> float:
        """What the pilot may still cost, in the budget's unit; plans for earlier budgets do not count."""
        pilot = sum(self.own.cost(run) * (1.0 - share_of_plan(taken, run.run_id)) for run in self.runs(taken))
        return self.pilot.largest_share * self.budget.amount - pilot

    def first_round(self, taken: Sequence[Decision] = ()) -> PilotDesign:
        """The designed round, which costs at most the pilot's share of the budget.

        Who asks for a pilot gets one, also where it is expected to cost more than it saves: it shows whether the recipe
        learns at all, which the expectation takes for granted.

        Raises:
            PlanError: the budget is too small for a pilot.
        """
        study, left, most = self.study, self.left(()), self._most(taken)
        share = max(most, 0.0) / left.available
        planner = self.own.planner(hedged_prior(), self.runs(taken))
        design = planner.design_pilot(
            left,
            n_problems=study.data.n_problems,
            shares=sorted({min(one, share) for one in SHARES}),
            spend_all=True,
            rng=self.pilot.seed,
        )
        if not design.runs:
            raise PlanError(
                f"{self.budget} is too small for a pilot: largest_share leaves "
                f"{max(most, 0.0) / self.budget.amount:.1%} "
                f"of it for one: {design.first.reason}",
                "Plan from the prior (isocompute plan --prior), raise the budget or largest_share, or give the "
                "study a sweep.",
            )
        return design

    def _save_round(
        self,
        taken: Sequence[Decision],
        number: int,
        runs: Sequence[Chosen],
        reason: str,
        advice: Sequence[NextRun],
        **more: Any,
    ) -> None:
        """A round whose runs go to their first look; without runs the pilot ends."""
        share = sum(run.cost for run in advice) / self.left(taken).available
        stops = self.pilot.stop_early and self.extends
        looks = [look for look in LOOKS if (1 - look) * share >= MIN_REST] if stops else []
        looks = [look for look in looks if any(run.leg(look).update_steps >= MIN_UPDATES for run in runs)]
        begun = [run.leg(looks[0]) for run in runs] if looks else runs
        self._save(taken, "round" if runs else "end", f"round {number}: {reason}", begun, looks=tuple(looks), **more)

    def _chosen(self, advised: Sequence[NextRun], taken: Sequence[Decision]) -> list[Chosen]:
        """The advised runs under names of their own; those that continue another keep its name."""
        existing = taken[-1].named if taken else {}
        runs = self.own.origin / self.study.output_dir / self.study.name
        found: dict[str, Chosen] = {}
        for one in advised:
            n, problems, before = one.group_size, one.problems_per_batch, existing.get(one.continues or "")
            if before is not None:
                steps = max(one.update_steps, before.update_steps)
                found[before.run_id] = replace(
                    before, update_steps=steps, final_steps=steps, first_step=before.update_steps, stopped=None
                )
                continue
            # That of a further run counts on from the seeds of those before it.
            seed = max(one.seed, self.pilot.seed)
            while (name := f"n{n}-bp{problems}-seed{seed}") in {*found, *existing} or (runs / name).exists():
                seed += 1
            found[name] = Chosen(name, n, problems, one.update_steps, seed, one.update_steps)
        return list(found.values())

    # Looks.

    def _look(self, taken: Sequence[Decision]) -> None:
        """Judge the runs that go on, and end those that cannot be the best at the compute of the plan."""
        last = taken[-1]
        going = list(last.pausing)
        fits = self._fit(taken)
        left = self.left(taken)
        target = left.available
        if left.unit != "rollouts":
            planner = self.own.planner(fits, self.runs(taken))
            target = float(planner.allocate(left, n_problems=self.study.data.n_problems).rollouts)
        ended = {(run.group_size, run.problems_per_batch) for run in last.runs if run.stopped is None}
        sizes = [(run.group_size, run.problems_per_batch, float(run.rollouts)) for run in going]
        ended -= {(n, problems) for n, problems, _ in sizes}
        judged = prospects(fits, sizes, target, ended)
        hopeful = [
            (run, run.update_steps, run.final_steps) for run, one in zip(going, judged, strict=True) if not one.hopeless
        ]
        ends, dearer = self._paid(taken, hopeful)
        looks = () if dearer else last.looks[1:]
        now = [
            replace(run, final_steps=run.update_steps, stopped=one.chance)
            if one.hopeless
            else replace(run, final_steps=ends[run.run_id]).leg(looks[0] if looks else 1.0)
            for run, one in zip(going, judged, strict=True)
        ]
        stopped = [run.run_id for run in now if run.stopped is not None]
        what = (
            f"stopped {', '.join(stopped)}, whose chance of being the best there is below {CHANCE:.0%}"
            if stopped
            else "all may still be the best"
        )
        at = f"the {target:,.0f} rollouts left" if left.unit == "rollouts" else f"the plan's {target:,.0f} rollouts"
        reason = "; ".join(filter(None, (f"interim look, projected to {at}: {what}", dearer)))
        self._save(taken, "look", reason, now, looks=looks, target=target)

    def _paid(self, taken: Sequence[Decision], ways: Sequence[tuple[Chosen, int, int]]) -> tuple[dict[str, int], str]:
        """Where runs end that go from one step to another, by name; and in words that the pilot's share ends them.

        Runs may turn out dearer than priced: each is taken to cost as much per rollout as so far, a new one as all.
        """
        costs = [self.own.cost(self.spec(run)) for run, _, _ in ways]
        begun = sum(run.rollouts_per_batch * has for run, has, _ in ways)
        usual = sum(costs) / begun if begun else 0.0
        rest = sum(
            cost * (end / has - 1.0) if has else usual * run.rollouts_per_batch * end
            for cost, (run, has, end) in zip(costs, ways, strict=True)
        )
        most = max(self._most(taken), 0.0)
        paid = min(1.0, most / rest) if rest else 1.0
        ends = {run.run_id: max(has + math.floor(paid * (end - has)), 1) for run, has, end in ways}
        if paid == 1.0:
            return ends, ""
        cost, share = (amount_text(amount, self.budget.unit) for amount in (rest, most))
        what = f"runs continue for {paid:.0%} of it" if paid else "all runs end now"
        return ends, f"finishing would cost {cost}, but the pilot's share has {share} left: {what}"

    def _shortened(self, taken: Sequence[Decision]) -> bool:
        """Whether interrupted runs were made shorter, since the share of the pilot does not pay for the rest."""
        last = taken[-1]
        if last.what not in ("round", "look") or not self.extends:
            return False
        seen = {run.run_id: self._status(run) for run in last.runs}
        ways = [(run, seen[run.run_id].step, run.update_steps) for run in last.runs]
        ways = [(run, has, end) for run, has, end in ways if has < end]
        goes_on = any(one.state == "running" or one.engine for one in seen.values())
        if goes_on or all(has <= run.first_step for run, has, _ in ways):
            return False
        ends, dearer = self._paid(taken, ways)
        now = [replace(run, update_steps=ends[run.run_id], final_steps=ends[run.run_id]) for run, _, _ in ways]
        if all(ends[run.run_id] == end for run, _, end in ways):
            return False
        self._save(taken, "look", dearer, now)
        return True

    def _mark_stopped(self, last: Decision) -> None:
        """Say in the run folders which runs were stopped early."""
        for run in last.runs:
            folder = self.own.place(self.spec(run))
            path = folder / store.EARLY_FILE
            if run.stopped is None:
                path.unlink(missing_ok=True)
            elif folder.is_dir() and not path.exists():
                write_text(path, f"{run.stopped:.1%} chance of being the best at the target\n")
