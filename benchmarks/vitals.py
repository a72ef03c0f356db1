"""What a run logs at every update besides its reward: entropy, KL, lengths, gradients, healthy or with a fault.

Shapes and noise of healthy runs are patterned on the built-in runner's toy runs (entropy falls with the failures,
a steady gradient norm with a tenth of noise) and on the paper's account (responses grow along training). They are a
stand-in for tests and benchmarks of detectors, not a model of training.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from isocompute_simulator.truth import Array

LENGTH_GROWTH = 0.6
"""Growth of responses over a whole run, at most, as a share of their first length."""


def healthy_vitals(
    reward_T: Array, group_size: int, problems_per_batch: int, rng: np.random.Generator
) -> dict[str, Array]:
    """What each update of a healthy run logs, by the built-in runner's metric names.

    Args:
        reward_T: success rate of the policy at each update, between 0 and 1.
        group_size: n.
        problems_per_batch: B_p.
        rng: randomness.
    """
    updates = len(reward_T)
    batch = group_size * problems_per_batch
    done_T = np.arange(1, updates + 1) / updates
    failures_T = (1.0 - reward_T) / max(1.0 - reward_T[0], 1e-9)

    def noisy(level_T: Array, share: float) -> Array:
        return level_T * np.exp(rng.normal(0.0, share, updates))

    # Problems differ: success rates spread around the mean as a beta distribution with this many pseudo-counts.
    counts = rng.uniform(1.0, 4.0)
    pass_TP = rng.beta(
        np.maximum(reward_T * counts, 1e-3)[:, None],
        np.maximum((1 - reward_T) * counts, 1e-3)[:, None],
        (updates, problems_per_batch),
    )
    right_TP = rng.binomial(group_size, pass_TP)
    cut = rng.uniform(0.0, 0.04)
    return {
        "train_reward": right_TP.mean(axis=1) / group_size,
        "entropy": noisy(rng.uniform(0.2, 0.8) * failures_T ** rng.uniform(0.3, 0.9), 0.06),
        "kl": noisy(rng.uniform(0.002, 0.05) * (done_T + 0.3 * done_T**2), 0.15),
        "response_length": noisy(rng.uniform(100, 1500) * (1 + rng.uniform(0, LENGTH_GROWTH) * done_T), 0.03),
        "truncated_share": rng.binomial(batch, cut, updates) / batch,
        "zero_variance_share": ((right_TP == 0) | (right_TP == group_size)).mean(axis=1),
        "gradient_norm": noisy(np.full(updates, rng.uniform(0.1, 2.0)), rng.uniform(0.1, 0.35)),
        "importance_weight_mean": 1.0 + rng.normal(0.0, 0.002, updates),
    }


Fault = Callable[[Mapping[str, Array], int], dict[str, Array]]


def _times(name: str, factor: Callable[[Array], Array | float]) -> Fault:
    """One of the vitals multiplied by a function of the updates since the fault began."""

    def fault(vitals: Mapping[str, Array], at: int) -> dict[str, Array]:
        since_T = np.maximum(np.arange(len(vitals[name])) - at, 0).astype(float)
        return {**vitals, name: vitals[name] * np.where(since_T > 0, factor(since_T), 1.0)}

    return fault


def _entropy_explosion(vitals: Mapping[str, Array], at: int) -> dict[str, Array]:
    ceiling = 4.0 / float(np.median(vitals["entropy"]))
    return _times("entropy", lambda since_T: np.minimum(1.25**since_T, ceiling))(vitals, at)


def _length_explosion(vitals: Mapping[str, Array], at: int) -> dict[str, Array]:
    longer = _times("response_length", lambda since_T: np.minimum(1.2**since_T, 8.0))(vitals, at)
    since_T = np.maximum(np.arange(len(longer["kl"])) - at, 0)
    return {**longer, "truncated_share": np.clip(vitals["truncated_share"] + 0.05 * since_T, 0.0, 0.9)}


def _dead_groups(vitals: Mapping[str, Array], at: int) -> dict[str, Array]:
    share_T = vitals["zero_variance_share"].copy()
    share_T[at:] = np.maximum(share_T[at:], 0.97)
    return {**vitals, "zero_variance_share": share_T}


FAULTS: dict[str, Fault] = {
    "entropy-collapse": _times("entropy", lambda since_T: np.maximum(0.7**since_T, 0.01)),
    "entropy-explosion": _entropy_explosion,
    "kl-drift": _times("kl", lambda since_T: np.minimum(1.35**since_T, 1e4)),
    "truncated-responses": _length_explosion,
    "zero-variance-groups": _dead_groups,
    "gradient-norm-growth": _times("gradient_norm", lambda since_T: np.minimum(1.5**since_T, 40.0)),
    "sampler-mismatch": _times("importance_weight_mean", lambda _: 0.7),
}
"""Faults by the note code that should tell of them: vitals and the update at which it begins -> vitals."""
