"""`Planner`: from fits, hardware and recipe to the best executable allocation of a budget."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Unpack

import numpy as np

from isocompute_sdk.errors import PlanError
from isocompute_sdk.planning.allocate import SLOTS, AllocateOptions, Options, Request, whole_number
from isocompute_sdk.planning.basis import Basis
from isocompute_sdk.planning.comparing import Configuration, Equal, PlanComparison, compare
from isocompute_sdk.planning.decide import decide, pilot
from isocompute_sdk.planning.inheritance import FITTED
from isocompute_sdk.planning.next_runs import NextRuns, Search
from isocompute_sdk.planning.pilot_design import PILOT_SHARES, PilotDesign
from isocompute_sdk.planning.plan import Plan
from isocompute_sdk.planning.questions import BudgetFor, Marginal, PlansByBudget, budget_for, marginal
from isocompute_sdk.specs import Budget
from isocompute_sdk.specs.budget import Unit
from isocompute_sdk.tolerances import NEAR

if TYPE_CHECKING:
    from isocompute_sdk.ingest.saved_checkpoints import SavedCheckpoint
    from isocompute_sdk.planning.replan import Replan
    from isocompute_sdk.records import RunSet


class Planner(Basis):
    """Answers how to spend a budget, from fits of one metric or of several, of which the first decides.

    Args:
        fits: `fit(...)`, `published(...)`, `published_prior()` or a `FitsSet`.
        hardware: batch limits and GPUs to choose from; no limits by default.
        recipe: training recipe. Fields that it does not give (`Recipe.given`) come from the runs behind the fits, and
            from the paper's preset where the runs record nothing.
        throughput: seconds and tokens per rollout, for deadlines and for budgets in other units than rollouts.
        evaluation: how runs are evaluated; plans pay for it in hours and money. None: 300 problems x 4.
        model: the model to be trained, if it is not the one of the fits.
        allow_other_model: plan from a published law of another model.
        allow_off_policy: plan from asynchronous runs whose rollouts may be more than one update old.

    Raises:
        PlanError: a published law of another model without `allow_other_model`, or an argument of another type.
    """

    def __repr__(self) -> str:
        return f"Planner({self.fits!r})"

    def allocate(self, budget: Budget | float | str, **options: Unpack[AllocateOptions]) -> Plan:
        """The best executable allocation within the budget.

        For a budget in GPU-hours or money, or with a deadline, n, B_p and the number of GPUs are chosen together, by
        the reward predicted for what each can afford.

        Args:
            budget: a `Budget`, a number of rollouts, or text such as `"3M"`.
            problems_per_batch: fix B_p (the paper's setting 1).
            update_steps: fix M; with `rollouts_per_batch` the paper's setting 2.
            rollouts_per_batch: fix B = n B_p.
            mode: `expected` or `conservative`. From a surface: largest expected reward (conservative: no n above those
                that were run); from a law: its n; from a prior: smallest expected (90 % worst) regret.
            beyond_grid: octaves above the largest n that was run; `auto` is 0, or 1 for a surface of two n or more.
            n_problems: distinct training problems D, for epochs and warnings.
            min_update_steps: fewest updates allowed; by default twice the recipe's warm-up.
            spend: `worthwhile` stops where the runs show flat curves, `all` uses the whole budget.
            powers_of_two: only powers of two and sizes that were run as group sizes.
            evaluation_share: largest cost of the run's evaluations, as a share of that of its training.
            continued: pilot runs from whose checkpoint a plan may go on: their update steps by (n, B_p). What these
                cost counts for such a plan instead of for the pilot in the budget's `spent`.
            slots: most runs to make first that the plan names, where they are worth their cost; 0 looks for none.
            most: what they may cost together, in the budget's unit; None for no limit but their worth. With a limit,
                runs of which none rises are made longer first.
            ended: runs that are not made longer, by name.

        Raises:
            PlanError: nothing fits; `smallest_budget` holds the smallest budget that does.
        """
        request = Request.of(budget, **options)
        return decide(self.on_gpus_of(request.budget), request)

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
        """What to do with the rest of a run's budget: go on, roll back with another recipe, train anew, or stop.

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
        from isocompute_sdk.planning.replan import replan

        return replan(self, runs, remaining, run_id=run_id, checkpoints=checkpoints, level=level, rng=rng)

    def budget_for(
        self, reward: float, *, level: float = 0.8, unit: Unit = "rollouts", **options: Unpack[Options]
    ) -> BudgetFor:
        """The smallest budget whose plan is predicted to reach a reward.

        Args:
            reward: mean reward of the best checkpoint over runs.
            level: coverage of the interval behind the optimistic and the conservative answer.
            unit: unit of the answer; others than rollouts need a throughput.
            **options: as of `allocate`; `spend` is `all` by default.

        Raises:
            PlanError: fits without rewards, or a reward outside the metric's range.
        """
        return budget_for(PlansByBudget.of(self, Budget.model_validate({unit: 1.0}), level, options), reward)

    def marginal(self, budget: Budget | float | str, *, level: float = 0.8, **options: Unpack[Options]) -> Marginal:
        """What more budget would buy, with intervals, and whether it is worth it.

        Args:
            budget: as of `allocate`.
            level: coverage of the intervals. They are paired: errors that two plans share cancel.
            **options: as of `allocate`; `spend` is `all` by default.

        Raises:
            PlanError: fits without rewards, or a budget too small for a plan.
        """
        return marginal(PlansByBudget.of(self, budget, level, options))

    def compare(
        self,
        configuration: Configuration,
        budget: Budget | float | str | None = None,
        *,
        equal: Equal | None = None,
        reference: Configuration | None = None,
        plan: Plan | None = None,
        level: float = 0.8,
        **options: Unpack[Options],
    ) -> PlanComparison:
        """A plan compared with a configuration: reward at this budget, cost of equal reward, GPU-hours saved.

        Args:
            configuration: (n, B_p), which gets all steps that the budget buys, or (n, B_p, M); also a mapping, text
                such as `"n=16,bp=32"` or an `Allocation`. An n that was not run is predicted by the prior of the
                surface.
            budget: as of `allocate`. None: that of `plan`, of which the configuration gets what was left for the plan.
            equal: what the configuration has in common with the plan instead of the budget: `rollouts` (C), `steps` (M;
                at equal B_p the same epochs), `time` (wall-clock hours; needs a throughput), or `batch` (B = n B_p and
                M; its B_p follows). All of them are in the answer's `at_equal`.
            reference: another configuration to compare with, instead of the best plan.
            plan: a plan of this planner for the same budget, instead of the best plan.
            level: coverage of the intervals, which are paired.
            **options: as of `allocate`.

        Raises:
            PlanError: fits without rewards, or a configuration that they cannot predict.
        """
        if budget is None:
            if plan is None:
                raise PlanError("no budget, and no plan to take it from", "Add <--budget | budget=>.")
            budget = plan.budget
        plans = PlansByBudget.of(self, budget, level, options)
        if plan is None and reference is None:
            plan = self.allocate(budget, **options)
        return compare(plans, configuration, equal=equal, reference=reference, plan=plan)

    def next_runs(
        self,
        budget: Budget | float | str | None = None,
        slots: int = SLOTS,
        *,
        most: float | None = None,
        going: Mapping[str, int] | None = None,
        ended: Collection[str] = (),
        rng: np.random.Generator | int | None = None,
        **options: Unpack[Options],
    ) -> NextRuns:
        """What to run before the budget is spent: the runs that lower expected regret at the target most per cost.

        These are the `next_runs` of `allocate`: none where the runs decide n. A law without a surface, published or
        the prior's, gives the first round of `design_pilot`.

        Args:
            budget: as of `allocate`: what is left to spend, these runs included. None: three times the largest
                compute that was run.
            slots: most runs, each chosen beside those before it. The first round of a pilot does not depend on it.
            most: as of `allocate`.
            going: runs that go on in any case, by name, with the update steps at which they end: what they will show,
                and what their rest costs, counts before anything else is chosen. Those without evaluations yet count
                for nothing; `most` does not include them.
            ended: as of `allocate`.
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
                f"received {', '.join(fixed)}; accepted: no fixed size, since the answer chooses n, B_p and M",
                f"Leave {', '.join(fixed)} out.",
            ).in_shell(f"Leave {flags} out.")
        seen = self.fits.largest_compute
        if budget is None and (self.fits.method not in FITTED or seen is None):
            raise PlanError("no budget, and no runs to take it from", "Add <--budget | budget=>.")
        if self.fits.method == "paper":
            raise PlanError(
                "fits of method 'paper' cannot judge further runs",
                "Fit with <--method surface | method='surface'>.",
            )
        amount = Budget.parse(budget if budget is not None else NEAR * (seen or 1.0))
        search = Search(whole_number("slots", slots), most, ended, going or {}, rng)
        found = decide(self.on_gpus_of(amount), Request.of(amount, **options), search).next_runs
        if found is None:
            raise PlanError(f"a budget of {amount} is too small for a plan with a pilot", "Raise the budget.")
        return found

    def design_pilot(
        self,
        budget: Budget | float | str,
        *,
        shares: Sequence[float] = PILOT_SHARES,
        spend_all: bool = False,
        rng: np.random.Generator | int | None = None,
        **options: Unpack[Options],
    ) -> PilotDesign:
        """The pilot for a budget before anything was run; of the fits only the laws count, which name n without runs.

        Args:
            budget: as of `allocate`.
            shares: shares of the budget to compare.
            spend_all: pilot with the best of these shares also where no pilot is worth its cost.
            rng: the randomness of what is simulated; None for a fixed one.
            **options: `problems_per_batch`, `n_problems` and `min_update_steps` as of `allocate`.

        Raises:
            PlanError: the budget does not pay for a plan, or seconds are known for batches of one n only.
        """
        return pilot(self, Request.of(budget, **options), shares=shares, spend_all=spend_all, rng=rng)
