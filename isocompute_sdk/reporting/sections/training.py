"""Sections on the runs themselves: coverage, training against validation, health over time, and what they cost."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

import numpy as np

from isocompute_sdk import plots
from isocompute_sdk.errors import IsoComputeError
from isocompute_sdk.fitting.measured_runs import MeasuredRuns
from isocompute_sdk.health import check_health
from isocompute_sdk.health.detectors import findings
from isocompute_sdk.health.traces import PROBE, REWARD, RunTraces, Trace, gather
from isocompute_sdk.metrics import average_of
from isocompute_sdk.phrases import short
from isocompute_sdk.plots.runs import Logged
from isocompute_sdk.records import RunSeries, RunSet
from isocompute_sdk.reporting import wording as say
from isocompute_sdk.reporting.material import Material
from isocompute_sdk.reporting.page import Block, Grid, Missing, Notes, Paragraph, Picture, Section, Table
from isocompute_sdk.timing.spending import Spending, spending

MOST_BINS = 60
"""Points of a smoothed line."""
MOST_ROWS = 80
"""Runs listed in a table."""
TIMELINES = {
    "entropy": "Entropy",
    "kl": "KL to the base model",
    "response_length": "Response length (tokens)",
    "truncated_share": "Truncated responses (share)",
    "zero_variance_share": "Groups with equal rewards (share)",
    "gradient_norm": "Gradient norm",
    "sampler_kl": "KL between sampler and trainer",
}
"""Logged quantities that are drawn, by name in `RunTraces`."""
DECLINES = ("collapsed-run", "decayed-run", "overfitting-run")
_K = re.compile(r"@(\d+)$")


def coverage(material: Material) -> Section:
    """best@k and worst@k: whether training finds new answers or sharpens those that were there."""
    name, title = "coverage", "Coverage and sharpening: best@k and worst@k"
    runs = material.runs
    found = [] if runs is None else [metric for metric in runs.metrics if metric.startswith(("best@", "worst@"))]
    k = max((int(match[1]) for metric in found if (match := _K.search(metric))), default=0)
    wanted = [
        metric for metric in (f"best@{k}", f"worst@{k}", f"avg@{k}") if runs is not None and metric in runs.metrics
    ]
    if runs is None or not k:
        text = "These runs log neither best@k nor worst@k"
        if runs is None:
            text = "This source holds no runs"
        elif len(runs.metrics) == 1:
            text += " (the source keeps one metric: give the folder of the runs to see others)"
        return Section(name, title, (Missing(f"{text}.", "isocompute report FOLDER_OF_RUNS"),))
    series = {metric: _series(runs, metric, material.eval_set) for metric in wanted}
    drawn = tuple(
        _picture(
            f"k-{i}", metric, [(one.run_id, one.group_size, one.rollouts_T, one.value_T) for one in series[metric]]
        )
        for i, metric in enumerate(wanted)
        if series[metric]
    )
    header = ("n", *(f"{metric}: start to end" for metric in wanted))
    sizes = sorted({one.group_size for found_ in series.values() for one in found_})
    rows = tuple((str(n), *(_change(series[metric], n) for metric in wanted)) for n in sizes)
    text = (
        f"best@{k} asks whether one of {k} answers is right (coverage), worst@{k} whether all are (sharpening). Where "
        f"worst@{k} rises and best@{k} does not, training makes answers reliable but solves no new problems."
    )
    return Section(
        name,
        title,
        (
            Paragraph(text, quiet=True),
            Grid(drawn),
            Table(header, rows, "Means over the runs of each n"),
        ),
    )


def _series(runs: RunSet, metric: str, eval_set: str | None) -> list[RunSeries]:
    """One metric of every run; of several evaluation sets the one that was fitted, else validation."""
    for where in (eval_set, None, "validation"):
        try:
            return list(runs.series(metric, where))
        except IsoComputeError:
            continue
    return []


def _measured(material: Material, runs: RunSet) -> Sequence[RunSeries]:
    """The reward of every run as it was fitted: another avg@k where a run lacks the one of the page."""
    try:
        return MeasuredRuns.of(runs, material.metric, material.eval_set, stand_in=True).series
    except IsoComputeError:
        return _series(runs, material.metric, material.eval_set)


def _change(series: Sequence[RunSeries], n: int) -> str:
    ends = [
        (float(one.value_T[0]), float(one.value_T[-1])) for one in series if one.group_size == n and len(one.value_T)
    ]
    if not ends:
        return "-"
    first, last = (float(np.mean(part)) for part in zip(*ends, strict=True))
    return f"{first:.3f} to {last:.3f} ({last - first:+.3f})"


def _picture(name: str, title: str, lines: Sequence[Logged], dashed: Sequence[Logged] = ()) -> Picture:
    return Picture(name, plots.as_svg(plots.logged(lines, title, dashed=dashed)))


def train_against_validation(material: Material) -> Section:
    """Whether the held-out reward follows the training reward, and where it begins to fall."""
    name, title = "overfitting", "Training against validation, and where rewards fall"
    runs, fits, plan = material.runs, material.fits, material.plan
    blocks: list[Block] = []
    if runs is not None:
        blocks += _reward_charts(material, runs)
    if not blocks:
        blocks.append(
            Missing(
                "No run here logs a training reward beside an evaluation. Give the folder of the runs, which holds "
                "their step metrics.",
                "isocompute report FOLDER_OF_RUNS",
            )
        )
    surface = None if fits is None else fits.surface
    if fits is not None and surface is not None:
        if surface.declines is None:
            blocks.append(Paragraph("No run fell after its best level, so no onset of a decline is known."))
        else:
            problems = None if plan is None else fits.reachable_problems_per_batch(plan.problems_per_batch)
            rows = tuple((str(n), *_onset(surface.onset(n, problems))) for n in fits.group_sizes)
            header = ("n", "Onset of decline (median C)", "80 % interval", "Draws without a decline")
            blocks.append(Table(header, rows, "Where rewards are predicted to begin to fall"))
    if runs is not None:
        rows = tuple(
            (run, found.code, found.where, found.seen)
            for run, all_ in findings(runs, _metric(material), material.eval_set).items()
            for found in all_
            if found.code in DECLINES
        )
        if rows:
            header = ("Run", "What", "From", "Seen")
            blocks.append(Table(header, rows[:MOST_ROWS], "Runs that fell", text_columns=(0, 1, 2, 3)))
    return Section(name, title, tuple(blocks))


def _metric(material: Material) -> str | None:
    """The metric of the page if it is an evaluation; None lets the health checks choose."""
    return material.metric if average_of(material.metric) else None


def _onset(onset_D: np.ndarray) -> tuple[str, str, str]:
    known = onset_D[np.isfinite(onset_D)]
    never = say.chance(1.0 - len(known) / len(onset_D))
    if not len(known):
        return "none", "", never
    low, middle, high = (float(value) for value in np.quantile(known, [0.1, 0.5, 0.9]))
    return short(middle), f"{short(low)} to {short(high)}", never


def _reward_charts(material: Material, runs: RunSet) -> list[Block]:
    traces = gather(runs, _metric(material), material.eval_set)
    held, trained, probed = (_lines(traces, quantity) for quantity in (REWARD, "train_reward", PROBE))
    if not held or not (trained or probed):
        return []
    beside = probed or trained
    what = "a probe of training problems" if probed else "the reward in training, means of neighbouring steps"
    drawn = _picture("train-validation", f"{material.metric}: validation and training", held, beside)
    return [Paragraph(f"Solid lines: held-out problems. Dashed: {what}.", quiet=True), drawn]


def _lines(traces: Sequence[RunTraces], quantity: str) -> list[Logged]:
    """One quantity of every run that has it."""
    found = [(run, run.traces[quantity]) for run in traces if quantity in run.traces and len(run.traces[quantity])]
    return [(run.run_id, run.group_size, *_smoothed(trace)) for run, trace in found]


def _smoothed(trace: Trace) -> tuple[np.ndarray, np.ndarray]:
    """Values of a trace, means of neighbours where there are many: single steps are noise."""
    count = len(trace)
    if count <= MOST_BINS:
        return trace.rollouts_T, trace.value_T
    # Bins evenly spaced in log compute, since runs are looked at on that axis.
    at_T = np.maximum(trace.rollouts_T, trace.rollouts_T[trace.rollouts_T > 0][:1].max(initial=1.0))
    edges = np.geomspace(at_T.min(), at_T.max() * (1 + 1e-9), MOST_BINS + 1)
    bin_T = np.clip(np.searchsorted(edges, at_T, side="right") - 1, 0, MOST_BINS - 1)
    total = np.bincount(bin_T, minlength=MOST_BINS)
    used = total > 0
    mean = [
        np.bincount(bin_T, part, minlength=MOST_BINS)[used] / total[used] for part in (trace.rollouts_T, trace.value_T)
    ]
    return mean[0], mean[1]


def health(material: Material) -> Section:
    """Logged quantities over time, and what the detectors found."""
    name, title = "health", "Health of the runs"
    runs = material.runs
    command = "isocompute status FOLDER_OF_RUNS --watch"
    if runs is None:
        return Section(name, title, (Missing("This source holds no runs, so their health is not known.", command),))
    traces = gather(runs, _metric(material), material.eval_set)
    lines = {quantity: _lines(traces, quantity) for quantity in TIMELINES}
    drawn = tuple(
        _picture(f"health-{quantity}", label, lines[quantity])
        for quantity, label in TIMELINES.items()
        if lines[quantity]
    )
    found = check_health(runs, _metric(material), material.eval_set)
    blocks: list[Block] = []
    if found.notes:
        blocks.append(Notes(found.notes))
    else:
        text = f"The detectors found nothing in {say.plural(found.runs, 'run')}"
        text += (
            "." if drawn else ", but these log none of the quantities that most detectors need: no finding is no proof."
        )
        blocks.append(Paragraph(text))
    if drawn:
        blocks.append(Grid(drawn))
    else:
        blocks.append(
            Missing("No entropy, KL, length or gradient norm is logged here. Give the folder of the runs.", command)
        )
    return Section(name, title, tuple(blocks))


def pilot_cost(material: Material) -> Section:
    """What the runs behind the answer cost, one by one."""
    name, title = "pilot", "What the runs cost"
    runs = material.runs
    if runs is None:
        return Section(
            name,
            title,
            (Missing("This source holds no runs, so their cost is not known.", "isocompute report FOLDER_OF_RUNS"),),
        )
    metric = material.metric
    best = {one.run_id: float(np.max(one.value_T)) for one in _measured(material, runs) if len(one.value_T)}
    spent = _spending(material)
    seconds = _gpu_seconds(runs)
    header = (
        ["Run", "n", "B_p", "Rollouts", f"Best {metric}"] + ["Minutes"] * bool(spent) + ["GPU-hours"] * bool(seconds)
    )
    rows: list[tuple[str, ...]] = []
    infos = runs.runs()
    for run in infos[:MOST_ROWS]:
        row = [run.run_id, str(run.group_size), "?" if run.problems_per_batch is None else str(run.problems_per_batch)]
        row += [f"{run.rollouts_spent or run.rollouts:,.0f}", f"{best[run.run_id]:.3f}" if run.run_id in best else "-"]
        if spent:
            row.append(f"{60 * spent[run.run_id].hours:.1f}" if run.run_id in spent else "-")
        if seconds:
            row.append(f"{seconds[run.run_id] / 3600:,.2f}" if run.run_id in seconds else "-")
        rows.append(tuple(row))
    total = sum(run.rollouts_spent or run.rollouts for run in infos)
    text = f"{say.plural(len(infos), 'run')}, {total:,.0f} rollouts in training"
    if spent:
        whole = sum(spent.values(), Spending())
        text += f", {whole.evaluation_rollouts:,.0f} in evaluations; {whole.hours * 60:,.1f} minutes of wall-clock time"
        text += f" ({whole.lost_hours * 60:,.1f} of them lost or idle)"
    if seconds:
        text += f"; {sum(seconds.values()) / 3600:,.1f} GPU-hours"
    plan = material.plan
    if plan is not None:
        text += (
            f". The plan takes {plan.rollouts:,} rollouts, {plan.rollouts / total:.2g} times as many" if total else ""
        )
    blocks: list[Block] = [Paragraph(f"{text}.")]
    more = len(infos) - len(rows)
    caption = f"The first {len(rows)} of {len(infos)} runs" if more else ""
    blocks.append(Table(tuple(header), tuple(rows), caption))
    if not spent and not seconds:
        blocks.append(
            Missing(
                "Hours are known for runs that were started by `isocompute run`, or with a column gpu_seconds.",
                "isocompute run --help",
            )
        )
    return Section(name, title, tuple(blocks))


def _spending(material: Material) -> dict[str, Spending]:
    """Time of each run that was started here."""
    found = {folder.name: spending([folder]) for folder in material.folders}
    return {run: spent for run, spent in found.items() if spent.hours > 0}


def _gpu_seconds(runs: RunSet) -> dict[str, float]:
    """GPU-seconds of each run, where the table has them."""
    import polars as pl

    frame = runs.to_polars()
    if "gpu_seconds" not in frame.columns:
        return {}
    last = frame.group_by("run_id").agg(pl.col("gpu_seconds").max())
    return {run: float(value) for run, value in last.iter_rows() if value is not None and math.isfinite(value)}
