"""`isocompute allocate`: a plan from runs or saved fits."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from isocompute_sdk.cli.shared.following import under_way
from isocompute_sdk.cli.shared.options import with_option_groups
from isocompute_sdk.cli.shared.planning_options import PlanningOptions
from isocompute_sdk.cli.shared.reading_options import FittingOptions


@with_option_groups
def allocate(
    *,
    source: Annotated[
        list[Path] | None, typer.Argument(help="Runs (tables or logs: files, folders, globs), or saved fits (JSON).")
    ] = None,
    fitting: FittingOptions,
    planning: PlanningOptions,
) -> None:
    """Fit runs, or load fits, and plan a budget; or ask what a reward costs, what more budget gains, what a plan gains.

    Runs are fitted with --method surface by default; see isocompute fit --help.

    Examples:
        isocompute allocate runs.csv --budget 3M --output plan.json --plot pictures

        isocompute allocate fits.json --budget 10M --mode conservative

        isocompute allocate runs.csv --method paper --points all --budget 3M

        isocompute allocate fits.json --for-reward 0.65

        isocompute allocate fits.json --budget 3M --marginal

        isocompute allocate fits.json --budget 3M --compare n=16,bp=32

        isocompute allocate fits.json --budget 3M --compare n=2,bp=32 --reference n=16,bp=32 --equal steps
    """
    around = planning.around(source)
    with under_way(around):
        fits = fitting.fits_of(source, max_rollouts_per_batch=planning.max_rollouts_per_batch)
    planning.answer(fits, around)
