"""What (n, B_p, M) costs in the budget's own unit, and how many steps a budget buys."""

from __future__ import annotations

import math
from dataclasses import dataclass

from isocompute_sdk.errors import PlanError
from isocompute_sdk.specs import Budget, Throughput


def amount_text(value: float, unit: str) -> str:
    """An amount with its unit: whole rollouts and tokens, two decimals of hours and money (more below 1)."""
    digits = 0 if unit in ("rollouts", "tokens") else 2
    number = f"{value:,.{digits}f}" if value >= 1 else f"{value:.3g}"
    return f"{number} {unit.replace('_', '-')}"


@dataclass(frozen=True)
class Pricing:
    """A budget with the throughput that translates its unit.

    Raises:
        PlanError: the budget's unit, or its deadline, cannot be translated without (that part of) a throughput.
    """

    budget: Budget
    throughput: Throughput | None = None

    def __post_init__(self) -> None:
        budget, throughput = self.budget, self.throughput
        if budget.unit == "rollouts" and budget.deadline_hours is None:
            return
        what = f"a budget in {budget.unit}" if budget.unit != "rollouts" else "a deadline"
        if throughput is None:
            raise PlanError(
                f"{what} cannot be translated into rollouts without a throughput",
                "Pass throughput=Throughput(step_overhead_seconds=..., rollouts_per_second=..., "
                "tokens_per_rollout=..., gpus=..., usd_per_gpu_hour=...).",
            )
        needed = {"tokens": "tokens_per_rollout", "usd": "usd_per_gpu_hour"}.get(budget.unit)
        if needed is not None and getattr(throughput, needed) is None:
            raise PlanError(f"{what} needs {needed}, which the throughput leaves out", f"Set Throughput.{needed}.")

    def cost(self, rollouts_per_batch: int, update_steps: int) -> float:
        """Cost in the budget's unit."""
        return self.cost_in(self.budget.unit, rollouts_per_batch, update_steps)

    def cost_in(self, unit: str, rollouts_per_batch: int, update_steps: int) -> float:
        """Cost in any unit that the throughput can express."""
        rollouts = rollouts_per_batch * update_steps
        if unit == "rollouts":
            return float(rollouts)
        throughput = self._throughput()
        match unit:
            case "tokens":
                return float(throughput.tokens(rollouts))
            case "gpu_hours":
                return float(throughput.gpu_hours(rollouts_per_batch, update_steps))
            case "usd":
                return float(throughput.usd(rollouts_per_batch, update_steps))
            case _:
                return float(throughput.wall_hours(rollouts_per_batch, update_steps))

    def all_costs(self, rollouts_per_batch: int, update_steps: int) -> dict[str, float]:
        """Cost in every unit at hand."""
        units = ["rollouts"]
        if self.throughput is not None:
            units += ["wall_hours", "gpu_hours"]
            units += ["tokens"] if self.throughput.tokens_per_rollout is not None else []
            units += ["usd"] if self.throughput.usd_per_gpu_hour is not None else []
        return {unit: self.cost_in(unit, rollouts_per_batch, update_steps) for unit in units}

    def affordable_steps(self, rollouts_per_batch: int) -> tuple[int, str]:
        """Most steps within budget and deadline, and which of the two ends there (`budget` or `deadline`)."""
        steps, limit = self._most(self.budget.unit, self.budget.amount, rollouts_per_batch), "budget"
        if self.budget.deadline_hours is not None:
            within = self._most("wall_hours", self.budget.deadline_hours, rollouts_per_batch)
            if within < steps:
                return within, "deadline"
        return steps, limit

    def within(self, rollouts_per_batch: int, update_steps: int) -> bool:
        """Whether this many steps fit budget and deadline."""
        return self.cost(rollouts_per_batch, update_steps) <= self.budget.amount and self.in_time(
            rollouts_per_batch, update_steps
        )

    def in_time(self, rollouts_per_batch: int, update_steps: int) -> bool:
        """Whether this many steps fit the deadline, which no budget can extend."""
        deadline = self.budget.deadline_hours
        return deadline is None or self.cost_in("wall_hours", rollouts_per_batch, update_steps) <= deadline

    def compute(self, rollouts: float, variable: str) -> float:
        """Rollouts on the compute axis of a law: as they are, or in tokens.

        Raises:
            PlanError: a law in tokens without tokens per rollout.
        """
        if variable != "log10_tokens":
            return rollouts
        if self.throughput is None or self.throughput.tokens_per_rollout is None:
            raise PlanError(
                "these fits count compute in tokens, and the tokens per rollout are not known",
                "Pass throughput=Throughput(tokens_per_rollout=...), or fit on rollouts.",
            )
        return float(self.throughput.tokens(rollouts))

    def _most(self, unit: str, amount: float, rollouts_per_batch: int) -> int:
        # Every unit's cost is linear in the number of steps; rounding may put the quotient off by a step.
        steps = math.floor(amount / self.cost_in(unit, rollouts_per_batch, 1))
        while self.cost_in(unit, rollouts_per_batch, steps + 1) <= amount:
            steps += 1
        while steps > 0 and self.cost_in(unit, rollouts_per_batch, steps) > amount:
            steps -= 1
        return steps

    def _throughput(self) -> Throughput:
        if self.throughput is None:
            raise PlanError("costs other than rollouts need a throughput", "Pass throughput=Throughput(...).")
        return self.throughput
