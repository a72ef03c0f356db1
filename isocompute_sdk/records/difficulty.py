"""Sorting problems by how often the base model solves them (paper section 3), with held-out validation sets.

The bands are those the paper trained on, by the pass rate p = passes / samples of the base model:

- easy: 0.3 <= p <= 0.6; hard: p <= 0.0625; very_easy: 0.6 < p <= 0.9;
- extremely_hard: no pass in 128 samples, so it takes at least 128 samples to know.

Every problem is in one band or in an unstudied gap. Problems are named by their position in the input.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from isocompute_sdk.errors import RecordError, SpecError
from isocompute_sdk.notes import Note

IntArray = NDArray[np.int64]

BandName = Literal["extremely_hard", "hard", "easy", "very_easy"]
BANDS: tuple[BandName, ...] = get_args(BandName)
GapName = Literal["between_hard_and_easy", "above_very_easy"]
GAPS: tuple[GapName, ...] = get_args(GapName)

HARD_MAX = Fraction(1, 16)
EASY_MIN, EASY_MAX = Fraction(3, 10), Fraction(6, 10)
VERY_EASY_MAX = Fraction(9, 10)
"""Edges of the bands in pass rate, exact: 1 of 16 is hard, and 3 of 10 is easy."""

EXTREMELY_HARD_SAMPLES = 128
"""Samples without a pass that make a problem extremely hard."""
PAPER_SAMPLES = 16
"""Samples per problem behind the paper's easy and hard bands."""


@dataclass(frozen=True, eq=False)
class ProblemSet:
    """Problems to train on and, apart from them, problems to validate on."""

    train_P: IntArray
    """Positions of the training problems, ascending."""
    validation_P: IntArray
    """Positions of the held-out problems, ascending."""


@dataclass(frozen=True, eq=False)
class DifficultySplit:
    """Every problem in its band, with the validation problems of each band held out."""

    samples: int
    """Samples per problem behind the pass counts."""
    bands: Mapping[BandName, ProblemSet]
    """Training and validation problems of each band; all four names are there, a band may be empty."""
    unstudied: Mapping[GapName, IntArray]
    """Positions of problems in pass-rate ranges that the paper did not train on, ascending."""
    notes: tuple[Note, ...] = field(default=())
    """What the counts cannot tell and where the sets are thin."""

    def __getitem__(self, band: BandName) -> ProblemSet:
        """The problems of one band."""
        if band not in self.bands:
            raise SpecError(f"received band {band!r}; accepted: {', '.join(BANDS)}", "Use one of these bands.")
        return self.bands[band]

    def mixture(self, shares: Mapping[BandName, float], size: int, rng: np.random.Generator | int) -> ProblemSet:
        """Draw a training set of `size` problems with these shares of bands, e.g. `{"hard": 0.5, "easy": 0.5}`.

        The paper mixed 50 % hard with 50 % easy, and 50/25/25 with very easy. Validation problems come in the
        same shares from the held-out ones, as many as the scarcest band allows.

        Args:
            shares: fraction of each band; together 1.
            size: training problems to draw, without replacement.
            rng: source of the draw.

        Raises:
            SpecError: unknown bands, shares that do not sum to 1, or more problems than a band has.
        """
        _check_shares(shares)
        generator = np.random.default_rng(rng)
        wanted = _apportion(shares, _positive(size, "size"))
        for band, count in wanted.items():
            available = len(self[band].train_P)
            if count > available:
                largest = min(int(len(self[name].train_P) / share) for name, share in shares.items())
                raise SpecError(
                    f"a mixture of {size} needs {count} {band} problems, but only {available} are left for training",
                    f"Set size to at most {largest}, or give {band} a smaller share.",
                )
        held_out = min(int(len(self[band].validation_P) / share) for band, share in shares.items())
        held_out_counts = _apportion(shares, held_out, round_up=False)
        train = [generator.choice(self[band].train_P, count, replace=False) for band, count in wanted.items()]
        validation = [
            generator.choice(self[band].validation_P, count, replace=False) for band, count in held_out_counts.items()
        ]
        return ProblemSet(_sorted(np.concatenate(train)), _sorted(np.concatenate(validation)))


