"""What sick and healthy runs of one table do not share: advice out of the user's own data."""

from __future__ import annotations

from collections.abc import Sequence

from isocompute_sdk.health.traces import RunTraces

FEWEST = 2
"""Runs needed on either side; one against one says nothing."""
SETTINGS = {
    "problems_per_batch": "B_p",
    "group_size": "n",
    "learning_rate": "learning rate",
    "kl_coef": "KL coefficient",
    "entropy_coef": "entropy coefficient",
    "updates_per_batch": "updates per batch",
    "n_problems": "training problems",
}
"""Settings that are compared, by field."""


def contrast(sick: Sequence[RunTraces], healthy: Sequence[RunTraces]) -> list[str]:
    """A sentence for each setting in which all sick runs lie below, or all above, every healthy run."""
    if min(len(sick), len(healthy)) < FEWEST:
        return []
    told: list[str] = []
    for name, words in SETTINGS.items():
        bad, good = ([_setting(run, name) for run in runs] for runs in (sick, healthy))
        known_bad, known_good = ([v for v in values if v is not None] for values in (bad, good))
        if len(known_bad) < len(bad) or len(known_good) < len(good):
            continue
        if max(known_bad) < min(known_good):
            told.append(f"{words} of {min(known_good):g} or more: all {len(good)} runs there are without it")
        elif min(known_bad) > max(known_good):
            told.append(f"{words} of {max(known_good):g} or less: all {len(good)} runs there are without it")
    return told


def _setting(run: RunTraces, name: str) -> float | None:
    if name == "group_size":
        return run.group_size
    return run.problems_per_batch if name == "problems_per_batch" else run.context.get(name)
