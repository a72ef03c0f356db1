"""A character tokenizer and a very small causal language model, both of the kinds that Hugging Face loads by name."""

from __future__ import annotations

import string
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers.models import WordLevel
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedTokenizerFast

from isocompute_torch.tasks.problem_families import MAX_RESPONSE_TOKENS, SIGNS, Problem
from isocompute_torch.tasks.settings import ModelShape

if TYPE_CHECKING:
    from transformers import PreTrainedModel

PAD, EOS = "<pad>", "<eos>"
ALPHABET = string.digits + SIGNS
VOCABULARY = {token: number for number, token in enumerate((PAD, EOS, *ALPHABET))}
"""Token ids, 16 of them."""
CONTEXT_TOKENS = 128
"""Longest sequence; problems have at most 12 tokens."""


def build_tokenizer() -> PreTrainedTokenizerFast:
    """One token per character, 16 in all with padding and end; encoding another character is an error."""
    characters: Any = Tokenizer(WordLevel(VOCABULARY))
    characters.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    characters.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=characters,
        pad_token=PAD,
        eos_token=EOS,
        clean_up_tokenization_spaces=False,
        model_max_length=CONTEXT_TOKENS,
    )


def build_model(shape: ModelShape, seed: int) -> PreTrainedModel:
    """A Llama model with random weights in float32; the global random state does not change.

    Biases in its attention layers speed up learning from rewards (docs/builtin_task.md). Qwen2 has such biases by
    default, but for it `AutoTokenizer` replaces the saved tokenizer by a byte-level one with another token.
    """
    config = LlamaConfig(
        vocab_size=len(VOCABULARY),
        hidden_size=shape.hidden_size,
        intermediate_size=shape.feed_forward,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.heads,
        max_position_embeddings=CONTEXT_TOKENS,
        attention_bias=True,
        tie_word_embeddings=True,
        initializer_range=shape.initial_std,
        bos_token_id=None,
        eos_token_id=VOCABULARY[EOS],
        pad_token_id=VOCABULARY[PAD],
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model: Any = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    model.generation_config.max_new_tokens = MAX_RESPONSE_TOKENS
    model.generation_config.do_sample = True
    return model


@dataclass(frozen=True)
class EncodedProblems:
    """Prompt, answer and end token of each problem, padded on the right to one length."""

    ids_PT: torch.Tensor
    """Token ids, shape (problems, tokens)."""
    answer_PT: torch.Tensor
    """True where the token belongs to the answer or ends it; same shape."""

    def __len__(self) -> int:
        return len(self.ids_PT)

    def __getitem__(self, positions: torch.Tensor) -> EncodedProblems:
        """The problems at these positions."""
        return EncodedProblems(self.ids_PT[positions], self.answer_PT[positions])

    def to(self, device: torch.device | str) -> EncodedProblems:
        """The same on another device."""
        return EncodedProblems(self.ids_PT.to(device), self.answer_PT.to(device))


def encode(problems: Sequence[Problem], tokenizer: PreTrainedTokenizerFast) -> EncodedProblems:
    """Encode problems for teacher forcing.

    Padding is on the right, after everything that is read, so it needs no attention mask. A character is a token, so
    lengths of texts are lengths in tokens.
    """
    ids: list[list[int]] = tokenizer([problem.prompt + problem.answer + EOS for problem in problems])["input_ids"]
    width = max(map(len, ids))
    ids_PT = torch.tensor([row + [VOCABULARY[PAD]] * (width - len(row)) for row in ids])
    starts_P = torch.tensor([len(problem.prompt) for problem in problems])
    ends_P = torch.tensor([len(row) for row in ids])
    columns_T = torch.arange(width)
    answer_PT = (columns_T >= starts_P[:, None]) & (columns_T < ends_P[:, None])
    return EncodedProblems(ids_PT, answer_PT)


def answer_logprobs(model: Any, problems: EncodedProblems, temperature: float = 1.0) -> torch.Tensor:
    """Log-probability of each answer token given all before it, 0 elsewhere; shape (problems, tokens - 1)."""
    logits_PTV = model(input_ids=problems.ids_PT[:, :-1], use_cache=False).logits / temperature
    chosen_PT = logits_PTV.log_softmax(-1).gather(-1, problems.ids_PT[:, 1:, None]).squeeze(-1)
    return chosen_PT * problems.answer_PT[:, 1:]
