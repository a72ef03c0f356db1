"""Parquet files."""

from __future__ import annotations

from pathlib import Path

from isocompute_sdk.errors import RecordError
from isocompute_sdk.files import check_input
from isocompute_sdk.ingest.tables.raw import RawTable, check_size


def read_parquet(path: Path) -> RawTable:
    """Read one Parquet file.

    Raises:
        RecordError: the file is not Parquet, or is not whole (its table of contents stands at its end), or is
            too large.
    """
    import polars as pl

    check_input(path, what="a Parquet file", error=RecordError)
    try:
        rows: int = pl.scan_parquet(path).select(pl.len()).collect().item()
        check_size(path, len(pl.read_parquet_schema(path)), rows)
        frame = pl.read_parquet(path)
    except (pl.exceptions.PolarsError, OSError) as error:
        raise RecordError(
            f"{path} is not a whole Parquet file: {error}",
            "It may have been cut while it was written or copied: copy it again.",
        ) from error
    return RawTable(
        {name: frame[name] for name in frame.columns}, lambda index: f"{path}: row {index + 1} (index {index})"
    )
