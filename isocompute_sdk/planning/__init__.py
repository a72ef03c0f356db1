"""From fits and a budget to an executable plan."""

from isocompute_sdk.planning.against import Against
from isocompute_sdk.planning.inverse import BudgetFor
from isocompute_sdk.planning.marginal import Marginal
from isocompute_sdk.planning.plan import Alternative, Plan
from isocompute_sdk.planning.planner import Planner
from isocompute_sdk.planning.verdict import Verdict

__all__ = ["Against", "Alternative", "BudgetFor", "Marginal", "Plan", "Planner", "Verdict"]
