"""What a captured console shows beside steps: rows of a Hugging Face Trainer, and configurations that were printed.

The Trainer prints a Python dict for every row that it logs, amid progress bars, and no step: rows stand
`logging_steps` updates apart. transformers 5 prints the numbers as text. A framework may print its configuration when
it starts: veRL as one dict over many lines, OpenRLHF and scripts as arguments in the command that a shell echoes.
"""

from __future__ import annotations

import ast
import math
import re
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from isocompute_sdk.errors import RecordError
from isocompute_sdk.ingest.stores.packed import DAMAGED, open_bytes

_COLOURS = re.compile(r"\x1b\[[\d;]*[A-Za-z]")
_PREFIX = re.compile(r"^\s*\((?:\w+ )?pid=\d+[^)]*\)\s?")
"""Ray's words before a line of a worker."""
_ROW = re.compile(r"\{'[^{}]+\}")
_PAIR = re.compile(r"'([^']+)': '?(-?(?:nan|inf|\d[\d.]*(?:e[-+]?\d+)?))'?(?=[,}])")
_BAR = re.compile(r"\| *(\d+)/(\d+) \[")
_BANNER = re.compile(r"Total optimization steps = ([\d,]+)")
_BATCH = re.compile(r"Total train batch size \(w\. parallel, distributed & accumulation\) = ([\d,]+)")
_CONTINUES = re.compile(r"Continuing training from global step (\d+)")
_STARTED = "***** Running training *****"
_ENDED = "train_runtime"
_EVALUATION = "eval_"
_ARGUMENTS = re.compile(r"^\w*(Config|TrainingArguments)\($")
"""Begins the arguments of a trainer as Python prints them."""
_MOST_ARGUMENTS = 1000
_LARGEST_CONFIGURATION = 1 << 20
_PROGRAMS = re.compile(
    r"verl\.trainer\.main_ppo|openrlhf\.cli\.|swift rlhf|trl grpo|(?:python3?|accelerate launch) .*\.py "
)


@dataclass
class PrintedRun:
    """The rows of one start of a trainer."""

    rows: list[dict[str, float]] = field(default_factory=list[dict[str, float]])
    """Rows of updates, in order."""
    evaluations: list[tuple[int, dict[str, float]]] = field(default_factory=list[tuple[int, dict[str, float]]])
    """Rows of evaluations, each with the number of update rows before it."""
    bars: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    """Update row, counted from 1, and what the progress bar before it showed; a bar may lag behind."""
    total_steps: int | None = None
    """Updates that were planned."""
    batch: int | None = None
    """"Total train batch size" of the banner; completions since TRL 0.15, prompts before."""
    start: int = 0
    """Update that it went on after."""
    ended: bool = False
    """Whether training ended in order."""

    @property
    def steps_per_row(self) -> int | None:
        """Updates between two rows, from the progress bars; None if there are none."""
        shares = [(shown - self.start) / row for row, shown in self.bars if shown > self.start]
        return math.ceil(max(shares) - 1e-9) if shares else None

    def steps(self, per_row: int) -> dict[int, dict[str, float]]:
        """Update step -> tag -> value.

        Args:
            per_row: updates between two rows.
        """
        found: dict[int, dict[str, float]] = {}
        rows = [*enumerate(self.rows, start=1), *self.evaluations]
        for row, values in rows:
            found.setdefault(self.start + row * per_row, {}).update(values)
        return {step: {k: v for k, v in values.items() if k != "epoch"} for step, values in found.items()}


