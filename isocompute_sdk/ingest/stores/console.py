"""Captured consoles: steps of a run attempt after attempt, rows of a Hugging Face Trainer, printed configurations.

How a framework prints its steps is part of its `LogFormat`; Ray and loggers put their own words in front. The Trainer
prints a Python dict for every row that it logs, amid progress bars, and no step: rows stand `logging_steps` updates
apart. A shell may echo the command with its arguments, and veRL prints its configuration as one dict over many lines.
"""

from __future__ import annotations

import ast
import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from isocompute_sdk.errors import RecordError
from isocompute_sdk.ingest.attempts import attempt_of_steps, starts
from isocompute_sdk.ingest.formats.log_format import COLOURS, PAIR, Attempt, Console, Printed, RunLog, printed_numbers
from isocompute_sdk.ingest.formats.registry import formats
from isocompute_sdk.ingest.paths import CONSOLE
from isocompute_sdk.ingest.stores.saved_config import find_config, flags, flat, translate
from isocompute_sdk.ingest.tables import damaged, open_bytes, without_zeros
from isocompute_sdk.notes import Note

Steps = list[tuple[int, Mapping[str, float]]]
"""Update steps with tag -> value, with the tags that the framework gives its logs, in the order of the file."""
MAX_STEP = 1 << 16
"""Bytes of a step that is printed over several lines."""
Settings = tuple[tuple[Path, Mapping[str, Any]], ...]
_INTERVAL = "logging_steps"


def is_console_log(path: Path) -> bool:
    """Whether a console holds the steps of a run, not only messages."""
    try:
        consoles = [one.console for one in formats() if one.console is not None]
        parsed = (one.parse(text) for one in consoles for _, text, _ in _marked(path, one))
        steps = any(one is not None and one.values for one in parsed)
        return steps or (prints_rows(path) and bool(printed_runs(path)))
    except RecordError:
        return False


def read_console_log(path: Path, name: str, launch: int | None = None) -> RunLog:
    """The run that a console shows.

    Raises:
        RecordError: it shows no step of a known framework, or rows without a step and nothing says how far they are
            apart.
    """
    settings = printed_configurations(path)
    read = ((form, *read_console(path, form.console)) for form in formats() if form.console is not None)
    form, steps, notes = next((one for one in read if one[1]), (None, [], ()))
    attempts = [replace(attempt_of_steps(path, one), started=float(i)) for i, one in enumerate(steps)]
    if form is None:
        attempts, notes = _of_trainer(path, settings)
    log = RunLog(name, path, CONSOLE, tuple(attempts), notes, framework=form, settings=settings)
    if launch is None:
        return log
    groups = _groups(attempts)
    # The configuration that the launch printed; all that differ if this is not certain.
    own = settings[launch : launch + 1] if len(settings) == len(groups) else settings
    return replace(log, attempts=tuple(groups[launch]), settings=own)


def _of_trainer(path: Path, settings: Settings) -> tuple[list[Attempt], tuple[Note, ...]]:
    """Attempts of a trainer, which prints rows without their steps, and notes on what is damaged."""
    runs = printed_runs(path)
    if not runs:
        raise RecordError(f"{path} shows no step of a known framework", "Give the log that the framework writes.")
    per_row = _interval(path, settings) or max((one.steps_per_row or 0 for one in runs), default=0)
    if not per_row:
        raise RecordError(
            f"{path} shows a trainer's rows without their steps, and neither a progress bar nor {_INTERVAL} says how "
            "many updates apart they are",
            f"Put the trainer's arguments beside it, e.g. args.json with at least num_generations and {_INTERVAL}.",
        )
    attempts: list[Attempt] = []
    damage: list[tuple[int, str]] = []
    others: list[tuple[int, str, str]] = []
    for i, one in enumerate(runs):
        steps, missing = one.steps(per_row)
        attempts.append(replace(attempt_of_steps(path, steps.items()), started=float(i), from_step=float(one.start)))
        damage += missing
        others += one.others
    damage += _no_numbers(others, {tag for one in attempts for tag in one.series})
    return attempts, damaged(path, damage)


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


def _interval(path: Path, settings: Sequence[tuple[Path, Mapping[str, Any]]]) -> int | None:
    """Updates between two rows, from what was printed or lies beside the console."""
    found = [dict(flat(raw)).get(_INTERVAL) for _, raw in settings]
    beside = find_config(path.parent, path.parent)
    found.append(None if beside is None else beside.keys.get(_INTERVAL))
    # Below 1 it is a share of all updates.
    return next((int(value) for value in found if isinstance(value, int | float) and value >= 1), None)


