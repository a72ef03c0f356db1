"""Generated problems: right answers, no two alike, the same ones every time."""

from __future__ import annotations

import re

import pytest

from isocompute_sdk.errors import SpecError
from isocompute_torch.tasks.arithmetic import ANSWER_DIGITS, FAMILIES, families, problems

RULES = {
    "mul31": (r"(\d{3})\*(\d)=", lambda a, b: str(a * b).zfill(4)),
    "rev31": (r"(\d{3})~(\d)=", lambda a, b: "".join(reversed(str(a * b).zfill(4)))),
    "add32": (r"(\d{3})\+(\d{2})=", lambda a, b: str(a + b).zfill(4)),
}


@pytest.mark.parametrize("name", FAMILIES)
def test_every_answer_follows_from_the_text_of_its_prompt(name: str) -> None:
    pattern, rule = RULES[name]
    for problem in problems(name):
        numbers = re.fullmatch(pattern, problem.prompt)
        assert numbers is not None
        assert problem.answer == rule(int(numbers[1]), int(numbers[2]))
        assert len(problem.answer) == ANSWER_DIGITS


def test_no_two_problems_of_any_family_share_a_prompt_or_an_id() -> None:
    everything = problems("+".join(FAMILIES))
    assert len(everything) == 30_000
    assert len({problem.prompt for problem in everything}) == len({problem.id for problem in everything}) == 30_000


def test_the_problems_of_a_family_are_always_the_same() -> None:
    for family in FAMILIES.values():
        assert family.problems() == family.problems()


def test_joined_names_give_the_families_in_that_order() -> None:
    assert [family.name for family in families("rev31+mul31")] == ["rev31", "mul31"]


@pytest.mark.parametrize(
    ("names", "message"),
    [("mul32", "'mul32'.*mul31, rev31, add32"), ("", "''"), ("mul31+mul31", "'mul31\\+mul31'")],
)
def test_a_family_that_is_not_there_or_named_twice_is_refused(names: str, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        families(names)
