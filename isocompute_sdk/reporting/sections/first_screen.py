"""The first screen: what to run, what it costs, what to expect, how sure, and what has to be decided."""

from __future__ import annotations

import math

import numpy as np

from isocompute_sdk.errors import IsoComputeError
from isocompute_sdk.fitting.fits import Fits
from isocompute_sdk.phrases import short
from isocompute_sdk.planning import Plan, PlanComparison
from isocompute_sdk.planning.inheritance import assumed
from isocompute_sdk.planning.plan import VERDICTS, assumed_values, learning_rate
from isocompute_sdk.reporting import wording as say
from isocompute_sdk.reporting.material import OPEN, REACH, Material
from isocompute_sdk.reporting.page import Answer, Block, Fact, Missing, Paragraph, Tone

TONES: dict[str, Tone] = {
    "clear": "good",
    "tie": "good",
    "hardly-matters": "good",
    "stop-spending": "good",
    "likely": "caution",
    "measure-first": "stop",
    "undecided": "stop",
    "borrowed": "stop",
}


def answer(material: Material) -> Answer:
    """The answer of a page, from the plan, else from the audit, else why there is none."""
    if material.plan is not None:
        return _of_plan(material, material.plan)
    if material.audit is not None:
        return _of_audit(material)
    return Answer(
        tone="neutral",
        label="No plan",
        sentence=f"There is no plan yet. {_ended(_capital(material.problem or 'nothing was planned'))}",
        sure="",
        decision=material.remedy or f"Run more, then: {material.again()}",
        facts=_facts_of_runs(material),
        more=tuple(_going_on(material)),
    )


def _of_plan(material: Material, plan: Plan) -> Answer:
    verdict = plan.verdict
    outcome = material.comparison
    more = _going_on(material)
    if material.assumed_budget:
        more += _assumed_budget(material, plan)
    if not material.same_options:
        more.append(
            Paragraph(
                "The plan was made with options that its file does not keep: the numbers by budget below hold "
                f"B_p = {plan.problems_per_batch} fixed and leave the other options at their defaults.",
                quiet=True,
            )
        )
    more += _assumed(plan)
    more += _against_today(material, plan)
    if outcome is not None:
        side = "inside" if outcome.inside else "outside"
        return Answer(
            tone="good" if outcome.inside else "caution",
            label="Trained",
            sentence=f"This plan has been trained ({say.configuration(plan)}): measured {outcome.metric} "
            f"{outcome.measured:.3f} at {outcome.rollouts:,.0f} rollouts, {side} the interval predicted for one run "
            f"({outcome.low:.3f} to {outcome.high:.3f}).",
            sure=f"Before it was trained: {_ended(verdict.sentence)}",
            decision=f"Nothing to approve: this run is done. For another budget: {material.again('--budget C')}",
            facts=_facts_of_plan(plan),
            more=tuple(more),
        )
    if plan.fits is not None and plan.fits.flat_runs is not None:
        return Answer(
            tone="caution",
            label="No rise seen",
            sentence=_ended(_capital(verdict.sentence)),
            sure="",
            decision="Find out why rewards do not rise before anything is spent.",
            facts=_facts_of_plan(plan),
            more=tuple(more),
        )
    return Answer(
        tone=TONES.get(verdict.kind, "neutral"),
        label=VERDICTS.get(verdict.kind, verdict.kind),
        sentence=_sentence(plan),
        sure=_ended(_capital(verdict.sentence)),
        decision=_decision(material, plan),
        facts=_facts_of_plan(plan),
        more=tuple(more),
    )


def _going_on(material: Material) -> list[Block]:
    """Says that runs have not ended, so that everything may change."""
    ended, started = material.ended, len(material.folders)
    if ended == started:
        return []
    return [
        Paragraph(f"Preliminary: {ended} of {say.plural(started, 'run')} have ended. The numbers below will change.")
    ]


def _sentence(plan: Plan) -> str:
    expected = ""
    if plan.predicted_reward is not None:
        expected = f"; expect {plan.metric} {plan.predicted_reward:.3f}"
        if plan.reward_interval is not None:
            expected += f" (80 % interval {say.interval(plan.reward_interval)})"
        base = None if plan.fits is None else base_reward(plan.fits)
        expected += "" if base is None else f", up from {base:.3f} untrained"
    what = {
        "measure-first": "Measure first; the best choice so far is to run",
        "undecided": "Not decided yet; the best choice so far is to run",
        "likely": "The best bet is to run",
        "borrowed": "Start from",
    }
    first = what.get(plan.verdict.kind, "Run")
    return f"{first} {say.configuration(plan)}, for {say.costs(plan.costs)}{expected}."


