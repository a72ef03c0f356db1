"""`isocompute_sdk.read`: a table in a notebook is read like the same table in a file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pytest

import isocompute_sdk as iso
from tests.parameters import few

Rows = list[dict[str, Any]]


def own() -> Rows:
    """A table of somebody's own, with text and a lone reward."""
    return [
        {"Name": f"r{n}", "num_generations": n, "bp": 32, "global_step": step, "reward": 0.3 + step / 999, "note": "ok"}
        for n in (4, 8)
        for step in range(0, 60, 10)
    ]


def trl() -> Rows:
    """What `trainer.state.log_history` holds: updates and evaluations in rows of their own."""
    updates: Rows = [
        {"step": step, "loss": 0.1, "reward": 0.4 + step / 99, "kl": 0.01, "completions/mean_length": 200.0 + step}
        for step in range(1, 21)
    ]
    return updates + [{"step": step, "eval_reward": 0.3 + step / 99, "eval_runtime": 3.0} for step in (5, 10, 15, 20)]


def wandb() -> Rows:
    """What `run.history()` gives: W&B's own step, and gaps."""
    return [
        {
            "_step": 3 * i,
            "_runtime": 9.0 * i,
            "_timestamp": 1.7e9 + i,
            "train/global_step": i,
            "eval/reward": 0.3 + i / 99,
        }
        for i in range(10)
    ]


def chart() -> Rows:
    """A chart of W&B: a column for each run."""
    return [{"Step": i, "sun-1 - val/acc": 0.3 + i / 99, "sea-2 - val/acc": 0.4 + i / 99} for i in range(10)]


TABLES: dict[str, tuple[Callable[[], Rows], dict[str, Any]]] = {
    "own": (own, {}),
    "renamed": (own, {"rename": {"num_generations": "n"}, "ignore": ["note"], "metric": "avg@4"}),
    "trl": (trl, {"set": {"group_size": 8, "problems_per_batch": 16}}),
    "wandb": (wandb, {"set": {"group_size": 8, "problems_per_batch": 16}}),
    "chart": (chart, {"set": {"group_size": 8, "problems_per_batch": 16}}),
}


@pytest.mark.parametrize("kind", few(TABLES, {"own", "renamed"}))
def test_every_form_of_a_table_gives_the_runs_of_its_file(kind: str, tmp_path: Path) -> None:
    rows, options = TABLES[kind][0](), TABLES[kind][1]
    path = tmp_path / "runs.csv"
    pd.DataFrame(rows).to_csv(path, index=False)
    expected = iso.read(path, **options)
    columns = {name: [row.get(name) for row in rows] for name in dict.fromkeys(name for row in rows for name in row)}
    frames = [rows, columns, pd.DataFrame(rows), pl.from_dicts(rows, infer_schema_length=None)]
    for frame in [*frames, pl.from_dicts(rows, infer_schema_length=None).to_arrow()]:
        assert iso.read(frame, **options).metrics == expected.metrics
        assert iso.RunSet.from_frame(frame, **options) == iso.read(frame, **options)
        mine, theirs = (one.to_polars().drop("run_id") for one in (iso.read(frame, **options), expected))
        assert mine.equals(theirs)
    assert iso.RunSet.read(path, **options) == expected


def test_what_is_no_table_is_refused_with_what_is(tmp_path: Path) -> None:
    with pytest.raises(iso.RecordError, match=r"isocompute_sdk\.read"):
        iso.RunSet(pl.DataFrame(own()))
    for source in (None, 3, pl.DataFrame(own()).lazy()):
        with pytest.raises(iso.RecordError, match="accepted"):
            iso.read(source)
    with pytest.raises(iso.RecordError, match="no column group_size"):
        iso.read([{"step": 1, "avg@4": 0.5}])
