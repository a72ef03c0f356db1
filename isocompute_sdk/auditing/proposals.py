"""`proposals`: the few runs that would settle what an audit leaves open, by what they are expected to save."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from isocompute_sdk.auditing.result import ProposedRun, RunAudit, SizeComparison
from isocompute_sdk.auditing.standing import Field
from isocompute_sdk.errors import PlanError
from isocompute_sdk.planning.asking import Question, ask
from isocompute_sdk.planning.next_runs import NextRun
from isocompute_sdk.planning.pricing import Pricing
from isocompute_sdk.specs import Budget, Hardware

MOST = 4
USUAL_PROBLEMS = 32
"""B_p if the runs do not state theirs: the smallest of the paper's sweeps."""
FEWEST_STEPS = 20
"""Fewest update steps of a proposed run: shorter runs hardly leave their warm-up."""


def proposals(known: Field, runs: Sequence[RunAudit], comparisons: Sequence[SizeComparison]) -> tuple[ProposedRun, ...]:
    """At most `MOST` runs of at most the longest run's length, most informative first.

    They lower the reward that is expected to be lost by training the n that looks best to that length. Nothing is
    planned with what they cost, so it does not count against them.
    """
    if comparisons and comparisons[0].verdict == "hardly-matters":
        return ()
    fits = known.fits
    target = max(run.rollouts for run in runs)
    stated = fits.problems_per_batch
    problems = _usual_problems(runs) or USUAL_PROBLEMS
    planned = fits.candidate_sizes(0) or [*fits.group_sizes]
    question = Question(
        fits=fits,
        pricing=Pricing(Budget(rollouts=target)),
        hardware=Hardware(),
        problems=(problems,),
        planned_sizes=tuple(sorted({*planned, *fits.group_sizes})),
        min_update_steps=1,
        plan=_best(known, target, problems),
        fewest_trial_steps=FEWEST_STEPS,
    )
    try:
        found = ask(question, MOST, np.random.default_rng(0), settle=True)
    except PlanError:
        return ()
    return tuple(_proposed(run, stated) for run in found.runs)


def _proposed(run: NextRun, stated: Sequence[int]) -> ProposedRun:
    return ProposedRun(
        run.group_size,
        run.problems_per_batch if stated else None,
        run.rollouts,
        run.settles,
        continues=run.continues,
        costs=round(run.cost),
    )


def _best(known: Field, target: float, problems: int) -> tuple[int, int]:
    """The n that looks best at the length of the longest run."""
    odds = known.fits.group_size_odds(target, problems_per_batch=problems)
    return int(odds.group_size[odds.best()]), problems


def _usual_problems(runs: Sequence[RunAudit]) -> int | None:
    known = [run.problems_per_batch for run in runs if run.problems_per_batch is not None]
    return max(set(known), key=lambda bp: (known.count(bp), -bp)) if known else None
