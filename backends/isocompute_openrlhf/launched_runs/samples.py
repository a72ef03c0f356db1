"""The records of single samples that reward_wrapper.py keeps: exact avg@k, best@k and worst@k come from them.

OpenRLHF logs the mean and the mean of the largest reward, never the smallest, and only for prompts that it can match
to their data set. A record holds problem, split, score and attempt, not the update step: all evaluations of an attempt
sample every problem k times, so that the j-th k records of a problem belong to its j-th evaluation.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from isocompute_sdk.files import parse_json

if TYPE_CHECKING:
    import polars as pl
    from numpy.typing import NDArray

PATTERN = "samples.*.jsonl"


@dataclass(frozen=True)
class Samples:
    """All records of one run, in the order in which they were written."""

    frame: pl.DataFrame
    """Columns id, split, score, failed (whether the reward function failed), attempt."""
    unreadable: int
    """Lines that could not be read, as when a process was killed or the disk was full."""

    def count(self, split: str, attempt: int) -> int:
        """Samples of one split in one attempt."""
        return len(self._part(split, attempt))

    def evaluations(self, split: str, attempt: int, ids: Sequence[str], k: int) -> list[NDArray[np.float64]]:
        """Scores of each complete evaluation of an attempt, shape (problems, k), problems in the order of `ids`."""
        import polars as pl

        part = self._part(split, attempt)
        counts = dict(part.group_by("id").len().iter_rows())
        complete = min((counts.get(name, 0) for name in ids), default=0) // k
        if not complete:
            return []
        position = {name: index for index, name in enumerate(ids)}
        ordered = (
            part.filter(pl.col("id").is_in(list(ids)))
            .with_columns(
                (pl.int_range(pl.len()).over("id") // k).alias("evaluation"),
                pl.col("id").replace_strict(position, return_dtype=pl.Int64).alias("problem"),
            )
            .filter(pl.col("evaluation") < complete)
            .sort("evaluation", "problem", maintain_order=True)
        )
        return list(ordered["score"].to_numpy().reshape(complete, len(ids), k))

    def zero_variance_shares(self, attempt: int, rollouts_per_batch: int) -> list[float]:
        """Of each whole rollout batch of an attempt, the share of problems whose samples all scored the same."""
        import polars as pl

        part = self._part("train", attempt)
        whole = len(part) // rollouts_per_batch
        groups = (
            part.head(whole * rollouts_per_batch)
            .with_columns((pl.int_range(pl.len()) // rollouts_per_batch).alias("batch"))
            .group_by("batch", "id")
            .agg((pl.col("score").min() == pl.col("score").max()).alias("equal"))
        )
        return groups.group_by("batch").agg(pl.col("equal").mean()).sort("batch")["equal"].to_list()

    def _part(self, split: str, attempt: int) -> pl.DataFrame:
        import polars as pl

        return self.frame.filter((pl.col("split") == split) & (pl.col("attempt") == attempt))


def read_samples(folder: Path) -> Samples:
    """Every record in a run folder."""
    import polars as pl

    parts: list[pl.DataFrame] = []
    unreadable = 0
    for path in sorted(folder.glob(PATTERN)):
        content = path.read_bytes()
        try:
            parts.append(_parsed(content))
        except pl.exceptions.ComputeError:
            lines = content.splitlines()
            whole = [line for line in lines if _is_json(line)]
            unreadable += sum(bool(line.strip()) for line in lines) - len(whole)
            parts.append(_parsed(b"\n".join(whole)))
    frame = pl.concat([_parsed(b""), *parts]).sort("time", maintain_order=True)
    return Samples(
        frame.select("id", "split", "score", pl.col("error").is_not_null().alias("failed"), "attempt"), unreadable
    )


def _parsed(content: bytes) -> pl.DataFrame:
    import polars as pl

    schema = {
        "id": pl.String(),
        "split": pl.String(),
        "score": pl.Float64(),
        "error": pl.String(),
        "attempt": pl.Int64(),
        "time": pl.Float64(),
    }
    return pl.read_ndjson(io.BytesIO(content), schema=schema) if content.strip() else pl.DataFrame(schema=schema)


def _is_json(line: bytes) -> bool:
    try:
        return isinstance(parse_json(line), dict)
    except ValueError:
        return False
