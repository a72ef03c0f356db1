"""Evaluations of training runs: one immutable table, `RunSet`."""

from isocompute_sdk.records.columns import COLUMNS, CONTEXT_FIELDS, DEFAULT_EVAL_SET, Column
from isocompute_sdk.records.runset import RunInfo, RunSeries, RunSet

__all__ = ["COLUMNS", "CONTEXT_FIELDS", "DEFAULT_EVAL_SET", "Column", "RunInfo", "RunSeries", "RunSet"]
