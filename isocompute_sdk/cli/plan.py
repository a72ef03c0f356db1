"""`isocompute plan`: plan a budget without refitting, from a published law, the prior or saved fits."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from isocompute_sdk.cli.shared import options as opt
from isocompute_sdk.cli.shared.options import with_option_groups
from isocompute_sdk.cli.shared.planning_options import PlanningOptions
from isocompute_sdk.errors import SpecError

if TYPE_CHECKING:
    from isocompute_sdk.fitting.fits import Fits


@with_option_groups
def plan(
    *,
    published: Annotated[str | None, opt.option("Name of a published law; see `isocompute list published`.")] = None,
    prior: Annotated[
        bool, opt.option("The prior over all published laws (the default of other models).", None, "--prior")
    ] = False,
    fits: Annotated[Path | None, opt.option("Saved fits (JSON).")] = None,
    planning: PlanningOptions,
) -> None:
    """Plan a budget from a published law, the prior over all of them, or saved fits.

    If --model names a published model, its own law is used: the one for easy problems, or with --recipe hard the one
    for hard problems.

    Examples:
        isocompute plan --budget 3M

        isocompute plan --published qwen2.5-7b-instruct/guru-math-easy --budget 3M --json

        isocompute plan --fits fits.json --budget "200 gpu_hours" --rollouts-per-second 60 --step-overhead-seconds 25
    """
    planning.answer(_source(published, prior, fits, planning))


def _source(published: str | None, prior: bool, fits: Path | None, planning: PlanningOptions) -> Fits:
    from isocompute_sdk import api
    from isocompute_sdk.fitting.fits import Fits
    from isocompute_sdk.laws.catalogue import of_model

    given = [name for name, on in (("--published", published), ("--prior", prior), ("--fits", fits)) if on]
    if len(given) > 1:
        raise SpecError(
            f"received {' and '.join(given)}; accepted: one of --published, --prior, --fits", "Keep one of them."
        )
    if published is not None:
        return api.published(published)
    if fits is not None:
        return Fits.load(fits)
    if prior or planning.model is None:
        return api.published_prior()
    return of_model(planning.model, hard={"easy": False, "hard": True, "mixture": True}.get(planning.recipe or ""))
