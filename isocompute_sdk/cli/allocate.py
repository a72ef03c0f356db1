"""`isocompute allocate`: from runs, or saved fits, to a plan in one go."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from isocompute_sdk.cli.fit import run_fit
from isocompute_sdk.cli.shared import options as opt
from isocompute_sdk.cli.shared.planning_options import Planning, with_planning
from isocompute_sdk.errors import SpecError


@with_planning
def allocate(
    *,
    source: Annotated[list[Path], typer.Argument(help="Runs (CSV, Parquet, JSONL, W&B CSV), or saved fits (JSON).")],
    metric: opt.Metric = ["avg@4"],  # noqa: B006  # typer copies defaults
    eval_set: opt.EvalSet = None,
    method: opt.Method = "surface",
    points: opt.Points = None,
    bin_width: opt.BinWidth = None,
    curve: opt.Curve = None,
    compute: opt.Compute = "rollouts",
    pool: opt.Pool = None,
    set_: opt.Constants = None,
    seed: opt.Seed = 0,
    planning: Planning,
) -> None:
    """Fit where needed, then plan a budget: or say what a reward costs, what more budget buys, what a plan gains.

    Runs are fitted with --method surface unless asked otherwise; see isocompute fit --help. Saved fits are taken
    as they are.

    Examples:
        isocompute allocate runs.csv --budget 3M --output plan.json --plot pictures

        isocompute allocate fits.json --budget 10M --mode conservative

        isocompute allocate runs.csv --method paper --points all --budget 3M

        isocompute allocate fits.json --for-reward 0.65

        isocompute allocate fits.json --budget 3M --marginal

        isocompute allocate fits.json --budget 3M --compare n=16,bp=32
    """
    from isocompute_sdk.fitting.fits import Fits

    if len(source) == 1 and source[0].suffix == ".json":
        given = {
            "--metric": metric != ["avg@4"],
            "--eval-set": eval_set is not None,
            "--method": method != "surface",
            "--points": points is not None,
            "--bin-width": bin_width is not None,
            "--curve": curve is not None,
            "--compute": compute != "rollouts",
            "--pool": bool(pool),
            "--set": bool(set_),
            "--seed": seed != 0,
        }
        _refuse_given([name for name, is_given in given.items() if is_given], source[0])
        fits = Fits.load(source[0])
    else:
        fits = run_fit(
            source,
            metric,
            eval_set,
            pool,
            set_,
            seed=seed,
            method=method,
            points=points,
            bin_width=bin_width,
            curve=curve,
            compute=compute,
            max_rollouts_per_batch=planning.max_rollouts_per_batch,
        )
    planning.answer(fits)


def _refuse_given(names: list[str], source: Path) -> None:
    """Refuse options that say how to fit where the fits are there already: they would be passed over."""
    if names:
        raise SpecError(
            f"{', '.join(names)} with {source}, which is taken for saved fits; accepted: with runs",
            "Give the runs, or leave the options out.",
        )
