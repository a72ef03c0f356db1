"""What can be asked of a `RunSet`."""

from typing import Any

import numpy as np
import polars as pl
import pytest

from isocompute_sdk.errors import FitError, RecordError
from isocompute_sdk.records import CONTEXT_FIELDS, RunSet
from isocompute_sdk.records.comparable import refuse_mixed_contexts


@pytest.fixture
def runs() -> RunSet:
    return RunSet.from_columns(
        {
            "n": [8, 8, 32, 32],
            "bp": [64, 64, 64, 64],
            "step": [20, 10, 10, 20],
            "avg@4": [0.6, 0.5, 0.7, 0.8],
            "best@4": [0.9, None, None, 0.95],
            "learning_rate": [1e-6, 1e-6, 2e-6, 2e-6],
        },
        model="qwen",
    )


def test_series_are_sorted_float_arrays_that_belong_to_the_caller(runs: RunSet):
    first, second = runs.series("avg@4")
    assert (first.run_id, first.group_size, first.problems_per_batch, first.seed) == ("n8-bp64-seed0", 8, 64, 0)
    assert first.rollouts_T.tolist() == [5120.0, 10240.0]
    assert first.value_T.tolist() == [0.5, 0.6]
    assert first.step_T.dtype == first.rollouts_T.dtype == first.value_T.dtype == np.float64
    assert second.context == {**dict.fromkeys(CONTEXT_FIELDS), "model": "qwen", "learning_rate": 2e-6}
    first.value_T[:] = 0
    assert runs.series("avg@4")[0].value_T.tolist() == [0.5, 0.6]
    context: Any = runs.runs()[0].context
    context["model"] = "llama"
    assert runs.runs()[0].context["model"] == "qwen"


def test_a_metric_that_is_not_there_is_refused_with_the_nearest_match(runs: RunSet):
    with pytest.raises(RecordError, match=r"'avg@8'.*avg@4, best@4\n.*'avg@4'"):
        runs.series("avg@8")


def test_sets_of_training_problems_are_not_chosen_unasked():
    sets = ["train_probe", "validation", "train"]
    runs = RunSet.from_columns({"n": [8] * 3, "C": [1] * 3, "eval_set": sets, "avg@4": [0.1, 0.2, 0.3]})
    assert runs.series("avg@4")[0].value_T.tolist() == [0.2]
    assert runs.series("avg@4", "train_probe")[0].value_T.tolist() == [0.1]
    with pytest.raises(RecordError, match="train, train_probe"):
        runs.filter(eval_set=["train", "train_probe"]).series("avg@4")


def test_several_eval_sets_need_a_choice():
    columns = {"n": [8, 8], "C": [1, 1], "eval_set": ["aime", "math"], "avg@4": [0.1, 0.2], "best@4": [0.3, None]}
    runs = RunSet.from_columns(columns)
    with pytest.raises(RecordError, match="aime, math"):
        runs.series("avg@4")
    assert runs.series("avg@4", "math")[0].value_T.tolist() == [0.2]
    assert runs.series("best@4")[0].value_T.tolist() == [0.3]
    with pytest.raises(RecordError, match=r"best@4.*'math'.*aime"):
        runs.series("best@4", "math")


def test_filter_takes_values_collections_tests_and_expressions(runs: RunSet):
    assert len(runs.filter(n=8)) == 3
    assert len(runs.filter(group_size=8.0, metric="avg@4")) == 2
    assert len(runs.filter(metric=["avg@4", "best@4"])) == len(runs)
    assert len(runs.filter(C=lambda rollouts: rollouts > 10_000)) == 5
    assert len(runs.filter(pl.col("value") > 0.75)) == 3
    assert runs.filter(train_data=None) == runs
    assert runs.filter(train_data=[None, "x"]) == runs


def test_a_filter_that_leaves_nothing_is_refused_with_what_there_is(runs: RunSet):
    with pytest.raises(RecordError, match=r"9.*8, 32"):
        runs.filter(n=9)
    with pytest.raises(RecordError):
        runs.filter(pl.col("value") > 2)
    with pytest.raises(RecordError, match=r"'modle'.*\n.*'model'"):
        runs.filter(modle="qwen")


