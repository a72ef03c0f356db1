"""What the filter of a run threw away: rollouts that were generated, and so are part of C, and not trained on."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from isocompute_sdk.ingest.attempts import Array, RunLog


@dataclass(frozen=True)
class Filtered:
    """Updates T of which a log tells what was filtered."""

    step_T: Array
    """Update steps done."""
    kept_T: Array
    """Rollouts trained on."""
    generated_T: Array
    """Rollouts generated."""

    @property
    def trained_share_T(self) -> Array:
        """Share of the generated rollouts that was trained on."""
        return self.kept_T / self.generated_T


def read_filter(
    log: RunLog, updates: Sequence[str], batches: Callable[[Array], tuple[Array, Array]], scale: float
) -> Filtered | None:
    """What the run's filter threw away; None if the log does not say.

    Args:
        log: what the run logged.
        updates: tags that are logged with every update.
        batches: update steps -> rollouts that the update before each trained on, and its group size.
        scale: logged steps in one rollout batch.
    """
    kept_percent = None if log.framework is None else log.framework.kept_percent_tag
    if kept_percent is not None and kept_percent in log.tags:
        step_T, percent_T = _values(log, kept_percent, scale)
        kept_T, size_T = batches(step_T)
        share_T = percent_T / (100.0 * size_T)
        # A share of 0 cannot be: a batch was trained on.
        usable = share_T > 0
        return Filtered(step_T[usable], kept_T[usable], kept_T[usable] / np.minimum(share_T[usable], 1.0))
    groups = None if log.framework is None else log.framework.filtered_groups
    tags = [] if groups is None else [tag for tag in log.tags if re.fullmatch(groups, tag)]
    if not tags:
        return None
    # An update that threw nothing away logs none of these tags.
    step_T = np.unique(np.concatenate([_values(log, tag, scale)[0] for tag in (*tags, *updates)]))
    kept_T, size_T = batches(step_T)
    lost_T = np.zeros(len(step_T))
    for tag in tags:
        at_T, groups_T = _values(log, tag, scale)
        lost_T[np.searchsorted(step_T, at_T)] += np.maximum(groups_T, 0.0)
    return Filtered(step_T, kept_T, kept_T + size_T * lost_T)


def _values(log: RunLog, tag: str, scale: float) -> tuple[Array, Array]:
    """Steps and finite values of one tag."""
    series = log.series(tag)
    known = np.isfinite(series.value_T)
    return series.step_T[known].astype(np.float64) / scale, series.value_T[known].astype(np.float64)