def _decision(material: Material, plan: Plan) -> str:
    verdict, cost = plan.verdict.kind, say.costs(plan.costs, briefly=True)
    if verdict in OPEN:
        return _open_decision(material, plan, cost)
    match verdict:
        case "stop-spending":
            rest = say.amount(plan.budget.available - plan.cost, plan.budget.unit)
            return f"Approve {cost}, and release the other {rest}: they are predicted to add almost nothing."
        case "tie" | "hardly-matters":
            return f"Approve {cost}. Which of the equal n to run is up to whoever knows the machines."
        case _:
            return f"Approve {cost} for this run."


def _open_decision(material: Material, plan: Plan, cost: str) -> str:
    """What to decide where no runs settle n."""
    first, lost = material.next_runs, None if plan.odds is None else plan.odds.expected_loss
    bet = f"accept n = {plan.group_size} as a bet"
    if lost is not None:
        bet += f", which we expect to lose {lost:.3f} of {plan.metric} against the best n"
    if first is not None and first.runs:
        return (
            f"Approve {say.plural(len(first.runs), 'run')} first, {say.amount(first.cost, first.unit)} "
            f"({first.share:.0%} of the budget), expected to save {first.saving:.3f} of {plan.metric} (listed under "
            f"“How sure is this”). Or {bet}."
        )
    if first is not None:
        return f"Approve {cost}: no further run is worth its cost. To do so is to {bet}."
    return f"Approve the runs named above before spending {cost}, or {bet}."


def _facts_of_plan(plan: Plan) -> tuple[Fact, ...]:
    share = plan.cost / plan.budget.amount
    unit = plan.budget.unit
    cost_detail = f"{share:.0%} of the budget of {say.amount(plan.budget.amount, unit)}"
    band = plan.group_size_interval
    facts = [
        Fact(
            "Rollouts per problem",
            f"{plan.group_size}",
            "n" if band is None else f"n, 80 % band {band[0]} to {band[1]}",
        ),
        Fact(
            "Problems per batch", f"{plan.problems_per_batch}", f"B_p; {plan.rollouts_per_batch:,} rollouts per batch"
        ),
        Fact("Update steps", f"{plan.update_steps:,}", "M" if plan.epochs is None else f"M, {plan.epochs:.1f} epochs"),
        Fact("Cost", say.amount(plan.cost, unit), cost_detail),
    ]
    if plan.wall_hours is not None and plan.gpu_hours is not None:
        gpus = f"{say.plural(plan.gpus, 'GPU')}, {say.amount(plan.gpu_hours, 'gpu_hours')}"
        facts.append(Fact("Time", say.amount(plan.wall_hours, "wall_hours"), gpus))
    if plan.usd is not None and unit != "usd":
        facts.append(Fact("Money", say.amount(plan.usd, "usd")))
    detail = "" if plan.reward_interval is None else f"80 % interval {say.interval(plan.reward_interval)}"
    facts.append(Fact(f"Expected {plan.metric}", say.reward(plan.predicted_reward), detail))
    if plan.extrapolation is not None:
        facts.append(Fact("Beyond the runs", f"{plan.extrapolation:.2g} x", "plan's compute over the largest run's"))
    return tuple(facts)


def _assumed(plan: Plan) -> list[Block]:
    """Says which settings neither the runs nor a person gave."""
    named = [text for text in (assumed_values(plan),) if text]
    if any(row.name == "learning_rate" for row in assumed(plan.settings)):
        named.insert(0, f"learning rate {learning_rate(plan)}")
    return [Missing(f"Assumed, since neither the runs nor you gave them: {'; '.join(named)}.")] if named else []


def _assumed_budget(material: Material, plan: Plan) -> list[Block]:
    """Says that the page chose the budget."""
    text = f"No budget was given: this page takes {REACH:g} times the compute of the largest run."
    return [Missing(text, material.again(f"--budget {short(plan.budget.amount)}"))]


