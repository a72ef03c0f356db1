"""Executors start prepared runs: the protocol, what drives it, and the executor for this machine."""

from isocompute_sdk.campaigns.executors.base import Executor, Handle, Job, Result, Seen
from isocompute_sdk.campaigns.executors.local import LocalExecutor, Slots
from isocompute_sdk.campaigns.executors.running import run_jobs

__all__ = ["Executor", "Handle", "Job", "LocalExecutor", "Result", "Seen", "Slots", "run_jobs"]
