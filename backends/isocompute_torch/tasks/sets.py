"""Choosing training and validation problems by the base model's pass counts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from isocompute_sdk.records.difficulty import BandName, DifficultySplit, ProblemSet, split_by_difficulty
from isocompute_torch.failures import RunFailed
from isocompute_torch.tasks.settings import Kind

SHARES: dict[Kind, dict[BandName, float]] = {
    "easy": {"easy": 1.0},
    "hard": {"hard": 1.0},
    "mixed": {"hard": 0.5, "easy": 0.5},
}
"""Bands of each kind of set; half hard and half easy is the paper's mixture (section 3)."""


def choose(
    passes_P: NDArray[np.int64],
    samples: int,
    held_out_P: NDArray[np.bool_],
    *,
    kind: Kind,
    validation: int,
    rng: np.random.Generator,
) -> ProblemSet:
    """Training and validation problems of one kind, both in random order.

    Args:
        passes_P: number of right responses of the base model, per problem.
        samples: number of responses per problem.
        held_out_P: True for problems outside the warm-up, from which validation problems are drawn.
        kind: difficulty of the set.
        validation: number of validation problems.
        rng: generator of every choice.

    Raises:
        RunFailed: too few problems of that difficulty.
    """
    shares = SHARES[kind]
    split = split_by_difficulty(passes_P, samples, rng=rng, validation=0)
    bands: dict[BandName, ProblemSet] = dict(split.bands)
    for band, share in shares.items():
        bands[band] = _held_out_first(split, band, held_out_P, round(validation * share), kind, rng)
    chosen = _mixture(replace(split, bands=bands), shares, rng)
    return ProblemSet(rng.permutation(chosen.train_P), rng.permutation(chosen.validation_P))


def _held_out_first(
    split: DifficultySplit,
    band: BandName,
    held_out_P: NDArray[np.bool_],
    wanted: int,
    kind: Kind,
    rng: np.random.Generator,
) -> ProblemSet:
    """The problems of a band; validation problems are drawn from those outside the warm-up."""
    members = split[band].train_P
    fresh = members[held_out_P[members]]
    if len(fresh) < wanted or len(members) == len(fresh):
        raise RunFailed(
            f"the base model has {len(members)} {band} problems, {len(fresh)} of them outside the warm-up; the "
            f"{kind} set needs {wanted} outside the warm-up for validation, and others for training",
            "Change the pass rate at which the warm-up stops, use fewer validation problems, or another seed.",
        )
    validation = np.sort(rng.choice(fresh, wanted, replace=False))
    return ProblemSet(np.setdiff1d(members, validation), validation)


def _mixture(split: DifficultySplit, shares: Mapping[BandName, float], rng: np.random.Generator) -> ProblemSet:
    """The largest set with these shares."""
    size = min(int(len(split[band].train_P) / share) for band, share in shares.items())
    return split.mixture(shares, size, rng)