def read_console(path: Path, console: Console) -> tuple[list[Steps], tuple[Note, ...]]:
    """What a captured console says, one entry per attempt, and notes on what is damaged; no entries without a step.

    Another attempt began where steps were made again, see `attempts.starts`. A line that repeats one before it, as in a
    console that is captured twice, says nothing new.
    """
    printed: list[Printed] = []
    others: list[tuple[int, str, str]] = []
    for number, text, cut in _marked(path, console):
        # The last word may be cut inside a number.
        whole = without_zeros(text)
        found = console.parse(re.sub(r"\S+\s*$", "", whole) if cut == _CUT else whole)
        if found is not None:
            printed += [found] if found.values else []
            why = cut or ("bytes here are not text" if re.search("[\0\ufffd]", text) else "")
            others += [(number, *other) for other in ({"": why} if why else found.others).items()]
        elif cut and console.parse(whole) is not None:
            others.append((number, "", cut))
    updates = [i for i, one in enumerate(printed) if one.update]
    begins = starts([printed[i].step for i in updates], [printed[i].values for i in updates], repeats=True)
    bounds = [0, *(updates[i] for i in begins[1:]), len(printed)]
    parts = (printed[begin:end] for begin, end in pairwise(bounds))
    logged = [[(one.step, one.values) for one in part] for part in parts if part]
    damage = _no_numbers(others, {tag for one in printed for tag in one.values})
    return logged, damaged(path, damage, "info" if [text for _, text in damage] == [_CUT] else "warning")


def _no_numbers(others: Iterable[tuple[int, str, str]], known: Collection[str]) -> list[tuple[int, str]]:
    """Line and sentence for what is no number where other steps have one; without a tag the text is the sentence."""
    return [
        (number, f"{tag} is {text!r:.60}, not a number, and is left out" if tag else text)
        for number, tag, text in others
        if not tag or tag in known
    ]


_CUT = "the file ends inside this step: the run is still writing or was killed; the last word is not read"


def _marked(path: Path, console: Console) -> Iterator[tuple[int, str, str]]:
    """Lines that may be of steps, those of a step over several lines as one: number, text, and why it may be cut."""
    block, number = b"", 0
    with open_bytes(path) as file:
        for at, line in enumerate(file, start=1):
            shown = line.replace(b"\0", b"")
            begins = any(mark in shown for mark in console.marks)
            if block and (begins or len(block) > MAX_STEP):
                yield number, block.decode(errors="replace"), "the step here has no end"
                block = b""
            if not block and not begins:
                continue
            number = number if block else at
            block += line
            if block.endswith(b"\n") and (console.until is None or block.rstrip().endswith(console.until)):
                yield number, block[:-1].decode(errors="replace"), ""
                block = b""
    if block:
        yield number, block[:MAX_STEP].decode(errors="replace"), _CUT


_PREFIX = re.compile(r"^\s*\((?:\w+ )?pid=\d+[^)]*\)\s?")
"""Ray's words before a line of a worker."""
_ROW = re.compile(r"\{'[^{}]+\}")
_CUT_ROW = re.compile(r"\{'(?:loss|reward|eval_loss|eval_reward)': [^{}]*$")
_BAR = re.compile(r"\| *(\d+)/(\d+) \[")
_BANNER = re.compile(r"Total optimization steps = ([\d,]+)")
_CONTINUES = re.compile(r"Continuing training from global step (\d+)")
_STARTED = "***** Running training *****"
_ENDED = "train_runtime"
_EVALUATION = "eval_"
_BEGINS = re.compile(r"\{'(?!.*\}$)")
"""Begins a dict over many lines as pprint writes it."""
_MAX_LINES = 10_000
_PROGRAMS = re.compile(
    r"verl\.trainer\.main_ppo|openrlhf\.cli\.|swift rlhf|trl grpo"
    r"|\b(?:python[\d.]*|accelerate launch|torchrun|deepspeed|uv run)\b.*(?:\.py|-m [\w.]+) "
)


class PrintedRow(NamedTuple):
    """One row."""

    line: int
    """Where it stands."""
    values: dict[str, float]
    """Tag -> value."""
    shown: int | None
    """What the progress bar before it showed, which may lag behind; None without one."""


