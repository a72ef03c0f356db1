"""What the real loggers wrote, see data/README.md: each file alone, and all of a run together."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from isocompute_sdk.ingest import diagnose
from isocompute_sdk.records import RunSet

DATA = Path(__file__).parents[1] / "data"


def left(tmp_path: Path, *parts: str) -> Path:
    """A copy of parts of the data, as they lay beside each other."""
    for part in parts:
        source, target = DATA / part, tmp_path / "left" / Path(*Path(part).parts[1:])
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, dirs_exist_ok=True)
        else:
            shutil.copy(source, target)
    return tmp_path / "left"


def check(folder: Path, n: int, problems: int, updates: int, *, spent: int | None = None) -> RunSet:
    """No question, one run, and rollouts that were counted by hand."""
    found = diagnose(folder)
    assert found.next.endswith(".parquet"), [one.problems for one in found.runs]
    runs = RunSet.read(folder)
    (info,) = runs.runs()
    assert (info.group_size, info.problems_per_batch) == (n, problems)
    assert info.rollouts == n * problems * updates
    assert info.rollouts_spent == (n * problems * updates if spent is None else spent)
    return runs


@pytest.mark.parametrize("part", ["trl_1_16", "trl_1_16/checkpoint-6"])
def test_trl_1_16(tmp_path: Path, part: str) -> None:
    runs = check(left(tmp_path, part), 4, 2, 6)
    assert runs.series("avg@4")[0].rollouts_T.tolist() == [24, 48]
    assert runs.runs()[0].context["updates_per_batch"] == 1


def test_trl_0_14_counts_prompts(tmp_path: Path) -> None:
    check(left(tmp_path, "trl_0_14"), 4, 8, 6)


@pytest.mark.parametrize("parts", [("verl/console.txt",), ("verl/console.txt", "verl/math"), ("verl",)])
def test_verl(tmp_path: Path, parts: tuple[str, ...]) -> None:
    runs = check(left(tmp_path, *parts), 8, 32, 20)
    (series,) = runs.series("avg@4")
    assert series.rollouts_T.tolist() == [0, 1280, 2560, 3840, 5120]
    assert runs.runs()[0].context["updates_per_batch"] == 2


def test_verls_event_files_alone_ask_for_both_sizes(tmp_path: Path) -> None:
    (found,) = diagnose(left(tmp_path, "verl/tensorboard_log")).runs
    assert (found.group_size, found.problems_per_batch) == ("?", "?")


def test_tinker(tmp_path: Path) -> None:
    check(left(tmp_path, "tinker"), 16, 8, 20, spent=128 * 25)


@pytest.mark.parametrize("part", ["skyrl/tb", "skyrl/console.txt", "skyrl"])
def test_skyrl(tmp_path: Path, part: str) -> None:
    runs = check(left(tmp_path, part), 6, 64, 12)
    (series,) = runs.series("avg@4", "validation")
    assert series.rollouts_T.tolist() == [0, 4 * 384, 8 * 384, 12 * 384]


def test_a_batch_size_beyond_all_numbers_is_none(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    text = (DATA / "skyrl/console.txt").read_text()
    path.write_text(text.replace("batch_num_seq': 384", f"batch_num_seq': {'9' * 400}"))
    (run,) = RunSet.read(path, group_size=6, problems_per_batch=64).runs()
    assert run.problems_per_batch == 64


@pytest.mark.parametrize("framework", ["skyrl", "verl"])
def test_a_console_that_was_cut_off_inside_a_reward_costs_only_that_reward(tmp_path: Path, framework: str) -> None:
    text = (DATA / framework / "console.txt").read_bytes()
    cut = text[: text.rindex(b"score/mean:0" if framework == "verl" else b"reward/avg_raw_reward") + 12]
    path = tmp_path / "train.log"
    path.write_bytes(cut)
    (series,) = RunSet.read(path, group_size=6, problems_per_batch=64).series("train_reward")
    assert series.step_T.tolist() == list(range(1, 20 if framework == "verl" else 12))


def test_a_learning_rate_that_only_the_rows_log_is_that_of_the_run(tmp_path: Path) -> None:
    (whole,) = RunSet.read(left(tmp_path, "trl_1_16/checkpoint-6")).runs()
    alone = tmp_path / "alone"
    alone.mkdir()
    shutil.copy(DATA / "trl_1_16" / "checkpoint-6" / "trainer_state.json", alone)
    (logged,) = RunSet.read(alone, set={"group_size": 4, "problems_per_batch": 2}).runs()
    state = json.loads((alone / "trainer_state.json").read_text())
    rows = [row for row in state["log_history"] if "reward" in row]
    columns = {"step": [row["step"] for row in rows], "learning_rate": [row["learning_rate"] for row in rows]}
    table = RunSet.from_columns({**columns, "n": [4] * len(rows), "bp": [2] * len(rows), "avg@4": [0.5] * len(rows)})
    rates = [info.context["learning_rate"] for info in (whole, logged, *table.runs())]
    assert rates == [1e-6] * 3
