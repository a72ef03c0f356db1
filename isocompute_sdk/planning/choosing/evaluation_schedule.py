"""How often a run is evaluated: as often as asked, unless that costs more than a share of the training."""

from __future__ import annotations

import math

from isocompute_sdk.specs import Evaluation

EVALUATION_SHARE = 0.05
"""Share of the training's cost that evaluations may add by default."""
ASSUMED_PROBLEMS = 300
"""Validation problems of an evaluation on a whole file of unknown size: the paper's number."""
ENDS = 2
"""The base model and the last step are always evaluated."""


def samples_per_evaluation(evaluation: Evaluation) -> int:
    """Responses sampled in one evaluation."""
    return (evaluation.n_problems or ASSUMED_PROBLEMS) * evaluation.samples


def evaluations(update_steps: int, every_steps: int) -> int:
    """Evaluations of a run: at step 0, then every `every_steps` steps, and after the last step."""
    return math.ceil(update_steps / every_steps) + 1


def interval(asked: int, update_steps: int, step_cost: float, evaluation_cost: float, share: float) -> int:
    """Fewest update steps between evaluations, at least `asked`, that keep their cost within the share.

    Args:
        asked: update steps between evaluations as asked for.
        update_steps: M.
        step_cost: cost of one update step.
        evaluation_cost: cost of one evaluation, in the same unit.
        share: largest cost of all evaluations, as a share of that of all steps.

    Returns:
        `update_steps` if the two evaluations at both ends alone cost more than the share.
    """
    allowed = math.floor(share * update_steps * step_cost / evaluation_cost + 1e-9)
    if allowed <= ENDS:
        return max(update_steps, 1)
    return min(max(asked, math.ceil(update_steps / (allowed - 1))), max(update_steps, 1))
