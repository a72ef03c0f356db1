"""One update: a scored rollout batch in, new weights out.

The loss is policy + kl_coef * KL - entropy_coef * entropy. Each term is a mean over its own rollouts of the WHOLE
batch, so that micro-batches add up to exactly the gradient of the full batch. PPO adds the loss of its value model.
Only rollouts with a gradient go through the model; what is measured of the others comes from the sampler.
"""

from __future__ import annotations

import gc
import math
from collections import defaultdict
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from isocompute_sdk.specs import Recipe
from isocompute_torch.configuration import RunFailed, is_out_of_memory
from isocompute_torch.losses import (
    GroupAdvantages,
    Mean,
    Seen,
    entropy_loss,
    generalised_advantages,
    group_advantages,
    kl_estimate,
    kl_loss,
    normalised_over_tokens,
    policy_loss,
    token_entropy,
    token_rewards,
    value_loss,
)
from isocompute_torch.policy import Policy, ValueModel
from isocompute_torch.rows import Layout, Rows, distinct, micro_batches, plain_layout, tree_layout
from isocompute_torch.sampler import Samples


def warmed_up(learning_rate: float, update: int, warmup_steps: int) -> float:
    """Learning rate of update u = 1, 2, ...: lr * min(1, u / warmup_steps); paper, section 3."""
    return learning_rate if update >= warmup_steps else learning_rate * update / warmup_steps


class Optimiser:
    """AdamW (arXiv 1711.05101) on the parameters of one module.

    Weights of fewer bits than float32 would lose most updates to rounding. For them the optimiser keeps a float32
    copy, accumulates gradients there, and writes the rounded weights back after each step.

    Args:
        parameters: the trained weights.
        betas: decay rates of the two running means.
        weight_decay: decoupled weight decay, as a multiple of the learning rate.
        clip: largest global norm of the gradient.
    """

    def __init__(
        self, parameters: Iterable[nn.Parameter], *, betas: tuple[float, float], weight_decay: float, clip: float
    ) -> None:
        self.parameters = [parameter for parameter in parameters if parameter.requires_grad]
        self.clip = clip
        self._has_masters = any(torch.finfo(parameter.dtype).bits < 32 for parameter in self.parameters)
        self._masters = [
            nn.Parameter(parameter.detach().float().clone()) if self._has_masters else parameter
            for parameter in self.parameters
        ]
        self._adam = torch.optim.AdamW(self._masters, lr=0.0, betas=betas, weight_decay=weight_decay, fused=True)

    def collect(self) -> None:
        """Add the gradient of one micro-batch to the float32 copy; call it after each backward pass."""
        if not self._has_masters:
            return
        for parameter, master in zip(self.parameters, self._masters, strict=True):
            if parameter.grad is None:
                continue
            if master.grad is None:
                master.grad = parameter.grad.float()
            else:
                master.grad.add_(parameter.grad)
            parameter.grad = None

    def forget(self) -> None:
        """Clear the gradient collected so far."""
        for parameter in (*self.parameters, *self._masters):
            parameter.grad = None

    def gradient_norm(self) -> float:
        """Scale the collected gradient down to the norm `clip` if it is larger; returns its global norm before that."""
        return float(torch.nn.utils.clip_grad_norm_(self._masters, self.clip))

    def step(self, learning_rate: float) -> None:
        """Update the weights and clear the gradient."""
        for group in self._adam.param_groups:
            group["lr"] = learning_rate
        for master in self._masters:
            if master.grad is None:
                # A missing gradient is a gradient of 0: the running means still decay.
                master.grad = torch.zeros_like(master)
        self._adam.step()
        self._adam.zero_grad(set_to_none=True)
        if self._has_masters:
            with torch.no_grad():
                for parameter, master in zip(self.parameters, self._masters, strict=True):
                    parameter.copy_(master)

    def state(self) -> dict[str, Any]:
        """Everything a resumed run needs except the weights."""
        masters = [master.detach() for master in self._masters] if self._has_masters else []
        return {"adam": self._adam.state_dict(), "masters": masters}

    def load_state(self, state: dict[str, Any]) -> None:
        """Load what `state` returned."""
        self._adam.load_state_dict(state["adam"])
        with torch.no_grad():
            for master, saved in zip(self._masters, state["masters"], strict=self._has_masters):
                master.copy_(saved)


