"""TensorBoard folders: the event files of one run as attempts, and one curve per tag across them.

A run that is stopped and resumed leaves one event file per attempt in its folder, and the steps between the last
checkpoint and the end are there twice. TensorBoard's own reader returns both, or samples 10,000 of them. Here the
later attempt decides, the earlier ones stay available, and nothing is sampled.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from isocompute_sdk.errors import RecordError
from isocompute_sdk.ingest.event_file import EventFile, ScalarSeries, read_event_file
from isocompute_sdk.notes import Note

EVENT_MARK = "tfevents"
"""What the name of every event file contains."""


@dataclass(frozen=True)
class TensorBoardRun:
    """Everything scalar that one folder of event files holds."""

    folder: Path
    """The folder, or the one file that was asked for."""
    attempts: tuple[EventFile, ...]
    """The event files in the order in which they were begun, with every value that each of them holds."""
    notes: tuple[Note, ...]
    """What could not be read."""

    @property
    def tags(self) -> tuple[str, ...]:
        """Tags of scalars, sorted."""
        return tuple(sorted({tag for attempt in self.attempts for tag in attempt.series}))

    def series(self, tag: str) -> ScalarSeries:
        """One value per step, in the order of steps: where attempts overlap, the later one's.

        From the first step at which a later attempt wrote this tag (or at which its writer declared earlier values
        void), earlier attempts count no more, as their weights were given up. Of repeats inside an attempt the last
        counts.

        Raises:
            RecordError: there is no such tag.
        """
        parts = [(attempt, attempt.series[tag]) for attempt in self.attempts if tag in attempt.series]
        if not parts:
            raise RecordError(f"{self.folder} has no scalars tagged {tag!r}", f"It has: {', '.join(self.tags)}.")
        kept: list[ScalarSeries] = []
        limit = np.iinfo(np.int64).max
        for attempt in reversed(self.attempts):
            if tag in attempt.series:
                one = attempt.series[tag]
                kept.append(one.where(one.step_T < limit))
                limit = min(limit, int(one.step_T.min()))
            if attempt.purge_step is not None:
                limit = min(limit, attempt.purge_step)
        return one_per_step(kept[::-1])


def one_per_step(parts: Sequence[ScalarSeries]) -> ScalarSeries:
    """Several series as one, sorted by step, keeping of every step the value that was written last."""
    step = np.concatenate([part.step_T for part in parts])
    # np.unique returns first occurrences: reversed, those are the last ones.
    _, last = np.unique(step[::-1], return_index=True)
    rows = len(step) - 1 - last
    return ScalarSeries(
        step[rows],
        np.concatenate([part.wall_time_T for part in parts])[rows],
        np.concatenate([part.value_T for part in parts])[rows],
    )


def read_tensorboard(path: str | os.PathLike[str]) -> TensorBoardRun:
    """Read the event files of one folder (not those of its subfolders), or one file.

    Raises:
        RecordError: there is none, one cannot be opened, or the package `tensorboard` is missing.
    """
    target = Path(path)
    paths = event_files(target)
    if not paths:
        beside = sorted(entry.name for entry in target.iterdir())[:10] if target.is_dir() else []
        there = f"it holds: {', '.join(beside) or 'nothing'}" if target.is_dir() else "no such file or folder"
        raise RecordError(
            f"{target} holds no TensorBoard event files ({there}); accepted: files with {EVENT_MARK!r} in their names",
            "Give the folder of one run; its events lie directly in it.",
        )
    read = [one for one in map(read_event_file, paths) if one is not None]
    attempts = sorted(read, key=lambda one: (one.started, one.path.name))
    return TensorBoardRun(target, tuple(attempts), tuple(note for one in attempts for note in one.notes))


def event_files(path: Path) -> list[Path]:
    """The event files directly in a folder, sorted by name; a file stands for itself."""
    if path.is_file():
        return [path]
    if not path.is_dir():
        return []
    return sorted(entry for entry in path.iterdir() if EVENT_MARK in entry.name and entry.is_file())


def event_folders(path: str | os.PathLike[str]) -> list[Path]:
    """Folders at or below `path` that hold event files, sorted: one per run, as TensorBoard itself counts them."""
    found = [Path(here) for here, _, names in os.walk(path) if any(EVENT_MARK in name for name in names)]
    return sorted(found)
