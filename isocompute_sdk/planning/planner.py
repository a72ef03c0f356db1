"""`Planner`: from fits, hardware and recipe to the best executable allocation of a budget."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from isocompute_sdk.errors import PlanError
from isocompute_sdk.fitting.fits import Fits
from isocompute_sdk.fitting.fits_set import FitsSet
from isocompute_sdk.fitting.surface.model import OCTAVES_ABOVE
from isocompute_sdk.notes import Note, unique
from isocompute_sdk.planning.assessment import caveats
from isocompute_sdk.planning.assessment.alternatives import alternatives, binding, find_optima, with_budget
from isocompute_sdk.planning.choosing.candidates import Candidate, Fixed, Limits, Rejection
from isocompute_sdk.planning.choosing.evaluation_schedule import EVALUATION_SHARE
from isocompute_sdk.planning.choosing.preference import LawPreference, Mode, Preference, RewardPreference
from isocompute_sdk.planning.choosing.pricing import DEFAULT_EVALUATION, Pricing
from isocompute_sdk.planning.choosing.request import Request, ResolvedRequest, Spend, whole, whole_number
from isocompute_sdk.planning.choosing.setups import choose_setup
from isocompute_sdk.planning.experiment.asking import Question, ask
from isocompute_sdk.planning.experiment.next_runs import NextRuns
from isocompute_sdk.planning.experiment.pilot_design import design_pilot, pilot_sweep
from isocompute_sdk.planning.inheritance import FITTED, inherit, same_model
from isocompute_sdk.planning.plan import Plan
from isocompute_sdk.planning.questions.budget_for import BudgetFor, budget_for
from isocompute_sdk.planning.questions.compare import Configuration, Equal, PlanComparison, compare, parse_configuration
from isocompute_sdk.planning.questions.judge import Judgement, judge
from isocompute_sdk.planning.questions.marginal import Marginal, marginal
from isocompute_sdk.planning.questions.plans_by_budget import PlansByBudget
from isocompute_sdk.specs import Budget, Evaluation, Hardware, Recipe, Sweep, Throughput
from isocompute_sdk.specs.base import holds_login
from isocompute_sdk.specs.budget import Unit
from isocompute_sdk.tolerances import Tolerances

USUAL_REACH = 3.0
"""Budget of `next_runs` if none is given, as a multiple of the largest compute that was run."""


if TYPE_CHECKING:
    from isocompute_sdk.ingest.saved_checkpoints import SavedCheckpoint
    from isocompute_sdk.planning.replanning.document import Replan
    from isocompute_sdk.records import RunSet
    from isocompute_sdk.specs import Study


class Planner:
    """Answers how to spend a budget, from fits of one metric or of several, of which the first decides.

    Args:
        fits: `fit(...)`, `published(...)`, `published_prior()` or a `FitsSet`.
        hardware: batch limits and GPUs to choose from; no limits by default.
        recipe: training recipe. Fields that it does not give (`Recipe.given`) come from the runs behind the fits, and
            from the paper's preset where the runs record nothing.
        throughput: seconds and tokens per rollout, for deadlines and for budgets in other units than rollouts.
        evaluation: how runs are evaluated; plans pay for it in hours and money. None: 300 problems x 4, which hours
            and money pay for if the throughput has the speed of evaluations.
        model: the model to be trained, if it is not the one of the fits.
        allow_other_model: plan from a published law of another model.
        allow_off_policy: plan from asynchronous runs whose rollouts may be more than one update old.

    Raises:
        PlanError: a published law of another model without `allow_other_model`, or an argument of another type.
    """

    def __init__(
        self,
        fits: Fits | FitsSet,
        hardware: Hardware | None = None,
        recipe: Recipe | None = None,
        throughput: Throughput | None = None,
        *,
        evaluation: Evaluation | None = None,
        model: str | None = None,
        allow_other_model: bool = False,
        allow_off_policy: bool = False,
    ) -> None:
        _check_kinds(fits, hardware, recipe, throughput, evaluation, model)
        self.others = dict(list(fits.items())[1:]) if isinstance(fits, FitsSet) else {}
        self.fits = fits.first if isinstance(fits, FitsSet) else fits
        self.hardware = hardware if hardware is not None else Hardware()
        self.inheritance = inherit(
            self.fits, recipe, Recipe() if _recipe_name(self.fits) == "easy" else Recipe(based_on="hard")
        )
        self.throughput = throughput
        self.evaluation = evaluation
        self.model = model
        self.allow_other_model = allow_other_model
        self.allow_off_policy = allow_off_policy
        borrowed = model is not None and not same_model(model, self.fits.model)
        if self.fits.method == "published" and borrowed and not allow_other_model:
            raise PlanError(
                f"{self.fits.source} is the law of {self.fits.model}, and the plan is for {model}; "
                "published plateaus differ up to 32-fold between models",
                "Fit a pilot of your own, use the prior (--prior, published_prior()), or accept the risk with "
                "--allow-other-model (allow_other_model=True).",
            ).in_shell("Fit a pilot of your own, use --prior, or accept the risk with --allow-other-model.")

    @classmethod
    def of(cls, plan: Plan) -> Planner:
        """The planner that made a plan, as far as the plan says.

        Raises:
            PlanError: a plan that was saved without its fits.
        """
        if plan.fits is None:
            raise PlanError("this plan holds no fits", "Save it with them, or make it again from its runs.")
        given = any(row.source == "given" for row in plan.settings)
        return cls(
            plan.fits,
            plan.hardware,
            plan.recipe if given or plan.fits.method not in FITTED else None,
            plan.throughput,
            evaluation=plan.evaluation if plan.evaluation_counted else None,
            model=plan.model,
            allow_other_model=plan.fits.method not in FITTED,
            allow_off_policy=True,
        )

    @classmethod
    def for_study(cls, fits: Fits | FitsSet, study: Study, throughput: Throughput | None = None) -> Planner:
        """The planner of a study; `throughput` takes the place of the study's."""
        speed = study.throughput if throughput is None else throughput
        return cls(fits, study.hardware, study.recipe, speed, evaluation=study.evaluation, model=study.model)

    @property
    def recipe(self) -> Recipe:
        """The recipe of its plans, with what it takes from the runs."""
        return self.inheritance.recipe

    def allocate(
        self,
        budget: Budget | float | str,
        *,
        problems_per_batch: int | None = None,
        update_steps: int | None = None,
        rollouts_per_batch: int | None = None,
        mode: Mode = "expected",
        beyond_grid: int | Literal["auto"] = "auto",
        n_problems: int | None = None,
        min_update_steps: int | None = None,
        spend: Spend = "worthwhile",
        powers_of_two: bool = True,
        evaluation_share: float = EVALUATION_SHARE,
        continued: Mapping[tuple[int, int], float] | None = None,
    ) -> Plan:
        """The best executable allocation within the budget.

        For a budget in GPU-hours or money, or with a deadline, n, B_p and the number of GPUs are chosen together, by
        the reward predicted for what each can afford.

        Args:
            budget: a `Budget`, a number of rollouts, or text such as `"3M"`.
            problems_per_batch: fix B_p (the paper's setting 1).
            update_steps: fix M; with `rollouts_per_batch` the paper's setting 2.
            rollouts_per_batch: fix B = n B_p.
            mode: `expected` or `conservative`. From a surface: largest expected reward (conservative: no n above those
                that were run); from a law: its n (its lower end); from a prior: smallest expected (90 % worst) regret.
            beyond_grid: octaves above the largest n that was run; `auto` is 0, or 1 for a surface of two n or more.
            n_problems: distinct training problems D, for epochs and warnings.
            min_update_steps: fewest updates allowed; by default twice the recipe's warm-up.
            spend: `worthwhile` stops where the runs show flat curves, `all` uses the whole budget.
            powers_of_two: only powers of two as group sizes.
            evaluation_share: largest cost of the run's evaluations, as a share of that of its training.
            continued: pilot runs from whose checkpoint a plan may go on: their cost by (n, B_p). It counts for such a
                plan instead of for the pilot in the budget's `spent`.

        Raises:
            PlanError: nothing fits; `smallest_budget` holds the smallest budget that does.
        """
        fixed = Fixed(
            whole("problems_per_batch", problems_per_batch),
            whole("update_steps", update_steps),
            whole("rollouts_per_batch", rollouts_per_batch),
        )
        return self._answer(
            Request(
                budget=Budget.parse(budget),
                fixed=fixed,
                mode=mode,
                beyond_grid=beyond_grid,
                n_problems=whole("n_problems", n_problems),
                min_update_steps=whole("min_update_steps", min_update_steps),
                spend=spend,
                powers_of_two=powers_of_two,
                evaluation_share=evaluation_share,
                continued=continued or {},
            )
        )

    def replan(
        self,
        runs: RunSet,
        remaining: Budget | float | str,
        *,
        run_id: str | None = None,
        checkpoints: Sequence[SavedCheckpoint] = (),
        level: float = 0.8,
        rng: np.random.Generator | int | None = None,
    ) -> Replan:
        """What to do with the rest of a run's budget: go on, roll back with another recipe or n, or stop.

        Every option has a predicted reward with an interval and says where its effect was seen: measured in the paper,
        seen in your data, or a guess.

        Args:
            runs: the run, alone or among others.
            remaining: a `Budget`, a number of rollouts, or text such as `"2M"`.
            run_id: its name; None for the only one.
            checkpoints: those on disk, of `ingest.saved_checkpoints.find_checkpoints`.
            level: coverage of the intervals.
            rng: generator or seed of the draws; None for a fixed seed.

        Raises:
            PlanError: what is left pays for less than one update.
            FitError: too few evaluations.
            RecordError: an unknown run, or several without `run_id`.
        """
        from isocompute_sdk.planning.replanning.replan import replan

        return replan(self, runs, remaining, run_id=run_id, checkpoints=checkpoints, level=level, rng=rng)

    def pricing_for(self, budget: Budget) -> Pricing:
        """Prices of updates and evaluations for a budget."""
        return self._pricing(Request(budget, Fixed(), min_update_steps=1))

    def plan_for(self, candidate: Candidate, request: Request, pricing: Pricing | None = None) -> Plan:
        """The plan of an allocation that the caller chose, with predictions and notes as of `allocate`.

        Args:
            candidate: the allocation.
            request: budget and options as of `allocate`.
            pricing: its prices; None for those of this planner.

        Raises:
            FieldError: it costs more than the budget, or the hardware cannot take its batch.
        """
        resolved = self._resolve(request, pricing)
        plan = self._plan(resolved, candidate, [candidate], [], request.n_problems)
        return replace(plan, notes=unique(self._notes(resolved, plan, candidate)))

    def _answer(self, request: Request) -> Plan:
        if request.n_problems is not None and self.fits.surface is not None:
            return self._for_problem_set(request.n_problems)._answer(replace(request, n_problems=None))
        if not self.allow_off_policy:
            self.inheritance.refuse_stale_runs()
        asked = self._resolve(request)
        octaves = self._octaves(request.beyond_grid)
        sizes = self.fits.candidate_sizes(octaves, powers_of_two=request.powers_of_two)
        counts = self._gpu_counts(request.budget)
        setup = choose_setup(asked, sizes, counts)
        if not setup.candidates and (floor := self.recipe.min_problems_per_batch) < asked.limits.floor:
            # No B_p that was run can be carried out, but the recipe allows a smaller one.
            asked = replace(asked, limits=replace(asked.limits, floor=floor))
            setup = choose_setup(asked, sizes, counts)
        resolved, candidates = setup.request, setup.candidates
        if not candidates:
            raise resolved.refusal(setup.rejections)
        best = setup.best()
        resolved = replace(resolved, pricing=resolved.limits.pricing_of(best.group_size, best.problems_per_batch))
        chosen, spending = resolved.worthwhile(best, candidates, request.spend)
        plan = self._plan(resolved, chosen, candidates, setup.rejections, request.n_problems)
        others, missing = self._other_metrics(request)
        spending += self._decline_notes(resolved, best)
        notes = [*self._notes(resolved, plan, chosen), *spending, *missing]
        notes += caveats.metrics_disagree(plan.group_size, others)
        notes += self._moved_notes(asked, resolved, chosen, setup.rejections, sizes, counts)
        optima = find_optima(asked, resolved.pricing, chosen, sizes, counts)
        return replace(plan, notes=unique(notes), other_metrics=others, optima=optima)

    def _other_metrics(self, request: Request) -> tuple[dict[str, int], list[Note]]:
        """Best n of every other metric, and notes on those without one."""
        # The whole budget may be worthwhile for another metric although it is not for the first.
        request = replace(request, n_problems=None, spend="worthwhile")
        found: dict[str, int] = {}
        notes: list[Note] = []
        for metric, fits in self.others.items():
            try:
                found[metric] = self._with_fits(fits)._answer(request).group_size
            except PlanError as error:
                notes.append(caveats.no_answer(metric, error.message))
        return found, notes

    def _plan(
        self,
        request: ResolvedRequest,
        chosen: Candidate,
        candidates: Sequence[Candidate],
        rejections: Sequence[Rejection],
        n_problems: int | None,
    ) -> Plan:
        """The plan of one candidate, without its notes."""
        fits, preference, pricing = self.fits, request.preference, request.pricing
        if n_problems is None and fits.method in FITTED:
            n_problems = fits.n_problems
        batch, steps = chosen.rollouts_per_batch, chosen.update_steps
        law, prior = fits.laws.get(preference.law), fits.method == "prior"
        reward, interval = request.reward_with_interval(chosen)
        seen, spent = fits.largest_compute, pricing.budget.spent or {}
        size = chosen.group_size, chosen.problems_per_batch
        recipe = self.inheritance.recipe_for(*size)
        evaluation = pricing.evaluation.replace(every_steps=pricing.every_steps(batch, steps), count=None)
        model = self.model if self.model is not None else fits.model
        return Plan(
            group_size=chosen.group_size,
            problems_per_batch=chosen.problems_per_batch,
            update_steps=steps,
            budget=pricing.budget,
            cost=pricing.cost(batch, steps),
            costs=pricing.all_costs(batch, steps),
            recipe=recipe,
            settings=self.inheritance.rows(recipe, size, evaluation, n_problems, model),
            hardware=request.limits.hardware,
            throughput=pricing.throughput,
            metric=fits.metric,
            model=model,
            n_problems=n_problems,
            predicted_reward=reward,
            reward_interval=interval,
            group_size_interval=request.group_size_band(chosen),
            law_group_size=None if prior or law is None else float(law.predict(preference.value(chosen))),
            extrapolation=None if seen is None else pricing.compute(chosen.rollouts, fits.compute) / seen,
            binding=binding(request, chosen, rejections),
            alternatives=alternatives(request, chosen, candidates),
            notes=(),
            pilot=self._pilot(request, chosen),
            passport=fits.passport,
            evaluation=evaluation,
            evaluation_counted=pricing.evaluation_counts,
            breakdown=pricing.parts(batch, steps)
            | {purpose: {pricing.budget.unit: float(amount)} for purpose, amount in spent.items()},
            fits=fits,
        )

    def _pilot(self, request: ResolvedRequest, chosen: Candidate) -> Sweep | None:
        if self.fits.method in FITTED:
            return None
        return pilot_sweep(chosen.rollouts, max(self.recipe.min_problems_per_batch, 1), request.limits.min_update_steps)

    def _notes(self, request: ResolvedRequest, plan: Plan, chosen: Candidate) -> list[Note]:
        """Notes on the fits, the recipe and this candidate."""
        fits, notes = self.fits, list(self.fits.notes)
        foreign = self.model is None or not same_model(self.model, fits.model)
        if fits.method not in FITTED and foreign:
            notes.append(caveats.another_model(fits.model, self.model, fits.method))
        notes += self.inheritance.notes(plan.settings, timed=request.pricing.budget.timed)
        notes += plan.recipe.notes()
        if plan.extrapolation is not None:
            notes += caveats.extrapolation(plan.extrapolation, fits.method)
        notes += caveats.beyond_grid(chosen.group_size, request.largest, request.smallest)
        notes += caveats.problem_set(chosen, plan.n_problems)
        notes += caveats.batch(chosen, self.recipe, fits.problems_per_batch)
        notes += caveats.steps(chosen, self.recipe)
        notes += caveats.unused(plan.unused_share, chosen.ends_by, plan.binding[:-1])
        if request.preference.law == "group_size_vs_steps":
            notes += caveats.other_batch(chosen.rollouts_per_batch, fits.rollouts_per_batch)
        notes += self._time_notes(request.pricing, plan)
        ties = [a.group_size for a in plan.alternatives if a.kind == "near-tie"]
        notes += caveats.near_tie(chosen.group_size, ties, Tolerances(request.span).equal)
        notes += [
            caveats.curves_disagree(chosen.group_size, a.group_size, -a.expected_loss)
            for a in plan.alternatives
            if fits.surface is None and a.kind == "best-by-curves" and a.expected_loss is not None
        ]
        return notes

    def _moved_notes(
        self,
        asked: ResolvedRequest,
        resolved: ResolvedRequest,
        chosen: Candidate,
        rejections: Sequence[Rejection],
        sizes: Sequence[int],
        counts: Sequence[int | None],
    ) -> list[Note]:
        """What a limit on the batch changes about n or a budget in time about B_p, its cost, and what avoids it."""
        notes: list[Note] = []
        limit, pricing = self.hardware.max_rollouts_per_batch, resolved.pricing
        if limit is not None and any(r.constraint == "max_rollouts_per_batch" for r in rejections):
            unlimited = asked.limits.hardware.replace(max_rollouts_per_batch=None)
            free = choose_setup(replace(asked, limits=replace(asked.limits, hardware=unlimited)), sizes, counts)
            if free.candidates and (best := free.best()).rollouts_per_batch > limit:
                notes += caveats.moved_by_limit(chosen, best, limit, resolved.reward(chosen), resolved.reward(best))
        if pricing.budget.timed and pricing.throughput is not None and asked.limits.fixed.free:
            by_rollouts = choose_setup(with_budget(asked, Budget(rollouts=chosen.rollouts)), sizes, counts)
            if by_rollouts.candidates:
                notes += caveats.chosen_for_time(chosen, by_rollouts.best(), pricing.throughput)
        return notes

    def _decline_notes(self, request: ResolvedRequest, whole: Candidate) -> list[Note]:
        """Whether rewards fall at this n before the whole budget is spent."""
        surface = self.fits.surface
        if surface is None or surface.declines is None or not request.can_predict:
            return []
        problems = self.fits.reachable_problems_per_batch(whole.problems_per_batch)
        onset_D = surface.onset(whole.group_size, problems)
        spent = request.pricing.compute(whole.rollouts, self.fits.compute)
        chance = float(np.mean(onset_D < spent))
        if chance < caveats.LIKELY_DECLINE:
            return []
        median = float(np.median(onset_D))
        step = float(np.mean(surface.declines.step_D))
        return [caveats.decline(whole.group_size, median, chance, step, self.fits.group_size_range[1])]

    def _time_notes(self, pricing: Pricing, plan: Plan) -> list[Note]:
        timed, throughput = pricing.budget.timed, pricing.throughput
        counted = pricing.evaluation_counts
        notes = caveats.evaluation(plan.breakdown, pricing.evaluation_share, counted=counted, timed=timed)
        if throughput is None:
            return notes
        given = "gpus" in self.hardware.model_fields_set and timed
        notes += caveats.gpus(throughput, self.hardware, given)
        return notes + caveats.speed(throughput, pricing.budget, plan.rollouts_per_batch, plan.rollouts)

    def _gpu_counts(self, budget: Budget) -> list[int | None]:
        """Numbers of GPUs to choose from; None stands for that of the throughput."""
        throughput, counts = self.throughput, sorted(self.hardware.gpu_counts)
        given = "gpus" in self.hardware.model_fields_set
        if throughput is None or throughput.gpu_exponent is None or not given or not (budget.timed or len(counts) == 1):
            return [None]
        return [*counts]

    def _for_problem_set(self, n_problems: int) -> Planner:
        """This planner for D training problems."""

        def adapted(fits: Fits) -> Fits:
            return replace(fits.for_problem_set(n_problems), n_problems=n_problems)

        planner = self._with_fits(adapted(self.fits))
        planner.others = {metric: adapted(fits) for metric, fits in self.others.items()}
        return planner

    def _octaves(self, beyond_grid: int | Literal["auto"]) -> int:
        """Octaves above the grid; a surface predicts only as far as it has knots."""
        passport = self.fits.passport
        if beyond_grid == "auto":
            return 0 if passport is None else passport.beyond_grid_octaves
        return beyond_grid if passport is None else min(beyond_grid, OCTAVES_ABOVE)

    def _with_fits(self, fits: Fits) -> Planner:
        """This planner with other fits."""
        planner = Planner(
            fits,
            self.hardware,
            self.recipe,
            self.throughput,
            evaluation=self.evaluation,
            model=self.model,
            allow_other_model=self.allow_other_model,
            allow_off_policy=self.allow_off_policy,
        )
        planner.inheritance = self.inheritance
        return planner

    def _pricing(self, request: Request) -> Pricing:
        throughput = self.throughput
        timed = throughput is not None and throughput.evaluation_rollouts_per_second is not None
        return Pricing(
            request.budget,
            throughput,
            self.inheritance.evaluation(self.evaluation, DEFAULT_EVALUATION),
            request.evaluation_share,
            evaluation_counts=throughput is not None and (timed or self.evaluation is not None),
        )

    def _pricing_beside(self, plan: Plan, budget: Budget, options: Mapping[str, Any]) -> Pricing:
        """Prices of another configuration, which pays for its evaluations by the same rule as a plan."""
        evaluation = self.inheritance.evaluation(self.evaluation, DEFAULT_EVALUATION)
        share = float(options.get("evaluation_share", EVALUATION_SHARE))
        return Pricing(budget, plan.throughput, evaluation, share, evaluation_counts=plan.evaluation_counted)

    def _resolve(self, request: Request, pricing: Pricing | None = None) -> ResolvedRequest:
        pricing = self._pricing(request) if pricing is None else pricing
        fixed, min_steps = request.fixed, request.min_update_steps
        wanted = max(2 * self.recipe.warmup_steps if min_steps is None else min_steps, 1)
        if fixed.update_steps is not None and fixed.update_steps < wanted:
            limit = f"min_update_steps = {wanted}"
            if min_steps is None:
                limit = f"{wanted}, twice the warm-up of {self.recipe.warmup_steps} steps"
            raise PlanError(
                f"update_steps = {fixed.update_steps} is below {limit}",
                f"Add --min-update-steps {fixed.update_steps} (min_update_steps={fixed.update_steps}) to plan it.",
            ).in_shell(f"Add --min-update-steps {fixed.update_steps} to plan it.")
        smallest, largest = self.fits.group_size_range
        n_problems = request.n_problems or (self.fits.n_problems if self.fits.method in FITTED else None)
        return ResolvedRequest(
            pricing=pricing,
            limits=Limits(
                pricing,
                self.hardware,
                fixed,
                min(self.inheritance.floor, n_problems or self.inheritance.floor),
                wanted,
                self.inheritance.problems_from_runs,
                n_problems,
                request.continued,
            ),
            preference=self._preference(pricing, fixed, request.mode),
            fits=self.fits,
            can_predict=bool(self.fits.curves) and (self.model is None or same_model(self.model, self.fits.model)),
            largest=largest,
            smallest=smallest,
        )

    def _preference(self, pricing: Pricing, fixed: Fixed, mode: Mode) -> Preference:
        def compute(rollouts: float) -> float:
            return pricing.compute(rollouts, self.fits.compute)

        if self.fits.surface is not None:
            return RewardPreference(self.fits, mode, compute)
        return LawPreference(self.fits, self._law(fixed), mode, compute)

    def _law(self, fixed: Fixed) -> str:
        """The deciding law: for a fixed batch the law in steps, if it was fitted at that batch or is the only one."""
        laws, batch = self.fits.laws, fixed.rollouts_per_batch
        in_steps = "group_size_vs_steps"
        if (
            in_steps in laws
            and batch is not None
            and (batch == self.fits.rollouts_per_batch or "group_size" not in laws)
        ):
            return in_steps
        if "group_size" in laws:
            return "group_size"
        if in_steps in laws:
            raise PlanError(
                f"these fits hold only laws in steps, fitted at rollouts_per_batch = {self.fits.rollouts_per_batch}",
                f"Add --rollouts-per-batch {self.fits.rollouts_per_batch} (rollouts_per_batch=), or use fits "
                "with a law in compute.",
            ).in_shell(f"Add --rollouts-per-batch {self.fits.rollouts_per_batch}, or use fits with a law in compute.")
        raise PlanError(
            "these fits hold no allocation law: " + self.fits.unsupported.get("group_size", "none was fitted"),
            "The notes of the fits say what is missing.",
        )

    def budget_for(self, reward: float, *, level: float = 0.8, unit: Unit = "rollouts", **options: Any) -> BudgetFor:
        """The smallest budget whose plan is predicted to reach a reward.

        Args:
            reward: mean reward of the best checkpoint over runs.
            level: coverage of the interval behind the optimistic and the conservative answer.
            unit: unit of the answer; others than rollouts need a throughput.
            **options: as of `allocate`; `spend` is `all` by default.

        Raises:
            PlanError: fits without rewards, or a reward outside the metric's range.
        """
        return budget_for(self._plans(Budget.model_validate({unit: 1.0}), level, options), reward)

    def marginal(self, budget: Budget | float | str, *, level: float = 0.8, **options: Any) -> Marginal:
        """What more budget would buy, with intervals, and whether it is worth it.

        Args:
            budget: as of `allocate`.
            level: coverage of the intervals. They are paired: errors that two plans share cancel.
            **options: as of `allocate`; `spend` is `all` by default.

        Raises:
            PlanError: fits without rewards, or a budget too small for a plan.
        """
        return marginal(self._plans(Budget.parse(budget), level, options))

    def next_runs(
        self,
        budget: Budget | float | str | None = None,
        slots: int = 1,
        *,
        most: float | None = None,
        going: Mapping[str, int] | None = None,
        continuing: bool = True,
        rng: np.random.Generator | int | None = None,
        **options: Any,
    ) -> NextRuns:
        """What to run before the budget is spent: the runs that lower expected regret at the target most per cost.

        A law without a surface, published or the prior's, gives the first round of `design_pilot`.

        Args:
            budget: as of `allocate`: what is left to spend, these runs included. None: three times the largest
                compute that was run.
            slots: most runs, each chosen beside those before it. The first round of a pilot does not depend on it.
            most: largest cost of all of them, in the budget's unit; None for no limit but their worth.
            going: runs that go on in any case, by name, with the update steps at which they end: what they will show,
                and what their rest costs, counts before anything else is chosen. Those without evaluations yet count
                for nothing; `most` does not include them.
            continuing: whether a run that exists can be made longer; if not, only new runs are chosen.
            rng: the randomness of simulated evaluations; None for a fixed one: the same input gives the same runs.
            **options: as of `allocate`, but for M and B, which cannot be fixed.

        Returns:
            The runs to make; empty if no run is worth its cost.

        Raises:
            PlanError: fits of the paper's method, no budget for fits without runs, or nothing fits the budget.
        """
        fixed = [name for name in ("update_steps", "rollouts_per_batch") if options.get(name) is not None]
        if fixed:
            flags = ", ".join(f"--{name.replace('_', '-')}" for name in fixed)
            raise PlanError(
                f"received {', '.join(fixed)}; accepted: neither, since n, B_p and M of the runs are what is asked for",
                f"Leave {', '.join(fixed)} out.",
            ).in_shell(f"Leave {flags} out.")
        slots, generator = whole_number("slots", slots), np.random.default_rng(0 if rng is None else rng)
        seen = self.fits.largest_compute
        if budget is None and (self.fits.method not in FITTED or seen is None):
            raise PlanError("no runs tell how large the budget is", "Add --budget (budget=).").in_shell("Add --budget.")
        amount = Budget.parse(budget if budget is not None else USUAL_REACH * (seen or 1.0))
        if self.fits.method not in FITTED:
            return design_pilot(
                amount,
                recipe=self.recipe,
                hardware=self.hardware,
                throughput=self.throughput,
                problems_per_batch=options.get("problems_per_batch"),
                n_problems=options.get("n_problems"),
                min_update_steps=options.get("min_update_steps"),
                laws=self.fits,
                rng=generator,
            ).first
        question = self._question(amount, options)
        return ask(question, slots, generator, most=most, going=going, continuing=continuing)

    def _question(self, budget: Budget, options: dict[str, Any]) -> Question:
        """Prices, limits and fits behind `next_runs`."""
        n_problems = whole("n_problems", options.get("n_problems"))
        if n_problems is not None and self.fits.surface is not None:
            return self._for_problem_set(n_problems)._question(budget, {**options, "n_problems": None})
        whole_budget: dict[str, Any] = {**options, "spend": "all"}
        plan = self.allocate(budget, **whole_budget)
        fixed = Fixed(whole("problems_per_batch", options.get("problems_per_batch")))
        resolved = self._resolve(
            Request(budget, fixed, min_update_steps=whole("min_update_steps", options.get("min_update_steps")))
        )
        passport = self.fits.passport
        unstable = () if passport is None else passport.unstable_problems_per_batch
        problems = {plan.problems_per_batch}
        if fixed.problems_per_batch is None:
            floor = resolved.limits.floor
            problems |= {
                min([bp for bp in self.fits.problems_per_batch if bp >= floor and bp not in unstable], default=floor)
            }
        sizes = self.fits.candidate_sizes(self._octaves(options.get("beyond_grid", "auto")))
        return Question(
            fits=self.fits,
            pricing=replace(resolved.pricing, throughput=plan.throughput),
            hardware=self.hardware,
            problems=tuple(sorted(problems)),
            planned_sizes=tuple(sorted({*sizes, plan.group_size})),
            min_update_steps=resolved.limits.min_update_steps,
            plan=(plan.group_size, plan.problems_per_batch),
        )

    def compare(
        self,
        configuration: Configuration,
        budget: Budget | float | str,
        *,
        equal: Equal | None = None,
        reference: Configuration | None = None,
        level: float = 0.8,
        **options: Any,
    ) -> PlanComparison:
        """The best plan compared with a configuration: reward at this budget, cost of equal reward, GPU-hours saved.

        Args:
            configuration: (n, B_p), which gets all steps that the budget buys, or (n, B_p, M); also a mapping, text
                such as `"n=16,bp=32"` or an `Allocation`.
            budget: as of `allocate`; that of the plan.
            equal: what the configuration has in common with the plan instead of the budget: `rollouts` (C), `steps` (M;
                at equal B_p the same epochs), `time` (wall-clock hours; needs a throughput), or `batch` (B = n B_p and
                M; its B_p follows). All of them are in the answer's `at_equal`.
            reference: another configuration to compare with, in place of the best plan.
            level: coverage of the intervals, which are paired.
            **options: as of `allocate`; `spend` is `all` by default.

        Raises:
            PlanError: fits without rewards, or a configuration that they cannot predict.
        """
        parsed = Budget.parse(budget)
        pricing = partial(self._pricing_beside, budget=parsed, options=options)
        chosen = None if reference is None else self._reference(reference, parsed, options)
        return compare(self._plans(parsed, level, options), configuration, pricing, equal, chosen)

    def judge(
        self,
        today: Configuration,
        budget: Budget | float | str,
        *,
        plan: Plan | None = None,
        pilot_cost: float | None = None,
        level: float = 0.8,
        **options: Any,
    ) -> Judgement:
        """The plan judged against what is run today, which gets the cost of the pilot as well.

        Args:
            today: (n, B_p), a mapping, or text such as `"n=16,bp=128"`.
            budget: as of `allocate`; that of the plan.
            plan: a plan of this planner, for the same budget; None for the best one.
            pilot_cost: in the budget's unit. None: what the budget says was spent on a pilot. Runs that were there
                before cost this budget nothing.
            level: coverage of the interval.
            **options: as of `allocate`; `spend` is `all` by default.

        Returns:
            Expected gain, the probability that it is one, and the budget from which on the pilot pays for itself.

        Raises:
            PlanError: fits without rewards, a configuration that they cannot predict, or one with M.
        """
        n, problems, steps = parse_configuration(today)
        if steps is not None:
            raise PlanError(
                f"configuration {today!r:.60} says M; accepted: n and bp, which get the whole budget", "Leave M out."
            )
        parsed = Budget.parse(budget)
        whole_budget: dict[str, Any] = {"spend": "all", **options}
        chosen = self.allocate(parsed, **whole_budget) if plan is None else plan
        pricing = self._pricing_beside(chosen, parsed, options)
        if pilot_cost is None:
            pilot_cost = float((parsed.spent or {}).get("pilot", 0.0))
        sizes = self.fits.candidate_sizes(0)
        return judge(chosen, (n, problems), pilot_cost, pricing, sizes, level)

    def _reference(self, configuration: Configuration, budget: Budget, options: dict[str, Any]) -> Plan:
        """The plan of a configuration that the caller chose; without M all steps that the budget buys."""
        n_problems = whole("n_problems", options.get("n_problems"))
        if n_problems is not None and self.fits.surface is not None:
            return self._for_problem_set(n_problems)._reference(configuration, budget, {**options, "n_problems": None})
        n, problems, steps = parse_configuration(configuration)
        request = Request(
            budget,
            Fixed(),
            n_problems=n_problems,
            min_update_steps=1,
            evaluation_share=options.get("evaluation_share", EVALUATION_SHARE),
        )
        most, limit = self._pricing(request).affordable_steps(n * problems)
        if most < 1:
            raise PlanError(
                f"{budget} does not pay for one step of n * B_p = {n * problems} rollouts", "Raise the budget."
            )
        plan = self.plan_for(Candidate(n, problems, steps or most, limit if steps is None else "update_steps"), request)
        if plan.predicted_reward is None:
            raise PlanError(
                f"no reward is predicted for the reference (n = {n}, model {plan.model}, {plan.metric})",
                "Fit runs of this model and metric.",
            )
        return plan

    def _plans(self, like: Budget, level: float, options: dict[str, Any]) -> PlansByBudget:
        options = {"spend": "all", **options}
        return PlansByBudget(self.fits, lambda budget: self.allocate(budget, **options), like, level)


