"""The command that was typed, and commands made from it that work when they are pasted."""

from __future__ import annotations

import glob
import os
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from isocompute_sdk.phrases import NOT_NEXT, parted

if TYPE_CHECKING:
    from isocompute_sdk.specs import Study

SHOWN = ("--output", "-o", "--plot", "--json", "--verbose", "-v", "--slots", "--checkpoints")
"""Options that are not handed on: where to write, how to print, and how to search for runs."""
ABOUT_READ = re.compile(r"(isocompute (?:doctor|audit|forecast)) (?:PATH|RUNS)\b( --output map\.yaml)?")
"""Commands in notes and errors about the runs that were read."""
MEANINGS = ("--set", "--rename", "--ignore")
"""Options that say what columns mean, as all commands that read take them."""
BORROWED = ("--published", "--prior")
COMPARED = ("--compare", "--against", "--equal")
"""Options that compare a plan with a configuration: of a plan's own command only."""

PLACE = re.compile(r"=(?:N|BP|R|U)\b|\b(?:HIGHEST|NUMBER|LOW HIGH)\b")
"""Where a person has to fill in a number."""
WORD = re.compile(r"\b(?:NAME_OR_FOLDER|PROBLEMS\.jsonl|REWARD\.py|NEW_RUN|RUNS)(?=\s|$)")
"""Where a person has to fill in a name."""


def with_numbers(command: str, label: str = "next") -> str:
    """A command behind its label, which says so where numbers have to be filled in."""
    if not PLACE.search(command):
        return f"{label}: {command}"
    return f"with your numbers: {command}" if label == "try" else f"{label}, with your numbers: {command}"


def with_words(lines: Sequence[str]) -> list[str]:
    """Lines with commands, the first with a name to fill in followed by one that says so."""
    first = next((at for at, line in enumerate(lines) if WORD.search(line)), None)
    return [*lines] if first is None else [*lines[: first + 1], "(fill in the words in capitals)", *lines[first + 1 :]]


@dataclass(frozen=True)
class Typed:
    """A command that plans, as it was typed after `isocompute`."""

    words: tuple[str, ...]
    own: bool = True
    """Whether the plan rests on runs of the user's own; if not, other commands get no fits."""
    campaign: str = ""
    """Line that says how the campaign whose folder it plans for goes on; empty for other runs."""
    study: Study | None = None
    """The study that its runs are of, where that is known."""

    def saving(self, file: str = "plan.json") -> str:
        """The same command, with the plan saved to a file."""
        return " ".join(["isocompute", shlex.join(without(self.words, SHOWN)), f"--output {file}"])

    def instead(self, option: str) -> str:
        """The same command with another question: `--for-reward` or `--budget` with its value, quoted for a shell."""
        gone = (
            "--budget",
            "--spent",
            "--reward-unit",
            *(("--for-reward",) if "--budget" in option else ("--deadline", "--mode", *COMPARED)),
        )
        return f"isocompute {shlex.join(without(self.words, (*SHOWN, *gone)))} {option}"

    def asking(self, command: str, *options: str) -> str:
        """Another command about the same runs and budget: `next`, `allocate` or `plan`."""
        dropped = (*SHOWN, *COMPARED, *(NOT_NEXT if command == "next" else ()))
        # A pilot is designed by the law that the plan borrows; with runs no law is borrowed.
        dropped = dropped if command == "next" and not options else (*dropped, *BORROWED)
        words = without(self.words, dropped if self.own else (*dropped, "--fits"))
        if words[0] == "plan":
            # Only `plan` takes saved fits by an option.
            words = [word.removeprefix("--fits=") for word in words if word != "--fits"]
        elif not self.own:
            words = [word for word in words if not word.endswith(".json")]
        return " ".join(["isocompute", shlex.join([command, *words[1:]]), *options])


def filled(text: str, words: Sequence[str]) -> str:
    """A text whose commands about the runs that were read name them; `words` are what was typed after `isocompute`."""
    own = (*SHOWN, "--map", "--throughput", "--recipe", "--pool", "--eval-set", "--metric", *MEANINGS)
    read = [word for word in without(words[1:], own) if os.path.exists(word) or glob.has_magic(word)]
    _, meanings = parted(words, MEANINGS)
    # Of several metrics the first decides.
    _, metrics = parted(words, ("--metric",))
    meanings += metrics[: 1 + (metrics[:1] == ["--metric"])]
    _, given = parted(words, ("--bounds", "--eval-set", "--pool"))
    _, mapped = parted(words, ("--map",))

    def about(found: re.Match[str]) -> str:
        from isocompute_sdk.ingest.mapping import map_name

        doctor = "doctor" in found[1]
        if not read and doctor:
            return found[0]
        named = f" --output {map_name(read)}" if found[2] else ""
        return f"{found[1]} {shlex.join([*(read or mapped), *meanings, *(() if doctor else given)])}{named}"

    return ABOUT_READ.sub(about, text) if read or mapped else text


def without(words: Sequence[str], flags: Sequence[str]) -> list[str]:
    """Words that were typed, without some options and their values."""
    return parted(words, flags)[0]
