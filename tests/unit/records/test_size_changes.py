"""Tables of runs whose n or B_p change in mid-run: what is counted, what is said, what a fit makes of them."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import isocompute_sdk as iso
from isocompute_sdk.notes import Note
from isocompute_sdk.records import RunSet

examples = settings(deadline=None, max_examples=40)
LAST = 60
WRITERS = {"csv": "write_csv", "parquet": "write_parquet", "jsonl": "write_ndjson"}


def changed(runs: RunSet) -> Note:
    (note,) = [note for note in runs.notes if note.code == "configuration-changed"]
    return note


def piecewise(steps: Sequence[float], sizes: Sequence[tuple[int, int]]) -> list[int]:
    """Rollouts at each step, update by update: each update has the n and B_p of the first row at or after it."""
    found: list[int] = []
    for step in steps:
        updates = range(1, int(step) + 1)
        rows = (next(i for i, at in enumerate(steps) if at >= update) for update in updates)
        found.append(sum(sizes[row][0] * sizes[row][1] for row in rows))
    return found


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[int], list[tuple[int, int]]]:
    """Logged steps and the configuration of each row; step 0 has that of the row after it."""
    steps = sorted(draw(st.sets(st.integers(0, LAST), min_size=2, max_size=12)))
    bounds = sorted(draw(st.sets(st.integers(1, LAST), max_size=4)))
    pieces = [draw(st.tuples(st.integers(1, 2048), st.integers(1, 512))) for _ in range(len(bounds) + 1)]
    at = [max(step, steps[1]) if step == 0 else step for step in steps]
    return steps, [pieces[sum(bound < step for bound in bounds)] for step in at]


@examples
@given(tables(), st.sampled_from(sorted(WRITERS)), st.booleans())
def test_rollouts_are_the_sum_over_every_single_update(
    table: tuple[list[int], list[tuple[int, int]]], kind: str, long: bool
) -> None:
    steps, sizes = table
    rows = {"run": ["a"] * len(steps), "n": [n for n, _ in sizes], "bp": [bp for _, bp in sizes], "step": steps}
    frame = pl.DataFrame({**rows, "avg@4": [0.5] * len(steps), "worst@4": [0.25] * len(steps)})
    if long:
        frame = frame.unpivot(["avg@4", "worst@4"], index=list(rows), variable_name="metric")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"runs.{kind}"
        getattr(frame, WRITERS[kind])(path)
        runs = RunSet.read(path)
    for metric in ("avg@4", "worst@4"):
        read = runs.filter(metric=metric).to_polars()
        assert read["step"].to_list() == steps
        assert read["rollouts"].to_list() == piecewise(steps, sizes)
        assert list(zip(read["group_size"], read["problems_per_batch"], strict=True)) == sizes
    changes = sum(one != other for one, other in pairwise(sizes))
    assert len(runs.run_ids) == changes + 1
    assert [note.code for note in runs.notes] == (["configuration-changed"] if changes else [])


@examples
@given(tables())
def test_steps_that_are_not_given_follow_from_the_rollouts(table: tuple[list[int], list[tuple[int, int]]]) -> None:
    steps, sizes = table
    rows = {"n": [n for n, _ in sizes], "bp": [bp for _, bp in sizes], "C": piecewise(steps, sizes)}
    runs = RunSet.from_columns({**rows, "avg@4": [0.5] * len(steps)}, run_id="a")
    assert runs.to_polars()["step"].to_list() == pytest.approx(steps)


ROWS: dict[str, Any] = {
    "run_id": ["a"] * 4,
    "n": [8, 8, 16, 16],
    "bp": [4] * 4,
    "step": [0, 10, 20, 30],
    "avg@4": [0.1, 0.2, 0.3, 0.4],
}


def test_the_parts_after_a_change_are_runs_of_their_own_as_in_logs() -> None:
    runs = RunSet.from_columns(ROWS)
    assert [(info.run_id, info.group_size) for info in runs.runs()] == [("a", 8), ("a/from-step-10", 16)]
    first, second = runs.series("avg@4")
    assert first.rollouts_T.tolist() == [0, 10 * 32]
    assert second.rollouts_T.tolist() == [10 * 32 + 10 * 64, 10 * 32 + 20 * 64]
    note = changed(runs)
    assert note.data["steps"] == [10]
    assert note.data["parts"] == ["a/from-step-10"]
    # A table read again says the same, although rollouts are no product of step, n and B_p any more.
    assert RunSet.from_columns(runs.to_polars()) == runs


def test_rollouts_that_are_given_win_and_a_contradiction_is_told() -> None:
    # The change came after step 15: nothing that the steps alone could say.
    told = [0, 320, 15 * 32 + 5 * 64, 15 * 32 + 15 * 64]
    runs = RunSet.from_columns({**ROWS, "C": told})
    assert runs.to_polars()["rollouts"].to_list() == told
    assert "differ" not in changed(runs).message
    # Somebody multiplied every step with the n of its own row.
    product = [step * n * 4 for step, n in zip(ROWS["step"], ROWS["n"], strict=True)]
    runs = RunSet.from_columns({**ROWS, "C": product})
    assert runs.to_polars()["rollouts"].to_list() == product
    assert "320" in changed(runs).message


def test_rollouts_go_on_from_where_they_are_given() -> None:
    runs = RunSet.from_columns({**ROWS, "C": [None, 400, None, None]})
    assert runs.to_polars()["rollouts"].to_list() == [0, 400, 400 + 640, 400 + 1280]


def test_empty_cells_take_what_their_neighbours_agree_on() -> None:
    runs = RunSet.from_columns({**ROWS, "n": [None, 8, 16, None], "bp": [None, None, 4, None]})
    assert runs == RunSet.from_columns(ROWS)


def test_a_batch_that_changes_counts_as_a_change() -> None:
    runs = RunSet.from_columns({**ROWS, "n": [8] * 4, "bp": [4, 4, 4, 8]})
    assert runs.to_polars()["rollouts"].to_list() == [0, 320, 640, 640 + 640]
    assert [info.problems_per_batch for info in runs.runs()] == [4, 8]


def test_rows_without_run_ids_are_told_that_they_may_be_one_run() -> None:
    nameless = {key: value for key, value in ROWS.items() if key != "run_id"}
    runs = RunSet.from_columns(nameless)
    assert runs.run_ids == ("n8-bp4-seed0", "n16-bp4-seed0")
    assert [note.code for note in runs.notes] == ["one-run-or-several"]
    # Runs side by side are no such thing, nor are single rows.
    beside = RunSet.from_columns({**nameless, "step": [0, 10, 0, 10]})
    assert beside.notes == ()


def test_a_fit_takes_the_parts_as_it_takes_those_of_logs_and_carries_the_note() -> None:
    rng = np.random.default_rng(0)
    steps = np.arange(0, 201, 10)
    columns: dict[str, list[object]] = {name: [] for name in ("run_id", "n", "bp", "step", "avg@4")}
    for run, sizes in {"a": (4, 4), "b": (16, 16), "c": (16, 64), "d": (64, 64)}.items():
        for step in steps:
            n = sizes[0] if step <= 100 else sizes[1]
            value = 0.4 + 0.3 * (1 - np.exp(-step / 60)) + 0.005 * rng.standard_normal()
            for name, cell in zip(columns, (run, n, 32, int(step), value), strict=True):
                columns[name].append(cell)
    runs = RunSet.from_columns(columns)
    fits = iso.fit(runs, draws=20)
    assert "configuration-changed" in {note.code for note in fits.notes}
    without = iso.fit(runs.filter(run_id=["a", "b", "c", "d"]), draws=20)
    assert without.group_sizes == (4, 16, 64)