def printed_runs(path: Path) -> list[PrintedRun]:
    """The rows of a Trainer on a console, one entry for each start; empty if there are none."""
    found: list[PrintedRun] = []
    now = PrintedRun()
    shown: tuple[int, int] | None = None
    for line in _lines(path):
        if _STARTED in line:
            found.append(now)
            now, shown = PrintedRun(), None
        for bar in _BAR.finditer(line):
            # The bar of an evaluation has another total than that of the training.
            if now.total_steps in (None, int(bar[2])):
                shown = int(bar[1]), int(bar[2])
        goes_on = _CONTINUES.search(line)
        now.start = int(goes_on[1]) if goes_on else now.start
        banner, batch = _BANNER.search(line), _BATCH.search(line)
        now.total_steps = int(banner[1].replace(",", "")) if banner else now.total_steps
        now.batch = int(batch[1].replace(",", "")) if batch else now.batch
        for row in _ROW.findall(line):
            values = {name: float(value) for name, value in _PAIR.findall(row)}
            if _ENDED in values:
                now.ended = True
            elif any(name.startswith(_EVALUATION) for name in values):
                now.evaluations.append((len(now.rows), values))
            elif "epoch" in values or "loss" in values or "reward" in values:
                if now.rows and now.rows[-1].get("epoch", 0.0) > values.get("epoch", math.inf):
                    found.append(now)
                    now = PrintedRun(total_steps=now.total_steps, batch=now.batch)
                now.rows.append(values)
                if shown is not None:
                    now.bars.append((len(now.rows), shown[0]))
    return [one for one in (*found, now) if one.rows or one.evaluations]


def printed_configurations(path: Path) -> Iterator[dict[str, Any]]:
    """Configurations that a console shows: dicts over one or many lines, and arguments of an echoed command.

    Yields nested or flat mappings, in the order of the console.
    """
    open_lines: list[str] = []
    depth = size = 0
    worker = ""
    arguments: list[str] = []
    for line in _lines(path):
        text = _PREFIX.sub("", line)
        if open_lines and line[: len(line) - len(text)] != worker:
            # Another worker printed in between.
            continue
        if not open_lines:
            if text.lstrip().startswith("{'") and not _ROW.fullmatch(text.strip()):
                depth, size, worker = 0, 0, line[: len(line) - len(text)]
            elif _PROGRAMS.search(text) and ("=" in text or "--" in text):
                yield _words(text)
                continue
            elif _ARGUMENTS.search(text):
                arguments = [text]
                continue
            elif arguments:
                # One argument on each line, up to the closing bracket.
                arguments.append(text.strip().rstrip(","))
                if text.strip() == ")" or len(arguments) > _MOST_ARGUMENTS:
                    yield _words(" ".join(shlex.quote(word) for word in arguments[1:-1]))
                    arguments = []
                continue
            else:
                continue
        open_lines.append(text)
        depth += text.count("{") - text.count("}")
        size += len(text)
        if depth <= 0 or size > _LARGEST_CONFIGURATION:
            found = _literal("\n".join(open_lines))
            open_lines = []
            if found:
                yield found


def _literal(text: str) -> dict[str, Any]:
    try:
        found: Any = ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return {}
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


def _words(text: str) -> dict[str, Any]:
    from isocompute_sdk.ingest.stores.saved_config import flags

    try:
        return flags(text)
    except ValueError:
        return {}


def _lines(path: Path) -> Iterable[str]:
    """Lines of a console without colours; a carriage return ends one too.

    A last line without an end may be cut inside a number and is left out.
    """
    try:
        with open_bytes(path) as file:
            for raw in file:
                if raw.endswith(b"\n"):
                    yield from _COLOURS.sub("", raw.decode(errors="replace")).rstrip("\n").split("\r")
    except DAMAGED:
        return


_MARKS = (b"{'loss'", b"'reward': ", b"'epoch': ")
"""One of these stands in every row that a Trainer prints."""


def prints_rows(path: Path) -> bool:
    """Whether a file holds rows of a Trainer; it is only searched, not read line by line."""
    try:
        with open_bytes(path) as file:
            while part := file.read(1 << 24):
                if any(mark in part for mark in _MARKS):
                    return True
    except (OSError, RecordError, *DAMAGED):
        return False
    return False
