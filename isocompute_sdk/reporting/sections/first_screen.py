"""The first screen: what to run, what it costs, gains and may lose, what was assumed, and whether to approve it."""

from __future__ import annotations

from dataclasses import replace

from isocompute_sdk.campaigns.campaign import PLAN
from isocompute_sdk.campaigns.comparison import Comparison, at_check
from isocompute_sdk.campaigns.overview import check_so_far, in_the_way, to_go_on
from isocompute_sdk.errors import IsoComputeError, shell_form
from isocompute_sdk.fitting.surface.data import Fault
from isocompute_sdk.health.detectors import falls
from isocompute_sdk.health.findings import FALLS, FELL, falls_in
from isocompute_sdk.phrases import counted, duration, joined, listed, multiple, short, small
from isocompute_sdk.planning import Plan
from isocompute_sdk.planning.next_runs import named
from isocompute_sdk.planning.plan import assumed_values, best_sizes, limits, problem_sets, scale_of, to_pay
from isocompute_sdk.planning.plan_parts import Approval, Gain
from isocompute_sdk.planning.pricing import bare, evaluated, samples_per_evaluation
from isocompute_sdk.planning.verdict import CHECK_AT
from isocompute_sdk.reporting import wording as say
from isocompute_sdk.reporting.material import REACH, Material
from isocompute_sdk.reporting.page import Answer, Block, Fact, Items, Missing, Paragraph, Tone
from isocompute_sdk.specs import Budget
from isocompute_sdk.timing.spending import spending
from isocompute_sdk.tolerances import FAR

TONES: dict[str, Tone] = {"approve": "good", "check": "caution", "part": "caution", "do-not": "stop"}
UNKNOWN = "not known"
CAVEATS = ("decline-within-budget", "training-reward-only", "one-seed-per-cell", "batch-not-observed")
"""Codes of the notes that the first screen repeats."""
INTERVALS = (
    "An 80 % interval holds the expected reward of the best checkpoint, averaged over seeds; a single run varies more."
)


def answer(material: Material) -> Answer:
    """The answer of a page, from the plan, else from the audit, else why there is none."""
    if material.plan is not None:
        return _of_plan(material, material.plan)
    if material.audit is not None:
        return _of_audit(material)
    facts: tuple[Fact, ...] = ()
    if material.runs is not None:
        runs = material.runs.runs()
        sizes = ", ".join(str(n) for n in sorted({run.group_size for run in runs}))
        spent = short(sum(run.rollouts_spent or run.rollouts for run in runs))
        facts = (Fact("Runs", str(len(runs))), Fact("Spent", spent, "rollouts"), Fact("Group sizes", sizes))
    return Answer(
        tone="neutral",
        label="No plan",
        sentence=f"There is no plan yet. {say.sentence(material.problem or 'nothing was planned')}",
        decision=material.advice or "Run more, then:",
        command=material.again(*material.mends) if material.mends or not material.remedy else "",
        facts=facts,
        more=(*_in_python(material), *_going_on(material)),
    )


def _in_python(material: Material) -> list[Block]:
    """What to do about runs without a plan for who holds them in memory, where no command can name them."""
    told = material.in_python if material.source is None else ""
    return [Paragraph(f"In Python: {told}")] if told else []


