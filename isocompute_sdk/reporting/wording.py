"""Numbers and names as a report writes them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from shlex import quote

from isocompute_sdk.planning import Plan
from isocompute_sdk.specs import Budget

UNITS = {"rollouts": "rollouts", "tokens": "tokens", "gpu_hours": "GPU-hours", "wall_hours": "hours"}


def amount(value: float, unit: str) -> str:
    """An amount with its unit: `1,200 rollouts`, `25.3 GPU-hours`, `$75`."""
    if unit == "usd":
        return f"${value:,.0f}" if value >= 100 else f"${value:,.2f}"
    digits = 0 if unit in ("rollouts", "tokens") or value >= 100 else 1 if value >= 1 else 3
    return f"{value:,.{digits}f} {UNITS[unit]}"


def budget_option(budget: Budget) -> str:
    """`--budget` with the amount, quoted for a shell."""
    unit = "" if budget.unit == "rollouts" else f" {budget.unit}"
    return f"--budget {quote(f'{budget.amount:.12g}{unit}')}"


def costs(found: Mapping[str, float], *, briefly: bool = False) -> str:
    """All costs that matter to people, money first: `$75, 25.3 GPU-hours, 1,200 rollouts`.

    `briefly` leaves rollouts out where hours or money are known.
    """
    units = [unit for unit in ("usd", "gpu_hours", "rollouts") if unit in found]
    units = units[:-1] if briefly and len(units) > 1 else units
    return ", ".join(amount(found[unit], unit) for unit in units)


def reward(value: float | None) -> str:
    """A reward with three decimals."""
    return "not predicted" if value is None else f"{value:.3f}"


def interval(ends: tuple[float, float] | None) -> str:
    """An interval of rewards."""
    return "" if ends is None else f"{ends[0]:.3f} to {ends[1]:.3f}"


def signed(mean: float, low: float | None = None, high: float | None = None) -> str:
    """A difference of rewards with its interval."""
    # Adding zero turns a rounded -0.0 into 0.0.
    mean = round(mean, 3) + 0.0
    text = f"{mean:+.3f}"
    if low is None or high is None or math.isnan(low) or math.isnan(high):
        return text
    return f"{text} ({round(low, 3) + 0.0:+.3f} to {round(high, 3) + 0.0:+.3f})"


def chance(share: float) -> str:
    """A probability without false certainty: `97 %`, `above 99 %`."""
    return "above 99 %" if share > 0.99 else "below 1 %" if share < 0.01 else f"{share:.0%}".replace("%", " %")


def configuration(plan: Plan) -> str:
    """What to run, in words."""
    return (
        f"{plan.group_size} rollouts per problem (n = {plan.group_size}), {plan.problems_per_batch} problems per "
        f"batch, {plan.update_steps:,} update steps"
    )


def plural(count: int, noun: str) -> str:
    """`1 run`, `2 runs`."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")
