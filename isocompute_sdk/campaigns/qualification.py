"""Qualify a recipe before a pilot: short runs at two batch sizes, and at a third and three times the learning rate."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from isocompute_sdk.campaigns.decisions import Chosen
from isocompute_sdk.campaigns.run_health import checked_early, records_of
from isocompute_sdk.errors import RecordError
from isocompute_sdk.health.advice import ADVICE
from isocompute_sdk.notes import Note
from isocompute_sdk.records import RunSet
from isocompute_sdk.specs import Study
from isocompute_sdk.specs.budget import UNITS
from isocompute_sdk.specs.run import batch_refusal
from isocompute_sdk.training.backend import Backend

SHARE = 0.05
"""Largest share of the budget that the checks may cost."""
OF_PILOT = 1 / 3
"""Largest part of what checks and pilot may cost together."""
STEPS = 30
"""Update steps of a check; twice the warm-up if that is more."""
FEWEST_STEPS = 12
"""Update steps below which a check says nothing."""
APART = 4
"""Least ratio of the two group sizes."""
SMALLEST_SIZE = 4
FACTORS = (1.0, 1 / 3, 3.0)
"""Learning rates, as multiples of the recipe's."""
UNHEALTHY = frozenset(
    {"nothing-learned", "collapsed-run", "entropy-collapse", "entropy-explosion", "kl-drift", "sampler-mismatch"}
)
"""Warnings with these codes stop a campaign."""
BETTER = 3.0
"""Standard errors by which another learning rate must gain more, at both batch sizes."""


def choose_checks(study: Study, seed: int, sizes: Sequence[int]) -> tuple[tuple[Chosen, ...], str]:
    """The checks that the budget pays for, the most telling first, and why these.

    Args:
        study: recipe, hardware and budget.
        seed: seed of the checks.
        sizes: group sizes of the pilot, increasing; the two batch sizes lie within them. Empty: 8 and 32.

    Returns:
        Checks with the recipe's own learning rate are named as pilot runs, which may continue them. None where even two
        short ones would cost more than `SHARE` of the budget or `OF_PILOT` of its pilot.
    """
    low, high = (sizes[0], sizes[-1]) if sizes else (8, 32)
    low = max(low, SMALLEST_SIZE)
    problems = max(study.recipe.min_problems_per_batch, 1)
    most = _affordable(study)
    wanted = max(STEPS, 2 * study.recipe.warmup_steps)
    larger = [n for n in (2**k for k in range(40)) if low * APART <= n <= max(high, low * APART)]
    larger = [n for n in larger if batch_refusal(n, problems, study.hardware, study.recipe) is None]
    if batch_refusal(low, problems, study.hardware, study.recipe) is not None:
        return (), f"no checks: n = {low} at B_p = {problems} does not fit the hardware"
    # A long check of the recipe itself comes first, then the other learning rates, then larger batches.
    for factors, steps in ((FACTORS, wanted), (FACTORS[:1], wanted), (FACTORS[:1], FEWEST_STEPS)):
        for n in reversed(larger):
            cost = (low + n) * problems * steps * len(factors)
            if cost <= most:
                runs = tuple(_check(size, problems, steps, seed, factor) for size in (low, n) for factor in factors)
                rates = "at the recipe's learning rate" + (
                    ", a third and three times of it" if len(factors) > 1 else ""
                )
                return runs, f"{len(runs)} checks of {steps} steps at n = {low} and {n}, B_p = {problems}, {rates}"
    return (), f"no checks: two short ones would cost more than {SHARE:.0%} of the budget or a third of largest_share"


def checks_share(study: Study) -> float:
    """Largest share of the budget that the checks of a study may cost."""
    return SHARE if study.designed is None else min(SHARE, OF_PILOT * study.designed.largest_share)


