"""A plan with other numbers, chosen by a person: it is planned again with these numbers fixed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from isocompute_sdk.errors import PlanError, SpecError, show
from isocompute_sdk.notes import unique
from isocompute_sdk.phrases import counted
from isocompute_sdk.planning import caveats
from isocompute_sdk.planning.allocate import Request
from isocompute_sdk.planning.decide import plan_for
from isocompute_sdk.planning.inheritance import again, given_by_hand, planned_values
from isocompute_sdk.planning.plan import Plan
from isocompute_sdk.planning.plan_parts import Alternative, Verdict
from isocompute_sdk.planning.planner import Planner
from isocompute_sdk.planning.pricing import EVALUATION_SHARE, Candidate, Fixed, Pricing, amount_text
from isocompute_sdk.specs import Budget, Evaluation, Recipe
from isocompute_sdk.specs.syntax.complaints import suggestion
from isocompute_sdk.specs.syntax.quantities import Number

EVERY, TEMPERATURE = "evaluation.every_steps", "evaluation.temperature"
COUNTS = ("group_size", "problems_per_batch", "update_steps", "rollouts_per_batch", "n_problems", EVERY)
"""Whole numbers that can be changed."""
RECIPE = tuple(
    name for name in Recipe.model_fields if name not in ("based_on", "name") and not name.startswith("learning_rate")
)
"""Fields of the recipe that can be changed; the learning rate is changed as `learning_rate`."""
NAMES = (*COUNTS, "learning_rate", "budget", "model", TEMPERATURE, *RECIPE)
_SHOWN = (
    *("budget", "group_size", "problems_per_batch", "update_steps", "rollouts_per_batch", "rollouts", "learning_rate"),
    *("cost", "wall_hours", "gpu_hours", "usd", "epochs", "n_problems", "model"),
    *("predicted_reward", "reward_interval", "extrapolation"),
)


def change_plan(plan: Plan, changes: Mapping[str, object]) -> Plan:
    """The plan with other numbers; what follows from them is computed again.

    M is the most that the budget buys unless `update_steps` is given. Evaluations keep their share of the cost unless
    `evaluation.every_steps` is given. The learning rate follows the recipe's rule unless it is given. Costs,
    predictions, interval, notes and verdict are those of the new numbers, with the note `changed-by-hand`; predictions
    need the fits that `Plan.save` keeps.

    Args:
        plan: the plan to start from.
        changes: new values by name, as numbers or as text such as `"64"` or `"3M"`; see `NAMES`.

    Raises:
        PlanError: an unknown name, an invalid value, a batch that the hardware cannot take, or a cost above the
            budget (raise that with `budget`).
    """
    given = {name: _value(name, value) for name, value in changes.items()}
    n, problems = _sizes(plan, given)
    budget = _budget(plan, given, n * problems)
    pricing = pricing_of(plan, budget, given.get(EVERY))
    if TEMPERATURE in given:
        pricing = replace(pricing, evaluation=pricing.evaluation.replace(temperature=given[TEMPERATURE]))
    if (n, problems) != (plan.group_size, plan.problems_per_batch):
        # Only a plan of its sizes goes on with the run.
        pricing = replace(pricing, past={})
    chosen = _with_steps(plan, given, n, problems, pricing)
    same = _numbers(plan) == _numbers(chosen)
    recipe = _recipe(plan, given, chosen.rollouts_per_batch)
    model, n_problems = given.get("model", plan.model), given.get("n_problems", plan.n_problems)
    if plan.fits is None:
        new = _without_fits(plan, chosen, pricing, recipe, given)
    elif plan.fits.surface is not None and not plan.fits.reach[0] <= n <= plan.fits.reach[1]:
        # A run that is made first may have an n that no plan would.
        unjudged = replace(plan, fits=None, passport=None, gain=None, last_half=None, unlimited=None, approval=None)
        new = _without_fits(unjudged, chosen, pricing, recipe, given)
    else:
        planner = Planner(plan.fits, plan.hardware, recipe, plan.throughput, model=model, allow_other_model=True)
        planner.inheritance = again(plan.fits, recipe, plan.settings, given)
        in_steps = Fixed() if "group_size" in plan.fits.laws else Fixed(rollouts_per_batch=chosen.rollouts_per_batch)
        request = Request(budget, in_steps, n_problems=n_problems, min_update_steps=1)
        new = plan_for(planner, chosen, request, pricing)
    rewards = plan.predicted_reward, new.predicted_reward
    if same:
        new = replace(
            new,
            verdict=plan.verdict,
            alternatives=plan.alternatives,
            binding=plan.binding,
            stopping=plan.stopping,
            next_runs=plan.next_runs,
            odds=plan.odds,
            approval=None if "update_steps" in given else plan.approval,
        )
    else:
        loss = None if rewards[0] is None or rewards[1] is None else rewards[1] - rewards[0]
        kind = "near-tie" if loss is not None and abs(loss) <= new.tolerances.equal else "before-change"
        others = (Alternative(kind, plan.group_size, plan.problems_per_batch, plan.update_steps, rewards[0], loss),)
        new = replace(new, verdict=_verdict(new), alternatives=others, odds=None, next_runs=None)
    new = replace(new, model=model, n_problems=n_problems, other_metrics=plan.other_metrics)
    asked = {name: (_present(plan, name), _present(new, name)) for name in given}
    notes = [
        caveats.changed_by_hand(asked, rewards, new.metric, recipe=plan.recipe != new.recipe),
        *new.notes,
        *(note for note in plan.notes if note.code in ("other-metric-without-plan", "changed-by-hand")),
        *caveats.metrics_disagree(new.group_size, dict(plan.other_metrics)),
    ]
    return replace(new, notes=unique(notes))


def differences(before: Plan, after: Plan) -> list[tuple[str, object, object]]:
    """The numbers that differ between two plans, as (name, before, after)."""
    pairs: list[tuple[str, object, object]] = []
    pairs += [(name, _plain(getattr(before, name)), _plain(getattr(after, name))) for name in _SHOWN]
    pairs += [(f"recipe.{name}", getattr(before.recipe, name), getattr(after.recipe, name)) for name in RECIPE]
    pairs += [(name, _present(before, name), _present(after, name)) for name in (EVERY, TEMPERATURE)]
    pairs.append(("verdict", before.verdict.kind, after.verdict.kind))
    return [pair for pair in pairs if pair[1] != pair[2]]


def _numbers(plan: Plan | Candidate) -> tuple[int, int, int]:
    return plan.group_size, plan.problems_per_batch, plan.update_steps


def _sizes(plan: Plan, given: Mapping[str, Any]) -> tuple[int, int]:
    """N and B_p as given, or those that follow from B."""
    n, problems = given.get("group_size", plan.group_size), given.get("problems_per_batch", plan.problems_per_batch)
    batch = given.get("rollouts_per_batch", n * problems)
    if "problems_per_batch" not in given:
        problems = batch // n
    if n * problems != batch or problems < 1:
        raise PlanError(
            f"rollouts_per_batch = {batch} is not group_size = {n} times problems_per_batch = {problems}",
            "Change two of the three, so that the third follows.",
        )
    known = given.get("n_problems", plan.n_problems)
    if known is not None and problems > known and {"problems_per_batch", "n_problems"} & set(given):
        raise PlanError(f"problems_per_batch = {problems} is more than n_problems = {known}", "Choose a smaller B_p.")
    refusal = plan.hardware.refusal(batch)
    if refusal is not None:
        raise PlanError(f"the plan's hardware cannot take this batch: {refusal}", "Choose another n or B_p.")
    return n, problems


def _budget(plan: Plan, given: Mapping[str, Any], batch: int) -> Budget:
    """The budget as given, with the plan's deadline and spending where it has the same unit."""
    budget: Budget = given.get("budget", plan.budget)
    guess = plan.throughput.refusal(batch) if plan.throughput is not None and budget.timed else None
    if guess is not None:
        raise PlanError(guess, "Choose a batch near those, or measure others: isocompute run STUDY --probe.")
    return budget.in_place_of(plan.budget)


