"""`DesignedPilot`: check the recipe, then choose runs in rounds until another one is not worth its cost.

It is a fold over the decisions and run folders of a campaign: at every start the decisions on file say which runs there
are and how long they are to be; those are trained, then the next decision is taken from what they measured.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from isocompute_sdk.campaigns import decisions as dec
from isocompute_sdk.campaigns.costs import cost_of
from isocompute_sdk.campaigns.decisions import Checks, Chosen, Decisions, Ending, Judged, Known, Look, Qualified, Round
from isocompute_sdk.campaigns.qualification import checks_share, choose_checks, judge_checks
from isocompute_sdk.errors import BackendError, PlanError
from isocompute_sdk.files import write_text
from isocompute_sdk.fitting.fits import Fits
from isocompute_sdk.laws import hedged_prior
from isocompute_sdk.planning import Plan, Planner
from isocompute_sdk.planning.next_runs import NextRun, NextRuns, PilotDesign
from isocompute_sdk.planning.pilot import SHARES
from isocompute_sdk.planning.trials import LOOKS, prospects
from isocompute_sdk.records import RunSet
from isocompute_sdk.run_folders import store
from isocompute_sdk.specs import Allocation, Budget, RunSpec, Study, Throughput
from isocompute_sdk.specs.pilot import Pilot
from isocompute_sdk.tolerances import MIN_UPDATES
from isocompute_sdk.training.backend import Backend, extends_runs, follow, run_folder, speed_options_of

LEAST_REST = 0.03
"""Least share of the budget that the rest of a round must cost for a look at it: each look costs restarts."""
MOST_ROUNDS = 20
"""Rounds after which a pilot ends in any case."""


KEEP_OPTION = "keep_state"
"""Option of backends whose finished runs can be made longer only if they are asked to keep their state."""
PilotStage = Literal["qualify", "pilot"]


@dataclass(frozen=True)
class DesignedPilot:
    """The pilot of one campaign."""

    study: Study
    pilot: Pilot
    root: Path
    """Folder of the decisions."""
    origin: Path
    """Folder to which the paths of the runs are relative."""
    backend: Backend
    slots: int
    """Runs of a round."""
    metric: str
    train: Callable[[PilotStage, Sequence[RunSpec]], object]
    """Trains runs to their end; not called without runs."""
    records: Callable[[Sequence[RunSpec]], RunSet]
    """All rewards on held-out problems of runs."""
    all_records: Callable[[Sequence[RunSpec]], RunSet]
    """The same with every other metric, such as the seconds of steps."""
    fit: Callable[[RunSet], Fits]
    tell: Callable[[str], object]
    """Called with every decision in words, once it is on file."""

    @property
    def budget(self) -> Budget:
        """The study's budget.

        Raises:
            PlanError: it has none.
        """
        if self.study.budget is None:
            raise PlanError(f"study {self.study.name!r} has no budget", "Add budget: to the study.")
        return self.study.budget

    def decisions(self) -> Decisions:
        """The decisions so far."""
        return dec.read_decisions(self.root)

    def carry_out(self) -> tuple[RunSpec, ...]:
        """Train and decide until the pilot is over; returns its runs.

        Raises:
            BackendError: the recipe did not qualify, or a run failed.
            PlanError: nothing fits the budget.
        """
        while True:
            taken = self.decisions()
            self._note_stopped(taken)
            qualifies = self.pilot.qualify and not taken.rounds
            if qualifies and taken.checks is None:
                self._save_checks()
            elif qualifies and taken.checks is not None and taken.qualified is None:
                if taken.checks.runs:
                    self.train("qualify", self.checks(taken))
                self._qualify(taken)
            elif qualifies and taken.qualified is not None and not taken.qualified.healthy:
                raise BackendError(
                    f"the recipe did not qualify: {taken.qualified.reason}",
                    "Change the recipe in a study of another name, or leave the check out (pilot: {qualify: false}).",
                )
            else:
                if runs := self.runs(taken):
                    self.train("pilot", runs)
                if taken.ended:
                    return self.runs(taken)
                self._decide(taken)

    def checks(self, taken: Decisions) -> tuple[RunSpec, ...]:
        """The short runs that check the recipe."""
        return () if taken.checks is None else tuple(self.spec(one) for one in taken.checks.runs)

    def runs(self, taken: Decisions) -> tuple[RunSpec, ...]:
        """All runs with the study's recipe, at the length that they are to have now; planned runs are among them."""
        return tuple(self.spec(one) for one in self.chosen(taken).values())

    def every_run(self, taken: Decisions) -> tuple[RunSpec, ...]:
        """Checks and all other runs, each once."""
        return tuple({run.run_id: run for run in (*self.checks(taken), *self.runs(taken))}.values())

    def chosen(self, taken: Decisions) -> dict[str, Chosen]:
        """The same by name."""
        found: dict[str, Chosen] = {}
        for one in () if taken.checks is None else taken.checks.runs:
            if one.learning_rate_factor == 1:
                found[one.run_id] = one
        for number, round_ in enumerate(taken.rounds, start=1):
            found |= {one.run_id: one for one in self._legs(round_, found, taken.looks.get(number, ()))}
        for ending in taken.endings:
            name = ending.run.run_id
            if name not in found or found[name].update_steps < ending.run.update_steps:
                found[name] = ending.run
        return found

    def spec(self, one: Chosen) -> RunSpec:
        """The run as backends take it."""
        rate = self.study.recipe.learning_rate_anchor * one.learning_rate_factor
        size = Allocation(
            group_size=one.group_size,
            problems_per_batch=one.problems_per_batch,
            update_steps=one.update_steps,
            seed=one.seed,
            learning_rate_anchor=None if one.learning_rate_factor == 1 else rate,
        )
        run = self.study.run_of(size, one.run_id)
        if KEEP_OPTION in (speed_options_of(self.backend) or ()):
            run = run.replace(options={KEEP_OPTION: True, **run.options})
        if one.every_steps is not None:
            run = run.replace(evaluation=self.study.evaluation.replace(every_steps=one.every_steps, count=None))
        return run

    def place(self, run: RunSpec) -> Path:
        """Its folder."""
        return self.origin / run_folder(run)

    def spent(self, taken: Decisions) -> float:
        """What checks and pilot have cost by now, in the budget's unit."""
        return sum(map(self._cost, self.every_run(taken)))

    def _planned_cost(self, taken: Decisions) -> float:
        """What plans for earlier budgets have cost by now, in the budget's unit."""
        pilot = self.chosen(replace(taken, endings=()))
        total = 0.0
        for ending in taken.endings:
            before = pilot[ending.continues].rollouts if ending.continues in pilot else 0
            total += self._cost(self.spec(ending.run)) * max(1.0 - before / ending.run.rollouts, 0.0)
        return total

    def left(self, spent: float) -> Budget:
        """The budget with what was spent on the pilot.

        Raises:
            PlanError: nothing is left.
        """
        other = self.budget.spent or {}
        if self.budget.committed + spent >= self.budget.amount:
            raise PlanError(
                f"checks and pilot have cost {spent:,.4g} of {self.budget}: nothing is left for the plan",
                "Raise the budget in the study, and start again.",
            )
        return self.budget.replace(spent={**other, "pilot": other.get("pilot", 0.0) + spent}) if spent else self.budget

    def throughput(self, taken: Decisions) -> Throughput | None:
        """The study's; for a budget in time without one, measured from the runs so far."""
        study = self.study
        if study.throughput is not None or not self.budget.timed:
            return study.throughput
        runs = [run for run in self.every_run(taken) if store.has_begun(self.place(run))]
        if not runs:
            raise PlanError(
                f"a budget of {self.budget} needs the speed of the machines, and nothing has run yet",
                "Add throughput: to the study (isocompute run --probe measures it), or let pilot: qualify first.",
            )
        return Throughput.measure(self.all_records(runs), gpus=max(study.hardware.gpu_counts))

    def planner(self, fits: Fits, taken: Decisions) -> Planner:
        """The planner of the study."""
        return Planner.for_study(fits, self.study, self.throughput(taken))

    def plan(self, fits: Fits, options: Mapping[str, Any]) -> Plan:
        """The plan for what is left of the budget; a pilot run that it continues counts towards it."""
        taken = self.decisions()
        continued = {size: self._cost(self.spec(one)) for size, one in self._longest(taken).items()}
        return self.planner(fits, taken).allocate(
            self.left(self.spent(taken)), n_problems=self.study.data.n_problems, continued=continued, **options
        )

    def ending(self, plan: Plan) -> Ending:
        """How a plan is trained; decided once."""
        path, taken = self.root / dec.FOLDER / dec.ENDING_FILE, self.decisions()
        if taken.planned:
            return taken.endings[-1]
        continued, spent = self._longest(taken).get((plan.group_size, plan.problems_per_batch)), self.spent(taken)
        if continued is not None:
            run = replace(continued, update_steps=max(plan.update_steps, continued.update_steps))
            spent -= self._cost(self.spec(continued))
            reason = f"{continued.run_id} has the plan's n and B_p, and goes on from {continued.update_steps:,} steps"
        else:
            seed = 1 + max(one.seed for one in self.chosen(taken).values())
            name = f"plan-n{plan.group_size}-bp{plan.problems_per_batch}-seed{seed}"
            every = plan.evaluation.every_steps
            run = Chosen(name, plan.group_size, plan.problems_per_batch, plan.update_steps, seed, every_steps=every)
            reason = "no pilot run has the plan's n and B_p"
            if not extends_runs(self.backend):
                reason = f"backend {self.backend.name} cannot make a finished run longer"
        ending = Ending(run, None if continued is None else continued.run_id, max(spent, 0.0), reason)
        dec.ENDING.save(path, ending)
        self.tell(f"planned run {run.run_id}, {run.update_steps:,} steps: {reason}")
        return ending

    def reopen(self) -> None:
        """Let an edited study decide again whether the pilot is over, and what to plan; runs are kept."""
        taken = self.decisions()
        if taken.ended:
            dec.round_file(self.root, len(taken.rounds)).unlink()
        path = self.root / dec.FOLDER / dec.ENDING_FILE
        if path.exists():
            path.rename(path.with_suffix(f".{len(taken.endings)}.json"))
        if taken.qualified is not None and not taken.qualified.healthy:
            (self.root / dec.FOLDER / dec.QUALIFIED_FILE).unlink()

    def _longest(self, taken: Decisions) -> dict[tuple[int, int], Chosen]:
        """The longest run of each (n, B_p), which a plan with them continues; none if the backend cannot."""
        if not extends_runs(self.backend):
            return {}
        runs = sorted(self.chosen(taken).values(), key=lambda one: one.update_steps)
        kept = [one for one in runs if not store.read_abandoned(self.place(self.spec(one)))]
        return {(one.group_size, one.problems_per_batch): one for one in kept}

    def _cost(self, run: RunSpec) -> float:
        return cost_of(self.place(run), self.backend, self.budget, self.study.throughput, self.study.hardware)

    def _save_checks(self) -> None:
        study = self.study
        design = None
        if study.throughput is not None or not self.budget.timed:
            most = self.pilot.largest_share - checks_share(study)
            design = self._design(self.budget, study.throughput, most)
        sizes = sorted({run.group_size for run in design.runs}) if design is not None else []
        runs, reason = choose_checks(study, self.pilot.seed, sizes)
        dec.CHECKS.save(self.root / dec.FOLDER / dec.CHECKS_FILE, Checks(runs, reason))
        self.tell(reason)

    def _design(self, budget: Budget, throughput: Throughput | None, most: float) -> PilotDesign:
        """The first round, which costs at most the share `most` of what is left of the budget.

        Who asks for a pilot gets one, also where it is expected to cost more than it saves: it shows whether the recipe
        learns at all, which the expectation takes for granted.
        """
        planner = Planner(hedged_prior(), self.study.hardware, self.study.recipe, throughput)
        return planner.design_pilot(
            budget,
            n_problems=self.study.data.n_problems,
            shares=sorted({min(share, most) for share in SHARES}),
            spend_all=True,
            rng=self.pilot.seed,
        )

    def _qualify(self, taken: Decisions) -> None:
        assert taken.checks is not None, "checked by the caller"
        specs = self.checks(taken)
        healthy, reason, notes = judge_checks(
            self.study, taken.checks.runs, [self.place(run) for run in specs], self.backend, self.metric
        )
        path = self.root / dec.FOLDER / dec.QUALIFIED_FILE
        dec.QUALIFIED.save(path, Qualified(healthy, self._known(specs), reason, notes))
        if healthy:
            self.tell(f"recipe: {reason}")

    def _decide(self, taken: Decisions) -> None:
        """The next look or round."""
        if taken.rounds:
            current, looks = taken.rounds[-1], taken.looks[len(taken.rounds)]
            if len(looks) < len(self._looks_of(current, self._before(current, taken))):
                self._look(current, looks, taken)
                return
        self._next_round(taken)

    def _known(self, runs: Sequence[RunSpec]) -> tuple[Known, ...]:
        found: list[Known] = []
        for run in runs:
            status = follow(self.backend, self.place(run)).status()
            reward = status.metrics.get(self.metric)
            found.append(Known(run.run_id, status.rollouts, reward))
        return tuple(found)

    def _most_left(self, taken: Decisions) -> float:
        """What checks and pilot may still cost, in the budget's unit."""
        return self.pilot.largest_share * self.budget.amount - self.spent(taken) + self._planned_cost(taken)

    # Rounds.

    def _next_round(self, taken: Decisions) -> None:
        number, spent, most = len(taken.rounds) + 1, self.spent(taken), self._most_left(taken)
        left, known = self.left(spent), self._known(self.runs(taken))
        runs: tuple[Chosen, ...] = ()
        asked: NextRuns | None = None
        design: PilotDesign | None = None
        if number == 1:
            design = self._design(left, self.throughput(taken), max(most, 0.0) / left.available)
            runs, reason = self._named(design.runs, taken), design.first.reason
            if not runs:
                raise PlanError(
                    f"{self.budget} pay for no pilot: largest_share leaves {max(most, 0.0) / self.budget.amount:.1%} "
                    f"of it for one: {reason}",
                    "Plan from the prior (isocompute plan --prior), raise the budget or largest_share, or give the "
                    "study a sweep.",
                )
        elif number > MOST_ROUNDS or most <= 0:
            largest = self.pilot.largest_share
            reason = f"the pilot ends: it has cost {largest - most / self.budget.amount:.0%} of the budget"
            reason += f", its largest share is {largest:.0%}" if most <= 0 else ""
        else:
            fits = self.fit(self._measured(taken))
            asked = self.planner(fits, taken).next_runs(
                left, slots=self.slots, most=most, continuing=extends_runs(self.backend), rng=number
            )
            runs, barred = self._advised(asked, taken, taken.stopped()) if asked.runs else ((), "")
            reason = asked.reason + barred
        advice = design.runs if design is not None else asked.runs if asked is not None else ()
        share = sum(run.share for run in advice)
        looks = tuple(look for look in LOOKS if (1 - look) * share >= LEAST_REST)
        decided = Round(number, known, spent, left.available, runs, reason, asked, design, looks)
        dec.ROUND.save(dec.round_file(self.root, number), decided)
        self.tell(f"round {number}: {reason}")

    def _advised(self, asked: NextRuns, taken: Decisions, stopped: Collection[str]) -> tuple[tuple[Chosen, ...], str]:
        """The advised runs, without those that continue a stopped one, and a remark if there were any.

        A run that was stopped early stays so: otherwise looks and rounds could undo each other for ever.
        """
        advised = [run for run in asked.runs if run.continues not in stopped]
        barred = "; runs that were stopped early are not continued" if len(advised) < len(asked.runs) else ""
        return self._named(advised, taken), barred

    def _named(self, advised: Sequence[NextRun], taken: Decisions) -> tuple[Chosen, ...]:
        """The advised runs under names of their own; those that continue another keep its name.

        The first round is designed without the checks: one that is as long is a run of it, a shorter one is continued.
        """
        existing, extends = self.chosen(taken), extends_runs(self.backend)

        def serves(name: str, steps: int) -> bool:
            if name not in existing:
                return not (self.origin / self.study.output_dir / self.study.name / name).exists()
            return not taken.rounds and (extends or existing[name].update_steps >= steps)

        found: dict[str, Chosen] = {}
        for one in advised:
            n, bp = one.group_size, one.problems_per_batch
            if one.continues is not None and extends and one.continues in existing:
                before = existing[one.continues]
                found[before.run_id] = replace(before, update_steps=max(one.update_steps, before.update_steps))
                continue
            seed = one.seed + (self.pilot.seed if one.continues is None else 1)
            while (name := f"n{n}-bp{bp}-seed{seed}") in found or not serves(name, one.update_steps):
                seed += 1
            ran = existing[name].update_steps if name in existing else 0
            found[name] = Chosen(name, n, bp, max(one.update_steps, ran), seed)
        return tuple(found.values())

    def _measured(self, taken: Decisions) -> RunSet:
        """Measurements of all runs with the study's recipe that have any."""
        runs = [run for run in self.runs(taken) if not store.read_abandoned(self.place(run))]
        return self.records(runs)

    # Looks.

    def _legs(self, round_: Round, before: dict[str, Chosen], looks: Sequence[Look]) -> Iterator[Chosen]:
        """The runs of a round at the length of their present leg, whose end is the same share for late ones."""
        ended = {one.run_id: one.update_steps for look in looks for one in look.judged if one.stopped}
        shares = self._looks_of(round_, before)
        begun = [(0.0, run) for run in round_.runs]
        begun += [(share, run) for share, look in zip(shares, looks, strict=False) for run in look.added]
        for start, run in begun:
            if run.run_id in ended:
                yield replace(run, update_steps=ended[run.run_id])
            elif len(looks) < len(shares):
                yield self._leg(run, before, (shares[len(looks)] - start) / (1 - start))
            else:
                yield run

    @staticmethod
    def _leg(run: Chosen, before: dict[str, Chosen], share: float) -> Chosen:
        """The run after this share of the way that the round adds to it."""
        begin = before[run.run_id].update_steps if run.run_id in before else 0
        steps = begin + math.ceil(share * (run.update_steps - begin))
        return replace(run, update_steps=min(max(steps, begin, 1), run.update_steps))

    def _looks_of(self, round_: Round, before: dict[str, Chosen]) -> list[float]:
        """Shares of the way at which a round is looked at; none where runs cannot be made longer, or are too short."""
        if not (self.pilot.stop_early and extends_runs(self.backend)):
            return []
        legs = {share: [self._leg(run, before, share) for run in round_.runs] for share in round_.looks}
        return [share for share, runs in legs.items() if any(run.update_steps >= MIN_UPDATES for run in runs)]

    def _before(self, round_: Round, taken: Decisions) -> dict[str, Chosen]:
        """All runs as they were before a round."""
        earlier = replace(taken, rounds=taken.rounds[: round_.number - 1], endings=())
        return self.chosen(earlier)

    def _look(self, round_: Round, looks: Sequence[Look], taken: Decisions) -> None:
        number, target = len(looks) + 1, 0.0
        gone = {one.run_id for look in looks for one in look.judged if one.stopped}
        final = {run.run_id: run.update_steps for run in (*round_.runs, *(run for one in looks for run in one.added))}
        now = self.chosen(taken)
        going = [now[name] for name in final if name not in gone and now[name].update_steps < final[name]]
        judged, added, asked = tuple[Judged, ...](), tuple[Chosen, ...](), None
        reason = "no run of the round goes on"
        if going:
            fits = self.fit(self._measured(taken))
            target = self._target(fits, taken)
            judged = self._judged(fits, going, final, target, taken)
            stopped = {one.run_id for one in judged if one.stopped}
            reason = f"judged at {target:,.0f} rollouts, what the plan would spend: " + (
                f"{', '.join(sorted(stopped))} cannot be the best there and stop"
                if stopped
                else "all may still be the best"
            )
            rest = {one.run_id: final[one.run_id] for one in going if one.run_id not in stopped}
            rng = np.random.default_rng([round_.number, number])
            added, asked, told = self._fill_slots(fits, rest, stopped, taken, rng)
            reason += told
        look = Look(round_.number, number, target, judged, reason, added, asked)
        dec.LOOK.save(dec.look_file(self.root, round_.number, number), look)
        if going:
            self.tell(f"look {number} at round {round_.number}: {reason}")

    def _fill_slots(
        self, fits: Fits, going: Mapping[str, int], stopped: Collection[str], taken: Decisions, rng: np.random.Generator
    ) -> tuple[tuple[Chosen, ...], NextRuns | None, str]:
        """New runs for the slots that stopped ones leave beside those that go on, what advised them, and in words."""
        now, free = self.chosen(taken), min(len(stopped), self.slots - len(going))
        most = self._most_left(taken) - sum(
            self._cost(self.spec(now[name])) * (steps / now[name].update_steps - 1) for name, steps in going.items()
        )
        if not going or free <= 0 or most <= 0:
            return (), None, ""
        asked = self.planner(fits, taken).next_runs(
            self.left(self.spent(taken)), slots=free, most=most, going=going, continuing=False, rng=rng
        )
        added, barred = self._advised(asked, taken, {*taken.stopped(), *stopped})
        return added, asked, f". {'Free slots: ' if added else 'No other run takes a slot: '}{asked.reason}{barred}"

    def _judged(
        self, fits: Fits, going: Sequence[Chosen], final: Mapping[str, int], target: float, taken: Decisions
    ) -> tuple[Judged, ...]:
        """What is left to expect of the runs that go on."""
        stopped = taken.stopped()
        ended = {
            (one.group_size, one.problems_per_batch)
            for one in taken.pilot_runs()
            if one.run_id not in stopped and one.run_id not in {run.run_id for run in going}
        }
        found = prospects(
            fits, [(one.group_size, one.problems_per_batch, float(one.rollouts)) for one in going], target, ended
        )
        return tuple(
            Judged(run.run_id, run.rollouts, one.chance, one.hopeless, run.update_steps if one.hopeless else 0)
            for run, one in zip(going, found, strict=True)
        )

    def _target(self, fits: Fits, taken: Decisions) -> float:
        """Rollouts that the plan would spend."""
        left = self.left(self.spent(taken))
        if left.unit == "rollouts":
            return left.available
        return float(self.planner(fits, taken).allocate(left, n_problems=self.study.data.n_problems).rollouts)

    def _note_stopped(self, taken: Decisions) -> None:
        """Say in the run folders which runs were stopped early."""
        stopped = taken.stopped()
        for run in self.runs(taken):
            folder, one = self.place(run), stopped.get(run.run_id)
            path = folder / store.EARLY_FILE
            if one is None:
                path.unlink(missing_ok=True)
            elif folder.is_dir() and not path.exists():
                write_text(path, f"chance to be the best at the target {one.chance:.1%}\n")