def _affordable(study: Study) -> float:
    """Rollouts that checks may cost."""
    budget, speed = study.budget, study.throughput
    if budget is None:
        return 0.0
    share = checks_share(study)
    if budget.unit == "rollouts":
        return share * budget.amount
    if speed is None or budget.unit not in UNITS:
        return math.inf  # Nothing tells what they cost; they are short.
    per_rollout = {
        "tokens": speed.tokens_per_rollout or 0.0,
        "gpu_hours": speed.gpus / speed.rate / 3600,
        "usd": speed.gpus / speed.rate / 3600 * (speed.usd_per_gpu_hour or 0.0),
    }[budget.unit]
    return share * budget.amount / per_rollout if per_rollout else math.inf


def _check(n: int, problems: int, steps: int, seed: int, factor: float) -> Chosen:
    own = f"n{n}-bp{problems}-seed{seed}"
    name = own if factor == 1 else f"check-lr{factor:.2g}x-{own}"
    return Chosen(name, n, problems, steps, seed, factor)


def judge_checks(
    study: Study, checks: Sequence[Chosen], folders: Sequence[Path], backend: Backend, metric: str
) -> tuple[bool, str, tuple[Note, ...]]:
    """Whether the recipe is healthy, why, and what else was seen; `folders` are those of the checks."""
    if not checks:
        return True, "the recipe was not checked", ()
    found = {one: records_of(backend, folder) for one, folder in zip(checks, folders, strict=True)}
    sick = {one: checked_early(records, UNHEALTHY) for one, records in found.items() if records is not None}
    own = [(one, codes) for one, codes in sick.items() if codes and one.learning_rate_factor == 1]
    if own:
        one, codes = own[0]
        code, seen = next(iter(codes.items()))
        tries = "; ".join(str(each) for each in ADVICE[code].tries)
        slower = [o for o, c in sick.items() if o.learning_rate_factor < 1 and not c and o.group_size == one.group_size]
        better = f" At {slower[0].learning_rate_factor:.2g} times the learning rate it does not." if slower else ""
        return False, f"{one.run_id}: {ADVICE[code].title} [{code}]; {seen}.{better} To try: {tries}", ()
    notes = _rate_notes(study, {one: records for one, records in found.items() if records is not None}, metric)
    listed = ", ".join(f"{one.run_id}" for one in checks if one.learning_rate_factor == 1)
    return True, f"no detector warns of {listed}", tuple(notes)


def _rate_notes(study: Study, found: dict[Chosen, RunSet], metric: str) -> list[Note]:
    """`learning-rate-off`: another rate gains clearly more at every batch size."""
    rewards = {
        (one.group_size, one.learning_rate_factor): value
        for one, records in found.items()
        if (value := _last(records, metric)) is not None
    }
    sizes = sorted({n for n, _ in rewards})
    samples = study.evaluation.samples * (study.evaluation.n_problems or 300)
    notes: list[Note] = []
    for factor in FACTORS[1:]:
        pairs = [(rewards.get((n, factor)), rewards.get((n, 1.0))) for n in sizes]
        known = [(other, own) for other, own in pairs if other is not None and own is not None]
        if len(known) < 2 or len(known) < len(sizes):
            continue
        error = BETTER * math.sqrt(2 * 0.25 / samples)
        if all(other - own > error for other, own in known):
            gains = ", ".join(f"{other - own:+.3f} at n = {n}" for n, (other, own) in zip(sizes, known, strict=True))
            message = (
                f"{factor:.2g} times the recipe's learning rate gained more in the first steps at every batch size "
                f"({gains} of {metric}). Consider learning_rate_anchor = "
                f"{factor * study.recipe.learning_rate_anchor:.2g} in a study of another name."
            )
            notes.append(Note("learning-rate-off", "warning", message, {"factor": factor}))
    return notes


def _last(records: RunSet, metric: str) -> float | None:
    try:
        (series,) = records.series(metric, None)
    except (RecordError, ValueError):
        return None
    return float(series.value_T[-1])
