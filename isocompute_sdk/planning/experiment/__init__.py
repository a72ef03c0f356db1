"""What to run before a budget is spent: expected value of trial runs, pilot design, early stopping."""

from isocompute_sdk.planning.experiment.early_stopping import LOOKS, Prospect, prospects
from isocompute_sdk.planning.experiment.next_runs import NextRun, NextRuns, PilotDesign, ShareRegret
from isocompute_sdk.planning.experiment.pilot_design import design_pilot

__all__ = [
    "LOOKS",
    "NextRun",
    "NextRuns",
    "PilotDesign",
    "Prospect",
    "ShareRegret",
    "design_pilot",
    "prospects",
]
