"""A real vLLM engine samples from the policy's distribution, by the conventions of the torch sampler."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
import torch
from scipy import stats

from isocompute_torch.configuration import InputError
from isocompute_torch.sampler import Sampler, Samples, TorchSampler, log_distribution
from isocompute_torch.vllm_sampler import CPU_TOKENS_AT_ONCE, VLLMSampler

if TYPE_CHECKING:
    from isocompute_torch.policy import Policy

pytestmark = pytest.mark.vllm

PROMPTS = [[2, 12, 3, 13], [4, 13], [5, 12, 6, 12, 7, 13, 2, 2, 3], [9, 9, 13]]
EOS = 1
TOKENS = 9


def full_logprobs(policy: Policy, sequence: list[int], temperature: float, top_p: float = 1.0) -> torch.Tensor:
    """Log-distributions after every token of one sequence, from one forward pass in torch."""
    model: Any = policy.model
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([sequence]), use_cache=False).logits[0]
    return log_distribution(logits, temperature, top_p)


def draw(sampler: Sampler, n: int = 6, prompts: list[list[int]] = PROMPTS, **changes: Any) -> Samples:
    settings: dict[str, Any] = {"temperature": 1.0, "top_p": 1.0, "max_tokens": TOKENS, "seed": 3}
    return sampler.sample(prompts, n, **{**settings, **changes})


def response_of(samples: Samples, row: int) -> list[int]:
    return samples.response_RT[row, : int(samples.mask_RT[row].sum())].tolist()


def largest_difference(policy: Policy, samples: Samples, temperature: float = 1.0, top_p: float = 1.0) -> float:
    """Largest difference of log-probabilities between engine and torch over all sampled tokens."""
    worst = 0.0
    for row, prompt in enumerate(samples.prompt_index_R.tolist()):
        response = response_of(samples, row)
        sequence = samples.prompt_ids[prompt] + response
        expected_VT = full_logprobs(policy, sequence, temperature, top_p)[-len(response) - 1 : -1]
        expected_T = expected_VT.gather(-1, torch.tensor(response).unsqueeze(-1)).squeeze(-1)
        worst = max(worst, float((samples.logprob_RT[row, : len(response)] - expected_T).abs().max()))
    return worst


@pytest.mark.parametrize(("temperature", "top_p"), [(1.0, 1.0), (0.6, 1.0), (1.7, 1.0), (1.0, 0.8), (0.6, 0.5)])
def test_log_probabilities_are_those_of_torch_under_the_sampling_distribution(
    policy: Policy, sampler: VLLMSampler, temperature: float, top_p: float
) -> None:
    samples = draw(sampler, 32, temperature=temperature, top_p=top_p)
    assert largest_difference(policy, samples, temperature, top_p) < 1e-4


def test_changed_weights_are_sampled_from_after_a_sync_and_not_before(
    policy: Policy, sampler: VLLMSampler, perturbed: torch.nn.Module
) -> None:
    before = draw(sampler, 16)
    assert largest_difference(policy, before) > 0.1
    sampler.sync(perturbed)
    after = draw(sampler, 16)
    assert largest_difference(policy, after) < 1e-4
    assert not torch.equal(before.response_RT, after.response_RT)


def test_an_engine_sleeps_until_the_next_weights_and_then_samples_from_them(
    policy: Policy, sampler: VLLMSampler, perturbed: torch.nn.Module
) -> None:
    engine: Any = sampler._engine
    before = draw(sampler, 16)
    assert sampler.rest() > 0
    assert engine.llm_engine.is_sleeping()
    assert sampler.rest() >= 0  # a second time it stays asleep
    with pytest.raises(AssertionError, match="sleeps"):
        draw(sampler)
    sampler.sync(perturbed)
    assert not engine.llm_engine.is_sleeping()
    after = draw(sampler, 16)
    assert largest_difference(policy, after) < 1e-4
    assert not torch.equal(before.response_RT, after.response_RT)


@pytest.mark.parametrize(("temperature", "top_p"), [(1.0, 1.0), (0.6, 1.0), (1.0, 0.8)])
def test_frequencies_pass_a_chi_square_test_against_the_model(
    policy: Policy, sampler: VLLMSampler, temperature: float, top_p: float
) -> None:
    n, prompts = 4000, [[2, 12, 3, 13], [4, 13]]
    samples = draw(sampler, n, prompts, temperature=temperature, top_p=top_p, max_tokens=2, seed=11)
    for index, prompt in enumerate(prompts):
        probability = two_token_probabilities(policy, prompt, temperature, top_p)
        counts = Counter(tuple(response_of(samples, index * n + i)) for i in range(n))
        assert all(probability[response] > 0 for response in counts)
        common = [response for response, p in probability.items() if p * n >= 5]
        observed = [counts[response] for response in common]
        expected = [probability[response] * n for response in common]
        rest = n - sum(expected)
        if rest > 5:
            observed, expected = [*observed, n - sum(observed)], [*expected, rest]
        scale = sum(observed) / sum(expected)
        assert len(expected) > 5
        assert stats.chisquare(observed, [value * scale for value in expected]).pvalue > 1e-3


def two_token_probabilities(
    policy: Policy, prompt: list[int], temperature: float, top_p: float
) -> dict[tuple[int, ...], float]:
    """Exact probability of every response of at most two tokens."""
    first = full_logprobs(policy, prompt, temperature, top_p)[-1].exp()
    probability: dict[tuple[int, ...], float] = {(EOS,): first[EOS].item()}
    for token in range(len(first)):
        if token != EOS:
            second = full_logprobs(policy, [*prompt, token], temperature, top_p)[-1].exp()
            probability |= {(token, other): (first[token] * second[other]).item() for other in range(len(second))}
    return probability


@pytest.fixture(params=["torch", "vllm"])
def either(request: pytest.FixtureRequest, policy: Policy) -> Sampler:
    return TorchSampler(policy) if request.param == "torch" else request.getfixturevalue("sampler")


def test_both_samplers_lay_samples_out_alike(either: Sampler, policy: Policy) -> None:
    samples = draw(either, 40)
    rows, width = 40 * len(PROMPTS), samples.response_RT.shape[1]
    assert samples.prompt_index_R.tolist() == [i for i in range(len(PROMPTS)) for _ in range(40)]
    assert samples.prompt_ids == PROMPTS
    for tensor in (samples.response_RT, samples.mask_RT, samples.logprob_RT):
        assert tensor.shape == (rows, width)
    assert (samples.response_RT.dtype, samples.prompt_index_R.dtype) == (torch.int64, torch.int64)
    assert (samples.mask_RT.dtype, samples.logprob_RT.dtype) == (torch.float32, torch.float32)
    assert samples.truncated_R.dtype == torch.bool
    lengths = samples.mask_RT.sum(-1).long()
    assert width == int(lengths.max())
    for row, length in enumerate(lengths.tolist()):
        response = response_of(samples, row)
        ended = response[-1] == EOS
        assert EOS not in response[:-1]
        assert bool(samples.truncated_R[row]) is not ended
        assert ended or length == TOKENS
        assert samples.mask_RT[row].tolist() == [1.0] * length + [0.0] * (width - length)
        assert set(samples.response_RT[row, length:].tolist()) <= {policy.codec.pad_id}
        assert set(samples.logprob_RT[row, length:].tolist()) <= {0.0}
        assert bool((samples.logprob_RT[row, :length] < 0).all())
    assert 0 < int(samples.truncated_R.sum()) < rows


@pytest.mark.parametrize("tokens", range(1, TOKENS + 1))
def test_greedy_rollouts_equal_the_torch_samplers_whatever_the_largest_length(
    policy: Policy, sampler: VLLMSampler, tokens: int
) -> None:
    found = draw(sampler, 3, GREEDY, temperature=0.0, max_tokens=tokens)
    expected = draw(TorchSampler(policy), 3, GREEDY, temperature=0.0, max_tokens=tokens)
    for field in ("prompt_index_R", "response_RT", "mask_RT", "logprob_RT", "truncated_R"):
        assert torch.equal(getattr(found, field), getattr(expected, field)), field
    assert found.prompt_ids == expected.prompt_ids


GREEDY = [[first, second, 13] for first in range(2, 12) for second in (2, 7)]


def test_one_seed_gives_one_batch_whatever_was_sampled_before(sampler: VLLMSampler) -> None:
    first = draw(sampler)
    draw(sampler, 3, [[7, 7, 13], *PROMPTS], seed=99)
    again = draw(sampler)
    assert torch.equal(first.response_RT, again.response_RT)
    assert torch.equal(first.logprob_RT, again.logprob_RT)
    assert not torch.equal(first.response_RT, draw(sampler, seed=4).response_RT)


def test_a_rollouts_tokens_do_not_depend_on_the_size_of_the_batch(sampler: VLLMSampler) -> None:
    together, alone = draw(sampler, 6), draw(sampler, 3, PROMPTS[:1])
    assert [response_of(together, row) for row in range(3)] == [response_of(alone, row) for row in range(3)]


def test_more_prompts_than_fit_into_one_forward_pass_are_sampled_from_all_the_same(
    policy: Policy, sampler: VLLMSampler
) -> None:
    prompts = [[2 + i % 10, 2 + i // 10 % 10, 2 + i // 100, 12, 3, 12, 4, 12, 13] for i in range(600)]
    assert sum(len(prompt) for prompt in prompts) > CPU_TOKENS_AT_ONCE
    samples = draw(sampler, 2, prompts, max_tokens=3)
    assert largest_difference(policy, samples) < 1e-4


def test_equal_prompts_get_rollouts_of_their_own(sampler: VLLMSampler) -> None:
    samples = draw(sampler, 8, [PROMPTS[0], PROMPTS[0]])
    assert [response_of(samples, row) for row in range(8)] != [response_of(samples, row) for row in range(8, 16)]


def test_responses_for_which_the_engine_has_no_room_are_refused(sampler: VLLMSampler) -> None:
    with pytest.raises(InputError, match=r"25.*24"):
        draw(sampler, max_tokens=16)


def test_a_temperature_that_vllm_would_change_is_refused(sampler: VLLMSampler) -> None:
    with pytest.raises(InputError, match=r"temperature.* 0\.001"):
        draw(sampler, temperature=0.001)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_a_sleeping_engine_gives_the_memory_of_a_gpu_back(model_folder: Any) -> None:
    from isocompute_torch.policy import load_policy

    policy = load_policy(str(model_folder), torch.device("cuda"), torch.bfloat16)
    sampler = VLLMSampler(policy, str(model_folder), longest=24, memory_share=0.3)
    try:
        free, total = torch.cuda.mem_get_info()
        sampler.rest()
        assert torch.cuda.mem_get_info()[0] - free > 0.2 * total
        sampler.sync(policy.model)
        assert draw(sampler, 16).tokens > 0
        assert abs(torch.cuda.mem_get_info()[0] - free) < 0.05 * total
    finally:
        sampler.close()
