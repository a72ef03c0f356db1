"""Which measurement is the reward, by names alone."""

from __future__ import annotations

import itertools

import pytest

from isocompute_sdk.records.reward_metrics import headline, undecided

ON = "validation"


@pytest.mark.parametrize(
    ("names", "reward"),
    [
        (("eval/turns", "eval/reward"), "eval/reward"),
        (("eval/turns", "my_score"), "my_score"),
        (("eval/format_reward", "eval/reward"), "eval/reward"),
        (("best@4", "avg@4", "train_reward"), "avg@4"),
        (("avg@2", "avg@16", "loss"), "avg@16"),
        (("train_reward", "quality"), "train_reward"),
    ],
)
def test_the_reward_is_found_in_any_order(names: tuple[str, ...], reward: str) -> None:
    for order in itertools.permutations(names):
        assert headline((name, ON) for name in order) == (reward, ON)


def test_a_known_number_of_samples_goes_before_the_name_of_the_set() -> None:
    known, unknown = ("avg@1", "test_b"), ("avg@?", ON)
    assert headline([known, unknown]) == headline([unknown, known]) == known


def test_what_most_runs_have_goes_before_a_better_name() -> None:
    assert headline({("avg@4", ON): 1, ("avg@8", ON): 3}) == ("avg@8", ON)


@pytest.mark.parametrize(
    ("names", "unknown"),
    [
        (("quality", "style"), ["quality", "style"]),
        (("quality",), []),
        (("quality", "style", "avg@4"), []),
        (("quality", "style", "train_reward"), []),
        ((), []),
    ],
)
def test_unknown_names_are_undecided_unless_a_known_one_decides(names: tuple[str, ...], unknown: list[str]) -> None:
    assert undecided((name, ON) for name in names) == unknown
