"""Logs with damage: what they state is read, or a note names what is not; nothing moves to another step or tag."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from isocompute_sdk.records import RunSet
from tests.parameters import few

Point = tuple[str, float, float]
STEPS = range(1, 13)


def of_verl(step: int) -> str:
    """A record of veRL's file logger."""
    data = {"critic/score/mean": step / 20, "timing_s/step": 10 + step / 7}
    return json.dumps({"step": step, "data": {**data, **({"val-core/gsm8k/acc/mean@4": 0.5} if step == 6 else {})}})


def of_tinker(step: int) -> str:
    """A row of metrics.jsonl."""
    return json.dumps({"step": step, "progress/batch": step, "env/all/reward/total": step / 20, "time/total": 9.5})


def of_trl(step: int) -> str:
    """A row of a history that was saved line by line."""
    return json.dumps(
        {"step": step, "epoch": step / 9, "reward": step / 20, "learning_rate": 1e-6, "completions/mean_length": 9}
    )


def on_verls_console(step: int) -> str:
    """A line that veRL prints."""
    return f"step:{step} - critic/score/mean:{step / 20} - actor/entropy:0.5 - timing_s/step:{10 + step / 7}"


def on_skyrls_console(step: int) -> str:
    """Lines that SkyRL prints."""
    return (
        f"INFO - Step {step}: \n{{'reward/avg_raw_reward': '{step / 20:.4f}',\n 'timing/step': '{9 + step / 7:.4f}'}}"
    )


def on_slimes_console(step: int) -> str:
    """A line that slime prints."""
    return (
        f"(pid=7) rollout.py:99 - rollout {step - 1}: {{'rollout/raw_reward': {step / 20}, 'perf/rollout_time': 9.5}}"
    )


def on_openrlhfs_console(step: int) -> str:
    """A line that OpenRLHF prints."""
    return f"(pid=7) \u2728 Global step {step}: {{'rollout/reward_mean': {step / 20}, 'policy_loss': 9.5}}"


FORMATS: dict[str, Callable[[int], str]] = {
    "exp.jsonl": of_verl,
    "metrics.jsonl": of_tinker,
    "log.jsonl": of_trl,
    "console.txt": on_verls_console,
    "skyrl.txt": on_skyrls_console,
    "slime.txt": on_slimes_console,
    "openrlhf.txt": on_openrlhfs_console,
}


def read(folder: Path, name: str, text: str) -> tuple[list[Point], RunSet]:
    """The points of a log, and the runs."""
    (folder / "run").mkdir(exist_ok=True)
    (folder / "run" / name).write_bytes(text.encode(errors="surrogateescape"))
    runs = RunSet.read(folder / "run", set={"group_size": 4, "problems_per_batch": 4, "updates_per_batch": 1})
    return sorted((row["metric"], row["step"], row["value"]) for row in runs.to_polars().to_dicts()), runs


def records(name: str) -> list[str]:
    """The log, record by record."""
    return [FORMATS[name](step) for step in STEPS]


def codes(runs: RunSet) -> set[str]:
    """Codes of the notes, without that about a log that begins late."""
    return {note.code for note in runs.notes} & {"log-damaged", "text-not-utf8"}


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("seed", few(range(3), 1))
def test_records_in_no_order_or_copied_are_read_as_in_order(tmp_path: Path, name: str, seed: int) -> None:
    clean, whole = read(tmp_path, name, "\n".join(records(name)) + "\n")
    shuffled, copied = records(name), records(name)
    first, *rest = shuffled
    random.Random(seed).shuffle(rest)
    copied.insert(3, copied[8])
    copied.insert(11, copied[2])
    for damaged in ([first, *rest], copied):
        points, runs = read(tmp_path, name, "\n".join(damaged) + "\n")
        assert points == clean
        assert runs.runs()[0].rollouts_spent == whole.runs()[0].rollouts_spent


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("other", ['"x"', "0.2.5", "12:00", "0.(25"])
def test_a_value_that_is_no_number_is_left_out_with_a_note(tmp_path: Path, name: str, other: str) -> None:
    clean, _ = read(tmp_path, name, "\n".join(records(name)) + "\n")
    text = "\n".join(records(name)) + "\n"
    value = next(value for value in ("0.2500", "0.25") if value in text)
    bad = other if name.endswith("txt") else json.dumps(other.strip('"'))
    points, runs = read(tmp_path, name, text.replace(value, bad, 1))
    assert points == [point for point in clean if point != ("train_reward", clean_step(clean, 0.25), 0.25)]
    assert codes(runs) == {"log-damaged"}


