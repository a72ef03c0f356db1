"""Journals and lists of starts: what was written whole is read, and nothing else."""

from __future__ import annotations

import os
import resource
import shutil
from pathlib import Path
from typing import Any

import pytest

from isocompute_sdk.errors import RecordError
from isocompute_sdk.records import RunSet
from isocompute_sdk.run_folders import journal_records
from isocompute_sdk.run_folders.journal_records import START, Start, read_starts
from isocompute_sdk.run_folders.run_journal import Journal, append_line, read


def test_a_new_attempt_keeps_what_its_checkpoint_has_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    first = Journal(path, "r", 1)
    first.begin(resumed_step=None)
    for step in range(4):
        first.append("step", step=step, rollouts=step, tokens=0)
    first.fail("no space", step=3, rollouts=3, tokens=0)
    first.close()
    second = Journal(path, "r", 2)
    assert [r["kind"] for r in read(path)][-1] == "end", "nothing is taken away before the attempt begins"
    second.begin(resumed_step=2)
    second.close()
    assert [(r["kind"], r["step"], r["attempt"]) for r in read(path)] == [
        ("run", 0, 2),
        ("step", 0, 1),
        ("step", 1, 1),
        ("step", 2, 1),
    ]


def test_runs_of_two_studies_with_one_name_are_read_beside_each_other(tmp_path: Path) -> None:
    def write(study: str, rewards: list[float]) -> None:
        folder = tmp_path / study / "n8-bp8-seed0"
        folder.mkdir(parents=True)
        journal = Journal(folder / "metrics.jsonl", "n8-bp8-seed0", 1)
        journal.begin(resumed_step=None, group_size=8, problems_per_batch=8, seed=0, temperature=0.6)
        for step, reward in enumerate(rewards):
            values = {"eval_set": "validation", "metrics": {"avg@4": reward}, "samples": 4}
            journal.append("evaluation", step=step, rollouts=64 * step, tokens=0, **values)
        journal.close()

    write("a", [0.1, 0.2, 0.3])
    write("b", [0.1, 0.3, 0.5])
    runs = RunSet.read(tmp_path)
    assert runs.run_ids == ("a/n8-bp8-seed0", "b/n8-bp8-seed0")
    assert [one.value_T.tolist() for one in runs.series("avg@4", "validation")] == [[0.1, 0.2, 0.3], [0.1, 0.3, 0.5]]
    # The same run twice would count twice.
    shutil.copytree(tmp_path / "a", tmp_path / "copy")
    with pytest.raises(RecordError, match="n8-bp8-seed0"):
        RunSet.read(tmp_path)


def test_a_line_that_is_being_written_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"schema_version": 1, "kind": "run"}\n{"schema_version": 1, "ki')
    for reader in (read, journal_records.read):
        assert [record["kind"] for record in reader(path)] == ["run"]
        assert reader(tmp_path / "absent.jsonl") == []


@pytest.mark.parametrize("line", ["{not json}", "[1]", '{"kind": "step"}', '{"schema_version": 2, "kind": "step"}'])
def test_a_broken_line_in_the_middle_is_an_error(tmp_path: Path, line: str) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text(f'{line}\n{{"schema_version": 1, "kind": "run"}}\n')
    with pytest.raises(RecordError, match=r"metrics\.jsonl:1"):
        journal_records.read(path)


def test_a_short_write_is_taken_back(tmp_path: Path) -> None:
    """The kernel writes what still fits; the half line must not stay."""
    path = tmp_path / "lines"
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
            append_line(path, "a" * 79)
            try:
                append_line(path, "b" * 79)
            except OSError:
                append_line(path, "c" * 9)
                status = 0
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert path.read_text() == "a" * 79 + "\n" + "c" * 9 + "\n"


def test_a_full_device_is_an_error() -> None:
    with pytest.raises(OSError, match="No space left"):
        append_line(Path("/dev/full"), "{}")


def test_a_resumed_journal_reads_like_that_of_a_run_that_never_stopped(tmp_path: Path) -> None:
    context = {"group_size": 4, "problems_per_batch": 8, "seed": 0, "model": "m"}

    def steps(attempt: int, first: int, last: int) -> None:
        book = Journal(tmp_path / "metrics.jsonl", "run", attempt)
        kept = book.begin(resumed_step=first - 1 or None, **context)
        assert kept.get("step") == (first - 1 or None)
        for step in range(first, last + 1):
            counts: dict[str, Any] = {"step": step, "rollouts": 32 * step, "tokens": 100 * step}
            book.append("step", **counts, metrics={"train_reward": step / 10, "kl": float("nan")})
            if step % 2 == 0:
                book.append("evaluation", **counts, eval_set="validation", metrics={"avg@4": step / 20 + attempt})

    steps(1, 1, 7)
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"kind": "st')  # killed in the middle of a line
    steps(2, 5, 8)
    runs = RunSet.read(tmp_path / "metrics.jsonl")
    (series,) = runs.series("avg@4")
    assert series.step_T.tolist() == [2, 4, 6, 8]
    assert series.value_T.tolist() == pytest.approx([1.1, 1.2, 2.3, 2.4])
    assert runs.series("train_reward")[0].step_T.tolist() == [1, 2, 3, 4, 5, 6, 7, 8]
    assert "kl" not in runs.metrics
    assert series.context["model"] == "m"


FIRST = START.to_text(Start(attempt=1, started=10.5, identity="a"))


def test_a_line_that_is_being_written_does_not_count(tmp_path: Path) -> None:
    path = tmp_path / "attempts.jsonl"
    assert read_starts(path) == []
    path.write_text(FIRST + FIRST[:9])
    assert [one.identity for one in read_starts(path)] == ["a"]


@pytest.mark.parametrize("line", ["", "[]", "{}", "no JSON", FIRST.replace("10.5", '"1"').rstrip()])
def test_a_line_that_is_no_start_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "attempts.jsonl"
    path.write_text(f"{FIRST}{line}\n")
    with pytest.raises(RecordError, match=r"attempts\.jsonl:2"):
        read_starts(path)
