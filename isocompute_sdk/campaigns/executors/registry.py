"""Executors by name, or from the `executor` of a study."""

from __future__ import annotations

from typing import cast

from isocompute_sdk.campaigns.executors.base import Executor
from isocompute_sdk.campaigns.executors.local import LocalExecutor
from isocompute_sdk.errors import BackendError
from isocompute_sdk.specs.executor import ExecutorSpec, executor_type

_METHODS = ("check", "adopt", "submit", "poll", "cancel")


def load(executor: ExecutorSpec | str | Executor | None) -> Executor:
    """The executor with this spec or this name, an executor as it is, or that of this machine if None.

    Raises:
        BackendError: no executor has that name, or what is registered is no executor.
    """
    if executor is None:
        return LocalExecutor()
    spec = executor_type(executor)(name=executor) if isinstance(executor, str) else executor
    made = spec.executor() if isinstance(spec, ExecutorSpec) else spec
    missing = [name for name in _METHODS if not callable(getattr(made, name, None))]
    if missing:
        raise BackendError(
            f"received {made!r} as executor, which lacks {', '.join(missing)}",
            "Give the name of an executor, or an object that meets isocompute_sdk.campaigns.executors.Executor.",
        )
    return cast("Executor", made)
