"""What runs that somebody already has really bought: each against the frontier at its compute."""

from isocompute_sdk.auditing.audit_runs import audit
from isocompute_sdk.auditing.result import Audit, Comparison, GroupAudit, ProposedRun, RunAudit, SizeAudit

__all__ = ["Audit", "Comparison", "GroupAudit", "ProposedRun", "RunAudit", "SizeAudit", "audit"]
