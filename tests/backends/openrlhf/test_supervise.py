"""The program that runs the training: what it keeps, what it removes, when it ends the run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from isocompute_openrlhf import payload
from isocompute_sdk.run_folders.store import RunWatch
from tests.backends.programs import SHARED
from tests.processes import HANG_SECONDS, wait_for

TRAINER = """
import json, os, sys, time
run, last, every, evaluate = sys.argv[1], *map(int, sys.argv[2:5])
def be_seen():
    # Until supervise.py has looked twice more.
    looks = os.path.getsize(f"{run}/looks") if os.path.exists(f"{run}/looks") else 0
    while not os.path.exists(f"{run}/looks") or os.path.getsize(f"{run}/looks") < looks + 2:
        time.sleep(0.01)
print("started", flush=True)
for step in range(1, last + 1):
    print(f"(PPOTrainer pid=1) INFO ppo_trainer.py:1] \\u2728 Global step {step}: {{'reward': 0.5}}", flush=True)
    if step % every == 0:
        for engine in sys.argv[5:]:
            folder = f"{run}/checkpoints/{engine}/global_step{step}"
            os.makedirs(folder)
            open(f"{run}/checkpoints/{engine}/latest", "w").write(f"global_step{step}")
            open(f"{folder}/metric.json", "w").write("{}")
    be_seen()
    if step % evaluate == 0:
        print(f"Evaluation completed in 0:00:01, global_step {step}, eval_metrics: {{}}", flush=True)
        if step == evaluate:  # the reward falls from then on
            print(f"\\u2728 Saved best checkpoint: best_global_step{step} (eval_validation_pass1=0.6210)", flush=True)
        be_seen()
    while str(step) == os.environ.get("HOLD"):
        time.sleep(1)
print("done", flush=True)
sys.exit(int(os.environ.get("EXIT", "0")))
"""

LOOKING = """
import sys, time
sys.path[:0] = {folders!r}
import run_files, supervise

class Time:
    monotonic, time = time.monotonic, time.time

    def sleep(seconds):
        open({looks!r}, "a").write(".")
        time.sleep(0.02)

supervise.time, run_files.LOCK_PATIENCE_SECONDS = Time, 0.0
sys.exit(supervise.main(sys.argv[1:]))
"""
"""supervise.py, noting its looks, with less patience."""


@pytest.fixture
def run(tmp_path: Path) -> Path:
    (tmp_path / "trainer.py").write_text(TRAINER)
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "attempts.jsonl").write_text("{}\n")
    return folder


def command(run: Path, last: int, every: int, evaluate: int, *engines: str, options: tuple[str, ...] = ()) -> list[str]:
    folders = [str(Path(str(payload.__file__)).parent), str(SHARED)]
    chosen = ["--samples=2", *options]
    trainer = [sys.executable, str(run.parent / "trainer.py"), str(run), str(last), str(every), str(evaluate), *engines]
    looking = LOOKING.format(folders=folders, looks=str(run / "looks"))
    return [sys.executable, "-c", looking, str(run), *engines, *chosen, "--", *trainer]


def supervised(run: Path, *numbers: int, options: tuple[str, ...] = (), **environment: str) -> tuple[int, str]:
    finished = subprocess.run(
        command(run, *numbers, "_actor", options=options),
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    return finished.returncode, finished.stdout + finished.stderr


def started(run: Path, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command(run, 1000, 1, 100, "_actor"),
        env={**os.environ, **environment},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_the_best_checkpoint_is_named(run: Path) -> None:
    status, output = supervised(run, 6, 2, 2, options=())
    assert status == 0, output
    best = json.loads((run / "best.json").read_text())
    checkpoint = "checkpoints/_actor/best_global_step2"
    assert (best["step"], best["metric"], best["reward"]) == (2, "avg@2", 0.621)
    assert best["checkpoint"] == checkpoint


def kept(run: Path, engine: str = "_actor") -> list[int]:
    return sorted(int(path.name.removeprefix("global_step")) for path in (run / "checkpoints" / engine).glob("global*"))


def test_the_newest_checkpoints_stay_and_the_output_is_kept(run: Path) -> None:
    status, shown = supervised(run, 13, 1, 100, options=("--keep=2",))
    assert status == 0
    assert kept(run) == [12, 13]
    assert "done" in shown
    assert "Global step 13" in (run / "console.1.log").read_text()
    assert not list((run / "checkpoints" / ".removing").iterdir())


def test_a_run_under_way_is_seen_as_running_and_cannot_be_started_twice(run: Path) -> None:
    with started(run, HOLD="1") as process:
        wait_for(lambda: kept(run), process)
        assert RunWatch(run).status().state == "running"
        status, shown = supervised(run, 1, 1, 100)
        process.terminate()
    assert (status, "another process trains the run in" in shown) == (2, True)
    # Seen right after its end, however slow the machine is.
    os.utime(run / "attempts.jsonl")
    # Told to stop, it goes on when it is started again: that is no failure.
    assert RunWatch(run).status().state != "failed"
    assert not (run / "exit.json").exists()


def test_a_signal_is_passed_on(run: Path) -> None:
    with started(run, HOLD="1") as process:
        wait_for(lambda: kept(run), process)
        process.send_signal(signal.SIGTERM)
        assert process.wait(HANG_SECONDS) == 128 + signal.SIGTERM
