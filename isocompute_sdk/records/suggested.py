"""What columns that nobody named may be: by what people call them, and by what they hold. Never taken unasked."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from isocompute_sdk.records import columns as schema
from isocompute_sdk.records.columns import numbers_in

if TYPE_CHECKING:
    import polars as pl


LIKELY: dict[str, str] = {
    "group_size": r"g|k|n(um)?_(samples|rollouts|gen.*)|samples|generations|gro?u?p(_?si?ze?)?",
    "problems_per_batch": r"b|p|bs|bsz|batch|batch_size|(n_|num_)?(prompts|problems)((_per_|/)\w+)?",
    "step": r"(\w+_)?steps?|(\w+_)?(it|its|iter|iters|iteration|iterations)|update|updates|t|step_idx",
    "rollouts": r"samples_seen|total_samples|episodes|total_episodes|num_rollouts_total",
}
"""What people call the columns that a table cannot do without."""


def suggested(wanted: str, present: Sequence[str]) -> str | None:
    """The column of the table that is most likely `wanted`."""
    column = schema.BY_NAME[wanted]
    likely = re.compile(LIKELY[wanted])
    near = (
        found
        for spelling in (wanted, *column.aliases)
        if (found := schema.close(spelling, present, cutoff=0.8)) is not None and schema.alike(found, spelling)
    )
    return next(near, None) or next((name for name in present if likely.fullmatch(schema.folded(name))), None)


def only_count(cells: Mapping[str, pl.Series]) -> str | None:
    """The one column of whole numbers from 0 up that mostly grows from row to row; None if there are several."""
    found: list[str] = []
    for name, column in cells.items():
        numbers = numbers_in(column)
        if numbers.null_count() or not len(numbers) or (numbers % 1 != 0).any():
            continue
        growing = int((numbers.diff() > 0).sum())
        if numbers.n_unique() > 2 and (numbers >= 0).all() and 2 * growing >= len(numbers):
            found.append(name)
    return found[0] if len(found) == 1 else None


def sizes_of_runs(known: Mapping[str, pl.Series], others: Mapping[str, pl.Series], step: str | None) -> list[str]:
    """Columns that may hold n: whole numbers that tell runs apart.

    Args:
        known: columns with a meaning, by their canonical name.
        others: the others, as the user called them.
        step: the one of them that counts steps, if none of `known` does.
    """
    import polars as pl

    settings = [cells for name, cells in known.items() if schema.BY_NAME[name].per_run]
    at = known.get("step") if step is None else others[step]
    rows = pl.DataFrame([one.alias(str(i)) for i, one in enumerate((at, *settings)) if one is not None])
    run, counts = known.get("run_id"), re.compile(f"{LIKELY['step']}|{LIKELY['rollouts']}")
    found: list[str] = []
    for name, cells in others.items():
        numbers = numbers_in(cells).alias("n")
        whole = not numbers.null_count() and (numbers % 1 == 0).all() and (numbers > 0).all()
        if not whole or numbers.n_unique() < 2 or counts.fullmatch(schema.folded(name)):
            continue
        if run is not None:
            apart = pl.DataFrame([run.alias("run"), numbers]).n_unique() == run.n_unique()
        else:
            apart = rows.is_duplicated().any() and not rows.with_columns(numbers).is_duplicated().any()
        if apart:
            found.append(name)
    return found
