"""Parquet files."""

from __future__ import annotations

from pathlib import Path

from isocompute_sdk.errors import RecordError
from isocompute_sdk.ingest.stores.raw import RawTable


def read_parquet(path: Path) -> RawTable:
    """Read one Parquet file.

    Raises:
        RecordError: the file is not Parquet, or is not whole (its table of contents stands at its end).
    """
    import polars as pl

    try:
        frame = pl.read_parquet(path)
    except (pl.exceptions.PolarsError, OSError) as error:
        raise RecordError(
            f"{path} is not a whole Parquet file: {error}",
            "It may have been cut while it was written or copied: copy it again.",
        ) from error
    return RawTable(
        {name: frame[name] for name in frame.columns}, lambda index: f"{path}: row {index + 1} (index {index})"
    )
