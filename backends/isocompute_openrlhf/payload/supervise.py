"""Run OpenRLHF, log its output, and remove old checkpoints.

    python3 supervise.py RUN_FOLDER --samples K [--keep N] ENGINE [ENGINE ...] -- COMMAND ...

* Before the start, every engine's checkpoints are made loadable after a stop at any moment. DeepSpeed resumes from the
  tag named in the file `latest`. After a kill that tag can be gone (a new best checkpoint removes the old one before it
  is saved), or differ between actor and critic. OpenRLHF writes metric.json into a checkpoint as the very last step, so
  its presence marks a complete one: `latest` is pointed at the newest that all engines completed. Without one, the
  folders are renamed, so that training starts from the beginning. resumed.jsonl has a line for each start.
* Output is copied to this program's output and to console.<attempt>.log.
* Checkpoints: OpenRLHF only keeps those with the best metric. This program keeps the newest N, and names OpenRLHF's
  best one in best.json. Others are moved away and removed while OpenRLHF is not saving: between the end of one save and
  the next evaluation or update.

The exit status is that of the command. If the command ended by itself, it is also in exit.json, unless a
wrapper of the SDK has started this program and writes that file.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from run_files import InputError, attempt_of, hold, record_best, write_json

STEP = re.compile(rb"Global step (\d+): \{")
EVALUATED = re.compile(rb"Evaluation completed in .*, global_step (\d+), eval_metrics")
BEST_SAVED = re.compile(rb"Saved best checkpoint: (best_global_step(\d+)) \(\S+=(-?[\d.]+)\)")
TAG = re.compile(r"(?:best_)?global_step(\d+)\Z")
EXIT_FILE = "exit.json"
"""Exit status of the last start; the wrapper of the SDK's executors writes the same file."""
WRAPPED = "ISOCOMPUTE_ATTEMPT"
"""Set by that wrapper."""
POLL_SECONDS = 1.0
PATIENCE_SECONDS = 120.0


def complete_tags(folder: Path) -> dict[str, int]:
    """Update step of every complete checkpoint of one engine, by tag."""
    found = {path.parent.name: TAG.match(path.parent.name) for path in folder.glob("*/metric.json")}
    return {tag: int(match.group(1)) for tag, match in found.items() if match}


def common_tags(folders: list[Path]) -> dict[str, int]:
    """Update step of every checkpoint that all engines completed, by tag."""
    first, *others = map(complete_tags, folders)
    return {tag: step for tag, step in first.items() if all(tag in other for other in others)}


def newest_common(folders: list[Path]) -> tuple[str, int] | None:
    """Tag and step of the newest checkpoint that every engine completed; None without one."""
    tags = common_tags(folders)
    if not tags:
        return None
    # Of two at the same step, best_ is the later one: it was saved after the evaluation at that step.
    tag = max(tags, key=lambda name: (tags[name], name.startswith("best_")))
    return tag, tags[tag]


def set_aside(folder: Path) -> None:
    """Rename a folder that holds no complete checkpoint to the first free name."""
    number = 1
    while folder.with_name(f"{folder.name}.incomplete{number}").exists():
        number += 1
    target = folder.with_name(f"{folder.name}.incomplete{number}")
    folder.rename(target)
    say(f"no complete checkpoint in {folder.name}; moved to {target.name}")


def point_latest(folder: Path, tag: str) -> None:
    """Write `tag` into the file `latest` in one step, unless it is there already."""
    latest = folder / "latest"
    if latest.is_file() and latest.read_text(encoding="utf-8").strip() == tag:
        return
    temporary = folder / "latest.tmp"
    temporary.write_text(tag, encoding="utf-8")
    temporary.replace(latest)


