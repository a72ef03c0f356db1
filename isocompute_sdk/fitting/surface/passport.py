"""The extrapolation passport: how far a fit can be trusted beyond its data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import NormalDist
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from isocompute_sdk import notebook
from isocompute_sdk.errors import FieldError
from isocompute_sdk.fitting.arrays import Array, Count, NotNegative, Number, Positive
from isocompute_sdk.fitting.surface.data import WINDOW, PreparedRun
from isocompute_sdk.fitting.surface.posterior import fit_surface
from isocompute_sdk.fitting.surface.prior import DEFAULT_PRIOR, Prior
from isocompute_sdk.fitting.surface.surface import RISEN, SMALLEST_RISE, Surface, SurfaceCurve
from isocompute_sdk.notes import Note
from isocompute_sdk.phrases import counted, joined, off, short
from isocompute_sdk.tolerances import LEVEL, MIN_LEVELS, NEAR

Share = Annotated[float, Field(ge=0, le=1)]

CHECKING_DRAWS = 50
"""Draws of a fit to a part of the runs, which checks the whole one."""
MIN_BINS = 6
"""Fewest bins that must remain for a backtest."""
MIN_COVERAGE = 0.5
"""Share of the hidden runs inside their 80 % intervals below which a backtest has failed."""
MANY_OUTLIERS, MIN_OUTLIERS = 0.02, 3
"""Share of outlying evaluations above which they are a warning, and the fewest that are."""
LITTLE_RISE = 0.5
"""Share of a curve's rise below which its end is mostly a guess."""


@dataclass(frozen=True)
class HiddenRun:
    """One run of a backtest: its last hidden evaluations, averaged over one bin, and what was predicted for it."""

    run_id: str
    group_size: Count
    problems_per_batch: Count | None
    compute: Positive
    """Compute of its last hidden evaluation."""
    measured: Number
    predicted: Number
    low: Number
    """Lower end of its 80 % interval."""
    high: Number


@dataclass(frozen=True)
class Backtest:
    """Test of the extrapolation: the last part of the compute axis hidden and predicted from the rest."""

    hidden_beyond: Positive
    """Compute beyond which evaluations were hidden."""
    factor: Positive
    """Largest hidden compute over the largest that was kept."""
    runs: Count
    """Runs with hidden evaluations."""
    mean_error: Number
    """Measured minus predicted reward, averaged over runs."""
    rms_error: NotNegative
    coverage: Share
    """Share of runs whose last hidden stretch lay in its 80 % interval for one run."""
    surprise: NotNegative
    """Root mean square error in units of the predicted standard deviation."""
    by_run: tuple[HiddenRun, ...] = field(repr=False)
    """The runs one by one."""

    @property
    def missed(self) -> bool:
        """Whether the start of these runs does not predict their end."""
        return self.coverage < MIN_COVERAGE and self.runs > 1


