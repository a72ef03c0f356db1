"""Captured consoles: steps of a run attempt after attempt, rows of a Hugging Face Trainer, printed configurations.

How a framework prints its steps is part of its `LogFormat`; Ray and loggers put their own words in front. The Trainer
prints a Python dict for every row that it logs, amid progress bars, and no step: rows stand `logging_steps` updates
apart. A framework may print its configuration when it starts: veRL as one dict over many lines, SkyRL as YAML, Megatron
as a table of dots, scripts as a `Namespace`, a dataclass or JSON, and a shell echoes the command with its arguments.
"""

from __future__ import annotations

import ast
import math
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from isocompute_sdk.errors import RecordError
from isocompute_sdk.files import parse_json
from isocompute_sdk.ingest.attempts import Attempt, RunLog, attempt_of_steps
from isocompute_sdk.ingest.formats.log_format import Console
from isocompute_sdk.ingest.formats.registry import formats
from isocompute_sdk.ingest.stores.saved_config import document, find_config, flags, flat, translate
from isocompute_sdk.ingest.tables import open_bytes

Steps = dict[int, dict[str, float]]
"""Update step -> tag -> value, with the tags that the framework gives its logs."""
MAX_STEP = 1 << 16
"""Bytes of a step that is printed over several lines."""
CONSOLE = "console"
"""Store of captured consoles."""
Settings = tuple[tuple[Path, Mapping[str, Any]], ...]
_INTERVAL = "logging_steps"


def is_console_log(path: Path) -> bool:
    """Whether a console holds the steps of a run, not only messages."""
    try:
        consoles = [one.console for one in formats() if one.console is not None]
        steps = any(one.parse(line) is not None for one in consoles for line in _marked(path, one))
        return steps or (prints_rows(path) and bool(printed_runs(path)))
    except (OSError, RecordError):
        return False


def read_console_log(path: Path, name: str, launch: int | None = None) -> RunLog:
    """The run that a console shows.

    Raises:
        RecordError: it shows no step of a known framework, or rows without a step and nothing says how far they are
            apart.
    """
    settings = _settings(path)
    printing = [form for form in formats() if form.console is not None and read_console(path, form.console)]
    if printing and printing[0].console is not None:
        steps = read_console(path, printing[0].console)
        attempts = [replace(attempt_of_steps(path, one), started=float(i)) for i, one in enumerate(steps)]
    else:
        attempts = _of_trainer(path, settings)
    log = RunLog(name, path, CONSOLE, tuple(attempts), known_format=next(iter(printing), None), settings=settings)
    if launch is None:
        return log
    groups = _groups(attempts)
    # The configuration that the launch printed; all that differ if this is not certain.
    own = settings[launch : launch + 1] if len(settings) == len(groups) else settings
    return replace(log, attempts=tuple(groups[launch]), settings=own)


def _of_trainer(path: Path, settings: Settings) -> list[Attempt]:
    """Attempts of a trainer, which prints rows without their steps."""
    runs = printed_runs(path)
    if not runs:
        raise RecordError(f"{path} shows no step of a known framework", "Give the log that the framework writes.")
    per_row = _interval(path, settings) or max((one.steps_per_row or 0 for one in runs), default=0)
    if not per_row:
        raise RecordError(
            f"{path} shows rows of a trainer without their steps, and neither a progress bar nor {_INTERVAL} says how "
            "many updates they are apart",
            f"Put the trainer's arguments beside it, e.g. args.json with {_INTERVAL}.",
        )
    return [
        replace(attempt_of_steps(path, one.steps(per_row)), started=float(i), from_step=float(one.start))
        for i, one in enumerate(runs)
    ]


def launches(path: Path) -> int:
    """How many runs a console shows one after the other, as one that is appended to does; 1 without any."""
    try:
        log = read_console_log(path, "")
    except RecordError:
        return 1
    return len(_groups(log.attempts))


def _groups(attempts: Sequence[Attempt]) -> list[list[Attempt]]:
    """Attempts by launch: one that begins with the first step did not go on with the one before it."""
    found: list[list[Attempt]] = []
    begun = 0.0
    for one in attempts:
        first = min((float(series.step_T.min()) for series in one.series.values()), default=0.0)
        if not found or ((one.from_step or 0.0) == 0.0 and first <= begun):
            found.append([])
            begun = first
        found[-1].append(one)
    return found


def _settings(path: Path) -> Settings:
    """The configurations that a console shows, each once: every process may print it."""
    found: list[tuple[Path, Mapping[str, Any]]] = []
    before: dict[str, Any] | None = None
    for raw in printed_configurations(path):
        config = translate(path, raw)
        said = None if config is None else {key: one.value for key, one in config.fields.items()}
        if said is None or said == before:
            continue
        # A command and what the program printed of it are one configuration.
        if before is not None and all(before.get(key, value) == value for key, value in said.items()):
            if len(said) > len(before):
                found[-1], before = (path, raw), said
            continue
        found.append((path, raw))
        before = said
    return tuple(found)


def _interval(path: Path, settings: Sequence[tuple[Path, Mapping[str, Any]]]) -> int | None:
    """Updates between two rows, from what was printed or lies beside the console."""
    found = [dict(flat(raw)).get(_INTERVAL) for _, raw in settings]
    beside = find_config(path.parent, path.parent)
    found.append(None if beside is None else beside.keys.get(_INTERVAL))
    # Below 1 it is a share of all updates.
    return next((int(value) for value in found if isinstance(value, int | float) and value >= 1), None)


