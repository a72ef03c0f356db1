"""What is asked of a `RunSet`: the metric of a question that names none, and the best@k beside a reward."""

from __future__ import annotations

from isocompute_sdk.metrics import LEADING, average_of
from isocompute_sdk.notes import Note
from isocompute_sdk.records.columns import check_fields
from isocompute_sdk.records.reward_metrics import (
    TRAIN_SET,
    choose,
    measured_in,
    metric_note,
    rivals,
    training_reward_note,
)
from isocompute_sdk.records.runset import RunSeries, RunSet


def unasked(runs: RunSet, eval_set: str | None) -> tuple[str, list[Note]]:
    """The metric of a question that names none, with a note unless it is avg@4.

    Args:
        runs: evaluations.
        eval_set: evaluation set; None for all of them.

    Raises:
        RecordError: as `choose`.
    """
    import polars as pl

    table = runs.to_polars()
    if eval_set is not None:
        check_fields([eval_set], runs.eval_sets, "eval_set")
        table = table.filter(pl.col("eval_set") == eval_set)
    if (table["metric"] == "avg@4").any():
        return "avg@4", []
    measured = measured_in(table)
    name, where = choose(measured)
    if where == TRAIN_SET:
        return name, [training_reward_note(name, asked=False)]
    return name, [metric_note((name, where), rivals((name, where), measured))]


def best_beside(runs: RunSet, metric: str, eval_set: str | None) -> dict[str, tuple[str, RunSeries]]:
    """Name and series of best@k by run, of runs that log it beside avg@k on the same evaluation set.

    Args:
        runs: the evaluations.
        metric: the reward; only avg@k has a best@k that leads it.
        eval_set: its evaluation set; None for the only one.
    """
    found: dict[str, tuple[str, RunSeries]] = {}
    if average_of(metric) is None:
        return found
    sets = (eval_set,) if eval_set is not None else tuple(runs.filter(metric=metric).eval_sets)
    for name in LEADING:
        if name in runs.metrics and len(sets) == 1 and sets[0] in runs.filter(metric=name).eval_sets:
            found = {one.run_id: (name, one) for one in runs.series(name, sets[0])} | found
    return found


def runs_without_sizes(runs: RunSet) -> dict[str, list[str]]:
    """Runs that were read without n or B_p -> what nothing says of them."""
    unsized = [note.data for note in runs.notes if note.code == "sizes-unknown"]
    return {run: data["columns"] for data in unsized for run in data["runs"]}