@dataclass(frozen=True)
class Passport:
    """How far the fit may be extrapolated."""

    backtest: Backtest | None
    """None with too little data for one."""
    largest_compute: Positive
    """Largest compute with an evaluation."""
    rise_seen: tuple[Share, Share]
    """Smallest and largest measured share of the predicted rise, over configurations."""
    group_sizes: Count
    """Number of levels of n."""
    best_at_edge: Literal["largest", "smallest"] | None
    """Whether the best n at the largest compute is the last of the grid, and at which end."""
    seeds_per_cell: NotNegative
    """Runs per (n, B_p)."""
    gain_between_levels: NotNegative
    """Spread of the predicted reward over the levels of n at the largest compute."""
    noise: NotNegative
    """Standard deviation of one evaluation."""
    unstable_problems_per_batch: tuple[Count, ...]
    """Levels of B_p at which at least half of the runs collapsed."""
    beyond_grid_octaves: Annotated[int, Field(ge=0, le=64)]
    """Octaves above the largest n that a plan may use by default."""
    most_rise_seen: tuple[Share, Share]
    """80 % interval of the largest share of a rise that was measured."""
    outlying_runs: Mapping[str, float]
    """Runs that do not agree with the others, with by how much they lie above the fit."""
    outlying_evaluations: Mapping[str, Count]
    """Evaluations that lie far from their neighbours and were moved towards them, by run."""
    ends_left_out: Mapping[str, Positive]
    """Runs of which the end is left out, as it lies below the best level; the compute up to which they count."""
    evaluations: Count
    """Evaluations of all runs after step 0, up to any fall."""

    @property
    def least_rise_seen(self) -> float:
        """Half-way from the lower end to the mean of the largest share that was measured, about its lower quartile."""
        return (self.most_rise_seen[0] + self.rise_seen[1]) / 2

    @property
    def doubts(self) -> tuple[str, ...]:
        """Codes of the notes for which no n counts as decided."""
        outlying = sum(self.outlying_evaluations.values())
        found = {
            "outlying-evaluations": outlying >= MIN_OUTLIERS and outlying > MANY_OUTLIERS * self.evaluations,
            "outlying-run": bool(self.outlying_runs),
            "backtest-missed": self.backtest is not None and self.backtest.missed,
            "plateau-unidentified": self.least_rise_seen < LITTLE_RISE,
        }
        return tuple(code for code, holds in found.items() if holds)

    def __repr__(self) -> str:
        return "Passport(" + "\n  ".join(self.lines()) + ")"

    def _repr_html_(self) -> str:
        return notebook.listed(self.lines())

    def __post_init__(self) -> None:
        if self.rise_seen[0] > self.rise_seen[1]:
            raise FieldError("rise_seen", self.rise_seen, "smallest and largest share")

    def lines(self) -> list[str]:
        """The passport as text; the first line is the backtest."""
        test = self.backtest
        known = " and everything after a fall left out" if self.ends_left_out else ""
        first = (
            "backtest: not possible, too few evaluations would remain"
            if test is None
            else f"backtest: with everything beyond C = {short(test.hidden_beyond)} hidden{known}, the ends of runs "
            f"(up to {test.factor:.1f}x further) are predicted {off(-test.mean_error)} on average (rms error "
            f"{test.rms_error:.3f}); {round(test.coverage * test.runs)} of {test.runs} lie in their 80 % interval"
        )
        low, high = (f"{end:.0%}" for end in self.rise_seen)
        seen = low if low == high else f"{low} to {high}"
        edge = f", the {self.best_at_edge} of them best" if self.best_at_edge else ""
        return [
            first,
            f"share of each curve's rise seen: {seen}; largest compute {short(self.largest_compute)}",
            f"{counted(self.group_sizes, 'level')} of n{edge}; {self.seeds_per_cell:.2g} "
            + ("run" if self.seeds_per_cell == 1 else "runs")
            + " per configuration",
            f"difference between levels of n {self.gain_between_levels:.3f}, noise of one evaluation {self.noise:.3f}",
        ]

    def ends_note(self, fell: Collection[str]) -> list[Note]:
        """On ends that are left out, but of runs that fell, of which health says where; empty without any."""
        ends = {run: at for run, at in self.ends_left_out.items() if run not in fell}
        named = "; ".join(f"{run} after C = {short(at)}" for run, at in list(ends.items())[:5])
        text = (
            f"The fit leaves out the ends of {counted(len(ends), 'run')}, where rewards, smoothed over {WINDOW} "
            f"evaluations, lie below their best by more than the noise of all runs: {named}."
        )
        return [Note("ends-left-out", "info", text, {"runs": ends})] if ends else []

    def notes(self, group_sizes: Sequence[int]) -> list[Note]:
        """What limits the fit, as notes."""
        notes: list[Note] = []
        if self.group_sizes < MIN_LEVELS:
            unknown = (
                "the fit predicts rewards at this n, but cannot say which n is best"
                if self.group_sizes == 1
                else "between and beyond them the prior decides most of the answer"
            )
            ran = f"{joined([*map(str, group_sizes)])} {'was' if len(group_sizes) == 1 else 'were'} run"
            text = f"Only n = {ran}: {unknown}. Runs at other n would show it."
            notes.append(Note("few-group-sizes", "warning", text, {"group_sizes": list(group_sizes)}))
        if self.seeds_per_cell < 1.5:
            text = (
                f"{'Each configuration was' if self.seeds_per_cell <= 1 else 'Most configurations were'} run once: how "
                "much runs with the same settings differ is assumed, not seen. A second seed at two levels of n would "
                "show it."
            )
            notes.append(Note("one-seed-per-cell", "info", text, {"seeds_per_cell": self.seeds_per_cell}))
        test = self.backtest
        if test is not None and test.missed:
            text = (
                f"With everything beyond C = {short(test.hidden_beyond)} hidden, {round(test.coverage * test.runs)} of "
                f"{test.runs} runs ended inside their 80 % interval (rms error {test.rms_error:.3f}): the start of "
                "these runs does not predict their end."
            )
            numbers = {"coverage": test.coverage, "rms_error": test.rms_error}
            notes.append(Note("backtest-missed", "warning", text, numbers))
        if self.least_rise_seen < LITTLE_RISE:
            text = (
                f"The runs end early: none has shown more than {self.rise_seen[1]:.0%} of the rise that the fit "
                "expects of it. How far rewards go, and at which n, is mostly guessed from other sweeps. Longer runs "
                "at two levels of n would show it."
            )
            notes.append(Note("plateau-unidentified", "warning", text, {"rise_seen": list(self.rise_seen)}))
        return notes


