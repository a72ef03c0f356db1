"""A table without run ids holds one run, however its metrics lie in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from isocompute_sdk.errors import RecordError
from isocompute_sdk.ingest import diagnose, propose
from isocompute_sdk.records import RunSet

SIZES = {"group_size": 8, "problems_per_batch": 16}
STEPS = range(1, 31)


def trl() -> pd.DataFrame:
    rows = [{"step": s, "reward": s / 40, "completions/mean_length": 90.0 + s, "kl": s / 1e3} for s in STEPS]
    return pd.DataFrame(rows)


def trl_with_evaluations() -> pd.DataFrame:
    """Rows of a trainer's history: an evaluation has a row of its own at the step of the update before it."""
    rows: list[dict[str, Any]] = []
    for step in STEPS:
        rows.append({"step": step, "reward": step / 40, "completions/mean_length": 90.0 + step, "kl": step / 1e3})
        if step % 10 == 0:
            rows.append(
                {"step": step, "eval_reward": step / 50, "eval_completions/mean_length": 91.0, "eval_loss": 0.1}
            )
    return pd.DataFrame(rows)


def wandb_history() -> pd.DataFrame:
    """The history of a W&B run that evaluates the base model first, in a row of its own for each call of `log`."""
    rows: list[dict[str, Any]] = [{"train/global_step": 0, "eval/reward": 0.1, "eval/completions/mean_length": 80.0}]
    for step in STEPS:
        rows.append(
            {"train/global_step": step, "train/reward": step / 40, "train/completions/mean_length": 90.0 + step}
        )
        if step % 10 == 0:
            rows.append({"train/global_step": step, "eval/reward": step / 50, "eval/completions/mean_length": 91.0})
    return pd.DataFrame(
        [{"_step": i, "_runtime": 9.0 * i, "_timestamp": 1.7e9 + i, **row} for i, row in enumerate(rows)]
    )


def verl() -> pd.DataFrame:
    """With val_before_train."""
    rows: list[dict[str, Any]] = [{"step": 0, "val-core/gsm8k/reward/mean@4": 0.1}]
    for step in STEPS:
        test = {"val-core/gsm8k/reward/mean@4": step / 50} if step % 10 == 0 else {}
        rows.append({"step": step, "critic/score/mean": step / 40, "response_length/mean": 90.0 + step, **test})
    return pd.DataFrame(rows)


def notebook() -> pd.DataFrame:
    """Metrics on rows of their own, evaluations below the updates and far apart."""
    updates = pd.DataFrame({"step": STEPS, "reward_mean": [s / 40 for s in STEPS], "tokens_per_answer": 90.5})
    return pd.concat([updates.assign(tokens_per_answer=[90.0 + s for s in STEPS]), verl().iloc[::10, [0, 1]]]).rename(
        columns={"val-core/gsm8k/reward/mean@4": "eval_acc"}
    )


def melted() -> pd.DataFrame:
    """One row per value, metric by metric."""
    return trl().rename(columns={"reward": "avg@4"}).melt("step", var_name="metric").dropna()


TABLES = (trl, trl_with_evaluations, wandb_history, verl, notebook, melted)


def write(table: pd.DataFrame, folder: Path, ending: str) -> Path:
    path = folder / f"table.{ending}"
    if ending == "csv":
        table.to_csv(path, index=False)
    else:
        path.write_text("".join(row.dropna().to_json() + "\n" for _, row in table.iterrows()))
    return path


@pytest.mark.parametrize("ending", ["csv", "jsonl"])
@pytest.mark.parametrize("table", TABLES, ids=lambda one: one.__name__)
def test_one_run_is_one_run(tmp_path: Path, table: Any, ending: str) -> None:
    path = write(table(), tmp_path, ending)
    runs = RunSet.read(path, **SIZES)
    (info,) = runs.runs()
    assert info.rollouts == 30 * 128
    # Without n and B_p it is a log, of one attempt.
    assert [one.attempts for one in diagnose(path).runs] == [1]


