"""Is a run healthy? Detectors over what runs log, as coded notes that say what was seen, where, and what to try."""

from isocompute_sdk.health.report import Finding, Health
from isocompute_sdk.health.verdict import check_health

__all__ = ["Finding", "Health", "check_health"]
