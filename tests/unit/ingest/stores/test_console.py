"""Captured consoles of OpenRLHF and veRL, on their own and beside event files."""

from __future__ import annotations

from pathlib import Path

import pytest

from isocompute_sdk.ingest.formats.registry import load
from isocompute_sdk.ingest.stores.console import parse_console, read_console

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
