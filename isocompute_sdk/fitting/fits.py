"""`Fits`: reward curves, frontier, laws and notes of one metric, ready to be asked, saved and refitted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from isocompute_sdk import files
from isocompute_sdk.fitting import levels
from isocompute_sdk.fitting.allocation import AllocationLaw, LawVariable
from isocompute_sdk.fitting.arguments import check_kind, check_level, positive, together
from isocompute_sdk.fitting.bootstrap import law_interval
from isocompute_sdk.fitting.curves import RewardCurve
from isocompute_sdk.fitting.frontier import Frontier, Handover, frontier, handovers
from isocompute_sdk.fitting.prediction import Kind, Prediction, between_levels
from isocompute_sdk.fitting.shapes import Array
from isocompute_sdk.fitting.surface import answers
from isocompute_sdk.notes import Note

if TYPE_CHECKING:
    from isocompute_sdk.fitting.surface.odds import GroupSizeOdds
    from isocompute_sdk.fitting.surface.passport import Passport
    from isocompute_sdk.fitting.surface.surface import Surface
    from isocompute_sdk.records import RunSet

SCHEMA_VERSION = 2

Configuration = tuple[int, int | None]
"""(group size, problems per batch or None where the runs do not say)."""

Method = Literal["surface", "paper", "published", "prior"]
"""`surface`: all runs fitted together; `paper`: a curve per configuration and their envelope; `published`: one law of
the paper; `prior`: hedged over all of them."""


@dataclass(frozen=True, eq=False)
class Fits:
    """Everything fitted for one metric. Frozen: `refit` returns another one."""

    metric: str
    """Metric fitted, e.g. `avg@4`."""
    method: Method
    curves: Mapping[Configuration, RewardCurve] = field(default_factory=dict[Configuration, RewardCurve])
    """Reward curve per (group size, problems per batch)."""
    laws: Mapping[str, AllocationLaw] = field(default_factory=dict[str, AllocationLaw])
    """Allocation laws by name; ask with `law(name)`, which explains a missing one."""
    unsupported: Mapping[str, str] = field(default_factory=dict[str, str])
    """Why a law could not be fitted, by its name."""
    notes: tuple[Note, ...] = ()
    compute: LawVariable = "log10_rollouts"
    """Unit of the compute axis of curves and law: rollouts or tokens."""
    eval_set: str | None = None
    model: str | None = None
    """Model whose runs these are; None where the runs do not say."""
    n_problems: int | None = None
    """Distinct training problems, where the runs agree on them."""
    bounds: tuple[float, float] = (0.0, 1.0)
    """Range of the metric."""
    source: str | None = None
    """Name of the published law, for `method="published"`."""
    rollouts_per_batch: int | None = None
    """Fixed batch B to which the laws in steps belong."""
    max_rollouts_per_batch: int | None = None
    """Largest batch B_max of the sweep, where known."""
    grid: tuple[int, int] | None = None
    """Smallest and largest n that were run, where the curves do not show it (published laws)."""
    curve_draws: Mapping[Configuration, Array] = field(default_factory=dict[Configuration, Array], repr=False)
    """Bootstrap replicates of each curve's parameters, shape (draws, 2 + P)."""
    law_draws: Mapping[str, Array] = field(default_factory=dict[str, Array], repr=False)
    """Replicates (or prior draws) of each law: L, k, midpoint, b; shape (draws, 4)."""
    surface: Surface | None = field(default=None, repr=False)
    """The joint model behind everything, for `method="surface"`."""
    passport: Passport | None = None
    """How far the surface carries, its backtest first."""
    options: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)
    """Arguments of `fit`, so that `refit` repeats them."""
    runs: Mapping[str, Any] | None = field(default=None, repr=False)
    """The runs behind the fit in `RunSet.to_dict` form; None where there are none."""

    @property
    def group_sizes(self) -> tuple[int, ...]:
        """Levels of n that have a curve, increasing."""
        return tuple(sorted({n for n, _ in self.curves}))

    @property
    def problems_per_batch(self) -> tuple[int, ...]:
        """Known levels of B_p that have a curve, increasing."""
        return tuple(sorted({bp for _, bp in self.curves if bp is not None}))

    @property
    def group_size_range(self) -> tuple[int, int]:
        """Smallest and largest n that were run."""
        return self.grid if self.grid is not None else (self.group_sizes[0], self.group_sizes[-1])

    @property
    def largest_compute(self) -> float | None:
        """Largest compute at which anything was observed; None where a published law does not say."""
        seen = [c.last_compute for c in self.curves.values()]
        law = self.laws.get("group_size")
        if law is not None and law.x_range is not None:
            seen.append(float(10.0 ** law.x_range[1]))
        return max(seen, default=None)

    def law(self, name: str = "group_size") -> AllocationLaw:
        """A law by name: `group_size`, `group_size_vs_steps` or `problems_per_batch_vs_steps`.

        Raises:
            FitError: unknown name, or a law that these runs do not support, with the reason.
        """
        return levels.law_named(self, name)

    def law_interval(
        self, value: npt.ArrayLike, level: float = 0.8, name: str = "group_size"
    ) -> tuple[Array, Array] | None:
        """Interval of the law's size at raw compute or M, in that shape (a surface: of the best n); None without draws.

        Raises:
            FitError: unknown name, a level that is none, a value that the law does not take.
        """
        level = check_level(level)
        levels.check_law_name(name)
        if self.surface is not None and name == "group_size":
            at = np.atleast_1d(positive(value))
            low, high = answers.best_size_intervals(self, self.surface, at.ravel(), level)
        elif name in self.law_draws:
            at = np.atleast_1d(self.law(name).to_x(value))
            low, high = law_interval(self.law_draws[name], self.law(name), at.ravel(), level)
        else:
            return None
        return low.reshape(at.shape), high.reshape(at.shape)

    def select(self, problems_per_batch: int | None = None) -> list[RewardCurve]:
        """Curves, those at one B_p only where it is given.

        Raises:
            FitError: no curve at all, or none at that B_p.
        """
        return levels.curves_at(self, problems_per_batch)

    def frontier(self, rollouts: npt.ArrayLike, problems_per_batch: int | None = None) -> Frontier:
        """Best reward, group size and problems per batch at each compute (upper envelope of the curves).

        Args:
            rollouts: compute C (tokens, for fits on a token axis), any shape, at least one; positive.
            problems_per_batch: keep to the curves at this B_p.

        Raises:
            FitError: compute that is not positive, or no curves.
        """
        at = np.atleast_1d(positive(rollouts))
        return frontier(self.select(problems_per_batch), at)

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
            problems_per_batch: None for the smallest that was run. A surface answers for any up to an octave outside
                those that were run; otherwise the nearest level (in octaves) answers.
            level: coverage asked for; those of a surface are checked in simulation, those of the paper's method not.
            kind: `mean`, the noise-free reward of the best checkpoint up to C; `run`, one new measurement.

        Raises:
            FitError: no curves, compute not positive, or a group size outside the levels that were run.
        """
        check_kind(kind)
        level = check_level(level)
        at, sizes = together(positive(rollouts), positive(group_size))
        if self.surface is not None:
            return answers.predicted(self, self.surface, at, sizes, problems_per_batch, level, kind)
        curves = self.select(self.nearest_problems_per_batch(problems_per_batch))
        drawn = [self.curve_draws.get((c.group_size, c.problems_per_batch)) for c in curves]
        return between_levels(curves, drawn, at, sizes, level=level, kind=kind, bounds=self.bounds)

    def for_problem_set(self, n_problems: int) -> Fits:
        """The same fits asked about another number of distinct training problems D.

        Only a surface whose runs vary D knows what D does; others are returned as they are.
        """
        if self.surface is None or self.surface.layout.set_reference is None:
            return self
        return answers.for_problem_set(self, self.surface, n_problems)

    def group_size_odds(
        self,
        compute: float,
        group_sizes: npt.ArrayLike | None = None,
        problems_per_batch: int | None = None,
        compute_of_each: npt.ArrayLike | None = None,
    ) -> GroupSizeOdds:
        """P(n is best), expected reward and expected regret of every n at one compute (`method="surface"` only).

        Args:
            compute: rollouts (tokens for fits on a token axis).
            group_sizes: candidates; by default the levels that were run and the powers of two between them.
            problems_per_batch: None for the smallest that was run.
            compute_of_each: what each candidate really spends, where that is not `compute`.

        Raises:
            FitError: fits of another method.
        """
        return answers.odds(self, compute, group_sizes, problems_per_batch, compute_of_each)

    def best_group_size(self, compute: npt.ArrayLike, problems_per_batch: int | None = None) -> Array:
        """Real-valued n with the largest expected reward on the grid, shape (T,) (`method="surface"` only).

        Levels take part from their first evaluation on.

        Raises:
            FitError: fits of another method.
        """
        sizes_N, reward_TN = self.reward_by_size(compute, problems_per_batch)
        return sizes_N[np.argmax(reward_TN, axis=1)]

    def reward_by_size(self, compute: npt.ArrayLike, problems_per_batch: int | None = None) -> tuple[Array, Array]:
        """Real-valued n on the grid, and the expected reward of each at every compute (`method="surface"` only).

        Returns:
            Group sizes, shape (N,), and rewards, shape (T, N); -inf above the levels that have begun by then.

        Raises:
            FitError: fits of another method.
        """
        return answers.reward_by_size(self, compute, problems_per_batch)

    def nearest_problems_per_batch(self, wanted: int | None) -> int | None:
        """The level of B_p that was run and lies nearest in octaves; the smallest for None."""
        return levels.nearest(self.problems_per_batch, wanted)

    def summary(self) -> str:
        """The fit as text: laws, hand-overs, curves and notes."""
        from isocompute_sdk.fitting.report import summarise

        return summarise(self)

    def refit(self, more_runs: RunSet, **changes: Any) -> Fits:
        """Fit again on the runs behind these fits and `more_runs` together; equals a fit on all of them."""
        from isocompute_sdk.api import refit

        return refit(self, more_runs, **changes)

    def save(self, path: str | Path) -> Path:
        """Write as JSON, keeping every bit; a kill leaves the old file or the new one.

        Raises:
            IsoComputeError: the file cannot be written.
        """
        return files.save_json(path, self.to_dict())

    @classmethod
    def load(cls, path: str | Path) -> Fits:
        """Read what `save` wrote, bit for bit.

        Raises:
            IsoComputeError: missing file, other content, another schema version.
        """
        from isocompute_sdk.fitting.saved import fits_from

        return files.load_json(path, fits_from, kind="fits", schema_version=SCHEMA_VERSION)

    def __eq__(self, other: object) -> bool:
        """Equal to the last bit: curves, laws, draws, notes, options and runs."""
        return self.to_dict() == other.to_dict() if isinstance(other, Fits) else NotImplemented

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    def to_dict(self, *, with_runs: bool = True) -> dict[str, Any]:
        """JSON form; `with_runs=False` leaves out the table that `refit` needs."""
        from isocompute_sdk.fitting.saved import form_of

        return form_of(self, with_runs=with_runs)

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> Fits:
        """Inverse of `to_dict`.

        Raises:
            IsoComputeError: not what `to_dict` returns.
        """
        from isocompute_sdk.fitting.saved import fits_from

        return files.build_saved(raw, fits_from, kind="fits", schema_version=SCHEMA_VERSION)
