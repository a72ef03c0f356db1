"""What OpenRLHF and veRL print to the console: the values of their logs once more, attempt after attempt.

A console that was captured keeps what a log has lost: events that never reached the disk, and the attempts before the
last one where a logger empties its file at every start. OpenRLHF prints `Global step N: {...}` for each update and
`Evaluation completed in ..., global_step N, eval_metrics: {...}` for each evaluation, Python dicts that may hold nan
(trainer/ppo_trainer.py). veRL prints `step:N - tag:value - tag:value` (utils/logger/aggregate_logger.py). Ray and
loggers put their own words in front. The values have all their digits.
"""

from __future__ import annotations

import mmap
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from isocompute_sdk.ingest.stores.packed import DAMAGED, open_bytes, unpacked

OPENRLHF_UPDATE = re.compile(r"Global step (\d+): \{(.*)\}\s*$")
OPENRLHF_EVALUATION = re.compile(r"Evaluation completed in .*, global_step (\d+), eval_metrics: \{(.*)\}\s*$")
VERL_STEP = re.compile(r"(?<![\w:/-])step:(\d+) - (.+)$")
_MARKS = (b"Global step ", b"Evaluation completed in ", b"step:")
_NUMBER = r"(?:[\w.]+\()?(-?(?:nan|inf|\d[\d.]*(?:e[-+]?\d+)?))"  # it may stand inside its type: np.float64(0.5)
_OPENRLHF_VALUE = re.compile(rf"'([^']+)': {_NUMBER}")
_VERL_VALUE = re.compile(rf"(.+):{_NUMBER}\)?")
_COLOURS = re.compile(r"\x1b\[[\d;]*m")

Steps = dict[int, dict[str, float]]
"""Update step -> tag -> value, with the tags that the framework gives its logs."""


def read_console(path: Path) -> list[Steps]:
    """What a captured console says, one entry per attempt, none for a file without a line of either framework.

    Of one that is packed with gzip and damaged, what stands before the damage.
    """
    if not path.stat().st_size:
        return []
    if unpacked(path) != path:
        with open_bytes(path) as file:
            return parse_console(_unpacked(file))
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
        return parse_console(_marked(text))


def _unpacked(file: BinaryIO) -> Iterator[str]:
    """As `_marked`, for a file that cannot be looked through without unpacking it."""
    try:
        for line in file:
            if line.endswith(b"\n") and any(mark in line for mark in _MARKS):
                yield line[:-1].decode(errors="replace")
    except DAMAGED:
        return


def _marked(text: mmap.mmap) -> Iterator[str]:
    """Lines that may be of steps: consoles are long, and there are few in them.

    A last line without an end may be cut inside a number and is left out.
    """
    bounds: dict[int, int] = {}
    for mark in _MARKS:
        at = text.find(mark)
        while at >= 0:
            end = text.find(b"\n", at)
            if end < 0:
                break
            bounds[text.rfind(b"\n", 0, at) + 1] = end
            at = text.find(mark, end)
    for begin in sorted(bounds):
        yield text[begin : bounds[begin]].decode(errors="replace")


def parse_console(lines: Iterable[str]) -> list[Steps]:
    """As `read_console`, for lines in memory: another attempt began where the steps begin anew.

    A line that repeats the one before it, as a console that is captured twice has them, says nothing new.
    """
    attempts: list[Steps] = []
    last, before = -1, dict[str, float]()
    for line in lines:
        evaluation = OPENRLHF_EVALUATION.search(line)
        if evaluation is not None:
            if not attempts:
                attempts.append({})
            _add(attempts[-1], int(evaluation[1]), _openrlhf("eval", evaluation[2]))
            continue
        found = _update(line)
        if found is None:
            continue
        step, values = found
        if step == last and str(values) == str(before):
            continue
        if not attempts or step <= last:
            attempts.append({})
        last, before = step, values
        _add(attempts[-1], step, values)
    return [attempt for attempt in attempts if attempt]


def _update(line: str) -> tuple[int, dict[str, float]] | None:
    update = OPENRLHF_UPDATE.search(line)
    if update is not None:
        return int(update[1]), _openrlhf("train", update[2])
    step = VERL_STEP.search(line)
    if step is not None:
        found = map(_VERL_VALUE.fullmatch, _COLOURS.sub("", step[2]).strip().split(" - "))
        values = {match[1]: float(match[2]) for match in found if match is not None}
        return (int(step[1]), values) if values else None
    return None


def _openrlhf(kind: str, text: str) -> dict[str, float]:
    return {f"{kind}/{name}": float(value) for name, value in _OPENRLHF_VALUE.findall(text)}


def _add(attempt: Steps, step: int, values: dict[str, float]) -> None:
    if values:
        attempt.setdefault(step, {}).update(values)
