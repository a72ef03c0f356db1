"""Attempts that veRL's file log lost when it was emptied, recovered from the console and the dumps beside it."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isocompute_sdk.ingest import diagnose
from isocompute_sdk.metrics import best_at_k, worst_at_k
from isocompute_sdk.notes import Note
from isocompute_sdk.records import RunSet
from tests.backends.verl.writers import Start, Writers
from tests.unit.ingest.log_files import write_events

RATE = 4 * 2
Plan = list[tuple[int, int]]


@pytest.fixture(scope="session")
def writers() -> Writers:
    return Writers()


def read(folder: Path) -> RunSet:
    return RunSet.read(folder, n=4, bp=2)


def note(runs: RunSet, code: str) -> Note:
    (found,) = [note for note in runs.notes if note.code == code]
    return found


def values(runs: RunSet, metric: str) -> dict[float, float]:
    (series,) = runs.series(metric)
    return dict(zip(series.step_T.tolist(), series.value_T.tolist(), strict=True))


def train(folder: Path, writers: Writers, plan: Plan, console: str | None, dumps: bool = False) -> dict[int, float]:
    """All attempts of a plan, (step that it goes on from, updates made); returns what the surviving path logged."""
    rng = np.random.default_rng(len(plan))
    path: dict[int, float] = {}
    for number, (begin, updates) in enumerate(plan, 1):
        printed = None if console is None else folder / console.format(number)
        start = Start(writers, rng, folder / "exp.jsonl", printed, folder if dumps else None)
        path = {step: value for step, value in path.items() if step <= begin} | start.run(begin, updates)
    return path


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    found: Plan = []
    reached, count = 0, draw(st.integers(1, 4))
    for i in range(count):
        begin = draw(st.integers(0, reached))
        # A start in between may die before its first update.
        found.append((begin, draw(st.integers(0 if 0 < i < count - 1 else 1, 20))))
        reached = sum(found[-1])
    return found


@settings(deadline=None, max_examples=30)
@given(plans(), st.sampled_from(["launch.log", "console.{}.txt"]), st.booleans())
def test_every_update_that_was_ever_made_is_counted_once(
    writers: Writers, plan: Plan, console: str, dumps: bool
) -> None:
    with tempfile.TemporaryDirectory() as top:
        folder = Path(top)
        path = train(folder, writers, plan, console, dumps)
        if dumps:
            # The same console again under another name tells nothing new.
            (folder / "stdout.txt").write_text("".join(p.read_text() for p in sorted(folder.glob("*.[lt][ox][gt]"))))
        runs = read(folder)
    (info,) = runs.runs()
    assert info.rollouts == sum(plan[-1]) * RATE
    assert info.rollouts_spent == sum(updates for _, updates in plan) * RATE
    assert values(runs, "train_reward") == pytest.approx(path)
    codes = {note.code for note in runs.notes}
    assert ("attempts-recovered" in codes) == (len(plan) > 1)
    assert "log-starts-late" not in codes


@settings(deadline=None, max_examples=15)
@given(plans())
def test_dumps_alone_put_the_surviving_path_together_and_count_no_update_twice(writers: Writers, plan: Plan) -> None:
    with tempfile.TemporaryDirectory() as top:
        path = train(Path(top), writers, plan, None, dumps=True)
        runs = read(Path(top))
    assert values(runs, "train_reward") == pytest.approx(path)
    (info,) = runs.runs()
    assert info.rollouts == sum(plan[-1]) * RATE
    assert info.rollouts_spent is not None
    assert info.rollouts <= info.rollouts_spent <= sum(updates for _, updates in plan) * RATE


def test_without_anything_beside_it_a_log_that_was_emptied_begins_late(writers: Writers, tmp_path: Path) -> None:
    train(tmp_path, writers, [(0, 57), (40, 20)], None)
    runs = read(tmp_path)
    assert note(runs, "log-starts-late").data["step"] == 40
    assert runs.runs()[0].rollouts_spent == 60 * RATE


def test_packed_consoles_and_dumps_tell_the_same(writers: Writers, tmp_path: Path) -> None:
    train(tmp_path / "plain", writers, [(0, 57), (40, 20)], "exp.launch.log", dumps=True)
    plain = read(tmp_path / "plain")
    assert "best@4" in plain.metrics
    assert note(plain, "attempts-recovered")
    packed = shutil.copytree(tmp_path / "plain", tmp_path / "packed")
    for path in (packed / "exp.launch.log", *packed.glob("*_data/*.jsonl")):
        path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    again = read(packed)
    assert again.to_polars().equals(plain.to_polars())
    assert [n.code for n in again.notes] == [n.code for n in plain.notes]
    (finding,) = diagnose(packed).runs
    assert finding.attempts == 2


def test_what_cannot_be_unpacked_is_named_and_the_rest_is_read(writers: Writers, tmp_path: Path) -> None:
    train(tmp_path, writers, [(0, 57), (40, 20)], "launch.log", dumps=True)
    plain = read(tmp_path)
    dump = tmp_path / "validation_data" / "50.jsonl"
    for path in (dump, tmp_path / "launch.log"):
        whole = gzip.compress(path.read_bytes())
        path.with_name(f"{path.name}.gz").write_bytes(whole[: len(whole) - 9])
        path.unlink()
    runs = read(tmp_path)
    assert "50.jsonl.gz" in note(runs, "dumps-not-read").message
    assert note(runs, "log-damaged").data["file"] == str(tmp_path / "launch.log.gz")
    assert set(values(plain, "best@4")) - set(values(runs, "best@4")) == {50}
    assert len(values(runs, "train_reward")) > 20


def test_a_note_says_what_was_recovered_and_from_where(writers: Writers, tmp_path: Path) -> None:
    train(tmp_path, writers, [(0, 57), (40, 20)], "launch.log")
    found = note(read(tmp_path), "attempts-recovered")
    source = str(tmp_path / "launch.log")
    assert found.data["attempts"] == [{"source": source, "first": 0.0, "last": 57.0}]
    assert source in found.message
    # The console has the log's own attempt too, and so is that of this run.
    assert found.severity == "info"


def test_a_console_that_shares_nothing_with_the_log_is_counted_with_a_warning(writers: Writers, tmp_path: Path) -> None:
    train(tmp_path, writers, [(0, 57)], "old.log")
    train(tmp_path, writers, [(0, 20)], None)
    # Both draw the same numbers: those of the second start are made others.
    (tmp_path / "exp.jsonl").write_text((tmp_path / "exp.jsonl").read_text().replace("0.", "0.1"))
    runs = read(tmp_path)
    assert note(runs, "attempts-recovered").severity == "warning"
    assert (runs.runs()[0].rollouts, runs.runs()[0].rollouts_spent) == (20 * RATE, 77 * RATE)
    assert max(values(runs, "train_reward")) == 20


def test_steps_that_an_attempt_had_not_written_yet_are_filled_in(writers: Writers, tmp_path: Path) -> None:
    path = train(tmp_path, writers, [(0, 30)], "launch.log")
    log = tmp_path / "exp.jsonl"
    log.write_text("\n".join(log.read_text().split("\n")[:25]) + "\n")
    runs = read(tmp_path)
    assert values(runs, "train_reward") == path
    assert note(runs, "log-filled").data["steps"] == {str(tmp_path / "launch.log"): 6}
    assert runs.runs()[0].rollouts_spent == 30 * RATE


def test_dumps_alone_give_back_the_evaluations_and_updates_before_the_log(writers: Writers, tmp_path: Path) -> None:
    path = train(tmp_path, writers, [(0, 57), (40, 20)], None, dumps=True)
    runs = read(tmp_path)
    assert values(runs, "train_reward") == pytest.approx(path)
    assert set(values(runs, "avg@4")) == {0, 10, 20, 30, 40, 50, 60}
    # The second attempt made all steps of the first again: nothing on disk tells how far that one got.
    assert runs.runs()[0].rollouts_spent == 60 * RATE
    assert note(runs, "attempts-recovered").data["attempts"][0]["source"] == str(tmp_path / "rollout_data")


def test_dumps_beyond_the_log_were_paid_for_and_are_not_on_the_curve(writers: Writers, tmp_path: Path) -> None:
    train(tmp_path, writers, [(0, 57), (40, 5)], None, dumps=True)
    runs = read(tmp_path)
    assert (runs.runs()[0].rollouts, runs.runs()[0].rollouts_spent) == (45 * RATE, (57 + 5) * RATE)
    assert max(values(runs, "train_reward")) == 45
    assert max(values(runs, "avg@4")) == 40


@pytest.mark.parametrize("age", [0, 3600])
def test_events_have_a_clock_that_says_whose_the_dumps_beyond_them_are(
    writers: Writers, tmp_path: Path, age: float
) -> None:
    """Events up to step 20, updates dumped up to step 27: by the same attempt, or by one an hour before it."""
    began = time.time()
    path = train(tmp_path, writers, [(0, 27)], None, dumps=True)
    (tmp_path / "exp.jsonl").unlink()
    tags = {"critic/score/mean": path.get, "training/global_step": float}
    write_events(tmp_path / "exp", range(1, 21), tags, began)
    for dump in (tmp_path / "rollout_data").iterdir():
        os.utime(dump, (began + 1 - age, began + 1 - age))
    runs = read(tmp_path)
    (info,) = runs.runs()
    reached = 20 if age else 27
    assert max(values(runs, "train_reward")) == reached
    assert (info.rollouts, info.rollouts_spent) == (reached * RATE, (47 if age else 27) * RATE)


def test_dumped_evaluations_make_best_and_worst_exact(writers: Writers, tmp_path: Path) -> None:
    train(tmp_path, writers, [(0, 20)], None, dumps=True)
    runs = read(tmp_path)
    rewards = np.random.default_rng(1).integers(0, 2, (6, 4)).astype(float)  # the first draw of the run
    assert values(runs, "best@4")[0] == best_at_k(rewards, 4)
    assert values(runs, "worst@2")[0] == worst_at_k(rewards, 2)
    assert values(runs, "best@4:bootstrap") == {0: 0.111, 10: 0.111, 20: 0.111}
    assert values(runs, "avg@4")[0] == rewards.mean()
    assert not [note for note in runs.notes if note.code in ("attempts-recovered", "files-not-read")]


def test_dumps_of_the_release_before_that_had_no_ids_are_grouped_by_their_problem(
    writers: Writers, tmp_path: Path
) -> None:
    train(tmp_path, writers, [(0, 20)], None, dumps=True)
    exact = values(read(tmp_path), "best@4")
    for path in (tmp_path / "validation_data").iterdir():
        rows = [json.loads(line) for line in path.read_text().split("\n")[:-1]]
        bare = [{**{k: v for k, v in row.items() if k != "uid"}, "input": row["uid"].rsplit("_", 2)[0]} for row in rows]
        path.write_text("".join(json.dumps(row) + "\n" for row in bare))
    assert values(read(tmp_path), "best@4") == exact


def test_dumps_of_several_evaluation_sets_are_left_alone_with_a_note(writers: Writers, tmp_path: Path) -> None:
    train(tmp_path, writers, [(0, 20)], None, dumps=True)
    log = tmp_path / "exp.jsonl"
    both = '"val-core/aime/acc/mean@4": 0.5, "val-core/gsm/acc/mean@4"'
    log.write_text(log.read_text().replace('"val-core/gsm/acc/mean@4"', both))
    runs = read(tmp_path)
    assert "best@4" not in runs.metrics
    assert "aime, gsm" in note(runs, "dumps-not-read").message


def test_a_dump_that_was_cut_off_adds_nothing(writers: Writers, tmp_path: Path) -> None:
    train(tmp_path, writers, [(0, 20)], None, dumps=True)
    cut = tmp_path / "validation_data" / "10.jsonl"
    cut.write_text(cut.read_text()[:-20])
    assert set(values(read(tmp_path), "best@4")) == {0, 20}


def test_what_lies_beside_several_runs_goes_to_the_one_it_is_named_after(writers: Writers, tmp_path: Path) -> None:
    for name in ("exp", "exp-2"):
        train(tmp_path / name, writers, [(0, 57), (40, 20)] if name == "exp" else [(0, 30)], "console.log")
        shutil.move(tmp_path / name / "exp.jsonl", tmp_path / f"{name}.jsonl")
        shutil.move(tmp_path / name / "console.log", tmp_path / f"{name}_console.log")
    (tmp_path / "launch.log").write_text((tmp_path / "exp_console.log").read_text())
    (tmp_path / "exp-3.log").write_text((tmp_path / "exp_console.log").read_text())
    spent = {info.run_id: info.rollouts_spent for info in read(tmp_path).runs()}
    assert spent == {"exp": 77 * RATE, "exp-2": 30 * RATE}


def test_the_doctor_counts_recovered_attempts_and_takes_no_dump_for_a_table(writers: Writers, tmp_path: Path) -> None:
    train(tmp_path, writers, [(0, 57), (40, 20)], "launch.log", dumps=True)
    (finding,) = diagnose(tmp_path).runs
    assert finding.attempts == 2