def passport(
    surface: Surface, prepared: Sequence[PreparedRun], curves: Sequence[SurfaceCurve], test: Backtest | None
) -> Passport:
    """The passport of a surface, with its curves and its backtest."""
    runs = [run for run in prepared if len(run.log_compute_J)]
    levels = sorted({run.group_size for run in runs})
    cells = {(run.group_size, run.problems_per_batch, run.n_problems) for run in runs}
    reward_N = surface.predict(surface.largest_compute, np.array(levels, dtype=float))
    best = int(np.argmax(reward_N))
    edge = None if len(levels) < 2 else "largest" if best == len(levels) - 1 else "smallest" if best == 0 else None
    seen = [curve.rise_seen for curve in curves]
    return Passport(
        backtest=test,
        largest_compute=surface.largest_compute,
        rise_seen=(min(seen), max(seen)),
        group_sizes=len(levels),
        best_at_edge=edge,
        seeds_per_cell=len(runs) / len(cells),
        gain_between_levels=float(np.ptp(reward_N)),
        noise=surface.noise,
        unstable_problems_per_batch=_unstable(prepared),
        beyond_grid_octaves=1 if len(levels) > 1 else 0,
        most_rise_seen=_most_rise_seen(surface, runs),
        outlying_runs=surface.outlying,
        outlying_evaluations={run.run_id: run.outliers for run in prepared if run.outliers},
        ends_left_out={run.run_id: run.fault_compute for run in prepared if run.fault_compute is not None},
        evaluations=max(sum(int(run.count_J.sum()) for run in prepared), 1),
    )


