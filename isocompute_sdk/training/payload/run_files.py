"""Files of a run folder that several programs use: names, atomic writing, digests, and the folder's lock."""

from __future__ import annotations

import fcntl
import hashlib
import json
import math
import os
import random
import shutil
import statistics
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

ROW_FILES = {"train": "train_rows.jsonl", "evaluation": "evaluation_rows.jsonl"}
STARTED = "started.json"
"""Request, inputs and outputs of the first start; written last."""
ATTEMPTS = "attempts.jsonl"
"""One line per start."""
BEST = "best.json"
"""The best checkpoint; `record_best` says what stands there."""
EVALUATIONS = "evaluations.jsonl"
"""One line per evaluation: step, the means of its halves, and its standard error."""
SPLITS = 32
"""Random splits of an evaluation into halves."""
CHOSEN_ON = "all samples of its evaluation"
FRESH = "new samples of this checkpoint"
FROM_HALVES = f"halves of the samples that did not choose, mean of {SPLITS} random splits"
LOCK = ".lock"
LOCK_PATIENCE_SECONDS = 2.0
"""Wait for the lock: a status check holds it for a moment."""


class InputError(Exception):
    """Something the user gave cannot be used; the message says what and where."""


def read_json(path: Path) -> Any:
    """The value of a JSON file."""
    return json.loads(path.read_text(encoding="utf-8"))


def write_json(path: Path, value: Any) -> None:
    """Replace a JSON file atomically."""
    write_text(path, [json.dumps(value, indent=1), "\n"])


def write_text(path: Path, parts: Iterable[str]) -> str:
    """Replace a file atomically; returns the SHA-256 of its content."""
    temporary = path.with_name(path.name + ".tmp")
    digest = hashlib.sha256()
    with temporary.open("wb") as file:
        for part in parts:
            data = part.encode("utf-8")
            digest.update(data)
            file.write(data)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    return digest.hexdigest()


