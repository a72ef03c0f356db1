"""Frames in, frames out: pandas, Polars and Arrow tables become runs, results become Polars frames."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import isocompute_sdk as iso
from isocompute_sdk.errors import RecordError

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


@pytest.mark.parametrize("step", ["it", "global_it", "x"])
def test_an_odd_table_is_read_with_the_one_command_that_its_error_names(step: str) -> None:
    odd = pl.DataFrame({"num_gens": [8] * 4, "P": [16] * 4, step: [0, 10, 20, 30], "acc@4": [0.1, 0.3, 0.4, 0.45]})
    with pytest.raises(RecordError) as refused:
        iso.RunSet.from_frame(odd)
    options = {"--rename num_gens=group_size", f"--rename {step}=step", "--rename P=problems_per_batch"}
    assert set(refused.value.options) == options


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


def test_a_batch_that_may_count_rollouts_is_read_with_a_warning() -> None:
    table = {name if name != "prompts_per_step" else "train_batch_size": values for name, values in TABLE.items()}
    (note,) = iso.RunSet.from_columns(table).notes
    assert (note.code, note.severity) == ("column-assumed", "warning")
    plain = {name if name != "num_generations" else "n": values for name, values in table.items()}
    assert not iso.RunSet.from_columns(plain).notes


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
