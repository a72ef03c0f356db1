"""Stands in for Python in launch scripts of the simulator: `slow_python.py -m isocompute_simulator.train FOLDER`.

Simulates the run, but writes its journal a record at a time over some seconds, and goes on where an earlier attempt has
stopped, as training does. Two attempts at a time would be seen: in the file `clashes` beside the runs, and as repeated
records. The file `used` lists the GPUs that runs had. The file `seconds` says how long a run takes, from then on.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

from isocompute_simulator.train import main


def claim(root: Path, name: str) -> None:
    """Leave if another process has claimed this name and lives."""
    descriptor = os.open(root / f"claim-{name}", os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        with (root / "clashes").open("a") as file:
            file.write(f"{name} {os.getpid()}\n")
        sys.exit(70)


def train(folder: Path) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        shutil.copy(folder / "simulation.json", scratch)
        if main([scratch]):
            sys.exit(2)
        records = (Path(scratch) / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    path = folder / "metrics.jsonl"
    path.touch()
    done = [line for line in path.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")]
    seconds = folder.parents[2] / "seconds"
    with path.open("r+b") as file:
        file.truncate(sum(map(len, done)))
        file.seek(0, os.SEEK_END)
        for record in records[len(done) :]:
            time.sleep(float(seconds.read_text()) / len(records))
            file.write(record)
            file.flush()


if __name__ == "__main__":
    run = Path(sys.argv[-1])
    place = run.parents[2]
    gpus = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    node = os.environ.get("TEST_NODE", "")
    for gpu in filter(None, gpus.split(",")):
        claim(place, f"gpu-{node}-{gpu}")
    claim(place, f"run-{run.name}")
    with (place / "used").open("a") as used:
        used.write(f"{run.name} {node}:{gpus}\n")
    train(run)
