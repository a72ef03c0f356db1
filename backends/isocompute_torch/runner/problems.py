"""Problem sets: reading JSON lines, and the order in which batches use the problems. Imports no torch."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from pathlib import Path

from isocompute_sdk.training.payload import problem_files
from isocompute_sdk.training.payload.problem_files import Problem, ProblemFileError
from isocompute_torch.failures import InputError


def read_problems(path: str | Path, *, prompt_key: str | None = None, answer_key: str | None = None) -> list[Problem]:
    """All problems of a JSON-lines file; see `problem_files.read_problems`.

    Raises:
        InputError: the file is missing or cannot be used.
    """
    path = Path(path)
    try:
        return problem_files.read_problems(path, path.stem, prompt_key, answer_key)
    except ProblemFileError as error:
        raise InputError(str(error), "Correct the file, or the path in data.") from error
    except FileNotFoundError:
        raise InputError(
            f"no problem file {str(path)!r} in {str(Path.cwd())!r}",
            "Start the run in the folder that the data paths are relative to, or give absolute paths.",
        ) from None
    except OSError as error:
        raise InputError(f"{path}: {error}", "Give the path of a JSON-lines file.") from error


class BatchOrder:
    """The problems of each update step: seeded epochs without replacement, and no problem twice in a batch.

    Every epoch holds every problem once, in its own order. If a batch crosses the end of an epoch, the problems that it
    holds already move back in the next epoch's order. The order depends on the seed alone.

    Args:
        problems: number of problems, D.
        batch: problems per batch, B_p; at most D.
        seed: seed of the run.

    Raises:
        InputError: fewer problems than one batch holds.
    """

    def __init__(self, problems: int, batch: int, seed: int) -> None:
        if problems < batch:
            raise InputError(
                f"{problems} training problems for problems_per_batch = {batch}; accepted: at least one batch of "
                "different problems",
                "Lower problems_per_batch, or give more training problems.",
            )
        self._problems = problems
        self._batch = batch
        self._seed = seed
        self._epochs = 0
        self._waiting: list[int] = []
        self._next_step = 1

    def batch(self, step: int) -> list[int]:
        """Indices of the problems of update step `step` (1-based)."""
        if step < self._next_step:
            self._epochs, self._waiting, self._next_step = 0, [], 1
        while self._next_step < step:
            self._take()
        return self._take()

    def _take(self) -> list[int]:
        if len(self._waiting) < self._batch:
            order = list(range(self._problems))
            random.Random(f"{self._seed}:epoch:{self._epochs}").shuffle(order)
            left = set(self._waiting)
            first = [index for index in order if index not in left][: self._batch - len(left)]
            moved = set(first)
            self._waiting += first + [index for index in order if index not in moved]
            self._epochs += 1
        taken, self._waiting = self._waiting[: self._batch], self._waiting[self._batch :]
        self._next_step += 1
        return taken


def probe_subset(problems: Sequence[Problem], size: int) -> list[Problem]:
    """A fixed subset in file order, the same for every run on these problems, independent of its seed."""
    ranked = sorted(range(len(problems)), key=lambda i: hashlib.sha256(f"probe:{problems[i].id}".encode()).digest())
    return [problems[i] for i in sorted(ranked[:size])]


def file_digest(path: str | Path) -> str:
    """SHA-256 of a file."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