def digest_of(path: Path) -> str:
    """SHA-256 of a file."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        for block in iter(lambda: file.read(1 << 20), b""):
            digest.update(block)
    return digest.hexdigest()


def better(run: Path, reward: float) -> bool:
    """Whether a reward is above that of the best checkpoint so far; true without one."""
    try:
        return reward > read_json(run / BEST)["reward"]
    except (OSError, ValueError, KeyError, TypeError):
        return not math.isnan(reward)


def record_best(run: Path, step: int, metric: str, reward: float, checkpoint: Path) -> None:
    """Name the best checkpoint in best.json.

    Args:
        run: run folder.
        step: its update step.
        metric: what was compared, such as avg@4 of the validation problems.
        reward: its value. The largest of many noisy values is above the true one, so `reported` and `bias` stand beside
            it; see `report`.
        checkpoint: where it lies, below the run folder.
    """
    where = checkpoint.relative_to(run).as_posix()
    best = {"step": step, "metric": metric, "reward": reward, "checkpoint": where, "chosen_on": CHOSEN_ON}
    write_json(run / BEST, {**best, **_reported(run, step, reward)})


def note_evaluation(run: Path, step: int, scores: Iterable[Sequence[float]]) -> None:
    """Keep what `report` needs of an evaluation, and report the best checkpoint again.

    Args:
        run: run folder.
        step: update step of the evaluation.
        scores: rewards of each problem's samples.
    """
    groups = [list(group) for group in scores]
    line = {"step": step, "halves": halves(groups, seed=step), "error": standard_error(groups)}
    with (run / EVALUATIONS).open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")
    report(run)


def report(run: Path) -> None:
    """Write into best.json what samples that did not choose the checkpoint say about it.

    `reported`: the samples of each problem are split into halves at random; one half chooses the step, the other
    measures it. The mean over both directions and all splits does not exceed the true reward on average; it lies below
    by what a choice from half of the samples loses. None with one sample per problem.
    `bias`: roughly how far `reward` lies above the true one: `reward - reported`, or, without halves, the largest of
    as many noisy values as there were evaluations.
    """
    try:
        best = read_json(run / BEST)
    except (OSError, ValueError):
        return
    found = _reported(run, best["step"], best["reward"])
    if found != {name: best.get(name) for name in found}:
        write_json(run / BEST, {**best, **found})


def record_reported(run: Path, reward: float) -> None:
    """Write into best.json the reward of the best checkpoint on samples drawn after it was chosen."""
    best = read_json(run / BEST)
    write_json(run / BEST, {**best, "reported": reward, "reported_on": FRESH, "bias": best["reward"] - reward})


def _reported(run: Path, step: int, reward: float) -> dict[str, Any]:
    found: dict[str, Any] = {"reported": None, "reported_on": "", "bias": None}
    try:
        text = (run / EVALUATIONS).read_text(encoding="utf-8")
    except OSError:
        return found
    # An evaluation that was repeated after a resume counts once. The base model has no checkpoint.
    known = {line["step"]: line for line in map(json.loads, text.splitlines()) if line["step"] > 0}
    if step not in known:
        return found
    value = choice_reward([line["halves"] for line in known.values()])
    if value is not None:
        return {"reported": value, "reported_on": FROM_HALVES, "bias": reward - value}
    return {**found, "bias": known[step]["error"] * math.sqrt(2 * math.log(len(known)))}


def halves(scores: Sequence[Sequence[float]], seed: int) -> list[tuple[float, float]]:
    """Means of two halves of an evaluation, split at random within each problem, for each of `SPLITS` splits.

    Random, because frameworks write short responses first. Empty if a problem has fewer than two samples.
    """
    if not scores or any(len(group) < 2 for group in scores):
        return []
    draw, found = random.Random(seed), list[tuple[float, float]]()
    for _ in range(SPLITS):
        first = second = 0.0
        for group in scores:
            mine = math.fsum(draw.sample(group, len(group) // 2))
            first += mine / (len(group) // 2)
            second += (math.fsum(group) - mine) / (len(group) - len(group) // 2)
        found.append((first / len(scores), second / len(scores)))
    return found


def choice_reward(evaluations: Sequence[Sequence[Sequence[float]]]) -> float | None:
    """Mean reward, in one half, of the evaluation that the other half chooses; None if one has no halves.

    Args:
        evaluations: `halves` of each.
    """
    if not evaluations or not all(evaluations):
        return None
    found: list[float] = []
    for pairs in zip(*evaluations, strict=True):
        found += [max(pairs, key=lambda pair: pair[0])[1], max(pairs, key=lambda pair: pair[1])[0]]
    return math.fsum(found) / len(found)


def standard_error(scores: Sequence[Sequence[float]]) -> float:
    """Standard error of the mean reward over repeated sampling; with one sample per problem an upper limit."""
    if not scores:
        return 0.0
    if any(len(group) < 2 for group in scores):
        return statistics.pstdev([score for group in scores for score in group]) / math.sqrt(len(scores))
    return math.sqrt(sum(statistics.variance(group) / len(group) for group in scores)) / len(scores)


def pin(checkpoint: Path, folder: Path) -> Path:
    """Link the files of a checkpoint into `folder`, copying where links do not work; drop what was there before.

    Returns the new checkpoint. best.json names the old one until the caller records the new one, so the old one goes at
    the next call.
    """
    kept, new = folder / checkpoint.name, folder / f".{checkpoint.name}.new"
    shutil.rmtree(new, ignore_errors=True)
    shutil.copytree(checkpoint, new, copy_function=_link)
    for old in sorted(folder.iterdir(), key=lambda path: path.stat().st_mtime)[:-2]:
        shutil.rmtree(old, ignore_errors=True)
    shutil.rmtree(kept, ignore_errors=True)
    new.rename(kept)
    return kept


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def hold(folder: Path) -> int | None:
    """Lock the run folder for this process, across exec, until it ends; others see that the run is active.

    Returns the descriptor of the lock; None on a file system without locks.

    Raises:
        InputError: a process of another start holds the lock.
    """
    descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
    os.set_inheritable(descriptor, True)
    deadline = time.monotonic() + LOCK_PATIENCE_SECONDS
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return descriptor
        except BlockingIOError:
            if time.monotonic() > deadline:
                os.close(descriptor)
                raise InputError(
                    f"another process trains the run in {str(folder)!r}: wait for it, or stop it"
                ) from None
            time.sleep(0.05)
        except OSError:
            os.close(descriptor)
            return None


def attempt_of(folder: Path) -> int:
    """Number of the current start, from 1; 0 before the first."""
    path = folder / ATTEMPTS
    return len(path.read_text(encoding="utf-8").splitlines()) if path.exists() else 0


def shortened(value: Any) -> str:
    """A value for a message, cut to 80 characters."""
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
