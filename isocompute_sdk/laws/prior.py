"""A prior over all published laws, for plans without data.

The best n saturates at 512, 128, 64, 32 and 16 on the paper's five model-and-set pairs, so a law copied from one pair
to another can be wrong by a factor of 30. The paper prints midpoint and slope for only two of the five.
"""

from __future__ import annotations

import itertools

import numpy as np

from isocompute_sdk.fitting.allocation_laws.allocation import AllocationLaw
from isocompute_sdk.fitting.fits import Fits
from isocompute_sdk.fitting.least_squares.fit_status import FitStatus
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


def hedged_prior() -> Fits:
    """75 equally likely laws, the default without data: five plateaus x five midpoints x three slopes."""
    base = float(np.log2(SMALLEST))
    draws = np.array(
        [
            (np.log2(plateau) - base, slope, midpoint, base)
            for plateau, midpoint, slope in itertools.product(PUBLISHED_PLATEAUS.values(), MIDPOINTS, SLOPES)
        ]
    )
    middle = np.median(draws, axis=0)
    height, slope, midpoint, floor = (float(v) for v in middle)
    law = AllocationLaw(height, slope, midpoint, floor, status=FitStatus.PUBLISHED)
    plateaus = sorted(PUBLISHED_PLATEAUS.values())
    note = Note(
        "prior-over-published-models",
        "warning",
        f"Without runs of your own, n comes from a prior over the {len(plateaus)} published model-and-set pairs, with "
        f"plateaus from {plateaus[0]} to {plateaus[-1]}. A pilot sweep on your model would narrow it.",
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
        grid=(SMALLEST, plateaus[-1]),
    )
