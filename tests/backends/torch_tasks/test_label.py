"""Pass rates by one forward pass are the frequencies of real samples."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from isocompute_torch.tasks import PreparedTask
from isocompute_torch.tasks.arithmetic import MAX_RESPONSE_TOKENS, problems
from isocompute_torch.tasks.build import build_tokenizer, encode, pass_rates, sampled_passes

TOKENIZER = build_tokenizer()


@pytest.fixture(scope="module")
def base_model(easy_task: PreparedTask) -> Any:
    return AutoModelForCausalLM.from_pretrained(easy_task.model)


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_pass_rates_are_the_frequencies_of_right_responses_in_real_samples(base_model: Any, temperature: float) -> None:
    samples = 100
    chosen = problems("mul31")[1234::617]
    rates_P = pass_rates(base_model, encode(chosen, TOKENIZER), temperature)
    torch.manual_seed(0)
    prompts = torch.tensor(TOKENIZER([problem.prompt for problem in chosen])["input_ids"])
    written = base_model.generate(
        prompts,
        attention_mask=torch.ones_like(prompts),
        temperature=temperature,
        top_k=0,
        num_return_sequences=samples,
        max_new_tokens=MAX_RESPONSE_TOKENS,
    )
    texts = TOKENIZER.batch_decode(written[:, prompts.shape[1] :], skip_special_tokens=True)
    right = [texts[i] == chosen[i // samples].answer for i in range(len(texts))]
    counts_P = np.reshape(right, (len(chosen), samples)).sum(axis=1)
    deviation_P = np.sqrt(samples * rates_P * (1 - rates_P))
    assert np.all(np.abs(counts_P - samples * rates_P) < 4.5 * deviation_P + 2)
    assert (rates_P > 0.2).sum() >= 3


def test_a_problem_has_the_same_rate_alone_and_padded_beside_longer_ones(base_model: Any) -> None:
    short, long = problems("mul31")[40:60], problems("add32")[40:60]
    alone_P = pass_rates(base_model, encode(short, TOKENIZER))
    together_P = pass_rates(base_model, encode([*short, *long], TOKENIZER))
    np.testing.assert_allclose(together_P[: len(short)], alone_P, rtol=1e-4)


def test_a_low_temperature_turns_rates_into_greedy_hits(base_model: Any) -> None:
    rates_P = pass_rates(base_model, encode(problems("mul31")[::50], TOKENIZER), temperature=1e-3)
    assert np.mean((rates_P < 0.01) | (rates_P > 0.99)) > 0.95
    assert rates_P.max() <= 1.0


def test_sampled_passes_have_the_mean_and_the_spread_of_independent_samples() -> None:
    rates_P = np.repeat([0.0, 0.25, 1.0], 20_000)
    passes_P = sampled_passes(rates_P, 16, np.random.default_rng(0)).reshape(3, -1)
    assert passes_P[0].max() == 0
    assert passes_P[2].min() == 16
    assert passes_P[1].mean() == pytest.approx(4.0, abs=0.06)
    assert passes_P[1].var() == pytest.approx(3.0, abs=0.15)