def clean_step(points: list[Point], reward: float) -> float:
    """The step at which a reward was measured."""
    return next(step for metric, step, value in points if (metric, value) == ("train_reward", reward))


@pytest.mark.parametrize("name", FORMATS)
def test_a_log_that_ends_inside_a_record_says_so(tmp_path: Path, name: str) -> None:
    text = "\n".join(records(name))
    clean, _ = read(tmp_path, name, text + "\n")
    for cut in (3, 6):
        points, runs = read(tmp_path, name, text[:-cut])
        assert {*points} < {*clean}
        assert codes(runs) == {"log-damaged"}


@pytest.mark.parametrize("name", ["exp.jsonl", "metrics.jsonl", "log.jsonl"])
def test_a_key_that_is_there_twice_has_no_value(tmp_path: Path, name: str) -> None:
    clean, _ = read(tmp_path, name, "\n".join(records(name)) + "\n")
    text = "\n".join(records(name)) + "\n"
    points, runs = read(tmp_path, name, text.replace("0.25,", '0.25, "x": 1, "x": 2,', 1))
    assert points == [point for point in clean if point[1] != clean_step(clean, 0.25)]
    assert codes(runs) == {"log-damaged"}
    assert "'x'" in next(note.message for note in runs.notes if note.code == "log-damaged")


@pytest.mark.parametrize(
    ("name", "damaged"), [("exp.jsonl", "step"), ("metrics.jsonl", "step"), ("metrics.jsonl", '"stop"')]
)
def test_a_log_is_known_by_its_first_whole_line(tmp_path: Path, name: str, damaged: str) -> None:
    clean, _ = read(tmp_path, name, "\n".join(records(name)) + "\n")
    first, *rest = records(name)
    points, runs = read(tmp_path, name, "\n".join([first.replace('"step"', damaged), *rest]) + "\n")
    assert points == [point for point in clean if point[1] != clean_step(clean, 0.05)]
    assert "log-damaged" in codes(runs)


def test_a_row_without_its_step_is_named(tmp_path: Path) -> None:
    text = "\n".join(records("metrics.jsonl")) + "\n"
    points, runs = read(tmp_path, "metrics.jsonl", text.replace('"step": 5,', "", 1))
    assert ("train_reward", 6.0, 0.25) not in points
    assert codes(runs) == {"log-damaged"}


@pytest.mark.parametrize("name", [name for name in FORMATS if name.endswith("txt")])
def test_two_steps_without_a_line_between_them_stay_apart(tmp_path: Path, name: str) -> None:
    lines = records(name)
    clean, _ = read(tmp_path, name, "\n".join(lines) + "\n")
    for lost in ("\n", "}\n"):
        points, runs = read(
            tmp_path, name, "\n".join(lines[:5]).removesuffix(lost.strip()) + "".join(lines[5:6]) + "\n"
        )
        assert {*points} <= {*clean}
        assert codes(runs) == {"log-damaged"}


def test_a_step_behind_a_cut_one_and_a_carriage_return_in_a_tag_cost_nothing_else(tmp_path: Path) -> None:
    lines = records("console.txt")
    clean, _ = read(tmp_path, "console.txt", "\n".join(lines) + "\n")
    points, _ = read(tmp_path, "console.txt", "\n".join([*lines[:3], "step:4" + lines[4], *lines[5:]]) + "\n")
    assert points == [point for point in clean if point[1] != 4]
    lost = lines[4].replace(" - ", " - - ")
    points, _ = read(tmp_path, "console.txt", "\n".join([*lines[:4], lost, *lines[5:]]) + "\n")
    assert points == clean
    lines[4] = lines[4].replace("score", "sc\rre")
    lines[5] += "\rTraining: 50%|##  | 6/12 [00:05<00:05, 1.0s/it]"
    points, _ = read(tmp_path, "console.txt", "\n".join(lines) + "\n")
    assert points == [point for point in clean if point[:2] != ("train_reward", 5)]


