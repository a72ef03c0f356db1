"""The command that was typed, and commands made from it that work when they are pasted."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

SHOWN = ("--output", "-o", "--plot", "--json", "--verbose", "-v", "--slots", "--checkpoints")
"""Options that are not handed on: where to write, how to print, and how to search for runs."""
BORROWED = ("--published", "--prior")
NOT_NEXT = ("--method", "--points", "--bin-width", "--curve", "--update-steps", "--rollouts-per-batch")
"""Options with which `isocompute next` has no answer."""
ALONE = ("--json", "--verbose", "-v", "--prior")
"""Options without a value."""


@dataclass(frozen=True)
class Typed:
    """A command that plans, as it was typed after `isocompute`."""

    words: tuple[str, ...]
    own: bool = True
    """Whether the plan rests on runs of the user's own; if not, other commands get no fits."""

    def saving(self) -> str:
        """The same command, with the plan saved to a file."""
        return " ".join(["isocompute", shlex.join(self._without(SHOWN)), "--output plan.json"])

    def asking(self, command: str, *options: str) -> str:
        """Another command about the same runs and budget: `next`, `allocate` or `plan`."""
        dropped = (*SHOWN, *BORROWED, *(NOT_NEXT if command == "next" else ()))
        words = self._without(dropped if self.own else (*dropped, "--fits"))
        if words[0] == "plan":
            # Only `plan` takes saved fits by an option.
            words = [word.removeprefix("--fits=") for word in words if word != "--fits"]
        elif not self.own:
            words = [word for word in words if not word.endswith(".json")]
        return " ".join(["isocompute", shlex.join([command, *words[1:]]), *options])

    def _without(self, flags: Sequence[str]) -> list[str]:
        kept: list[str] = []
        skip = False
        for word in self.words:
            flag, equals, _ = word.partition("=")
            if skip:
                skip = False
            elif flag in flags:
                skip = not equals and flag not in ALONE
            elif not ("-o" in flags and word.startswith("-o")):
                # Also without -oplan.json: a command that is pasted must not write over that file.
                kept.append(word)
        return kept
