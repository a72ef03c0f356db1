"""The decision: the plan of a choice with its alternatives, how decisively the runs support n, and what to run first.

`decide` is the only function that makes one. `allocate`, `next`, `report`, `audit`, `replan` and campaigns ask it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from isocompute_sdk.errors import PlanError
from isocompute_sdk.fitting.surface.answers import GroupSizeOdds, estimate
from isocompute_sdk.notes import unique
from isocompute_sdk.planning import caveats
from isocompute_sdk.planning.allocate import (
    Choice,
    Request,
    Resolved,
    Scored,
    Setup,
    choice_of,
    enumerate_setups,
    resolve,
    score,
)
from isocompute_sdk.planning.basis import Basis
from isocompute_sdk.planning.next_runs import NextRuns, Question, Search, ask, longer
from isocompute_sdk.planning.pilot_design import PILOT_SHARES, PilotDesign, design_pilot
from isocompute_sdk.planning.plan import Plan
from isocompute_sdk.planning.plan_parts import Alternative, Odds, Unlimited, Verdict
from isocompute_sdk.planning.pricing import (
    FEWEST_EVALUATIONS,
    Candidate,
    Fixed,
    Pricing,
    Rejection,
    candidates,
    ends_batch,
)
from isocompute_sdk.planning.verdict import approval_of, gain_of, trouble_of, verdict_of, with_first, worth_of
from isocompute_sdk.tolerances import EQUAL
from isocompute_sdk.training.registry import backend_of


def decide(basis: Basis, request: Request, search: Search | None = None) -> Plan:
    """The best executable allocation within the budget, and what to run before it; see `Planner.allocate`."""
    if request.n_problems is not None and basis.fits.surface is not None:
        plan = decide(basis.for_problem_set(request.n_problems), replace(request, n_problems=None), search)
        return replace(plan, options={**plan.options, "n_problems": request.n_problems})
    resolved, sizes, choice = _choose(basis, request)
    plan = _plan_of(basis, resolved, choice)
    others = _other_metrics(basis, request)
    verdict, is_open = verdict_of(plan, choice.odds)
    first = _first(basis, resolved, choice, sizes, verdict, search, is_open=is_open)
    verdict = with_first(verdict, first, is_open=is_open)
    free = _unlimited(basis, resolved, choice)
    other = plan.group_size if free is None else free.plan.group_size
    if other != plan.group_size and other <= basis.fits.group_size_range[1] and verdict.sentence.startswith("n = "):
        verdict = replace(verdict, sentence=f"within your limits {verdict.sentence}")
    plan = replace(plan, verdict=verdict, next_runs=first, gain=gain_of(plan), other_metrics=others, unlimited=free)
    notes = unique(
        [
            *caveats.of_plan(basis, resolved, choice, plan),
            *caveats.declines(resolved, choice),
            *caveats.metrics_disagree(plan.group_size, others),
        ]
    )
    plan = replace(plan, notes=notes)
    approval = approval_of(plan)
    if approval.kind == "do-not" and plan.last_half is not None and request.slots:
        approval = replace(approval, smaller=_smaller(basis, request, plan))
    return replace(plan, approval=approval)


def unjudged(basis: Basis, request: Request) -> Plan:
    """The plan of `decide` for a request without `n_problems`, with predictions only: for a search over budgets."""
    resolved, _, choice = _choose(basis, request)
    return _plan_of(basis, resolved, choice)


def _choose(basis: Basis, request: Request) -> tuple[Resolved, list[int], Choice]:
    """What is asked, the n that are compared, and the candidate chosen."""
    if not basis.allow_off_policy:
        basis.inheritance.refuse_stale_runs()
    resolved = resolve(basis, request)
    sizes = resolved.sizes()
    setups = enumerate_setups(resolved, sizes)
    floor = basis.inheritance.recipe.min_problems_per_batch
    if not setups[0].candidates and floor < resolved.limits.floor:
        # No B_p that was run can be carried out, but the recipe allows a smaller one.
        resolved = replace(resolved, limits=replace(resolved.limits, floor=floor))
        setups = enumerate_setups(resolved, sizes)
    return resolved, sizes, score(resolved, setups)


def _smaller(basis: Basis, request: Request, plan: Plan) -> float | None:
    """The largest of a half, a quarter, ... of what a plan costs, rounded up, whose own plan is approved; else None."""
    half = plan.budget.committed + plan.to_pay(plan.budget.unit) / 2
    digit = 10.0 ** (math.floor(math.log10(half)) - 3)
    # Four digits that a person may type, and for which the plan is decided.
    amount = float(f"{math.ceil(half / digit) * digit:.4g}")
    if not plan.budget.committed < amount < plan.budget.amount:
        return None
    budget = plan.budget.with_amount(amount)
    try:
        found = decide(basis, replace(request, budget=budget)).approval
    except PlanError:
        return None
    assert found is not None, "a new plan has one"
    return found.smaller if found.kind == "do-not" else budget.amount


def _other_metrics(basis: Basis, request: Request) -> dict[str, int | str]:
    """The best n by other metrics, or why there is no plan."""
    best = dict[str, int | str]()
    # The whole budget may be worthwhile for another metric although it is not for the first.
    asked = replace(request, n_problems=None, spend="worthwhile", slots=0)
    for metric, fits in basis.others.items():
        try:
            best[metric] = decide(basis.with_fits(fits), asked).group_size
        except PlanError as error:
            best[metric] = f"no plan: {error.message}"
    return best


def pilot(
    basis: Basis,
    request: Request,
    *,
    shares: Sequence[float] = PILOT_SHARES,
    spend_all: bool = False,
    rng: np.random.Generator | int | None = None,
) -> PilotDesign:
    """The pilot for a budget before anything was run; see `Planner.design_pilot`."""
    recipe = basis.recipe
    floor = min(recipe.min_problems_per_batch, request.n_problems or recipe.min_problems_per_batch)
    problems = request.fixed.problems_per_batch or max(floor, 1)
    steps = request.min_update_steps or max(2 * recipe.warmup_steps, 1)
    alone = Request.of(request.budget, problems_per_batch=problems, min_update_steps=steps, slots=0)
    try:
        now = decide(basis.on_gpus_of(request.budget), alone).group_size
    except PlanError:
        now = None
    pricing = _of_trials(basis, basis.pricing(request.budget))
    return design_pilot(pricing, basis.hardware, problems, steps, now, shares=shares, spend_all=spend_all, rng=rng)


def _of_trials(basis: Basis, pricing: Pricing) -> Pricing:
    """Prices of runs that are made to learn from them."""
    return replace(pricing, fewest_evaluations=1 if basis.evaluation is not None else FEWEST_EVALUATIONS)


def plan_for(basis: Basis, candidate: Candidate, request: Request, pricing: Pricing | None = None) -> Plan:
    """The plan of an allocation that the caller chose, with predictions and notes as of `allocate`.

    Raises:
        FieldError: it costs more than the budget, or the hardware cannot take its batch.
    """
    resolved = resolve(basis, replace(request, spend="all"), pricing)
    setup = Setup(resolved.limits, [candidate], [])
    landmarks = resolved.scored(_beside(resolved, candidate))
    choice = replace(choice_of(resolved, setup, candidate, landmarks), pricing=resolved.limits.pricing)
    plan = _plan_of(basis, resolved, choice)
    verdict, _ = verdict_of(plan, choice.odds if resolved.can_predict else None)
    notes = unique(caveats.of_plan(basis, resolved, choice, plan))
    return replace(plan, verdict=verdict, notes=notes)


def _beside(resolved: Resolved, candidate: Candidate) -> list[Candidate]:
    """The candidate and what its cost buys at every other n, increasing, as `allocate` compares them."""
    limits, fits = resolved.limits, resolved.fits
    if fits.surface is None:
        return [candidate]
    cost = limits.pricing.cost(candidate.rollouts_per_batch, candidate.update_steps)
    budget = limits.pricing.budget.replace(spent=None).with_amount(cost)
    fixed = Fixed(problems_per_batch=candidate.problems_per_batch)
    same = replace(limits, pricing=replace(limits.pricing, budget=budget), fixed=fixed)
    sizes = [n for n in resolved.sizes() if n != candidate.group_size and (n in fits.group_sizes or n.bit_count() == 1)]
    return sorted([candidate, *candidates(sizes, same)[0]], key=lambda one: one.group_size)


def _plan_of(basis: Basis, resolved: Resolved, choice: Choice) -> Plan:
    """The plan of one candidate, without what is judged of it and without notes.

    Where no run rises it says nothing of rewards and of other n: the prior alone would speak.
    """
    fits, pricing, chosen, reward = resolved.fits, choice.pricing, choice.chosen.candidate, choice.chosen.reward
    n, problems, steps = chosen.group_size, chosen.problems_per_batch, chosen.update_steps
    n_problems = resolved.limits.n_problems
    seen, compute = fits.largest_compute, resolved.compute(n * problems * steps)
    interval, flat = None, bool(fits.no_rise)
    if reward is not None and not flat:
        predicted = fits.predict(compute, n, problems)
        interval = None if np.isnan(predicted.low) else (float(predicted.low), float(predicted.high))
    recipe = basis.inheritance.recipe_for(n, problems)
    bill = pricing.bill(n * problems, steps)
    evaluation = pricing.evaluation.replace(every_steps=bill.every_steps, count=None)
    model = basis.model if basis.model is not None else fits.model
    spent = {purpose: {pricing.unit: float(part)} for purpose, part in (pricing.budget.spent or {}).items()}
    name = "group_size" if resolved.by_law is None else resolved.by_law.law
    law = fits.laws.get(name)
    value = compute if resolved.by_law is None else resolved.by_law.value(chosen)
    plan = Plan(
        verdict=Verdict("undecided", ""),
        group_size=n,
        problems_per_batch=problems,
        update_steps=steps,
        budget=pricing.budget,
        cost=bill.cost,
        costs=bill.costs,
        recipe=recipe,
        settings=basis.inheritance.rows(recipe, (n, problems), evaluation, n_problems, model),
        hardware=choice.setup.limits.hardware,
        throughput=pricing.throughput,
        metric=fits.metric,
        model=model,
        n_problems=n_problems,
        predicted_reward=None if flat else reward,
        reward_interval=interval,
        group_size_interval=None if flat else _band(resolved, n, value, name),
        law_group_size=None if law is None or fits.method in ("prior", "surface") else float(law.predict(value)),
        extrapolation=None if seen is None else compute / seen,
        binding=_binding(resolved, choice),
        alternatives=() if flat else _alternatives(resolved, choice),
        odds=None if flat else _odds_of(choice.odds, n),
        stopping=choice.stopping,
        notes=(),
        passport=fits.passport,
        evaluation=evaluation,
        asked_evaluation=basis.evaluation,
        breakdown=bill.parts | spent,
        past=pricing.past,
        options=resolved.request.options,
        backend=None if fits.table is None else backend_of(fits.table),
        fits=fits,
    )
    return replace(plan, last_half=_last_half(plan))


def _last_half(plan: Plan) -> float | None:
    """Reward that the last half of the steps adds, if that is not worth it; None also without a surface."""
    fits = plan.fits
    if fits is None or fits.surface is None or fits.no_rise or plan.update_steps < 2:
        return None
    gain = estimate(plan.last_half_draws())
    return gain.mean if worth_of(gain, fits.tolerances) == "not-worth-it" else None


def _odds_of(odds: GroupSizeOdds | None, n: int) -> Odds | None:
    """The odds of one n; None without a surface."""
    if odds is None:
        return None
    here = int(np.flatnonzero(odds.group_size == n)[0])
    return Odds(float(odds.probability_best[here]), float(odds.near_best[here]), float(odds.expected_regret[here]))


def _band(resolved: Resolved, n: int, value: float, law: str) -> tuple[int, int] | None:
    """80 % band of the best n; None without draws.

    It is rounded outward to powers of two. That of a surface is widened to hold the chosen n, which may be the best
    executable one outside it.
    """
    interval = resolved.fits.law_interval(value, name=law)
    if interval is None:
        return None
    low, high = float(interval[0][0]), float(interval[1][0])
    if resolved.by_law is None:
        low, high = min(low, n), max(high, n)
    return max(2, int(2 ** np.floor(np.log2(low) + 1e-6))), max(2, int(2 ** np.ceil(np.log2(high) - 1e-6)))


def _alternatives(resolved: Resolved, choice: Choice) -> tuple[Alternative, ...]:
    """Every other n that the constraints allow, those worth knowing about by kind, each with reward, odds and loss."""
    chosen, reward, by_law = choice.chosen.candidate, choice.chosen.reward, resolved.by_law
    rest = {one.candidate.group_size: one for one in choice.landmarks if one.candidate.group_size != chosen.group_size}
    found: list[tuple[str, Scored, float | None]] = []
    if by_law is not None and resolved.fits.method == "prior":
        here = by_law.distance(chosen.group_size, chosen)
        for n, one in rest.items():
            loss = by_law.distance(n, chosen) - here
            found.append(("near-tie" if loss <= EQUAL else "other", replace(one, reward=None), loss))
    else:
        kinds = _kinds(resolved, choice, [*rest.values()])
        for n in [*kinds, *(n for n in rest if n not in kinds)]:
            lost = None if rest[n].reward is None or reward is None else reward - (rest[n].reward or 0.0)
            found.append((kinds.get(n, "other"), rest[n], lost))
    return tuple(
        Alternative(kind, c.group_size, c.problems_per_batch, c.update_steps, one.reward, loss, odds)
        for kind, one, loss in found
        for c, odds in [(one.candidate, _odds_of(choice.odds, one.candidate.group_size))]
    )


def _kinds(resolved: Resolved, choice: Choice, rest: Sequence[Scored]) -> dict[int, str]:
    """What makes another n worth knowing about, the most telling first."""
    chosen, reward, by_law = choice.chosen.candidate, choice.chosen.reward, resolved.by_law
    largest = resolved.fits.group_size_range[1]
    kinds: dict[int, str] = {}
    known = [(one, one.reward) for one in rest if one.reward is not None]
    if reward is not None:
        # As shown: a plan that stops early shows the reward of the whole budget, and has the same ties.
        shown_R = resolved.fits.tolerances.shown(np.array([reward, *(r for _, r in known)]))
        gain_R = np.round(shown_R[1:] - shown_R[0], 3)
        for (one, _), gain in zip(known, gain_R, strict=True):
            if abs(gain) <= EQUAL:
                # These runs cannot show that an n above the grid is as good.
                kinds[one.candidate.group_size] = "close" if one.candidate.group_size > largest else "near-tie"
        if known and max(gain_R) > EQUAL:
            n = known[int(np.argmax(gain_R))][0].candidate.group_size
            kinds[n] = "beyond-grid" if n > largest else "best-by-curves"
    elif by_law is not None:
        # Without rewards: the neighbouring size, if rounding the law's n to a power of two was a close call.
        close = [one.candidate.group_size for one in rest]
        kinds |= {n: "next-power-of-two" for n in close if by_law.distance(n, chosen) <= 0.75}
    on_grid = [one for one in rest if one.candidate.group_size <= largest]
    if chosen.group_size > largest and on_grid:
        grid = [one.candidate for one in on_grid]
        here = max(on_grid, key=lambda one: one.mean).candidate if by_law is None else by_law.best(grid)
        kinds.setdefault(here.group_size, "on-grid")
    return kinds


def _binding(resolved: Resolved, choice: Choice) -> tuple[str, ...]:
    """Constraints that excluded a better n or a larger batch, then what limits M."""
    limits, chosen = choice.setup.limits, choice.chosen.candidate
    fixed, largest = limits.fixed, resolved.fits.group_size_range[1]
    better = _best_rejected(resolved, choice)
    found = [] if better is None else [better.constraint]
    if fixed.update_steps is not None and fixed.problems_per_batch is None and fixed.rollouts_per_batch is None:
        found.append(ends_batch(chosen.group_size, chosen.problems_per_batch, fixed.update_steps, limits))
    if fixed.update_steps is not None and fixed.rollouts_per_batch is not None:
        found.append("rollouts_per_batch")
    if chosen.group_size <= largest:
        wanted = None if resolved.by_law is None else resolved.by_law.wanted(chosen)
        if resolved.by_law is None:
            at, problems = resolved.compute(chosen.rollouts), chosen.problems_per_batch
            above, here = resolved.fits.expected_reward(at, [2 * largest, chosen.group_size], problems)
            wanted = 2.0 * largest if above > here else None
        if wanted is not None and wanted > largest * 2**0.5:
            found.append("group_size_grid")
    if choice.best.candidate.ends_by == "deadline":
        # What a plan that stops sooner leaves is then less than the budget.
        found.append("deadline")
    return (*dict.fromkeys([*found, chosen.ends_by]),)


def _best_rejected(resolved: Resolved, choice: Choice) -> Rejection | None:
    """The rejected group size that would be preferred most, if it would be preferred to the chosen one."""
    fixed, by_law, chosen = resolved.limits.fixed, resolved.by_law, choice.chosen.candidate
    rejections, (smallest, largest) = choice.setup.rejections, resolved.fits.group_size_range
    if by_law is None:
        rejections = [r for r in rejections if smallest <= r.group_size <= largest]
        if not rejections:
            return None
        sizes = [chosen.group_size, *(r.group_size for r in rejections)]
        at = resolved.compute(chosen.rollouts)
        here, *others = resolved.fits.expected_reward(at, sizes, chosen.problems_per_batch).tolist()
        best = max(range(len(others)), key=others.__getitem__)
        return rejections[best] if others[best] > here + 1e-9 else None
    if None not in (fixed.problems_per_batch, fixed.update_steps):
        useful = resolved.fits.law(by_law.law).saturation * 2**0.5
        larger = [r for r in rejections if chosen.group_size < r.group_size <= useful]
        return max(larger, key=lambda r: r.group_size, default=None)
    least = by_law.distance(chosen.group_size, chosen) - 1e-9
    better = [(d, r) for r in rejections if (d := by_law.distance(r.group_size, chosen)) < least]
    return min(better, key=lambda pair: pair[0])[1] if better else None


def _unlimited(basis: Basis, resolved: Resolved, choice: Choice) -> Unlimited | None:
    """The plan without the limits that were asked for, beside which the smallest B_p counts; None without any."""
    request, limit = resolved.request, basis.hardware.max_rollouts_per_batch
    fixed = request.fixed
    limits = {"B_p = {:,}": fixed.problems_per_batch, "M = {:,}": fixed.update_steps}
    limits |= {"{:,} rollouts per batch": fixed.rollouts_per_batch, "at most {:,} rollouts per batch": limit}
    octaves = None if request.beyond_grid == "auto" else request.beyond_grid
    limits |= {"{:,} update steps or more": request.min_update_steps}
    limits |= {"no n above those that were run" if octaves == 0 else "n up to {} octaves above those run": octaves}
    asked = [words.format(value) for words, value in limits.items() if value is not None]
    careful = "no n above those that were run" if basis.fits.surface is not None else "the smallest worst-case regret"
    asked += [f"{careful} (conservative)"] * (request.mode == "conservative")
    without, speed = basis.on(basis.hardware.replace(max_rollouts_per_batch=None)), choice.pricing.throughput
    untimed = any(one.constraint == "throughput" for one in choice.setup.rejections)
    if untimed and speed is not None and speed.measured is not None:
        # Other batches at the same rollouts per second.
        without.throughput = speed.replace(measured=None)
    elif not asked:
        return None
    try:
        free = unjudged(
            without, replace(request, fixed=Fixed(), mode="expected", min_update_steps=None, beyond_grid="auto")
        )
    except PlanError:
        return None
    reward, equal = choice.best.reward, basis.fits.tolerances.equal
    if untimed and (free.predicted_reward or 0.0) - (reward or math.inf) > equal:
        asked.append("only batches near those that were timed (others priced at their speed)")
    if not asked:
        return None
    if reward is not None and (free.predicted_reward or 0.0) - reward > equal:
        lower = replace(resolved, limits=replace(resolved.limits, floor=1))
        best = score(lower, enumerate_setups(lower, resolved.sizes())).best
        if (best.reward or 0.0) - reward > equal:
            asked.append(f"B_p of {resolved.limits.floor} or more, as in the runs or their recipe")
    sizes = free.group_size, free.problems_per_batch, free.update_steps
    return Unlimited(tuple(asked), Alternative("without-limits", *sizes, free.predicted_reward))


def _first(
    basis: Basis,
    resolved: Resolved,
    choice: Choice,
    sizes: Sequence[int],
    verdict: Verdict,
    search: Search | None,
    *,
    is_open: bool,
) -> NextRuns | None:
    """What to run before the plan; None where that was not asked for or the fits cannot say."""
    request, fits = resolved.request, resolved.fits
    search = Search(request.slots, request.most, request.ended) if search is None else search
    fixed = request.fixed.update_steps is not None or request.fixed.rollouts_per_batch is not None
    if search.slots == 0 or fixed or fits.method == "paper":
        return None
    chosen, budget = choice.chosen.candidate, resolved.limits.pricing.budget
    if fits.surface is None:
        asked = {name: getattr(request, name) for name in ("n_problems", "min_update_steps")}
        problems = request.fixed.problems_per_batch
        try:
            return pilot(basis, Request.of(request.budget, problems_per_batch=problems, **asked), rng=search.rng).first
        except PlanError:
            # The budget pays for no pilot.
            return None
    assert choice.odds is not None, "a surface has odds"
    odds = _odds_of(choice.odds, chosen.group_size)
    assert odds is not None, "a surface has odds"
    now, reason = (chosen.group_size, chosen.problems_per_batch), verdict.sentence
    if is_open:
        reason = trouble_of(fits, chosen.group_size)
    nothing = NextRuns.none(budget, fits.metric, now, odds.expected_loss, reason)
    if reason and not fits.no_rise:
        return nothing
    problems = {chosen.problems_per_batch}
    if request.fixed.free:
        unstable = () if fits.passport is None else fits.passport.unstable_problems_per_batch
        floor, most = resolved.limits.floor, resolved.limits.n_problems or math.inf
        levels = [b for b in fits.problems_per_batch if floor <= b <= most and b not in unstable]
        problems.add(min(levels, default=floor))
    # Nothing that was not run is planned then, so no run can make it so.
    allowed = fits.group_sizes if request.mode == "conservative" else sizes
    pricing = replace(resolved.limits.pricing, throughput=choice.pricing.throughput)
    question = Question(
        fits=fits,
        limits=replace(resolved.limits, pricing=pricing),
        trials=_of_trials(basis, pricing),
        problems=tuple(sorted(problems)),
        planned_sizes=tuple(sorted({*allowed, chosen.group_size})),
        plan=now,
        cost=choice.pricing.to_pay(chosen.rollouts_per_batch, chosen.update_steps),
        regret=odds.expected_loss,
    )
    if fits.no_rise:
        return longer(question, search) or nothing
    return ask(question, search)
