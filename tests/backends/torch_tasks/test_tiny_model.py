"""The character tokenizer and the tiny model, as Hugging Face loads them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM, AutoTokenizer

from isocompute_sdk.errors import SpecError
from isocompute_torch.tasks import ModelShape, PreparedTask
from isocompute_torch.tasks.arithmetic import FAMILIES, problems
from isocompute_torch.tasks.build import ALPHABET, EOS, PAD, VOCABULARY, build_model, build_tokenizer, encode

TOKENIZER = build_tokenizer()


@given(st.text(ALPHABET, max_size=30))
def test_every_text_of_the_alphabet_comes_back_from_one_token_per_character(text: str) -> None:
    ids = TOKENIZER.encode(text)
    assert len(ids) == len(text)
    assert TOKENIZER.decode(ids) == text


def test_end_and_padding_are_tokens_of_their_own_and_leave_no_trace_in_decoded_text() -> None:
    assert len(TOKENIZER) == 16
    assert TOKENIZER.eos_token_id != TOKENIZER.pad_token_id
    assert TOKENIZER.encode(f"12{EOS}{PAD}")[2:] == [TOKENIZER.eos_token_id, TOKENIZER.pad_token_id]
    assert TOKENIZER.decode(TOKENIZER.encode(f"12{EOS}{PAD}"), skip_special_tokens=True) == "12"


@pytest.mark.parametrize("text", ["12a", "1 2", "-1"])
def test_a_character_outside_the_alphabet_is_refused(text: str) -> None:
    with pytest.raises(Exception, match="UNK"):
        TOKENIZER.encode(text)


def test_the_alphabet_is_what_the_families_write() -> None:
    written = {letter for problem in problems("+".join(FAMILIES)) for letter in problem.prompt + problem.answer}
    assert written == set(ALPHABET)


def test_saved_tokenizer_and_model_load_by_the_auto_classes_without_a_network(easy_task: PreparedTask) -> None:
    tokenizer: Any = AutoTokenizer.from_pretrained(easy_task.model)
    model: Any = AutoModelForCausalLM.from_pretrained(easy_task.model)
    assert tokenizer.encode("012*9=") == TOKENIZER.encode("012*9=")
    assert tokenizer.get_vocab() == VOCABULARY
    assert model.config.eos_token_id == model.generation_config.eos_token_id == tokenizer.eos_token_id == 1
    assert model.config.pad_token_id == tokenizer.pad_token_id == 0
    assert model.num_parameters() == 100_672
    assert model.config.hidden_size // model.config.num_attention_heads == 32


def test_weights_depend_on_the_seed_alone_and_the_global_random_state_stays() -> None:
    torch.manual_seed(5)
    state = torch.get_rng_state()
    first = build_model(ModelShape(), 3).state_dict()
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(6)
    again, other = build_model(ModelShape(), 3).state_dict(), build_model(ModelShape(), 4).state_dict()
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["model.embed_tokens.weight"], other["model.embed_tokens.weight"])


def test_a_width_without_whole_attention_heads_is_refused() -> None:
    with pytest.raises(SpecError, match=r"hidden_size.* 80.* 32"):
        ModelShape(hidden_size=80)


def test_encoding_marks_answer_and_end_token_and_pads_on_the_right() -> None:
    short, long = problems("mul31")[7], problems("add32")[7]
    encoded = encode([short, long], TOKENIZER)
    assert TOKENIZER.decode(encoded.ids_PT[0]) == short.prompt + short.answer + EOS + PAD
    assert TOKENIZER.decode(encoded.ids_PT[1]) == long.prompt + long.answer + EOS
    for row, problem in enumerate((short, long)):
        assert TOKENIZER.decode(encoded.ids_PT[row][encoded.answer_PT[row]]) == problem.answer + EOS
