"""Families of generated arithmetic problems: short prompts of digits and one sign, answers of four digits.

Every family has its own sign, so that one model can learn several families and distinguish them:

- `mul31`: `abc*d=`, the product of a three-digit and a one-digit number;
- `rev31`: `abc~d=`, the same product written backwards. Its rewards contradict those of `mul31` at each position;
- `add32`: `abc+de=`, the sum of a three-digit and a two-digit number. Its prompts are one character longer.

All numbers are padded with zeros: the answer to `007*3=` is `0021`.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass

from isocompute_sdk.errors import SpecError

ANSWER_DIGITS = 4
"""Length of every answer. The end token follows, so a response has five tokens."""
MAX_RESPONSE_TOKENS = ANSWER_DIGITS + 1
"""Smallest token limit at which a right response is not truncated."""
SIGNS = "*~+="
"""Characters of prompts other than digits."""
PROBLEMS = 10_000
"""Number of problems of each family."""


@dataclass(frozen=True)
class Problem:
    """One question with its only right answer."""

    id: str
    """Unique over all families."""
    prompt: str
    """Text that the model reads."""
    answer: str
    """Text that it must write before the end token."""


@dataclass(frozen=True)
class Family:
    """A rule that turns two numbers into four digits."""

    name: str
    """Name in settings and on the command line."""
    sign: str
    """Character between the two numbers."""
    answer: Callable[[int, int], str]
    """The four digits that are right for two numbers."""
    second_digits: int
    """Length of the second number; the first has three digits."""

    def problems(self) -> list[Problem]:
        """All problems of the family, always in the same order."""
        return [
            Problem(
                f"{self.name}-{first}-{second}",
                f"{first:03d}{self.sign}{second:0{self.second_digits}d}=",
                self.answer(first, second),
            )
            for first, second in self._operands()
        ]

    def _operands(self) -> list[tuple[int, int]]:
        """10,000 pairs: all of them, or a fixed draw from a larger number, so that all families have equal weight."""
        pairs = list(itertools.product(range(1000), range(10**self.second_digits)))
        return sorted(random.Random(self.name).sample(pairs, PROBLEMS)) if len(pairs) > PROBLEMS else pairs


FAMILIES: dict[str, Family] = {
    family.name: family
    for family in (
        Family("mul31", "*", lambda first, second: f"{first * second:04d}", 1),
        Family("rev31", "~", lambda first, second: f"{first * second:04d}"[::-1], 1),
        Family("add32", "+", lambda first, second: f"{first + second:04d}", 2),
    )
}
"""Every family by name."""


def families(names: str) -> tuple[Family, ...]:
    """The families of a name, or of several names joined with `+`, such as `mul31+rev31`.

    Raises:
        SpecError: an unknown or repeated name.
    """
    chosen = names.split("+")
    unknown = [name for name in chosen if name not in FAMILIES]
    if unknown:
        raise SpecError(
            f"received family {unknown[0]!r}; accepted: {', '.join(FAMILIES)}",
            "Join several with +, as in mul31+rev31.",
        )
    if len(set(chosen)) < len(chosen):
        raise SpecError(
            f"received families {names!r} with a repeated name; accepted: each family once", "Remove the repeated name."
        )
    return tuple(FAMILIES[name] for name in chosen)


def problems(names: str) -> list[Problem]:
    """All problems of the named families, family after family."""
    return [problem for family in families(names) for problem in family.problems()]
