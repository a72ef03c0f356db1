"""Laws every `RunSet` obeys, on random tables."""

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st

from isocompute_sdk.records import RunSet

names = st.text(
    st.characters(exclude_categories=("Cs", "Cc"), include_characters='",; \n'), min_size=1, max_size=8
).filter(str.strip)
values = st.floats(-1e6, 1e6, allow_subnormal=True)
Row = dict[str, Any]


@st.composite
def rows(draw: st.DrawFn) -> list[Row]:
    """Wide rows of a few runs; every row has at least one of two metrics, steps do not repeat in a run."""
    table: list[Row] = []
    for run_id in draw(st.lists(names, min_size=1, max_size=4, unique=True)):
        run = {
            "run_id": run_id,
            "group_size": draw(st.integers(1, 2048)),
            "problems_per_batch": draw(st.none() | st.integers(1, 1024)),
            "seed": draw(st.none() | st.integers(-(2**63), 2**63 - 1)),
            "model": draw(st.none() | names),
            "learning_rate": draw(st.none() | st.floats(0, 1)),
            "n_problems": draw(st.none() | st.integers(1, 10**6)),
        }
        for rollouts in draw(st.lists(st.floats(0, 1e12), min_size=1, max_size=6, unique=True)):
            first = draw(st.none() | values)
            second = draw(values if first is None else st.none() | values)
            tokens = draw(st.none() | st.floats(0, 1e15))
            table.append({**run, "rollouts": rollouts, "tokens": tokens, "avg@4": first, "best@4": second})
    return table


def columns(table: list[Row]) -> dict[str, list[Any]]:
    return {name: [row[name] for row in table] for name in table[0]}


def build(table: list[Row]) -> RunSet:
    # Steps of distinct rollouts may round to one number; the later row then counts, as it does in every path.
    return RunSet.from_columns(columns(table), on_duplicate="last")


@given(rows())
def test_dict_form_survives_json_exactly(table: list[Row]):
    runs = build(table)
    again = RunSet.from_dict(json.loads(json.dumps(runs.to_dict(), allow_nan=False)))
    assert again == runs
    assert again.run_ids == runs.run_ids


@given(rows())
def test_files_written_and_read_back_are_equal(table: list[Row]):
    runs = build(table)
    frame = runs.to_polars()
    with tempfile.TemporaryDirectory() as folder:
        frame.write_csv(Path(folder, "a.csv"))
        frame.write_parquet(Path(folder, "a.parquet"))
        frame.write_ndjson(Path(folder, "a.jsonl"))
        for name in ("a.csv", "a.parquet", "a.jsonl"):
            again = RunSet.read(Path(folder, name))
            assert again == runs
            assert again.run_ids == runs.run_ids


@given(rows())
def test_long_and_wide_form_are_one_table(table: list[Row]):
    keys = [name for name in table[0] if "@" not in name]
    long = [
        {**{key: row[key] for key in keys}, "metric": metric, "value": row[metric]}
        for row in table
        for metric in ("avg@4", "best@4")
        if row[metric] is not None
    ]
    assert build(long) == build(table)


@given(rows(), st.randoms(use_true_random=False))
def test_order_of_rows_does_not_matter(table: list[Row], random: Any):
    assume(_steps_are_distinct(table))
    shuffled = random.sample(table, len(table))
    assert RunSet.from_columns(columns(shuffled)) == RunSet.from_columns(columns(table))


def _steps_are_distinct(table: list[Row]) -> bool:
    steps = [(row["run_id"], row["rollouts"] / (row["group_size"] * (row["problems_per_batch"] or 1))) for row in table]
    return len(set(steps)) == len(steps)


@given(rows())
def test_splitting_by_run_and_joining_gives_the_table_back(table: list[Row]):
    runs = build(table)
    first, *rest = [runs.filter(run_id=run_id) for run_id in runs.run_ids]
    joined = first.concat(*rest)
    assert joined == runs
    assert joined.run_ids == runs.run_ids
    stepwise = first
    for part in rest:
        stepwise = stepwise.concat(part)
    assert stepwise == joined


@given(rows())
def test_series_hold_every_value_once(table: list[Row]):
    runs = build(table)
    for metric in runs.metrics:
        taken = runs.series(metric)
        assert sum(len(run.value_T) for run in taken) == len(runs.filter(metric=metric))
        for run in taken:
            assert (np.diff(run.rollouts_T) >= 0).all()


@given(st.integers(1, 2048), st.integers(1, 1024), st.lists(st.integers(0, 5000), min_size=1, unique=True))
def test_step_and_rollouts_determine_each_other(n: int, bp: int, steps: list[int]):
    rest = {"n": [n] * len(steps), "bp": [bp] * len(steps), "avg@4": [0.5] * len(steps)}
    by_step = RunSet.from_columns({**rest, "step": steps})
    by_rollouts = RunSet.from_columns({**rest, "C": [step * n * bp for step in steps]})
    assert by_step == by_rollouts
