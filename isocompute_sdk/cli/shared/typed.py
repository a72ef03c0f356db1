"""The command that was typed, and commands made from it that work when they are pasted."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from isocompute_sdk.notes import Note

VALUES = {
    "--published": 1,
    "--prior": 0,
    "--fits": 1,
    "--output": 1,
    "-o": 1,
    "--plot": 1,
    "--slots": 1,
    "--checkpoints": 1,
    "--json": 0,
    "--verbose": 0,
    "-v": 0,
    "--method": 1,
    "--points": 1,
    "--bin-width": 1,
    "--curve": 1,
    "--problems-per-batch": 1,
    "--max-rollouts-per-batch": 1,
    "--spend": 1,
    "--evaluation": 1,
    "--update-steps": 1,
    "--rollouts-per-batch": 1,
}
"""Options that are left out or replaced, with their number of values."""
SHOWN = ("--output", "-o", "--plot", "--json", "--verbose", "-v", "--slots", "--checkpoints")
"""Options that are not handed on: where to write, how to print, and how to search for runs."""
MEASURE = (
    "extrapolation-beyond-3x",
    "plateau-unidentified",
    "rise-not-seen",
    "backtest-missed",
    "best-group-size-at-grid-edge",
    "beyond-grid",
    "few-group-sizes",
    "one-seed-per-cell",
    "constants-of-another-model",
    "prior-over-published-models",
)
"""Notes whose remedy is to run more."""
LOOK = (
    "collapsed-run",
    "decayed-run",
    "decline-within-budget",
    "outlying-run",
    "outlying-evaluations",
    "small-problem-set",
)
"""Notes whose remedy is to look at the runs."""

ONLY_PAPER = ("law-and-curves-disagree",)
"""Notes that the default method does not have."""
PAPER = ("--method", "--points", "--bin-width", "--curve")
NOT_NEXT = (*PAPER, "--update-steps", "--rollouts-per-batch")
"""Options with which `isocompute next` has no answer."""
CHANGES: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "rest-not-worthwhile": lambda _: "--spend all",
    "below-stability-floor": lambda data: f"--problems-per-batch {data['floor']}",
}
"""Notes whose remedy is one option more, from their data."""


@dataclass(frozen=True)
class Typed:
    """A command that plans, as it was typed after `isocompute`."""

    words: tuple[str, ...]
    own: bool = True
    """Whether the plan rests on runs of the user's own; if not, other commands get no fits."""

    def with_options(self, *options: str) -> str:
        """The same command, with `--option value` pairs in place of what stood there."""
        flags = tuple(option.split()[0] for option in options)
        return " ".join(["isocompute", shlex.join(self._without((*SHOWN, *flags))), *options])

    def asking(self, command: str, *options: str) -> str:
        """Another command about the same runs and budget: `next`, `report`, `allocate` or `plan`."""
        dropped = (*SHOWN, "--published", "--prior", *(NOT_NEXT if command == "next" else ()))
        words = self._without(dropped if self.own else (*dropped, "--fits"))
        if words[0] == "plan":
            # Only `plan` takes saved fits by an option.
            words = [word.removeprefix("--fits=") for word in words if word != "--fits"]
        elif not self.own:
            words = [word for word in words if not word.endswith(".json")]
        return " ".join(["isocompute", shlex.join([command, *words[1:]]), *options])

    def saving(self) -> str:
        """The same command, with the plan saved to a file."""
        return self.with_options("--output plan.json")

    def remedy(self, note: Note, *, measuring: bool) -> str | None:
        """A command that does what a note asks for; None if no command can.

        Args:
            note: the note.
            measuring: whether `isocompute next` would name a run.
        """
        from_runs = self.words[0] == "allocate"
        if note.code in MEASURE:
            return self.asking("next") if measuring else None
        if note.code in CHANGES:
            return self.with_options(CHANGES[note.code](note.data))
        if note.code in LOOK and from_runs:
            return self.asking("report", "--output report.html")
        if note.code in ONLY_PAPER and from_runs and "--method" in self.words:
            return " ".join(["isocompute", shlex.join(self._without((*SHOWN, *PAPER)))])
        return None

    def _without(self, flags: Sequence[str]) -> list[str]:
        kept: list[str] = []
        skip = 0
        for word in self.words:
            flag, equals, _ = word.partition("=")
            if skip:
                skip -= 1
            elif flag in flags:
                skip = 0 if equals else VALUES[flag]
            elif "-o" in flags and word.startswith("-o"):
                # As in -oplan.json: a command that is pasted must not write over that file.
                continue
            else:
                kept.append(word)
        return kept
