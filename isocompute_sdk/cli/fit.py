"""`isocompute fit`: reward curves, frontier and laws from run data."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from isocompute_sdk.cli.shared import options as opt
from isocompute_sdk.cli.shared.display import print_fits
from isocompute_sdk.cli.shared.following import budget_of_study
from isocompute_sdk.cli.shared.options import with_option_groups
from isocompute_sdk.cli.shared.output import emit_json, say
from isocompute_sdk.cli.shared.reading_options import FittingOptions
from isocompute_sdk.cli.shared.typed import SHOWN, without
from isocompute_sdk.phrases import short, two_digits

if TYPE_CHECKING:
    from isocompute_sdk.fitting.fits import Fits


@with_option_groups
def fit(
    *,
    runs: Annotated[list[Path] | None, typer.Argument(help="Tables or logs: files, folders or globs.")] = None,
    fitting: FittingOptions,
    max_rollouts_per_batch: Annotated[
        int | None, opt.count("--max-rollouts-per-batch", "B_max of the sweep, e.g. 64k.")
    ] = None,
    rollouts_per_batch: Annotated[
        int | None, opt.count("--rollouts-per-batch", "Fixed batch B of laws in steps.")
    ] = None,
    draws: Annotated[int, typer.Option(help="Posterior draws of method surface.", min=0)] = 200,
    output: opt.Save = None,
    plot: opt.Plot = None,
    verbose: opt.Verbose = False,
    json: opt.Json = False,
) -> None:
    """Fit reward curves, frontier and allocation laws.

    --method surface, the default, fits all runs together: rewards with intervals at any n, B_p and compute, and a
    measure of how far to trust them. --method paper repeats the paper: record-breaking points, one curve per
    configuration, their envelope, a sigmoid of the best n. Its intervals are known to be too narrow.

    Examples:
        isocompute fit runs.csv --output fits.json --plot pictures

        isocompute fit sweep/*.jsonl --metric avg@4 --metric best@4

        isocompute fit runs.csv --method paper --points all
    """
    from isocompute_sdk.fitting.fits import Fits

    found = fitting.fit(
        runs,
        max_rollouts_per_batch=max_rollouts_per_batch,
        rollouts_per_batch=rollouts_per_batch,
        draws=draws,
    )
    every = {found.metric: found} if isinstance(found, Fits) else dict(found)
    first = next(iter(every.values()))
    if output is not None:
        first.save(output)
    pictures = opt.save_pictures(first, plot) if plot is not None else []
    if json:
        emit_json({"kind": "fits-set", "fits": {name: one.trimmed.to_dict() for name, one in every.items()}})
        return
    for one in every.values():
        print_fits(one, verbose=verbose)
    for path in [output, *pictures]:
        if path is not None:
            say(f"wrote {path}" + (f" ({first.metric})" if len(every) > 1 else ""))
    if (command := _next(first, output, runs or ())) is not None:
        say(f"next: {command}")


def _next(fits: Fits, output: Path | None, runs: Sequence[Path]) -> str | None:
    """The command for a plan; None where it would say no more than the fit."""
    if fits.no_rise or fits.compute != "log10_rollouts" or fits.largest_compute is None:
        return None
    source = without(sys.argv[2:], (*SHOWN, "--draws", "--rollouts-per-batch")) if output is None else [str(output)]
    own = None if output is not None else budget_of_study(runs)
    budget = f"--budget {short(two_digits(2 * fits.largest_compute))}" if own is None else own[1]
    return f"isocompute allocate {shlex.join(source)} {budget}".rstrip()