def resume(run: Path, engines: Sequence[str]) -> None:
    """Make the checkpoints of all engines loadable, and note the update step from which this start resumes."""
    folders = [run / "checkpoints" / engine for engine in engines]
    newest = newest_common(folders)
    step = 0 if newest is None else newest[1]
    # claim_folder.py has numbered the start.
    with (run / "resumed.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps({"attempt": attempt_of(run), "step": step}) + "\n")
    for folder in folders:
        if newest is not None:
            point_latest(folder, newest[0])
        elif folder.exists():
            set_aside(folder)
    say("training starts from the beginning" if newest is None else f"training resumes after update step {step}")


class Progress:
    """Progress read from the console."""

    def __init__(self) -> None:
        self.step = 0
        self.evaluated = 0
        self.best: tuple[str, int, float] | None = None
        """Name, update step and reward of the best checkpoint; None before the first."""

    def read(self, line: bytes) -> None:
        """Read one line."""
        step, evaluated = STEP.search(line), EVALUATED.search(line)
        if step:
            self.step = int(step[1])
        elif evaluated:
            self.evaluated = int(evaluated[1])
        elif best := BEST_SAVED.search(line):
            self.best = best[1].decode(), int(best[2]), float(best[3])


class Checkpoints:
    """The regular checkpoints of all engines of one run."""

    def __init__(self, folder: Path, engines: Sequence[str], keep: int) -> None:
        self.folder, self.engines, self.keep = folder, engines, keep

    def complete(self) -> list[int]:
        """Steps whose regular checkpoint every engine has completed, ascending."""
        tags = common_tags([self.folder / engine for engine in self.engines])
        return sorted(step for tag, step in tags.items() if tag.startswith("global_step"))

    def prune(self) -> None:
        """Remove every complete checkpoint that need not be kept."""
        complete = self.complete()
        kept = complete[-self.keep :]
        for engine in self.engines:
            latest = self.folder / engine / "latest"
            named = latest.read_text(encoding="utf-8").strip() if latest.is_file() else ""
            for step in complete:
                tag = f"global_step{step}"
                if step not in kept and tag != named:
                    self._remove(self.folder / engine / tag, f"{engine}-{tag}")

    def _remove(self, folder: Path, name: str) -> None:
        # Renaming is atomic, so OpenRLHF never sees half a checkpoint.
        aside = self.folder / ".removing"
        try:
            aside.mkdir(exist_ok=True)
            shutil.rmtree(aside / name, ignore_errors=True)
            folder.rename(aside / name)
            shutil.rmtree(aside / name)
        except OSError as error:
            say(f"warning: a checkpoint cannot be removed: {error}")


class Training:
    """The command, as a child process."""

    def __init__(self, folder: Path, command: Sequence[str], attempt: int) -> None:
        self.progress = Progress()
        # The child inherits open descriptors, such as the lock held by the executor.
        self.process = subprocess.Popen(
            list(command),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            close_fds=False,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        self.stopping_since: float | None = None
        self.reader = threading.Thread(target=self._copy, args=(folder / f"console.{attempt}.log",), daemon=True)
        self.reader.start()

    def _copy(self, path: Path) -> None:
        """Copy the output line by line; neither a closed terminal nor a full disk ends the run."""
        output: IO[bytes] | None = sys.stdout.buffer
        try:
            log: IO[bytes] | None = path.open("ab")
        except OSError as error:
            say(f"warning: {path.name} cannot be written: {error}")
            log = None
        stream = self.process.stdout
        for line in stream if stream is not None else ():
            self.progress.read(line)
            output = written(output, line)
            log = written(log, line)

    def stop(self) -> None:
        """Ask it to stop; kill it after two minutes."""
        if self.stopping_since is None:
            self.stopping_since = time.monotonic()
            self.process.terminate()
        elif time.monotonic() - self.stopping_since > PATIENCE_SECONDS:
            self.process.kill()

    def status(self) -> int | None:
        """Exit status as a shell counts it; None while it runs."""
        code = self.process.poll()
        if code is None:
            return None
        self.reader.join(timeout=10)
        return 128 - code if code < 0 else code


def written(stream: IO[bytes] | None, line: bytes) -> IO[bytes] | None:
    """Write a line; returns the stream, or None if it failed."""
    if stream is None:
        return None
    try:
        stream.write(line)
        stream.flush()
    except (OSError, ValueError):
        return None
    return stream


def supervise(training: Training, checkpoints: Checkpoints, options: argparse.Namespace) -> int:
    """Watch the training until it ends; returns the exit status."""
    folder, pruned, named = Path(options.folder), 0, None
    while True:
        status = training.status()
        best = training.progress.best
        if best is not None and best != named:
            named = best
            name_best(folder, options, *best)
        if status is not None:
            checkpoints.prune()
            return status
        complete, progress = checkpoints.complete(), training.progress
        # A save has just ended and the next has not begun.
        if complete and pruned != complete[-1] == progress.step > progress.evaluated:
            checkpoints.prune()
            pruned = complete[-1]
        if training.stopping_since is not None:
            training.stop()
        time.sleep(POLL_SECONDS)


def name_best(folder: Path, options: argparse.Namespace, name: str, step: int, reward: float) -> None:
    """Write best.json."""
    try:
        record_best(folder, step, f"avg@{options.samples}", reward, folder / "checkpoints" / options.engines[0] / name)
    except OSError as error:
        say(f"warning: best.json cannot be written: {error}")


def say(message: str) -> None:
    """One line on stderr."""
    sys.stderr.write(f"supervise: {message}\n")
    sys.stderr.flush()


def parsed(argv: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """Options, and the command behind `--`."""
    cut = list(argv).index("--") if "--" in argv else len(argv)
    parser = argparse.ArgumentParser(prog="supervise.py", allow_abbrev=False)
    parser.add_argument("folder")
    parser.add_argument("engines", nargs="+")
    parser.add_argument("--keep", type=int, default=2)
    parser.add_argument("--samples", type=int, required=True)
    return parser.parse_args(argv[:cut]), list(argv[cut + 1 :])


def main(argv: list[str]) -> int:
    """Run and watch the command behind `--`."""
    options, command = parsed(argv)
    folder = Path(options.folder)
    checkpoints = Checkpoints(folder / "checkpoints", options.engines, options.keep)
    try:
        hold(folder)
    except InputError as error:
        say(str(error))
        return 2
    resume(folder, options.engines)
    wrapped = WRAPPED in os.environ
    if not wrapped:
        (folder / EXIT_FILE).unlink(missing_ok=True)
    training = Training(folder, command, attempt_of(folder))

    def forward(_number: int, _frame: object) -> None:
        training.stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, forward)
    status = supervise(training, checkpoints, options)
    if not wrapped and (
        status == 0 or training.stopping_since is None
    ):  # a requested stop leaves no exit status: the run can resume
        write_json(folder / EXIT_FILE, {"kind": "run-exit", "schema_version": 2, "exit_code": status})
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
