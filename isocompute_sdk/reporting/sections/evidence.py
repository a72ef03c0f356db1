"""Sections on what an answer rests on: the curves, how sure they are, and what was compared."""

from __future__ import annotations

from typing import TYPE_CHECKING

from isocompute_sdk import plots
from isocompute_sdk.fitting.fits import Fits
from isocompute_sdk.notes import Note, unique
from isocompute_sdk.phrases import short
from isocompute_sdk.planning import Plan
from isocompute_sdk.planning.plan import ALTERNATIVES
from isocompute_sdk.reporting import wording as say
from isocompute_sdk.reporting.material import Material
from isocompute_sdk.reporting.page import Block, Fact, Facts, Missing, Notes, Paragraph, Picture, Section, Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

EQUAL = (
    "Which n looks best depends on what is held equal: at equal steps a larger n also gets more rollouts, at equal "
    "rollouts fewer steps. A budget limits rollouts or time. Against one configuration:"
)


def why(material: Material) -> Section:
    """Reward curves with their points, their frontier, and the plan."""
    name, title = "why", "Why: the reward curves"
    fits, plan, audit = material.fits, material.plan, material.audit
    if fits is None or not fits.curves:
        groups = () if audit is None else tuple(group for group in audit.groups if group.fits is not None)
        if audit is not None and groups:
            return Section(
                name,
                title,
                tuple(_picture(f"audit-{one.name}", plots.audit_runs(one, audit.metric)) for one in groups),
            )
        text = "There are no reward curves here"
        if fits is not None:
            text += ": published laws come without them. Run the pilot named above, then fit it"
        elif audit is not None:
            text += ": a saved audit keeps no curves. Give the runs themselves"
        return Section(name, title, (Missing(f"{text}.", "isocompute report RUNS --budget 3M"),))
    caption = "Points are evaluations, lines the fitted curves (dashed beyond the runs), the broad line their frontier."
    shown = fits if plan is None or plan.fits is None else plan
    blocks: list[Block] = [_picture("curves", plots.reward_curves(shown), caption)]
    if plan is not None and len(fits.problems_per_batch) > 1:
        blocks.append(_picture("curves-all", plots.reward_curves(fits)))
    text = (
        "Within these runs one n is best throughout."
        if not fits.handovers()
        else f"The best curve passes on (n -> n at that compute): {fits.describe_handovers()}."
    )
    blocks.append(Paragraph(text))
    return Section(name, title, tuple(blocks))


def _picture(name: str, axes: Axes, caption: str = "") -> Picture:
    return Picture(name, plots.as_svg(axes), caption)


def how_sure(material: Material) -> Section:
    """The backtest, what the runs show of the rise, the odds of each n, and notes."""
    fits, plan = material.fits, material.plan
    known = None if fits is None else fits.passport
    blocks: list[Block] = []
    if known is not None and fits is not None:
        blocks += _backtest(fits)
        low, high = known.rise_seen
        text = f"The runs have seen {low:.0%} to {high:.0%} of the predicted rise, by configuration."
        blocks.append(Paragraph(text))
    elif fits is not None and fits.method == "paper":
        blocks.append(Missing("The paper's method has no backtest.", "isocompute fit RUNS --method surface"))
    else:
        blocks.append(Missing("Nothing of this was tested on runs of yours.", "isocompute report RUNS --budget 3M"))
    if material.comparison is not None:
        outcome = material.comparison
        blocks.append(
            Facts(
                (
                    Fact(
                        "Planned run, predicted", f"{outcome.predicted:.3f}", f"{outcome.low:.3f} to {outcome.high:.3f}"
                    ),
                    Fact(
                        "Planned run, measured",
                        f"{outcome.measured:.3f}",
                        f"{outcome.error:+.3f} against the prediction",
                    ),
                )
            )
        )
    if plan is not None:
        blocks += [*_odds(plan), *_next_runs(material)]
    notes = unique(
        [*(plan.notes if plan is not None else fits.notes if fits is not None else ()), *_audit_notes(material)]
    )
    if notes:
        blocks.append(Notes(notes))
    return Section("sure", "How sure is this", tuple(blocks))


def _audit_notes(material: Material) -> list[Note]:
    audit = material.audit
    if audit is None:
        return []
    return [*audit.notes, *(note for group in audit.groups for note in group.notes)]


