"""Detectors of unhealthy runs over what they log: coded notes with the numbers, the step and advice."""

from isocompute_sdk.health.detectors import check_health
from isocompute_sdk.health.findings import Finding, Health

__all__ = ["Finding", "Health", "check_health"]
