"""From rewards to advantages: group mean and standard deviation, the decoupled baseline, and GAE for PPO.

A reward of NaN means that the reward function failed for this rollout. Statistics leave it out, and the rollout has no
gradient (`train_R` is False) and the advantage 0.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from isocompute_sdk.errors import SpecError


@dataclass(frozen=True)
class GroupAdvantages:
    """Advantages of one rollout batch, and the rollouts that each term of the loss uses; all of shape (R,)."""

    advantage_R: Tensor
    """Advantage of each response in the rewards' dtype; 0 without a reward and in zero-variance groups."""
    train_R: Tensor
    """True for rollouts with a gradient: they have a reward, and a decoupled baseline selected them."""
    zero_variance_R: Tensor
    """True for the rollouts of groups whose known rewards are all equal: no policy signal (GRPO, CISPO)."""
    zero_variance_share: float
    """Fraction of groups without reward variance, among the groups with at least one reward; 0 without any."""

    def row_weight(self, *, zero_variance_filter: bool) -> Tensor:
        """Weight of each row in one term of the loss (policy, KL or entropy, each with its own filter), shape (R,).

        0 for rollouts without gradient and, with the filter on, for groups without reward variance. In `Mean.of_batch`
        the filtered rows leave the denominator too, so that filtering rescales the rest.

        Args:
            zero_variance_filter: exclude groups without reward variance from this term.
        """
        keep_R = self.train_R & ~self.zero_variance_R if zero_variance_filter else self.train_R
        return keep_R.to(self.advantage_R.dtype)


def group_advantages(
    reward_R: Tensor,
    group_size: int,
    *,
    normalize: bool = True,
    std_epsilon: float = 1e-6,
    penalty_R: Tensor | None = None,
    n_train: int | None = None,
) -> GroupAdvantages:
    """A_i = (r_i - mean(r)) / (std(r) + epsilon) within each group, or r_i - mean(r); arXiv 2402.03300, section 4.1.2.

    std is the unbiased one (divisor n - 1), as in TRL and veRL; the paper on GRPO does not specify it.
    The decoupled baseline (paper, appendix G) takes mean and std from all `group_size` = n_est rollouts of a
    group and trains on `n_train` of them: the first with a reward, which is a random choice, since the
    rollouts of a group are exchangeable. Statistics are computed in float64.

    Args:
        reward_R: rewards, shape (R,), the rollouts of a group contiguous; NaN where the reward function failed.
        group_size: rollouts per group, n.
        normalize: divide by the standard deviation.
        std_epsilon: added to the standard deviation, in units of reward.
        penalty_R: subtracted from the rewards before the statistics (a KL penalty in the reward). Zero variance
            is judged on the rewards without it.
        n_train: rollouts per group with a gradient; None for all.

    Raises:
        SpecError: the batch does not consist of whole groups, or n_train is not between 1 and group_size.
    """
    if group_size < 1 or reward_R.ndim != 1 or reward_R.shape[0] % group_size:
        raise SpecError(
            f"group_size: received {group_size} for rewards of shape {tuple(reward_R.shape)}; accepted: a whole "
            "number >= 1 that divides the number of rollouts",
            "Correct the group size.",
        )
    if n_train is not None and not 1 <= n_train <= group_size:
        raise SpecError(
            f"n_train: received {n_train}; accepted: 1 to {group_size} (rollouts per group)",
            "Correct n_train, or remove it to train on all.",
        )
    reward_PN = reward_R.detach().to(torch.float64).view(-1, group_size)
    known_PN = ~reward_PN.isnan()
    shaped_PN = reward_PN if penalty_R is None else reward_PN - penalty_R.detach().to(torch.float64).view_as(reward_PN)
    train_PN = known_PN if n_train is None else known_PN & (known_PN.cumsum(-1) <= n_train)
    flat_P, measured_P = _all_equal(reward_PN, known_PN), known_PN.any(-1)
    return GroupAdvantages(
        advantage_R=_standardised(shaped_PN, known_PN, normalize, std_epsilon).flatten().to(reward_R.dtype),
        train_R=train_PN.flatten(),
        zero_variance_R=flat_P.repeat_interleave(group_size),
        zero_variance_share=int(flat_P.sum()) / max(int(measured_P.sum()), 1),
    )


def token_rewards(reward_R: Tensor, mask_RT: Tensor, penalty_RT: Tensor | None = None) -> Tensor:
    """Per-token rewards for `generalised_advantages`: the reward at the last token, minus a penalty at each; (R, T).

    Args:
        reward_R: rewards, shape (R,); NaN (no reward) counts as 0, exclude such rows by their weight.
        mask_RT: 1 for sampled tokens, 0 after.
        penalty_RT: subtracted at every sampled token, e.g. kl_coef times `kl_estimate` (InstructGPT,
            arXiv 2203.02155, eq. 2); None for none.
    """
    sampled_RT = mask_RT > 0
    after_RT = torch.nn.functional.pad(sampled_RT[:, 1:], (0, 1), value=False)
    last_RT = sampled_RT & ~after_RT
    reward_RT = torch.where(last_RT, reward_R.detach().nan_to_num(nan=0.0).unsqueeze(-1), 0.0)
    if penalty_RT is None:
        return reward_RT
    return reward_RT - torch.where(sampled_RT, penalty_RT.detach(), 0.0)


