"""Evaluating the policy on a set of problems: avg@k, best@k, worst@k and the passes of each problem."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from isocompute_sdk.metrics import k_metrics
from isocompute_sdk.specs.run import Evaluation
from isocompute_torch.failures import RunFailed
from isocompute_torch.rewards.function import Scores
from isocompute_torch.rewards.pool import RewardPool
from isocompute_torch.runner.prompts import PromptSet
from isocompute_torch.sampling.sampler import Sampler

PASS_REWARD = 0.5
"""Smallest reward of a sample that passes; rewards are usually 0 or 1."""


@dataclass(frozen=True)
class Measured:
    """One evaluation of one set."""

    metrics: dict[str, float]
    """avg@k, best@k and worst@k for k = `samples` and the powers of two below, response length, truncation."""
    pass_counts: list[int]
    """Samples that passed, per problem in file order."""
    sample_counts: list[int]
    """Samples with a reward, per problem: fewer than `samples` if the reward function failed."""
    zero_pass_share: float
    """Fraction of problems without a passing sample."""
    scores: Scores
    """Rewards and failures."""


def evaluate(
    prompts: PromptSet, sampler: Sampler, reward: RewardPool, plan: Evaluation, *, max_tokens: int, seed: int
) -> Measured:
    """Sample `plan.samples` responses to each problem and score them.

    Raises:
        RunFailed: no problem has a sample with a reward.
    """
    samples = sampler.sample(
        prompts.ids, plan.samples, temperature=plan.temperature, top_p=plan.top_p, max_tokens=max_tokens, seed=seed
    )
    scores = reward.score(prompts.calls(samples), seed=seed)
    reward_PN = np.array(scores.rewards).reshape(-1, plan.samples)
    known_PN = ~np.isnan(reward_PN)
    if not known_PN.any():
        raise RunFailed(
            f"the reward function failed for all {reward_PN.size} rollouts: {'; '.join(scores.messages)}",
            "Correct the reward function, then start the run again.",
        )
    passes_P = (np.where(known_PN, reward_PN, -math.inf) >= PASS_REWARD).sum(axis=1)
    metrics = k_metrics(reward_PN)
    metrics["response_length"] = samples.tokens / len(samples.prompt_index_R)
    metrics["truncated_share"] = float(samples.truncated_R.double().mean())
    return Measured(
        metrics=metrics,
        pass_counts=[int(count) for count in passes_P],
        sample_counts=[int(count) for count in known_PN.sum(axis=1)],
        zero_pass_share=float((passes_P == 0).mean()),
        scores=scores,
    )
