"""Problem by problem: pass rates over training with a measure of interference, and the difficulty of a problem set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from isocompute_sdk.errors import RecordError
from isocompute_sdk.fitting.arrays import Array
from isocompute_sdk.phrases import short
from isocompute_sdk.plots import style
from isocompute_sdk.records.difficulty import EASY_MAX, EASY_MIN, HARD_MAX, VERY_EASY_MAX
from isocompute_sdk.run_folders import journal_records
from isocompute_sdk.run_folders.store import METRICS_FILE, find_runs

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PROBE, VALIDATION = "train_probe", "validation"
TIMES = (0.0, 1 / 9, 1 / 3, 1.0)
"""Shares of the common compute at which distributions are drawn."""
MAX_BINS = 11
"""Bins of a distribution over pass rates."""
BANDS = {
    "hard": float(HARD_MAX),
    "between": float(EASY_MIN),
    "easy": float(EASY_MAX),
    "very easy": float(VERY_EASY_MAX),
    "solved": 1.0,
}
"""Largest pass rate of each band. Together they hold every problem; those of easy begin at `EASY_MIN` (paper, section
3)."""


@dataclass(frozen=True, eq=False)
class PassCounts:
    """Right samples of every problem over one run."""

    run_id: str
    group_size: int
    rollouts_T: Array
    passes_TP: Array
    samples_TP: Array

    @property
    def rate_TP(self) -> Array:
        """Pass rate, pass@1, of every problem."""
        return self.passes_TP / self.samples_TP

    @property
    def polarisation_T(self) -> Array:
        """`polarisation` of every evaluation."""
        return np.array([polarisation(k, m) for k, m in zip(self.passes_TP, self.samples_TP, strict=True)])


def polarisation(passes_P: ArrayLike, samples_P: ArrayLike) -> float:
    """How unequal problems are: 0 if all have one pass rate p, 1 if every p is 0 or 1.

    Var(p) / (mean p (1 - mean p)) with the sampling noise taken out: E[p^2] is estimated by k (k - 1) / (m (m - 1))
    from k right samples of m. It rises where training helps some problems at the cost of others (paper, section 6).
    NaN with fewer than two samples per problem, or a mean of 0 or 1.
    """
    k, m = np.asarray(passes_P, dtype=float), np.asarray(samples_P, dtype=float)
    if k.size == 0 or np.any(m < 2):
        return float("nan")
    mean = float(np.mean(k / m))
    square = float(np.mean(k * (k - 1) / (m * (m - 1))))
    return (square - mean**2) / (mean * (1 - mean)) if 0 < mean < 1 else float("nan")


def read_pass_counts(
    folders: str | PathLike[str] | Sequence[str | PathLike[str]], eval_set: str | None = None
) -> list[PassCounts]:
    """Pass counts of every run below some folders.

    Args:
        folders: folders of runs that kept them (`metrics.jsonl` with `pass_counts`).
        eval_set: set of problems. None: the training probe if every run has it, else `validation`.

    Raises:
        RecordError: no runs, or none with pass counts on that set.
    """
    tops = [folders] if isinstance(folders, str | PathLike) else list(folders)
    found: dict[str, list[PassCounts]] = {}
    paths = [path for top in tops for path in find_runs(Path(top))]
    for path in paths:
        for name, one in _read(path).items():
            found.setdefault(name, []).append(one)
    if eval_set is None:
        eval_set = PROBE if len(found.get(PROBE, ())) == len(paths) else VALIDATION
    if not found.get(eval_set):
        there = f" (there: {', '.join(found)})" if found else ""
        raise RecordError(
            f"none of {len(paths)} run(s) kept pass counts per problem on {eval_set}{there}; needed: records of kind "
            f"evaluation with pass_counts and sample_counts in {METRICS_FILE}",
            "The built-in runner writes them; its option probe_problems adds a set of training problems.",
        )
    return found[eval_set]


def _read(folder: Path) -> dict[str, PassCounts]:
    """Pass counts of one run by evaluation set."""
    records = journal_records.read(folder / METRICS_FILE)
    sizes = [int(one["group_size"]) for one in records if one.get("kind") == "run" and one.get("group_size")]
    kept = [one for one in records if one.get("kind") == "evaluation" and one.get("pass_counts")]
    found: dict[str, PassCounts] = {}
    for name in dict.fromkeys(one.get("eval_set") or VALIDATION for one in kept) if sizes else ():
        mine = [one for one in kept if (one.get("eval_set") or VALIDATION) == name and one.get("rollouts") is not None]
        samples = [one.get("sample_counts") or [one.get("samples") or 0] * len(one["pass_counts"]) for one in mine]
        if len({len(one["pass_counts"]) for one in mine} | set(map(len, samples))) != 1:
            continue
        at = np.array([one["rollouts"] for one in mine], dtype=float)
        passes, drawn = (np.array(part, dtype=float) for part in ([one["pass_counts"] for one in mine], samples))
        # A problem without a sample has no pass rate.
        known = np.all(drawn > 0, axis=0)
        if not known.any():
            continue
        found[name] = PassCounts(
            str(mine[0].get("run_id") or folder.name), sizes[0], at, passes[:, known], drawn[:, known]
        )
    return found


@style.styled
def pass_rates(folders: str | PathLike[str] | Sequence[str | PathLike[str]], *, eval_set: str | None = None) -> Axes:
    """Distribution of pass@1 over problems at four points of training, a panel per n, and how it polarises.

    Computes are the same for every n: 0, 1/9, 1/3 and all of what every n reached. The last panel is
    `polarisation`: little change means little interference between problems, a rise that some gain while others are
    lost. Interference is a matter of the training problems; on held-out ones it shows only in part.

    Args:
        folders: folders of runs that kept pass counts.
        eval_set: set of problems. None: the training probe if every run has it, else `validation`.

    Returns:
        The first axes; all are in `axes.figure.axes`.

    Raises:
        RecordError: no pass counts.
    """
    runs = read_pass_counts(folders, eval_set)
    sizes = sorted({run.group_size for run in runs})
    common = min(max(float(run.rollouts_T[-1]) for run in runs if run.group_size == n) for n in sizes)
    axes = style.panels(len(sizes) + 1, columns=2 if len(sizes) in (1, 3) else 3)
    samples = int(max(run.samples_TP.max() for run in runs))
    # A bin for every possible rate of few samples.
    bins = min(samples + 1, MAX_BINS)
    edges = (np.arange(bins + 1) - 0.5) / (bins - 1)
    shades = style.colours(len(TIMES))
    tallest = 0.0
    for ax, n in zip(axes, sizes, strict=False):
        mine = [run for run in runs if run.group_size == n and run.rollouts_T[-1] >= 0.9 * common]
        for share, colour, mark in zip(TIMES, shades, style.MARKERS, strict=False):
            rates = [run.rate_TP[int(np.argmin(np.abs(run.rollouts_T - share * common)))] for run in mine]
            height, _ = np.histogram(np.concatenate(rates), edges)
            part = height / height.sum()
            tallest = max(tallest, float(part.max()))
            text, middle = f"C = {short(share * common)}", (edges[1:] + edges[:-1]) / 2
            ax.plot(middle, part, mark + "-", color=colour, markersize=4, linewidth=1.5, label=text)
        ax.set_title(f"n = {n}")
        ax.set_xlabel("pass@1 of a problem")
        ax.set_ylabel("share of problems")
    for ax in axes[:-1]:
        ax.set_ylim(0, tallest * 1.08)
    axes[0].legend(loc="upper center")
    _draw_polarisation(axes[-1], runs, style.by_size(sizes))
    return axes[0]


def _draw_polarisation(ax: Axes, runs: Sequence[PassCounts], look: style.Look) -> None:
    ends: dict[int, list[float]] = {}
    low, high = np.inf, 0.0
    for run in runs:
        colour, mark = look[run.group_size]
        values = run.polarisation_T
        seen = (run.rollouts_T > 0) & np.isfinite(values)
        if not seen.any():
            continue
        x, y = run.rollouts_T[seen], values[seen]
        ax.plot(x, y, mark + "-", color=colour, markersize=3, linewidth=1.1, label=run.run_id)
        ends.setdefault(run.group_size, []).append(float(y[-1]))
        low, high = min(low, float(x[0])), max(high, float(x[-1]))
    if not ends:
        raise RecordError(
            "polarisation needs two or more samples per problem; received one", "Evaluate with more samples."
        )
    style.log_axis(ax, low / 1.1, max(high, low * 1.5) * 1.1, "sampling compute C (rollouts)")
    ax.set_ylabel("polarisation")
    ax.set_title("Interference: 0 even, 1 all or nothing")
    style.name_sizes(ax, ends, look)


@style.styled
def difficulty(passes_P: ArrayLike, samples: int, *, ax: Axes | None = None) -> Axes:
    """How many problems the base model solves how often, with the paper's bands and the problems in each.

    Args:
        passes_P: right samples of each problem, shape (problems,).
        samples: samples of each problem.
        ax: where to draw; a new figure by default.

    Raises:
        RecordError: counts outside 0 to `samples`, or none.
    """
    passes = np.asarray(passes_P, dtype=float).ravel()
    if passes.size == 0 or samples < 1 or passes.min() < 0 or passes.max() > samples or np.any(passes % 1):
        raise RecordError(
            f"passes_P: {passes.size} counts for {samples} samples; accepted: whole numbers from 0 to samples",
            "Give the right samples of each problem.",
        )
    ax = style.canvas(ax)
    # One bar per possible count while these can be told apart.
    step = int(np.ceil((samples + 1) / 33))
    counts = np.bincount((passes // step).astype(int), minlength=samples // step + 1)
    at = (np.arange(len(counts)) * step + (step - 1) / 2) / samples
    ax.bar(at, counts, width=0.9 * step / samples, color=style.PLAN, zorder=2)
    top = float(counts.max())
    low, rest = 0.0, passes
    for i, (name, high) in enumerate(BANDS.items()):
        # A rate of exactly `EASY_MIN` is easy, every other end belongs to the band below it.
        inside = rest < high * samples - 1e-9 if name == "between" else rest <= high * samples + 1e-9
        left, right = (low - 0.5 / samples if i == 0 else low), (high + 0.5 / samples if high == 1 else high)
        ax.axvspan(left, right, color=style.MUTED, alpha=0.08 + 0.06 * (i % 2), linewidth=0, zorder=1)
        text = f"{name}\n{int(np.sum(inside)):,}"
        ax.text((left + right) / 2, top * 1.06, text, ha="center", va="bottom", fontsize=8, color=style.MUTED)
        low, rest = high, rest[~inside]
    ax.set_xlim(-0.5 / samples, 1 + 0.5 / samples)
    ax.set_ylim(0, top * 1.3)
    ax.set_xlabel(f"pass rate of the base model ({samples} samples)")
    ax.set_ylabel("problems")
    ax.grid(axis="x", visible=False)
    ax.set_title(f"Difficulty of {passes.size:,} problems")
    return ax


def base_passes(
    folders: str | PathLike[str] | Sequence[str | PathLike[str]], eval_set: str | None = None
) -> tuple[Array, int]:
    """Right samples of each problem before training, and samples, of the run with most of them.

    Raises:
        RecordError: no evaluation at step 0 with pass counts.
    """
    found = [run for run in read_pass_counts(folders, eval_set) if run.rollouts_T[0] == 0]
    if not found:
        raise RecordError(
            "no run was evaluated at step 0; needed: pass counts of the base model", "Evaluate before training."
        )
    run = max(found, key=lambda one: float(one.samples_TP[0].min()))
    samples = int(run.samples_TP[0].min())
    return run.passes_TP[0][run.samples_TP[0] == samples], samples
