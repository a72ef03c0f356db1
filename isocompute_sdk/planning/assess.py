"""The plan of a choice: predictions, other allocations worth knowing about, what limits it, verdict and notes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from isocompute_sdk.errors import PlanError
from isocompute_sdk.notes import Note, unique
from isocompute_sdk.planning import caveats
from isocompute_sdk.planning.allocate import Choice, Request, Resolved, Scored, Setup, enumerate_setups, pick
from isocompute_sdk.planning.allocate import resolve as resolve_request
from isocompute_sdk.planning.allocate import score as score_setups
from isocompute_sdk.planning.candidates import Candidate, Rejection, ends_batch
from isocompute_sdk.planning.inheritance import FITTED, same_model
from isocompute_sdk.planning.pilot_design import pilot_sweep
from isocompute_sdk.planning.plan import Alternative, Optimum, Plan
from isocompute_sdk.planning.preference import LawPreference, RewardPreference
from isocompute_sdk.planning.pricing import Pricing
from isocompute_sdk.planning.verdict import verdict_of
from isocompute_sdk.specs import Budget, Sweep
from isocompute_sdk.tolerances import EQUAL

if TYPE_CHECKING:
    from isocompute_sdk.planning.planner import Planner


def allocate(planner: Planner, request: Request) -> Plan:
    """The best executable allocation within the budget; see `Planner.allocate`."""
    if request.n_problems is not None and planner.fits.surface is not None:
        return allocate(planner.for_problem_set(request.n_problems), replace(request, n_problems=None))
    if not planner.allow_off_policy:
        planner.inheritance.refuse_stale_runs()
    resolved = resolve_request(planner, request)
    sizes = resolved.sizes()
    setups = enumerate_setups(resolved, sizes)
    floor = planner.recipe.min_problems_per_batch
    if not setups[0].candidates and floor < resolved.limits.floor:
        # No B_p that was run can be carried out, but the recipe allows a smaller one.
        resolved = replace(resolved, limits=replace(resolved.limits, floor=floor))
        setups = enumerate_setups(resolved, sizes)
    return assess(planner, resolved, score_setups(resolved, setups), sizes)


def assess(planner: Planner, resolved: Resolved, choice: Choice, sizes: Sequence[int]) -> Plan:
    """The plan of a choice.

    Args:
        planner: the planner.
        resolved: the request, at the smallest B_p.
        choice: what was picked.
        sizes: group sizes that it was picked from.
    """
    plan, notes = plan_of(planner, resolved, choice)
    best_for_others, missing = dict[str, int](), list[Note]()
    for metric, fits in planner.others.items():
        try:
            # The whole budget may be worthwhile for another metric although it is not for the first.
            request = replace(resolved.request, n_problems=None, spend="worthwhile")
            best_for_others[metric] = allocate(planner.with_fits(fits), request).group_size
        except PlanError as error:
            missing.append(caveats.no_answer(metric, error.message))
    if choice.stopping is not None:
        notes.append(caveats.rest_not_worthwhile(choice.stopping, plan.budget))
    notes += _declines(resolved, choice)
    notes += missing
    notes += caveats.metrics_disagree(plan.group_size, best_for_others)
    notes += _moved(resolved, choice, sizes)
    optima = _optima(resolved, choice, sizes)
    return replace(plan, notes=unique(notes), other_metrics=best_for_others, optima=optima)


def plan_for(planner: Planner, candidate: Candidate, request: Request, pricing: Pricing | None = None) -> Plan:
    """The plan of an allocation that the caller chose; see `Planner.plan_for`."""
    resolved = resolve_request(planner, request, pricing)
    setup = Setup(resolved.limits, [candidate], [])
    choice = Choice(setup, candidate, candidate, resolved.limits.pricing, resolved.scored(candidate), None)
    plan, notes = plan_of(planner, resolved, choice)
    return replace(plan, notes=unique(notes))


def plan_of(planner: Planner, resolved: Resolved, choice: Choice) -> tuple[Plan, list[Note]]:
    """The plan of one candidate, and its notes on fits, recipe and candidate."""
    fits, preference, pricing, chosen = resolved.fits, resolved.preference, choice.pricing, choice.chosen
    n, problems, steps = chosen.group_size, chosen.problems_per_batch, chosen.update_steps
    batch, size = chosen.rollouts_per_batch, (n, problems)
    n_problems = resolved.request.n_problems
    if n_problems is None and fits.method in FITTED:
        n_problems = fits.n_problems
    law, seen, compute = fits.laws.get(preference.law), fits.largest_compute, resolved.compute(chosen.rollouts)
    here = next((one for one in choice.landmarks if one.candidate == chosen), None) or resolved.scored(chosen)[0]
    interval = None
    if here.reward is not None:
        predicted = fits.predict(compute, n, problems)
        interval = None if np.isnan(predicted.low) else (float(predicted.low), float(predicted.high))
    recipe = planner.inheritance.recipe_for(*size)
    evaluation = pricing.evaluation.replace(every_steps=pricing.every_steps(batch, steps), count=None)
    model = planner.model if planner.model is not None else fits.model
    others = _alternatives(resolved, choice, here)
    extrapolation, cost = None if seen is None else compute / seen, pricing.cost(batch, steps)
    spent = {purpose: {pricing.budget.unit: float(part)} for purpose, part in (pricing.budget.spent or {}).items()}
    own = fits.method in FITTED
    plan = Plan(
        verdict=verdict_of(fits, size, compute, others, choice.stopping, extrapolation, pricing.budget, cost),
        group_size=n,
        problems_per_batch=problems,
        update_steps=steps,
        budget=pricing.budget,
        cost=cost,
        costs=pricing.all_costs(batch, steps),
        recipe=recipe,
        settings=planner.inheritance.rows(recipe, size, evaluation, n_problems, model),
        hardware=choice.setup.limits.hardware,
        throughput=pricing.throughput,
        metric=fits.metric,
        model=model,
        n_problems=n_problems,
        predicted_reward=here.reward,
        reward_interval=interval,
        group_size_interval=_band(resolved, chosen),
        law_group_size=None if law is None or fits.method == "prior" else float(law.predict(preference.value(chosen))),
        extrapolation=extrapolation,
        binding=_binding(resolved, choice),
        alternatives=others,
        stopping=choice.stopping,
        notes=(),
        pilot=None if own else _pilot(planner, resolved, chosen),
        passport=fits.passport,
        evaluation=evaluation,
        evaluation_counted=pricing.evaluation_counts,
        breakdown=pricing.parts(batch, steps) | spent,
        fits=fits,
    )
    return plan, _notes(planner, resolved, choice, plan)


def _pilot(planner: Planner, resolved: Resolved, chosen: Candidate) -> Sweep | None:
    return pilot_sweep(chosen.rollouts, max(planner.recipe.min_problems_per_batch, 1), resolved.limits.min_update_steps)


def _band(resolved: Resolved, chosen: Candidate) -> tuple[int, int] | None:
    """80 % band of the best n; None without draws.

    The band of a law is rounded outward to powers of two. The band of a surface is widened to hold the chosen n, which
    may be the best executable one outside it.
    """
    fits, preference = resolved.fits, resolved.preference
    interval = fits.law_interval(preference.value(chosen), name=preference.law)
    if interval is None:
        return None
    low, high, n = float(interval[0][0]), float(interval[1][0]), chosen.group_size
    if fits.surface is not None:
        return max(2, int(np.floor(min(low, n) + 1e-6))), max(2, int(np.ceil(max(high, n) - 1e-6)))
    return max(2, int(2 ** np.floor(np.log2(low) + 1e-6))), max(2, int(2 ** np.ceil(np.log2(high) - 1e-6)))


def _alternatives(resolved: Resolved, choice: Choice, here: Scored) -> tuple[Alternative, ...]:
    """Near-ties, the best n by the curves alone, the on-grid and the conservative answer.

    Args:
        resolved: the request.
        choice: what was picked.
        here: the chosen candidate with its reward.
    """
    chosen, reward, preference, fits = choice.chosen, here.reward, resolved.preference, resolved.fits
    candidates = choice.setup.candidates
    rest = [one for one in choice.landmarks if one.candidate.group_size != chosen.group_size]
    if fits.method == "prior":
        here_loss = preference.distance(chosen.group_size, chosen)
        lost = [(one.candidate, preference.distance(one.candidate.group_size, chosen) - here_loss) for one in rest]
        return tuple(Alternative.of("near-tie" if loss <= EQUAL else "other", c, None, loss) for c, loss in lost)
    if not candidates[1:]:
        return ()
    smallest, largest = fits.group_size_range
    found: list[Alternative] = []
    if reward is not None:
        known = [(one, one.reward) for one in rest if one.reward is not None]
        tie = resolved.tolerances.equal
        for one, r in known:
            if abs(r - reward) <= tie:
                # These runs cannot show that an n above the grid is as good.
                unequal = one.candidate.group_size > largest or _apart(here, one)
                found.append(Alternative.of("close" if unequal else "near-tie", one.candidate, r, reward - r))
        best = max(known, key=lambda pair: pair[1], default=None)
        if best is not None and best[1] > reward + tie:
            kind = "beyond-grid" if best[0].candidate.group_size > largest else "best-by-curves"
            found.append(Alternative.of(kind, best[0].candidate, best[1], reward - best[1]))
    else:
        # Without rewards: the neighbouring size, if rounding the law's n to a power of two was a close call.
        close = [c for one in rest if preference.distance((c := one.candidate).group_size, chosen) <= 0.75]
        found += [Alternative.of("next-power-of-two", c, None, None) for c in close]
    on_grid = [c for c in candidates if smallest <= c.group_size <= largest]
    if chosen.group_size > largest and on_grid:
        best_on_grid = preference.best(on_grid)
        found.append(Alternative.of("on-grid", best_on_grid, resolved.reward(best_on_grid), None))
    # Of a surface the careful answer is the best on the grid.
    careful = chosen if fits.surface is not None else preference.best(candidates, careful=True)
    if careful.group_size not in (chosen.group_size, *(a.group_size for a in found if a.kind == "on-grid")):
        r = resolved.reward(careful)
        found.append(Alternative.of("conservative", careful, r, None if r is None or reward is None else reward - r))
    return tuple(found)


def _apart(one: Scored, other: Scored) -> bool:
    """Whether the 80 % interval of their difference, draw by draw, leaves out 0; False without draws."""
    if one.drawn_D is None or other.drawn_D is None:
        return False
    low, high = np.quantile(one.drawn_D - other.drawn_D, (0.1, 0.9))
    return bool(low > 0 or high < 0)


def _binding(resolved: Resolved, choice: Choice) -> tuple[str, ...]:
    """Constraints that excluded a better n or a larger batch, then what limits M."""
    preference, limits, chosen = resolved.preference, choice.setup.limits, choice.chosen
    fixed, largest = limits.fixed, resolved.fits.group_size_range[1]
    better = _best_rejected(resolved, choice)
    found = [] if better is None else [better.constraint]
    if fixed.update_steps is not None and fixed.problems_per_batch is None and fixed.rollouts_per_batch is None:
        found.append(ends_batch(chosen.group_size, chosen.problems_per_batch, fixed.update_steps, limits))
    wanted = preference.wanted(chosen)
    if wanted is not None and wanted > largest * 2**0.5 and chosen.group_size <= largest:
        found.append("group_size_grid")
    return (*dict.fromkeys(found), chosen.ends_by)


def _best_rejected(resolved: Resolved, choice: Choice) -> Rejection | None:
    """The rejected group size that the preference likes most, if it likes it better than the chosen one."""
    fixed, preference, chosen = resolved.limits.fixed, resolved.preference, choice.chosen
    rejections, (smallest, largest) = choice.setup.rejections, resolved.fits.group_size_range
    if not rejections:
        return None
    if isinstance(preference, LawPreference) and None not in (fixed.problems_per_batch, fixed.update_steps):
        useful = resolved.fits.law(preference.law).saturation * 2**0.5
        larger = [r for r in rejections if chosen.group_size < r.group_size <= useful]
        return max(larger, key=lambda r: r.group_size, default=None)
    if isinstance(preference, RewardPreference):
        rejections = [r for r in rejections if smallest <= r.group_size <= largest]
    least = preference.distance(chosen.group_size, chosen) - 1e-9
    distances = [(preference.distance(r.group_size, chosen), r) for r in rejections]
    better = [pair for pair in distances if pair[0] < least]
    return min(better, key=lambda pair: pair[0])[1] if better else None


def _optima(resolved: Resolved, choice: Choice, sizes: Sequence[int]) -> tuple[Optimum, ...]:
    """Best per rollout and best per GPU-hour for what the chosen candidate spends.

    Returns:
        Both, or none without a surface, without a throughput that converts other batches (the two differ in their
        batches), or with a fixed B_p, M or B.
    """
    pricing, chosen = choice.pricing, choice.chosen
    throughput = pricing.throughput
    timed = throughput is not None and throughput.rollouts_per_second is not None
    if throughput is None or not timed or (throughput.measured and not throughput.measured.separates_batches):
        return ()
    if resolved.fits.surface is None or not resolved.can_predict or not resolved.limits.fixed.free:
        return ()
    hours = pricing.cost_in("gpu_hours", chosen.rollouts_per_batch, chosen.update_steps)
    here = resolved.gpu_counts if None in resolved.gpu_counts else (throughput.gpus,)
    same_hours = Budget(gpu_hours=hours * (1 + 1e-9), deadline_hours=pricing.budget.deadline_hours)
    optima: list[Optimum] = []
    kinds: tuple[tuple[Literal["rollout", "gpu_hour"], Budget, tuple[int | None, ...]], ...] = (
        ("rollout", Budget(rollouts=chosen.rollouts), here),
        ("gpu_hour", same_hours, resolved.gpu_counts),
    )
    for per, budget, counts in kinds:
        asked = resolved.with_budget(budget, counts)
        setups = enumerate_setups(asked, sizes)
        if not setups[0].candidates:
            return ()
        optima.append(_optimum(per, asked, *pick(asked, setups), same_hours, chosen.rollouts))
    return tuple(optima)


def _optimum(
    per: Literal["rollout", "gpu_hour"],
    resolved: Resolved,
    setup: Setup,
    best: Candidate,
    same_hours: Budget,
    rollouts: int,
) -> Optimum:
    pricing, batch = replace(setup.limits.pricing, budget=same_hours), best.rollouts_per_batch
    steps = max(1, round(rollouts / batch))
    affordable = pricing.affordable_steps(batch)[0]
    at_rollouts = resolved.reward(replace(best, update_steps=steps))
    throughput = pricing.throughput
    assert throughput is not None, "checked by the caller"
    assert at_rollouts is not None, "checked by the caller"
    return Optimum(
        per=per,
        group_size=best.group_size,
        problems_per_batch=best.problems_per_batch,
        gpus=throughput.gpus,
        reward_at_equal_rollouts=at_rollouts,
        gpu_hours_at_equal_rollouts=pricing.cost_in("gpu_hours", batch, steps),
        wall_hours_at_equal_rollouts=pricing.cost_in("wall_hours", batch, steps),
        reward_at_equal_gpu_hours=resolved.reward(replace(best, update_steps=affordable)) if affordable else None,
        rollouts_at_equal_gpu_hours=affordable * batch,
    )


def _notes(planner: Planner, resolved: Resolved, choice: Choice, plan: Plan) -> list[Note]:
    """Notes on the fits, the recipe and this candidate."""
    fits, pricing, chosen, notes = resolved.fits, choice.pricing, choice.chosen, list(resolved.fits.notes)
    timed, throughput = pricing.budget.timed, pricing.throughput
    if fits.method not in FITTED and (planner.model is None or not same_model(planner.model, fits.model)):
        notes.append(caveats.another_model(fits.model, planner.model, fits.method))
    notes += planner.inheritance.notes(plan.settings, timed=timed)
    notes += plan.recipe.notes()
    if plan.extrapolation is not None:
        notes += caveats.extrapolation(plan.extrapolation)
    smallest, largest = fits.group_size_range
    notes += caveats.beyond_grid(chosen.group_size, largest, smallest)
    notes += caveats.problem_set(chosen, plan.n_problems)
    notes += caveats.batch(chosen, planner.recipe, fits.problems_per_batch)
    notes += caveats.steps(chosen, planner.recipe)
    notes += caveats.unused(plan.unused_share, chosen.ends_by, plan.binding[:-1])
    if resolved.preference.law == "group_size_vs_steps":
        notes += caveats.other_batch(chosen.rollouts_per_batch, fits.rollouts_per_batch)
    notes += caveats.evaluation(
        plan.breakdown, pricing.evaluation_share, counted=pricing.evaluation_counts, timed=timed
    )
    if throughput is not None:
        given = "gpus" in planner.hardware.model_fields_set and timed
        notes += caveats.gpus(throughput, planner.hardware, given)
        notes += caveats.speed(throughput, pricing.budget, plan.rollouts_per_batch, plan.rollouts, planner.throughput)
    ties = [a.group_size for a in plan.alternatives if a.kind == "near-tie"]
    notes += caveats.near_tie(chosen.group_size, ties, resolved.tolerances.equal)
    notes += [
        caveats.curves_disagree(chosen.group_size, a.group_size, -a.expected_loss)
        for a in plan.alternatives
        if fits.surface is None and a.kind == "best-by-curves" and a.expected_loss is not None
    ]
    return notes


def _declines(resolved: Resolved, choice: Choice) -> list[Note]:
    """Whether rewards fall at this n before the whole budget is spent."""
    fits, best = resolved.fits, choice.best
    if fits.surface is None or fits.surface.declines is None or not resolved.can_predict:
        return []
    onset_D = fits.surface.onset(best.group_size, fits.reachable_problems_per_batch(best.problems_per_batch))
    chance = float(np.mean(onset_D < resolved.compute(best.rollouts)))
    step = float(np.mean(fits.surface.declines.step_D))
    return [*caveats.decline(best.group_size, float(np.median(onset_D)), chance, step, fits.group_size_range[1])]


def _moved(resolved: Resolved, choice: Choice, sizes: Sequence[int]) -> list[Note]:
    """What a limit on the batch changes about n or a budget in time about B_p, its cost, and what avoids it."""
    notes: list[Note] = []
    chosen, pricing, limits = choice.chosen, choice.pricing, resolved.limits
    limit = limits.hardware.max_rollouts_per_batch
    if limit is not None and any(r.constraint == "max_rollouts_per_batch" for r in choice.setup.rejections):
        unlimited = limits.hardware.replace(max_rollouts_per_batch=None)
        asked = replace(resolved, limits=replace(limits, hardware=unlimited))
        setups = enumerate_setups(asked, sizes)
        if setups[0].candidates and (best := pick(asked, setups)[1]).rollouts_per_batch > limit:
            notes += caveats.moved_by_limit(chosen, best, limit, resolved.reward(chosen), resolved.reward(best))
    if pricing.budget.timed and pricing.throughput is not None and limits.fixed.free:
        asked = resolved.with_budget(Budget(rollouts=chosen.rollouts))
        setups = enumerate_setups(asked, sizes)
        if setups[0].candidates:
            notes += caveats.chosen_for_time(chosen, pick(asked, setups)[1], pricing.throughput)
    return notes
