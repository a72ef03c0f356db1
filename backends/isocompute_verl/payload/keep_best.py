"""Keep the checkpoint of the best validation reward, which veRL would remove with the old ones.

    python3 keep_best.py RUN_FOLDER ATTEMPT PID        (started by start_training.py)

Reads logs/attempt-<ATTEMPT>.jsonl while process PID, the trainer, lives. A checkpoint better than all before is linked
as best/global_step_<N>, which takes no space until veRL removes its own copy, and named in best.json, beside its reward
on samples that did not choose it: those come from the responses that veRL writes to validation/<ATTEMPT>/<N>.jsonl.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from run_files import better, note_evaluation, pin, record_best

MEAN = re.compile(r"val-core/validation/(?:acc|reward|score)/mean@(\d+)")
"""avg@k in veRL's log."""
POLL_SECONDS = 5.0
TOLERANCE = 1e-6
"""Largest difference between veRL's mean and that of the responses it wrote."""


def evaluations(log: Path) -> Iterator[tuple[int, str, float]]:
    """(step, metric, reward) of every complete line that has a validation reward."""
    if not log.exists():
        return
    for line in log.read_text(encoding="utf-8", errors="replace").split("\n")[:-1]:
        try:
            entry = json.loads(line)
            for key, value in entry["data"].items():
                found = MEAN.fullmatch(key)
                if found and isinstance(value, (int, float)):
                    yield int(entry["step"]), f"avg@{found[1]}", float(value)
        except (ValueError, KeyError, TypeError, AttributeError):
            continue


def keep(run: Path, log: Path) -> None:
    """Pin every checkpoint that is complete and better than the best so far."""
    for step, metric, reward in evaluations(log):
        source = run / "checkpoints" / f"global_step_{step}"
        if better(run, reward) and complete(source):
            record_best(run, step, metric, reward, pin(source, run / "best"))


def note(run: Path, log: Path, attempt: str, noted: set[int]) -> None:
    """Keep the rewards of every evaluation whose responses are all written; `noted` are those kept before."""
    for step, metric, reward in evaluations(log):
        if step in noted or not (run / "checkpoints" / f"global_step_{step}").exists():  # what is not saved is not kept
            continue
        scores = rewards(run / "validation" / attempt / f"{step}.jsonl")
        means = [sum(group) / len(group) for group in scores]
        whole = all(len(group) == int(metric.partition("@")[2]) for group in scores)
        if means and whole and abs(sum(means) / len(means) - reward) < TOLERANCE:
            note_evaluation(run, step, scores)
            noted.add(step)


def rewards(dump: Path) -> list[list[float]]:
    """Rewards of each problem's responses; empty while they are written.

    A row's `uid` is <problem>_<sample>_<output>; of several outputs the last one is rewarded.
    """
    groups: dict[str, dict[str, float]] = {}
    try:
        for line in dump.read_text(encoding="utf-8", errors="replace").split("\n"):
            if line.strip():
                row = json.loads(line)
                problem, sample, _ = str(row["uid"]).rsplit("_", 2)
                groups.setdefault(problem, {})[sample] = float(row.get("acc", row["score"]))
    except (OSError, ValueError, KeyError, TypeError):
        return []
    return [list(group.values()) for group in groups.values()]


def complete(checkpoint: Path) -> bool:
    """Whether veRL has finished writing: it names the newest one last."""
    newest = checkpoint.parent / "latest_checkpointed_iteration.txt"
    try:
        return (checkpoint / "data.pt").exists() and int(newest.read_text()) >= int(checkpoint.name.split("_")[-1])
    except (OSError, ValueError):
        return False


def main(argv: list[str]) -> int:
    """Watch until the trainer ends."""
    run, attempt, trainer = Path(argv[0]), argv[1], int(argv[2])
    for number in (signal.SIGINT, signal.SIGTERM):  # sent to the whole group; this process ends with the trainer
        signal.signal(number, signal.SIG_IGN)
    log = run / "logs" / f"attempt-{attempt}.jsonl"
    alive, noted = True, set[int]()
    while alive:
        alive = os.getppid() == trainer
        try:
            keep(run, log)
            note(run, log, attempt, noted)
        except OSError as error:
            sys.stderr.write(f"keep_best: {error}\n")
        ends = time.monotonic() + POLL_SECONDS
        while time.monotonic() < ends and os.getppid() == trainer:
            time.sleep(0.2)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