def read_console(path: Path, console: Console) -> list[Steps]:
    """What a captured console says, one entry per attempt; empty if it has no line of the framework.

    Another attempt began where the steps begin anew. A line that repeats the one before it, as in a console that is
    captured twice, says nothing new.
    """
    attempts: list[Steps] = []
    last, before = -1, dict[str, float]()
    for line in _marked(path, console):
        found = console.parse(line)
        if found is None:
            continue
        values = dict(found.values)
        if found.update:
            if found.step == last and str(values) == str(before):
                continue
            if not attempts or found.step <= last:
                attempts.append({})
            last, before = found.step, values
        elif not attempts:
            attempts.append({})
        if values:
            attempts[-1].setdefault(found.step, {}).update(values)
    return [attempt for attempt in attempts if attempt]


def _marked(path: Path, console: Console) -> Iterator[str]:
    """Lines that may be of steps, those of a step over several lines as one; a last one without an end may be cut."""
    until = console.until
    with open_bytes(path) as file:
        for first in file:
            line = first
            if not any(mark in line for mark in console.marks):
                continue
            while until and not line.rstrip().endswith(until) and len(line) < MAX_STEP:
                more = file.readline()
                if not more.endswith(b"\n"):
                    return
                line += more
            # The last word of a line without an end may be cut inside a number.
            whole = line[:-1] if line.endswith(b"\n") else re.sub(rb"\S+\s*$", b"", line[:MAX_STEP])
            yield whole.decode(errors="replace")


_COLOURS = re.compile(r"\x1b\[[\d;]*[A-Za-z]|\[\d{1,2}(?:;\d{1,2})*m")
"""Colours, also those that lost their escape when somebody copied them."""
_PREFIX = re.compile(r"^\s*\((?:\w+ )?pid=\d+[^)]*\)\s?")
"""Ray's words before a line of a worker."""
_ROW = re.compile(r"\{'[^{}]+\}")
_IN_ROWS = ("'loss'", "'reward'", "'epoch'", "'eval_", "'train_runtime'")
_PAIR = re.compile(r"'([^']+)': '?(-?(?:nan|inf|\d[\d.]*(?:e[-+]?\d+)?))'?(?=[,}])")
_BAR = re.compile(r"\| *(\d+)/(\d+) \[")
_BANNER = re.compile(r"Total optimization steps = ([\d,]+)")
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
_MAX_ARGUMENTS, _MAX_BETWEEN = 1000, 20_000
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
    start: int = 0
    """Update that it went on after."""

    @property
    def steps_per_row(self) -> int | None:
        """Updates between two rows, from the progress bars; None if there are none."""
        shares = [(shown - self.start) / row for row, shown in self.bars if shown > self.start]
        return math.ceil(max(shares) - 1e-9) if shares else None

    def steps(self, per_row: int) -> dict[int, dict[str, float]]:
        """Update step -> tag -> value."""
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
        banner = _BANNER.search(line)
        now.total_steps = int(banner[1].replace(",", "")) if banner else now.total_steps
        for row in _ROW.findall(line):
            values = {name: float(value) for name, value in _PAIR.findall(row)}
            if values and values == before:
                # Every process printed it.
                continue
            before = values
            if _ENDED in values:
                continue
            if any(name.startswith(_EVALUATION) for name in values):
                now.evaluations.append((len(now.rows), values))
            elif "epoch" in values or "loss" in values or "reward" in values:
                if now.rows and now.rows[-1].get("epoch", 0.0) > values.get("epoch", math.inf):
                    found.append(now)
                    now = PrintedRun(total_steps=now.total_steps)
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
            if worker != block.worker and block.passed < _MAX_BETWEEN:
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
        return self.lines[-1].strip() != ")" and len(self.lines) <= _MAX_ARGUMENTS

    def content(self) -> Iterator[dict[str, Any]]:
        """The configuration, if it can be read."""
        text = "\n".join(self.lines)
        found: Any = None
        if self.kind == "table":
            matches = (match for line in self.lines if (match := _DOTTED.match(line)) is not None)
            found = {match[1]: _value(match[2].strip()) for match in matches}
        elif self.kind == "yaml":
            with suppress(ValueError):
                found = document(Path("printed.yaml"), text)
        elif self.kind == "dict":
            found = _value(text.strip())
            with suppress(ValueError, RecursionError):
                found = found if isinstance(found, dict) else parse_json(text)
        else:
            words = (line.strip().rstrip(",") for line in self.lines[1:] if line.strip() != ")")
            found = _words(" ".join(map(shlex.quote, words)))
        if isinstance(found, dict) and found:
            yield cast("dict[str, Any]", found)


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


def _words(text: str) -> dict[str, Any]:
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
    with open_bytes(path) as file:
        for raw in file:
            if raw.endswith(b"\n") and (leave_out is None or not leave_out.search(raw)):
                yield from _COLOURS.sub("", raw.decode(errors="replace")).rstrip("\n").split("\r")


_MARKS = (b"{'loss'", b"'reward': ", b"'epoch': ")
"""One of these stands in every row that a Trainer prints."""


def prints_rows(path: Path) -> bool:
    """Whether a file holds rows of a Trainer; it is only searched, not read line by line."""
    try:
        with open_bytes(path) as file:
            while part := file.read(1 << 24):
                if any(mark in part for mark in _MARKS):
                    return True
    except (OSError, RecordError):
        return False
    return False
