"""Tables of any kind in memory become runs, or are refused with place, value and remedy."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import isocompute_sdk as iso
from isocompute_sdk.errors import RecordError
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


@pytest.mark.parametrize(("column", "value"), [("step", 2e9), ("gpus", -1)])
def test_a_column_of_any_name_is_left_out_by_this_name(column: str, value: float):
    odd = "a | b> c"
    columns = {"n": [8], "bp": [4], "step": [1], "avg@4": [0.1]} | {column: [value]}
    with pytest.raises(RecordError) as refused:
        RunSet.from_columns(
            {odd if name == column else name: cells for name, cells in columns.items()}, rename={odd: column}
        )
    assert f"ignore=[{odd!r}]" in str(refused.value.hint)
    assert f"--ignore '{odd}'." in str(refused.value.shell_hint)


def test_one_empty_cell_asks_for_its_value_and_not_for_a_setting():
    with pytest.raises(RecordError) as refused:
        RunSet.from_columns({"n": [8, 8], "bp": [4, 4], "step": [1, None], "avg@4": [0.1, 0.2]})
    assert "rollouts_per_batch" not in f"{refused.value.hint} {refused.value.shell_hint}"


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


TABLE: dict[str, list[Any]] = {
    "experiment": ["a", "a", "a", "b", "b", "b"],
    "num_generations": [4, 4, 4, 8, 8, 8],
    "prompts_per_step": [16] * 6,
    "global_step": [0, 10, 20, 0, 10, 20],
    "avg@4": [0.1, 0.2, None, 0.1, 0.3, 0.4],
    "model": ["q", None, None, "q", None, None],
}

KINDS: dict[str, Callable[[Mapping[str, list[Any]]], Any]] = {
    "polars": pl.DataFrame,
    "pandas": pd.DataFrame,
    "pandas with its own types": lambda table: pd.DataFrame(table).convert_dtypes(),
    "pandas with Arrow types": lambda table: pd.DataFrame(table).convert_dtypes(dtype_backend="pyarrow"),
    "pandas with categories": lambda table: pd.DataFrame(table).astype({"experiment": "category", "model": "category"}),
    "Arrow": pa.table,
}
COLUMNS: dict[str, Callable[[list[Any]], Any]] = {
    "strings of pandas": lambda values: pd.array(values, dtype="str" if isinstance(values[0], str) else None),
    "arrays of pandas": lambda values: pd.Series(values).convert_dtypes().array,
    "Arrow": pa.array,
    "chunks of Arrow": lambda values: pa.chunked_array([pa.array(values[:2]), pa.array(values[2:])]),
    "Polars": pl.Series,
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_frame_gives_the_same_runs(kind: str) -> None:
    assert iso.RunSet.from_frame(KINDS[kind](TABLE)) == iso.RunSet.from_columns(TABLE)


@pytest.mark.parametrize("kind", COLUMNS)
def test_every_array_gives_the_same_runs(kind: str) -> None:
    columns = {name: COLUMNS[kind](values) for name, values in TABLE.items()}
    assert iso.RunSet.from_columns(columns) == iso.RunSet.from_columns(TABLE)


def test_names_and_values_can_be_given() -> None:
    other = pd.DataFrame(TABLE).rename(columns={"num_generations": "G"}).drop(columns="prompts_per_step")
    given = iso.RunSet.from_frame(other, rename={"G": "n"}, set={"problems_per_batch": 16})
    assert given == iso.RunSet.from_columns(TABLE)
    with pytest.raises(RecordError, match=r"'g'.*\n.*'G'"):
        iso.RunSet.from_frame(other, rename={"g": "n"})
    with pytest.raises(RecordError) as refused:
        iso.RunSet.from_frame(other)
    assert set(refused.value.options) == {"--rename G=group_size", "--set problems_per_batch=BP"}


@pytest.mark.parametrize(
    ("step", "count", "counter"),
    [
        ("it", [0, 10, 20, 30], True),
        ("global_it", [0, 10, 20, 30], True),
        ("x", [0, 10, 20, 30], True),
        ("x", [0, 1, 2, 3], True),
        ("x", [0, 10, 20, 0], True),
        ("x", [0, 1, 0, 1], False),
    ],
)
def test_an_odd_table_is_read_with_the_one_command_that_its_error_names(
    step: str, count: list[int], counter: bool
) -> None:
    odd = pl.DataFrame({"num_gens": [8] * 4, "P": [16] * 4, step: count, "acc@4": [0.1, 0.3, 0.4, 0.45]})
    with pytest.raises(RecordError) as refused:
        iso.RunSet.from_frame(odd)
    options = {"--rename num_gens=group_size", "--rename P=problems_per_batch"}
    assert set(refused.value.options) == (options | {f"--rename {step}=step"} if counter else options)


@pytest.mark.parametrize(
    ("n", "problems", "step", "run"),
    [
        ("num_generations", "prompts_per_step", "global_step", "experiment"),
        ("rollout.n", "train_batch_size", "training/global_step", "experiment_name"),
        ("generations_per_prompt", "prompts_per_batch", "train/global_step", "run_name"),
        ("actor_rollout_ref.rollout.n", "data.train_batch_size", "Global Step", "Run"),
        ("config.num_generations_per_prompt", "args/num_prompts_per_step", "training_step", "exp_name"),
        ("N_Samples_Per_Prompt", "rollout_batch_size", "step", "EXPERIMENT"),
    ],
)
def test_names_of_frameworks_are_known(n: str, problems: str, step: str, run: str) -> None:
    names = {"num_generations": n, "prompts_per_step": problems, "global_step": step, "experiment": run}
    renamed = {names.get(name, name): values for name, values in TABLE.items()}
    assert iso.RunSet.from_columns(renamed) == iso.RunSet.from_columns(TABLE)


def test_a_batch_in_rollouts_gives_the_problems() -> None:
    table = {name: values for name, values in TABLE.items() if name != "prompts_per_step"}
    batch = [16 * n for n in TABLE["num_generations"]]
    assert iso.RunSet.from_columns({**table, "generation_batch_size": batch}) == iso.RunSet.from_columns(TABLE)
    with pytest.raises(RecordError, match=r"received 65 with n = 4"):
        iso.RunSet.from_columns({**table, "rollouts_per_batch": [65] * 6})


@pytest.mark.parametrize("counts_rollouts", [False, True])
def test_a_batch_size_is_offered_as_what_it_counts_and_the_other_is_named(*, counts_rollouts: bool) -> None:
    table = {name: values for name, values in TABLE.items() if name != "prompts_per_step"}
    batch = [16 * n if counts_rollouts else 16 for n in TABLE["num_generations"]]
    with pytest.raises(RecordError) as caught:
        iso.RunSet.from_columns({**table, "batch_size": batch})
    (option,) = caught.value.options
    ours, other = ("rollouts_per_batch", "problems_per_batch")[:: 1 if counts_rollouts else -1]
    assert option == f"--rename batch_size={ours}"
    assert f"--rename batch_size={other}" in (caught.value.shell_hint or "")
    assert iso.RunSet.from_columns(
        {**table, "batch_size": batch}, rename={"batch_size": ours}
    ) == iso.RunSet.from_columns(TABLE)


def test_a_batch_that_may_count_rollouts_is_read_with_a_warning() -> None:
    table = {name if name != "prompts_per_step" else "train_batch_size": values for name, values in TABLE.items()}
    (note,) = iso.RunSet.from_columns(table).notes
    assert (note.code, note.severity) == ("column-assumed", "warning")
    plain = {name if name != "num_generations" else "n": values for name, values in table.items()}
    assert not iso.RunSet.from_columns(plain).notes


def test_log_calls_that_are_read_as_updates_are_told_where_another_column_counts_them() -> None:
    table = {name if name != "global_step" else "_step": values for name, values in TABLE.items()}
    counted = {**table, "trainer/update no": [0, 5, 10, 0, 5, 10]}
    (note,) = iso.RunSet.from_columns(counted).notes
    assert (note.code, note.severity) == ("column-assumed", "warning")
    by_updates = iso.RunSet.from_columns(counted, rename={"trainer/update no": "step"})
    assert not by_updates.notes
    assert by_updates.to_polars()["step"].max() == 10
    others = {"save_steps": [10] * 6, "steps per second": [0.5] * 6, "update again": table["_step"]}
    for more in ({}, *({name: values} for name, values in others.items())):
        assert not iso.RunSet.from_columns({**table, **more}).notes


def test_a_learning_rate_that_follows_a_schedule_is_its_largest() -> None:
    rates = [0.0, 1e-6, 5e-7] * 2
    infos = iso.RunSet.from_columns({**TABLE, "lr": rates}).runs()
    assert [info.context["learning_rate"] for info in infos] == [1e-6, 1e-6]


def test_results_give_frames(make_runs: Callable[..., iso.RunSet]) -> None:
    fits = iso.fit(make_runs(), draws=20)
    at = np.geomspace(1e5, 1e6, 5)
    frontier = fits.frontier(at)
    frame = frontier.to_frame()
    assert frame["compute"].to_numpy() == pytest.approx(at)
    assert frame["group_size"].to_list() == frontier.group_size.tolist()
    assert fits.to_frame()["group_size"].to_list() == [curve.group_size for curve in fits.select()]
    predicted = fits.predict(at, 8)
    frame = predicted.to_frame(rollouts=at, group_size=8)
    assert frame.columns == ["rollouts", "group_size", "mean", "low", "high"]
    assert frame["mean"].to_numpy() == pytest.approx(predicted.mean)
    law = iso.published("qwen2.5-7b-instruct/guru-math-easy").law("group_size")
    assert law.to_frame(at)["predicted"].to_numpy() == pytest.approx(law.predict(at))
    plan = iso.Planner(fits, iso.Hardware(max_rollouts_per_batch=16_384)).allocate("1M")
    frame = plan.to_frame()
    assert frame["kind"].to_list() == ["plan", *(one.kind for one in plan.alternatives)]
    assert frame["rollouts"].to_list()[0] == plan.rollouts


GOOD: dict[str, Any] = {"n": [8, 16], "bp": [32, 32], "C": [256, 512], "avg@4": [0.4, 0.5]}

CASES: dict[str, tuple[Any, dict[str, Any], list[str]]] = {
    "no columns": ({}, {}, ["table is empty", "no rows"]),
    "not a table": ([1, 2], {}, ["list", "mapping"]),
    "a lazy frame": (pl.LazyFrame(GOOD), {}, ["LazyFrame", "polars or pandas frame"]),
    "a frame with a column twice": (pd.DataFrame([[1, 2]], columns=["n", "n"]), {}, ["n", "more than once"]),
    "unequal lengths": ({**GOOD, "C": [1, 2, 3]}, {}, ["n 2", "C 3"]),
    "a scalar": ({**GOOD, "n": 8}, {}, ["column n", "received 8", "from_columns(..., n=...)"]),
    "two dimensions": ({**GOOD, "n": np.ones((2, 2))}, {}, ["column n", "(2, 2)", "one dimension"]),
    "two aliases": ({**GOOD, "compute": [1, 2]}, {}, ["'C'", "'compute'", "'rollouts'"]),
    "fractional n": ({**GOOD, "n": [8, 8.5]}, {}, ["row 2 (index 1)", "n (group_size)", "8.5", "whole numbers >= 1"]),
    "zero n": ({**GOOD, "n": [0, 8]}, {}, ["row 1 (index 0)", "received 0", ">= 1"]),
    "n is a word": ({**GOOD, "n": [8, "many"]}, {}, ["row 2", "'many'", "whole numbers"]),
    "n is true": ({**GOOD, "n": [True, True]}, {}, ["row 1", "True", "whole numbers"]),
    "n is missing": ({k: v for k, v in GOOD.items() if k != "n"}, {}, ["group_size (or n)", "bp, C, avg@4"]),
    "n is misspelt": ({"gruop_size": [1], "C": [1], "r": [1]}, {}, ["group_size", "'gruop_size'", "rename="]),
    "negative compute": ({**GOOD, "C": [1, -5]}, {}, ["row 2", "C (rollouts)", "-5", "finite numbers >= 0"]),
    "compute is nan": ({**GOOD, "C": [1, float("nan")]}, {}, ["row 2", "C (rollouts)", "nan"]),
    "compute is a date": ({**GOOD, "C": np.array(["2026-01-01", "2026-01-02"], "M8[s]")}, {}, ["C (rollouts)", "2026"]),
    "negative step": ({"n": [8], "bp": [32], "step": [-1], "r": [0.1]}, {}, ["row 1", "step", ">= 0"]),
    "no compute": ({"n": [8], "avg@4": [0.1]}, {}, ["rollouts (or C, compute) or step"]),
    "step without problems": (
        {"n": [8], "step": [3], "r": [0.1]},
        {},
        ["no column problems_per_batch", "problems_per_batch=..."],
    ),
    "step and compute disagree": (
        {**GOOD, "step": [1, 2]},
        {},
        ["row 2", "512", "step 2 * group_size 16 * problems_per_batch 32 = 1024", "0.1 %"],
    ),
    "value is nan": ({**GOOD, "avg@4": [0.1, float("nan")]}, {}, ["row 2", "column avg@4", "nan", "None"]),
    "value is a word": ({**GOOD, "avg@4": ["0.1", "oops"]}, {}, ["row 2", "column avg@4", "'oops'"]),
    "nothing measured": ({**GOOD, "avg@4": [None, None]}, {}, ["no column holds a metric"]),
    "blank text only": ({**GOOD, "avg@4": [0.1, 0.2], "x": ["a", "b"]}, {}, ["'x'", "String", "ignore=['x']"]),
    "unnamed metric": ({"n": [8], "C": [1], "reward": [0.1]}, {}, ["'reward'", 'metric="avg@4"']),
    "metric twice": ({**GOOD, "reward": [1, 2]}, {"metric": "avg@4"}, ["'reward'", "'avg@4'", "both"]),
    "metric absent": (GOOD, {"metric": "avg@5"}, ["'avg@5'", "Did you mean 'avg@4'?"]),
    "slip of a column": ({**GOOD, "seeds": [0, 1]}, {}, ["'seeds'", "'seed'", "rename="]),
    "other case": ({**GOOD, "Tokens": [0, 1]}, {}, ["'Tokens'", "'tokens'"]),
    "nested": ({**GOOD, "config": [{"a": 1}, None]}, {}, ["'config'", "ignore=['config']"]),
    "nested text column": ({**GOOD, "model": [[1], [2]]}, {}, ["column model", "text"]),
    "negative tokens": ({**GOOD, "tokens": [1, -1]}, {}, ["row 2", "tokens", "-1"]),
    "some run ids": ({**GOOD, "run_id": ["a", None]}, {}, ["row 2", "run_id", "empty"]),
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
    "argument repeats a column": (GOOD, {"n": 8}, ["n is given twice", "ignore=['n']"]),
    "bad on_duplicate": (GOOD, {"on_duplicate": "first"}, ["'first'", "error, last"]),
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


def test_rows_of_one_n_that_begin_again_where_an_unknown_column_changes_are_several_runs(tmp_path: Path) -> None:
    steps = [*range(0, 50, 10), *range(1, 51, 10)]
    table = {"n": [8] * 10, "B_p": [32] * 10, "step": steps, "avg@4": [s / 100 for s in steps]}

    def saved(named: Sequence[str]) -> Path:
        pd.DataFrame({**table, "set name": named}).to_csv(tmp_path / "runs.csv", index=False)
        return tmp_path / "runs.csv"

    file = saved(["easy"] * 5 + ["hard"] * 5)
    with pytest.raises(RecordError) as raised:
        RunSet.read(file)
    assert raised.value.options == ("--rename 'set name=train_data'",)
    assert len(RunSet.read(file, rename={"set name": "train_data"}).runs()) == 2
    # A remark on single rows tells no runs apart.
    assert len(RunSet.read(saved(["", "dash"] * 5)).runs()) == 1
