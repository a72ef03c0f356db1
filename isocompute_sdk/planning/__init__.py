"""From fits and a budget to an executable plan."""

from isocompute_sdk.planning.assessment.alternatives import Alternative, Optimum
from isocompute_sdk.planning.assessment.verdict import Verdict
from isocompute_sdk.planning.changes import change_plan, differences
from isocompute_sdk.planning.experiment.next_runs import NextRun, NextRuns, PilotDesign
from isocompute_sdk.planning.plan import Plan
from isocompute_sdk.planning.planner import Planner
from isocompute_sdk.planning.questions.budget_for import BudgetFor
from isocompute_sdk.planning.questions.compare import PlanComparison
from isocompute_sdk.planning.questions.judge import Judgement
from isocompute_sdk.planning.questions.marginal import Marginal
from isocompute_sdk.planning.replanning.document import Option, Replan

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