def _of_plan(material: Material, plan: Plan) -> Answer:
    approval, outcome = plan.approval, material.comparison
    if material.flat and outcome is None and approval is not None:
        return _without_rise(material, plan, approval)
    more, passed = _going_on(material), _passed(material, plan)
    if passed and approval is not None:
        # Of what is behind it there is nothing to approve: all numbers are of the whole plan.
        approval = Approval("approve", "", None)
        plan = replace(plan, approval=approval)
    before = "" if outcome is None else "Before it was trained: "
    told = "" if approval is None else approval.reason
    texts = [text for text in (plan.verdict.sentence, plan.verdict.odds) if text not in ("", told)]
    more += [Paragraph(f"{before}{say.sentence(text)}") for text in texts]
    more += [Paragraph(text) for text in [_cheapest(material, plan)] if text and outcome is None]
    more.append(Items("What this rests on", tuple(_rests_on(material, plan))))
    if material.assumed_budget:
        text = f"No budget was given: this page assumes {REACH:g} times the compute of the largest run. To set it:"
        more.append(Missing(text, material.again(f"--budget {short(plan.budget.amount)}")))
    if not material.planned_again:
        text = "This plan was changed by hand or continues runs: the numbers by "
        text += f"budget below hold B_p = {plan.problems_per_batch} fixed, with defaults for every other option."
        more.append(Missing(text))
    today, failed = _against_today(material, plan)
    if failed:
        more.append(failed)
    if outcome is not None:
        campaign, gone = material.campaign, 0.0
        if campaign is not None and campaign.left is not None and campaign.study.budget is not None:
            gone = campaign.study.budget.amount - campaign.left
        again = material.asked_for(plan.budget.with_amount(float(f"{2 * max(plan.budget.amount, gone):.4g}")))
        text = "To plan again with the runs so far, for a larger budget that counts what they have cost:"
        more.append(Missing(text, material.again(again)))
        side = "inside" if outcome.inside else "outside"
        more += _of_its_approval(material, plan, outcome)
        return Answer(
            tone="good" if outcome.inside else "caution",
            label="Trained",
            sentence=f"This plan has been trained: measured {outcome.metric} {outcome.measured:.3f}, {side} the 80 % "
            f"interval of one run ({outcome.low:.3f} to {outcome.high:.3f}).",
            decision="Nothing to approve.",
            facts=(*_came_out(material, outcome), *today, *_spent(material, plan)),
            more=tuple(more),
        )
    if material.asked.compare is None and plan.gain is not None:
        text, best = "This page compares with the best run so far", plan.gain.best
        if (best.group_size, best.problems_per_batch) == (plan.group_size, plan.problems_per_batch):
            text += ", which has the n and B_p of the plan"
        text += ". To compare with what you run today, with your n and B_p:"
        more.append(Missing(text, material.again("--against n=N,bp=BP")))
    tone = "neutral" if approval is None else TONES[approval.kind]
    decision, command = ("", "") if approval is None else _decision(material, plan, approval)
    sentence = f"{'Run' if tone in ('good', 'caution') else 'The plan would be'} {say.configuration(plan)}."
    if passed:
        tone, decision, command = "neutral", f"Nothing to approve before it ends. {say.sentence(passed)}", ""
        sentence = f"The campaign trains {say.configuration(plan)}."
    facts = [*_cost(material, plan), *_expected(plan), *_limited(plan), *_gained(plan), *today, *_lost(plan)]
    first = plan.next_runs
    if approval is not None and approval.kind == "do-not" and first is not None and first.runs:
        runs, them = ("these runs", "them") if first.runs[1:] else ("this run", "it")
        sentence = f"First run {named(first.runs, plan.problems_per_batch)}, then plan again with {them}."
        facts = [
            Fact(f"Cost of {runs}", say.amount(first.cost, first.unit), f"{100 * first.share:.1f} % of the budget"),
            Fact(
                f"The plan without {them}",
                f"n = {plan.group_size}",
                f"B_p = {plan.problems_per_batch}, M = {plan.update_steps:,}; everything below is about that plan",
            ),
            *facts,
        ]
    return Answer(
        tone=tone,
        label="In training" if passed else "Changed by hand, not judged" if approval is None else approval.label,
        sentence=sentence,
        decision=decision,
        command=command,
        facts=tuple(facts),
        rule=() if approval is None or passed else _rule(plan, approval),
        more=tuple(more),
    )


def _of_its_approval(material: Material, plan: Plan, outcome: Comparison) -> list[Block]:
    """What a trained plan measured at the step of its approval, or that it had none."""
    if plan.approval is not None and plan.approval.kind == "do-not":
        return [Paragraph(f"Before it was trained its approval was refused: {plan.approval.reason}.")]
    checked = "" if material.runs is None else at_check(plan, outcome.run_id, material.runs)
    return [Paragraph(say.sentence(checked))] if checked else []


def _passed(material: Material, plan: Plan) -> str:
    """What the run of a campaign's plan measured at the step up to which it was approved; empty before that."""
    campaign, runs = material.campaign, material.runs
    if (
        campaign is None
        or campaign.done
        or runs is None
        or material.comparison is not None
        or not material.planned_again
    ):
        return ""
    return check_so_far(campaign, plan, runs)