def backtest(
    runs: Sequence[PreparedRun], bounds: tuple[float, float], rng: np.random.Generator, prior: Prior = DEFAULT_PRIOR
) -> Backtest | None:
    """Fit without the last part of the compute axis and predict the last bin of each run; None with too little data."""
    runs = [run for run in runs if len(run.log_compute_J)]
    end = max(run.last_compute for run in runs)
    cut = float(np.log(end / NEAR))
    kept = [_truncated(run, run.log_compute_J <= cut) for run in runs]
    shown = [run for run in kept if len(run.log_compute_J)]
    hidden = [run for run in runs if run.log_compute_J[-1] > cut]
    # After a collapse the end of a run is dropped, so there may be nothing to hide.
    if not hidden:
        return None
    if sum(len(run.log_compute_J) for run in shown) < MIN_BINS or len({run.group_size for run in shown}) < 2:
        return None
    surface = fit_surface(shown, bounds, CHECKING_DRAWS, rng, prior)
    # Of each run its last bin.
    compute_R = np.exp([run.log_compute_J[-1] for run in hidden])
    measured_R, count_R = np.array([(run.reward_J[-1], run.count_J[-1]) for run in hidden]).T
    mean_R, low_R, high_R = surface.interval("run", LEVEL, compute_R, *_configurations(hidden))
    # The interval is for one evaluation; the mean of several has less noise.
    noise = NormalDist().inv_cdf((1 + LEVEL) / 2) * surface.noise
    shrink_R = noise**2 * (1.0 - 1.0 / count_R)
    below_R, above_R = _less(mean_R - low_R, shrink_R), _less(high_R - mean_R, shrink_R)
    found = measured_R - mean_R
    inside = (found >= -below_R) & (found <= above_R)
    width_R = np.where(found > 0, above_R, below_R) / NormalDist().inv_cdf((1 + LEVEL) / 2)
    return Backtest(
        hidden_beyond=float(np.exp(cut)),
        factor=end / max(float(np.exp(run.log_compute_J[-1])) for run in shown),
        runs=len(found),
        mean_error=float(found.mean()),
        rms_error=float(np.sqrt(np.mean(found**2))),
        coverage=float(np.mean(inside)),
        surprise=float(np.sqrt(np.mean((found / np.maximum(width_R, 1e-9)) ** 2))),
        by_run=tuple(
            HiddenRun(
                run_id=run.run_id,
                group_size=run.group_size,
                problems_per_batch=run.problems_per_batch,
                compute=run.last_compute,
                measured=float(measured_R[i]),
                predicted=float(mean_R[i]),
                low=float(mean_R[i] - below_R[i]),
                high=float(mean_R[i] + above_R[i]),
            )
            for i, run in enumerate(hidden)
        ),
    )


def _unstable(runs: Sequence[PreparedRun]) -> tuple[int, ...]:
    collapsed = Counter(run.problems_per_batch for run in runs if run.fault == "collapse")
    every = Counter(run.problems_per_batch for run in runs)
    return tuple(sorted(bp for bp, count in collapsed.items() if bp is not None and 2 * count >= every[bp]))


def _less(width: Array, squared: Array) -> Array:
    return np.sqrt(np.maximum(width**2 - squared, 0.0))


def _configurations(runs: Sequence[PreparedRun]) -> tuple[Array, Array]:
    """Group size and B_p of runs; NaN for an unknown B_p."""
    problems = [run.problems_per_batch for run in runs]
    return (
        np.array([run.group_size for run in runs], dtype=float),
        np.array([np.nan if bp is None else bp for bp in problems], dtype=float),
    )


def _truncated(run: PreparedRun, keep: np.ndarray[Any, np.dtype[np.bool_]]) -> PreparedRun:
    kept: Array = run.log_compute_J[keep]
    return replace(
        run,
        log_compute_J=kept,
        reward_J=run.reward_J[keep],
        count_J=run.count_J[keep],
        first_J=run.first_J[keep],
        last_compute=float(np.exp(kept[-1])) if len(kept) else 0.0,
    )


def _most_rise_seen(surface: Surface, runs: Sequence[PreparedRun]) -> tuple[float, float]:
    """80 % interval, over draws, of the largest share of a rise that any run's end has shown."""
    sizes, problems = _configurations(runs)
    base_D1 = surface.parameters_DP[:, :1]
    gained_DR = surface.draws(np.array([run.last_compute for run in runs]), sizes, problems) - base_D1
    rise_DR = surface.draws(surface.largest_compute * RISEN, sizes, problems) - base_D1
    risen = rise_DR > SMALLEST_RISE
    seen_DR = np.where(risen, np.clip(gained_DR / np.where(risen, rise_DR, 1.0), 0.0, 1.0), 1.0)
    low, high = np.quantile(seen_DR.max(axis=1), [0.1, 0.9])
    return float(low), float(high)