def test_concat_continues_a_run():
    early = RunSet.from_columns({"n": [8, 8], "bp": [32, 32], "step": [1, 2], "avg@4": [0.1, 0.2]})
    late = RunSet.from_columns({"n": [8], "bp": [32], "step": [3], "avg@4": [0.3]})
    for joined in (early.concat(late), late.concat(early)):
        assert joined.series("avg@4")[0].value_T.tolist() == [0.1, 0.2, 0.3]


@pytest.mark.parametrize(
    ("first", "second", "says"),
    [
        ({"C": [1, 10], "avg@4": [0.5, 0.6]}, {"C": [2, 11], "avg@4": [0.0, 0.1]}, r"'n8-seed0'.*1 to 10.* 2"),
        (
            {"run_id": ["a"], "C": [1], "avg@4": [0.5], "model": ["x"]},
            {"run_id": ["a"], "C": [2], "avg@4": [0.5], "model": ["y"]},
            r"'a'.*model.*'x'.*table 1.*'y'.*table 2",
        ),
        (
            {"bp": [32], "step": [10], "C": [2560], "avg@4": [0.5]},
            {"bp": [32], "step": [10], "C": [2561], "avg@4": [0.6]},
            r"table 2.*table 1.*'n8-bp32-seed0'.* 10",
        ),
    ],
    ids=["interleaved", "another configuration", "a step in both"],
)
def test_concat_refuses_runs_of_one_name_that_cannot_be_one(
    first: dict[str, list[Any]], second: dict[str, list[Any]], says: str
) -> None:
    tables = [RunSet.from_columns({"n": [8] * len(one["C"]), **one}) for one in (first, second)]
    with pytest.raises(RecordError, match=says):
        tables[0].concat(tables[1])


def test_concat_with_last_takes_the_later_value():
    old = RunSet.from_columns({"n": [8, 8], "C": [1, 10], "avg@4": [0.5, 0.6]})
    new = RunSet.from_columns({"n": [8, 8], "C": [10, 20], "avg@4": [0.7, 0.8]})
    (run,) = old.concat(new, on_duplicate="last").series("avg@4")
    assert run.value_T.tolist() == [0.5, 0.7, 0.8]


def test_to_pandas_keeps_values_and_marks_gaps(runs: RunSet):
    frame = runs.concat(RunSet.from_columns({"n": [4], "C": [1], "avg@4": [0.1]})).to_pandas()
    assert frame["problems_per_batch"].dtype == "Int64"
    assert frame["group_size"].dtype == "int64"
    assert frame["value"].tolist()[-1] == 0.1
    assert RunSet.from_columns(frame.iloc[:-1]) == runs


def test_a_damaged_dict_is_refused(runs: RunSet):
    with pytest.raises(RecordError, match="constants"):
        RunSet.from_dict({"columns": {}})
    raw = runs.to_dict()
    raw["columns"]["value"].pop()
    with pytest.raises(RecordError):
        RunSet.from_dict(raw)


def test_a_notebook_shows_known_seeds_and_marks_unknown_ones() -> None:
    columns = {"n": [8, 8], "bp": [32, 32], "step": [1, 2], "avg@4": [0.1, 0.2]}
    for run, seed in (("named", None), (None, 4711)):
        given = {name: value for name, value in (("run_id", run), ("seed", seed)) if value is not None}
        (one,) = (runs := RunSet.from_columns(columns, **given)).runs()
        assert one.seed == seed
        assert f">{'?' if seed is None else seed}<" in runs._repr_html_()


def test_a_metric_that_is_missing_is_refused_with_the_option_that_works() -> None:
    columns = {"n": [8, 8], "bp": [32, 32], "step": [1, 2], "avg@4": [0.1, 0.2]}
    with pytest.raises(RecordError) as caught:
        RunSet.from_columns(columns, metric="avg@64")
    (option,) = caught.value.options
    flag, name = option.split()
    assert flag == "--metric"
    assert RunSet.from_columns(columns, metric=name).metrics == ("avg@4",)


def test_learning_rates_read_off_one_schedule_pool_and_others_do_not() -> None:
    columns = {"run_id": ["a", "b"], "n": [4, 8], "bp": [8, 4], "step": [1, 1], "avg@4": [0.5, 0.6]}
    refuse_mixed_contexts(RunSet.from_columns({**columns, "learning_rate": [4.91e-5, 4.95e-5]}).series("avg@4"), ())
    with pytest.raises(FitError, match="learning_rate"):
        refuse_mixed_contexts(RunSet.from_columns({**columns, "learning_rate": [4e-5, 5e-5]}).series("avg@4"), ())
