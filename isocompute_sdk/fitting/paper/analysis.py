"""`method="paper"`: record-breaking points, a monotone curve per configuration, envelope, sigmoid of n*."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from isocompute_sdk.errors import FitError
from isocompute_sdk.fitting.arguments import MethodOptions
from isocompute_sdk.fitting.arrays import Array
from isocompute_sdk.fitting.fit_parts import Configuration
from isocompute_sdk.fitting.fits import Fits
from isocompute_sdk.fitting.frontier_laws import about_curves, about_laws, with_group_size_law, with_step_laws
from isocompute_sdk.fitting.paper.reward_curve import Points, fit_curve
from isocompute_sdk.fitting.surface.data import SurfaceRun
from isocompute_sdk.notes import Note, unique
from isocompute_sdk.phrases import counted

Standing = defaultdict[Configuration, list[tuple[Array, Array]]]
"""Compute and reward of records that stood to the end of their run, each as an array of one."""


@dataclass(frozen=True)
class PaperOptions(MethodOptions):
    """Options of the paper's method."""

    points: Literal["records", "all"] = "records"
    """`records`: the paper's record-breaking points; `all`: every evaluation, which is less biased."""
    bin_width: float = 0.005
    """Width of a reward bin for `records`, as a share of the metric's range."""
    curve: str = "auto"
    """Curve shape, a key of `SHAPES`, or `auto`."""

    def __post_init__(self) -> None:
        if self.points not in ("records", "all"):
            raise FitError(f"points = {self.points!r}; accepted: 'records', 'all'", "Use one of the two.")
        # Command lines and notebooks pass any type.
        width: Any = vars(self)["bin_width"]
        if isinstance(width, bool) or not isinstance(width, float | int) or not 0 < width <= 1:
            raise FitError(
                f"bin_width = {width!r}; accepted: a share of the metric's range, 0 < width <= 1",
                "The paper uses 0.005.",
            )
        super().__post_init__()


def fit_paper(
    runs: Sequence[SurfaceRun],
    metric: str,
    bounds: tuple[float, float],
    options: PaperOptions,
) -> Fits:
    """Fit curves, frontier and laws to the runs of one context."""
    _refuse_partly_known(runs)
    points, standing, dropped = _pool(runs, options, bounds)
    curves = {key: fit_curve(p, options.curve, bounds) for key, p in points.items()}
    if len({n for n, _ in curves}) < 2:
        levels = sorted({run.group_size for run in runs})
        kind = " that break their run's record" if options.points == "records" else ""
        raise FitError(
            f"{counted(len({n for n, _ in curves}), 'group size')} with two or more evaluations of {metric!r}{kind} "
            f"(group sizes in the runs: {levels}); accepted: two group sizes or more",
            "Run at least two group sizes, better four, at the same B_p.",
        )
    fits = Fits(
        metric=metric,
        method="paper",
        curves=curves,
        compute=options.compute,
        bounds=bounds,
        max_rollouts_per_batch=options.max_rollouts_per_batch,
    )
    along = [fit_curve(p, options.curve, bounds) for p in _per_group_size(points, standing)]
    fits = with_group_size_law(fits, along)
    fits = with_step_laws(fits, options.rollouts_per_batch)
    notes = unique([*dropped, *fits.notes, *about_curves(fits), *about_laws(fits)])
    return replace(fits, notes=notes)


def _refuse_partly_known(runs: Sequence[SurfaceRun]) -> None:
    unknown = [run.run_id for run in runs if run.problems_per_batch is None]
    if unknown and len(unknown) < len(runs):
        raise FitError(
            f"{len(unknown)} of {len(runs)} runs do not record their problems per batch ({', '.join(unknown[:3])}); "
            "accepted: known for all runs or for none",
            "Add <--set problems_per_batch=... | problems_per_batch=...> if all have the same, or fit them separately.",
        )


