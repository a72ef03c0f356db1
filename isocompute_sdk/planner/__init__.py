"""From fits and a budget to an executable plan."""

from isocompute_sdk.planner.against import Against
from isocompute_sdk.planner.inverse import BudgetFor
from isocompute_sdk.planner.marginal import Marginal
from isocompute_sdk.planner.plan import Alternative, Plan
from isocompute_sdk.planner.planner import Planner

__all__ = ["Against", "Alternative", "BudgetFor", "Marginal", "Plan", "Planner"]
