"""From fits and a budget to an executable plan."""

from isocompute_sdk.planner.plan import Alternative, Plan
from isocompute_sdk.planner.planner import Planner

__all__ = ["Alternative", "Plan", "Planner"]
