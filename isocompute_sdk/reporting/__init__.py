"""The answer on one page: a self-contained HTML report of a plan, fits, runs, an audit or a campaign."""

from isocompute_sdk.reporting.report import report

__all__ = ["report"]