def _without_rise(material: Material, plan: Plan, approval: Approval) -> Answer:
    """The answer where no run's reward rises: its runs go on, or the reward is to be tested."""
    first, reason, command = plan.next_runs, say.sentence(plan.verdict.sentence), ""
    sentence = "No run's reward rises beyond noise, so there is no plan to train."
    if first is not None and first.runs:
        sentence = say.sentence(first.reason)
    else:
        command = say.reward_test(plan, material.study)
        reason += " To test the reward and how hard the problems are for the model:" if command else ""
    return Answer(TONES[approval.kind], approval.label, sentence, reason, (), command, more=tuple(_going_on(material)))


def _rule(plan: Plan, approval: Approval) -> tuple[tuple[str, str], ...]:
    """Each decision about a plan, and when it is taken; docs/report.md says the same."""
    rows = {
        "do-not": (
            "Do not approve",
            "if one of these holds: a run should come first; no reward rises; at least half of the runs at its B_p "
            "collapsed; at least half of those at its n need another recipe; the plan, or almost surely its last half, "
            f"gains under {plan.tolerances.small:.3g}; n is undecided and, because M or the batch is fixed, no "
            "pilot run could be considered",
        ),
        "check": (
            "Approve with a check",
            f"if the plan costs more than {CHECK_AT:g} x the largest run at its n: stop if the named evaluation is "
            "below the value given there (one sound run in ten falls below it by chance)",
        ),
        "part": (
            "Approve up to a step",
            "if the threshold of that check would lie below the best run, or the plan costs more than "
            f"{FAR:g} x the largest run at any n, or goes beyond where a run of its n fell, or nothing was run at its "
            "n or within an octave of its B_p (then at most half of the plan); it is a test if no gain is expected "
            "by then",
        ),
        "approve": ("Approve", "otherwise"),
    }
    return tuple(
        (f"{name} (this plan)" if kind == approval.kind else name, when) for kind, (name, when) in rows.items()
    )


def _came_out(material: Material, outcome: Comparison) -> list[Fact]:
    """What the trained plan measured against its prediction, and above the best run before it."""
    where = f"at its last evaluation, {short(outcome.rollouts)} rollouts; "
    where += f"{say.difference(outcome.measured, outcome.predicted)} against the {outcome.predicted:.3f} predicted"
    after, fits = material.runs, material.fits
    if after is None or fits is None or fits.table is None:
        return [Fact(f"Measured {outcome.metric}", f"{outcome.measured:.3f}", where)]
    own = outcome.series(after, fits.eval_set)
    if (highest := float(own.value_T.max())) > outcome.measured:
        where += f"; its highest evaluation is {highest:.3f}"
    before = fits.table.series(outcome.metric, fits.eval_set)
    best = max(before, key=lambda one: float(one.value_T[-1]))
    measured = float(best.value_T[-1])
    run = f"{measured:.3f} by n = {best.group_size} at {short(float(best.rollouts_T[-1]))}"
    run += "; the last evaluation of one run each"
    if material.refit is not None:
        # One evaluation is noisy: the curves of all runs say what it stands for.
        fitted = [
            float(material.refit.predict(one.rollouts_T[-1], one.group_size, one.problems_per_batch, kind="at").mean)
            for one in (own, best)
        ]
        where += f"; the fit of all runs says {fitted[0]:.3f} for the average of such runs"
        run += f"; between such averages {say.difference(*fitted)}"
    return [
        Fact(f"Measured {outcome.metric}", f"{outcome.measured:.3f}", where),
        Fact("Gain over the best run before it", say.difference(outcome.measured, measured), run),
    ]


