"""Softmax bandits trained by policy gradient with a group baseline (the paper's appendix H).

Each problem is a softmax over K answers, one of them right. n answers are drawn, and with r their rewards the logits
move along (1/n) sum_j (r_j - mean r) grad log pi(a_j). Problems are independent (tabular), or share features, so that
a step on one moves the others: interference.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from isocompute_simulator.truth import Array

ANSWERS = 8
"""Answers to each problem, K."""
MEAN_LOGIT = -0.7
"""Mean over problems of ln(p / (1 - p)) of the right answer."""


@dataclass(frozen=True, eq=False)
class Bandit:
    """Policies before training."""

    logits_PK: Array
    """Logits of K answers to P problems."""
    right_P: npt.NDArray[np.int64]
    """Index of the right answer."""
    kernel_PP: Array | None = None
    """How far a step on one problem moves the logits of another; None if problems are independent."""


def draw_bandit(
    rng: np.random.Generator,
    problems: int = 512,
    *,
    spread: float = 1.0,
    sharing: float = 0.0,
    features: int = 16,
) -> Bandit:
    """Problems of varied difficulty.

    Args:
        rng: randomness of the task.
        problems: P.
        spread: standard deviation over problems of the right answer's ln(p / (1 - p)).
        sharing: share of a problem's squared feature norm that lies in the common space; 0 for tabular.
        features: dimensions of the common space: the fewer, the more problems interfere.
    """
    right_P = rng.integers(ANSWERS, size=problems)
    # The wrong answers share what the right one leaves evenly: the logit of p is then what is asked for.
    logits_PK = np.zeros((problems, ANSWERS))
    logits_PK[np.arange(problems), right_P] = rng.normal(MEAN_LOGIT, spread, problems) + np.log(ANSWERS - 1)
    if sharing == 0:
        return Bandit(logits_PK, right_P)
    common_PF = rng.normal(size=(problems, features))
    common_PF /= np.linalg.norm(common_PF, axis=1, keepdims=True)
    return Bandit(logits_PK, right_P, (1 - sharing) * np.eye(problems) + sharing * common_PF @ common_PF.T)


def train_bandit(
    bandit: Bandit,
    group_size: int,
    problems_per_batch: int,
    update_steps: int,
    rng: np.random.Generator,
    *,
    learning_rate: float = 1.0,
    normalise: bool = False,
    record_at: Sequence[int] | None = None,
) -> Iterator[Array]:
    """Train at (n, B_p, M); yields the pass rates of all problems, shape (P,), after each recorded step.

    Args:
        bandit: policies to start from; not changed.
        group_size: n.
        problems_per_batch: B_p; a batch larger than P draws problems more than once.
        update_steps: M.
        rng: randomness of batches and answers.
        learning_rate: step of every problem in the batch along its own gradient.
        normalise: divide rewards by their standard deviation in the group, as GRPO does.
        record_at: steps to yield after, increasing, 0 for the start; None for all of them.
    """
    logits_PK = bandit.logits_PK.copy()
    count = len(logits_PK)
    recorded = set(range(update_steps + 1) if record_at is None else record_at)
    for step in range(update_steps + 1):
        if step:
            chosen = rng.choice(count, problems_per_batch, replace=problems_per_batch > count)
            step_BK = learning_rate * sampled_gradient(
                logits_PK[chosen], bandit.right_P[chosen], group_size, rng, normalise=normalise
            )
            if bandit.kernel_PP is None:
                np.add.at(logits_PK, chosen, step_BK)
            else:
                logits_PK += bandit.kernel_PP[:, chosen] @ step_BK
        if step in recorded:
            yield pass_rate(logits_PK, bandit.right_P)


def pass_rate(logits_PK: Array, right_P: npt.NDArray[np.int64]) -> Array:
    """Probability of the right answer, shape (P,)."""
    return _policy(logits_PK)[np.arange(len(right_P)), right_P]


def sampled_gradient(
    logits_BK: Array,
    right_B: npt.NDArray[np.int64],
    group_size: int,
    rng: np.random.Generator,
    *,
    normalise: bool = False,
) -> Array:
    """One draw of each problem's gradient with respect to its logits, shape (B, K)."""
    counts_BK = rng.multinomial(group_size, _policy(logits_BK)).astype(float)
    rows = np.arange(len(right_B))
    mean_B = counts_BK[rows, right_B] / group_size
    # Deviations from the group's mean sum to zero, so that the term -pi of grad log pi drops out.
    gradient_BK = -mean_B[:, None] * counts_BK / group_size
    gradient_BK[rows, right_B] = mean_B * (1 - mean_B)
    if not normalise:
        return gradient_BK
    sd_B = np.sqrt(mean_B * (1 - mean_B))
    return np.divide(gradient_BK, sd_B[:, None], out=np.zeros_like(gradient_BK), where=sd_B[:, None] > 0)


def _policy(logits_PK: Array) -> Array:
    weights_PK = np.exp(logits_PK - logits_PK.max(axis=1, keepdims=True))
    return weights_PK / weights_PK.sum(axis=1, keepdims=True)
