"""The options of commands that fit runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from isocompute_sdk.cli.shared import options as opt
from isocompute_sdk.cli.shared.reading_options import TableOptions
from isocompute_sdk.errors import SpecError

if TYPE_CHECKING:
    from isocompute_sdk.fitting.fits import Fits, FitsSet

_PAPER = "Only with --method paper"


@dataclass(frozen=True, kw_only=True)
class FittingOptions(TableOptions):
    """What to fit and how, as typed on the command line."""

    metric: Annotated[
        list[str] | None,
        opt.option(
            "Metric to fit; repeatable, the first decides. By default avg@4, else what most runs have, else the "
            "training reward. Names a column `reward` or `value`.",
            None,
            "--metric",
        ),
    ] = None
    eval_set: opt.EvalSet = None
    method: Annotated[
        str, opt.option("surface (all runs fitted together) or paper (a curve per n, their envelope, a sigmoid).")
    ] = "surface"
    points: Annotated[str | None, opt.option("records (as the paper; the default) or all (less biased).", _PAPER)] = (
        None
    )
    bin_width: Annotated[
        float | None, opt.option("Reward bin of record-breaking points, share of the range; 0.005.", _PAPER)
    ] = None
    curve: Annotated[
        str | None, opt.option("auto (the default), saturating_exponential, logistic or hill.", _PAPER)
    ] = None
    compute: Annotated[str, opt.option("Compute axis: rollouts or tokens.")] = "rollouts"
    bounds: Annotated[tuple[float, float], opt.option("Range of the metric.")] = (0.0, 1.0)
    pool: opt.Pool = None
    seed: opt.Seed = 0

    def fit(self, runs: Sequence[Path] | None, **settings: Any) -> Fits | FitsSet:
        """Read runs and fit them; one `Fits`, or a `FitsSet` for several metrics.

        Args:
            runs: files, folders and globs; None with --map.
            **settings: further arguments of `api.fit`; None for its defaults.

        Raises:
            SpecError: an unknown method, or options that only the other method has.
        """
        from isocompute_sdk import api

        chosen = self.fit_arguments(**settings)
        first = self.metric[0] if self.metric else None
        return api.fit(self.read(runs, first), **chosen)

    def fit_arguments(self, **settings: Any) -> dict[str, Any]:
        """Arguments of `api.fit` besides the runs, without those that were not given.

        Raises:
            SpecError: an unknown method, or options that only the other method has.
        """
        from isocompute_sdk import api

        if self.method not in api.OPTIONS:
            raise SpecError(f"--method {self.method!r}; accepted: {', '.join(api.OPTIONS)}", "Use one of the two.")
        only_paper = {"points": self.points, "bin_width": self.bin_width, "curve": self.curve}
        given = [f"--{name.replace('_', '-')}" for name, value in only_paper.items() if value is not None]
        if given and self.method == "surface":
            raise SpecError(
                f"{', '.join(given)} with --method surface, which uses every evaluation and one family of curves; "
                "accepted: with --method paper",
                f"Leave {', '.join(given)} out, or add --method paper.",
            )
        metric = self.metric[0] if self.metric and len(self.metric) == 1 else self.metric or None
        chosen: dict[str, Any] = {"method": self.method, "compute": self.compute, **only_paper, **settings}
        chosen |= {"metric": metric, "eval_set": self.eval_set, "rng": self.seed, "bounds": self.bounds}
        return {name: value for name, value in {**chosen, "pool": tuple(self.pool or ())}.items() if value is not None}
