"""The terms of the training loss, one formula a file: pure functions of what they see and how it is averaged.

Axis suffixes: _R rollouts, _T token positions, _V vocabulary. A loop adds up
policy + kl_coef * kl + entropy_coef * entropy (`entropy_loss` already carries the minus sign).
"""

from isocompute_torch.losses.cispo import cispo_loss
from isocompute_torch.losses.entropy import entropy_loss, token_entropy
from isocompute_torch.losses.importance import policy_ratio, truncated_importance
from isocompute_torch.losses.kl import Estimator, kl_estimate, kl_loss
from isocompute_torch.losses.mean import Aggregation, Loss, Mean
from isocompute_torch.losses.seen import Seen
from isocompute_torch.losses.surrogate import surrogate_loss
from isocompute_torch.losses.value import value_loss

__all__ = [
    "Aggregation",
    "Estimator",
    "Loss",
    "Mean",
    "Seen",
    "cispo_loss",
    "entropy_loss",
    "kl_estimate",
    "kl_loss",
    "policy_ratio",
    "surrogate_loss",
    "token_entropy",
    "truncated_importance",
    "value_loss",
]
