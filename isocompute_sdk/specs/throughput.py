"""`Throughput`: how rollouts turn into seconds, tokens, GPU-hours and money on the user's machines."""

from __future__ import annotations

from typing import Annotated

from isocompute_sdk.errors import SpecError
from isocompute_sdk.specs.base import Spec
from isocompute_sdk.specs.quantities import Count, Number, Quantity


class Throughput(Spec):
    """Cost model of one update step: a fixed overhead, then rollouts at a constant rate.

    One step of B rollouts takes `step_overhead_seconds + B / rollouts_per_second` of wall-clock time.
    """

    step_overhead_seconds: Annotated[float, Number(ge=0)]
    """Wall-clock seconds per update step that do not depend on the batch (weight sync, optimiser, logging)."""
    rollouts_per_second: Quantity
    """Rollouts sampled and trained on per wall-clock second, all GPUs together."""
    tokens_per_rollout: Quantity | None = None
    """Mean sampled tokens per rollout. None: unknown, and budgets in tokens cannot be used."""
    gpus: Count = 1
    """GPUs that the run occupies."""
    usd_per_gpu_hour: Quantity | None = None
    """Price of one GPU for one hour, in US dollars. None: unknown, and budgets in usd cannot be used."""

    def step_seconds(self, rollouts_per_batch: float) -> float:
        """Wall-clock seconds of one update step of B rollouts."""
        return self.step_overhead_seconds + rollouts_per_batch / self.rollouts_per_second

    def wall_hours(self, rollouts_per_batch: float, update_steps: float) -> float:
        """Wall-clock hours of M update steps of B rollouts."""
        return update_steps * self.step_seconds(rollouts_per_batch) / 3600.0

    def gpu_hours(self, rollouts_per_batch: float, update_steps: float) -> float:
        """GPU-hours of M update steps of B rollouts."""
        return self.gpus * self.wall_hours(rollouts_per_batch, update_steps)

    def usd(self, rollouts_per_batch: float, update_steps: float) -> float:
        """Price of M update steps of B rollouts, in US dollars.

        Raises:
            SpecError: `usd_per_gpu_hour` is not known.
        """
        if self.usd_per_gpu_hour is None:
            raise SpecError(
                "Throughput.usd_per_gpu_hour is None; a cost in usd needs the price of a GPU-hour",
                "Give Throughput(..., usd_per_gpu_hour=...), or a budget in gpu_hours or rollouts.",
            )
        return self.usd_per_gpu_hour * self.gpu_hours(rollouts_per_batch, update_steps)

    def tokens(self, rollouts: float) -> float:
        """Sampled tokens of that many rollouts.

        Raises:
            SpecError: `tokens_per_rollout` is not known.
        """
        if self.tokens_per_rollout is None:
            raise SpecError(
                "Throughput.tokens_per_rollout is None; a cost in tokens needs the mean length of a rollout",
                "Give Throughput(..., tokens_per_rollout=...), or a budget in rollouts.",
            )
        return self.tokens_per_rollout * rollouts