def split_by_difficulty(
    passes_P: ArrayLike, samples: int, *, rng: np.random.Generator | int, validation: int = 300
) -> DifficultySplit:
    """Sort problems into the paper's bands and hold validation problems out of each.

    Args:
        passes_P: for each problem, how many of the base model's samples were right; shape (problems,).
        samples: samples drawn per problem.
        rng: source of the choice of validation problems.
        validation: problems held out of each band; a band with less than twice as many gives half of its own.

    Raises:
        RecordError: counts that are not whole numbers from 0 to `samples`.
        SpecError: `samples` below 1 or `validation` below 0.
    """
    samples = _positive(samples, "samples")
    if validation != 0:
        validation = _positive(validation, "validation")
    checked_P = _checked_passes(passes_P, samples)
    generator = np.random.default_rng(rng)
    members = _members(checked_P, samples)
    bands: dict[BandName, ProblemSet] = {}
    for band in BANDS:
        positions = members[band]
        count = min(validation, len(positions) // 2)
        shuffled = generator.permutation(positions)
        bands[band] = ProblemSet(_sorted(shuffled[count:]), _sorted(shuffled[:count]))
    gaps: dict[GapName, IntArray] = {gap: _sorted(members[gap]) for gap in GAPS}
    notes = (
        *_notes_on_samples(checked_P, samples),
        *_notes_on_sizes(bands, gaps, len(checked_P), validation),
    )
    return DifficultySplit(samples, bands, gaps, notes)


def _members(passes_P: IntArray, samples: int) -> dict[str, IntArray]:
    """Positions of the problems of every band and gap.

    Rates are compared as whole numbers, because 3 of 10 in floating point is not the 0.3 of a band's edge.
    """

    def at_most(edge: Fraction) -> NDArray[np.bool_]:
        return passes_P * edge.denominator <= samples * edge.numerator

    def below(edge: Fraction) -> NDArray[np.bool_]:
        return passes_P * edge.denominator < samples * edge.numerator

    never_P = (passes_P == 0) & (samples >= EXTREMELY_HARD_SAMPLES)
    chosen: dict[str, NDArray[np.bool_]] = {
        "extremely_hard": never_P,
        "hard": at_most(HARD_MAX) & ~never_P,
        "between_hard_and_easy": ~at_most(HARD_MAX) & below(EASY_MIN),
        "easy": ~below(EASY_MIN) & at_most(EASY_MAX),
        "very_easy": ~at_most(EASY_MAX) & at_most(VERY_EASY_MAX),
        "above_very_easy": ~at_most(VERY_EASY_MAX),
    }
    return {name: np.flatnonzero(chosen_P).astype(np.int64) for name, chosen_P in chosen.items()}


def _notes_on_samples(passes_P: IntArray, samples: int) -> list[Note]:
    zeros, parts = int(np.count_nonzero(passes_P == 0)), list[str]()
    data: dict[str, float] = {"samples": samples}
    if samples < PAPER_SAMPLES:
        parts.append(
            f"{samples} samples per problem give pass rates in steps of {1 / samples:.3g}, coarser than the bands, "
            f"which the paper drew from {PAPER_SAMPLES}; many problems land in a neighbouring band."
        )
    if samples < EXTREMELY_HARD_SAMPLES and zeros:
        upper = 1.0 - 0.05 ** (1.0 / samples)
        parts.append(
            f"{zeros} problems have no pass in {samples} samples; whether they are extremely hard (none in "
            f"{EXTREMELY_HARD_SAMPLES}) is unknown: a pass rate of {upper:.1%} still gives such a count "
            f"in 5 % of cases. They stay in hard; draw {EXTREMELY_HARD_SAMPLES} samples of each to find out."
        )
        data |= {"problems": zeros, "pass_rate_upper_95": upper}
    return [Note("pass-rates-coarse", "warning", " ".join(parts), data)] if parts else []


def _notes_on_sizes(
    bands: Mapping[BandName, ProblemSet], gaps: Mapping[GapName, IntArray], total: int, validation: int
) -> list[Note]:
    notes: list[Note] = []
    unstudied = {gap: len(positions) for gap, positions in gaps.items()}
    if any(unstudied.values()):
        message = (
            f"{sum(unstudied.values())} of {total} problems have pass rates that the paper did not train on: "
            f"{unstudied['between_hard_and_easy']} between 0.0625 and 0.3, {unstudied['above_very_easy']} above 0.9. "
            "No law was measured for them."
        )
        notes.append(Note("band-not-studied", "warning", message, unstudied))
    thin = {
        str(band): len(chosen.validation_P)
        for band, chosen in bands.items()
        if len(chosen.validation_P) < validation and len(chosen.train_P)
    }
    if thin:
        listed = ", ".join(f"{band} {count}" for band, count in thin.items())
        message = f"Bands too small to hold out {validation} validation problems; half of each is held out: {listed}."
        notes.append(Note("validation-set-small", "warning", message, {"validation": validation, **thin}))
    return notes


def _checked_passes(passes_P: ArrayLike, samples: int) -> IntArray:
    raw = np.asarray(passes_P)
    if raw.ndim != 1 or raw.size == 0:
        raise RecordError(
            f"passes_P: received shape {raw.shape}; accepted: one count per problem, shape (problems,)",
            "From rewards of shape (problems, samples), give rewards.sum(axis=1).",
        )
    if raw.dtype.kind not in "iuf":
        raise RecordError(
            f"passes_P: received {raw.dtype.name} values; accepted: whole numbers from 0 to {samples}",
            "Count the correct samples of every problem.",
        )
    with np.errstate(invalid="ignore"):
        wrong_P = ~((raw >= 0) & (raw <= samples) & (raw == np.floor(raw)))
    if wrong_P.any():
        first = int(np.flatnonzero(wrong_P)[0])
        raise RecordError(
            f"passes_P[{first}]: received {raw[first]}; accepted: whole numbers from 0 to samples = {samples}",
            "Give counts of right answers, not pass rates.",
        )
    return raw.astype(np.int64)


def _positive(value: Any, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < 1:
        raise SpecError(f"{name}: received {value!r}; accepted: whole numbers >= 1", "Correct it.")
    return int(value)


def _check_shares(shares: Mapping[BandName, float]) -> None:
    bad = {band: share for band, share in shares.items() if not 0 < share <= 1}
    if bad or not math.isclose(sum(shares.values()), 1.0, abs_tol=1e-9):
        raise SpecError(
            f"received shares {dict(shares)}, sum {sum(shares.values()):g}; accepted: fractions above 0 that sum to 1",
            "Give shares such as {'easy': 0.5, 'hard': 0.5}.",
        )


def _apportion(shares: Mapping[BandName, float], size: int, *, round_up: bool = True) -> dict[BandName, int]:
    """Whole numbers in proportion to the shares; the largest remainders are rounded up until they sum to size."""
    exact: dict[BandName, float] = {band: size * share for band, share in shares.items()}
    # The small addition undoes the rounding of products such as 3 * (1 / 3).
    counts: dict[BandName, int] = {band: math.floor(value + 1e-9) for band, value in exact.items()}
    if round_up:
        by_remainder = sorted(exact, key=lambda band: counts[band] - exact[band])
        for band in by_remainder[: size - sum(counts.values())]:
            counts[band] += 1
    return counts


def _sorted(positions: IntArray) -> IntArray:
    ordered = np.sort(positions).astype(np.int64)
    ordered.flags.writeable = False
    return ordered
