"""`Request`: the arguments of `Planner.allocate`, checked once and passed on as one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, cast

import numpy as np

from isocompute_sdk.errors import PlanError
from isocompute_sdk.planning.candidates import Fixed
from isocompute_sdk.planning.choice import Mode
from isocompute_sdk.planning.schedule import EVALUATION_SHARE
from isocompute_sdk.specs import Budget


@dataclass(frozen=True)
class Request:
    """What is asked of a planner; fields as the arguments of `Planner.allocate`.

    Raises:
        PlanError: a value that is not accepted.
    """

    budget: Budget
    fixed: Fixed
    mode: Mode = "expected"
    beyond_grid: int | Literal["auto"] = "auto"
    n_problems: int | None = None
    min_update_steps: int | None = None
    spend: Literal["worthwhile", "all"] = "worthwhile"
    powers_of_two: bool = True
    evaluation_share: float = EVALUATION_SHARE

    def __post_init__(self) -> None:
        if self.mode not in ("expected", "conservative"):
            raise PlanError(f"mode = {self.mode!r}; accepted: 'expected', 'conservative'", "Use one of the two.")
        if self.spend not in ("worthwhile", "all"):
            raise PlanError(f"spend = {self.spend!r}; accepted: 'worthwhile', 'all'", "Use one of the two.")
        octaves: object = self.beyond_grid
        whole_octaves = isinstance(octaves, int | np.integer) and not isinstance(octaves, bool) and octaves >= 0
        if not whole_octaves and not (isinstance(octaves, str) and octaves == "auto"):
            raise PlanError(
                f"beyond_grid = {octaves!r}; accepted: 'auto' or a whole number of octaves, 0 or more",
                "Leave it at 'auto' where in doubt.",
            )
        share = cast("Any", self.evaluation_share)
        if isinstance(share, bool) or not isinstance(share, int | float | np.number) or not 0 < share <= 1:
            raise PlanError(
                f"evaluation_share = {self.evaluation_share!r}; accepted: above 0, at most 1",
                "Leave it at 0.05 where in doubt.",
            )


def whole(name: str, value: object) -> int | None:
    """A whole number from 1 up as an int; None stays None.

    Raises:
        PlanError: anything else.
    """
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise PlanError(f"{name} = {value!r}; accepted: a whole number, 1 or more", "Correct it, or leave it out.")
    return int(value)
