"""Sections on what an answer rests on: the curves, how sure they are, and what was compared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from isocompute_sdk.campaigns.prediction_check import Comparison
from isocompute_sdk.errors import IsoComputeError
from isocompute_sdk.fitting.fits import Fits
from isocompute_sdk.fitting.paper.reward_curve import RewardCurve
from isocompute_sdk.fitting.surface.passport import Backtest, HiddenRun
from isocompute_sdk.notes import Note, unique
from isocompute_sdk.phrases import short
from isocompute_sdk.planning import Plan, PlanComparison
from isocompute_sdk.planning.comparing import EQUALS
from isocompute_sdk.planning.summary import ALTERNATIVES
from isocompute_sdk.reporting import wording as say
from isocompute_sdk.reporting.drawing import charts
from isocompute_sdk.reporting.material import Material
from isocompute_sdk.reporting.page import (
    Block,
    Chart,
    Fact,
    Facts,
    Grid,
    Meter,
    Missing,
    Notes,
    Paragraph,
    Section,
    Table,
)
from isocompute_sdk.reporting.sections.first_screen import compare_with

MOST_POINTS = 1500
"""Evaluations drawn on all curves together; more are thinned run by run."""
CURVE_POINTS = 60
MOST_COMPARED = 6
LINE_HEIGHT = 14
"""Pixels between two labels."""


def why(material: Material) -> Section:
    """Reward curves with their points, their frontier, and the plan."""
    name, title = "why", "Why: the reward curves"
    fits = material.fits
    if fits is None or not fits.curves:
        audit = material.audit
        if audit is not None and any(group.fits is not None and group.fits.curves for group in audit.groups):
            blocks = [
                curve_chart(group.fits, None, level, f"audit-{group.name}-{i}", f"Group {group.name}: ")
                for group in audit.groups
                if group.fits is not None
                for i, level in enumerate(group.fits.problems_per_batch or (None,))
            ]
            return Section(name, title, tuple(blocks))
        text = "There are no reward curves here"
        if fits is not None:
            text += ": published laws come without them. Run the pilot named above, then fit it"
        elif audit is not None:
            text += ": a saved audit keeps no curves. Give the runs themselves"
        return Section(name, title, (Missing(f"{text}.", "isocompute report RUNS --budget 3M"),))
    plan = material.plan
    levels: list[int | None] = [*fits.problems_per_batch] or [None]
    first = levels[0] if plan is None else fits.nearest_problems_per_batch(plan.problems_per_batch)
    levels.sort(key=lambda bp: (bp != first, bp or 0))
    main = curve_chart(fits, plan, levels[0], "curves-0")
    rest = tuple(curve_chart(fits, plan, bp, f"curves-{i}", height=280) for i, bp in enumerate(levels) if i)
    blocks: list[Block] = [main]
    if rest:
        blocks.append(Grid(rest, ()))
    handovers = fits.describe_handovers()
    text = (
        "Within these runs one n is best throughout."
        if not fits.handovers()
        else f"The best curve passes on (n -> n at that compute): {handovers}."
    )
    blocks.append(Paragraph(text))
    return Section(name, title, tuple(blocks))


def _axis_name(fits: Fits) -> str:
    return "tokens" if fits.compute == "log10_tokens" else "rollouts C"


def curve_chart(
    fits: Fits, plan: Plan | None, problems: int | None, name: str, prefix: str = "", height: int = 400
) -> Chart:
    """Points, curves, frontier and plan at one B_p."""
    curves = fits.select(problems)
    low = min(curve.first_compute for curve in curves)
    ends = [curve.last_compute for curve in curves]
    at_plan = plan is not None and fits.nearest_problems_per_batch(plan.problems_per_batch) == problems
    high = max([*ends, plan.compute]) if plan is not None and at_plan else max(ends)
    high *= 1.15
    series: list[charts.Json] = []
    values: list[float] = []
    most = max(MOST_POINTS // len(fits.curves), 12)
    for i, curve in enumerate(sorted(curves, key=lambda one: one.group_size)):
        found, drawn = _curve(curve, (low, high), i, most)
        series += found
        values += drawn
    _separate_labels(series, values, height)
    grid = np.geomspace(low, max(ends), 240)
    best = fits.frontier(grid, problems)
    series.insert(0, charts.line("frontier", list(zip(grid, best.reward, strict=True)), "muted", width=9, z=1))
    series[0]["lineStyle"] |= {"opacity": 0.28, "cap": "round"}
    sizes = sorted({curve.group_size for curve in curves})
    names = {"frontier": "roundRect"} | {f"n = {n}": _symbol(i) for i, n in enumerate(sizes)}
    if plan is not None and at_plan and plan.predicted_reward is not None:
        series += _plan_marks(plan)
        values += [plan.predicted_reward, *(plan.reward_interval or ())]
        names["plan"] = "diamond"
    option = charts.chart(
        charts.Axis(_axis_name(fits), low, high, log=True),
        charts.linear(fits.metric, values, within=fits.bounds),
        series,
        legend=names,
        right=64,
    )
    title = f"{prefix}{fits.metric} by compute" + ("" if problems is None else f", B_p = {problems}")
    caption = (
        "Points are evaluations, lines the fitted curves (dashed beyond the runs), the broad line their frontier."
        if name.endswith("-0")
        else ""
    )
    if plan is not None and at_plan and plan.predicted_reward is not None:
        caption += " The diamond is the plan" + (" with its 80 % interval." if plan.reward_interval else ".")
    return Chart(name, title, option, caption, height)


def _curve(
    curve: RewardCurve, ends: tuple[float, float], place: int, most: int
) -> tuple[list[charts.Json], list[float]]:
    """Points and line of one curve, and the rewards drawn."""
    label, colour = f"n = {curve.group_size}", f"n{curve.group_size}"
    seen = np.flatnonzero(curve.compute_T > 0)
    seen = seen[charts.thinned(len(seen), most)]
    points = [(float(curve.compute_T[i]), float(curve.reward_T[i])) for i in seen]
    symbol = _symbol(place)
    hover = [f"{label}\nC = {short(x)}\nmeasured {y:.3f}" for x, y in points]
    found = [
        charts.dots(
            label,
            points,
            colour,
            hover,
            symbol=symbol,
            symbolSize=5 if len(points) > 60 else 7,
            itemStyle={"opacity": 0.6},
        )
    ]
    inside = np.geomspace(curve.first_compute, min(curve.last_compute, ends[1]), CURVE_POINTS)
    drawn = [float(value) for value in np.atleast_1d(curve.predict(inside))]
    told = [f"{label}\nC = {short(float(x))}\nfitted {y:.3f}" for x, y in zip(inside, drawn, strict=True)]
    found.append(charts.line(label, list(zip(inside, drawn, strict=True)), colour, told, width=2.4))
    last = found[-1]
    if ends[1] > curve.last_compute * 1.02:
        outside = np.geomspace(curve.last_compute, ends[1], 24)
        further = [float(value) for value in np.atleast_1d(curve.predict(outside))]
        told = [f"{label}\nC = {short(float(x))}\nextrapolated {y:.3f}" for x, y in zip(outside, further, strict=True)]
        found.append(charts.line(label, list(zip(outside, further, strict=True)), colour, told, dashed=True, width=1.6))
        last = found[-1]
        drawn += further
    last["endLabel"] = {"show": True, "formatter": label.replace(" ", ""), "color": f"@{colour}", "fontSize": 11}
    return found, [*drawn, *(y for _, y in points)]


def _separate_labels(series: list[charts.Json], values: Sequence[float], height: int) -> None:
    """Move labels at the ends of lines apart; positions in pixels are estimates."""
    scale = (height - 120) / max(max(values) - min(values), 1e-9)
    labelled = sorted((one for one in series if "endLabel" in one), key=lambda one: -one["data"][-1]["value"][1])
    lowest = -np.inf
    for one in labelled:
        place = -one["data"][-1]["value"][1] * scale
        moved = max(place, lowest + LINE_HEIGHT)
        one["endLabel"]["offset"] = [0, round(moved - place)]
        lowest = moved


def _symbol(place: int) -> str:
    return charts.SYMBOLS[place % len(charts.SYMBOLS)]


def _plan_marks(plan: Plan) -> list[charts.Json]:
    assert plan.predicted_reward is not None, "checked by the caller"
    text = f"plan: n = {plan.group_size}, M = {plan.update_steps:,}\npredicted {plan.predicted_reward:.3f}"
    marks: list[charts.Json] = []
    if plan.reward_interval is not None:
        low, high = plan.reward_interval
        text += f"\n80 % interval {low:.3f} to {high:.3f}"
        marks.append(
            charts.segments(
                "plan", [((plan.compute, low), (plan.compute, high))], "second", z=6, lineStyle={"width": 4}
            )
        )
    at = [(plan.compute, plan.predicted_reward)]
    marks.append(charts.dots("plan", at, "second", [text], symbol="diamond", symbolSize=17, z=7))
    return marks


def how_sure(material: Material) -> Section:
    """The backtest, what the runs show of the rise, the odds of each n, and notes."""
    fits, plan = material.fits, material.plan
    known = None if fits is None else fits.passport
    blocks: list[Block] = []
    if known is not None and fits is not None:
        blocks += _backtest(material, fits)
        low, high = known.rise_seen
        blocks.append(
            Meter(
                "Share of the predicted rise that the runs have seen", high, f"{low:.0%} to {high:.0%} by configuration"
            )
        )
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


def _backtest(material: Material, fits: Fits) -> list[Block]:
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
    return [Paragraph(text), _against_outcomes(test, fits, material.comparison)]


def _against_outcomes(test: Backtest, fits: Fits, planned: Comparison | None) -> Chart:
    """Prediction against outcome of every hidden run, and of the planned run if it was trained."""
    measured = charts.linear(
        "measured",
        [
            value
            for run in (*test.by_run, *([] if planned is None else [planned]))
            for value in (run.measured, run.predicted, run.low, run.high)
        ],
        within=fits.bounds,
    )
    ends = [(end, end) for end in (measured.low or 0.0, measured.high or 1.0)]
    series = [charts.line("predicted = measured", ends, "muted", dashed=True, width=1.2)]
    names = {"predicted = measured": "roundRect"}
    for i, n in enumerate(sorted({run.group_size for run in test.by_run})):
        runs = [run for run in test.by_run if run.group_size == n]
        hover = [
            f"{run.run_id}\nn = {n}, C = {short(run.compute)}\npredicted {run.predicted:.3f} ({run.low:.3f} to "
            f"{run.high:.3f})\nmeasured {run.measured:.3f}"
            for run in runs
        ]
        names[f"n = {n}"] = symbol = _symbol(i)
        series += _pairs(f"n = {n}", runs, f"n{n}", hover, 0.5, symbol=symbol, symbolSize=10, z=4)
    if planned is not None:
        names["planned run"] = "diamond"
        hover = [f"{planned.run_id}\npredicted {planned.predicted:.3f}\nmeasured {planned.measured:.3f}"]
        series += _pairs("planned run", [planned], "second", hover, 1.0, symbol="diamond", symbolSize=16, z=5)
    option = charts.chart(replace(measured, name="predicted (interval: 80 % of runs)"), measured, series, legend=names)
    caption = "On the dashed line a prediction was exact; an interval that crosses it held."
    return Chart("backtest", "Prediction against outcome", option, caption, 380)


def _pairs(
    label: str,
    runs: Sequence[HiddenRun | Comparison],
    colour: str,
    hover: Sequence[str],
    opacity: float,
    **dot: Any,
) -> list[charts.Json]:
    """Intervals and points of predictions against what was measured."""
    intervals = [((run.low, run.measured), (run.high, run.measured)) for run in runs]
    points = [(run.predicted, run.measured) for run in runs]
    return [
        charts.segments(label, intervals, colour, lineStyle={"opacity": opacity}),
        charts.dots(label, points, colour, hover, **dot),
    ]


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
    return [Table(header, rows, "The odds of every n with the whole budget", size_column=0, marked=marked)]


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
    return [reason, Table(header, rows, "Before the budget is spent", size_column=1, text_columns=(0, 7))]


def near_ties(material: Material) -> Section:
    """Other allocations, and the plan against others at equal rollouts, steps, time and batch."""
    name, title = "ties", "What else was close, and what was compared"
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
    blocks.append(Table(header, tuple(rows), "At the same budget", size_column=1, marked=0))
    blocks += _comparisons(material, plan)
    return Section(name, title, tuple(blocks))


def _row(n: int, problems: int, steps: int, reward: float | None) -> tuple[str, str, str, str]:
    return str(n), str(problems), f"{steps:,}", "" if reward is None else f"{reward:.3f}"


def _comparisons(material: Material, plan: Plan) -> list[Block]:
    """The plan against the levels that were run, with one quantity equal at a time."""
    fits = plan.fits
    if fits is None or not fits.curves or material.planner is None or plan.predicted_reward is None:
        return [
            Missing(
                "Comparisons at equal rollouts, steps, time or batch need reward curves.",
                "isocompute report RUNS --budget 3M",
            )
        ]
    sizes = [n for n in fits.group_sizes if n != plan.group_size and n >= 2]
    sizes = [sizes[i] for i in charts.thinned(len(sizes), MOST_COMPARED)]
    asked = [f"n={n},bp={plan.problems_per_batch}" for n in sizes]
    if material.asked.compare is not None:
        asked = list(dict.fromkeys([material.asked.compare, *asked]))
    by_size: dict[tuple[int, int], PlanComparison] = {}
    for configuration in asked:
        try:
            one = compare_with(material, plan, configuration)
        except IsoComputeError:
            continue
        by_size.setdefault((one.group_size, one.problems_per_batch), one)
    if not by_size:
        return []
    found = list(by_size.values())
    equals = [equal for equal in EQUALS if any(equal in one.at_equal for one in found)]
    rows = tuple(
        (
            str(one.group_size),
            str(one.problems_per_batch),
            *(say.signed(*one.at_equal[equal].difference) if equal in one.at_equal else "-" for equal in equals),
        )
        for one in found
    )
    caption = "Reward of the plan less that of another n, with one quantity equal (80 % intervals)"
    header = ("n", "B_p", *(f"Equal {equal}" for equal in equals))
    blocks: list[Block] = [
        Table(header, rows, caption, size_column=0),
        Paragraph(
            "Which n looks best depends on what is held equal: at equal steps a larger n also gets more rollouts, at "
            "equal rollouts fewer steps. A budget is a limit on rollouts or time, so those columns decide.",
            quiet=True,
        ),
    ]
    if "time" not in equals:
        blocks.append(
            Missing("A comparison at equal time needs the speed of your machines.", "isocompute probe --help")
        )
    return blocks


def _of_audit(material: Material) -> tuple[Block, ...]:
    """Groups of an audit, each with its findings, runs and proposals."""
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
        lines = group.proposal_lines()
        if lines:
            blocks.append(Paragraph(" ".join(line.strip() + ("" if line.endswith(":") else ".") for line in lines)))
    closing = audit.closing()
    if closing:
        blocks.append(Paragraph(" ".join(closing), quiet=True))
    return tuple(blocks)
