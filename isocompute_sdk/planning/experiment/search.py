"""Which trials to make: candidates, and the greedy choice of as many as there are slots."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from isocompute_sdk.planning.experiment.decision import Outlook, Trial, Worth
from isocompute_sdk.tolerances import Tolerances

SHARES = (0.01, 0.02, 0.04, 0.08, 0.15, 0.3)
"""Costs of candidate runs, as shares of the budget."""
FEWEST_STEPS = 30
"""Fewest update steps of a new run: shorter ones hardly leave their warm-up and show little of the rise."""
FEWEST_ADDED = 8
"""Fewest update steps that a continuation adds."""
NEAR_MOST = 0.6
"""Candidates that save at least this share of the most that any saves are compared by what they save per cost."""
BELOW, ABOVE = 2, 1
"""Octaves below and above the n that were run in which candidates lie."""
SMALLEST_SIZE = 8
"""Smallest n that is proposed below those that were run: n = 2 and 4 gained nothing (docs/pilot.md)."""
LARGEST_SIZE = 512
"""Largest n that is proposed above those that were run: n = 1,024 and 2,048 never reached the frontier of the published
sweeps."""


@dataclass(frozen=True)
class Ran:
    """A run that exists."""

    run_id: str | None
    """None where runs are known by configuration only."""
    group_size: int
    problems_per_batch: int
    update_steps: int
    seed: int = 0


@dataclass(frozen=True)
class Pick:
    """A trial that is worth making."""

    trial: Trial
    saving: float
    """Expected saving beside the picks before it, less its cost."""
    worth: Worth
    """Of all picks up to this one together."""


def candidates(
    sizes: Sequence[int],
    problems: Sequence[int],
    ran: Sequence[Ran],
    cost: Callable[[int, int], float],
    budget: float,
    fewest_steps: int = FEWEST_STEPS,
    most: float | None = None,
    shares: Sequence[float] = SHARES,
) -> list[Trial]:
    """New runs, second seeds and continuations, at costs that are shares of the budget.

    Args:
        sizes: group sizes.
        problems: numbers of problems per batch.
        ran: runs that exist; a continuation starts where they end.
        cost: of (rollouts per batch, update steps), in the budget's unit.
        budget: what is left of it.
        fewest_steps: fewest update steps of a new run.
        most: largest cost of a run; None for the largest of the shares.
        shares: costs of runs, as shares of the budget, increasing.
    """
    limit = shares[-1] * budget if most is None else most
    amounts = sorted({min(share * budget, limit) for share in shares})
    found: list[Trial] = []
    for bp in problems:
        for n in sizes:
            seed = 1 + max((one.seed for one in ran if (one.group_size, one.problems_per_batch) == (n, bp)), default=-1)
            found += _lengths(n, bp, seed, None, 0, amounts, cost, fewest_steps)
    for one in ran:
        if one.run_id is not None:
            n, bp = one.group_size, one.problems_per_batch
            found += _lengths(n, bp, one.seed, one.run_id, one.update_steps, amounts, cost, FEWEST_ADDED)
    return found


def _lengths(
    n: int,
    bp: int,
    seed: int,
    continues: str | None,
    begins: int,
    amounts: Sequence[float],
    cost: Callable[[int, int], float],
    fewest_steps: int,
) -> list[Trial]:
    batch, found = n * bp, dict[int, Trial]()
    spent = cost(batch, begins) if begins else 0.0
    one = max(cost(batch, begins + fewest_steps) - spent, 1e-12) / fewest_steps
    for amount in amounts:
        steps = begins + math.floor(amount / one)
        while steps > begins and cost(batch, steps) - spent > amount * (1 + 1e-9):
            steps -= max(1, (steps - begins) // 50)
        if steps - begins >= fewest_steps:
            found[steps] = Trial(n, bp, steps, seed, cost(batch, steps) - spent, continues, begins)
    return list(found.values())


def choose(
    outlook: Outlook,
    trials: Sequence[Trial],
    slots: int,
    most: float | None = None,
    *,
    made: Sequence[Trial] = (),
) -> list[Pick]:
    """At most `slots` trials, one after the other, each the one that saves most for its cost beside those before.

    Args:
        outlook: what is believed and decided.
        trials: candidates.
        slots: most trials.
        most: largest cost of all together; None for no limit.
        made: trials that are made in any case; what the others save is beside them.
    """
    floor = Tolerances(outlook.choices.span).nothing
    left, picks = list(trials), list[Pick]()
    if not left:
        return picks
    shown = outlook.shown(left)
    before = (shown[0][:0], shown[1][:0])
    saved = 0.0
    if made:
        before = outlook.shown(made)
        last, others = (before[0][-1:], before[1][-1:]), (before[0][:-1], before[1][:-1])
        saved = outlook.worth(made[:-1], made[-1:], last, others)[0].saving
    while len(picks) < slots:
        spent = sum(pick.trial.cost for pick in picks)
        able = [i for i, trial in enumerate(left) if most is None or spent + trial.cost <= most * (1 + 1e-9)]
        if not able:
            break
        asked = [left[i] for i in able]
        beside = [*made, *(p.trial for p in picks)]
        worths = outlook.worth(beside, asked, (shown[0][able], shown[1][able]), before)
        saving_E = np.array([worth.saving for worth in worths]) - saved
        top = float(saving_E.max())
        if top <= floor:
            break
        per_cost_E = np.where(saving_E >= NEAR_MOST * top, saving_E / np.array([t.cost for t in asked]), -np.inf)
        best = int(np.argmax(per_cost_E))
        picks.append(Pick(asked[best], float(saving_E[best]), worths[best]))
        saved = worths[best].saving
        index = able[best]
        before = (
            np.concatenate([before[0], shown[0][index : index + 1]]),
            np.concatenate([before[1], shown[1][index : index + 1]]),
        )
        left, shown = _without(left, shown, index)
        if not left:
            break
    return picks


def _without(
    trials: list[Trial], shown: tuple[np.ndarray, np.ndarray], taken: int
) -> tuple[list[Trial], tuple[np.ndarray, np.ndarray]]:
    """The other candidates: none continues the same run, and new runs of the same configuration get the next seed."""
    chosen = trials[taken]
    keep = [
        i
        for i, t in enumerate(trials)
        if i != taken and not (chosen.continues is not None and t.continues == chosen.continues)
    ]
    same = (chosen.group_size, chosen.problems_per_batch, chosen.seed)
    rest = [
        replace(trials[i], seed=chosen.seed + 1)
        if chosen.continues is None
        and trials[i].continues is None
        and (trials[i].group_size, trials[i].problems_per_batch, trials[i].seed) == same
        else trials[i]
        for i in keep
    ]
    return rest, (shown[0][keep], shown[1][keep])