def _check_kinds(fits: object, *others: object) -> None:
    """Raise on arguments of another type, such as the path of saved fits."""
    if not isinstance(fits, Fits | FitsSet):
        raise PlanError(
            f"fits: received {' '.join(repr(fits).split()):.60} ({type(fits).__name__}); accepted: Fits or a FitsSet",
            "Give what fit(runs), Fits.load(path), published(name) or published_prior() returned.",
        )
    kinds = {"hardware": Hardware, "recipe": Recipe, "throughput": Throughput, "evaluation": Evaluation, "model": str}
    for (name, kind), value in zip(kinds.items(), others, strict=True):
        if value is not None and not isinstance(value, kind):
            raise PlanError(
                f"{name}: received {value!r:.60}; accepted: {'text' if kind is str else f'a {kind.__name__}'}, or None",
                f"Give {name}=" + ("the name of the model." if kind is str else f"{kind.__name__}(...)."),
            )
        if isinstance(value, str) and holds_login(value):
            raise PlanError(
                f"{name}: received a URL with a login in it; accepted: a hub name or a path",
                "Remove what stands before the @: plans and scripts would show it.",
            )


def _recipe_name(fits: Fits) -> Literal["easy", "hard"]:
    return "hard" if fits.source is not None and "hard" in fits.source else "easy"
