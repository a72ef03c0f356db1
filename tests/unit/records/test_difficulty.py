"""Problems land in the paper's bands by exact pass rate, and validation problems are never trained on."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isocompute_sdk.errors import RecordError, SpecError
from isocompute_sdk.records.difficulty import BANDS, GAPS, DifficultySplit, split_by_difficulty

SIXTEEN = (
    *["hard"] * 2,
    *["between_hard_and_easy"] * 3,
    *["easy"] * 5,
    *["very_easy"] * 5,
    *["above_very_easy"] * 2,
)


@pytest.mark.parametrize(
    ("passes", "samples", "bands"),
    [
        (list(range(17)), 16, SIXTEEN),
        # Edges are exact where floating point is not.
        ([3, 6, 9, 10], 10, ("easy", "easy", "very_easy", "above_very_easy")),
        ([8, 9], 128, ("hard", "between_hard_and_easy")),
        ([0, 1], 127, ("hard", "hard")),
        ([0, 1], 128, ("extremely_hard", "hard")),
        ([0], 1000, ("extremely_hard",)),
    ],
)
def test_every_count_lands_in_its_band(passes: list[int], samples: int, bands: tuple[str, ...]) -> None:
    split = split_by_difficulty(passes, samples, rng=0, validation=0)
    name_of = {int(p): str(band) for band in BANDS for p in split[band].train_P}
    name_of |= {int(p): str(gap) for gap in GAPS for p in split.unstudied[gap]}
    assert tuple(name_of[p] for p in range(len(passes))) == bands


def a_split(samples: int = 16, problems: int = 4000) -> DifficultySplit:
    passes = np.random.default_rng(7).integers(0, samples + 1, problems)
    return split_by_difficulty(passes, samples, rng=1, validation=50)


@settings(deadline=None)
@given(st.lists(st.integers(0, 200), min_size=1, max_size=60), st.integers(0, 20), st.integers(0, 2**31))
def test_every_problem_is_in_exactly_one_set(passes: list[int], validation: int, seed: int) -> None:
    split = split_by_difficulty(passes, 200, rng=seed, validation=validation)
    sets = [part for band in BANDS for part in (split[band].train_P, split[band].validation_P)]
    everything = np.concatenate([*sets, *split.unstudied.values()])
    assert sorted(everything.tolist()) == list(range(len(passes)))
    for band in BANDS:
        size = len(split[band].train_P) + len(split[band].validation_P)
        assert len(split[band].validation_P) == min(validation, size // 2)


def codes(passes: list[int], samples: int, validation: int = 0) -> dict[str, dict[str, object]]:
    return {
        note.code: dict(note.data) for note in split_by_difficulty(passes, samples, rng=0, validation=validation).notes
    }


def test_sixteen_samples_cannot_tell_extremely_hard_and_the_note_says_how_unsure_it_is() -> None:
    data = codes([0, 0, 8], 16)["pass-rates-coarse"]
    assert data["problems"] == 2
    upper = data["pass_rate_upper_95"]
    assert isinstance(upper, float)
    assert (1 - upper) ** 16 == pytest.approx(0.05)
    assert not codes([1, 8], 16)
    assert not codes([0, 8], 128)


@settings(deadline=None)
@given(st.floats(0.05, 0.95), st.integers(1, 390), st.integers(0, 99))
def test_a_mixture_has_its_size_and_shares_and_nothing_held_out(share: float, size: int, seed: int) -> None:
    split = a_split()
    mixed = split.mixture({"hard": share, "easy": 1 - share}, size, seed)
    assert len(mixed.train_P) == size == len(np.unique(mixed.train_P))
    hard = np.isin(mixed.train_P, split["hard"].train_P).sum()
    assert abs(hard - size * share) <= 1
    assert np.isin(mixed.train_P, np.concatenate([split["hard"].train_P, split["easy"].train_P])).all()
    assert not np.isin(mixed.validation_P, mixed.train_P).any()


def test_a_mixture_validates_on_the_same_shares() -> None:
    split = a_split()
    mixed = split.mixture({"hard": 0.5, "easy": 0.25, "very_easy": 0.25}, 100, rng=0)
    counts = [np.isin(mixed.validation_P, split[band].validation_P).sum() for band in ("hard", "easy", "very_easy")]
    assert counts == [50, 25, 25]


def test_a_mixture_that_a_band_cannot_fill_says_how_large_it_may_be() -> None:
    split = split_by_difficulty([0] * 10 + [8] * 100, 16, rng=0, validation=0)
    with pytest.raises(SpecError, match=r"25 hard.* 10") as caught:
        split.mixture({"hard": 0.5, "easy": 0.5}, 50, 0)
    assert "20" in str(caught.value)
    assert len(split.mixture({"hard": 0.5, "easy": 0.5}, 20, 0).train_P) == 20


@pytest.mark.parametrize(
    ("shares", "why"),
    [
        ({"hard": 0.5, "easy": 0.6}, "1.1"),
        ({"hard": 1.5, "easy": -0.5}, "hard"),
        ({}, "0"),
        ({"hrd": 1.0}, "'hrd'.*extremely_hard, hard, easy, very_easy"),
        ({"hard": float("nan")}, "hard"),
    ],
)
def test_wrong_shares_are_refused(shares: dict[str, float], why: str) -> None:
    with pytest.raises(SpecError, match=why):
        a_split().mixture(shares, 10, 0)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("passes", "samples", "validation", "expected"),
    [
        ([3, 4, 16, 8], 16, 0, {"band-not-studied": {"between_hard_and_easy": 2, "above_very_easy": 1}}),
        ([8, 1], 16, 0, {}),
        ([2], 4, 0, {"pass-rates-coarse": {"samples": 4}}),
        ([8] * 10, 16, 300, {"validation-set-small": {"validation": 300, "easy": 5}}),
    ],
)
def test_what_a_split_lacks_is_noted(
    passes: list[int], samples: int, validation: int, expected: dict[str, dict[str, object]]
) -> None:
    assert codes(passes, samples, validation) == expected


@pytest.mark.parametrize(
    ("passes", "samples", "validation", "error", "why"),
    [
        ([], 16, 0, RecordError, r"\(0,\)"),
        ([[1, 2]], 16, 0, RecordError, r"\(1, 2\)"),
        ([1, 17], 16, 0, RecordError, r"passes_P\[1\]: .*17;.*16"),
        ([-1], 16, 0, RecordError, r"passes_P\[0\].*-1"),
        ([0.5], 16, 0, RecordError, r"passes_P\[0\].*0\.5"),
        ([float("nan")], 16, 0, RecordError, r"passes_P\[0\].*nan"),
        ([True, False], 16, 0, RecordError, "bool"),
        (["3"], 16, 0, RecordError, "str"),
        *[([1], samples, 0, SpecError, "samples") for samples in (0, 1.5, True, None)],
        ([1], 16, -1, SpecError, r"validation.*-1"),
    ],
)
def test_wrong_counts_are_named(passes: Any, samples: Any, validation: int, error: type[Exception], why: str) -> None:
    with pytest.raises(error, match=why):
        split_by_difficulty(passes, samples, rng=0, validation=validation)
