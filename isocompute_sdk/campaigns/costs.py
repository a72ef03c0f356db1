"""What runs have cost so far, in any unit of a budget."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from isocompute_sdk.errors import IsoComputeError
from isocompute_sdk.run_folders.store import RunStatus
from isocompute_sdk.specs import Budget, Hardware, Throughput
from isocompute_sdk.timing.spending import spending
from isocompute_sdk.training.backend import Backend, follow


@dataclass(frozen=True)
class Cost:
    """Cost of one run so far. Amounts are None if neither logged nor known from a throughput."""

    rollouts: int
    evaluation_rollouts: float
    tokens: float | None
    gpu_hours: float | None
    """With evaluations, start and lost attempts."""
    evaluation_hours: float | None
    usd: float | None
    on_cpu: bool = False
    """Whether the hours are those of a CPU: they count against a budget in hours, and are no GPU-hours elsewhere."""

    def amount(self, unit: str) -> float | None:
        """In one unit of a budget."""
        return float(self.rollouts) if unit == "rollouts" else getattr(self, unit)


def run_cost(
    folder: Path, backend: Backend, throughput: Throughput | None, hardware: Hardware, status: RunStatus | None = None
) -> Cost:
    """What the run in a folder has cost; nothing for a run that has not begun."""
    seen = follow(backend, folder).status() if status is None else status
    gpus = max(hardware.gpu_counts)
    spent = spending([folder])
    tokens, seconds = _logged(folder, backend)
    if tokens is None and throughput is not None and throughput.tokens_per_rollout is not None:
        tokens = throughput.tokens(seen.rollouts)
    hours = seconds / 3600 if seconds is not None else spent.hours * gpus if spent.hours else None
    if hours is None and throughput is not None and seen.step:
        batch = (seen.group_size or 1) * (seen.problems_per_batch or 1)
        with suppress(IsoComputeError):
            hours = throughput.gpu_hours(batch, seen.step)
    price = None if throughput is None else throughput.usd_per_gpu_hour
    return Cost(
        rollouts=seen.rollouts,
        evaluation_rollouts=spent.evaluation_rollouts,
        tokens=tokens if seen.rollouts else 0.0,
        gpu_hours=hours if seen.rollouts else 0.0,
        evaluation_hours=spent.evaluation_hours * gpus if spent.hours else None,
        usd=(None if hours is None or price is None else hours * price) if seen.rollouts else 0.0,
        on_cpu=spent.cpu_hours > 0,
    )


def cost_of(folder: Path, backend: Backend, budget: Budget, throughput: Throughput | None, hardware: Hardware) -> float:
    """What a run has cost, in the budget's unit; 0 if nothing tells."""
    if budget.unit == "rollouts":
        return float(follow(backend, folder).status().rollouts)
    return run_cost(folder, backend, throughput, hardware).amount(budget.unit) or 0.0


def _logged(folder: Path, backend: Backend) -> tuple[float | None, float | None]:
    """Tokens and GPU-seconds by the run's own records."""
    try:
        table = backend.read_records(folder).to_polars()
    except IsoComputeError:
        return None, None

    def largest(name: str) -> float | None:
        found: Any = table[name].max() if name in table.columns else None
        return None if found is None else float(found)

    return largest("tokens"), largest("gpu_seconds")
