"""`proposals`: the runs that the planner would make next with what the audited runs show."""

from __future__ import annotations

from collections.abc import Sequence

from isocompute_sdk.auditing.result import ProposedRun
from isocompute_sdk.auditing.standing import Field
from isocompute_sdk.errors import PlanError
from isocompute_sdk.planning import Planner
from isocompute_sdk.planning.next_runs import NextRun


def proposals(known: Field) -> tuple[ProposedRun, ...]:
    """What `Planner.next_runs` names for `NEAR` times the largest compute of these runs."""
    try:
        found = Planner(known.fits, allow_off_policy=True).next_runs()
    except PlanError:
        return ()
    return tuple(_proposed(run, known.fits.problems_per_batch) for run in found.runs)


def _proposed(run: NextRun, stated: Sequence[int]) -> ProposedRun:
    return ProposedRun(
        run.group_size,
        run.problems_per_batch if stated else None,
        run.rollouts,
        run.settles,
        continues=run.continues,
        costs=round(run.cost),
    )
