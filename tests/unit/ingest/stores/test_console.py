"""Captured consoles of OpenRLHF and veRL, on their own and beside event files."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from isocompute_sdk.ingest.formats.registry import load
from isocompute_sdk.ingest.stores.console import Steps, parse_console, read_console
from isocompute_sdk.notes import Note
from isocompute_sdk.records import RunSet
from tests.unit.ingest.log_files import OPENRLHF, write_events

OF_OPENRLHF, OF_VERL = (console for name in ("openrlhf", "verl") if (console := load(name).console) is not None)
PREFIX = "\x1b[36m(PPOTrainer pid=7)\x1b[0m INFO 11-21 08:00:00 ppo_trainer.py:551] ✨ "


def update(step: int, **values: object) -> str:
    return f"{PREFIX}Global step {step}: {values}\n"


def test_openrlhf_attempts_are_told_apart_where_steps_begin_anew() -> None:
    lines = [update(step, reward=step + 0.5) for step in (1, 2, 3, 3, 4)]
    lines[3] = update(3, reward=-1.5e-05, kl=float("nan"))
    metrics = "{'eval_a_pass1': np.float64(1.0)}"
    lines.insert(2, f"{PREFIX}Evaluation completed in 0:01:02, global_step 2, eval_metrics: {metrics}\n")
    first, second = parse_console(lines, OF_OPENRLHF)
    assert first == {
        1: {"train/reward": 1.5},
        2: {"train/reward": 2.5, "eval/eval_a_pass1": 1.0},
        3: {"train/reward": 3.5},
    }
    assert second == {3: {"train/reward": -1.5e-05, "train/kl": pytest.approx(float("nan"), nan_ok=True)}, 4: second[4]}


def test_verls_lines_are_read_behind_whatever_ray_puts_in_front() -> None:
    text = "(TaskRunner pid=1) step:3 - critic/score/mean:np.float64(0.5) - val-core/my set/acc/mean@4:1e-05 - a:nan"
    (found,) = parse_console([f"\x1b[36m{text}\x1b[0m\n"], OF_VERL)
    assert found == {
        3: {
            "critic/score/mean": 0.5,
            "val-core/my set/acc/mean@4": 1e-05,
            "a": pytest.approx(float("nan"), nan_ok=True),
        }
    }


@pytest.mark.parametrize(
    "line", ["global_step:3 - loss:0.5", "epoch 1, step:3", "step:3 - loading - done", "Global step 3: {'a': 1.0", ""]
)
def test_lines_that_only_look_alike_say_nothing(line: str) -> None:
    for console_ in (OF_OPENRLHF, OF_VERL):
        assert parse_console([line + "\n"], console_) == []


def test_a_line_that_stands_there_twice_is_no_second_attempt() -> None:
    lines = [update(step, reward=step + 0.5, kl=float("nan")) for step in (1, 1, 2)]
    assert [list(attempt) for attempt in parse_console(lines, OF_OPENRLHF)] == [[1, 2]]


def test_a_last_line_that_may_be_cut_inside_a_number_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_text("step:1 - critic/score/mean:0.25\nstep:2 - critic/score/mean:0.2")
    assert read_console(path, OF_VERL) == [{1: {"critic/score/mean": 0.25}}]


def attempt(steps: Iterable[int], seed: float) -> Steps:
    """What OpenRLHF measures at each update, different in every attempt."""
    return {
        step: {"reward": (step * seed) % 1, "entropy_loss": (step * seed / 3) % 1, "policy_loss": 0.1, "actor_lr": 1e-6}
        for step in steps
    }


def events(folder: Path, steps: Iterable[int], seed: float, began: float) -> None:
    def value(name: str) -> Callable[[int], float]:
        return lambda step: attempt([step], seed)[step][name]

    write_events(folder, steps, {f"train/{name}": value(name) for name in attempt([1], seed)[1]}, began)


def console(path: Path, steps: Iterable[int], seed: float) -> None:
    with path.open("a") as file:
        file.writelines(update(step, **values) for step, values in attempt(steps, seed).items())


def recovered(runs: RunSet) -> Note:
    (found,) = [note for note in runs.notes if note.code == "attempts-recovered"]
    return found


def test_an_attempt_whose_events_are_gone_comes_back_from_the_console(tmp_path: Path) -> None:
    run = tmp_path / "exp"
    events(run / "tensorboard" / "r1", range(41, 61), 0.7, began=1000)
    for steps, seed in ((range(1, 58), 0.3), (range(41, 61), 0.7)):
        console(run / "launch.log", steps, seed)
    runs = RunSet.read(tmp_path, n=8, bp=4)
    (info,) = runs.runs()
    assert (info.rollouts, info.rollouts_spent) == (60 * 32, 77 * 32)
    (series,) = runs.series("train_reward")
    assert series.value_T == pytest.approx(
        [attempt([s], 0.3 if s <= 40 else 0.7)[s]["reward"] for s in range(1, 61)], abs=1e-6
    )
    assert recovered(runs).data["attempts"] == [{"source": str(run / "launch.log"), "first": 1.0, "last": 57.0}]


def test_a_resume_that_lost_no_step_is_not_counted_twice(tmp_path: Path) -> None:
    """The console shows one row of steps, in which nothing tells where the second attempt began."""
    run = tmp_path / "exp"
    events(run, range(1, 41), 0.3, began=0)
    events(run, range(41, 61), 0.7, began=1000)
    console(run / "launch.log", range(1, 41), 0.3)
    console(run / "launch.log", range(41, 64), 0.7)
    runs = RunSet.read(tmp_path, n=8, bp=4)
    (info,) = runs.runs()
    assert (info.rollouts, info.rollouts_spent) == (63 * 32, 63 * 32)
    assert {note.code for note in runs.notes} == {"log-filled"}


def test_a_console_beside_a_whole_log_changes_nothing(tmp_path: Path) -> None:
    run = tmp_path / "exp"
    for steps, seed, began in ((range(1, 58), 0.3, 0), (range(41, 61), 0.7, 1000)):
        events(run, steps, seed, began)
    bare = RunSet.read(tmp_path, n=8, bp=4)
    for number, (steps, seed) in enumerate(((range(1, 58), 0.3), (range(41, 61), 0.7)), 1):
        console(run / f"console.{number}.log", steps, seed)
        console(run / "launch.log", steps, seed)
    assert RunSet.read(tmp_path, n=8, bp=4) == bare
    assert RunSet.read(tmp_path, n=8, bp=4).notes == bare.notes


def test_other_logs_and_other_frameworks_in_the_folder_add_nothing(tmp_path: Path) -> None:
    write_events(tmp_path / "exp", range(1, 31), OPENRLHF)
    bare = RunSet.read(tmp_path, n=8, bp=4)
    (tmp_path / "exp" / "vllm.log").write_bytes(b"\xff\xfe step:1 - loss:0.5\nINFO nothing\n")
    (tmp_path / "exp" / "verl.out").write_text("step:1 - critic/score/mean:0.5\nstep:2 - critic/score/mean:0.5\n")
    runs = RunSet.read(tmp_path, n=8, bp=4)
    assert runs == bare
    assert runs.notes == bare.notes
