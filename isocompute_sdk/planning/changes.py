"""A plan with other numbers, chosen by a person: everything that follows from them is computed again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from isocompute_sdk.errors import PlanError, SpecError, show
from isocompute_sdk.notes import unique
from isocompute_sdk.planning import caveats
from isocompute_sdk.planning.alternatives import Alternative
from isocompute_sdk.planning.candidates import Candidate, Fixed
from isocompute_sdk.planning.inheritance import again, given_by_hand, planned_values
from isocompute_sdk.planning.plan import Plan
from isocompute_sdk.planning.planner import Planner
from isocompute_sdk.planning.pricing import EVALUATION_SHARE, Pricing, amount_text
from isocompute_sdk.planning.request import Request
from isocompute_sdk.planning.verdict import Verdict
from isocompute_sdk.specs import Budget, Recipe
from isocompute_sdk.specs.sweep import Sized
from isocompute_sdk.specs.syntax.complaints import suggestion
from isocompute_sdk.specs.syntax.quantities import Number
from isocompute_sdk.tolerances import Tolerances

EVERY = "evaluation.every_steps"
COUNTS = ("group_size", "problems_per_batch", "update_steps", "rollouts_per_batch", "n_problems", EVERY)
"""Whole numbers that can be changed."""
RECIPE = tuple(
    name for name in Recipe.model_fields if name not in ("based_on", "name") and not name.startswith("learning_rate")
)
"""Fields of the recipe that can be changed; the learning rate is changed as `learning_rate`."""
NAMES = (*COUNTS, "learning_rate", "budget", "model", *RECIPE)
_SHOWN = (
    *("budget", "group_size", "problems_per_batch", "update_steps", "rollouts_per_batch", "rollouts", "learning_rate"),
    *("cost", "wall_hours", "gpu_hours", "usd", "epochs", "n_problems", "model"),
    *("predicted_reward", "reward_interval", "extrapolation"),
)


def change_plan(plan: Plan, changes: Mapping[str, object]) -> Plan:
    """The plan with other numbers; what follows from them is computed again.

    M is the most that the budget buys unless `update_steps` is given. Evaluations keep their share of the cost unless
    `evaluation.every_steps` is given. The learning rate follows the recipe's rule
    unless it is given. Costs, predictions, interval, notes and verdict are those of the new numbers, with the note
    `changed-by-hand`; predictions need the fits that `Plan.save` keeps.

    Args:
        plan: the plan to start from.
        changes: new values by name, as numbers or as text such as `"64"` or `"3M"`; see `NAMES`.

    Raises:
        PlanError: an unknown name, an invalid value, a batch that the hardware cannot take, or a cost above the
            budget (raise that with `budget`).
    """
    given = {name: _value(name, value) for name, value in changes.items()}
    new = _Allocation.changed(plan, given)
    pricing = _pricing(plan, new.budget, given.get(EVERY))
    new = new.with_steps(pricing, given)
    recipe = _recipe(plan, given, new.rollouts_per_batch)
    model, n_problems = given.get("model", plan.model), given.get("n_problems", plan.n_problems)
    if plan.fits is None:
        found = _without_fits(plan, new, pricing, recipe, given)
    else:
        planner = Planner(plan.fits, plan.hardware, recipe, plan.throughput, model=model, allow_other_model=True)
        planner.inheritance = again(plan.fits, recipe, plan.settings, given)
        in_steps = Fixed() if "group_size" in plan.fits.laws else Fixed(rollouts_per_batch=new.rollouts_per_batch)
        request = Request(new.budget, in_steps, n_problems=n_problems, min_update_steps=1)
        found = planner.plan_for(new.candidate, request, pricing)
    return _complete(plan, replace(found, model=model, n_problems=n_problems), given)


def differences(before: Plan, after: Plan) -> list[tuple[str, object, object]]:
    """The numbers that differ between two plans, as (name, before, after)."""
    pairs: list[tuple[str, object, object]] = []
    pairs += [(name, _plain(getattr(before, name)), _plain(getattr(after, name))) for name in _SHOWN]
    pairs += [(f"recipe.{name}", getattr(before.recipe, name), getattr(after.recipe, name)) for name in RECIPE]
    pairs.append(("evaluation.every_steps", before.evaluation.every_steps, after.evaluation.every_steps))
    pairs.append(("verdict", before.verdict.kind, after.verdict.kind))
    return [pair for pair in pairs if pair[1] != pair[2]]


@dataclass(frozen=True)
class _Allocation(Sized):
    """The numbers that a change leads to."""

    group_size: int
    problems_per_batch: int
    update_steps: int
    budget: Budget
    ends_by: str

    @property
    def candidate(self) -> Candidate:
        return Candidate(self.group_size, self.problems_per_batch, self.update_steps, self.ends_by)

    @classmethod
    def changed(cls, plan: Plan, given: Mapping[str, Any]) -> _Allocation:
        """N, B_p and budget as given, M as in the plan.

        Raises:
            PlanError: n below 2, a B that n does not divide, or a batch that the hardware cannot take.
        """
        n, problems = given.get("group_size", plan.group_size), given.get("problems_per_batch", plan.problems_per_batch)
        batch = given.get("rollouts_per_batch", n * problems)
        if n < 2:
            raise PlanError(f"group_size = {n}; accepted: 2 or more", "One rollout has no group to be compared with.")
        if "problems_per_batch" not in given:
            problems = batch // n
        if n * problems != batch or problems < 1:
            raise PlanError(
                f"rollouts_per_batch = {batch} is not group_size = {n} times problems_per_batch = {problems}",
                "Change two of the three, so that the third follows.",
            )
        known = given.get("n_problems", plan.n_problems)
        if known is not None and problems > known and {"problems_per_batch", "n_problems"} & set(given):
            raise PlanError(
                f"problems_per_batch = {problems} is more than n_problems = {known}", "Choose a smaller B_p."
            )
        refusal = plan.hardware.refusal(batch)
        if refusal is not None:
            raise PlanError(f"the plan's hardware cannot take this batch: {refusal}", "Choose another n or B_p.")
        budget = given.get("budget", plan.budget)
        guess = plan.throughput.refusal(batch) if plan.throughput is not None and budget.timed else None
        if guess is not None:
            raise PlanError(guess, "Choose a batch near those, or measure others: isocompute probe.")
        if budget.unit == plan.budget.unit:
            deadline = plan.budget.deadline_hours if budget.deadline_hours is None else budget.deadline_hours
            spent = plan.budget.spent if budget.spent is None else budget.spent
            budget = budget.replace(deadline_hours=deadline, spent=spent)
        return cls(n, problems, plan.update_steps, budget, plan.binding[-1] if plan.binding else "budget")

    def with_steps(self, pricing: Pricing, given: Mapping[str, Any]) -> _Allocation:
        """M as given, or the most that the budget buys if n, B_p, B or the budget changed.

        Raises:
            PlanError: the budget does not pay for it.
        """
        batch, steps = self.rollouts_per_batch, given.get("update_steps", self.update_steps)
        if "update_steps" in given:
            new = replace(self, update_steps=steps, ends_by="update_steps")
        elif {"group_size", "problems_per_batch", "rollouts_per_batch", "budget"} & set(given):
            steps, limit = pricing.affordable_steps(batch)
            new = replace(self, update_steps=max(steps, 1), ends_by=limit)
        else:
            new = self
        if not pricing.within(batch, new.update_steps):
            unit = self.budget.unit
            cost = pricing.cost(batch, new.update_steps)
            late = "" if pricing.in_time(batch, new.update_steps) else f" and ends after {pricing.deadline:g} hours"
            raise PlanError(
                f"{new.update_steps:,} steps of {self.group_size} x {self.problems_per_batch} = {batch:,} rollouts "
                f"cost {amount_text(cost, unit)}{late}; the budget leaves {amount_text(self.budget.available, unit)}",
                "Change update_steps or the batch, or give more: --change budget='...'.",
                cost + self.budget.committed,
            )
        return new


def _value(name: str, value: object) -> Any:
    """A value as its type.

    Raises:
        PlanError: an unknown name, or a value of another type.
    """
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
        if name == "model" and isinstance(value, str) and value.strip():
            return value
        if name in RECIPE:
            return value
    except (SpecError, TypeError, ValueError, OverflowError) as error:
        hint = error.hint if isinstance(error, SpecError) else None
        complaint = str(error.args[0]).removeprefix("Recipe.learning_rate_anchor: ")
        raise PlanError(f"{name}: {complaint}", hint or "Correct it.") from None
    raise PlanError(f"{name} = {show(value)}; accepted: a hub name or a local folder", "Correct it.")


def _recipe(plan: Plan, given: Mapping[str, Any], rollouts_per_batch: int) -> Recipe:
    changed = {name: given[name] for name in RECIPE if name in given}
    if "learning_rate" in given:
        # The rule stays; its anchor moves to this batch.
        changed |= {"learning_rate_anchor": given["learning_rate"], "learning_rate_anchor_batch": rollouts_per_batch}
    return plan.recipe.replace(**changed) if changed else plan.recipe


def _pricing(plan: Plan, budget: Budget, every_steps: int | None) -> Pricing:
    """Prices by the plan's rules, with the share of evaluations that it has, or evaluations as often as asked.

    Raises:
        PlanError: a budget in time, tokens or money for a plan without a throughput.
    """
    if plan.throughput is None and (budget.unit != "rollouts" or budget.deadline_hours is not None):
        raise PlanError(
            f"budget = {budget.amount:g} {budget.unit}: this plan has no throughput; accepted: a number of rollouts",
            "Plan again: isocompute allocate RUNS --budget ... --throughput FILE (isocompute probe makes the file).",
        )
    unit = "wall_hours" if "wall_hours" in plan.breakdown["training"] else "rollouts"
    share = max(EVALUATION_SHARE, plan.breakdown["evaluation"][unit] / plan.breakdown["training"][unit])
    evaluation = plan.evaluation
    if every_steps is not None:
        evaluation = evaluation.replace(every_steps=every_steps, count=None)
        return Pricing(budget, plan.throughput, evaluation, 1.0, plan.evaluation_counted)
    return Pricing(budget, plan.throughput, evaluation, min(share, 1.0), plan.evaluation_counted)


def _without_fits(plan: Plan, new: _Allocation, pricing: Pricing, recipe: Recipe, given: Iterable[str]) -> Plan:
    """Costs alone: predictions stay only if n, B_p and M do."""
    batch, steps = new.rollouts_per_batch, new.update_steps
    spent = {name: amounts for name, amounts in plan.breakdown.items() if name in (new.budget.spent or {})}
    same = _same_allocation(plan, new.candidate)
    evaluation = pricing.evaluation.replace(every_steps=pricing.every_steps(batch, steps), count=None)
    size = new.group_size, new.problems_per_batch
    planned = planned_values(recipe, size, evaluation, plan.n_problems, plan.model)
    extrapolation = plan.extrapolation
    if extrapolation is not None:
        extrapolation *= batch * steps / plan.rollouts
    return replace(
        plan,
        group_size=new.group_size,
        problems_per_batch=new.problems_per_batch,
        update_steps=steps,
        budget=new.budget,
        cost=pricing.cost(batch, steps),
        costs=pricing.all_costs(batch, steps),
        recipe=recipe,
        settings=tuple(replace(row, plan=planned[row.name]) for row in given_by_hand(plan.settings, given)),
        predicted_reward=plan.predicted_reward if same else None,
        reward_interval=plan.reward_interval if same else None,
        group_size_interval=plan.group_size_interval if same else None,
        law_group_size=plan.law_group_size if same else None,
        extrapolation=extrapolation,
        binding=(new.ends_by,),
        evaluation=evaluation,
        breakdown={**pricing.parts(batch, steps), **spent},
        saved_verdict=None,
    )


def _complete(before: Plan, after: Plan, given: Mapping[str, Any]) -> Plan:
    """The changed plan with the plan before the change as an alternative, its notes and its verdict."""
    same = _same_allocation(before, after)
    rewards = before.predicted_reward, after.predicted_reward
    kept = [note for note in before.notes if note.code in ("other-metric-without-plan", "changed-by-hand")]
    if same:
        kept += [note for note in before.notes if note.code in ("rest-not-worthwhile", "near-tie")]
        others = before.alternatives
    else:
        loss = None if rewards[0] is None or rewards[1] is None else rewards[1] - rewards[0]
        kind = "near-tie" if loss is not None and abs(loss) <= Tolerances(after.span).equal else "before-change"
        old = Candidate(before.group_size, before.problems_per_batch, before.update_steps, "")
        others = (Alternative.of(kind, old, rewards[0], loss),)
    asked = {name: (_present(before, name), _present(after, name)) for name in given}
    notes = [
        caveats.changed_by_hand(asked, rewards, after.metric, recipe=before.recipe != after.recipe),
        *after.notes,
        *kept,
        *caveats.metrics_disagree(after.group_size, dict(before.other_metrics)),
    ]
    after = replace(
        after,
        notes=unique(notes),
        alternatives=others,
        binding=before.binding if same else after.binding,
        other_metrics=before.other_metrics,
        optima=before.optima if same else (),
        next_runs=before.next_runs if same else None,
    )
    return replace(after, saved_verdict=_verdict(before, after, same=same))


def _verdict(before: Plan, after: Plan, *, same: bool) -> Verdict:
    if same:
        return before.verdict
    if after.fits is None:
        return Verdict("undecided", "changed by hand; the plan was saved without the fits that could judge its n")
    found = Verdict.of(after)
    if found.kind == "clear" and after.fits.surface is None:
        return Verdict("undecided", f"changed by hand; n = {after.group_size} was not compared with other n here")
    return Verdict(found.kind, f"changed by hand; {found.sentence}")


def _same_allocation(plan: Plan, other: Plan | Candidate) -> bool:
    names = ("group_size", "problems_per_batch", "update_steps")
    return all(getattr(plan, name) == getattr(other, name) for name in names)


def _present(plan: Plan, name: str) -> object:
    """A changeable value."""
    if name == EVERY:
        return plan.evaluation.every_steps
    return _plain(getattr(plan.recipe if name in RECIPE else plan, name))


def _plain(value: object) -> object:
    """A value for people and for JSON."""
    return str(value) if isinstance(value, Budget) else value