def _pool(
    runs: Sequence[SurfaceRun], options: PaperOptions, bounds: tuple[float, float]
) -> tuple[dict[Configuration, Points], Standing, list[Note]]:
    """Evaluations pooled by configuration, after the selection of record-breaking points run by run.

    Returns:
        The points, the records that stood to the end of their run, and notes.
    """
    kept: dict[Configuration, list[tuple[Array, Array]]] = defaultdict(list)
    base: dict[Configuration, list[float]] = defaultdict(list)
    seen: dict[Configuration, list[float]] = defaultdict(list)
    standing: Standing = defaultdict(list)
    for run in runs:
        key = (run.group_size, run.problems_per_batch)
        order = np.argsort(run.compute_T, kind="stable")
        compute, reward = run.compute_T[order], run.reward_T[order]
        base[key].extend(reward[compute == 0].tolist())
        seen[key].extend(compute[compute > 0].tolist())
        if options.points == "records":
            index = record_breaking(reward, options.bin_width * (bounds[1] - bounds[0]), bounds[0])
            if index[-1] < len(reward) - 1:
                standing[key].append((compute[-1:], reward[index[-1:]]))
            compute, reward = compute[index], reward[index]
        kept[key].append((compute, reward))
    pooled: dict[Configuration, Points] = {}
    notes: list[Note] = []
    for key in sorted(kept, key=lambda k: (k[0], k[1] or 0)):
        compute = np.concatenate([c for c, _ in kept[key]])
        reward = np.concatenate([r for _, r in kept[key]])
        order = np.argsort(compute, kind="stable")
        if len(np.unique(compute)) < 2 or compute.max() <= 0:
            notes.append(_dropped(key, len(compute), options.points))
            continue
        base_reward = float(np.mean(base[key])) if base[key] else None
        pooled[key] = Points(
            *key,
            compute_T=compute[order],
            reward_T=reward[order],
            base_reward=base_reward,
            observed=(min(seen[key]), max(seen[key])),
        )
    return pooled, standing, notes


def _per_group_size(points: Mapping[Configuration, Points], standing: Standing) -> list[Points]:
    """The points that n*(C) is read from, by increasing n: of all B_p, as the law is about n alone (paper, section 4).

    A record that stood to the end of its run counts there again: it is known to be hard to beat. A curve through two or
    three early records would rise without limit where the run was flat.
    """
    found: list[Points] = []
    for n in sorted({n for n, _ in points}):
        parts = [p for (size, _), p in points.items() if size == n]
        late = [pair for p in parts for pair in standing[p.group_size, p.problems_per_batch]]
        compute = np.concatenate([*(p.compute_T for p in parts), *(at for at, _ in late)])
        reward = np.concatenate([*(p.reward_T for p in parts), *(value for _, value in late)])
        order = np.argsort(compute, kind="stable")
        bases = [p.base_reward for p in parts if p.base_reward is not None]
        seen = [p.observed for p in parts if p.observed is not None]
        found.append(
            Points(
                n,
                parts[0].problems_per_batch if len(parts) == 1 else None,
                compute[order],
                reward[order],
                float(np.mean(bases)) if bases else None,
                (min(first for first, _ in seen), max(last for _, last in seen)) if seen else None,
            )
        )
    return found


def _dropped(key: Configuration, evaluations: int, points: str) -> Note:
    problems = "unknown" if key[1] is None else key[1]
    return Note(
        "run-left-out",
        "warning",
        f"n = {key[0]}, B_p = {problems}: {counted(evaluations, 'usable evaluation')} (points='{points}'), too few for "
        "a curve, so it takes no part in the frontier. Evaluate during training, or count all of them (points: all).",
        {"group_size": key[0], "problems_per_batch": key[1], "evaluations": evaluations},
    )


def record_breaking(reward_T: Array, bin_width: float, start: float = 0.0) -> np.ndarray:
    """Indices of the evaluations that enter a higher reward bin than all before them in the run.

    These points are biased upwards, by .02 to .03 of reward at an evaluation noise of .012. More evaluations give a
    larger bias, which favours small n. The bias of `points="all"` is below .0005.

    Args:
        reward_T: rewards of one run in the order of its evaluations.
        bin_width: width of a bin, in units of reward.
        start: lower edge of the first bin, normally the metric's lower bound.
    """
    if not bin_width > 0:
        raise FitError(
            f"bin_width = {bin_width}; accepted: a positive reward difference, such as 0.005",
            "The paper uses 0.005.",
        )
    # The tolerance puts a reward on an edge, up to rounding, into the bin above.
    bins = np.floor((np.asarray(reward_T, dtype=float) - start) / bin_width + 1e-9)
    before = np.concatenate([[-np.inf], np.maximum.accumulate(bins)[:-1]])
    return np.flatnonzero(bins > before)
