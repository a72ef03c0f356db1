"""A run that is killed and started again measures what a run measures that was never stopped."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from isocompute_sdk.training.payload import run_files
from tests.backends.torch_runner.conftest import at_line, die
from tests.processes import HANG_SECONDS, wait_for

WALL_CLOCK = {"wall_seconds", "seconds", "attempt", "versions"}
Start = Callable[..., tuple[int, str]]
EVERYTHING = {"preset": "easy", "max_response_tokens": 4, "temperature": 1.0, "kl_coef": 0.01, "entropy_coef": 0.01}


def comparable_file(folder: Path) -> list[dict[str, Any]]:
    lines = (folder / "metrics.jsonl").read_text().split("\n")
    assert lines[-1] == "", "the journal ends with a whole line"
    return [{k: v for k, v in json.loads(line).items() if k not in WALL_CLOCK} for line in lines[:-1]]


def weights(folder: Path) -> bytes:
    return (folder / "model" / "model.safetensors").read_bytes()


# By lines of the journal: before the first update, between a checkpoint and the next, and right before the end.
@pytest.mark.parametrize("moments", [[5], pytest.param([2, 5, 9, 16], marks=pytest.mark.slow)])
def test_killed_at_any_moment_and_started_again_it_measures_the_same(
    prepared: Callable[..., Path], start: Start, fork_run: Any, moments: list[int]
) -> None:
    recipe = {**EVERYTHING, "algorithm": "ppo"}
    whole = prepared("whole", run_id="run", recipe=recipe)
    assert start(whole)[0] == 0
    expected = comparable_file(whole)
    assert len(expected) == 1 + 4 * 2 + 7 + 1

    killed = prepared("killed", run_id="run", recipe=recipe)
    for lines in moments:
        assert fork_run(killed, at_line(killed, lines, die)).wait() == -9
        comparable_file(killed)
    assert start(killed)[0] == 0
    assert comparable_file(killed) == expected
    assert weights(killed) == weights(whole)
    attempts = [json.loads(line)["attempt"] for line in (killed / "attempts.jsonl").read_text().splitlines()]
    assert attempts == list(range(1, len(moments) + 2))


def test_a_folder_is_not_gone_on_with_by_another_run(
    prepared: Callable[..., Path], start: Start, fork_run: Any, records: Callable[..., list[dict[str, Any]]]
) -> None:
    folder = prepared()
    assert fork_run(folder, at_line(folder, 6, die)).wait() == -9
    prepared(seed=9)
    status, output = start(folder)
    assert status == 2
    assert "run.json" in output
    assert json.loads((folder / "run.json").read_text())["seed"] != 9
    prepared()
    Path("train.jsonl").write_text(Path("train.jsonl").read_text() + '{"prompt": "9+9=", "answer": "18"}\n')
    status, output = start(folder)
    assert status == 2
    assert "data.train" in output
    assert records(folder, "end") == []


@pytest.mark.slow
def test_a_finished_run_keeps_its_models_and_can_be_made_longer_if_it_kept_its_state(
    prepared: Callable[..., Path], start: Start
) -> None:
    whole = prepared("whole", run_id="run", update_steps=5)
    assert start(whole)[0] == 0
    assert not (whole / "checkpoints").exists()
    assert (whole / "model" / "model.safetensors").exists()
    assert list((whole / "best").glob("step-*/model.safetensors"))
    for keep in (False, True):
        longer = prepared(f"longer-{keep}", run_id="run", update_steps=3, options={"keep_state": keep})
        assert start(longer)[0] == 0
        prepared(longer.name, run_id="run", update_steps=5)
        status, output = start(longer)
        assert status == (0 if keep else 2)
        assert keep or "keep_state: true" in output
    assert weights(longer) == weights(whole)


def test_two_processes_do_not_train_one_run(
    prepared: Callable[..., Path],
    start: Start,
    fork_run: Any,
    records: Callable[..., list[dict[str, Any]]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(run_files, "LOCK_PATIENCE_SECONDS", 0.0)
    folder = prepared()
    first = fork_run(folder, at_line(folder, 3, lambda: time.sleep(HANG_SECONDS)))
    wait_for(lambda: records(folder, "evaluation"))
    status, output = start(folder)
    os.kill(first.pid, signal.SIGKILL)
    assert status == 2
    assert str(folder) in output
    assert first.wait() == -9


def test_an_unusable_checkpoint_is_named(prepared: Callable[..., Path], start: Start, fork_run: Any) -> None:
    folder = prepared()
    assert fork_run(folder, at_line(folder, 6, die)).wait() == -9
    (state,) = (folder / "checkpoints").glob("step-*/state.pt")
    state.write_bytes(state.read_bytes()[:1000])
    status, output = start(folder)
    assert status == 2
    assert str(state) in output
    shutil.rmtree(state.parent)
    assert start(folder)[0] == 0
