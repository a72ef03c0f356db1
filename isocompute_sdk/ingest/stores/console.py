"""Captured consoles: the values of a log once more, attempt after attempt.

A console keeps what a log has lost: events that never reached the disk, and the attempts before the last one if a
logger empties its file at every start. How a framework prints is part of its `LogFormat`. Ray and loggers put their own
words in front; the values have all their digits.
"""

from __future__ import annotations

import mmap
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from isocompute_sdk.ingest.formats.log_format import Console
from isocompute_sdk.ingest.stores.packed import DAMAGED, open_bytes, unpacked

Steps = dict[int, dict[str, float]]
"""Update step -> tag -> value, with the tags that the framework gives its logs."""


NUMBER = r"(?:[\w.]+\()?(-?(?:nan|inf|\d[\d.]*(?:e[-+]?\d+)?))"
"""A printed number, which may stand inside its type: np.float64(0.5)."""


def read_console(path: Path, console: Console) -> list[Steps]:
    """What a captured console says, one entry per attempt; empty if it has no line of the framework.

    Of one that is packed with gzip and damaged, what stands before the damage.
    """
    if not path.stat().st_size:
        return []
    if unpacked(path) != path:
        with open_bytes(path) as file:
            return parse_console(_unpacked(file, console), console)
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
        return parse_console(_marked(text, console), console)


def shows_steps(path: Path, console: Console) -> bool:
    """Whether a captured console has a line of the framework."""
    if not path.stat().st_size:
        return False
    if unpacked(path) != path:
        with open_bytes(path) as file:
            return any(console.parse(line) is not None for line in _unpacked(file, console))
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
        return any(console.parse(line) is not None for line in _marked(text, console))


_LONGEST_STEP = 1 << 16
"""Bytes of a step that is printed over several lines."""


def _unpacked(file: BinaryIO, console: Console) -> Iterator[str]:
    """As `_marked`, for a file that cannot be searched without unpacking it."""
    try:
        for line in file:
            if any(mark in line for mark in console.marks):
                while console.until and not _ends(line, console.until) and len(line) < _LONGEST_STEP:
                    more = file.readline()
                    if not more.endswith(b"\n"):
                        return
                    line += more  # noqa: PLW2901  # a step over several lines is one
                yield (line[:-1] if line.endswith(b"\n") else _begun(line)).decode(errors="replace")
    except DAMAGED:
        return


def _ends(lines: bytes, until: bytes) -> bool:
    return lines.rstrip().endswith(until)


def _begun(line: bytes) -> bytes:
    """A last line without an end but for its last word, which may be cut inside a number."""
    return re.sub(rb"\S+\s*$", b"", line[:_LONGEST_STEP])


def _marked(text: mmap.mmap, console: Console) -> Iterator[str]:
    """Lines that may be of steps: consoles are long, and there are few in them."""
    next_of = {mark: text.find(mark) for mark in console.marks}
    while True:
        at = min((place for place in next_of.values() if place >= 0), default=-1)
        if at < 0:
            return
        begin, end = text.rfind(b"\n", 0, at) + 1, text.find(b"\n", at)
        while end >= 0 and console.until and not _ends(text[begin:end], console.until):
            end = text.find(b"\n", end + 1) if end - begin < _LONGEST_STEP else -1
        if end < 0:
            if not console.until:
                yield _begun(text[begin : begin + _LONGEST_STEP]).decode(errors="replace")
            return
        yield text[begin:end].decode(errors="replace")
        next_of = {mark: text.find(mark, end) if 0 <= place < end else place for mark, place in next_of.items()}


def parse_console(lines: Iterable[str], console: Console) -> list[Steps]:
    """As `read_console`, for lines in memory: another attempt began where the steps begin anew.

    A line that repeats the one before it, as in a console that is captured twice, says nothing new.
    """
    attempts: list[Steps] = []
    last, before = -1, dict[str, float]()
    for line in lines:
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
