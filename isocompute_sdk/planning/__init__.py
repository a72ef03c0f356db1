"""From fits and a budget to an executable plan."""

from isocompute_sdk.planning.alternatives import Alternative, Optimum
from isocompute_sdk.planning.budgets import BudgetFor, Marginal
from isocompute_sdk.planning.changes import change_plan, differences
from isocompute_sdk.planning.comparing import Judgement, PlanComparison
from isocompute_sdk.planning.next_runs import NextRun, NextRuns, PilotDesign
from isocompute_sdk.planning.plan import Plan
from isocompute_sdk.planning.planner import Planner
from isocompute_sdk.planning.replan import Option, Replan
from isocompute_sdk.planning.verdict import Verdict

__all__ = [
    "Alternative",
    "BudgetFor",
    "Judgement",
    "Marginal",
    "NextRun",
    "NextRuns",
    "Optimum",
    "Option",
    "PilotDesign",
    "Plan",
    "PlanComparison",
    "Planner",
    "Replan",
    "Verdict",
    "change_plan",
    "differences",
]