def _with_steps(plan: Plan, given: Mapping[str, Any], n: int, problems: int, pricing: Pricing) -> Candidate:
    """M as given, or the most that the budget buys if n, B_p, B or the budget changed."""
    batch, budget = n * problems, pricing.budget
    steps, limit = plan.update_steps, plan.binding[-1] if plan.binding else "budget"
    if "update_steps" in given:
        steps, limit = given["update_steps"], "update_steps"
    elif {"group_size", "problems_per_batch", "rollouts_per_batch", "budget"} & set(given):
        steps, limit = pricing.affordable_steps(batch)
        steps = max(steps, 1)
    if not pricing.within(batch, steps):
        cost = pricing.cost(batch, steps)
        late = "" if pricing.in_time(batch, steps) else f" and ends after {pricing.deadline:g} hours"
        raise PlanError(
            f"{counted(steps, 'step')} of {n} x {problems} = {batch:,} rollouts cost {amount_text(cost, budget.unit)}"
            f"{late}; the budget leaves {amount_text(budget.available, budget.unit)}",
            "Change update_steps or the batch, or give more: <--change budget='...' | budget='...'>.",
            cost + budget.committed,
        )
    return Candidate(n, problems, steps, limit)


def _value(name: str, value: object) -> Any:
    """A value as its type."""
    if name not in NAMES:
        raise PlanError(
            f"{name} = {show(value)}: unknown name; accepted: {', '.join(NAMES)}",
            suggestion(name, NAMES) or "Use one of these names.",
        )
    number: Any = value
    try:
        if name in COUNTS:
            return int(Number(whole=True, ge=2 if name == "group_size" else 1).parse(number))
        if name == "learning_rate":
            return Recipe(learning_rate_anchor=number).learning_rate_anchor
        if name == "budget":
            return Budget.parse(number)
        if name == TEMPERATURE:
            return Evaluation(temperature=number).temperature
        if name == "model" and isinstance(value, str) and value.strip():
            return value
        if name in RECIPE:
            return value
    except SpecError as error:
        complaint = str(error.args[0]).removeprefix("Recipe.learning_rate_anchor: ")
        raise error.retyped(PlanError, f"{name}: {complaint}") from None
    raise PlanError(f"{name} = {show(value)}; accepted: a hub name or a local folder", "Correct it.")


