"""What `RunSet.from_columns` refuses, and what it says then: place, value, what is accepted, what to do."""

import re
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

from isocompute_sdk.errors import RecordError
from isocompute_sdk.records import RunSet

GOOD: dict[str, Any] = {"n": [8, 16], "bp": [32, 32], "C": [256, 512], "avg@4": [0.4, 0.5]}

CASES: dict[str, tuple[Any, dict[str, Any], list[str]]] = {
    "no columns": ({}, {}, ["table is empty", "no rows"]),
    "no rows": ({name: [] for name in GOOD}, {}, ["table is empty", "n, bp, C, avg@4"]),
    "not a table": ([1, 2], {}, ["list", "mapping"]),
    "a lazy frame": (pl.LazyFrame(GOOD), {}, ["LazyFrame", "polars or pandas frame"]),
    "a frame with a column twice": (pd.DataFrame([[1, 2]], columns=["n", "n"]), {}, ["n", "more than once"]),
    "unequal lengths": ({**GOOD, "C": [1, 2, 3]}, {}, ["n 2", "C 3"]),
    "a scalar": ({**GOOD, "n": 8}, {}, ["column n", "received 8", "from_columns(..., n=...)"]),
    "two dimensions": ({**GOOD, "n": np.ones((2, 2))}, {}, ["column n", "(2, 2)", "one dimension"]),
    "two aliases": ({**GOOD, "compute": [1, 2]}, {}, ["'C'", "'compute'", "'rollouts'"]),
    "fractional n": ({**GOOD, "n": [8, 8.5]}, {}, ["row 2 (index 1)", "n (group_size)", "8.5", "whole numbers >= 1"]),
    "fractional n as text": ({**GOOD, "n": ["8", "8.5"]}, {}, ["row 2", "'8.5'", "whole numbers >= 1"]),
    "zero n": ({**GOOD, "n": [0, 8]}, {}, ["row 1 (index 0)", "received 0", ">= 1"]),
    "huge n": ({**GOOD, "n": [8, 1e30]}, {}, ["row 2", "1e+30"]),
    "n is a word": ({**GOOD, "n": [8, "many"]}, {}, ["row 2", "'many'", "whole numbers"]),
    "n is true": ({**GOOD, "n": [True, True]}, {}, ["row 1", "True", "whole numbers"]),
    "n is empty": ({**GOOD, "n": [8, None]}, {}, ["row 2", "n (group_size)", "empty"]),
    "n is missing": ({k: v for k, v in GOOD.items() if k != "n"}, {}, ["group_size (or n)", "bp, C, avg@4"]),
    "n is misspelt": ({"gruop_size": [1], "C": [1], "r": [1]}, {}, ["group_size", "'gruop_size'", "rename="]),
    "zero problems": ({**GOOD, "bp": [32, 0]}, {}, ["row 2", "bp (problems_per_batch)", "received 0"]),
    "negative compute": ({**GOOD, "C": [1, -5]}, {}, ["row 2", "C (rollouts)", "-5", "finite numbers >= 0"]),
    "compute is nan": ({**GOOD, "C": [1, float("nan")]}, {}, ["row 2", "C (rollouts)", "nan"]),
    "compute is inf": ({**GOOD, "C": [float("inf"), 1]}, {}, ["row 1", "C (rollouts)", "inf"]),
    "compute is a date": ({**GOOD, "C": np.array(["2026-01-01", "2026-01-02"], "M8[s]")}, {}, ["C (rollouts)", "2026"]),
    "negative step": ({"n": [8], "bp": [32], "step": [-1], "r": [0.1]}, {}, ["row 1", "step", ">= 0"]),
    "no compute": ({"n": [8], "avg@4": [0.1]}, {}, ["rollouts (or C, compute) or step"]),
    "step without problems": ({"n": [8], "step": [3], "r": [0.1]}, {}, ["row 1", "problems_per_batch=256"]),
    "step and compute disagree": (
        {**GOOD, "step": [1, 2]},
        {},
        ["row 2", "512", "step 2 * group_size 16 * problems_per_batch 32 = 1024", "0.1 %"],
    ),
    "value is nan": ({**GOOD, "avg@4": [0.1, float("nan")]}, {}, ["row 2", "column avg@4", "nan", "None"]),
    "value is inf": ({**GOOD, "avg@4": [0.1, float("-inf")]}, {}, ["row 2", "column avg@4", "-inf"]),
    "value is a word": ({**GOOD, "avg@4": ["0.1", "oops"]}, {}, ["row 2", "column avg@4", "'oops'"]),
    "nothing measured": ({**GOOD, "avg@4": [None, None]}, {}, ["no column holds a metric"]),
    "blank text only": ({**GOOD, "avg@4": [0.1, 0.2], "x": ["a", "b"]}, {}, ["'x'", "String", "ignore=['x']"]),
    "no metric": ({"n": [8], "C": [1]}, {}, ["no column holds a metric"]),
    "unnamed metric": ({"n": [8], "C": [1], "reward": [0.1]}, {}, ["'reward'", 'metric="avg@4"']),
    "metric twice": ({**GOOD, "reward": [1, 2]}, {"metric": "avg@4"}, ["'reward'", "'avg@4'", "both"]),
    "metric absent": (GOOD, {"metric": "avg@5"}, ["'avg@5'", "Did you mean 'avg@4'?"]),
    "slip of a column": ({**GOOD, "seeds": [0, 1]}, {}, ["'seeds'", "'seed'", "rename="]),
    "other case": ({**GOOD, "Tokens": [0, 1]}, {}, ["'Tokens'", "'tokens'"]),
    "nested": ({**GOOD, "config": [{"a": 1}, None]}, {}, ["'config'", "ignore=['config']"]),
    "nested text column": ({**GOOD, "model": [[1], [2]]}, {}, ["column model", "text"]),
    "negative tokens": ({**GOOD, "tokens": [1, -1]}, {}, ["row 2", "tokens", "-1"]),
    "some run ids": ({**GOOD, "run_id": ["a", None]}, {}, ["row 2", "run_id", "empty"]),
    "long without value": ({"n": [8], "C": [1], "metric": ["a"]}, {}, ["'value'"]),
    "long, value empty": ({"n": [8], "C": [1], "metric": ["a"], "value": [None]}, {}, ["row 1", "value", "empty"]),
    "long, metric empty": (
        {"n": [8, 8], "C": [1, 2], "metric": ["a", " "], "value": [0, 1]},
        {},
        ["row 2", "metric", "empty"],
    ),
    "long and wide": (
        {"n": [8], "C": [1], "metric": ["a"], "value": [0.5], "avg@4": [0.5]},
        {},
        ["'avg@4'", "ignore="],
    ),
    "runs of two n under one name": (
        {"run_id": ["a"] * 4, "n": [8, 8, 16, 16], "bp": [4] * 4, "step": [2, 10, 15, 20], "r": [0.5] * 4},
        {},
        ["run 'a'", "n (group_size)", "8", "16", "row 3 (index 2)", "run_ids", "rollouts"],
    ),
    "context changes in a run": (
        {**GOOD, "n": [8, 8], "run_id": ["a", "a"], "model": ["x", "y"]},
        {},
        ["run 'a'", "model", "'x'", "'y'"],
    ),
    "repeat": (
        {**GOOD, "n": [8, 8], "C": [256, 256]},
        {},
        ["row 2", "repeats row 1", "'n8-bp32-seed0'", "step 1", "avg@4", "validation", '"last"', "seed"],
    ),
    "repeat without steps": ({"n": [8, 8], "C": [5, 5], "r": [0, 1]}, {}, ["repeats row 1", "rollouts 5"]),
    "unknown argument": (GOOD, {"problem_per_batch": 3}, ["problem_per_batch", "'problems_per_batch'"]),
    "bad argument": ({"n": [8], "C": [1], "r": [1]}, {"bp": 3.5}, ["argument bp", "3.5", "whole numbers"]),
    "argument repeats a column": (GOOD, {"n": 8}, ["n is given twice", "ignore=['n']"]),
    "bad on_duplicate": (GOOD, {"on_duplicate": "first"}, ["'first'", "'error', 'last'"]),
    "ignoring nothing": (GOOD, {"ignore": ["avg@5"]}, ["'avg@5'", "'avg@4'"]),
    "renaming nothing": (GOOD, {"rename": {"m": "n"}}, ["'m'", "n, bp, C, avg@4"]),
}


@pytest.mark.parametrize("case", CASES)
def test_bad_input_is_refused_with_place_value_and_remedy(case: str):
    table, options, expected = CASES[case]
    with pytest.raises(RecordError) as caught:
        RunSet.from_columns(table, **options)
    assert caught.value.hint
    for part in expected:
        assert part in str(caught.value)


@pytest.mark.parametrize("bad", [1, 2, 5])
def test_a_bad_column_is_refused_with_the_first_cell_and_the_number_of_the_others(bad: int):
    sizes = [8.0] * 3 + [8.5] * bad
    with pytest.raises(RecordError) as caught:
        RunSet.from_columns({"n": sizes, "C": list(range(len(sizes))), "r": [0.5] * len(sizes)})
    assert "row 4" in str(caught.value)
    assert re.findall(r"(\d+) more", str(caught.value)) == ([str(bad - 1)] if bad > 1 else [])