def _spent(material: Material, plan: Plan) -> list[Fact]:
    """What all runs have cost, evaluations apart; the planned cost where the runs did not record it."""
    spent = spending(material.folders)
    if not spent.rollouts:
        return [fact for fact in _cost(material, plan) if fact.value != UNKNOWN]
    of_plan = None if material.campaign is None else material.campaign.kinds["plan"].rollouts
    detail = f"{of_plan or plan.rollouts:,.0f} by the plan; evaluations on top: {spent.evaluation_rollouts:,.0f}"
    facts = [Fact("Spent", f"{spent.rollouts:,.0f} rollouts", detail)]
    seconds, unit, campaign = 3600 * spent.hours, plan.budget.unit, material.campaign
    if unit != "rollouts" and campaign is not None and (own := campaign.study.budget) is not None:
        paid = own.committed + sum(getattr(cost, unit) or 0.0 for cost in campaign.kinds.values())
        facts = [Fact("Paid", say.amount(paid, unit), f"of {say.amount(own.amount, unit)}{_before(own)}"), *facts]
    # Simulated runs log next to none.
    if seconds < 0.5:
        return facts
    lost = 3600 * spent.lost_hours
    idle = f"; {duration(lost)} lost or idle between starts" if lost >= 0.5 else ""
    return [*facts, Fact("Time", duration(seconds - lost), f"of all runs together{idle}")]


def _before(budget: Budget) -> str:
    """What was spent beside the runs of a study, by what its file says."""
    return f", {say.amount(budget.committed, budget.unit)} of that on {budget.purposes}" if budget.spent else ""


def _going_on(material: Material) -> list[Block]:
    """Says that runs have not ended, so that everything may change."""
    ended, started, blocks = material.ended, len(material.folders), list[Block]()
    campaign = material.campaign
    fixed = campaign is not None and material.plan is not None and (campaign.folder / PLAN).exists()
    if ended < started and not fixed:
        text = f"Preliminary: {ended} of {counted(started, 'run')} have ended. The numbers below will change."
        blocks.append(Paragraph(text))
    if campaign is not None and not campaign.done:
        budget, stop, command = campaign.study.budget, in_the_way(campaign), material.resuming
        assert budget is not None, "a campaign has one"
        text = "The campaign is under way" if stop is None else "The campaign has stopped"
        if campaign.left is not None and (spent := budget.amount - campaign.left):
            whole = say.amount(budget.amount, budget.unit)
            text += f"; {bare(spent, budget.unit)} of {whole} are spent{_before(budget)}"
            if since := material.spent_since:
                text += f", {bare(since, budget.unit)} of that since the plan was made"
        if campaign.first:
            text += f". {say.sentence(campaign.first)[:-1]}"
        if campaign.speed:
            text += f". {say.sentence(campaign.speed)[:-1]}"
        if material.comparison is not None:
            text += ". The run of its plan has ended, and its next start fits it with the others"
        elif (plan := material.plan) is not None and stop is None and not (plan.fits is not None and plan.fits.no_rise):
            text += ". It trains the whole plan: it waits for no approval and stops at no check"
        if campaign.controller is None:
            other, how = material.asked.budget, "to go on"
            if other is not None and other.in_place_of(budget).replace(spent=None) != budget.replace(spent=None):
                how = f"this page asks about {other.replace(spent=None)}: change the budget in its study first; then"
            if stop is not None:
                why = "" if stop.message in material.problem else f": {stop.message}. {stop.shell_hint}".rstrip(".")
                text, how = f"{text}. Its next start stops{why or ' for the reason above'}", "once the study is changed"
            text += f". No process controls it; {how}: {'' if command else to_go_on(campaign.folder)}"
        blocks.append(Missing(text.strip() if command else f"{text}.", command))
    return blocks


def _decision(material: Material, plan: Plan, approval: Approval) -> tuple[str, str]:
    """What is asked of whoever decides, and why; and the command for what to ask instead."""
    command = ""
    text = f"{say.sentence(approval.reason)} "
    if plan.approved_cost:
        text += f"Approved: {plan.approved_cost}. "
    if approval.finding:
        chance = "" if approval.lowest is None else "One run in ten is that low by chance. "
        text += f"{say.sentence(approval.finding)} {chance}"
    elif approval.kind == "do-not" and plan.runs_first:
        if material.campaign is None or material.campaign.done:
            text, command = f"{text}To write the scripts{_of_runs(material.first)}:", material.first
        else:
            # It may choose further runs beside them.
            makes = "decides again before it makes" if material.campaign.first else "makes"
            text, command = f"{text}The campaign {makes} such runs itself.", material.resuming
            text += " To go on:" if command else ""
    elif approval.kind == "do-not" and (command := material.going_on):
        text += f"Next, check {say.whether_to_go_on(plan)}{_of_runs(command)}:"
    elif approval.kind == "do-not" and (other := say.instead(plan, campaign=bool(material.campaign))) is not None:
        what, option = other
        command = material.instead(option)
        text += f"Next, ask {what}{_of_runs(command)}:"
    elif approval.kind != "do-not" and plan.stopping is not None and not material.assumed_budget:
        rest = say.amount(plan.budget.available - plan.to_pay(plan.budget.unit), plan.budget.unit)
        text += f"Do not spend the other {rest}: the predicted gain is {small(plan.stopping.gain)}. "
    if approval.kind != "do-not" and (command := material.going_on):
        text += f"Or check {say.whether_to_go_on(plan)} instead{_of_runs(command)}:"
    return text.strip(), command


