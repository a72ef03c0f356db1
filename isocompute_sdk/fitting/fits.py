"""`Fits`: reward curves, frontier, laws and notes of one metric; `FitsSet`: of several on the same runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import log2
from typing import TYPE_CHECKING, Annotated, Any, Self, cast

import numpy as np
import numpy.typing as npt

from isocompute_sdk import notebook
from isocompute_sdk.documents import Converted, Document, Saved
from isocompute_sdk.errors import FieldError, FitError
from isocompute_sdk.fitting.allocation import AllocationLaw
from isocompute_sdk.fitting.arguments import (
    check_kind,
    check_law_name,
    check_level,
    check_problems,
    increasing_sizes,
    one_positive,
    positive,
    together,
)
from isocompute_sdk.fitting.arrays import Array, ComputeAxis, Count, Matrix, Number
from isocompute_sdk.fitting.fit_parts import (
    FRONTIER_BEGINS,
    Configuration,
    Frontier,
    Handover,
    Kind,
    Method,
    Prediction,
    Reached,
    SurfacePoints,
    between_levels,
    by_configuration,
    check_laws,
    fitted_curves,
    frontier,
    handovers,
    span,
)
from isocompute_sdk.fitting.measured_runs import best_reached, run_surfaces
from isocompute_sdk.fitting.paper.reward_curve import RewardCurve, check_evaluations
from isocompute_sdk.fitting.run_surface import RunSurface
from isocompute_sdk.fitting.surface.answers import GroupSizeOdds, best_size_interval, chosen_sizes, group_size_odds
from isocompute_sdk.fitting.surface.passport import Passport
from isocompute_sdk.fitting.surface.surface import Surface, curve_of
from isocompute_sdk.metrics import LEADING
from isocompute_sdk.notebook import frame_of
from isocompute_sdk.notes import Note
from isocompute_sdk.phrases import counted, or_unknown, short
from isocompute_sdk.records.comparable import RunSettings
from isocompute_sdk.records.grouping import kin
from isocompute_sdk.records.reward_metrics import no_rise_note
from isocompute_sdk.records.runset import RunSet
from isocompute_sdk.tolerances import Tolerances

if TYPE_CHECKING:
    from isocompute_sdk.notebook import Frame


@dataclass(frozen=True, eq=False)
class Fits(Saved):
    """Everything fitted for one metric. Frozen."""

    metric: str
    """Metric fitted, e.g. `avg@4`."""
    method: Method
    curves: Annotated[
        Mapping[Configuration, RewardCurve], Converted(fitted_curves, by_configuration, tuple[RewardCurve, ...])
    ] = field(default_factory=dict[Configuration, RewardCurve])
    """Reward curve per (group size, problems per batch). Those of a surface are made from it and its points."""
    laws: Mapping[str, AllocationLaw] = field(default_factory=dict[str, AllocationLaw])
    """Allocation laws by name; `law(name)` says why one is missing."""
    unsupported: Mapping[str, str] = field(default_factory=dict[str, str])
    """Why a law could not be fitted, by its name."""
    notes: tuple[Note, ...] = ()
    compute: ComputeAxis = "log10_rollouts"
    """Unit of the compute axis of curves and law: rollouts or tokens."""
    eval_set: str | None = None
    model: str | None = None
    """Model of the runs; None if they do not record one."""
    n_problems: Count | None = None
    """Distinct training problems; None if unknown or different between runs."""
    settings: tuple[RunSettings, ...] = ()
    """What the runs were trained with; empty for published laws."""
    bounds: tuple[Number, Number] = (0.0, 1.0)
    """Range of the metric."""
    source: str | None = None
    """Name of the published law, for `method="published"`."""
    rollouts_per_batch: Count | None = None
    """Fixed batch B of the laws in steps."""
    max_rollouts_per_batch: Count | None = None
    """Largest batch B_max of the sweep; None if unknown."""
    grid: tuple[Count, Count] | None = None
    """Smallest and largest n of the sweep, for published laws; None: those of the curves."""
    law_draws: Mapping[str, Matrix] = field(default_factory=dict[str, Array], repr=False)
    """Draws of the laws of a prior: L, k, midpoint, b; shape (draws, 4)."""
    surface: Surface | None = field(default=None, repr=False)
    """Joint model of all runs, for `method="surface"`."""
    surface_points: tuple[SurfacePoints, ...] | None = field(default=None, repr=False)
    """Evaluations behind the curves, for `method="surface"`."""
    passport: Passport | None = None
    """How far the surface may be extrapolated, for `method="surface"`."""
    flat_runs: Count | None = None
    """Number of runs, if none of them rises beyond its noise; None otherwise."""
    options: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)
    """Arguments of `fit`, which `refit` repeats."""
    runs: Mapping[str, Any] | None = field(default=None, repr=False)
    """Runs behind the fit in `RunSet.to_dict` form; None for published laws."""
    read_from: str = ""
    """Files of the runs with the options of reading, as typed; empty if they were not read by a command."""

    def __post_init__(self) -> None:
        if not self.bounds[0] < self.bounds[1]:
            raise FieldError("bounds", self.bounds, "(lowest, highest) value of the metric, increasing")
        if self.grid is not None and self.grid[0] > self.grid[1]:
            raise FieldError("grid", self.grid, "smallest and largest group size, increasing")
        check_laws(self.laws, self.law_draws, self.compute)
        parts = (self.surface, self.surface_points or None, self.passport)
        if self.method == "paper" and not self.curves:
            raise FieldError("curves", self.curves, "at least one, since the method is 'paper'")
        if self.method != "surface":
            if parts != (None, None, None):
                raise FieldError("method", self.method, "'surface', since there is a surface, its points or a passport")
            return
        for name, part in zip(("surface", "surface_points", "passport"), parts, strict=True):
            if part is None:
                raise FieldError(name, None, "given, since the method is 'surface'")
        self._add_curves_of_surface()

    def _add_curves_of_surface(self) -> None:
        """Make the curves from surface and points, unless they are there already."""
        surface, points = self.surface, self.surface_points
        assert surface is not None
        assert points is not None
        if (surface.layout.floor, surface.layout.top) != self.bounds:
            raise FieldError("bounds", self.bounds, f"{(surface.layout.floor, surface.layout.top)}, as of the surface")
        by_key = {(one.group_size, one.problems_per_batch): one for one in points}
        if len(by_key) < len(points):
            keys = [(one.group_size, one.problems_per_batch) for one in points]
            raise FieldError("surface_points", keys, "each configuration once")
        for one in points:
            check_evaluations(one.compute_T, one.reward_T)
        if not self.curves or any(getattr(c, "surface", None) is not surface for c in self.curves.values()):
            curves = {key: curve_of(surface, key, one.compute_T, one.reward_T, one.rms) for key, one in by_key.items()}
            object.__setattr__(self, "curves", curves)

    @cached_property
    def doubts(self) -> tuple[str, ...]:
        """Codes of the notes for which plans call no n decided."""
        found = () if self.passport is None else self.passport.doubts
        at_edge = any("at_edge" in note.data for note in self.notes if note.code == "outlying-run")
        return found if not at_edge or "outlying-run" in found else ("outlying-run", *found)

    @cached_property
    def tolerances(self) -> Tolerances:
        """What counts as equal on the scale of the metric."""
        return Tolerances(self.bounds[1] - self.bounds[0])

    @cached_property
    def group_sizes(self) -> tuple[int, ...]:
        """Levels of n that have a curve, increasing."""
        return tuple(sorted({n for n, _ in self.curves}))

    @cached_property
    def problems_per_batch(self) -> tuple[int, ...]:
        """Known levels of B_p that have a curve, increasing."""
        return tuple(sorted({bp for _, bp in self.curves if bp is not None}))

    @cached_property
    def group_size_range(self) -> tuple[int, int]:
        """Smallest and largest n that were run.

        Raises:
            FitError: a law without curves and without a grid.
        """
        if self.grid is not None:
            return self.grid
        if not self.curves:
            raise FitError(f"these fits ({self.method}) do not say which group sizes were run", "Fit your own runs.")
        return self.group_sizes[0], self.group_sizes[-1]

    @property
    def reach(self) -> tuple[int, int]:
        """Smallest and largest n that a surface predicts: those that were run, and one octave above."""
        smallest, largest = self.group_size_range
        return smallest, 2 * largest

    @cached_property
    def largest_compute(self) -> float | None:
        """Largest compute of a curve, else of the law's points; None for published laws that do not give it."""
        law = self.laws.get("group_size")
        if self.curves or law is None or law.x_range is None:
            return max((c.last_compute for c in self.curves.values()), default=None)
        return float(10.0 ** law.x_range[1])

    @cached_property
    def table(self) -> RunSet | None:
        """The runs behind the fit; None for published laws."""
        return None if self.runs is None else RunSet.from_dict(self.runs)

    @cached_property
    def size_by_run(self) -> Mapping[str, int]:
        """Group size by run id; empty without runs."""
        return {} if self.table is None else {run.run_id: run.group_size for run in self.table.runs()}

    @cached_property
    def best_reached(self) -> Reached | None:
        """The best reward that a run reached, by its own curve in this fit; None for published laws."""
        return best_reached(self)

    @cached_property
    def run_surfaces(self) -> Mapping[str, RunSurface]:
        """The surface of each run by id; empty without a surface or without runs."""
        return run_surfaces(self)

    def law(self, name: str = "group_size") -> AllocationLaw:
        """A law by name: `group_size`, `group_size_vs_steps` or `problems_per_batch_vs_steps`.

        Raises:
            FitError: unknown name, or a law that these runs do not support, with the reason.
        """
        check_law_name(name)
        if name in self.laws:
            return self.laws[name]
        reason = self.unsupported.get(name, "it is not part of these fits")
        raise FitError(f"there is no law {name!r} here: {reason}", f"Available laws: {', '.join(self.laws) or 'none'}.")

    def law_interval(
        self, value: npt.ArrayLike, level: float = 0.8, name: str = "group_size"
    ) -> tuple[Array, Array] | None:
        """Interval of a law's size at raw compute or M.

        Args:
            value: compute C, or M for the laws in steps; positive, any shape.
            level: coverage asked for.
            name: as in `law`. For `group_size` a surface gives the interval of the best n itself, widened to hold the
                n that plans choose.

        Returns:
            Lower and upper ends in the shape of `value`; None without draws.

        Raises:
            FitError: unknown name, a level outside 0 to 1, compute that is not positive.
        """
        level = check_level(level)
        check_law_name(name)
        if self.surface is not None and name == "group_size":
            at = np.atleast_1d(positive(value))
            ends = [best_size_interval(self.surface, float(c), self.reach, level) for c in at.ravel()]
            low, high = np.array(ends, dtype=float).reshape(-1, 2).T
            chosen = self.best_group_size(at)
            low, high = np.minimum(low, chosen), np.maximum(high, chosen)
        elif name in self.law_draws:
            at = np.atleast_1d(self.law(name).to_x(value))
            low, high = self.law(name).interval(self.law_draws[name], at.ravel(), level)
        else:
            return None
        return low.reshape(at.shape), high.reshape(at.shape)

    def select(self, problems_per_batch: int | None = None) -> list[RewardCurve]:
        """Curves by increasing n and B_p, or only those at one B_p.

        Raises:
            FitError: no curve at all, or none at that B_p.
        """
        if not self.curves:
            raise FitError(
                f"these fits ({self.source or self.method}) hold no reward curve, only a law",
                "Fit your own runs to predict rewards.",
            )
        chosen = [c for (_, bp), c in self.curves.items() if problems_per_batch in (None, bp)]
        if not chosen:
            raise FitError(
                f"no curve at problems_per_batch = {problems_per_batch}; "
                f"fitted: {list(self.problems_per_batch) or 'unknown'}",
                "Use a fitted one, or leave problems_per_batch out.",
            )
        return sorted(chosen, key=lambda c: (c.group_size, c.problems_per_batch or 0))

    def frontier(self, rollouts: npt.ArrayLike, problems_per_batch: int | None = None) -> Frontier:
        """Best reward, group size and problems per batch at each compute (upper envelope of the curves).

        Args:
            rollouts: compute C (tokens, for fits on a token axis), any shape, at least one; positive.
            problems_per_batch: use only the curves at this B_p.

        Raises:
            FitError: compute that is not positive, or no curves.
        """
        at = np.atleast_1d(positive(rollouts))
        return frontier(self.select(problems_per_batch), at)

    def to_frame(self) -> Frame:
        """The reward curves as a polars frame, one row each: configuration, plateau, half-way compute, fit quality.

        Raises:
            FitError: no curves, as of published laws.
        """
        curves = self.select()
        names = ("group_size", "problems_per_batch", "plateau", "half_compute", "rms", "shape")
        more = ("first_compute", "last_compute")
        rows = {name: [getattr(curve, name) for curve in curves] for name in (*names, *more)}
        return frame_of({**rows, "status": [curve.status.value for curve in curves]})

    def handovers(self, problems_per_batch: int | None = None) -> tuple[Handover, ...]:
        """Budgets within the data at which the best configuration changes."""
        return handovers(self.select(problems_per_batch))

    def predict(
        self,
        rollouts: npt.ArrayLike,
        group_size: npt.ArrayLike,
        problems_per_batch: int | None = None,
        level: float = 0.8,
        kind: Kind = "mean",
    ) -> Prediction:
        """Reward at (C, n): the fitted curves, interpolated in log n between the levels that were run.

        Args:
            rollouts: compute, positive (tokens for fits on a token axis); broadcast with `group_size`.
            group_size: within the levels that were run; for a surface up to one octave above.
            problems_per_batch: None for the smallest that was run. A surface takes any B_p up to an octave outside
                the range that was run; the paper's method takes the nearest level, in octaves.
            level: coverage asked for. Only a surface gives intervals; `low` and `high` of other methods are NaN.
            kind: `mean`, the noise-free reward of the best checkpoint up to C; `at`, the reward at C itself, lower
                after a decline (the curves of the paper's method only rise: both are the same); `run`, one new
                measurement.

        Raises:
            FitError: no curves, compute not positive, or a group size outside the levels that were run.
        """
        check_kind(kind)
        level = check_level(level)
        if self.surface is not None:
            shape, place = self._within_reach(rollouts, group_size, problems_per_batch)
            return Prediction(*(part.reshape(shape) for part in self.surface.interval(kind, level, *place)))
        at, sizes = together(rollouts, group_size, problems_per_batch)
        curves = self.select(self.nearest_problems_per_batch(problems_per_batch))
        mean = between_levels(curves, at, sizes, self.bounds)
        return Prediction(mean, np.full(mean.shape, np.nan), np.full(mean.shape, np.nan))

    def expected_reward(
        self, rollouts: npt.ArrayLike, group_size: npt.ArrayLike, problems_per_batch: int | None = None
    ) -> Array:
        """The mean of `predict`, without the work for its interval; arguments and errors as there."""
        if self.surface is None:
            return self.predict(rollouts, group_size, problems_per_batch).mean
        shape, place = self._within_reach(rollouts, group_size, problems_per_batch)
        return self.surface.predict(*place).reshape(shape)

    def draws(
        self,
        rollouts: npt.ArrayLike,
        group_size: npt.ArrayLike,
        problems_per_batch: int | Sequence[float] | None = None,
    ) -> Array:
        """Posterior draws of what `predict` averages with `kind="mean"`, for decisions of one's own.

        Draws are paired: one row is one possible truth at every point, so differences between points keep what they
        share. Points are the broadcast of the arguments, flattened.

        Args:
            rollouts: compute, positive (tokens for fits on a token axis).
            group_size: within the levels that were run, or up to one octave above.
            problems_per_batch: None for the smallest that was run; one for all points, or one for each
                (NaN: unknown).

        Returns:
            Rewards, shape (draws, points).

        Raises:
            FitError: fits of another method, compute not positive, or a group size out of reach.
        """
        return self._joint_model().draws(*self._within_reach(rollouts, group_size, problems_per_batch)[1])

    def _within_reach(
        self,
        rollouts: npt.ArrayLike,
        group_size: npt.ArrayLike,
        problems_per_batch: int | Sequence[float] | None,
    ) -> tuple[tuple[int, ...], tuple[Array, Array, float | Array | None]]:
        """The shape asked for, and the places that a surface is asked for, flattened."""
        at, sizes = together(rollouts, group_size, problems_per_batch, self.reach)
        return at.shape, (at.ravel(), sizes.ravel(), self.reachable(problems_per_batch))

    def for_problem_set(self, n_problems: int) -> Fits:
        """Fits that predict for another number of distinct training problems D.

        Only a surface whose runs vary D depends on D; other fits are returned unchanged.
        """
        if self.surface is None or self.surface.layout.set_reference is None:
            return self
        other = replace(self.surface, n_problems=one_positive(n_problems, "n_problems"))
        return replace(self, surface=other, laws={}, unsupported={}, n_problems=n_problems)

    @property
    def no_rise(self) -> tuple[Note, ...]:
        """That no run rises, for every view that shows an answer; empty if one does."""
        return () if self.flat_runs is None else (no_rise_note(self.metric, self.flat_runs),)

    @property
    def only_size(self) -> str:
        """That one n alone was run, so that nothing is known about another; empty if several were."""
        sizes = self.group_sizes
        return f"only n = {sizes[0]} was run, so it cannot be compared with another n" if len(sizes) == 1 else ""

    def group_size_odds(
        self,
        compute: float,
        group_sizes: npt.ArrayLike | None = None,
        problems_per_batch: int | None = None,
    ) -> GroupSizeOdds:
        """P(n is best), expected reward and expected regret of every n at one compute (`method="surface"` only).

        Args:
            compute: rollouts (tokens for fits on a token axis).
            group_sizes: candidates; by default the levels that were run and the powers of two between them.
            problems_per_batch: None for the smallest that was run.

        Raises:
            FitError: fits of another method.
        """
        surface = self._joint_model()
        smallest, largest = self.group_size_range
        if group_sizes is None:
            powers = {2**i for i in range(1, 31) if smallest <= 2**i <= largest}
            group_sizes = sorted(powers | set(self.group_sizes))
        sizes = increasing_sizes(group_sizes, *self.reach)
        bp = self.reachable_problems_per_batch(problems_per_batch)
        return group_size_odds(surface, one_positive(compute, "compute"), sizes, bp, largest)

    def best_group_size(self, compute: npt.ArrayLike, problems_per_batch: int | None = None) -> Array:
        """The n that plans choose at each compute, shape (T,): n*(C) as it is drawn (`method="surface"` only).

        Among `candidate_sizes`, with whole steps, without limits of hardware; for compute in tokens
        without the limit on steps.

        Args:
            compute: budgets in rollouts (tokens for fits on a token axis).
            problems_per_batch: None for those that were run.

        Raises:
            FitError: fits of another method.
        """
        surface, passport = self._joint_model(), self.passport
        compute_T = np.atleast_1d(positive(compute)).ravel()
        check_problems(problems_per_batch)
        problems: list[int | None] = [problems_per_batch]
        if problems_per_batch is None and passport is not None and self.problems_per_batch:
            stable = [bp for bp in self.problems_per_batch if bp not in passport.unstable_problems_per_batch]
            problems = [*(stable or self.problems_per_batch[-1:])]
        octaves = 0 if passport is None else passport.beyond_grid_octaves
        sizes = self.candidate_sizes(octaves) or [self.group_size_range[1]]
        in_rollouts = self.compute == "log10_rollouts"
        return chosen_sizes(surface, compute_T, sizes, self.group_sizes, problems, in_rollouts=in_rollouts)

    def candidate_sizes(self, octaves_beyond: int, *, powers_of_two: bool = True) -> list[int]:
        """Group sizes that a plan chooses from, increasing, up to so many octaves above the largest that was run."""
        smallest, largest = self.group_size_range
        smallest, largest = max(smallest, 2), largest * 2**octaves_beyond
        if not powers_of_two:
            return list(range(smallest, largest + 1))
        powers = (2**i for i in range(1, 31) if smallest <= 2**i <= largest)
        # What was run can be run again.
        return sorted({*powers, *(n for n in self.group_sizes if n >= 2)})

    def nearest_problems_per_batch(self, wanted: int | None) -> int | None:
        """Level of B_p that was run and is nearest in octaves; for None the smallest. None if B_p is unknown."""
        check_problems(wanted)
        levels = self.problems_per_batch
        if not levels:
            return None
        return levels[0] if wanted is None else min(levels, key=lambda level: abs(log2(level) - log2(wanted)))

    def reachable_problems_per_batch(self, wanted: int | None) -> float | None:
        """`wanted`, moved to at most an octave outside the levels that were run. None if either is unknown."""
        check_problems(wanted)
        return cast("float | None", self.reachable(wanted))

    def reachable(self, wanted: npt.ArrayLike | None) -> float | Array | None:
        """The same for one B_p or several."""
        if wanted is None or not (levels := self.problems_per_batch):
            return None
        reached = np.clip(np.asarray(wanted, dtype=float), levels[0] / 2, levels[-1] * 2)
        return reached if reached.ndim else float(reached)

    def summary(self) -> str:
        """The fit as text: passport, laws, hand-overs, curves and notes, one line each."""
        origin = self.source or counted(len(self.curves), "configuration")
        lines = [f"{self.metric}, method {self.method}, {origin}" + (f", {self.model}" if self.model else "")]
        if self.no_rise:
            return "\n".join([*lines, *(f"  {note.line}" for note in self.notes)])
        lines += [] if self.passport is None else [f"  {line}" for line in self.passport.lines()]
        lines += [f"  {name}: {law.describe()}" for name, law in self.laws.items()]
        lines += [f"  no law {name}: {reason}" for name, reason in self.unsupported.items()]
        if self.curves:
            lines.append("  best n changes: " + self.describe_handovers())
            lines += [
                f"  n = {c.group_size:<5} B_p = {or_unknown(c.problems_per_batch):<5}"
                f"plateau {c.plateau:.3f}{'' if c.plateau_identified else ' (not identified)'}, half at "
                f"C = {short(c.half_compute)}, rms {c.rms:.3f}, {c.shape}, {c.status.value}"
                for c in self.select()
            ]
        lines += [f"  {note.line}" for note in self.notes]
        return "\n".join(lines)

    def describe_handovers(self) -> str:
        """Budgets at which the best configuration changes, in one line, without first evaluations of better curves."""
        many = len(self.problems_per_batch) > 1
        low, high = span(self.select())
        begins = {(c.group_size, c.problems_per_batch): c.first_compute for c in self.select()}
        listed: list[str] = []
        for h in self.handovers():
            begun = begins[h.to_group_size, h.to_problems_per_batch]
            if h.compute <= min(begun * (1 + 1e-5), low * (high / low) ** FRONTIER_BEGINS):
                continue
            ends = (h.from_group_size, h.from_problems_per_batch), (h.to_group_size, h.to_problems_per_batch)
            first, last = (f"{n} (B_p {bp})" if many else str(n) for n, bp in ends)
            listed.append(f"{first} -> {last} at {short(h.compute)}")
        return ", ".join(listed) or "none within the data"

    def _joint_model(self) -> Surface:
        if self.surface is None:
            raise FitError(
                f"method {self.method!r} has no surface; accepted: fits of method 'surface'",
                "Fit with method='surface', or ask frontier(), law() or law_interval().",
            )
        return self.surface

    @property
    def trimmed(self) -> Self:
        """Itself with what was fitted of the runs alone, as plans keep it: no other metrics, which may be many."""
        if self.table is None:
            return self
        fitted = {*kin(self.metric, self.table.metrics), *LEADING}
        kept = self.table.filter(metric=fitted).to_dict()
        # Without the seconds of each step they would give another speed, since they count evaluations too.
        kept |= {part: {k: v for k, v in kept[part].items() if k != "gpu_seconds"} for part in ("columns", "constants")}
        return replace(self, runs=kept)

    def __eq__(self, other: object) -> bool:
        """Equal to the last bit: curves, laws, draws, notes, options and runs."""
        return self.to_dict() == other.to_dict() if isinstance(other, Fits) else NotImplemented

    def __repr__(self) -> str:
        where = f", {self.model}" if self.model else ""
        sizes = f"; n = {', '.join(map(str, self.group_sizes))}" if self.group_sizes else ""
        seen = "" if self.largest_compute is None else f"; up to C = {short(self.largest_compute)}"
        origin = self.source or self.method
        return f"Fits({self.metric}, {origin}{where}{sizes}{seen}; {counted(len(self.notes), 'note')})"

    def _repr_html_(self) -> str:
        rows = [
            ("metric", self.metric),
            ("method", self.source or self.method),
            ("model", self.model or "not recorded"),
        ]
        rows += [(name, law.describe()) for name, law in self.laws.items()]
        rows += [(f"no law {name}", reason) for name, reason in self.unsupported.items()]
        if self.no_rise:
            return notebook.pairs(rows[:3]) + notebook.notes(self.notes)
        text = notebook.pairs(rows)
        if self.curves:
            header = ("n", "B_p", "plateau", "half at C", "rms")
            cells = [curve.cells for curve in self.select()]
            text += notebook.table(header, cells, f"best n changes: {self.describe_handovers()}")
        if self.passport is not None:
            text += notebook.listed(self.passport.lines())
        return text + notebook.notes(self.notes)

    __hash__ = None  # pyright: ignore[reportAssignmentType]


