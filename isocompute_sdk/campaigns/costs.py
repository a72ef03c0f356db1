"""What runs have cost so far, in any unit of a budget."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from isocompute_sdk.errors import IsoComputeError
from isocompute_sdk.run_folders.store import RunStatus
from isocompute_sdk.specs import Budget, Hardware, Throughput
from isocompute_sdk.timing.spending import spending
from isocompute_sdk.training.backend import Backend, follow


@dataclass(frozen=True)
class Cost:
    """What runs have cost. Amounts are None if neither logged nor known from a throughput."""

    rollouts: float = 0.0
    tokens: float | None = None
    gpu_hours: float | None = None
    usd: float | None = None

    def __add__(self, other: Cost) -> Cost:
        def both(one: float | None, two: float | None) -> float | None:
            return None if one is None and two is None else (one or 0.0) + (two or 0.0)

        return Cost(
            self.rollouts + other.rollouts,
            both(self.tokens, other.tokens),
            both(self.gpu_hours, other.gpu_hours),
            both(self.usd, other.usd),
        )

    def part(self, share: float) -> Cost:
        """A share of it."""
        amounts = (self.tokens, self.gpu_hours, self.usd)
        return Cost(share * self.rollouts, *(None if one is None else share * one for one in amounts))


def run_cost(
    status: RunStatus, backend: Backend, throughput: Throughput | None, hardware: Hardware, *, cpu_counts: bool
) -> tuple[Cost, Cost]:
    """What a run has cost: its training with start and lost attempts, and its evaluations.

    Args:
        status: the run.
        backend: reads what it logged.
        throughput: speed and price, for what was not logged.
        hardware: its GPUs.
        cpu_counts: whether the hours of a run on the CPU count, as they do against a budget in hours.
    """
    spent, gpus = spending([status.folder]), max(hardware.gpu_counts)
    evaluation = Cost(spent.evaluation_rollouts)
    if not status.rollouts:
        return Cost(0.0, 0.0, 0.0, 0.0), evaluation
    tokens, seconds = _logged(status.folder, backend)
    if tokens is None and throughput is not None and throughput.tokens_per_rollout is not None:
        tokens = throughput.tokens(status.rollouts)
    hours = seconds / 3600 if seconds is not None else spent.hours * gpus if spent.hours else None
    if hours is None and throughput is not None and status.step:
        with suppress(IsoComputeError):
            batch = (status.group_size or 1) * (status.problems_per_batch or 1)
            hours = throughput.gpu_hours(batch, status.step)
    if hours is None or (spent.cpu_hours and not cpu_counts):
        return Cost(float(status.rollouts), tokens), evaluation
    price = None if throughput is None else throughput.usd_per_gpu_hour
    evaluating = min(spent.evaluation_hours * gpus, hours)

    def paid(some: float) -> float | None:
        return None if price is None else price * some

    training = Cost(float(status.rollouts), tokens, hours - evaluating, paid(hours - evaluating))
    return training, Cost(spent.evaluation_rollouts, None, evaluating, paid(evaluating))


def cost_of(folder: Path, backend: Backend, budget: Budget, throughput: Throughput | None, hardware: Hardware) -> float:
    """What a run has cost, in the budget's unit; 0 if nothing tells."""
    status = follow(backend, folder).status()
    if budget.unit == "rollouts":
        return float(status.rollouts)
    training, evaluation = run_cost(status, backend, throughput, hardware, cpu_counts=True)
    return getattr(training + evaluation, budget.unit) or 0.0


def _logged(folder: Path, backend: Backend) -> tuple[float | None, float | None]:
    """Tokens and GPU-seconds by the run's own records."""
    try:
        table = backend.read_records(folder).to_polars()
    except IsoComputeError:
        return None, None
    tokens, seconds = (table[name].max() if name in table.columns else None for name in ("tokens", "gpu_seconds"))
    return (None if tokens is None else float(str(tokens))), (None if seconds is None else float(str(seconds)))
