"""The terms of the training loss: pure functions of what they see and how it is averaged.

Axis suffixes: _R rollouts, _T token positions, _V vocabulary. A loop adds up
policy + kl_coef * kl + entropy_coef * entropy (`entropy_loss` already carries the minus sign).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from isocompute_sdk.errors import SpecError

Aggregation = Literal["token-mean", "seq-mean-token-mean"]


class Loss(NamedTuple):
    """One term of the loss over one micro-batch, divided by the normaliser of the whole batch."""

    value: Tensor
    """Scalar to minimise. The values of the micro-batches of one batch add up to the loss of the whole batch."""
    stats: dict[str, float]
    """Detached means over the same rows and tokens; they add up over micro-batches, as `value` does."""


@dataclass(frozen=True)
class Mean:
    """A weighted mean over the tokens of a whole rollout batch, applied to some of its rows.

    token-mean (DAPO, arXiv 2503.14476, eq. 8):           sum_r w_r sum_t m_rt x_rt / N,  N = sum_r w_r sum_t m_rt
    seq-mean-token-mean (GRPO, arXiv 2402.03300, eq. 3):  sum_r w_r (sum_t m_rt x_rt / sum_t m_rt) / N,  N = sum_r w_r

    Both sums in N run over the whole batch, so that the gradients of micro-batches add up to exactly that of the batch.
    """

    aggregation: Aggregation
    """Which of the two means."""
    normaliser: float
    """N."""
    weight_R: Tensor
    """Weight w of each of these rows: the number of equal rollouts it represents, or 0 to exclude it."""

    @classmethod
    def of_batch(cls, mask_RT: Tensor, aggregation: Aggregation, weight_R: Tensor | None = None) -> Mean:
        """The mean over all rows of a batch.

        N is 1 if no row counts, so that the mean over nothing is 0 and not NaN. Responses without a token count in
        neither mean.

        Args:
            mask_RT: 1 for sampled tokens of the WHOLE batch, shape (R, T).
            aggregation: which of the two means.
            weight_R: weights; None is 1 everywhere.
        """
        weight_R = mask_RT.new_ones(len(mask_RT)) if weight_R is None else weight_R
        mask_RT = mask_RT.to(torch.float64)
        count_R = mask_RT.sum(-1) if aggregation == "token-mean" else mask_RT.amax(-1)
        total = float((count_R * weight_R.to(torch.float64)).sum())
        return cls(aggregation, total if total > 0 else 1.0, weight_R)

    def rows(self, index: Tensor | slice) -> Mean:
        """The same mean, applied to only these rows."""
        return replace(self, weight_R=self.weight_R[index])

    def counted(self, mask_RT: Tensor) -> Tensor:
        """True for sampled tokens in rows of a weight other than 0, shape (R, T)."""
        return (mask_RT > 0) & (self.weight_R != 0).unsqueeze(-1)

    def of(self, value_RT: Tensor, mask_RT: Tensor) -> Tensor:
        """Share of these rows in the mean of `value_RT`.

        Args:
            value_RT: values per token, shape (R, T), or several quantities stacked before these axes.
            mask_RT: 1 for sampled tokens.
        """
        per_row_R = torch.where(self.counted(mask_RT), value_RT, 0.0).sum(-1)
        if self.aggregation == "seq-mean-token-mean":
            per_row_R = per_row_R / mask_RT.sum(-1).clamp(min=1.0)
        return (per_row_R * self.weight_R.to(per_row_R.dtype)).sum(-1) / self.normaliser

    def loss(self, loss_RT: Tensor, mask_RT: Tensor, stats: Mapping[str, Tensor]) -> Loss:
        """The mean of `loss_RT`, with the means of `stats`, which are read from the device in one transfer."""
        means_S = self.of(torch.stack([stat_RT.detach() for stat_RT in stats.values()]), mask_RT)
        return Loss(self.of(loss_RT, mask_RT), dict(zip(stats, means_S.tolist(), strict=True)))


@dataclass(frozen=True)
class Seen:
    """R rows of at most T sampled tokens. Masked entries, and rows of weight 0, may hold any value."""

    logprob_RT: Tensor
    """log pi_theta of the sampled tokens, logits divided by the temperature; with gradient."""
    sampled_logprob_RT: Tensor
    """log mu of the same tokens, from the sampler."""
    advantage: Tensor
    """Advantage per response, shape (R,), or per token, shape (R, T)."""
    mask_RT: Tensor
    """1 for sampled tokens including the end token, 0 after."""
    reference_logprob_RT: Tensor | None = None
    """log pi_ref at the same temperature; needed by `kl_loss`."""
    entropy_RT: Tensor | None = None
    """`token_entropy` of the distribution of each sampled token; needed by `entropy_loss`."""
    value_RT: Tensor | None = None
    """Value of the state before each sampled token, with gradient; needed by `value_loss`, as the next."""
    return_RT: Tensor | None = None
    """Targets of the values, see `generalised_advantages`."""

    def advantage_RT(self, counted_RT: Tensor) -> Tensor:
        """Advantages as constants of shape (R, T) in the dtype of the log-probabilities; 0 where `counted_RT` is 0."""
        advantage = self.advantage.unsqueeze(-1) if self.advantage.ndim == 1 else self.advantage
        return torch.where(counted_RT > 0, advantage.detach().to(self.logprob_RT.dtype), 0.0)


@dataclass(frozen=True)
class GroupAdvantages:
    """Advantages of one rollout batch, and the rollouts that each term of the loss uses; all of shape (R,)."""

    advantage_R: Tensor
    """Advantage of each response in the rewards' dtype; 0 without a reward and in zero-variance groups."""
    train_R: Tensor
    """True for rollouts with a gradient: they have a reward."""
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
) -> GroupAdvantages:
    """A_i = (r_i - mean(r)) / (std(r) + epsilon) within each group, or r_i - mean(r); arXiv 2402.03300, section 4.1.2.

    std is the unbiased one (divisor n - 1), as in TRL and veRL; the paper on GRPO does not specify it.
    Statistics are computed in float64.

    Args:
        reward_R: rewards, shape (R,), the rollouts of a group contiguous; NaN where the reward function failed.
        group_size: rollouts per group, n.
        normalize: divide by the standard deviation.
        std_epsilon: added to the standard deviation, in units of reward.
        penalty_R: subtracted from the rewards before the statistics (a KL penalty in the reward). Zero variance
            is judged on the rewards without it.
    """
    if group_size < 1 or reward_R.ndim != 1 or reward_R.shape[0] % group_size:
        raise SpecError(
            f"group_size: received {group_size} for rewards of shape {tuple(reward_R.shape)}; accepted: a whole "
            "number >= 1 that divides the number of rollouts",
            "Correct the group size.",
        )
    reward_PN = reward_R.detach().to(torch.float64).view(-1, group_size)
    known_PN = ~reward_PN.isnan()
    shaped_PN = reward_PN if penalty_R is None else reward_PN - penalty_R.detach().to(torch.float64).view_as(reward_PN)
    flat_P, measured_P = _all_equal(reward_PN, known_PN), known_PN.any(-1)
    return GroupAdvantages(
        advantage_R=_standardised(shaped_PN, known_PN, normalize, std_epsilon).flatten().to(reward_R.dtype),
        train_R=known_PN.flatten(),
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


@torch.no_grad()
def truncated_importance(seen: Seen, mask_RT: Tensor, cap: float | None) -> Tensor:
    """The weight w = min(pi_theta / mu, cap) per token, without gradient; 1 where masked, or if cap is None.

    mu is the distribution that the sampler drew from, which differs from the trainer's by its kernels and
    precision. Truncation bounds the variance at the price of a small bias (truncated importance sampling:
    Ionides 2008; in RL for LLMs: Yao et al. 2025, "Your efficient RL framework secretly brings you off-policy
    RL training"). Weights above the cap are set to it, none is dropped.
    """
    if cap is None:
        return torch.ones_like(seen.logprob_RT)
    return torch.where(mask_RT > 0, seen.logprob_RT - seen.sampled_logprob_RT, 0.0).exp().clamp(max=cap)


def policy_loss(seen: Seen, mean: Mean, *, tis_cap: float | None) -> Loss:
    """L = -mean_rt w_rt rho_rt A_rt with rho = pi_theta / pi_old and w = `truncated_importance`, a constant.

    arXiv 1707.06347, eq. 7 (PPO); arXiv 2402.03300, eq. 3 (GRPO); arXiv 2506.13585, eq. 4 (CISPO). Every batch gets one
    update, so that pi_old is pi_theta: rho is 1, no ratio is clipped, and all three have the gradient
    -mean w A grad log pi. KL and entropy are separate terms.

    Args:
        seen: the rows.
        mean: how tokens are averaged.
        tis_cap: largest correction for the sampler's mismatch; None for none.

    Returns:
        The loss; its stats are `policy_loss`, `importance_weight_mean` and `importance_capped_share`.
    """
    mask_RT = mean.counted(seen.mask_RT).to(seen.logprob_RT.dtype)
    advantage_RT = seen.advantage_RT(mask_RT)
    ratio_RT = torch.where(mask_RT > 0, seen.logprob_RT - seen.logprob_RT.detach(), 0.0).exp()
    weight_RT = truncated_importance(seen, mask_RT, tis_cap)
    loss_RT = -weight_RT * ratio_RT * advantage_RT
    capped_RT = torch.zeros_like(weight_RT) if tis_cap is None else (weight_RT >= tis_cap).to(weight_RT.dtype)
    stats = {"policy_loss": loss_RT, "importance_weight_mean": weight_RT, "importance_capped_share": capped_RT}
    return mean.loss(loss_RT, mask_RT, stats)


Estimator = Literal["k1", "k2", "k3"]


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
    # expm1 keeps the small values that exp(-r) - 1 would round away.
    return torch.expm1(-log_ratio_RT) + log_ratio_RT


def kl_loss(seen: Seen, mean: Mean, *, estimator: Estimator) -> Loss:
    """L = mean_rt k_rt, to be ADDED to the policy loss as + kl_coef * value; arXiv 2402.03300, eq. 3 and 4.

    The stat is `kl`, the estimate in nats per token.
    """
    assert seen.reference_logprob_RT is not None, "kl_loss needs reference_logprob_RT"
    mask_RT = mean.counted(seen.mask_RT).to(seen.logprob_RT.dtype)
    kl_RT = kl_estimate(seen.logprob_RT, seen.reference_logprob_RT, mask_RT, estimator)
    return mean.loss(kl_RT, mask_RT, {"kl": kl_RT})


def token_entropy(logprob_RTV: Tensor) -> Tensor:
    """H = -sum_v p_v log p_v in nats, shape (R, T); p_v = 0 adds nothing.

    Exact over the vocabulary, not an estimate from the sampled token.

    Args:
        logprob_RTV: log p of every token, log_softmax(logits / temperature), shape (R, T, V).
    """
    # 0 * -inf would be NaN for a token of probability 0.
    finite_RTV = logprob_RTV.clamp(min=torch.finfo(logprob_RTV.dtype).min)
    p_RTV = logprob_RTV.exp()
    # Without a gradient in place: tensors of this size decide how many tokens fit into a micro-batch.
    return -(p_RTV * finite_RTV if p_RTV.requires_grad else p_RTV.mul_(finite_RTV)).sum(-1)


def entropy_loss(seen: Seen, mean: Mean) -> Loss:
    """L = -mean_rt H_rt, to be ADDED as + entropy_coef * value: minimising it raises the entropy (arXiv 1602.01783).

    The stat is `entropy`, + mean H in nats per token.
    """
    assert seen.entropy_RT is not None, "entropy_loss needs entropy_RT"
    return mean.loss(-seen.entropy_RT, seen.mask_RT, {"entropy": seen.entropy_RT})


def value_loss(seen: Seen, mean: Mean) -> Loss:
    """L = mean_rt (V - G)^2 / 2; on the only update of a batch V is V_old, so that value clipping has no effect.

    Args:
        seen: the rows, with V and the returns G.
        mean: how tokens are averaged.

    Returns:
        The loss; its stats are `value_loss`, `value_mean` and `return_mean`.
    """
    assert seen.value_RT is not None, "value_loss needs value_RT"
    assert seen.return_RT is not None, "value_loss needs return_RT"
    counted_RT, dtype = mean.counted(seen.mask_RT), seen.value_RT.dtype
    return_RT = torch.where(counted_RT, seen.return_RT.detach().to(dtype), 0.0)
    value_RT = torch.where(counted_RT, seen.value_RT, 0.0)
    loss_RT = 0.5 * (value_RT - return_RT).square()
    stats = {"value_loss": loss_RT, "value_mean": value_RT, "return_mean": return_RT}
    return mean.loss(loss_RT, seen.mask_RT, stats)
