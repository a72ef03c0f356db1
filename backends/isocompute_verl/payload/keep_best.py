"""Keep the checkpoint of the best validation reward, which veRL would remove with the old ones.

    python3 keep_best.py RUN_FOLDER ATTEMPT PID        (started by start_training.py)

Reads logs/attempt-<ATTEMPT>.jsonl while process PID, the trainer, lives. A checkpoint better than all before is linked
as best/global_step_<N>, which takes no space until veRL removes its own copy, and named in best.json.
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

from run_files import better, pin, record_best

MEAN = re.compile(r"val-core/validation/(?:acc|reward|score)/mean@(\d+)")
"""avg@k in veRL's log."""
POLL_SECONDS = 5.0


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
    alive = True
    while alive:
        alive = os.getppid() == trainer
        try:
            keep(run, log)
        except OSError as error:
            sys.stderr.write(f"keep_best: {error}\n")
        ends = time.monotonic() + POLL_SECONDS
        while time.monotonic() < ends and os.getppid() == trainer:
            time.sleep(0.2)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
