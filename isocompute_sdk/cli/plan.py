"""`isocompute plan`: plan a budget without refitting, from a published law, the prior or saved fits."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from isocompute_sdk.cli.shared import options as opt
from isocompute_sdk.cli.shared.options import changed_options, with_option_groups
from isocompute_sdk.cli.shared.planning_options import BorrowedOptions, PlanningOptions
from isocompute_sdk.errors import SpecError

if TYPE_CHECKING:
    from isocompute_sdk.fitting.fits import Fits


@with_option_groups
def plan(
    *,
    borrowed: BorrowedOptions,
    fits: Annotated[Path | None, opt.option("Saved fits (JSON).")] = None,
    planning: PlanningOptions,
) -> None:
    """Plan a budget from a published law, the prior over all of them, or saved fits.

    If --model names a published model, its own law is used: the one for easy problems, or with --recipe hard the one
    for hard problems.

    Examples:
        isocompute plan --budget 3M

        isocompute plan --published qwen2.5-7b-instruct/guru-math-easy --budget 3M --json

        isocompute plan --fits fits.json --budget "200 gpu_hours" --gpus 8 --rollouts-per-second 60
    """
    planning.answer(_source(borrowed, fits, planning))


def _source(borrowed: BorrowedOptions, fits: Path | None, planning: PlanningOptions) -> Fits:
    from isocompute_sdk.fitting.fits import Fits

    if fits is None:
        return borrowed.law(planning.model, planning.recipe)
    if given := changed_options(borrowed):
        raise SpecError(
            f"received {given[0]} and --fits; accepted: one of --published, --prior, --fits", "Keep one of them."
        )
    return Fits.load(fits)
