"""What a captured console shows beside steps: rows of a Hugging Face Trainer, and configurations that were printed.

The Trainer prints a Python dict for every row that it logs, amid progress bars, and no step: rows stand
`logging_steps` updates apart. transformers 5 prints the numbers as text. A framework may print its configuration when
it starts: veRL as one dict over many lines, SkyRL as YAML, Megatron as a table of dots, scripts as a `Namespace`, a
dataclass or JSON, and a shell echoes the command with its arguments. The Trainer's banner says how large an update is,
but not n.
"""

from __future__ import annotations

import ast
import math
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from isocompute_sdk.errors import RecordError
from isocompute_sdk.files import parse_json
from isocompute_sdk.ingest.stores.packed import DAMAGED, open_bytes

_COLOURS = re.compile(r"\x1b\[[\d;]*[A-Za-z]|\[\d{1,2}(?:;\d{1,2})*m")
"""Colours, also those that lost their escape when somebody copied them."""
_PREFIX = re.compile(r"^\s*\((?:\w+ )?pid=\d+[^)]*\)\s?")
"""Ray's words before a line of a worker."""
_ROW = re.compile(r"\{'[^{}]+\}")
_IN_ROWS = ("'loss'", "'reward'", "'epoch'", "'eval_", "'train_runtime'")
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
_OBJECT = re.compile(r"\b(?:Namespace|\w*(?:Config|Arguments|Args))\(\w+=")
_FIELD = re.compile(r"[(,]\s*(\w+)=('(?:[^'\\]|\\.)*'|\"[^\"]*\"|[-+]?[\d.][\w.+-]*|True|False|None)(?=[,)])")
"""An object on one line as Python prints it, and its plain values."""
_DOTTED = re.compile(r"^\s*(\w+) \.{3,} (.*)$")
"""One argument in Megatron's table."""
_YAML_BEGINS = re.compile(r"^(?:actor_rollout_ref|algorithm|data|generator|orchestrator|trainer|environment):\s*$")
_YAML_LINE = re.compile(r"^\s*(?:- .*|-|[\w.@/-]+:(?: .*)?|\]|\})?$")
_BANNERS = {
    "total_train_batch_size": (
        re.compile(r"Total train batch size \(w\. parallel, distributed & accumulation\) = ([\d,]+)"),
        re.compile(r"Total batch size \([\d x]+\) = ([\d,]+)"),
    ),
    "per_device_train_batch_size": (
        re.compile(r"Instantaneous batch size per device = ([\d,]+)"),
        re.compile(r"Batch size per device = ([\d,]+)"),
    ),
    "gradient_accumulation_steps": (re.compile(r"Gradient [Aa]ccumulation steps = ([\d,]+)"),),
}
"""Key -> how the banners of transformers and of Unsloth print it."""
_MOST_ARGUMENTS, _MOST_BETWEEN = 1000, 20_000
_LARGEST_CONFIGURATION = 1 << 20
_PROGRAMS = re.compile(
    r"verl\.trainer\.main_ppo|openrlhf\.cli\.|swift rlhf|trl grpo"
    r"|\b(?:python[\d.]*|accelerate launch|torchrun|deepspeed|uv run)\b.*(?:\.py|-m [\w.]+) "
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
    before: dict[str, float] = {}
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
            if values and values == before:
                # Every process printed it.
                continue
            before = values
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
    """Configurations that a console shows: blocks of many lines, objects on one, and arguments of an echoed command.

    Yields nested or flat mappings, in the order of the console.
    """
    block: _Block | None = None
    for line in _lines(path, leave_out=_STEP_LINE):
        text = _PREFIX.sub("", line)
        worker = line[: len(line) - len(text)]
        if block is not None:
            block.passed += 1
            if worker != block.worker and block.passed < _MOST_BETWEEN:
                # Another worker printed in between.
                continue
            if worker == block.worker and block.goes_on(text):
                block.add(text)
                continue
            yield from block.content()
            block = None
        kind = next((kind for kind, begins in _BEGINS.items() if begins(text)), None)
        if kind is not None:
            block = _Block(kind, worker)
            block.add(text)
        elif (start := _OBJECT.search(text)) is not None:
            yield _fields(text[start.start() :])
        elif _PROGRAMS.search(text) and ("=" in text or "--" in text):
            yield _words(text)
    if block is not None:
        yield from block.content()


def _begins_dict(text: str) -> bool:
    begins = text.lstrip().startswith(("{'", '{"')) or text.strip() == "{"
    row = _ROW.fullmatch(text.strip()) and any(mark in text for mark in _IN_ROWS)
    return begins and not row


_BEGINS: dict[str, Callable[[str], object]] = {
    "table": _DOTTED.match,
    "yaml": _YAML_BEGINS.match,
    "dict": _begins_dict,
    "arguments": _ARGUMENTS.search,
}


@dataclass
class _Block:
    """A configuration over several lines of one worker."""

    kind: str
    worker: str
    lines: list[str] = field(default_factory=list[str])
    depth: int = 0
    size: int = 0
    passed: int = 0
    """Lines of the console since it began."""

    def add(self, text: str) -> None:
        """Append a line."""
        self.lines.append(text)
        self.depth += text.count("{") - text.count("}")
        self.size += len(text)

    def goes_on(self, text: str) -> bool:
        """Whether the next line of the worker belongs to it."""
        if self.size > _LARGEST_CONFIGURATION:
            return False
        if self.kind == "table":
            return _DOTTED.match(text) is not None
        if self.kind == "yaml":
            return bool(text.strip()) and _YAML_LINE.match(text) is not None
        if self.kind == "dict":
            return self.depth > 0
        # One argument on each line, up to the closing bracket.
        return self.lines[-1].strip() != ")" and len(self.lines) <= _MOST_ARGUMENTS

    def content(self) -> Iterator[dict[str, Any]]:
        """The configuration, if it can be read."""
        found: dict[str, Any] = {}
        if self.kind == "table":
            matches = (match for line in self.lines if (match := _DOTTED.match(line)) is not None)
            found = {match[1]: _value(match[2].strip()) for match in matches}
        elif self.kind == "yaml":
            found = _yaml(self.lines)
        elif self.kind == "dict":
            found = _literal("\n".join(self.lines))
        else:
            words = (line.strip().rstrip(",") for line in self.lines[1:] if line.strip() != ")")
            found = _words(" ".join(map(shlex.quote, words)))
        if found:
            yield found


def banner(path: Path) -> dict[str, int]:
    """What the banner of a Trainer or of Unsloth says about the size of an update; empty without one.

    Keys: `total_train_batch_size` over all devices (completions; prompts in TRL 0.14), `per_device_train_batch_size`,
    `gradient_accumulation_steps`. Of several starts the last one counts.
    """
    found: dict[str, int] = {}
    for line in _lines(path):
        for key, patterns in _BANNERS.items():
            for pattern in patterns:
                if (match := pattern.search(line)) is not None:
                    found[key] = int(match[1].replace(",", ""))
    return found if "total_train_batch_size" in found else {}


def _literal(text: str) -> dict[str, Any]:
    for read in (ast.literal_eval, parse_json):
        try:
            found: Any = read(text.strip())
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            continue
        return cast("dict[str, Any]", found) if isinstance(found, dict) else {}
    return {}


def _fields(text: str) -> dict[str, Any]:
    """The plain values of an object as Python prints it; of a name that occurs twice the first, outer one."""
    found: dict[str, Any] = {}
    for name, value in _FIELD.findall(text):
        found.setdefault(name, _value(value))
    return found


def _value(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text


def _yaml(lines: Sequence[str]) -> dict[str, Any]:
    from isocompute_sdk.ingest.stores.saved_config import document

    try:
        found = document(Path("printed.yaml"), "\n".join(lines))
    except ValueError:
        return {}
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


def _words(text: str) -> dict[str, Any]:
    from isocompute_sdk.ingest.stores.saved_config import flags

    try:
        return flags(text)
    except ValueError:
        return {}


_STEP_LINE = re.compile(rb"\bstep:\d+ - \S|\bGlobal step \d+: \{")
"""Lines of steps that hold no configuration: consoles have many of them."""


def _lines(path: Path, leave_out: re.Pattern[bytes] | None = None) -> Iterable[str]:
    """Lines of a console without colours; a carriage return ends one too.

    A last line without an end may be cut inside a number and is left out.
    """
    try:
        with open_bytes(path) as file:
            for raw in file:
                if raw.endswith(b"\n") and (leave_out is None or not leave_out.search(raw)):
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