def test_the_first_update_of_a_log_under_another_name_counts(tmp_path: Path) -> None:
    rows = pd.DataFrame({"step": range(20), "env/all/total_episodes": 128, "env/all/reward/total": 0.5})
    for name in ("metrics.jsonl", "table.jsonl"):
        path = write(rows, tmp_path, "jsonl").rename(tmp_path / name)
        assert RunSet.read(path, **SIZES).runs()[0].rollouts == 20 * 128
        # Rollouts of a batch that the log counts say B_p or n, and what contradicts them.
        for given in ({"group_size": 4}, {"problems_per_batch": 32}):
            (found,) = diagnose(path, set=given).runs
            assert (found.group_size, found.problems_per_batch) == ("4", "32")
            (info,) = RunSet.read(path, set=given).runs()
            assert (info.group_size, info.problems_per_batch) == (4, 32)
        (entry,) = propose(path).told(set={"problems_per_batch": 32}).readings().values()
        assert entry.constants["rollouts_per_batch"] == 128
        wrong = {"group_size": 4, "problems_per_batch": 50}
        for given in (wrong, {"group_size": 3}, {"problems_per_batch": 7}):
            (found,) = diagnose(path, set=given).runs
            assert not found.readable
            with pytest.raises(RecordError, match=r"= (4 x 50 = 200|3|7) .* 128"):
                RunSet.read(path, set=given)
        with pytest.raises(RecordError, match="group_size: received 0"):
            diagnose(path, set={"group_size": 0})
        # A size in a column that is none is a finding too.
        (found,) = diagnose(write(rows.assign(n=8.5), tmp_path, "jsonl").rename(tmp_path / f"half-{name}")).runs[-1:]
        assert "8.5" in found.problems[0]


@pytest.mark.parametrize("table", TABLES, ids=lambda one: one.__name__)
def test_two_runs_one_below_the_other_are_refused(tmp_path: Path, table: Any) -> None:
    again = table()
    values = [name for name in again if "step" not in name and name not in ("metric", "_runtime", "_timestamp")]
    with pytest.raises(RecordError, match=r"repeats|restart at"):
        RunSet.read(write(pd.concat([again, again.assign(**again[values] / 2)]), tmp_path, "csv"), **SIZES)


def test_two_runs_row_by_row_are_told_apart_by_their_settings_or_refused(tmp_path: Path) -> None:
    other = trl().assign(reward=0.5 + trl()["reward"] / 9)
    for name, runs in (("model", 2), ("seed", 2), (None, None)):
        tables = (trl(), other) if name is None else (trl().assign(**{name: 1}), other.assign(**{name: 2}))
        path = write(pd.concat(tables).sort_values("step", kind="stable"), tmp_path, "csv")
        if runs is None:
            with pytest.raises(RecordError, match="several values of reward"):
                RunSet.read(path, **SIZES)
            assert diagnose(path, set=SIZES).verdict == "unusable"
        else:
            assert len(RunSet.read(path, **SIZES).run_ids) == runs


def test_evaluation_sets_of_rows_stay_apart(tmp_path: Path) -> None:
    table = pd.concat([trl().assign(eval_set=name, **{"avg@4": value}) for name, value in (("a", 0.1), ("b", 0.2))])
    assert RunSet.read(write(table, tmp_path, "csv"), **SIZES).filter(metric="avg@4").eval_sets == ("a", "b")


def test_a_table_that_cannot_be_read_keeps_no_other_from_being_read(tmp_path: Path) -> None:
    write(trl(), tmp_path, "csv")
    again = pd.concat([trl(), trl().assign(reward=0.5)])
    again.to_csv(tmp_path / "twice.csv", index=False)
    left: dict[str, str] = {}
    runs = RunSet.read(tmp_path, left_out=left, **SIZES)
    assert (runs.run_ids, [Path(name).name for name in left]) == (("table",), ["twice.csv"])


@pytest.mark.parametrize("order", ["backwards", "shuffled"])
def test_rows_in_another_order_are_one_run(tmp_path: Path, order: str) -> None:
    table = trl()
    table = table[::-1] if order == "backwards" else table.sample(frac=1, random_state=3)
    path = write(table, tmp_path, "csv")
    assert [one.attempts for one in diagnose(path).runs] == [1]
    (series,) = RunSet.read(path, **SIZES).series("train_reward")
    assert series.value_T.tolist() == trl()["reward"].tolist()