FITS = Document(
    "fits",
    4,
    Fits,
    remedy="To write them: <isocompute fit RUNS --output FILE | iso.fit(runs).save(path)>. "
    "For another budget of a saved plan: <isocompute report PLAN --budget C | change_plan(plan, {'budget': C})>.",
)


class UnknownMetricError(FitError, KeyError):
    """A metric that is not in a set of fits."""


class FitsSet(Mapping[str, Fits]):
    """Fits of several metrics on the same runs; a planner decides by the first one."""

    def __init__(self, fits: Mapping[str, Fits]) -> None:
        # Notebooks pass any type.
        given = cast("Any", fits)
        if given and not (isinstance(given, Mapping) and all(isinstance(one, Fits) for one in given.values())):
            raise FitError(
                f"FitsSet: received {' '.join(repr(given).split()):.60}; accepted: a mapping from metric to Fits",
                "fit(runs, metric=[...]) makes one.",
            )
        if not fits:
            raise FitError(
                "a FitsSet needs at least one metric; received none", "Give fits by the name of their metric."
            )
        self._fits = dict(fits)

    def __getitem__(self, metric: str) -> Fits:
        if metric not in self._fits:
            raise UnknownMetricError(
                f"metric {metric!r} was not fitted; accepted: {', '.join(self._fits)}",
                "Use one, or fit this one too.",
            )
        return self._fits[metric]

    def __iter__(self) -> Iterator[str]:
        return iter(self._fits)

    def __repr__(self) -> str:
        return f"FitsSet({', '.join(self._fits)})"

    def __len__(self) -> int:
        return len(self._fits)

    @property
    def first(self) -> Fits:
        """Fits of the first metric, by which a planner decides."""
        return next(iter(self._fits.values()))
