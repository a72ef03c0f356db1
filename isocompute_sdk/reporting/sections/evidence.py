"""What an answer rests on: the curves and every other n, how sure they are, what to run first, and the notes."""

from __future__ import annotations

from typing import Any

from isocompute_sdk import plots
from isocompute_sdk.auditing.result import COLUMNS
from isocompute_sdk.notes import unique
from isocompute_sdk.planning import Plan
from isocompute_sdk.planning.plan import ALTERNATIVES
from isocompute_sdk.planning.pricing import bare
from isocompute_sdk.records import RunSeries
from isocompute_sdk.reporting import wording as say
from isocompute_sdk.reporting.drawing.pictures import panel, picture
from isocompute_sdk.reporting.material import Material
from isocompute_sdk.reporting.page import Block, Missing, Notes, Paragraph, Picture, Section, Table

OF_GAIN = "Against the plan (share of the gain)"
"""Column of plans without rewards: what an n is expected to win more or less, as a share."""


def why(material: Material) -> Section:
    """Reward curves with their points and the plan, and every n at this budget."""
    fits, plan, audit = material.fits, material.plan, material.audit
    blocks: list[Block] = []
    if fits is not None and fits.curves:
        trained = _trained(material)
        text = (
            "Points are evaluations, lines the fitted curves (dashed beyond their runs), the thick line their frontier"
        )
        if material.flat:
            text = "Points are evaluations, lines their means"
        text += "." if trained is None else ", the thin line the run that was trained."
        source = fits if plan is None or plan.fits is None or material.flat else plan
        drawn = plots.reward_curves(source, trained=trained, ax=panel())
        blocks.append(picture("curves", drawn, text))
    elif audit is not None:
        fitted = [group for group in audit.groups if group.fits is not None]
        blocks += [picture(f"audit-{one.name}", plots.audit_runs(one, audit.metric, ax=panel())) for one in fitted]
        blocks += _groups(material)
    if plan is not None and plan.alternatives:
        blocks.append(_every_n(material, plan))
    if not blocks:
        if fits is None and (material.runs is not None or material.study is not None):
            blocks.append(Missing("There are no reward curves here: these runs were not fitted."))
        else:
            text = "There are no reward curves here: published laws have none, and a saved audit keeps none."
            blocks.append(Missing(text, material.with_runs))
    what = "every run" if plan is None and audit is not None else "every other n"
    curves = "the reward curves, and " if any(isinstance(block, Picture) for block in blocks) else ""
    return Section("why", f"Why: {curves}{what}", tuple(blocks))


def _trained(material: Material) -> RunSeries | None:
    """The run that carried the plan out, where rollouts are the axis of the picture."""
    outcome, runs, fits = material.comparison, material.runs, material.fits
    if outcome is None or runs is None or fits is None or fits.compute != "log10_rollouts":
        return None
    return outcome.series(runs, fits.eval_set)


def _every_n(material: Material, plan: Plan) -> Table:
    """Each n at the same budget with its reward and odds; the plan's too, where the plan stops early."""
    mark, stops = "the plan", plan.update_steps
    if plan.stopping is not None and material.planner is not None:
        options: dict[str, Any] = {**material.options, "spend": "all"}
        plan = material.planner.allocate(plan.budget, slots=0, **options)
        mark = f"the plan, which stops at M = {stops:,}"
    every = sorted([plan, *plan.alternatives], key=lambda one: one.group_size)
    whole = plan.odds is not None and not (plan.fits is not None and plan.fits.only_size)
    rewards = plan.predicted_reward is not None
    header = ["n", "B_p", "M", *([f"Expected {plan.metric}", "Against the plan"] if rewards else [OF_GAIN])]
    header += ["Best with probability", f"Within {plan.tolerances.equal:g} of the best", "Expected loss"] * whole
    costs = material.costs(plan, every)
    named = {"GPU-hours": "gpu_hours", "Dollars": "usd"}
    units = {name: unit for name, unit in named.items() if any(unit in cost for cost in costs)}
    header += [*units, ""]
    rows: list[tuple[str, ...]] = []
    for i, one in enumerate(every):
        row = [f"n = {one.group_size}", str(one.problems_per_batch), f"{one.update_steps:,}"]
        row += ["" if one.predicted_reward is None else say.reward(one.predicted_reward)] * rewards
        if isinstance(one, Plan):
            row.append("")
        elif one.predicted_reward is not None and plan.predicted_reward is not None:
            row.append(say.difference(one.predicted_reward, plan.predicted_reward))
        else:
            row.append("" if one.expected_loss is None else say.signed(-one.expected_loss))
        if whole:
            odds = one.odds
            shown = () if odds is None else (say.chance(odds.probability_best), say.chance(odds.near_best))
            row += ["", "", ""] if odds is None else [*shown, say.reward(odds.expected_loss)]
        row += [bare(costs[i][unit], unit) if unit in costs[i] else "unknown" for unit in units.values()]
        row.append(mark if isinstance(one, Plan) else "" if one.kind == "other" else ALTERNATIVES[one.kind])
        rows.append(tuple(row))
    return Table(
        tuple(header), tuple(rows), "Every n at the same budget", every.index(plan), text_columns=(0, len(header) - 1)
    )


