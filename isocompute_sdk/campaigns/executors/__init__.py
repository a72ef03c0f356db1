"""Starting prepared runs: what an executor is given, what it answers, and the one for this machine."""

from isocompute_sdk.campaigns.executors.base import Executor, Job, Result
from isocompute_sdk.campaigns.executors.local import LocalExecutor

__all__ = ["Executor", "Job", "LocalExecutor", "Result"]
