"""From fits and a budget to an executable plan."""

from isocompute_sdk.planning.changes import change_plan, differences
from isocompute_sdk.planning.comparing import PlanComparison
from isocompute_sdk.planning.next_runs import NextRun, NextRuns
from isocompute_sdk.planning.pilot_design import PilotDesign
from isocompute_sdk.planning.plan import Plan
from isocompute_sdk.planning.plan_parts import Alternative, Odds, Verdict
from isocompute_sdk.planning.planner import Planner
from isocompute_sdk.planning.questions import BudgetFor, Marginal
from isocompute_sdk.planning.replan import Option, Replan

__all__ = [
    "Alternative",
    "BudgetFor",
    "Marginal",
    "NextRun",
    "NextRuns",
    "Odds",
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
