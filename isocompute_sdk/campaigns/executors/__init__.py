"""Executors start prepared runs: the protocol, what drives it, and the executor for this machine."""

from isocompute_sdk.campaigns.executors.base import Executor, Handle, Job, Result, Seen
from isocompute_sdk.campaigns.executors.cluster import ClusterExecutor, Engine, EngineSilent
from isocompute_sdk.campaigns.executors.local import LocalExecutor, Slots
from isocompute_sdk.campaigns.executors.running import Leaving, Stopped, run_jobs, stop_runs, stop_study

__all__ = [
    "ClusterExecutor",
    "Engine",
    "EngineSilent",
    "Executor",
    "Handle",
    "Job",
    "Leaving",
    "LocalExecutor",
    "Result",
    "Seen",
    "Slots",
    "Stopped",
    "run_jobs",
    "stop_runs",
    "stop_study",
]