def _of_runs(command: str) -> str:
    """What RUNS stands for, in a command that names them so."""
    return " (RUNS: what this plan was made from, with its options)" if " RUNS " in command else ""


def _cost(material: Material, plan: Plan) -> list[Fact]:
    """Cost in the budget's unit, dollars and hours; the number that is missing where they are not known."""
    unit, asked = plan.budget.unit, plan.evaluation
    # Of a run that it goes on with, only what is still to be paid counts.
    done = plan.past.get("rollouts", 0.0) / plan.rollouts_per_batch
    number = sum(step > done or not done for step in asked.steps(plan.approved_steps))
    evaluations = f"{counted(number, 'evaluation')} of {evaluated(asked)}"
    evaluations += " (assumed: --evaluation)" * (plan.asked_evaluation is None)
    if unit in ("rollouts", "tokens"):
        added = say.amount(number * samples_per_evaluation(asked), "rollouts")
        evaluations = (
            f"plus {evaluations}: {added}{'' if plan.wall_hours is None else ' (time and dollars include them)'}"
        )
    else:
        evaluations += " included"
    left = " left" if plan.budget.spent else ""
    left += " when it was made" if left and material.spent_since else ""
    whole = say.amount(plan.budget.committed, unit)
    spent = f" ({whole} spent{' by then' if material.spent_since else ''})" if plan.past else ""
    share = f"{plan.to_pay(unit) / plan.budget.available * 100:.1f} % of {say.amount(plan.budget.available, unit)}"
    part, until, other, costs = plan.approved_costs, "", "", plan.costs
    if plan.approved_cost:
        until, other = f" up to step {plan.approved_steps:,}", "the whole plan: "
    elif plan.approval is not None and plan.approval.kind == "check" and plan.approval.step:
        other, costs = "up to the check: ", plan.costs_after(plan.approval.step)
    part, costs = (
        {name: max(cost - plan.past.get(name, 0.0), 0.0) for name, cost in one.items()} for one in (part, costs)
    )
    what = f"{until}, still to pay" if plan.past else until
    beside = {name: f"{other}{say.amount(cost, name)}; " if other else "" for name, cost in costs.items()}
    paid = [f"{share}{left}{spent}", evaluations, beside[unit].removesuffix("; ")]
    if material.assumed_budget:
        del paid[0]
    elif until:
        paid = [evaluations, f"{other}{to_pay(plan)}{left}{spent}"]
    facts = [Fact(f"Cost{what}", say.amount(part[unit], unit), "; ".join(filter(None, paid)))]
    if plan.wall_hours is None:
        return [*facts, Fact("Time and dollars", UNKNOWN, _untimed(material, plan))]
    timed = plan.throughput
    assert timed is not None, "it gives the hours"
    if timed.gpus is None:
        gpus = "on as many GPUs as the runs had" if timed.measured is not None else "on the GPUs of the given speed"
    else:
        gpus = f"{counted(timed.gpus, 'GPU')}, {say.amount(part['gpu_hours'], 'gpu_hours')}"
    gpus += f"; {beside['wall_hours']}".removesuffix("; ")
    if plan.budget.deadline_hours is not None:
        gpus += f"; the deadline is {say.amount(plan.budget.deadline_hours, 'wall_hours')} after planning"
    facts.append(Fact(f"Time{what}", say.amount(part["wall_hours"], "wall_hours"), gpus))
    if plan.usd is None:
        missing = ["a price: --usd-per-gpu-hour"] * (timed.usd_per_gpu_hour is None) + ["--gpus"] * (timed.gpus is None)
        return [*facts, Fact("Dollars", UNKNOWN, f"add {joined(missing)}")]
    paid = Fact(f"Dollars{what}", say.amount(part["usd"], "usd"), beside["usd"].removesuffix("; "))
    return facts if unit == "usd" else [*facts, paid]


