"""A prior over all published laws, for plans without data.

The best n saturates at 512, 128, 64, 32 and 16 on the paper's five model-and-set pairs, so a law copied from one pair
to another can be wrong by a factor of 30. The paper prints midpoint and slope for only two of the five.
"""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np

from isocompute_sdk.fitting.allocation import AllocationLaw
from isocompute_sdk.fitting.arrays import FitStatus
from isocompute_sdk.fitting.fits import Fits
from isocompute_sdk.laws.catalogue import MODEL, PREFIX, find_published
from isocompute_sdk.notes import Note

PUBLISHED_PLATEAUS: dict[str, int] = {
    "Qwen2.5-7B-Instruct, Guru-Math Easy": 512,
    "Qwen2.5-7B-Instruct, Guru-Math Hard": 128,
    "Qwen3-4B-Instruct, Guru-Math Easy": 64,
    "Qwen3-4B-Instruct, Guru-Math Hard": 32,
    "Llama-3.1-8B-Instruct, Guru-Math Easy": 16,
}
"""Plateau of n*(C) at B_p = 32 per model and set (paper, sections 4 and 5)."""
MIDPOINTS = (5.54, 5.84, 6.08, 6.13, 6.43)
"""log10 C at half height: the printed values (5.84 twice, 6.08, 6.13) and, assumed for the three other pairs, a factor
of 2 beyond both ends."""
SLOPES = (4.75, 7.23, 8.84)
"""k as printed (figs. 7 and 21), without the fourth value, which is at its bound."""
SMALLEST = 8
"""Smallest n of the published sweeps, 2^b of every law to within 10 %."""


def of_model(model: str, *, hard: bool | None = None) -> Fits:
    """The published laws of a model: its own where the paper prints them, else a prior over its plateaus.

    Args:
        model: hub name or local folder; the prior over all models if nothing is published of it.
        hard: whether the set is a hard one, of which there is a law too; None for an easy one, with a note.
    """
    if _last_part(model) != _last_part(MODEL):
        return hedged_prior(model)
    names = [f"{PREFIX}/guru-math-{kind}" for kind in (("hard", "easy") if hard else ("easy", "hard"))]
    fits = find_published(names[0])
    if hard is not None:
        return fits
    message = (
        f"{model} has published laws for an easy set (the base model solves .3 to .6) and for a hard one (at most "
        f".0625). This plan takes {names[0]}; the other one: --published {names[1]}."
    )
    data = {"law": names[0], "other": names[1]}
    return replace(fits, notes=(*fits.notes, Note("published-set-assumed", "warning", message, data)))


def _last_part(model: str) -> str:
    return model.rstrip("/").rsplit("/", 1)[-1].lower()


def hedged_prior(model: str | None = None) -> Fits:
    """75 equally likely laws, the default without data: five plateaus x five midpoints x three slopes.

    Args:
        model: take only the plateaus of this model, where some were published.
    """
    own = {
        pair: plateau
        for pair, plateau in PUBLISHED_PLATEAUS.items()
        if model is not None and _last_part(model).startswith(pair.partition(",")[0].lower())
    }
    chosen = own or PUBLISHED_PLATEAUS
    base = float(np.log2(SMALLEST))
    draws = np.array(
        [
            (np.log2(plateau) - base, slope, midpoint, base)
            for plateau, midpoint, slope in itertools.product(chosen.values(), MIDPOINTS, SLOPES)
        ]
    )
    middle = np.median(draws, axis=0)
    height, slope, midpoint, floor = (float(v) for v in middle)
    law = AllocationLaw(height, slope, midpoint, floor, status=FitStatus.PUBLISHED)
    plateaus = sorted(chosen.values())
    note = Note(
        "prior-over-published-models",
        "warning",
        f"Without runs of your own, n comes from a prior over the {len(plateaus)} published model-and-set pairs"
        f"{f' of {model}' if own else ''}, with plateaus from "
        f"{plateaus[0]} to {plateaus[-1]}. A pilot sweep on your model would narrow it.",
        {"plateaus": plateaus},
    )
    reason = "the prior holds laws of n in compute only"
    return Fits(
        metric="avg@4",
        method="prior",
        laws={"group_size": law},
        unsupported={"group_size_vs_steps": reason, "problems_per_batch_vs_steps": reason},
        notes=(note,),
        law_draws={"group_size": draws},
        model=model if own else None,
        grid=(SMALLEST, plateaus[-1]),
    )