@pytest.mark.parametrize("name", ["slime.txt", "openrlhf.txt"])
def test_a_line_of_a_step_without_its_end_or_without_a_number_is_named(tmp_path: Path, name: str) -> None:
    lines = records(name)
    clean, _ = read(tmp_path, name, "\n".join(lines) + "\n")
    for cut in (lines[4][:-3], lines[4].partition("0.25")[0] + "x}"):
        points, runs = read(tmp_path, name, "\n".join([*lines[:4], cut, *lines[5:]]) + "\n")
        assert {*points} < {*clean}
        assert codes(runs) == {"log-damaged"}
    begun, _, _ = lines[4].partition("0.25")
    points, runs = read(tmp_path, name, "\n".join([*lines[:4], begun + lines[5], *lines[6:]]) + "\n")
    assert points == [point for point in clean if point[1] != 5]
    assert codes(runs) == {"log-damaged"}


def test_rollouts_of_slime_count_from_0_where_the_first_is_lost(tmp_path: Path) -> None:
    lines = records("slime.txt")
    clean, _ = read(tmp_path, "slime.txt", "\n".join(lines) + "\n")
    points, _ = read(tmp_path, "slime.txt", "\n".join(lines[1:]) + "\n")
    assert points == [point for point in clean if point[1] > 1]


def test_an_evaluation_of_slime_before_the_first_rollout_is_not_the_one_behind_it(tmp_path: Path) -> None:
    lines = [f"(pid=7) eval {i}: {{'eval/aime': {0.25 + i / 8}}}" for i in range(3)]
    text = "\n".join(["(pid=7) eval 0: {'eval/aime': 0.125}", *lines]) + "\n"
    text += "(pid=7) eval 0: {'eval/aime': 0.125}\n"  # a copy
    points, _ = read(tmp_path, "slime.txt", "\n".join(records("slime.txt")) + "\n" + text)
    assert [(step, value) for metric, step, value in points if metric == "avg@?"] == [
        (0, 0.125),
        (1, 0.25),
        (2, 0.375),
        (3, 0.5),
    ]


def test_a_step_without_its_end_takes_nothing_of_the_next_one(tmp_path: Path) -> None:
    text = "\n".join(records("skyrl.txt")) + "\n"
    clean, _ = read(tmp_path, "skyrl.txt", text)
    points, runs = read(tmp_path, "skyrl.txt", text.replace("}", "", 1))
    assert {*points} <= {*clean}
    assert codes(runs) == {"log-damaged"}


def test_an_evaluation_stays_at_its_step_where_the_update_of_that_step_is_lost(tmp_path: Path) -> None:
    lines = [*records("exp.jsonl")[:5], '{"step": 6, "data": {"val-core/gsm8k/acc/mean@4": 0.5}}']
    points, _ = read(tmp_path, "exp.jsonl", "\n".join(lines) + "\n")
    assert ("avg@4", 6.0, 0.5) in points


@pytest.mark.parametrize("name", [name for name in FORMATS if name.endswith("txt")])
def test_zeros_inside_a_line_of_a_console_are_named(tmp_path: Path, name: str) -> None:
    lines = records(name)
    clean, _ = read(tmp_path, name, "\n".join(lines) + "\n")
    places = [i for i in range(len(lines[5])) if not (set(lines[5][i - 1 : i + 1]) & set("0123456789.("))]
    for i in places[::7]:
        zeros = lines[5][:i] + "\0" + lines[5][i:]
        points, runs = read(tmp_path, name, "\n".join([*lines[:5], zeros, *lines[6:]]) + "\n")
        assert points == clean
        assert codes(runs)
