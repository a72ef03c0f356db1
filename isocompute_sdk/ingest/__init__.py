"""Reading evaluations from files: CSV, Parquet, JSONL and W&B CSV exports."""

from isocompute_sdk.ingest.paths import FORMATS
from isocompute_sdk.ingest.reader import read_runs

__all__ = ["FORMATS", "read_runs"]
