"""The loss of TRL's own GRPOTrainer, computed by TRL on a batch that TRL sampled, against ours on the same batch."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from isocompute_torch.losses import (
    Aggregation,
    Mean,
    Seen,
    entropy_loss,
    group_advantages,
    kl_loss,
    policy_loss,
    token_entropy,
    truncated_importance,
)

# transformers and TRL warn about their own future; none of it concerns the numbers compared here.
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

TEMPERATURE, CLIP, CAP, KL_COEF, ENTROPY_COEF = 0.7, 0.2, 1.1, 0.3, 0.05
PROMPTS, GROUP = 4, 6
# Three groups with different rewards, two failed rewards among them; one group without variance.
REWARDS = [1, 0, 0, 1, 0.5, None] + [0] * 5 + [2] + [1] * 6 + [0, None, 1, 1, 1, 0]
TRL_LOSSES: list[tuple[str, Aggregation]] = [
    ("dapo", "token-mean"),
    ("bnpo", "token-mean"),
    ("grpo", "seq-mean-token-mean"),
    ("cispo", "token-mean"),
]


@dataclass(frozen=True)
class Case:
    """A real trainer and the batch it sampled and scored."""

    trainer: Any
    inputs: dict[str, Tensor]

    def logits_RTV(self) -> Tensor:
        """Logits of each sampled token from the plain model, divided by the temperature."""
        tokens = torch.cat([self.inputs["prompt_ids"], self.inputs["completion_ids"]], 1)
        attention = torch.cat([self.inputs["prompt_mask"], self.inputs["completion_mask"]], 1)
        logits = self.trainer.model(input_ids=tokens, attention_mask=attention).logits
        return logits[:, -self.inputs["completion_ids"].shape[1] - 1 : -1] / TEMPERATURE

    def gradient(self, value: Tensor) -> Tensor:
        parameters = [parameter for parameter in self.trainer.model.parameters() if parameter.requires_grad]
        return torch.cat([grad.flatten() for grad in torch.autograd.grad(value, parameters)])


def tokenizer_and_model() -> tuple[Any, Any]:
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Split
    from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

    words = ["<pad>", "<eos>", *"0123456789*="]
    core = Tokenizer(WordLevel({word: i for i, word in enumerate(words)}, unk_token="<pad>"))
    core.pre_tokenizer = Split("", "isolated")
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, pad_token="<pad>", eos_token="<eos>")
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=len(words),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        initializer_range=0.3,
        pad_token_id=0,
        eos_token_id=1,
        tie_word_embeddings=False,
    )
    return tokenizer, Qwen2ForCausalLM(config)


@pytest.fixture
def make_case(tmp_path: Path) -> Callable[..., Case]:
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    def make(loss_type: str, *, kl_coef: float = 0.0, entropy_coef: float = 0.0) -> Case:
        base = tmp_path / "base"
        tokenizer, model = tokenizer_and_model()
        model.save_pretrained(base)
        prompts = ["12*3=", "7*8=", "301*4=", "5*5="]
        trainer = GRPOTrainer(
            model=str(base),
            processing_class=tokenizer,
            reward_funcs=lambda completions, **_: REWARDS,
            train_dataset=Dataset.from_dict({"prompt": prompts}),
            args=GRPOConfig(
                output_dir=str(tmp_path / "out"),
                model_init_kwargs={"dtype": "float32"},
                loss_type=loss_type,
                temperature=TEMPERATURE,
                beta=kl_coef,
                use_bias_correction_kl=False,
                entropy_coef=entropy_coef,
                epsilon=CLIP,
                # TRL's CISPO takes the cap itself, its clipped surrogate the distance from 1.
                epsilon_high=1 + CLIP if loss_type == "cispo" else CLIP,
                num_generations=GROUP,
                per_device_train_batch_size=PROMPTS * GROUP,
                gradient_accumulation_steps=1,
                max_completion_length=12,
                use_cpu=True,
                bf16=False,
                report_to="none",
                disable_tqdm=True,
                seed=1,
            ),
        )
        with torch.no_grad():
            for parameter in trainer.model.parameters():  # moved away from the reference that TRL loads from `base`
                parameter.add_(0.03 * torch.randn_like(parameter))
        trainer.model.train()
        trainer.current_gradient_accumulation_steps = 1
        rows = [{"prompt": prompt} for prompt in prompts for _ in range(GROUP)]
        inputs = trainer._generate_and_score_completions(rows)
        lengths = inputs["completion_mask"].sum(-1)
        assert lengths.min() < lengths.max(), "the comparison needs responses of different lengths"
        return Case(trainer, inputs)

    return make


def logprob(logits_RTV: Tensor, token_RT: Tensor) -> Tensor:
    return logits_RTV.log_softmax(-1).gather(-1, token_RT.unsqueeze(-1)).squeeze(-1)


@pytest.mark.parametrize(("loss_type", "aggregation"), TRL_LOSSES)
@pytest.mark.parametrize("mismatch", [False, True], ids=["exact sampler", "mismatched sampler"])
def test_loss_and_gradient_equal_those_of_trl(
    make_case: Callable[..., Case], loss_type: str, aggregation: Aggregation, mismatch: bool
) -> None:
    case = make_case(loss_type)
    mask_RT = case.inputs["completion_mask"].float()
    logprob_RT = logprob(case.logits_RTV(), case.inputs["completion_ids"])
    generator = torch.Generator().manual_seed(0)
    base_RT = logprob_RT.detach()
    sampled_RT = base_RT - 0.3 * torch.randn(mask_RT.shape, generator=generator) if mismatch else base_RT
    if mismatch:
        # The correction of its vLLM path, without an engine: the weights are an input of TRL's loss.
        case.trainer.use_vllm = True
        ratio_RT = (base_RT - sampled_RT).exp()
        case.inputs["importance_sampling_ratio"] = torch.clamp(ratio_RT, max=CAP)
        weight_RT = truncated_importance(Seen(base_RT, sampled_RT, mask_RT, mask_RT), mask_RT, CAP)
        assert (weight_RT == CAP).any()
        assert (weight_RT < CAP).any()
    theirs = case.trainer.compute_loss(case.trainer.model, case.inputs)

    group = group_advantages(torch.tensor([math.nan if r is None else r for r in REWARDS]), GROUP, std_epsilon=1e-4)
    rows = Seen(logprob_RT, sampled_RT, group.advantage_R, mask_RT)
    # TRL keeps the tokens of rollouts without a reward in its denominator.
    mean = Mean.of_batch(mask_RT, aggregation)
    ours = policy_loss(rows, mean, tis_cap=CAP)
    if loss_type != "cispo":  # whose loss has log pi in place of the ratio, and so the same gradient
        torch.testing.assert_close(ours.value, theirs, rtol=1e-5, atol=1e-5)
    expected = case.gradient(theirs)
    assert torch.linalg.norm(expected) > 1e-3
    assert torch.linalg.norm(case.gradient(ours.value) - expected) <= 1e-4 * torch.linalg.norm(expected)


def test_advantages_equal_those_of_trl_also_with_failed_rewards(make_case: Callable[..., Case]) -> None:
    case = make_case("dapo")
    group = group_advantages(torch.tensor([math.nan if r is None else r for r in REWARDS]), GROUP, std_epsilon=1e-4)
    torch.testing.assert_close(group.advantage_R, case.inputs["advantages"], rtol=1e-5, atol=1e-6)
    assert group.zero_variance_share == 1 / PROMPTS


def test_kl_and_entropy_terms_enter_with_the_signs_and_means_of_trl(make_case: Callable[..., Case]) -> None:
    case = make_case("dapo", kl_coef=KL_COEF, entropy_coef=ENTROPY_COEF)
    mask_RT = case.inputs["completion_mask"].float()
    logits_RTV = case.logits_RTV()
    logprob_RT = logprob(logits_RTV, case.inputs["completion_ids"])
    reference_RT = case.inputs["ref_per_token_logps"]
    theirs = case.trainer.compute_loss(case.trainer.model, case.inputs)
    rows = Seen(
        logprob_RT,
        logprob_RT.detach(),
        case.inputs["advantages"],
        mask_RT,
        reference_logprob_RT=reference_RT,
        entropy_RT=token_entropy(logits_RTV.log_softmax(-1)),
    )
    mean = Mean.of_batch(mask_RT, "token-mean")
    policy = policy_loss(rows, mean, tis_cap=CAP)
    kl = kl_loss(rows, mean, estimator="k3")
    entropy = entropy_loss(rows, mean)
    ours = policy.value + KL_COEF * kl.value + ENTROPY_COEF * entropy.value
    assert kl.stats["kl"] > 0.01
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
    expected = case.gradient(theirs)
    assert torch.linalg.norm(case.gradient(ours) - expected) <= 1e-4 * torch.linalg.norm(expected)
    logged = case.trainer._metrics["train"]
    assert kl.stats["kl"] == pytest.approx(logged["kl"][-1], rel=1e-5)
    assert entropy.stats["entropy"] == pytest.approx(logged["entropy"][-1], rel=1e-5)