def _untimed(material: Material, plan: Plan) -> str:
    """Why the hours of a plan are unknown, or what would say them."""
    speed = plan.throughput
    if speed is not None and (unknown := speed.refusal(plan.rollouts_per_batch)) is not None:
        return unknown
    missing = ["--rollouts-per-second"]
    if material.planner is not None:
        try:
            material.planner.pricing(Budget(rollouts=plan.rollouts, deadline_hours=1, gpus=plan.budget.gpus))
        except IsoComputeError as error:
            missing = [option.partition(" ")[0] for option in error.options] or missing
    counted_gpus = plan.gpus is not None or not {"--gpus", "--gpu-exponent"}.isdisjoint(missing)
    given = None if material.planner is None else material.planner.throughput
    priced = any(one is not None and one.usd_per_gpu_hour is not None for one in (speed, given))
    money = ["--gpus"] * (not counted_gpus) + ["--usd-per-gpu-hour"] * (not priced)
    return f"add {joined(missing)}{f'; for dollars {joined(money)}' if money else ''}"


def _limited(plan: Plan) -> list[Fact]:
    """What the limits that were asked for cost."""
    if plan.unlimited is None:
        return []
    asked, costs, instead = limits(plan, plan.unlimited)
    return [Fact("Your limits", costs, f"{asked}; without: {instead}")]


def _expected(plan: Plan) -> list[Fact]:
    if plan.fits is not None and plan.fits.no_rise:
        return []
    label, reward = f"Expected {plan.metric}{scale_of(plan)}", say.reward(plan.predicted_reward)
    interval = "" if plan.reward_interval is None else f"80 % interval {say.interval(plan.reward_interval)}"
    at = f"{label} at step {plan.approved_steps:,}"
    if (part := _of_part(plan)) is None:
        if plan.approved_cost and plan.approval is not None and plan.approval.expected is not None:
            return [Fact(at, say.reward(plan.approval.expected), f"the whole plan: {reward}")]
        return [Fact(label, reward, interval)]
    ends = part.interval and say.interval((part.best.reward + part.interval[0], part.best.reward + part.interval[1]))
    detail = f"{f'80 % interval {ends}; ' if ends else ''}the whole plan: {reward}"
    return [Fact(at, say.reward(part.best.reward + part.gain), detail)]


def _of_part(plan: Plan) -> Gain | None:
    """What the part gains where an approval ends before the plan; None where it does not, and without runs."""
    return plan.approval.gain if plan.approval is not None and plan.approved_cost else None


def _gained(plan: Plan) -> list[Fact]:
    """Gain over the best run so far: of the part where a part is approved."""
    gain = _of_part(plan) or plan.gain
    if gain is None or plan.gain is None or plan.predicted_reward is None:
        return []
    best, label, beating = gain.best, "Gain over the best run so far", "Probability of beating that run"
    reward, whole = best.reward + gain.gain, say.difference(plan.predicted_reward, best.reward)
    interval = gain.interval and [say.difference(best.reward + end, best.reward) for end in gain.interval]
    detail = f"80 % {' to '.join(interval)}; " if interval else ""
    detail += f"{reward:.3f} predicted, minus {best}"
    by = "by the average over runs"
    if gain is not plan.gain:
        detail, label, beating = (
            f"{detail}; the whole plan: {whole}",
            f"{label}, at step {plan.approved_steps:,}",
            f"{beating} by then",
        )
        by += "" if plan.gain.probability is None else f"; with the whole plan {say.chance(plan.gain.probability)}"
    facts = [Fact(label, say.difference(reward, best.reward), detail)]
    if gain.probability is not None:
        facts.append(Fact(beating, say.chance(gain.probability), by))
    return facts