@dataclass
class PrintedRun:
    """The rows of one start of a trainer."""

    rows: list[PrintedRow] = field(default_factory=list[PrintedRow])
    """Rows of updates, in order."""
    evaluations: list[tuple[int, PrintedRow]] = field(default_factory=list[tuple[int, PrintedRow]])
    """Rows of evaluations, each with the number of update rows before it."""
    total_steps: int | None = None
    """Updates that were planned."""
    start: int = 0
    """Update that it went on after."""
    others: list[tuple[int, str, str]] = field(default_factory=list[tuple[int, str, str]])
    """Line, tag and what stands in the place of its value and is no number."""

    @property
    def steps_per_row(self) -> int | None:
        """Updates between two rows, from the progress bars; None if there are none."""
        bars = [(i, row.shown or 0) for i, row in enumerate(self.rows, start=1) if (row.shown or 0) > self.start]
        between = [(later - earlier) / (j - i) for (i, earlier), (j, later) in pairwise(bars)]
        usual, times = Counter(between).most_common(1)[0] if between else (0.0, 0)
        if usual >= 1 and usual.is_integer() and times >= max(MIN_EVEN, EVEN_SHARE * len(between)):
            return int(usual)
        shares = self._shares
        if self.bars_ahead:
            return max(1, math.floor(shares[-1]))
        return math.ceil(max(shares) - 1e-9) if shares else None

    @property
    def _shares(self) -> list[float]:
        """Updates that the bar before each row showed, over the rows up to it."""
        shown = ((i, (row.shown or 0) - self.start) for i, row in enumerate(self.rows, start=1))
        return [updates / i for i, updates in shown if updates > 0]

    @property
    def bars_ahead(self) -> bool:
        """Whether one bar stands before many rows, further on than they are, as where only rows are buffered."""
        shares, bars = self._shares, {row.shown for row in self.rows}
        return bool(shares) and 2 * len(bars) <= len(self.rows) and max(shares) > math.ceil(shares[-1])

    def steps(self, per_row: int) -> tuple[dict[int, dict[str, float]], list[tuple[int, str]]]:
        """Update step -> tag -> value; and the lines before which rows are missing, as progress bars show."""
        at, missing, ahead = [0], list[tuple[int, str]](), self.bars_ahead
        for row in self.rows:
            by_bar = 0 if ahead else math.ceil(((row.shown or 0) - self.start) / per_row)
            at.append(max(at[-1] + 1, by_bar))
            if at[-1] > at[-2] + 1:
                missing.append((row.line, "rows before this one are missing; it is placed by the progress bar"))
        found: dict[int, dict[str, float]] = {}
        epochs: dict[float, list[int]] = {}
        for place, row in zip(at[1:], self.rows, strict=True):
            found.setdefault(self.start + place * per_row, {}).update(row.values)
            epochs.setdefault(row.values.get("epoch", math.nan), []).append(place)
        for i, row in self.evaluations:
            # Where the row before it is missing, its bar is ahead.
            behind = at[i] if ahead else max(at[i], ((row.shown or 0) - self.start) // per_row)
            same = epochs.get(row.values.get("epoch", math.nan), [])
            # Epochs may be rounded.
            place = same[0] if len(same) == 1 else behind
            found.setdefault(self.start + place * per_row, {}).update(row.values)
        return {step: {k: v for k, v in values.items() if k != "epoch"} for step, values in found.items()}, missing


MIN_EVEN, EVEN_SHARE = 3, 0.75
"""Stretches between rows, and share of all, that progress bars show alike where they do not lag."""
MIN_SAME = 2
"""Values that only one row has, from which another row with them is a copy of it."""


def printed_runs(path: Path) -> list[PrintedRun]:
    """The rows of a Trainer on a console, one entry for each start; empty if there are none."""
    found: list[PrintedRun] = []
    now = PrintedRun()
    shown: int | None = None
    before: set[str] = set()
    for number, line in _lines(path):
        if _STARTED in line:
            found.append(now)
            now, shown, before = PrintedRun(), None, set()
        for bar in _BAR.finditer(line):
            # The bar of an evaluation has another total than that of the training.
            if now.total_steps in (None, int(bar[2])):
                shown = int(bar[1])
        goes_on = _CONTINUES.search(line)
        now.start = int(goes_on[1]) if goes_on else now.start
        banner = _BANNER.search(line)
        now.total_steps = int(banner[1].replace(",", "")) if banner else now.total_steps
        rows = _ROW.findall(line)
        for row in rows:
            values, others = printed_numbers(PAIR.findall(row))
            if (values and str(values) in before) or _is_torn_copy(values, [one.values for one in now.rows[-2:]]):
                # Every process printed it, or its line was copied.
                continue
            before.add(str(values))
            if _ENDED in values:
                continue
            whole = row.count("'") % 2 == 0
            if any(name.startswith(_EVALUATION) for name in values) or (not whole and f"'{_EVALUATION}" in row):
                # What a broken one lacks may say its step.
                now.evaluations += [(len(now.rows), PrintedRow(number, values, shown))] if whole else []
            elif "epoch" in values or "loss" in values or "reward" in values:
                if now.rows and now.rows[-1].values.get("epoch", 0.0) > values.get("epoch", math.inf):
                    found.append(now)
                    now, shown = PrintedRun(total_steps=now.total_steps), None
                now.rows.append(PrintedRow(number, values, shown))
            now.others += [(number, tag, other) for tag, other in others.items()]
        if _CUT_ROW.search(line) or any(row.count("'") % 2 for row in rows):
            now.others.append((number, "", "a part of the row here is missing"))
    return [one for one in (*found, now) if one.rows or one.evaluations]


def _is_torn_copy(values: Mapping[str, float], last: Sequence[Mapping[str, float]]) -> bool:
    """Whether a row is a part of the last row, with one value at most that the tear made of two.

    The values that it shares with the last row have to be others than those of the row before that.
    """
    if not last or len(values) >= len(last[-1]):
        return False
    same = {tag: value for tag, value in values.items() if last[-1].get(tag) == value}
    own = same if len(last) == 1 else {tag for tag, value in same.items() if last[0].get(tag) != value}
    return len(values) - len(same) <= 1 and len(own) >= MIN_SAME


def printed_configurations(path: Path) -> tuple[tuple[Path, dict[str, Any]], ...]:
    """What a training was configured with, and the console: echoed commands, and dicts over many lines as veRL's.

    What says the same one after the other, as every process may print it, is one; so are a command and what the program
    printed of it.
    """
    found: list[tuple[Path, dict[str, Any]]] = []
    before: dict[str, Any] = {}
    for raw in _configurations(path):
        config = translate(path, raw)
        said = {} if config is None else {key: one.value for key, one in config.fields.items() if not one.default}
        if not said or said == before:
            continue
        if found and all(before.get(key, value) == value for key, value in said.items()):
            if len(said) <= len(before):
                continue
            found.pop()
        found.append((path, raw))
        before = said
    return tuple(found)


def _configurations(path: Path) -> Iterator[dict[str, Any]]:
    """Every one that a console shows, in its order."""
    block, worker, depth = list[str](), "", 0
    for _, line in _lines(path, leave_out=_STEP_LINE):
        text = _PREFIX.sub("", line)
        if block and line[: len(line) - len(text)] != worker:
            # Another worker printed in between.
            continue
        if block or _BEGINS.match(text) is not None:
            worker = line[: len(line) - len(text)]
            block.append(text)
            depth += text.count("{") - text.count("}")
            if depth <= 0 or len(block) > _MAX_LINES:
                with suppress(ValueError, SyntaxError, MemoryError, RecursionError):
                    yield ast.literal_eval("\n".join(block))
                block, depth = [], 0
        elif _PROGRAMS.search(text) is not None and ("=" in text or "--" in text):
            with suppress(ValueError):
                yield flags(text)


_STEP_LINE = re.compile(rb"\bstep:\d+ - \S|\bGlobal step \d+: \{")
"""Lines of steps that hold no configuration: consoles have many of them."""


def _lines(path: Path, leave_out: re.Pattern[bytes] | None = None) -> Iterator[tuple[int, str]]:
    """Lines of a console, with their numbers, without colours; a carriage return ends one too.

    Where lines are left out, so is a last one without an end, which may be cut inside a number.
    """
    with open_bytes(path) as file:
        for number, raw in enumerate(file, start=1):
            if leave_out is None or (raw.endswith(b"\n") and not leave_out.search(raw)):
                for line in COLOURS.sub("", raw.decode(errors="replace")).rstrip("\n").split("\r"):
                    yield number, line


_MARKS = (b"{'loss'", b"'reward': ", b"'epoch': ")
"""One of these stands in every row that a Trainer prints."""


def prints_rows(path: Path) -> bool:
    """Whether a file holds rows of a Trainer; it is only searched, not read line by line."""
    with suppress(RecordError), open_bytes(path) as file:
        while part := file.read(1 << 24):
            if any(mark in part for mark in _MARKS):
                return True
    return False
