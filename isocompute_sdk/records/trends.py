"""Whether rewards rise at all, before anything is fitted to them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from isocompute_sdk.notes import Note

Array = NDArray[np.float64]
LEAST_Z = 1.645
"""Standard errors from which a trend of all runs counts as a rise, one-sided 5 %."""
ENOUGH_Z = 2 * LEAST_Z
"""Standard errors of the trend if every value were above those before it; with less there are too few to tell."""
MOST_VALUES = 100
"""Values of a run that are compared; longer runs are averaged down to so many."""


def no_rise(curves: Iterable[Array]) -> bool:
    """Whether rewards show no rise, all runs together.

    Neither Kendall's trend of whole runs, nor that of their first halves, nor the step from the first value to the mean
    of the others exceeds what noise does.

    Args:
        curves: values of each run in order.

    Returns:
        False also where there are too few values to tell.
    """
    values = [_shortened(value_T) for value_T in curves]
    whole, most = _trend(values)
    half, _ = _trend([value_T[: (len(value_T) + 1) // 2] for value_T in values])
    return most >= ENOUGH_Z and max(whole, half, _step(values)) < LEAST_Z


def no_rise_note(metric: str, runs: int) -> Note:
    """That rewards do not rise, and what follows."""
    which = "the run does not rise" if runs == 1 else f"none of the {runs} runs rises"
    message = (
        f"no rise seen: {which} in {metric} beyond noise, so that no n can be told from another and no forecast means "
        "anything. Check the reward, the learning rate, and how hard the problems are."
    )
    return Note("no-rise-seen", "warning", message, {"metric": metric, "runs": runs})


def _shortened(value_T: Array) -> Array:
    finite_T = value_T[np.isfinite(value_T)]
    pieces = np.array_split(finite_T, min(len(finite_T), MOST_VALUES)) if len(finite_T) else []
    return np.array([piece.mean() for piece in pieces])


def _trend(curves: Sequence[Array]) -> tuple[float, float]:
    """Kendall's trend, pooled, in standard errors; and the largest that so many values could have."""
    score = most = variance = 0.0
    for value_T in curves:
        count = len(value_T)
        score += float(np.triu(np.sign(value_T[None, :] - value_T[:, None]), 1).sum())
        most += count * (count - 1) / 2
        variance += count * (count - 1) * (2 * count + 5) / 18
    return (score / variance**0.5, most / variance**0.5) if variance else (0.0, 0.0)


def _step(curves: Sequence[Array]) -> float:
    """Step from the first value to the mean of the others, pooled, in standard errors."""
    steps = [value_T[1:].mean() - value_T[0] for value_T in curves if len(value_T) > 2]
    # Successive differences: a rise hardly widens their median.
    spreads = [np.abs(np.diff(value_T)) for value_T in curves if len(value_T) > 2]
    if not steps:
        return 0.0
    noise = float(np.median(np.concatenate(spreads))) / (0.6745 * np.sqrt(2.0))
    errors = noise * np.sqrt(sum(1.0 + 1.0 / len(spread) for spread in spreads))
    total = float(np.sum(steps))
    return total / errors if errors else np.inf * total if total else 0.0