KEPT_LOGITS = 2**26
"""Largest number of logits kept for the backward pass, tokens times vocabulary; more are computed in parts, twice."""


def score(policy: Policy, layout: Layout, *, temperature: float, entropy: bool = False) -> tuple[Tensor, Tensor]:
    """Log pi of each sampled token, and H of the distribution it comes from; both (U, T), 0 where masked.

    Both refer to softmax(logits / temperature).
    """
    hidden_JD = policy.hidden_states(
        layout.input_ids_SL, layout.attention_mask, layout.position_ids_SL, wanted_J=layout.source_J
    )
    scored = _scored(policy, hidden_JD, layout, temperature, entropy)
    logprob_UT = layout.to_rows(scored[0])
    return logprob_UT, layout.to_rows(scored[1])


def _scored(policy: Policy, hidden_JD: Tensor, layout: Layout, temperature: float, entropy: bool) -> tuple[Tensor, ...]:
    width = policy.vocabulary
    if len(hidden_JD) * width <= KEPT_LOGITS:
        return _token_scores(policy, hidden_JD, layout.pick_K, layout.token_K, temperature, entropy)
    if layout.pick_K is not None:
        hidden_JD = hidden_JD.index_select(0, layout.pick_K)
    step = max(1, KEPT_LOGITS // width)
    parts: list[tuple[Tensor, ...]] = []
    for hidden_CD, token_C in zip(hidden_JD.split(step), layout.token_K.split(step), strict=True):
        arguments = (policy, hidden_CD, None, token_C, temperature, entropy)
        if torch.is_grad_enabled():
            part = cast("tuple[Tensor, ...]", checkpoint(_token_scores, *arguments, use_reentrant=False))
        else:
            part = _token_scores(*arguments)
        parts.append(part)
    return tuple(torch.cat(column) for column in zip(*parts, strict=True))


def _token_scores(
    policy: Policy, hidden_JD: Tensor, pick_K: Tensor | None, token_K: Tensor, temperature: float, entropy: bool
) -> tuple[Tensor, ...]:
    logits_JV = policy.logits(hidden_JD)
    logprob_JV = (logits_JV if temperature == 1.0 else logits_JV / temperature).log_softmax(-1)
    del logits_JV
    if pick_K is None:
        logprob_K = logprob_JV.gather(-1, token_K.unsqueeze(-1)).squeeze(-1)
    else:
        logprob_K = logprob_JV.flatten()[pick_K * logprob_JV.shape[-1] + token_K]
    if not entropy:
        return logprob_K, torch.zeros_like(logprob_K)
    entropy_J = token_entropy(logprob_JV)
    return logprob_K, entropy_J if pick_K is None else entropy_J[pick_K]


OF_TRAINED = ("importance_weight_mean", "importance_capped_share")
"""Measurements that compare trainer and sampler: means over the tokens with a gradient."""


@dataclass(frozen=True)
class _Targets:
    """Advantages of the whole batch, the mean of each term over it, and PPO's returns."""

    advantage: Tensor
    """Per row, shape (U,), or per row and token, shape (U, T)."""
    policy: Mean
    kl: Mean
    entropy: Mean
    kl_UT: Tensor | None = None
    """KL per token, where it is part of the reward."""
    return_UT: Tensor | None = None


@dataclass(eq=False)
class Learner:
    """Policy, reference, value model and their optimisers."""

    policy: Policy
    """The trained model."""
    recipe: Recipe
    group_size: int
    """Rollouts per problem, n."""
    _: KW_ONLY
    reference: Policy | None = None
    """The frozen base model; needed with a KL term."""
    value_model: ValueModel | None = None
    """Needed for PPO."""
    token_budget: int = 8_192
    """Most tokens in one forward and backward pass; halved after an out-of-memory error."""
    merge: bool = True
    """Treat equal rollouts as one with a weight, and read shared prefixes once."""
    checkpointing: bool = False
    """Recompute layers in the backward pass instead of keeping their activations."""

    def __post_init__(self) -> None:
        self._longest_tree = self.policy.architecture.longest_tree if self.merge else 0
        self.optimiser = self._optimiser_of(self.policy.model)
        self.value_optimiser = None if self.value_model is None else self._optimiser_of(self.value_model)

    def _optimiser_of(self, model: nn.Module) -> Optimiser:
        recipe = self.recipe
        return Optimiser(
            model.parameters(), betas=recipe.adam_betas, weight_decay=recipe.weight_decay, clip=recipe.gradient_clip
        )

    def update(
        self, samples: Samples, reward_R: Tensor, *, learning_rate: float, value_learning_rate: float = 0.0
    ) -> dict[str, float]:
        """One optimiser step; returns its measurements.

        Args:
            samples: the rollout batch, whole groups of `group_size`.
            reward_R: rewards, float64; NaN where the reward function failed.
            learning_rate: learning rate of this step.
            value_learning_rate: learning rate of PPO's value model in this step.

        Returns:
            Means over the whole batch; those of `OF_TRAINED` over the tokens with a gradient, and missing without any.
            `loss` is the differentiated total, `policy_loss` its policy term, `kl` the divergence from the base model
            per sampled token. `kl` is missing if kl_coef is 0: no reference model is loaded then.

        Raises:
            RunFailed: loss or gradient is not finite; the weights are unchanged.
        """
        stats = self.gradient(samples, reward_R)
        stats["gradient_norm"] = _finite("gradient norm", self.optimiser.gradient_norm())
        if self.value_optimiser is not None:
            stats["value_gradient_norm"] = _finite("value gradient norm", self.value_optimiser.gradient_norm())
            self.value_optimiser.step(value_learning_rate)
        self.optimiser.step(learning_rate)
        return stats

    def gradient(self, samples: Samples, reward_R: Tensor) -> dict[str, float]:
        """Collect the gradient of one batch in the optimisers; returns the measurements.

        After an out-of-memory error the batch starts again with half of `token_budget`, which then holds for all later
        batches, until every micro-batch is one row.
        """
        while True:
            try:
                return self._gradient(samples, reward_R)
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error) or not self._halved(samples):
                    raise
            # Here the error, and with it every tensor of the failed pass, is gone.
            self._forget_gradient()

    def _halved(self, samples: Samples) -> bool:
        """Halve the size of micro-batches; False if the shortest two rows already stand alone."""
        size_R = torch.tensor([len(prompt) for prompt in samples.prompt_ids], device=samples.mask_RT.device)
        length_R = size_R[samples.prompt_index_R] + samples.mask_RT.sum(-1).long()
        self.token_budget = min(self.token_budget, int(length_R.max()) * len(length_R))
        if self.token_budget < 2 * int(length_R.min()):
            return False
        self.token_budget //= 2
        return True

    def _forget_gradient(self) -> None:
        self.optimiser.forget()
        if self.value_optimiser is not None:
            self.value_optimiser.forget()
        gc.collect()
        if self.policy.device.type == "cuda":
            torch.cuda.empty_cache()

    def _gradient(self, samples: Samples, reward_R: Tensor) -> dict[str, float]:
        rows = distinct(samples, reward_R, merge=self.merge)
        advantages, targets = self._targets(rows, reward_R)
        trained_U = self._trained(targets)
        stats: defaultdict[str, float] = defaultdict(float, {"loss": 0.0, "policy_loss": 0.0})
        for chosen_U in micro_batches(rows, trained_U, self.token_budget, self._longest_tree):
            with self._recomputing():
                loss, measured = self._loss(rows, chosen_U, targets)
                _finite("loss", measured["loss"])
                loss.backward()  # pyright: ignore[reportUnknownMemberType]
            self.optimiser.collect()
            if self.value_optimiser is not None:
                self.value_optimiser.collect()
            for name, value in measured.items():
                stats[name] += value
        mask_UT = rows.mask_UT[trained_U]
        share = float(targets.policy.rows(trained_U).of(mask_UT, mask_UT))
        for name in OF_TRAINED:
            if share > 0:
                stats[name] /= share
            else:
                stats.pop(name, None)
        if self.recipe.entropy_coef == 0:
            stats["entropy"] = float(targets.entropy.of(rows.entropy_UT, rows.mask_UT))
        if targets.kl_UT is not None:
            stats["kl"] = float(targets.kl.of(targets.kl_UT, rows.mask_UT))
        stats["zero_variance_share"] = advantages.zero_variance_share
        return dict(stats)

    @contextmanager
    def _recomputing(self) -> Generator[None]:
        """Checkpointed layers, which transformers has in training mode only; the models have no dropout."""
        policies = [self.policy.model] if self.value_model is None else [self.policy.model, self.value_model.backbone]
        models = cast("list[Any]", policies) if self.checkpointing else []
        for model in models:
            model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
            model.train()
        try:
            yield
        finally:
            for model in models:
                model.eval()
                model.gradient_checkpointing_disable()

    def _targets(self, rows: Rows, reward_R: Tensor) -> tuple[GroupAdvantages, _Targets]:
        recipe = self.recipe
        kl_UT, value_UT = self._before(rows)
        penalty_R = None if kl_UT is None else recipe.kl_coef * kl_UT.sum(-1)[rows.row_R]
        advantages = group_advantages(
            reward_R,
            self.group_size,
            normalize=recipe.normalize_advantage,
            std_epsilon=recipe.std_epsilon,
            penalty_R=penalty_R,
        )
        policy = self._mean(rows, advantages, recipe.zero_variance_filter_policy)
        kl = self._mean(rows, advantages, recipe.zero_variance_filter_kl)
        entropy = self._mean(rows, advantages, recipe.zero_variance_filter_entropy)
        if value_UT is None:
            return advantages, _Targets(advantages.advantage_R[rows.first_U], policy, kl, entropy, kl_UT)
        penalty_UT = None if kl_UT is None else recipe.kl_coef * kl_UT
        step_reward_UT = token_rewards(reward_R[rows.first_U], rows.mask_UT, penalty_UT)
        advantage_UT, return_UT = generalised_advantages(
            step_reward_UT, value_UT, rows.mask_UT, gamma=recipe.gae_gamma, lam=recipe.gae_lambda
        )
        if recipe.normalize_advantage:
            advantage_UT = normalised_over_tokens(
                advantage_UT, rows.mask_UT, std_epsilon=recipe.std_epsilon, weight_R=policy.weight_R
            )
        return advantages, _Targets(advantage_UT, policy, kl, entropy, kl_UT, return_UT)

    def _mean(self, rows: Rows, advantages: GroupAdvantages, zero_variance_filter: bool) -> Mean:
        weight_U = rows.summed(advantages.row_weight(zero_variance_filter=zero_variance_filter))
        return Mean.of_batch(rows.mask_UT, self.recipe.loss_aggregation, weight_U)

    def _before(self, rows: Rows) -> tuple[Tensor | None, Tensor | None]:
        """Scores of the whole batch that its targets need: KL per token for the reward, and values."""
        penalised = self.recipe.kl_coef > 0 and self.recipe.kl_in == "reward"
        kl_UT = torch.zeros_like(rows.sampled_logprob_UT) if penalised else None
        value_UT = torch.zeros_like(rows.sampled_logprob_UT) if self.value_model is not None else None
        if kl_UT is None and value_UT is None:
            return None, None
        every_U = torch.arange(len(rows), device=rows.first_U.device)
        with torch.no_grad():
            for chosen_U in micro_batches(rows, every_U, self.token_budget, self._longest_tree):
                layout = self._layout(rows, chosen_U)
                width = layout.mask_UT.shape[1]
                if kl_UT is not None:
                    logprob_UT, _ = score(self.policy, layout, temperature=self.recipe.temperature)
                    kl_UT[chosen_U, :width] = kl_estimate(
                        logprob_UT, self._reference_logprob(layout), layout.mask_UT, self.recipe.kl_estimator
                    )
                if value_UT is not None:
                    value_UT[chosen_U, :width] = self._values(layout)
        return kl_UT, value_UT

    def _loss(self, rows: Rows, chosen_U: Tensor, targets: _Targets) -> tuple[Tensor, dict[str, float]]:
        """Loss of some rows, as their share of the loss of the whole batch, and its stats.

        The rows are scored under the policy, the reference and the value model, as far as they are needed.
        """
        recipe, layout = self.recipe, self._layout(rows, chosen_U)
        width = layout.mask_UT.shape[1]

        def cut(tensor: Tensor) -> Tensor:
            return tensor[chosen_U] if tensor.ndim == 1 else tensor[chosen_U, :width]

        has_entropy, has_kl = recipe.entropy_coef > 0, recipe.kl_coef > 0 and recipe.kl_in == "loss"
        logprob_UT, entropy_UT = score(self.policy, layout, temperature=recipe.temperature, entropy=has_entropy)
        seen = Seen(
            logprob_RT=logprob_UT,
            sampled_logprob_RT=cut(rows.sampled_logprob_UT),
            advantage=cut(targets.advantage),
            mask_RT=layout.mask_UT,
            reference_logprob_RT=self._reference_logprob(layout) if has_kl else None,
            entropy_RT=entropy_UT if has_entropy else None,
            value_RT=None if targets.return_UT is None else self._values(layout),
            return_RT=None if targets.return_UT is None else cut(targets.return_UT),
        )
        policy_mean = targets.policy.rows(chosen_U)
        tis_cap = recipe.tis_cap if recipe.importance_sampling == "tis" else None
        policy = policy_loss(seen, policy_mean, tis_cap=tis_cap)
        total, stats = policy.value, policy.stats
        if seen.entropy_RT is not None:
            entropy = entropy_loss(seen, targets.entropy.rows(chosen_U))
            stats |= entropy.stats
            total = total + recipe.entropy_coef * entropy.value
        if seen.reference_logprob_RT is not None:
            kl = kl_loss(seen, targets.kl.rows(chosen_U), estimator=recipe.kl_estimator)
            stats |= kl.stats
            total = total + recipe.kl_coef * kl.value
        if seen.value_RT is not None:
            value = value_loss(seen, policy_mean)
            stats |= value.stats
            total = total + value.value
        return total, {**stats, "loss": total.item()}

    def _trained(self, targets: _Targets) -> Tensor:
        """Rows with a gradient; that of the others, such as groups of equal rewards, is exactly 0."""
        recipe = self.recipe
        policy_U, kl_U, entropy_U = (mean.weight_R != 0 for mean in (targets.policy, targets.kl, targets.entropy))
        trained_U = policy_U & (targets.advantage != 0) if targets.advantage.ndim == 1 else policy_U
        if recipe.kl_coef > 0 and recipe.kl_in == "loss":
            trained_U = trained_U | kl_U
        if recipe.entropy_coef > 0:
            trained_U = trained_U | entropy_U
        return trained_U.nonzero().squeeze(-1)

    def _layout(self, rows: Rows, chosen_U: Tensor) -> Layout:
        pad_id = self.policy.codec.pad_id
        layout = tree_layout(rows, chosen_U, pad_id, self.policy.dtype, self._longest_tree)
        return layout or plain_layout(rows, chosen_U, pad_id)

    def _reference_logprob(self, layout: Layout) -> Tensor:
        assert self.reference is not None, "a KL term needs the reference"
        with torch.no_grad():
            return score(self.reference, layout, temperature=self.recipe.temperature)[0]

    def _values(self, layout: Layout) -> Tensor:
        assert self.value_model is not None, "PPO needs the value model"
        value_SL = self.value_model(layout.input_ids_SL, layout.attention_mask, layout.position_ids_SL)
        return layout.source_values_to_rows(value_SL)


def _finite(what: str, value: float) -> float:
    if not math.isfinite(value):
        raise RunFailed(
            f"the {what} is {value}: training diverged; accepted: finite numbers",
            "Lower the learning rate. The weights are unchanged by this step, and the last checkpoint is kept.",
        )
    return value
