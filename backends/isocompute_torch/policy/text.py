"""Text to token ids and back, with any tokenizer of transformers. Imports no torch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, cast

from isocompute_sdk.training.payload.problem_files import Problem
from isocompute_torch.failures import InputError


class TextCodec:
    """Encodes prompts as the model reads them and decodes its responses.

    Args:
        tokenizer: a Hugging Face tokenizer.
        eos_ids: tokens that end a response.
    """

    def __init__(self, tokenizer: object, eos_ids: Iterable[int]) -> None:
        self._tokenizer = cast("Any", tokenizer)
        self.eos_ids: frozenset[int] = frozenset(eos_ids)
        pad = self._tokenizer.pad_token_id
        if not self.eos_ids and pad is None:
            raise InputError(
                "the tokenizer has neither an end token nor a padding token; accepted: at least one of them",
                "Set eos_token in tokenizer_config.json, or eos_token_id in generation_config.json.",
            )
        self.pad_id: int = int(pad) if pad is not None else min(self.eos_ids)

    def prompt_text(self, problem: Problem) -> str:
        """The text that the model reads: the prompt itself, or its chat messages in the chat template.

        Raises:
            InputError: the prompt is a list of messages and the tokenizer has no chat template.
        """
        if isinstance(problem.prompt, str):
            return problem.prompt
        if getattr(self._tokenizer, "chat_template", None) is None:
            raise InputError(
                f"problem {problem.id!r} is a list of messages, and the tokenizer has no chat template",
                "Give prompts as text, or a model with a chat template.",
            )
        return str(self._tokenizer.apply_chat_template(problem.prompt, tokenize=False, add_generation_prompt=True))

    def encode(self, problem: Problem) -> list[int]:
        """Token ids of the prompt. Special tokens are added to plain text only: a chat template contains them.

        Raises:
            InputError: the prompt has no token, or the tokenizer rejects it.
        """
        plain = isinstance(problem.prompt, str)
        text = self.prompt_text(problem)
        try:
            ids = cast("list[int]", self._tokenizer(text, add_special_tokens=plain)["input_ids"])
        except Exception as error:  # tokenizers written in Rust raise plain Exceptions
            raise InputError(
                f"problem {problem.id!r}: the tokenizer cannot encode the prompt {text[:60]!r}: {error}",
                "The vocabulary does not cover it. Change the prompts, or use another model.",
            ) from error
        if plain and len(ids) > 1 and ids[-1] in self.eos_ids:
            # Some tokenizers end every text with the end token; the model would continue after the end.
            ids = ids[:-1]
        if not ids:
            raise InputError(
                f"problem {problem.id!r}: the prompt has no token; accepted: at least one", "Correct the problem."
            )
        return ids

    def decode(self, responses: Sequence[Sequence[int]]) -> list[str]:
        """Texts of responses without special tokens; equal responses are decoded once."""
        wanted: dict[tuple[int, ...], None] = dict.fromkeys(tuple(response) for response in responses)
        texts = cast("list[str]", self._tokenizer.batch_decode([list(ids) for ids in wanted], skip_special_tokens=True))
        known = dict(zip(wanted, texts, strict=True))
        return [known[tuple(response)] for response in responses]

    def save(self, folder: Path) -> None:
        """Write the tokenizer in Hugging Face's form."""
        self._tokenizer.save_pretrained(folder)