def generalised_advantages(
    reward_RT: Tensor, value_RT: Tensor, mask_RT: Tensor, *, gamma: float, lam: float
) -> tuple[Tensor, Tensor]:
    """A_t = sum_k (gamma lam)^k delta_{t+k}, delta_t = r_t + gamma V_{t+1} - V_t; returns (A, A + V), both (R, T).

    Generalised advantage estimation (arXiv 1506.02438, eq. 16), one token one step. V after the last token is 0,
    also for responses cut at the length limit. Both are 0 where masked and carry no gradient.

    Args:
        reward_RT: rewards per token, see `token_rewards`.
        value_RT: value of the state before each token.
        mask_RT: 1 for sampled tokens, contiguous from the first, 0 after.
        gamma: discount per token.
        lam: lambda; 1 gives A = (discounted future rewards) - V, 0 the one-step error.
    """
    value_RT = torch.where(mask_RT > 0, value_RT.detach(), 0.0)
    next_value_RT = torch.nn.functional.pad(value_RT[:, 1:], (0, 1))
    delta_RT = torch.where(mask_RT > 0, reward_RT + gamma * next_value_RT - value_RT, 0.0)
    advantage_RT = torch.zeros_like(delta_RT)
    running_R = torch.zeros_like(delta_RT[:, 0])
    for t in reversed(range(delta_RT.shape[1])):
        running_R = delta_RT[:, t] + gamma * lam * running_R
        advantage_RT[:, t] = running_R
    return advantage_RT, advantage_RT + value_RT


def normalised_over_tokens(
    advantage_RT: Tensor, mask_RT: Tensor, *, std_epsilon: float, weight_R: Tensor | None = None
) -> Tensor:
    """(A - mean(A)) / (std(A) + epsilon) over all tokens of the whole batch, 0 where masked or of weight 0; for PPO.

    std is the unbiased one (divisor N - 1), computed in float64. A batch whose advantages are all equal gives 0.

    Args:
        advantage_RT: advantages of `generalised_advantages` of the WHOLE batch, shape (R, T).
        mask_RT: 1 for sampled tokens.
        std_epsilon: added to the standard deviation.
        weight_R: number of equal rollouts that each row represents, 0 to exclude it; None is 1 everywhere.
    """
    weight_RT = mask_RT.to(torch.float64)
    if weight_R is not None:
        weight_RT = weight_RT * weight_R.to(torch.float64).unsqueeze(-1)
    value_RT = torch.where(weight_RT > 0, advantage_RT.detach().to(torch.float64), 0.0)
    count = weight_RT.sum()
    mean = (weight_RT * value_RT).sum() / count.clamp(min=1.0)
    centred_RT = torch.where(weight_RT > 0, value_RT - mean, 0.0)
    variance = (weight_RT * centred_RT.square()).sum() / (count - 1.0).clamp(min=1.0)
    return torch.where(centred_RT != 0, centred_RT / (variance.sqrt() + std_epsilon), 0.0).to(advantage_RT.dtype)


def _standardised(reward_PN: Tensor, known_PN: Tensor, normalize: bool, std_epsilon: float) -> Tensor:
    """Centred, and perhaps scaled, within each row over the known entries; 0 elsewhere and where all are equal."""
    count_P1 = known_PN.sum(-1, keepdim=True)
    mean_P1 = torch.where(known_PN, reward_PN, 0.0).sum(-1, keepdim=True) / count_P1.clamp(min=1)
    # Equal rewards get exactly 0: their mean may differ from them in the last bit.
    used_PN = known_PN & ~_all_equal(reward_PN, known_PN).unsqueeze(-1)
    centred_PN = torch.where(used_PN, reward_PN - mean_P1, 0.0)
    if not normalize:
        return centred_PN
    variance_P1 = centred_PN.square().sum(-1, keepdim=True) / (count_P1 - 1).clamp(min=1)
    return torch.where(used_PN, centred_PN / (variance_P1.sqrt() + std_epsilon), 0.0)


def _all_equal(value_PN: Tensor, known_PN: Tensor) -> Tensor:
    """True for rows whose known entries are all equal (one is enough), False for rows without any; shape (P,)."""
    highest_P = torch.where(known_PN, value_PN, -torch.inf).amax(-1)
    lowest_P = torch.where(known_PN, value_PN, torch.inf).amin(-1)
    return highest_P == lowest_P