def _against_today(material: Material, plan: Plan) -> list[Block]:
    """What the plan gains over what is run today, how likely, and whether that pays for the pilot."""
    if plan.predicted_reward is None or material.planner is None:
        return []
    if material.asked.compare is None:
        return [
            Missing(
                "What it gains over what you run today is not known here: name that configuration.",
                material.again("--compare n=16,bp=32"),
            )
        ]
    try:
        found = compare_with(material, plan, material.asked.compare)
    except IsoComputeError as error:
        return [Missing(f"No comparison with {material.asked.compare}: {_ended(error.message)}")]
    d, unit = found.difference, plan.budget.unit
    text = (
        f"Against what you run today (n = {found.group_size}, B_p = {found.problems_per_batch}, M = "
        f"{found.update_steps:,}) at the same budget: {say.signed(*d)} of {found.metric}"
    )
    text += "." if found.probability is None else f"; ahead with probability {say.chance(found.probability)}."
    saved = found.costs[unit] - found.equal_reward.mean
    if saved > 0 and math.isfinite(saved):
        text += (
            f" The reward of today's configuration costs {say.amount(found.equal_reward.mean, unit)} this way, "
            f"{say.amount(saved, unit)} less."
        )
        pilot = spent_rollouts(material)
        if unit == "rollouts" and pilot:
            pays = "more" if saved > pilot else "less"
            text += f" That is {pays} than the pilot cost ({say.amount(pilot, 'rollouts')})."
    else:
        text += " It saves nothing at equal reward."
    return [Paragraph(text)]


def compare_with(material: Material, plan: Plan, configuration: str) -> PlanComparison:
    """The plan itself, not the best one for its budget, compared with a configuration.

    Raises:
        IsoComputeError: the configuration cannot be predicted or afforded.
    """
    assert material.planner is not None, "checked by the caller"
    options = {name: value for name, value in material.options.items() if name not in ("spend", "beyond_grid")}
    return material.planner.compare(configuration, plan.budget, plan=plan, **options)


def base_reward(fits: Fits) -> float | None:
    """Reward of the untrained model, as the curves have it; None without curves."""
    found = [float(curve.plateau - curve.rise) for curve in fits.curves.values()]
    return float(np.median(found)) if found else None


def spent_rollouts(material: Material) -> float:
    """Rollouts of the runs behind the fits."""
    if material.runs is None:
        return 0.0
    behind = None if material.comparison is None else material.comparison.run_id
    return sum(run.rollouts_spent or run.rollouts for run in material.runs.runs() if run.run_id != behind)


def _of_audit(material: Material) -> Answer:
    audit = material.audit
    assert audit is not None, "checked by the caller"
    told = [group for group in audit.groups if group.sentence]
    largest = max(told, key=lambda group: group.spent, default=None)
    runs = [run for group in audit.groups for run in group.runs]
    behind = sum(run.standing == "behind" for run in runs)
    sentence = f"{behind} of {say.plural(len(runs), 'run')} fell behind the best n that was run"
    if largest is not None and largest.equal_reward is not None:
        cost = largest.equal_reward
        sentence += (
            f"; at that n the same rewards would have cost {short(cost.mean)} ({short(cost.low)} to "
            f"{short(cost.high)}) of {short(largest.spent)} rollouts"
        )
        sentence += f" in group {largest.name}" if len(audit.groups) > 1 else ""
    decision = f"To spend a budget, ask which runs to make first: isocompute next {material.typed} --budget 3M."
    if material.problem:
        decision = f"No budget can be planned from these runs as they are: {_ended(material.problem)} {decision}"
    spent = sum(group.spent for group in audit.groups)
    facts = (
        Fact("Runs", str(len(runs)), say.plural(len(audit.groups), "group")),
        Fact("Spent", short(spent), "rollouts"),
        Fact("Behind the best n", str(behind), "runs"),
        Fact("Cannot be told", str(sum(run.standing == "undecided" for run in runs)), "runs"),
    )
    sure = "" if largest is None else _ended(_capital(largest.sentence))
    return Answer("neutral", "Audit", f"{sentence}.", sure, decision, facts)


def _facts_of_runs(material: Material) -> tuple[Fact, ...]:
    if material.runs is None:
        return ()
    runs = material.runs.runs()
    return (
        Fact("Runs", str(len(runs))),
        Fact("Spent", short(spent_rollouts(material)), "rollouts"),
        Fact("Group sizes", ", ".join(str(n) for n in sorted({run.group_size for run in runs}))),
    )


def _capital(text: str) -> str:
    """A sentence that begins with a capital, unless with the symbol n."""
    return text if text.startswith("n ") else text[:1].upper() + text[1:]


def _ended(text: str) -> str:
    return text if text.endswith((".", "!", "?")) else f"{text}."
