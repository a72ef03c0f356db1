"""The runs behind the answer: rewards in training and on held-out problems, coverage, health, and what they cost."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

import numpy as np

from isocompute_sdk import plots
from isocompute_sdk.errors import IsoComputeError
from isocompute_sdk.fitting.measured_runs import MeasuredRuns, flat_runs
from isocompute_sdk.health import check_health
from isocompute_sdk.health.traces import PROBE, REWARD, RunTraces, Trace, gather
from isocompute_sdk.phrases import counted, multiple, or_unknown, two_digits
from isocompute_sdk.plots.runs import Logged
from isocompute_sdk.records import RunSeries, RunSet
from isocompute_sdk.reporting import wording as say
from isocompute_sdk.reporting.drawing.pictures import panel, picture
from isocompute_sdk.reporting.material import Material
from isocompute_sdk.reporting.page import Block, Grid, Missing, Notes, Paragraph, Picture, Section, Table
from isocompute_sdk.run_folders.store import natural
from isocompute_sdk.timing.spending import Spending, spending

MAX_BINS = 60
"""Points of a smoothed line."""
MAX_ROWS = 80
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
COVERAGE = {
    "best-": "best@k: at least one of k answers is right (coverage).",
    "worst-": "worst@k: all k answers are right (sharpening).",
}
"""What metrics of k answers say, by the beginning of the name of their picture."""
_K = re.compile(r"(?:best|worst)@(\d+)$")


def runs(material: Material) -> Section:
    """What the runs logged, what the detectors found, and what each run cost."""
    name, title, table = "runs", "The runs behind it: rewards, health, cost", material.runs
    if table is None:
        kept = material.fits is not None and material.fits.table is not None
        what = "A saved plan holds only the rewards of its runs." if kept else "This source holds no runs."
        budget = [] if material.plan is None else [material.asked_for(material.plan.budget)]
        return Section(name, title, (Missing(what, material.with_others(*budget, command="report")),))
    metric = None if material.metric == "train_reward" else material.metric
    traces = gather(table, metric, material.eval_set)
    health = check_health(table, metric, material.eval_set)
    timelines = [_picture(f"health-{key}", text, _lines(traces, key)) for key, text in TIMELINES.items()]
    logged = [one for one in timelines if one is not None]
    blocks: list[Block] = [*_costs(material, table)]
    noted = () if material.fits is None else material.fits.notes if material.plan is None else material.plan.notes
    if health.notes:
        said = {note.code for note in noted}
        blocks.append(Notes(tuple(note for note in health.notes if note.code not in said)))
    elif not flat_runs(table, material.metric, material.eval_set):
        blocks.append(Paragraph(f"No problem was found in {counted(health.runs, 'run')}."))
    if not logged:
        text = "No entropy, KL, length or gradient norm was logged, so most problems would go unseen. To watch runs:"
        blocks.append(Missing(text, "isocompute status FOLDER_OF_RUNS --watch"))
    held, trained, probed = (_lines(traces, quantity) for quantity in (REWARD, "train_reward", PROBE))
    beside = probed or trained
    against = _picture(
        "train-validation", f"{material.metric}: held out and in training (dashed)", held, beside, reward=True
    )
    drawn = [*_coverage(material, table), *([against] if against and beside else []), *logged]
    if drawn:
        blocks.append(Grid(tuple(drawn)))
        said = [text for name, text in COVERAGE.items() if any(one.name.startswith(name) for one in drawn)]
        text = " ".join([*said, "With many steps, lines are means of neighbouring steps."])
        blocks.append(Paragraph(text, quiet=True))
    return Section(name, title, tuple(blocks))


def _coverage(material: Material, table: RunSet) -> list[Picture]:
    """best@k and worst@k of the largest k: whether training finds new answers or sharpens those that were there."""
    k = max((int(match[1]) for metric in table.metrics if (match := _K.match(metric))), default=0)
    drawn: list[Picture | None] = []
    for metric in (f"best@{k}", f"worst@{k}"):
        series = _series(table, metric, material.eval_set) if metric in table.metrics else []
        lines = [(one.run_id, one.group_size, one.rollouts_T, one.value_T) for one in series]
        drawn.append(_picture(metric.replace("@", "-"), metric, lines, reward=True))
    return [one for one in drawn if one is not None]


def _series(table: RunSet, metric: str, eval_set: str | None) -> list[RunSeries]:
    """One metric of every run; of several evaluation sets the one that was fitted, else validation."""
    for where in (eval_set, None, "validation"):
        try:
            return list(table.series(metric, where))
        except IsoComputeError:
            continue
    return []


def _measured(material: Material, table: RunSet) -> Sequence[RunSeries]:
    """The reward of every run as it was fitted: another avg@k where a run lacks the one of the page."""
    try:
        return MeasuredRuns.of(table, material.metric, material.eval_set, stand_in=True).series
    except IsoComputeError:
        return _series(table, material.metric, material.eval_set)


def _picture(
    name: str, title: str, lines: Sequence[Logged], dashed: Sequence[Logged] = (), *, reward: bool = False
) -> Picture | None:
    return picture(name, plots.logged(lines, title, dashed=dashed, reward=reward, ax=panel())) if lines else None


def _lines(traces: Sequence[RunTraces], quantity: str) -> list[Logged]:
    """One quantity of every run that has it."""
    found = [(run, run.traces[quantity]) for run in traces if quantity in run.traces and len(run.traces[quantity])]
    return [(run.run_id, run.group_size, *_smoothed(trace)) for run, trace in found]


def _smoothed(trace: Trace) -> tuple[np.ndarray, np.ndarray]:
    """Values of a trace, means of neighbours where there are many: single steps are noise."""
    if len(trace) <= MAX_BINS:
        return trace.rollouts_T, trace.value_T
    # Bins evenly spaced in log compute, since runs are looked at on that axis.
    at_T = np.maximum(trace.rollouts_T, trace.rollouts_T[trace.rollouts_T > 0][:1].max(initial=1.0))
    edges = np.geomspace(at_T.min(), at_T.max() * (1 + 1e-9), MAX_BINS + 1)
    bin_T = np.clip(np.searchsorted(edges, at_T, side="right") - 1, 0, MAX_BINS - 1)
    total = np.bincount(bin_T, minlength=MAX_BINS)
    used = total > 0
    sums = (np.bincount(bin_T, part, minlength=MAX_BINS)[used] for part in (trace.rollouts_T, trace.value_T))
    compute, value = (part / total[used] for part in sums)
    return compute, value


def _costs(material: Material, table: RunSet) -> tuple[Block, ...]:
    """What the runs behind the answer cost, one by one."""
    best = {one.run_id: float(np.max(one.value_T)) for one in _measured(material, table) if len(one.value_T)}
    spent, seconds = _spending(material), _gpu_seconds(table)
    header = ["Run", "n", "B_p", "Rollouts", "Highest evaluation", *["Minutes"] * bool(spent)]
    header += ["GPU-hours"] * bool(seconds)
    infos = sorted(table.runs(), key=lambda run: (run.group_size, natural(run.run_id)))
    rows = list[tuple[str, ...]]()
    for run in infos[:MAX_ROWS]:
        row = [run.run_id, str(run.group_size), or_unknown(run.problems_per_batch)]
        row += [
            f"{run.rollouts_spent or run.rollouts:,.0f}",
            say.reward(best[run.run_id]) if run.run_id in best else "-",
        ]
        row += [f"{60 * spent[run.run_id].hours:.1f}" if run.run_id in spent else "-"] * bool(spent)
        row += [f"{seconds[run.run_id] / 3600:,.2f}" if run.run_id in seconds else "-"] * bool(seconds)
        rows.append(tuple(row))
    total = sum(run.rollouts_spent or run.rollouts for run in infos)
    text = f"{counted(len(infos), 'run')}, {total:,.0f} rollouts in training"
    if spent:
        whole = sum(spent.values(), Spending())
        text += f", {whole.evaluation_rollouts:,.0f} in evaluations; {whole.hours * 60:,.1f} minutes of wall-clock time"
        text += f" ({whole.lost_hours * 60:,.1f} of them lost or idle)"
    if seconds:
        of = "" if len(seconds) == len(infos) else f" of {counted(len(seconds), 'run')} that state their GPUs"
        text += f"; {sum(seconds.values()) / 3600:,.1f} GPU-hours{of}"
    if material.plan is not None and not material.flat and material.comparison is None and total:
        text += f". The plan takes {_against_all(two_digits(material.plan.rollouts / total))}"
    caption, marked = f"The first {len(rows)} of {len(infos)}" if len(infos) > len(rows) else f"All {len(infos)}", None
    if len(infos) == 1:
        caption = "1 run"
    elif best:
        marked = max(range(len(infos)), key=lambda i: best.get(infos[i].run_id, -math.inf))
        run = infos[marked].run_id
        caption += f", by n; the highest evaluation is that of {run}: {say.reward(best[run])}"
    return Paragraph(f"{text}."), Table(tuple(header), tuple(rows), caption, marked)


def _against_all(share: float) -> str:
    """Rollouts of the plan beside those of all runs, by their share of those."""
    if share == 1.0:
        return "as many rollouts as these runs together"
    shown = f"{100.0 * share:.2g} % of" if share < 1.0 else f"{multiple(share)} times"
    return f"{shown} the rollouts of these runs together"


def _spending(material: Material) -> Mapping[str, Spending]:
    """Time of each run that was started here."""
    found = {folder.name: spending([folder]) for folder in material.folders}
    return {run: spent for run, spent in found.items() if spent.hours > 0}


def _gpu_seconds(table: RunSet) -> Mapping[str, float]:
    """GPU-seconds of each run, where the table has them."""
    import polars as pl

    frame = table.to_polars()
    if "gpu_seconds" not in frame.columns:
        return {}
    last = frame.group_by("run_id").agg(pl.col("gpu_seconds").max())
    return {run: float(value) for run, value in last.iter_rows() if value is not None and math.isfinite(value)}
