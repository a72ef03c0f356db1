"""Updates: the gradient against the written-out loss, and the optimiser."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest
import torch
from torch import nn

from isocompute_sdk.specs import Recipe
from isocompute_torch import learner as scoring
from isocompute_torch.configuration import RunFailed
from isocompute_torch.learner import Learner, Optimiser
from isocompute_torch.policy import Policy, load_reference, load_value_model
from isocompute_torch.sampler import Samples, TorchSampler
from tests.parameters import few

PROMPTS = [[2, 12, 3, 13], [4, 13], [5, 12, 6, 12, 7, 13], [9, 9, 13]]
GROUP = 24


def rollouts(policy: Policy, seed: int = 1) -> tuple[Samples, torch.Tensor]:
    """A batch with duplicates, a failed reward and a group of equal rewards."""
    samples = TorchSampler(policy).sample(PROMPTS, GROUP, temperature=0.5, top_p=1.0, max_tokens=5, seed=seed)
    rewards = (samples.response_RT[:, 0] % 3 == 0).double() + (samples.mask_RT.sum(-1) % 2).double()
    rewards[7] = torch.nan
    rewards[:GROUP][samples.mask_RT[:GROUP].sum(-1) > 0] = 1.0
    return samples, rewards


def learner_for(policy: Policy, recipe: Recipe, folder: str, **options: Any) -> Learner:
    return Learner(
        policy,
        recipe,
        GROUP,
        reference=load_reference(folder, policy.device, policy.dtype, policy.codec) if recipe.kl_coef > 0 else None,
        value_model=load_value_model(folder, policy.device, policy.dtype) if recipe.algorithm == "ppo" else None,
        **options,
    )


def gradient(learner: Learner, samples: Samples, rewards: torch.Tensor) -> tuple[torch.Tensor, dict[str, float]]:
    learner.policy.model.zero_grad()
    stats = learner.gradient(samples, rewards)
    parts = [p.grad.flatten() for p in learner.policy.model.parameters() if p.grad is not None]
    if learner.value_model is not None:
        learner.value_model.requires_grad_(True)
        parts += [p.grad.flatten() for p in learner.value_model.parameters() if p.grad is not None]
        learner.value_model.zero_grad()
    return torch.cat(parts).clone(), stats


def moved(policy: Policy) -> Policy:
    """The policy away from its reference, so that KL terms are not 0."""
    torch.manual_seed(4)
    with torch.no_grad():
        for parameter in policy.model.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    return policy


RECIPES = {
    "grpo": {"preset": "hard"},
    "grpo-terms": {"preset": "easy", "kl_coef": 0.1, "entropy_coef": 0.2},
    "grpo-filters": {
        "preset": "easy",
        "kl_coef": 0.1,
        "entropy_coef": 0.2,
        "zero_variance_filter_policy": True,
        "zero_variance_filter_kl": True,
        "loss_aggregation": "seq-mean-token-mean",
    },
    "grpo-kl-in-reward": {"preset": "easy", "kl_coef": 0.1, "kl_in": "reward", "kl_estimator": "k1"},
    "cispo": {"preset": "hard", "algorithm": "cispo", "normalize_advantage": False},
    "ppo": {"preset": "easy", "algorithm": "ppo", "kl_coef": 0.1, "gae_lambda": 0.9, "value_clip": 0.2},
}


@pytest.mark.parametrize(
    ("name", "family", "dtype", "tolerance"),
    few(
        [
            *((name, "gpt2", torch.float64, 1e-10) for name in RECIPES),
            *((name, "qwen2", torch.float32, 1e-5) for name in ("grpo-filters", "ppo")),
        ],
        len(RECIPES),
    ),
)
def test_merging_and_micro_batches_leave_the_gradient_unchanged(
    policy: Callable[..., Policy],
    model_folder: Callable[[str], Any],
    name: str,
    family: str,
    dtype: torch.dtype,
    tolerance: float,
) -> None:
    """In float64 with GPT-2: the norms of the others round to float32 inside."""
    chosen = moved(policy(family, dtype))
    samples, rewards = rollouts(chosen)
    recipe = Recipe.model_validate({**RECIPES[name], "temperature": 0.5})
    folder = str(model_folder(family))
    whole, stats = gradient(learner_for(chosen, recipe, folder, merge=False), samples, rewards)
    assert whole.norm() > 1e-3
    for options in [{"merge": True}, {"merge": False, "token_budget": 60}, {"merge": True, "token_budget": 40}]:
        other, other_stats = gradient(learner_for(chosen, recipe, folder, **options), samples, rewards)
        assert ((other - whole).norm() / whole.norm()).item() < tolerance
        assert other_stats == pytest.approx(stats, rel=1e-4, abs=1e-6)


def test_the_gradient_is_that_of_the_written_out_loss(policy: Callable[..., Policy]) -> None:
    chosen = policy("gpt2", torch.float64)
    samples, rewards = rollouts(chosen)
    recipe = Recipe.model_validate({"preset": "hard", "temperature": 0.5})
    found, stats = gradient(Learner(chosen, recipe, GROUP), samples, rewards)
    model: Any = chosen.model
    model.zero_grad()
    loss, tokens, entropies = torch.zeros((), dtype=torch.float64), 0, 0.0
    for group in range(len(PROMPTS)):
        members = [row for row in range(group * GROUP, (group + 1) * GROUP) if not rewards[row].isnan()]
        known = rewards[members]
        for row in members:
            response = samples.response_RT[row, : int(samples.mask_RT[row].sum())]
            sequence = torch.cat([torch.tensor(PROMPTS[group]), response])
            logits = model(input_ids=sequence[None, :-1]).logits[0, len(PROMPTS[group]) - 1 :] / 0.5
            logprob = logits.log_softmax(-1)
            advantage = (rewards[row] - known.mean()) / (known.std() + 1e-6) if known.std() > 0 else 0.0
            loss = loss - advantage * logprob.gather(-1, response[:, None]).sum()
            entropies -= (logprob.exp() * logprob).sum().item()
            tokens += len(response)
    (loss / tokens).backward()
    expected = torch.cat([p.grad.flatten() for p in model.parameters()])
    assert ((found - expected).norm() / expected.norm()).item() < 1e-8
    assert stats["entropy"] == pytest.approx(entropies / tokens, rel=1e-6)
    assert stats["zero_variance_share"] >= 0.25
    assert stats["loss"] == stats["policy_loss"]
    assert "kl" not in stats, "without a reference there is nothing to measure it against"


def test_logits_in_pieces_give_the_same_gradient(
    policy: Callable[..., Policy], monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = policy("gpt2", torch.float64)
    samples, rewards = rollouts(chosen)
    recipe = Recipe.model_validate({"preset": "easy", "kl_coef": 0.0, "temperature": 0.5})
    whole, _ = gradient(Learner(chosen, recipe, GROUP), samples, rewards)
    monkeypatch.setattr(scoring, "KEPT_LOGITS", 100)
    pieces, _ = gradient(Learner(chosen, recipe, GROUP), samples, rewards)
    assert ((pieces - whole).norm() / whole.norm()).item() < 1e-10


def test_a_batch_without_signal_still_moves_the_running_means(policy: Callable[..., Policy]) -> None:
    """A gradient of 0 is a step of AdamW, whether or not anything went backward."""
    first, second = policy("qwen2"), policy("qwen2")
    recipe = Recipe.model_validate({"preset": "hard", "temperature": 0.5})
    for chosen in (first, second):
        samples, rewards = rollouts(chosen)
        learner = Learner(chosen, recipe, GROUP, merge=chosen is first)
        learner.update(samples, rewards, learning_rate=1e-2)
        before = [p.detach().clone() for p in chosen.model.parameters()]
        stats = learner.update(samples, torch.ones_like(rewards), learning_rate=1e-2)
        assert stats["gradient_norm"] == 0
        assert stats["zero_variance_share"] == 1
        assert any(not torch.equal(p, q) for p, q in zip(chosen.model.parameters(), before, strict=True))


def test_groups_of_equal_rewards_do_not_go_through_the_model_to_be_measured(policy: Callable[..., Policy]) -> None:
    chosen = policy("qwen2", torch.float64)
    samples, rewards = rollouts(chosen)
    rows_read: list[int] = []
    cast("Any", chosen.model).base_model.register_forward_pre_hook(
        lambda _model, _arguments, given: rows_read.append(len(given["input_ids"])), with_kwargs=True
    )
    learner = Learner(chosen, Recipe.model_validate({"preset": "hard", "temperature": 0.5}), GROUP, merge=False)
    stats = learner.gradient(samples, torch.ones_like(rewards))
    assert rows_read == []
    assert stats == {"loss": 0, "policy_loss": 0, "entropy": stats["entropy"], "zero_variance_share": 1}
    rewards[GROUP:] = 1.0
    rewards[:GROUP] = torch.arange(GROUP) % 2
    mixed = learner.gradient(samples, rewards)
    assert sum(rows_read) == GROUP
    assert mixed["entropy"] == stats["entropy"]
    assert mixed["importance_weight_mean"] == pytest.approx(1.0, abs=1e-6)


def test_a_loss_that_is_not_finite_stops_the_run_before_the_step(policy: Callable[..., Policy]) -> None:
    chosen = policy("qwen2")
    samples, rewards = rollouts(chosen)
    recipe = Recipe.model_validate({"preset": "hard", "temperature": 0.5})
    learner = Learner(chosen, recipe, GROUP)
    rewards[0], rewards[1] = float("inf"), 0.0
    before = [p.detach().clone() for p in chosen.model.parameters()]
    with pytest.raises(RunFailed):
        learner.update(samples, rewards, learning_rate=1e-2)
    assert all(torch.equal(p, q) for p, q in zip(chosen.model.parameters(), before, strict=True))


def test_bfloat16_weights_follow_float32_adamw_on_the_same_gradients() -> None:
    generator = torch.Generator().manual_seed(0)
    start = (1 + torch.rand(64, generator=generator)).bfloat16()
    weights, reference = nn.Parameter(start.clone()), nn.Parameter(start.float())
    ours = Optimiser([weights], betas=(0.9, 0.999), weight_decay=0.01, clip=1.0)
    plain = torch.optim.AdamW([reference], lr=3e-5, betas=(0.9, 0.999), weight_decay=0.01)
    for _ in range(400):
        halves = [torch.rand(64, generator=generator).bfloat16() for _ in range(2)]
        for half in halves:  # two micro-batches
            weights.grad = half.clone()
            ours.collect()
        reference.grad = halves[0].float() + halves[1].float()
        torch.nn.utils.clip_grad_norm_([reference], 1.0)
        ours.gradient_norm()
        ours.step(3e-5)
        plain.step()
    (master,) = ours.state()["masters"]
    torch.testing.assert_close(master, reference.detach(), rtol=1e-6, atol=0)
    torch.testing.assert_close(weights.detach(), reference.detach().bfloat16(), rtol=0, atol=0)
    # One update alone is below half a step of bfloat16, so that without the copy nothing would ever move.
    assert torch.equal((start.float() - 3e-5).bfloat16(), start)
    assert (weights.detach() != start).float().mean() > 0.9


def test_a_gradient_that_is_forgotten_leaves_nothing_behind() -> None:
    for dtype in (torch.float32, torch.bfloat16):
        weights = nn.Parameter(torch.ones(4, dtype=dtype))
        optimiser = Optimiser([weights], betas=(0.9, 0.999), weight_decay=0.0, clip=1.0)
        weights.grad = torch.ones(4, dtype=dtype)
        optimiser.collect()
        weights.grad = torch.ones(4, dtype=dtype)
        optimiser.forget()
        assert optimiser.gradient_norm() == 0.0