def _against_today(material: Material, plan: Plan) -> tuple[list[Fact], Missing | None]:
    """Gain over the configuration that --against names, at the same budget or with its own M; why there is none.

    Where a part is to be approved, its gain at its own cost stands before that of the whole plan.
    """
    named, part = material.asked.compare, _of_part(plan) is not None and material.comparison is None
    if plan.predicted_reward is None or material.planner is None or named is None:
        return [], None
    options = {name: value for name, value in material.options.items() if name not in ("spend", "beyond_grid")}
    try:
        found = whole = material.planner.compare(named, plan=plan, **options)
        if part:
            unit, own = plan.budget.unit, (plan.group_size, plan.problems_per_batch, plan.approved_steps)
            paid = plan.approved_costs[unit] - plan.past.get(unit, 0.0)
            budget = plan.budget.with_amount(plan.budget.committed + paid)
            found = material.planner.compare(named, budget, reference=own, **options)
    except IsoComputeError as error:
        return [], Missing(f"No comparison with {named}: {say.sentence(error.message)}")
    label = f"Gain over today's n = {found.group_size}, B_p = {found.problems_per_batch}"
    label += f", at step {plan.approved_steps:,}" if part else ""
    label += "" if material.comparison is None else ", as predicted"
    if found.identical:
        return [Fact(label, "none", "today's configuration is the plan")], None
    d, theirs, reward = found.difference, found.configuration_reward.mean, found.plan.predicted_reward or 0.0
    shared = f"at the same {'cost' if part else 'budget'}"
    if found.equal == "nothing":
        shared = f"({say.amount(found.costs[found.unit], found.unit)})"
    what = f"M = {found.update_steps:,} {shared}, predicted {theirs:.3f}"
    what += f"; {found.outside}" if found.outside else ""
    if part:
        what += f"; the whole plan: {say.difference(plan.predicted_reward, whole.configuration_reward.mean)}"
    interval = f"80 % {say.ends((d.low, d.high))}; " if found.probability is not None else ""
    facts, beating, by = [Fact(label, say.difference(reward, theirs), f"{interval}{what}")], "", ""
    if found.probability is not None and whole.probability is not None:
        if part:
            beating, by = " by then", f"with the whole plan {say.chance(whole.probability)}"
        facts.append(Fact(f"Probability of beating today's{beating}", say.chance(found.probability), by))
    return facts, None


def _lost(plan: Plan) -> list[Fact]:
    """What is lost if n is wrong."""
    if plan.fits is not None and plan.fits.only_size:
        return [Fact("Lost if n is wrong", UNKNOWN, plan.fits.only_size)]
    if plan.odds is None:
        first, sizes = plan.next_runs, best_sizes(plan)
        detail = "with 80 % probability"
        if first is not None:
            detail += f"; whichever n you take, we expect to lose at least {first.regret_now:.3f} of reward"
        return [Fact("Best n", sizes, detail)] if sizes else []
    loss, wrong = plan.odds.expected_loss, 1.0 - plan.odds.probability_best
    if round(loss, 3) == 0.0:
        return [Fact("Lost if n is wrong", small(loss), "expected, against the best n")]
    return [
        Fact(
            "Lost if n is wrong",
            small(loss / wrong),
            f"on average, if another n is best (probability {say.chance(wrong)}); {small(loss)} over all cases",
        )
    ]


def _cheapest(material: Material, plan: Plan) -> str:
    """Which of the n that are about equal costs least, where that is not the plan's; empty where prices are unknown."""
    unit = next((unit for unit in ("usd", "gpu_hours") if unit in plan.costs), "")
    same = [one for one in plan.alternatives if one.kind == "near-tie"]
    found = material.costs(plan, same)
    costs = {one.group_size: cost[unit] for one, cost in zip(same, found, strict=False) if unit in cost}
    if not costs:
        return ""
    n, cost = min(costs.items(), key=lambda one: one[1])
    if cost >= plan.costs[unit]:
        return ""
    least, here = say.amount(cost, unit), say.amount(plan.costs[unit], unit)
    return f"Of the n that are about equal, n = {n} costs least for the whole budget: {least}; the plan costs {here}."


