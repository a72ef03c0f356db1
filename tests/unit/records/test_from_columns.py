"""What `RunSet.from_columns` understands."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

from isocompute_sdk.records import RunSet

WIDE = {"n": [8, 8, 16], "bp": [32, 32, 32], "step": [0, 10, 10], "avg@4": [0.4, 0.5, 0.55]}
ONE: dict[str, Any] = {"n": [8], "C": [512], "avg@4": [0.5]}
ROWS = {"run_id": ["a", "b", "a"], "n": [4, 4, 4], "C": [10, 20, 30], "avg@4": [0.1, 0.2, 0.3]}
SAME: dict[str, tuple[Any, dict[str, Any], Any]] = {
    "texts and whole floats": (
        {"n": ["8", " 8.0 "], "bp": [32.0, 32.0], "step": ["1e1", "20"], "avg@4": ["0.5", ""]},
        {},
        {"n": [8], "bp": [32], "step": [10], "avg@4": [0.5]},
    ),
    "masked cells": (
        {**WIDE, "avg@4": np.ma.array(WIDE["avg@4"], mask=[False, True, False])},
        {},
        {**WIDE, "avg@4": [0.4, None, 0.55]},
    ),
    **{f"index {names}": (pd.DataFrame(ROWS).set_index(names), {}, ROWS) for names in (["run_id"], ["n", "run_id"])},
    "a counter as index": (pd.DataFrame(ROWS, index=pd.RangeIndex(3, name="row")), {}, ROWS),
    "constants": (
        ONE,
        {"bp": 32, "model": "qwen", "learning_rate": "1e-6"},
        {**ONE, "step": [2], "problems_per_batch": [32], "model": ["qwen"], "learning_rate": [1e-6]},
    ),
    "the last of repeated values": (
        {"n": [8, 8], "C": [512, 512], "avg@4": [0.9, 0.5]},
        {"on_duplicate": "last"},
        ONE,
    ),
    "a lone reward": (
        {"n": [8], "C": [512], "reward": [0.5], "entropy": [1.5]},
        {"metric": "avg@4"},
        {**ONE, "entropy": [1.5]},
    ),
    "one row per metric": (
        {"n": [8], "C": [512], "metric": [" Val/Avg@4"], "value": [0.5]},
        {},
        {"n": [8], "C": [512], "Val/Avg@4 ": [0.5]},
    ),
}


@pytest.mark.parametrize("case", SAME)
def test_tables_that_mean_the_same_are_equal(case: str):
    table, options, plain = SAME[case]
    assert RunSet.from_columns(table, **options) == RunSet.from_columns(plain)


def test_wide_table_gives_one_row_per_measured_cell():
    runs = RunSet.from_columns({**WIDE, "best@4": [None, 0.7, None]})
    assert runs.metrics == ("avg@4", "best@4")
    assert len(runs) == 4
    (best,) = runs.series("best@4")
    assert best.step_T.tolist() == [10.0]
    assert best.value_T.tolist() == [0.7]


@pytest.mark.parametrize("size", ["n", "group_size"])
@pytest.mark.parametrize("problems", ["bp", "Bp", "B_p", "problems_per_batch"])
@pytest.mark.parametrize("compute", ["C", "compute", "rollouts"])
def test_every_alias_means_the_same_column(size: str, problems: str, compute: str):
    runs = RunSet.from_columns({size: [8], problems: [32], compute: [256], "avg@4": [0.5]})
    assert runs == RunSet.from_columns({"n": [8], "bp": [32], "step": [1], "avg@4": [0.5]})


def test_context_that_differs_within_a_configuration_enters_the_default_run_id():
    columns = {"n": [8, 8, 16], "C": [1, 1, 1], "model": ["a", "b", "a"], "avg@4": [0.1, 0.2, 0.3]}
    runs = RunSet.from_columns(columns, learning_rate=1e-6)
    assert runs.run_ids == ("n8-seed0-model=a", "n8-seed0-model=b", "n16-seed0-model=a")


def test_seed_of_a_named_run_stays_unknown():
    runs = RunSet.from_columns({**WIDE, "run_id": ["a", "a", "b"]})
    assert [info.seed for info in runs.runs()] == [None, None]


def test_without_problems_per_batch_the_step_is_unknown():
    (run,) = RunSet.from_columns({"n": [8, 8], "C": [1, 2], "avg@4": [0.1, 0.2]}).series("avg@4")
    assert run.problems_per_batch is None
    assert np.isnan(run.step_T).all()


@pytest.mark.parametrize("name", ["step", "rollouts", "value", "n"])
def test_a_metric_may_bear_the_name_of_a_column(name: str):
    runs = RunSet.from_columns({"n": [8], "C": [5], "reward": [0.5]}, metric=name)
    (run,) = runs.series(name)
    assert (run.group_size, run.rollouts_T.tolist(), run.value_T.tolist()) == (8, [5.0], [0.5])


def test_whole_numbers_beyond_float_precision_stay_exact():
    seed = 2**53 + 1
    for given in (seed, str(seed)):
        (info,) = RunSet.from_columns({"n": [8], "C": [1], "avg@4": [0.5], "seed": [given]}).runs()
        assert info.seed == seed


def test_nan_in_a_pandas_frame_means_not_measured():
    frame = pd.DataFrame({**WIDE, "best@4": [None, 0.7, float("nan")], "model": ["a", None, pd.NA]})
    runs = RunSet.from_columns(frame, run_id="x", ignore=["n"], group_size=8, on_duplicate="last")
    assert runs.series("best@4")[0].value_T.tolist() == [0.7]
    assert runs.runs()[0].context["model"] == "a"


def test_eval_sets_are_kept_apart_and_default_to_validation():
    base = {"n": [8, 8], "C": [1, 1], "avg@4": [0.5, 0.2]}
    runs = RunSet.from_columns({**base, "eval_set": ["aime24", None]})
    assert runs.eval_sets == ("aime24", "validation")
    assert RunSet.from_columns({"n": [8], "C": [1], "avg@4": [0.5]}, eval_set="aime24").eval_sets == ("aime24",)


def test_a_configuration_given_once_holds_for_the_whole_run():
    columns = {
        "run_id": ["a", "a", "b"],
        "n": [8, None, 16],
        "bp": [None, 32, None],
        "model": [None, "m", None],
        "C": [256, 512, 7],
        "avg@4": [0.1, 0.2, 0.3],
    }
    first, second = RunSet.from_columns(columns).runs()
    assert (first.group_size, first.problems_per_batch, first.context["model"]) == (8, 32, "m")
    assert (second.problems_per_batch, second.context["model"]) == (None, None)


def test_rows_are_ordered_by_run_then_compute_then_metric():
    columns = {
        "n": [16, 8, 16, 8],
        "C": [2, 2, 1, 1],
        "z": [1.0, 2.0, 3.0, 4.0],
        "a": [5.0, 6.0, 7.0, 8.0],
    }
    frame = RunSet.from_columns(columns).to_polars()
    assert frame["group_size"].to_list() == [16] * 4 + [8] * 4
    assert frame["metric"].to_list() == ["a", "z"] * 4
    assert frame["value"].to_list() == [7.0, 3.0, 5.0, 1.0, 8.0, 4.0, 6.0, 2.0]


def test_tokens_and_gpu_seconds_come_along():
    runs = RunSet.from_columns({**WIDE, "tokens": [0, 5e6, None], "gpu_seconds": [0, 60, 60]})
    small, large = runs.series("avg@4")
    assert small.tokens_T is not None
    assert small.tokens_T.tolist() == [0.0, 5e6]
    assert large.tokens_T is None
    assert runs.to_polars()["gpu_seconds"].to_list() == [0.0, 60.0, 60.0]


def test_logged_rollouts_may_be_rounded():
    runs = RunSet.from_columns({"n": [8], "bp": [32], "step": [155.4], "C": [39792], "avg@4": [0.5]})
    assert runs.series("avg@4")[0].rollouts_T.tolist() == [39792.0]
