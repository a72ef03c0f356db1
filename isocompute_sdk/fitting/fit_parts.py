"""Parts of `Fits`: what predictions, points and draws look like, and how curves are saved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from isocompute_sdk.errors import FieldError, FitError
from isocompute_sdk.fitting.allocation import LARGEST_OCTAVES, AllocationLaw, ComputeAxis
from isocompute_sdk.fitting.arrays import Array, Count, Vector
from isocompute_sdk.fitting.paper.reward_curve import RewardCurve
from isocompute_sdk.fitting.surface.surface import SurfaceCurve
from isocompute_sdk.records.frames import frame_of

if TYPE_CHECKING:
    from isocompute_sdk.records.frames import Frame

LAWS = ("group_size", "group_size_vs_steps", "problems_per_batch_vs_steps")

Configuration = tuple[int, int | None]
"""(group size, problems per batch or None if the runs do not record it)."""

Method = Literal["surface", "paper", "published", "prior"]
"""`surface`: all runs fitted together; `paper`: a curve per configuration and their envelope; `published`: one law of
the paper; `prior`: hedged over all of them."""

Kind = Literal["mean", "at", "run"]
"""`mean`: noise-free reward of the best checkpoint up to C, averaged over runs; `at`: the same at C itself, after a
decline lower; `run`: one new measurement of one run."""


class Prediction(NamedTuple):
    """Predicted reward with an interval; `low` and `high` are NaN without draws."""

    mean: Array
    low: Array
    high: Array

    def to_frame(self, **beside: npt.ArrayLike) -> Frame:
        """The prediction as a polars frame: columns mean, low, high.

        Args:
            **beside: what was asked, as columns, e.g. `rollouts=C, group_size=n`; broadcast with the prediction.
        """
        return frame_of({**beside, **self._asdict()})


@dataclass(frozen=True)
class SurfacePoints:
    """Evaluations of one configuration of a surface; its curve follows from them and the surface."""

    group_size: Count
    problems_per_batch: Count | None
    compute_T: Vector
    reward_T: Vector


def fitted_curves(curves: Mapping[Configuration, RewardCurve]) -> tuple[RewardCurve, ...]:
    """Curves that are saved as they are: those of a surface are made from it."""
    return tuple(curve for curve in curves.values() if not isinstance(curve, SurfaceCurve))


def by_configuration(curves: Sequence[RewardCurve]) -> dict[Configuration, RewardCurve]:
    """Curves by configuration.

    Raises:
        FieldError: two curves of one configuration.
    """
    found = {(c.group_size, c.problems_per_batch): c for c in curves}
    if len(found) < len(curves):
        raise FieldError("", [(c.group_size, c.problems_per_batch) for c in curves], "one curve per configuration")
    return found


def check_laws(laws: Mapping[str, AllocationLaw], law_draws: Mapping[str, Array], compute: ComputeAxis) -> None:
    """Refuse laws and replicates of laws that contradict the fits.

    Raises:
        FieldError: an unknown name, another variable, or draws of another shape.
    """
    for name, law in laws.items():
        x = compute if name == "group_size" else "update_steps"
        if name not in LAWS:
            raise FieldError("laws", name, f"names among {', '.join(LAWS)}")
        if law.x != x:
            raise FieldError(f"laws.{name}.x", law.x, repr(x))
    for name, draws in law_draws.items():
        if name not in LAWS:
            raise FieldError("law_draws", name, f"names among {', '.join(LAWS)}")
        octaves = draws[:, ::3] if draws.shape[1:] == (4,) else np.full((1, 2), np.inf)
        if not draws.size or np.max(np.abs(octaves)) > LARGEST_OCTAVES:
            expected = f"shape (draws, 4), L and b at most {LARGEST_OCTAVES:g} octaves"
            raise FieldError(f"law_draws.{name}", draws.shape, expected)


def check_law_name(name: object) -> None:
    """Refuse an unknown law.

    Raises:
        FitError: not one of `LAWS`.
    """
    if not isinstance(name, str) or name not in LAWS:
        raise FitError(f"unknown law {name!r}; accepted: {', '.join(LAWS)}", "Use one of these names.")
