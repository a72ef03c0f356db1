"""`isocompute fit`: reward curves, frontier and laws from run data."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer

from isocompute_sdk.cli.shared import options as opt
from isocompute_sdk.cli.shared.display import print_fits
from isocompute_sdk.cli.shared.output import emit_json, say
from isocompute_sdk.errors import SpecError

if TYPE_CHECKING:
    from isocompute_sdk.fitting.fits import Fits
    from isocompute_sdk.fitting.fits_set import FitsSet

ONLY_PAPER = ("points", "bin_width", "curve")
"""Options that mean nothing to a surface."""

Runs = Annotated[list[Path], typer.Argument(help="Tables or logs: files, folders or globs.")]


def fit(
    runs: Runs,
    metric: opt.Metric = ["avg@4"],  # noqa: B006  # typer copies defaults
    eval_set: opt.EvalSet = None,
    method: opt.Method = "surface",
    points: opt.Points = None,
    bin_width: opt.BinWidth = None,
    curve: opt.Curve = None,
    compute: opt.Compute = "rollouts",
    max_rollouts_per_batch: Annotated[str | None, typer.Option(help="B_max of the sweep, e.g. 64k.")] = None,
    rollouts_per_batch: Annotated[int | None, typer.Option(help="Fixed batch B of the laws in steps.", min=1)] = None,
    bounds: Annotated[tuple[float, float], typer.Option(help="Range of the metric.")] = (0.0, 1.0),
    pool: opt.Pool = None,
    set_: opt.Constants = None,
    draws: Annotated[
        int, typer.Option(help="Draws from the posterior (surface), or bootstrap replicates (paper).", min=0)
    ] = 200,
    seed: opt.Seed = 0,
    output: opt.Save = None,
    plot: opt.Plot = None,
    json: opt.Json = False,
) -> None:
    """Fit reward curves, frontier and allocation laws.

    --method surface, the default, fits all runs together: rewards with intervals at any n, B_p and compute, and a
    passport of how far they carry. --method paper repeats the paper: record-breaking points, one curve per
    configuration, their envelope, a sigmoid of the best n. Its intervals are known to be too narrow.

    Examples:
        isocompute fit runs.csv --output fits.json --plot pictures

        isocompute fit sweep/*.jsonl --metric avg@4 --metric best@4

        isocompute fit runs.csv --method paper --points all
    """
    found = run_fit(
        runs,
        metric,
        eval_set,
        pool,
        set_,
        draws=draws,
        seed=seed,
        bounds=bounds,
        method=method,
        points=points,
        bin_width=bin_width,
        curve=curve,
        compute=compute,
        max_rollouts_per_batch=max_rollouts_per_batch,
        rollouts_per_batch=rollouts_per_batch,
    )
    every = _each(found)
    first = next(iter(every.values()))
    if output is not None:
        first.save(output)
    pictures = opt.save_pictures(first, plot) if plot is not None else []
    if json:
        emit_json({"kind": "fits-set", "fits": {name: one.to_dict(with_runs=False) for name, one in every.items()}})
        return
    for one in every.values():
        print_fits(one)
    for path in [output, *pictures]:
        if path is not None:
            say(f"wrote {path}" + (f" ({first.metric})" if len(every) > 1 else ""))
    if output is not None:
        say(f"next: isocompute plan --fits {quote(str(output))} --budget 3M")


def run_fit(
    runs: list[Path],
    metric: list[str],
    eval_set: str | None,
    pool: list[str] | None,
    constants: list[str] | None,
    **settings: Any,
) -> Fits | FitsSet:
    """Read runs and fit them; `settings` are further arguments of `api.fit`, None for its defaults."""
    from isocompute_sdk import api
    from isocompute_sdk.specs import parse_count

    if settings["method"] not in api.OPTIONS:
        raise SpecError(f"--method {settings['method']!r}; accepted: {', '.join(api.OPTIONS)}", "Use one of the two.")
    _refuse_options_of_the_other_method(settings)
    seed, limit = settings.pop("seed"), settings.pop("max_rollouts_per_batch")
    settings["max_rollouts_per_batch"] = None if limit is None else parse_count(limit)
    settings = {name: value for name, value in settings.items() if value is not None}
    table = opt.read_runs(runs, metric[0], constants)
    name: Any = metric[0] if len(metric) == 1 else metric
    return api.fit(table, name, eval_set, rng=seed, pool=tuple(pool or ()), **settings)


def _refuse_options_of_the_other_method(settings: dict[str, Any]) -> None:
    given = [f"--{name.replace('_', '-')}" for name in ONLY_PAPER if settings.get(name) is not None]
    if given and settings["method"] == "surface":
        raise SpecError(
            f"{', '.join(given)} with --method surface, which uses every evaluation and one family of curves; "
            "accepted: with --method paper",
            f"Leave {', '.join(given)} out, or add --method paper.",
        )


def _each(found: Fits | FitsSet) -> dict[str, Fits]:
    from isocompute_sdk.fitting.fits import Fits

    return {found.metric: found} if isinstance(found, Fits) else dict(found)
