"""The candidate that was chosen as a `Plan`: its numbers, and the notes that go with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from isocompute_sdk.notes import Note
from isocompute_sdk.planning import caveats, time_caveats
from isocompute_sdk.planning.alternatives import alternatives, binding
from isocompute_sdk.planning.candidates import Candidate
from isocompute_sdk.planning.design import pilot_sweep
from isocompute_sdk.planning.plan import Plan
from isocompute_sdk.planning.pricing import Pricing
from isocompute_sdk.planning.question import TIE, Question, band, reward_with_interval
from isocompute_sdk.planning.settings import Setting
from isocompute_sdk.specs import Sweep

if TYPE_CHECKING:
    from isocompute_sdk.planning.planner import Planner

FITTED = ("surface", "paper")
"""Methods that fit the user's own runs."""


def plan_of(planner: Planner, setting: Setting, chosen: Candidate, n_problems: int | None) -> Plan:
    """The plan of a candidate, without its notes.

    Args:
        planner: who was asked.
        setting: the question with everything that could be done.
        chosen: one of its candidates.
        n_problems: distinct training problems D; None for those of the user's own runs.
    """
    fits, question = planner.fits, setting.question
    if n_problems is None and fits.method in FITTED:
        n_problems = fits.n_problems
    preference, pricing = question.preference, question.pricing
    law = fits.laws.get(preference.law)
    value = preference.value(chosen)
    reward, interval = reward_with_interval(question, chosen)
    seen = fits.largest_compute
    prior = fits.method == "prior"
    return Plan(
        group_size=chosen.group_size,
        problems_per_batch=chosen.problems_per_batch,
        update_steps=chosen.update_steps,
        budget=pricing.budget,
        cost=pricing.cost(chosen.rollouts_per_batch, chosen.update_steps),
        costs=pricing.all_costs(chosen.rollouts_per_batch, chosen.update_steps),
        recipe=planner.recipe,
        hardware=question.limits.hardware,
        throughput=pricing.throughput,
        metric=fits.metric,
        model=planner.model if planner.model is not None else fits.model,
        n_problems=n_problems,
        predicted_reward=reward,
        reward_interval=interval,
        group_size_interval=band(fits, preference, value, chosen.group_size),
        law_group_size=None if prior or law is None else float(law.predict(value)),
        extrapolation=None if seen is None else pricing.compute(chosen.rollouts, fits.compute) / seen,
        binding=binding(question, chosen, setting.rejections),
        alternatives=alternatives(question, chosen, setting.candidates),
        notes=(),
        pilot=_pilot(planner, question, chosen),
        passport=fits.passport,
        evaluation=pricing.evaluation.replace(
            every_steps=pricing.every_steps(chosen.rollouts_per_batch, chosen.update_steps)
        ),
        evaluation_counted=pricing.evaluation_counts,
        breakdown=_breakdown(pricing, chosen),
        fits=fits,
    )


def notes_on(planner: Planner, question: Question, plan: Plan, chosen: Candidate) -> list[Note]:
    """Everything that has to be known with a plan: of the fits, of the recipe, and of this candidate."""
    fits, notes = planner.fits, list(planner.fits.notes)
    foreign = fits.method == "prior" or planner.model is None or not same_model(planner.model, fits.model)
    if fits.method not in FITTED and foreign:
        notes.append(caveats.another_model(fits.model, planner.model, fits.method))
    if not planner.recipe_given:
        notes.append(
            Note(
                "recipe-assumed",
                "info",
                f"No recipe was given: the {planner.recipe.name} preset is used (B_p floor "
                f"{planner.recipe.min_problems_per_batch}).",
            )
        )
    notes += planner.recipe.notes()
    if plan.extrapolation is not None:
        notes += caveats.extrapolation(plan.extrapolation, fits.method)
    notes += caveats.beyond_grid(chosen.group_size, question.largest, question.smallest)
    notes += caveats.problem_set(chosen, plan.n_problems)
    notes += caveats.batch(chosen, planner.recipe, fits.problems_per_batch)
    notes += caveats.steps(chosen, planner.recipe)
    notes += caveats.unused(plan.unused_share, chosen.ends_by, plan.binding[:-1])
    if question.preference.law == "group_size_vs_steps":
        notes += caveats.other_batch(chosen.rollouts_per_batch, fits.rollouts_per_batch)
    notes += _time_notes(planner, question.pricing, plan)
    limit = planner.hardware.max_rollouts_per_batch
    if limit is not None and plan.law_group_size is not None:
        notes += caveats.batch_limit(plan.law_group_size, chosen.problems_per_batch, limit)
    ties = [a.group_size for a in plan.alternatives if a.kind == "near-tie"]
    notes += caveats.near_tie(chosen.group_size, ties, TIE * question.span)
    disagree = caveats.curves_disagree if fits.surface is None else caveats.compromise
    notes += [
        disagree(chosen.group_size, a.group_size, -a.expected_loss)
        for a in plan.alternatives
        if a.kind == "best-by-curves" and a.expected_loss is not None
    ]
    return notes


def same_model(a: str | None, b: str | None) -> bool:
    """Whether two names mean one model: hub names and local folders compare by their last part."""
    if a is None or b is None:
        return False
    return a.rstrip("/").rsplit("/", 1)[-1].lower() == b.rstrip("/").rsplit("/", 1)[-1].lower()


def _pilot(planner: Planner, question: Question, chosen: Candidate) -> Sweep | None:
    if planner.fits.method in FITTED:
        return None
    return pilot_sweep(chosen.rollouts, max(planner.recipe.min_problems_per_batch, 1), question.limits.min_update_steps)


def _breakdown(pricing: Pricing, chosen: Candidate) -> dict[str, dict[str, float]]:
    """Cost of the run by part, then what the budget has spent already by purpose."""
    parts = pricing.parts(chosen.rollouts_per_batch, chosen.update_steps)
    spent = pricing.budget.spent or {}
    return parts | {purpose: {pricing.budget.unit: float(amount)} for purpose, amount in spent.items()}


def _time_notes(planner: Planner, pricing: Pricing, plan: Plan) -> list[Note]:
    timed, throughput = pricing.budget.timed, pricing.throughput
    counted = pricing.evaluation_counts
    notes = time_caveats.evaluation(plan.breakdown, pricing.evaluation_share, counted=counted, timed=timed)
    if throughput is None:
        return notes
    given = "gpus" in planner.hardware.model_fields_set and timed
    notes += time_caveats.gpus(throughput, planner.hardware, given)
    return notes + time_caveats.speed(throughput, pricing.budget, plan.rollouts_per_batch, plan.rollouts)