def _recipe(plan: Plan, given: Mapping[str, Any], rollouts_per_batch: int) -> Recipe:
    changed = {name: given[name] for name in RECIPE if name in given}
    if "learning_rate" in given:
        # The rule stays; its anchor moves to this batch.
        changed |= {"learning_rate_anchor": given["learning_rate"], "learning_rate_anchor_batch": rollouts_per_batch}
    return plan.recipe.replace(**changed) if changed else plan.recipe


def pricing_of(plan: Plan, budget: Budget, every_steps: int | None) -> Pricing:
    """Prices by the plan's rules, with the share of evaluations that it has, or evaluations as often as asked."""
    if plan.throughput is None and (budget.unit != "rollouts" or budget.deadline_hours is not None):
        raise PlanError(
            f"budget = {budget.amount:g} {budget.unit}: this plan has no throughput; accepted: a number of rollouts",
            "Plan again: <isocompute allocate RUNS --budget ... --throughput FILE (from isocompute run STUDY --probe) "
            "| Planner(fits, throughput=...).allocate(budget)>.",
        )
    unit = "wall_hours" if "wall_hours" in plan.breakdown["training"] else "rollouts"
    share = max(EVALUATION_SHARE, plan.breakdown["evaluation"][unit] / plan.breakdown["training"][unit])
    evaluation = plan.evaluation
    if every_steps is not None:
        evaluation = evaluation.replace(every_steps=every_steps, count=None)
        return Pricing(budget, plan.throughput, evaluation, math.inf, past=plan.past)
    return Pricing(budget, plan.throughput, evaluation, min(share, 1.0), past=plan.past)


def _without_fits(plan: Plan, chosen: Candidate, pricing: Pricing, recipe: Recipe, given: Iterable[str]) -> Plan:
    """Costs alone: predictions stay only if n, B_p and M do."""
    batch, steps, size = chosen.rollouts_per_batch, chosen.update_steps, (chosen.group_size, chosen.problems_per_batch)
    spent = {name: amounts for name, amounts in plan.breakdown.items() if name in (pricing.budget.spent or {})}
    bill = pricing.bill(batch, steps)
    evaluation = pricing.evaluation.replace(every_steps=bill.every_steps, count=None)
    planned = planned_values(recipe, size, evaluation, plan.n_problems, plan.model)
    same = _numbers(plan) == _numbers(chosen)
    return replace(
        plan,
        group_size=chosen.group_size,
        problems_per_batch=chosen.problems_per_batch,
        update_steps=steps,
        budget=pricing.budget,
        cost=bill.cost,
        costs=bill.costs,
        past=pricing.past,
        recipe=recipe,
        settings=tuple(replace(row, plan=planned[row.name]) for row in given_by_hand(plan.settings, given)),
        predicted_reward=plan.predicted_reward if same else None,
        reward_interval=plan.reward_interval if same else None,
        group_size_interval=plan.group_size_interval if same else None,
        law_group_size=plan.law_group_size if same else None,
        extrapolation=None if plan.extrapolation is None else plan.extrapolation * chosen.rollouts / plan.rollouts,
        binding=(chosen.ends_by,),
        stopping=None,
        evaluation=evaluation,
        breakdown=bill.parts | spent,
    )


def _verdict(new: Plan) -> Verdict:
    """The verdict of other numbers than the planner's."""
    if new.fits is None:
        return Verdict("undecided", f"changed by hand; the fits saved with the plan cannot judge n = {new.group_size}")
    found = new.verdict
    if found.kind == "clear" and new.fits.surface is None:
        return Verdict("undecided", f"changed by hand; n = {new.group_size} was not compared with other n here")
    return replace(found, sentence=f"changed by hand; {found.sentence}")


def _present(plan: Plan, name: str) -> object:
    """A changeable value."""
    if name in (EVERY, TEMPERATURE):
        return getattr(plan.evaluation, name.partition(".")[2])
    return _plain(getattr(plan.recipe if name in RECIPE else plan, name))


def _plain(value: object) -> object:
    """A value for people and for JSON."""
    return str(value) if isinstance(value, Budget) else value
