"""avg@k, best@k, worst@k: exact expectations over k of a problem's samples, drawn without replacement.

With rewards r_(1) <= ... <= r_(N) of one problem,

    best@k = sum_i r_(i) C(i-1, k-1) / C(N, k),    worst@k of r = -best@k of -r,    avg@k = mean of r,

since r_(i) is the largest of C(i-1, k-1) of the C(N, k) subsets. For rewards 0 and 1 best@k is the unbiased
pass@k estimator. Values that a framework bootstraps with replacement differ from these; do not mix them.
(Metrics of arXiv 2603.12151, section 4; estimator of pass@k: arXiv 2107.03374, section 2.1.)
"""

from __future__ import annotations

import re
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from isocompute_sdk.errors import RecordError

Insufficient = Literal["error", "nan", "skip"]
_AVERAGE = re.compile(r"avg@([1-9][0-9]*)")
UNKNOWN_AVERAGE = "avg@?"
"""An average over a number of samples that nothing says."""
_LEADING = ("best@4", "best@8", "best@2")
LEADING = (*_LEADING, *(f"{name}:bootstrap" for name in _LEADING))
"""Metrics that lead avg@k, in order of preference; 4 is the one that all numbers were measured with. Values drawn with
replacement serve where there are no others: what counts is how they change."""
LARGEST = 1e300
"""Largest size of a reward: sums of larger ones overflow."""


def avg_at_k(rewards: ArrayLike, k: int, *, insufficient: Insufficient = "error") -> float:
    """Expected mean reward of k samples, averaged over problems.

    Args:
        rewards: shape (problems, samples), any real rewards; NaN where a sample is missing.
        k: samples per draw; only the check for enough samples depends on it.
        insufficient: treatment of a problem with fewer than k samples: `"error"` raises, `"nan"` makes the result
            NaN, `"skip"` leaves the problem out.

    Raises:
        RecordError: rewards of another shape, infinite ones, k < 1, or too few samples.

    Examples:
        >>> iso.avg_at_k([[0, 0, 0, 1], [1, 1, 1, 1]], k=4)
        0.625
    """
    rewards_P_N, counts_P, k = _checked(rewards, k, insufficient)
    means_P = np.full(len(counts_P), np.nan)
    enough_P = counts_P >= k
    # Missing samples sort last and are cut off.
    for count in np.unique(counts_P[enough_P]):
        chosen_P = counts_P == count
        means_P[chosen_P] = np.mean(rewards_P_N[chosen_P, :count], axis=1)
    return _over_problems(means_P, insufficient)


def best_at_k(rewards: ArrayLike, k: int, *, insufficient: Insufficient = "error") -> float:
    """Expected largest reward among k samples (pass@k for rewards 0 and 1), averaged over problems.

    Args:
        rewards: shape (problems, samples), any real rewards; NaN where a sample is missing.
        k: samples per draw.
        insufficient: treatment of a problem with fewer than k samples, as in `avg_at_k`.

    Raises:
        RecordError: rewards of another shape, infinite ones, k < 1, or too few samples.

    Examples:
        >>> iso.best_at_k([[0, 0, 0, 1], [1, 1, 1, 1]], k=2)
        0.75
    """
    rewards_P_N, counts_P, k = _checked(rewards, k, insufficient)
    best_P = np.full(len(counts_P), np.nan)
    for count in np.unique(counts_P[counts_P >= k]):
        chosen_P = counts_P == count
        sorted_P_N = rewards_P_N[chosen_P, :count]
        # Rounding must not move the weighted mean outside the range of its terms.
        best_P[chosen_P] = np.clip(sorted_P_N @ max_weights(int(count), k), sorted_P_N[:, 0], sorted_P_N[:, -1])
    return _over_problems(best_P, insufficient)


def worst_at_k(rewards: ArrayLike, k: int, *, insufficient: Insufficient = "error") -> float:
    """Expected smallest reward among k samples (all k right, for rewards 0 and 1), averaged over problems.

    Args:
        rewards: shape (problems, samples), any real rewards; NaN where a sample is missing.
        k: samples per draw.
        insufficient: treatment of a problem with fewer than k samples, as in `avg_at_k`.

    Raises:
        RecordError: rewards of another shape, infinite ones, k < 1, or too few samples.

    Examples:
        >>> iso.worst_at_k([[0, 0, 0, 1], [1, 1, 1, 1]], k=2)
        0.5
    """
    return 0.0 - best_at_k(-_as_rewards(rewards), k, insufficient=insufficient)


