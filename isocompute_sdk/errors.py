"""The errors of this package: each says what was wrong and what to do."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from copy import copy
from typing import Self, TypeVar

Kind = TypeVar("Kind", bound="IsoComputeError")
_FORMS = re.compile(r"<([^<>]+?) \| (.+?)>")
"""One remedy in its two forms, as texts write it: `<--budget 3M | budget='3M'>`."""


def shell_form(text: str) -> str:
    """The text with every remedy as it is typed in a shell."""
    return _FORMS.sub(r"\1", text)


def python_form(text: str) -> str:
    """The text with every remedy as it is written in Python."""
    return _FORMS.sub(r"\2", text)


class IsoComputeError(Exception):
    """Base of every error this package raises on purpose.

    Args:
        message: what was wrong, with the value received and what is accepted.
        hint: what to do next, in one or two sentences.

    A hint may hold remedies in two forms, `<--budget 3M | budget='3M'>`: `hint` has the second, and `shell_hint`, which
    commands print, has the first, or what `in_shell` gave.
    """

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message, hint)
        self.message = message
        self.hint = None if hint is None else python_form(hint)
        self.shell_hint = None if hint is None else shell_form(hint)
        self.options: tuple[str, ...] = ()

    def in_shell(self, hint: str, options: Sequence[str] = ()) -> Self:
        """The same error with another hint for people at a command line: flags instead of arguments.

        Args:
            hint: what to do next.
            options: words that, added to the command, would do it, such as `--rename G=n`.
        """
        self.shell_hint = hint
        self.options = tuple(options) or self.options
        return self

    def restated(self, message: str) -> Self:
        """A copy with another message, such as one that names the file, and the same hints."""
        other = copy(self)
        other.message = message
        other.args = (message, *self.args[1:])
        return other

    def retyped(self, kind: type[Kind], message: str) -> Kind:
        """An error of another class with another message and the same hints."""
        other = kind(message, self.hint)
        other.shell_hint, other.options = self.shell_hint, self.options
        return other

    def __str__(self) -> str:
        return self.message if self.hint is None else f"{self.message}\n  {self.hint}"


class DocumentError(IsoComputeError, ValueError):
    """A saved document that cannot be read, or whose values contradict each other.

    Args:
        message: what was wrong, with file, field, the value received and what is accepted.
        hint: what to do next.
        field: path of the first wrong field, such as `alternatives[0].group_size`; None for the whole document.
    """

    def __init__(self, message: str, hint: str | None = None, field: str | None = None) -> None:
        super().__init__(message, hint)
        self.field = field


class FieldError(DocumentError):
    """A value that breaks a rule of its class; raise it in `__post_init__`.

    Args:
        field: name of the field.
        received: its value.
        expected: the accepted values, such as `at most the budget of 3,000,000`.
    """

    def __init__(self, field: str, received: object, expected: str) -> None:
        super().__init__(f"{field}: received {show(received)}; expected {expected}", "Correct the value.", field)
        self.args = (field, received, expected)
        self.received = received
        self.expected = expected


class SpecError(IsoComputeError, ValueError):
    """A budget, recipe, sweep or study that cannot be meant as it was written."""


class RecordError(IsoComputeError, ValueError):
    """Run data that cannot be read, or that contradicts itself.

    Args:
        message: what was wrong, and where.
        hint: what to do next.
        options: words that, added to the command, would say what is missing, such as `--rename G=n`.
    """

    def __init__(self, message: str, hint: str | None = None, options: Sequence[str] = ()) -> None:
        super().__init__(message, hint)
        self.options = tuple(options)


class NothingMeasured(RecordError):
    """A run or a table without a measurement; it keeps no other from being read."""


class FitError(IsoComputeError, ValueError):
    """The runs cannot support the fit that was asked for."""


class PlanError(IsoComputeError, ValueError):
    """No plan satisfies the budget and the constraints together.

    Args:
        message: what stood in the way.
        hint: what would work.
        smallest_budget: the least amount, in the budget's own unit, for which a plan exists; None if
            no budget helps.
    """

    def __init__(self, message: str, hint: str | None = None, smallest_budget: float | None = None) -> None:
        super().__init__(message, hint)
        self.smallest_budget = smallest_budget


class BackendError(IsoComputeError, RuntimeError):
    """A training framework cannot be found, or cannot do what the recipe asks."""


def show(value: object, limit: int = 80) -> str:
    """The value as Python writes it; longer texts than `limit` characters are cut in the middle."""
    text = repr(value)
    return text if len(text) <= limit else f"{text[: limit - 25]} ... {text[-20:]}"


def typed_value(value: object) -> str:
    """A value of any type in one line, with its type: `42 (int)`."""
    return f"{' '.join(repr(value).split()):.60} ({type(value).__name__})"


def dotted(path: Sequence[str | int]) -> str:
    """`("sweep", "group_size", 2)` as `sweep.group_size[2]`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def close(name: str, candidates: Iterable[str], *, cutoff: float = 0.6) -> str | None:
    """The candidate most like `name`, ignoring case; None if none is near."""
    folded = {candidate.lower(): candidate for candidate in candidates}
    found = difflib.get_close_matches(name.lower(), list(folded), n=1, cutoff=cutoff)
    return folded[found[0]] if found else None


def did_you_mean(name: str, candidates: Sequence[str]) -> str:
    """A sentence with the nearest candidate, or an empty string."""
    nearest = close(name, candidates)
    return "" if nearest is None else f"Did you mean {nearest!r}? "