def _backtest(fits: Fits) -> list[Block]:
    assert fits.passport is not None, "checked by the caller"
    test = fits.passport.backtest
    if test is None:
        return [
            Missing("No backtest: hiding the end of these runs would leave too few evaluations. Evaluate more often.")
        ]
    text = (
        f"Backtest on your own runs: everything beyond {short(test.hidden_beyond)} was hidden and predicted from "
        f"the rest ({test.factor:.1f} times further). {test.coverage:.0%} of {say.plural(test.runs, 'run')} ended "
        f"inside their 80 % interval; predictions missed by {test.rms_error:.3f} (root mean square), and measured "
        f"rewards were {abs(test.mean_error):.3f} {'above' if test.mean_error > 0 else 'below'} them on average."
    )
    caption = "On the dotted line a prediction was exact; an interval that crosses it held."
    return [Paragraph(text), _picture("backtest", plots.backtest(fits), caption)]


def _odds(plan: Plan) -> list[Block]:
    every = sorted([plan, *plan.alternatives], key=lambda one: one.group_size)
    rows = tuple(
        (
            str(one.group_size),
            "" if one.predicted_reward is None else f"{one.predicted_reward:.3f}",
            say.chance(one.odds.probability_best),
            say.chance(one.odds.near_best),
            f"{one.odds.expected_loss:.3f}",
        )
        for one in every
        if one.odds is not None
    )
    if not rows:
        return []
    marked = next((i for i, row in enumerate(rows) if row[0] == str(plan.group_size)), None)
    header = ("n", f"Expected {plan.metric}", "Best with probability", "Within .01 of the best", "Expected loss")
    return [Table(header, rows, "The odds of every n with the whole budget", marked=marked)]


def _next_runs(material: Material) -> list[Block]:
    """The runs that would settle n, with what each costs and saves."""
    found = material.next_runs
    if found is None:
        return []
    reason = Paragraph(f"What to run first: {found.reason}" + ("" if found.reason.endswith(".") else "."))
    if not found.runs:
        return [reason]
    rows = tuple(
        (
            f"continue {run.continues}" if run.continues else "new run",
            str(run.group_size),
            str(run.problems_per_batch),
            f"{run.update_steps:,}",
            say.amount(run.cost, found.unit),
            f"{run.share:.1%}",
            f"{run.saves:.4f}",
            run.settles,
        )
        for run in found.runs
    )
    header = ("Run", "n", "B_p", "M at its end", "Cost", "Of the budget", "Expected to save", "Settles")
    return [reason, Table(header, rows, "Before the budget is spent", text_columns=(0, 7))]


def near_ties(material: Material) -> Section:
    """Other allocations at the same budget."""
    name, title = "ties", "What else was close"
    plan = material.plan
    if plan is None:
        return Section(
            name,
            title,
            _of_audit(material) or (Missing("There is no plan to compare.", "isocompute allocate RUNS --budget 3M"),),
        )
    blocks: list[Block] = []
    rows = [("the plan", *_row(plan.group_size, plan.problems_per_batch, plan.update_steps, plan.predicted_reward), "")]
    rows += [
        (
            ALTERNATIVES.get(one.kind, one.kind),
            *_row(one.group_size, one.problems_per_batch, one.update_steps, one.predicted_reward),
            "" if one.expected_loss is None else say.signed(-one.expected_loss),
        )
        for one in plan.alternatives
    ]
    prior = plan.fits is not None and plan.fits.method == "prior"
    header = ("Allocation", "n", "B_p", "M", f"Expected {plan.metric}", "Share of the gain" if prior else "Difference")
    blocks.append(Table(header, tuple(rows), "At the same budget", marked=0))
    if material.planner is not None:
        blocks.append(Paragraph(f"{EQUAL} {material.again('--compare n=16,bp=32')}", quiet=True))
    return Section(name, title, tuple(blocks))


def _row(n: int, problems: int, steps: int, reward: float | None) -> tuple[str, str, str, str]:
    return str(n), str(problems), f"{steps:,}", "" if reward is None else f"{reward:.3f}"


def _of_audit(material: Material) -> tuple[Block, ...]:
    """Groups of an audit, each with its findings and runs."""
    audit = material.audit
    if audit is None:
        return ()
    blocks: list[Block] = []
    for group in audit.groups:
        blocks.append(Paragraph(f"{audit.title(group)}. {' '.join(group.findings())}"))
        rows = tuple(run.row() for run in group.runs)
        if rows:
            header = tuple(
                name or "standing"
                for name in ("run", "n x B_p", "rollouts", "reached", "best there", "behind by", "equal at", "")
            )
            blocks.append(Table(header, rows, f"Runs of group {group.name}", text_columns=(0, 7)))
    closing = audit.closing()
    if closing:
        blocks.append(Paragraph(" ".join(closing), quiet=True))
    return tuple(blocks)
