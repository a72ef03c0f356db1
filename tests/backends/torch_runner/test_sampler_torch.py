"""The torch sampler draws from the model's distribution, whatever the batch looks like."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from scipy import stats

from isocompute_torch.policy import Policy, load_policy
from isocompute_torch.sampler import Samples, TorchSampler, draw, log_distribution
from tests.parameters import few

FAMILIES = ["qwen2", "qwen3", "llama", "mistral-window", "gemma2", "gpt2"]
PROMPTS = [[2, 12, 3, 13], [4, 13], [5, 12, 6, 12, 7, 13], [9, 9, 13]]
EOS = 1


def full_logprobs(policy: Policy, sequence: list[int], temperature: float, top_p: float = 1.0) -> torch.Tensor:
    """Log-distributions after every token of one sequence, from one forward pass without cache or padding."""
    model: Any = policy.model
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([sequence]), use_cache=False).logits[0]
    return log_distribution(logits.float(), temperature, top_p)


def response_of(samples: Samples, row: int) -> list[int]:
    return samples.response_RT[row, : int(samples.mask_RT[row].sum())].tolist()


@pytest.mark.parametrize(
    ("family", "merge", "rows"),
    few(
        [("gemma2", True, 7), ("gpt2", False, 5), ("qwen2", True, 4096), ("qwen2", False, 4096)]
        + [(family, True, 7) for family in FAMILIES if family != "gemma2"],
        3,
    ),
)
def test_log_probabilities_are_those_of_a_full_forward_pass(
    policy: Callable[..., Policy], family: str, merge: bool, rows: int
) -> None:
    chosen = policy(family)
    samples = TorchSampler(chosen, rows_at_once=rows, merge=merge).sample(
        PROMPTS, 6, temperature=0.8, top_p=1.0, max_tokens=9, seed=3
    )
    assert samples.prompt_index_R.tolist() == [i for i in range(4) for _ in range(6)]
    for row, prompt in enumerate(samples.prompt_index_R.tolist()):
        response = response_of(samples, row)
        expected = full_logprobs(chosen, PROMPTS[prompt] + response, 0.8)
        for t, token in enumerate(response):
            found = samples.logprob_RT[row, t].item()
            assert found == pytest.approx(expected[len(PROMPTS[prompt]) + t - 1, token].item(), abs=1e-4)
        ended = response[-1] == EOS
        assert bool(samples.truncated_R[row]) is not ended
        assert EOS not in response[:-1]
        assert ended or len(response) == 9


@pytest.mark.parametrize("family", ["qwen2", "gpt2", "mistral"])
def test_what_all_prompts_begin_with_is_read_once(policy: Callable[..., Policy], family: str) -> None:
    chosen, system_prompt = policy(family), [5, 6, 7, 8] * 5
    prompts = [system_prompt + prompt for prompt in PROMPTS]
    read: list[int] = []
    backbone: Any = chosen.model.base_model
    with_hook = backbone.register_forward_pre_hook(
        lambda _, __, given: read.append(given["input_ids"].numel()), with_kwargs=True
    )
    samples = TorchSampler(chosen).sample(prompts, 6, temperature=0.8, top_p=1.0, max_tokens=9, seed=3)
    with_hook.remove()
    assert read[:2] == [20, 4 * 6]
    for row, prompt in enumerate(samples.prompt_index_R.tolist()):
        response = response_of(samples, row)
        expected = full_logprobs(chosen, prompts[prompt] + response, 0.8)
        found = samples.logprob_RT[row, : len(response)].tolist()
        wanted = [expected[len(prompts[prompt]) + t - 1, token].item() for t, token in enumerate(response)]
        assert found == pytest.approx(wanted, abs=1e-4)


@pytest.mark.parametrize("vocabulary", [1280, 5000])
def test_draws_follow_the_probabilities_of_their_row_in_a_vocabulary_of_any_size(vocabulary: int) -> None:
    """Each of three rows is drawn from many times; half of the tokens have probability 0, the last ones too."""
    generator = torch.Generator().manual_seed(2)
    mass = (4 * torch.randn(3, vocabulary, generator=generator)).softmax(-1)
    mass[:, torch.rand(vocabulary, generator=generator) < 0.5] = 0.0
    mass[:, -200:] = 0.0
    row = torch.arange(3).repeat_interleave(20_000)
    first, again = (draw(mass, row, torch.Generator().manual_seed(7)) for _ in range(2))
    assert torch.equal(first, again)
    assert not torch.equal(first, draw(mass, row, torch.Generator().manual_seed(8)))
    for index in range(3):
        expected = 20_000 * mass[index].double() / mass[index].double().sum()
        counts = torch.bincount(first[row == index], minlength=vocabulary)
        assert counts[mass[index] == 0].sum() == 0
        common = expected >= 5
        pairs = [(counts[common], expected[common]), (counts[~common].sum()[None], expected[~common].sum()[None])]
        observed, predicted = (torch.cat(part).numpy() for part in zip(*pairs, strict=True))
        assert stats.chisquare(observed, predicted).pvalue > 1e-3


@pytest.mark.parametrize("family", few(FAMILIES, {"qwen2", "gemma2", "gpt2"}))
def test_greedy_decoding_equals_generate(policy: Callable[..., Policy], family: str) -> None:
    chosen = policy(family)
    model: Any = chosen.model
    samples = TorchSampler(chosen).sample(PROMPTS, 1, temperature=0.0, top_p=1.0, max_tokens=8, seed=0)
    for row, prompt in enumerate(PROMPTS):
        expected = model.generate(
            torch.tensor([prompt]), attention_mask=torch.ones(1, len(prompt)), max_new_tokens=8, do_sample=False
        )[0, len(prompt) :].tolist()
        assert response_of(samples, row) == expected
    assert samples.logprob_RT.abs().max() == 0


@pytest.mark.parametrize("merge", [False, True])
def test_a_stop_text_ends_a_response_that_keeps_it(model_folder: Callable[[str], Path], merge: bool) -> None:
    chosen = load_policy(str(model_folder("qwen2")), torch.device("cpu"), torch.float32, ("+", "12"))
    sampled = TorchSampler(chosen, merge=merge).sample(PROMPTS, 40, temperature=2.0, top_p=1.0, max_tokens=8, seed=4)
    responses = [response_of(sampled, row) for row in range(160)]
    texts = chosen.codec.decode(responses)
    stopped = ["+" in text or "12" in text for text in texts]
    assert sum(stopped) > 30
    for text, response, stop, cut in zip(texts, responses, stopped, sampled.truncated_R.tolist(), strict=True):
        assert not stop or text.endswith(("+", "12"))
        assert "+" not in text[:-1]
        assert "12" not in text[:-1]
        assert cut is not (stop or response[-1] == EOS)


def test_log_distribution_keeps_the_smallest_set_that_reaches_top_p() -> None:
    logits = torch.tensor([[0.4, 0.3, 0.2, 0.1], [0.97, 0.01, 0.01, 0.01]]).log()
    kept = log_distribution(logits, 1.0, 0.6).exp()
    assert kept[0].tolist() == pytest.approx([4 / 7, 3 / 7, 0, 0])
    assert kept[1].tolist() == pytest.approx([1, 0, 0, 0])