def k_metrics(rewards: ArrayLike) -> dict[str, float]:
    """avg@k, best@k and worst@k for k = N and the powers of two from 2 below N; problems with fewer samples left out.

    Args:
        rewards: shape (problems, N samples), any real rewards; NaN where a sample is missing.

    Raises:
        RecordError: rewards of another shape, or infinite ones.
    """
    rewards_P_N = _as_rewards(rewards)
    samples = rewards_P_N.shape[1]
    most = int((~np.isnan(rewards_P_N)).sum(axis=1).max())
    return {
        f"{name}@{k}": metric(rewards_P_N, k, insufficient="skip")
        for k in sorted({2**i for i in range(1, 16) if 2**i < samples} | {samples})
        if k <= most
        for name, metric in (("avg", avg_at_k), ("best", best_at_k), ("worst", worst_at_k))
    }


def average_of(metric: str) -> int | None:
    """The k of a metric named avg@k; None for every other metric."""
    match = _AVERAGE.fullmatch(metric)
    return None if match is None else int(match[1])


def is_average(metric: str) -> bool:
    """Whether a metric is avg@k, also of unknown k: all of them estimate the same mean."""
    return metric == UNKNOWN_AVERAGE or average_of(metric) is not None


def max_weights(samples: int, k: int) -> NDArray[np.float64]:
    """w_i = C(i-1, k-1) / C(N, k), i = 1..N: chance that the i-th smallest of N is the largest of k drawn.

    Built from w_N = k / N downwards by w_i = w_(i+1) (i - k + 1) / i, which neither overflows nor cancels.
    """
    rank_N = np.arange(1, samples, dtype=np.float64)
    ratios_N = np.maximum(rank_N - k + 1, 0.0) / rank_N
    weights_N = np.append(np.cumprod(ratios_N[::-1])[::-1], 1.0) * (k / samples)
    return weights_N / weights_N.sum()


def _as_rewards(rewards: ArrayLike) -> NDArray[np.float64]:
    try:
        if np.iscomplexobj(rewards):
            raise TypeError("they are complex")
        rewards_P_N = np.asarray(rewards, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise RecordError(
            f"rewards are not an array of numbers: {error}; accepted: shape (problems, samples)",
            "Pad problems with fewer samples with NaN.",
        ) from error
    if rewards_P_N.ndim != 2 or 0 in rewards_P_N.shape:
        raise RecordError(
            f"rewards: received shape {rewards_P_N.shape}; accepted: (problems, samples), both at least 1",
            "For the samples of one problem pass [samples].",
        )
    bad = np.argwhere(np.abs(rewards_P_N) > LARGEST)
    if len(bad):
        problem, sample = (int(i) for i in bad[0])
        raise RecordError(
            f"rewards[{problem}, {sample}]: received {rewards_P_N[problem, sample]}; accepted: finite numbers "
            f"up to {LARGEST:g}, NaN for a missing sample",
            "Correct the reward function, or mark the sample as missing.",
        )
    return rewards_P_N


def _checked(rewards: ArrayLike, k: object, insufficient: str) -> tuple[NDArray[np.float64], NDArray[np.intp], int]:
    """Rewards sorted within each problem (missing ones last), samples per problem, k as an int."""
    rewards_P_N = np.sort(_as_rewards(rewards), axis=1)
    if isinstance(k, bool) or not isinstance(k, int | np.integer) or k < 1:
        raise RecordError(f"k: received {k!r}; accepted: whole numbers >= 1", "Give the k of avg@k.")
    if insufficient not in ("error", "nan", "skip"):
        raise RecordError(
            f"insufficient: received {insufficient!r}; accepted: 'error', 'nan', 'skip'", "Use one of the three."
        )
    counts_P = np.sum(~np.isnan(rewards_P_N), axis=1)
    short = np.flatnonzero(counts_P < k)
    if len(short) and insufficient == "error":
        raise RecordError(
            f"problem {short[0]} has {counts_P[short[0]]} samples, fewer than k = {k} "
            f"({len(short)} of {len(counts_P)} problems); accepted: at least k samples",
            'Use a smaller k, or insufficient="skip" to leave such problems out ("nan": make the result NaN).',
        )
    if insufficient == "skip" and len(short) == len(counts_P):
        raise RecordError(f"all {len(counts_P)} problems have fewer than k = {k} samples", "Use a smaller k.")
    return rewards_P_N, counts_P, int(k)


def _over_problems(values_P: NDArray[np.float64], insufficient: str) -> float:
    """Mean over problems."""
    return float(np.mean(values_P[~np.isnan(values_P)] if insufficient == "skip" else values_P))