def _groups(material: Material) -> list[Block]:
    """Groups of an audit, each with its findings and runs."""
    audit, blocks = material.audit, list[Block]()
    assert audit is not None, "checked by the caller"
    names = (*COLUMNS[:-1], "standing")
    for group in audit.groups:
        blocks.append(Paragraph(f"{audit.title(group)}. {' '.join(group.findings())}"))
        rows = tuple(run.row() for run in group.runs)
        if rows:
            blocks.append(Table(names, rows, f"Runs of group {group.name}", text_columns=(0, 7)))
    return [*blocks, Paragraph(" ".join(audit.closing()), quiet=True)]


def how_sure(material: Material) -> Section:
    """The backtest, what to run first, and every note."""
    fits, plan, audit = material.fits, material.plan, material.audit
    known = None if fits is None else fits.passport
    trained = material.comparison is not None
    blocks: list[Block] = [Paragraph("All of this was known before the plan was trained.", quiet=True)] * trained
    blocks += [] if plan is None or material.flat or trained else _first(plan)
    if material.flat:
        blocks.append(Missing("No run's reward rises beyond noise, so there is no prediction to test."))
    elif fits is None or known is None:
        # An audit says itself what it tested.
        blocks += [Missing("None of this was tested on your own runs.", material.with_runs)] * (audit is None)
    elif known.backtest is None:
        blocks.append(
            Missing("No backtest: hiding the end of these runs leaves too few evaluations. Evaluate more often.")
        )
    else:
        text = " ".join(f"{line[0].upper()}{line[1:]}." for line in known.lines()[:2])
        caption = "A row for each run: a mark on the bar means that the prediction was right."
        blocks += [Paragraph(text), picture("backtest", plots.backtest(fits, ax=panel()), caption)]
    notes = [*(() if fits is None else fits.notes)] if plan is None or material.flat else [*plan.notes]
    if material.flat:
        notes = [note for note in notes if note.code not in say.OF_CURVES]
    if plan is None or "update_steps" not in plan.binding:
        notes = [note for note in notes if not say.about_unused_law(note, fits)]
    if audit is not None:
        notes += [*audit.notes, *(note for group in audit.groups for note in group.notes)]
    if notes:
        blocks.append(Notes(unique(notes)))
    return Section("sure", "How sure is this", tuple(blocks))


def _first(plan: Plan) -> list[Block]:
    """The runs that would settle n, with what each costs and saves."""
    first = plan.next_runs
    if first is None:
        return []
    what = "" if first.runs else "nothing. "
    # The first screen has said the verdict.
    why = "" if first.reason == plan.verdict.sentence else say.sentence(first.reason)
    reason = Paragraph(f"What to run first: {what}{why}".strip())
    rows = tuple(
        (
            f"continue {run.continues}" if run.continues else "new run",
            str(run.group_size),
            str(run.problems_per_batch),
            f"{run.update_steps:,}",
            say.amount(run.cost, first.unit),
            f"{run.share * 100:.1f} %",
            run.gain or "with the others",
            run.settles,
        )
        for run in first.runs
    )
    header = ("Run", "n", "B_p", "M at its end", "Cost", "Of the budget", "Expected to save", "Settles")
    return [reason, Table(header, rows, "Before the budget is spent", text_columns=(0, 7))] if rows else [reason]
