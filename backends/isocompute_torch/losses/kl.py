"""KL divergence to the frozen reference: per-token estimators, the loss term and the penalty in the reward.

With r = log pi_theta - log pi_ref of a token drawn from pi_theta (Schulman, "Approximating KL divergence", 2020):

    k1 = r                  unbiased for KL(pi_theta || pi_ref), may be negative
    k2 = r^2 / 2            biased in value
    k3 = exp(-r) - 1 + r    unbiased, never negative

In the loss, the gradient of the sampled value matters; r is differentiated through the token's log-probability only.
The expectation of that gradient is 0 for k1 (no penalty, only noise), the gradient of KL(pi_theta || pi_ref) for k2,
and the gradient of KL(pi_ref || pi_theta) for k3. In the reward, no gradient passes through the estimate: its sum over
a response is subtracted (arXiv 1909.08593, eq. 2), and k1 and k3 both penalise KL(pi_theta || pi_ref).
"""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor

from isocompute_sdk.errors import SpecError
from isocompute_torch.losses.mean import Loss, Mean
from isocompute_torch.losses.seen import Seen

Estimator = Literal["k1", "k2", "k3"]
ESTIMATORS: tuple[Estimator, ...] = get_args(Estimator)


def kl_estimate(logprob_RT: Tensor, reference_logprob_RT: Tensor, mask_RT: Tensor, estimator: Estimator) -> Tensor:
    """Per-token estimate k1, k2 or k3 in nats, shape (R, T), 0 where masked; differentiable in logprob_RT.

    Args:
        logprob_RT: log pi_theta of the sampled tokens.
        reference_logprob_RT: log pi_ref of the same tokens at the same temperature; a constant.
        mask_RT: 1 for sampled tokens.
        estimator: k1, k2 or k3.
    """
    log_ratio_RT = torch.where(mask_RT > 0, logprob_RT - reference_logprob_RT.detach(), 0.0)
    if estimator == "k1":
        return log_ratio_RT
    if estimator == "k2":
        return 0.5 * log_ratio_RT.square()
    if estimator == "k3":
        # expm1 keeps the small values that exp(-r) - 1 would round away.
        return torch.expm1(-log_ratio_RT) + log_ratio_RT
    raise SpecError(
        f"kl_estimator: received {estimator!r}; accepted: {', '.join(ESTIMATORS)}", "Use one of these estimators."
    )


def kl_loss(seen: Seen, mean: Mean, *, estimator: Estimator) -> Loss:
    """L = mean_rt k_rt, to be ADDED to the policy loss as + kl_coef * value; arXiv 2402.03300, eq. 3 and 4.

    The stat is `kl`, the estimate in nats per token.
    """
    assert seen.reference_logprob_RT is not None, "kl_loss needs reference_logprob_RT"
    mask_RT = mean.counted(seen.mask_RT).to(seen.logprob_RT.dtype)
    kl_RT = kl_estimate(seen.logprob_RT, seen.reference_logprob_RT, mask_RT, estimator)
    return mean.loss(kl_RT, mask_RT, {"kl": kl_RT})
