"""The terms of the training loss, one per file: pure functions on tensors, each beside its formula.

Axis suffixes: _R rollouts, _T token positions, _V vocabulary. A loop adds up
policy + kl_coef * kl + entropy_coef * entropy (`entropy_loss` already carries the minus sign).
"""

from isocompute_torch.losses.aggregation import Aggregation, Loss, aggregate, batch_normaliser
from isocompute_torch.losses.cispo import cispo_loss
from isocompute_torch.losses.entropy import entropy_loss, token_entropy
from isocompute_torch.losses.grpo import grpo_loss
from isocompute_torch.losses.importance import policy_ratio, truncated_importance
from isocompute_torch.losses.kl import Estimator, kl_estimate, kl_loss
from isocompute_torch.losses.ppo import ppo_loss, value_loss

__all__ = [
    "Aggregation",
    "Estimator",
    "Loss",
    "aggregate",
    "batch_normaliser",
    "cispo_loss",
    "entropy_loss",
    "grpo_loss",
    "kl_estimate",
    "kl_loss",
    "policy_ratio",
    "ppo_loss",
    "token_entropy",
    "truncated_importance",
    "value_loss",
]
