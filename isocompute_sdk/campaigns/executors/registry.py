"""Executors by name, or from the `executor` of a study."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from isocompute_sdk.campaigns.executors.base import Executor
from isocompute_sdk.campaigns.executors.cluster import ClusterExecutor
from isocompute_sdk.campaigns.executors.local import ENGINE as LOCAL
from isocompute_sdk.campaigns.executors.local import LocalExecutor
from isocompute_sdk.errors import BackendError
from isocompute_sdk.run_folders import store
from isocompute_sdk.specs.study import ExecutorSpec, executor_type

_MEMBERS = ("name", "poll_seconds", "check", "adopt", "submit", "poll", "cancel")


def load(executor: ExecutorSpec | str | Executor | None) -> Executor:
    """The executor with this spec or this name, an executor as it is, or that of this machine if None."""
    if executor is None:
        return LocalExecutor()
    spec = executor_type(executor)(name=executor) if isinstance(executor, str) else executor
    made = spec.executor() if isinstance(spec, ExecutorSpec) else spec
    if isinstance(made, ClusterExecutor) and made.spec is None and isinstance(spec, ExecutorSpec):
        made = replace(made, spec=spec)
    missing = [name for name in _MEMBERS if not hasattr(made, name)]
    if missing:
        raise BackendError(
            f"received {made!r} as executor, which lacks {', '.join(missing)}",
            "Give the name of an executor, or an object that meets isocompute_sdk.campaigns.executors.Executor.",
        )
    return cast("Executor", made)


def executors_of(folders: Sequence[Path]) -> dict[Path, Executor]:
    """The executor that started the last attempt at each run, with its options; runs with the same options share one.

    It is that of this machine if there is no record.

    Raises:
        IsoComputeError: an executor is not installed here, or a record is damaged.
    """
    made: dict[str, Executor] = {}
    found: dict[Path, Executor] = {}
    for folder in folders:
        job, started = store.read_job(folder), store.read_started(folder)
        kept: dict[str, Any] = {} if job is None else dict(job.executor)
        kept.setdefault("name", LOCAL if started is None else started.engine)
        key = LOCAL if kept["name"] == LOCAL else json.dumps(kept, sort_keys=True)
        if key not in made:
            made[key] = LocalExecutor() if key == LOCAL else load(executor_type(kept["name"]).model_validate(kept))
        found[folder] = made[key]
    return found
