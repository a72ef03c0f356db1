"""`FitsSet`: fits of several metrics on the same runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

from isocompute_sdk.errors import FitError
from isocompute_sdk.fitting.fits import Fits


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
