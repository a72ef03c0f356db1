"""Audit of existing runs: each run and each group size against the best known n at the same compute."""

from isocompute_sdk.auditing.audit_runs import audit
from isocompute_sdk.auditing.result import Audit, GroupAudit, RunAudit

__all__ = ["Audit", "GroupAudit", "RunAudit", "audit"]