def _fallen(material: Material, plan: Plan) -> dict[str, Fault]:
    """How runs fell, by run id: those behind the plan, and the one that was trained."""
    found: dict[str, Fault] = {run: fault for run, (fault, _) in falls_in(plan.notes).items()}
    if material.comparison is None or material.runs is None:
        return found
    trained = falls(material.runs, plan.metric, material.eval_set)
    return {**found, **{run: FALLS[finding.code] for run, finding in trained.items()}}


def _rests_on(material: Material, plan: Plan) -> list[str]:
    """What was assumed, and how far the runs reach."""
    texts, faults = list[str](), _fallen(material, plan)
    for fault, fell in FELL.items():
        if fallen := [run for run, its in faults.items() if its == fault]:
            which = f"{counted(len(fallen), 'run')} {fell} ({listed(fallen, 3)})"
            texts.append(f"{which}: only rewards up to the best checkpoint count.")
    texts += [note.message for note in plan.notes if note.code in CAVEATS]
    if plan.extrapolation is not None:
        largest = short(plan.compute / plan.extrapolation)
        unit = "tokens" if plan.fits is not None and plan.fits.compute == "log10_tokens" else "rollouts"
        further = f"; the plan takes {multiple(plan.extrapolation)} x as much" if plan.extrapolation > 1 else ""
        if material.comparison is None:
            texts.append(f"No run went beyond {largest} {unit}{further}.")
    settings = [text for text in (assumed_values(plan),) if text]
    if "learning_rate" in plan.assumed:
        rate = f"learning_rate = {plan.learning_rate:.3g} (give yours with --recipe-value learning_rate=RATE)"
        settings.insert(0, rate)
    settings += [f"{what} (otherwise: {shell_form(remedy)})" for what, remedy in plan.assumed_of_time]
    if sets := problem_sets(plan):
        texts.append(f"For {shell_form(sets)}.")
    if settings:
        texts.append(f"Assumed, since neither the runs nor you gave them: {', '.join(settings)}.")
    if plan.fits is not None and plan.verdict.kind != "borrowed" and len(plan.fits.group_sizes) > 1:
        ends = dict(zip(plan.fits.group_size_range, ("smaller", "larger"), strict=True))
        if plan.group_size in ends:
            texts.append(f"No {ends[plan.group_size]} n than {plan.group_size} was run.")
    if plan.reward_interval is not None:
        texts.append(INTERVALS)
    return texts


def _of_audit(material: Material) -> Answer:
    audit = material.audit
    assert audit is not None, "checked by the caller"
    largest = max((group for group in audit.groups if group.sentence), key=lambda group: group.spent, default=None)
    runs = [run for group in audit.groups for run in group.runs]
    behind = sum(run.standing == "behind" for run in runs)
    sentence = f"Behind the best n that was run: {behind} of {counted(len(runs), 'run')}"
    if largest is not None and largest.equal_reward is not None:
        cost = largest.equal_reward
        ends = short(cost.low), short(cost.high)
        known = "" if ends == (short(cost.mean),) * 2 else f" ({' to '.join(ends)})"
        sentence += (
            f"; at that n the same rewards would have cost {short(cost.mean)}{known} of {short(largest.spent)} rollouts"
        )
        sentence += f" in group {largest.name}" if len(audit.groups) > 1 else ""
    decision, asked = "To spend a budget, ask which runs to make first:", material.asked.budget
    budget = f"--budget {short(audit.next_budget or 3e6)}" if asked is None else say.budget_option(asked)
    command = material.asking(budget, *material.mends, command="next")
    if material.problem:
        told = f"No budget can be planned from these runs as they are: {say.sentence(material.problem)}"
        decision, command = (f"{told} {decision}", command) if material.mends else (f"{told} {material.advice}", "")
    facts = (
        Fact("Runs", str(len(runs)), counted(len(audit.groups), "group")),
        Fact("Spent", short(sum(group.spent for group in audit.groups)), "rollouts, up to the last evaluations"),
        Fact("Behind the best n", counted(behind, "run")),
        Fact("Undecided", counted(sum(run.standing == "undecided" for run in runs), "run")),
    )
    told = [] if largest is None else [largest.sentence, largest.verdict.odds if largest.verdict else ""]
    more = (*_in_python(material), *(Paragraph(say.sentence(text)) for text in told if text))
    return Answer("neutral", "Audit", f"{sentence}.", decision, facts, command, more=more)
