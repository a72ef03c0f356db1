"""Executors start prepared runs: the protocol, and the executor for this machine."""

from isocompute_sdk.campaigns.executors.base import Executor, Job, Result
from isocompute_sdk.campaigns.executors.local import LocalExecutor

__all__ = ["Executor", "Job", "LocalExecutor", "Result"]
