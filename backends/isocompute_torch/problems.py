"""Problem sets, the order in which batches use them, and their text as token ids. Imports no torch."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, cast

from isocompute_sdk.training.payload import problem_files
from isocompute_sdk.training.payload.problem_files import Problem, ProblemFileError
from isocompute_torch.configuration import InputError


def shared_beginning(prompts: Sequence[list[int]]) -> int:
    """Number of tokens that all prompts begin with."""
    least, most = min(prompts), max(prompts)
    return next((i for i, (one, other) in enumerate(zip(least, most, strict=False)) if one != other), len(least))


class TextCodec:
    """Encodes prompts as the model reads them and decodes its responses.

    Args:
        tokenizer: a Hugging Face tokenizer.
        eos_ids: tokens that end a response.
        stop: texts that end a response, which keeps them.
    """

    def __init__(self, tokenizer: object, eos_ids: Iterable[int], stop: Sequence[str] = ()) -> None:
        self._tokenizer = cast("Any", tokenizer)
        self.eos_ids: frozenset[int] = frozenset(eos_ids)
        self.stop = tuple(stop)
        # A token stands for at least one byte; one more, because the first token of a text may lose its space.
        self.stop_tokens = max((len(text.encode()) + 1 for text in self.stop), default=0)
        """Tokens at the end of a response that can hold a stop text."""
        pad = self._tokenizer.pad_token_id
        if not self.eos_ids and pad is None:
            raise InputError(
                "the tokenizer has neither an end token nor a padding token; accepted: at least one of them",
                "Set eos_token in tokenizer_config.json, or eos_token_id in generation_config.json.",
            )
        self.pad_id: int = int(pad) if pad is not None else min(self.eos_ids)

    def prompt_text(self, problem: Problem) -> str:
        """The text that the model reads: the prompt itself, or its chat messages in the chat template.

        A chat whose last message is the assistant's goes on from there.
        """
        if isinstance(problem.prompt, str):
            return problem.prompt
        if getattr(self._tokenizer, "chat_template", None) is None:
            raise InputError(
                f"problem {problem.id!r} is a list of messages, and the tokenizer has no chat template",
                "Give prompts as text, or a model with a chat template.",
            )
        begun = problem.prompt[-1]["role"] == "assistant"
        return str(
            self._tokenizer.apply_chat_template(
                problem.prompt, tokenize=False, add_generation_prompt=not begun, continue_final_message=begun
            )
        )

    def encode(self, problem: Problem) -> list[int]:
        """Token ids of the prompt. Special tokens are added to plain text only: a chat template contains them."""
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

    def stopped(self, tails: Sequence[Sequence[int]]) -> list[bool]:
        """Whether the text of these tokens, the last `stop_tokens` of each response, holds a stop text."""
        return [any(text in tail for text in self.stop) for tail in self.decode(tails)]

    def save(self, folder: Path) -> None:
        """Write the tokenizer in Hugging Face's form."""
        self._tokenizer.save_pretrained(folder)


def read_problems(path: str | Path, *, prompt_key: str | None = None, answer_key: str | None = None) -> list[Problem]:
    """All problems of a JSON-lines file; see `problem_files.read_problems`."""
    path = Path(path)
    try:
        return problem_files.read_problems(path, path.stem, prompt_key, answer_key)
    except ProblemFileError as error:
        raise InputError(str(error), "Correct the file, or the path in data.") from error
    except FileNotFoundError:
        raise InputError(
            f"no problem file {str(path)!r} in {str(Path.cwd())!r}",
            "Start the run in the folder that the data paths are relative to, or give absolute paths.",
        ) from None
    except OSError as error:
        raise InputError(f"{path}: {error}", "Give the path of a JSON-lines file.") from error


class BatchOrder:
    """The problems of each update step: seeded epochs without replacement, and no problem twice in a batch.

    Every epoch holds every problem once, in its own order. If a batch crosses the end of an epoch, the problems that it
    holds already move back in the next epoch's order. The order depends on the seed alone.

    Args:
        problems: number of problems, D.
        batch: problems per batch, B_p; at most D.
        seed: seed of the run.

    Raises:
        InputError: fewer problems than one batch holds.
    """

    def __init__(self, problems: int, batch: int, seed: int) -> None:
        if problems < batch:
            raise InputError(
                f"{problems} training problems for problems_per_batch = {batch}; accepted: at least one batch of "
                "different problems",
                "Lower problems_per_batch, or give more training problems.",
            )
        self._problems = problems
        self._batch = batch
        self._seed = seed
        self._epochs = 0
        self._waiting: list[int] = []
        self._next_step = 1

    def batch(self, step: int) -> list[int]:
        """Indices of the problems of update step `step` (1-based), which comes after those asked for before."""
        while self._next_step < step:
            self._take()
        return self._take()

    def _take(self) -> list[int]:
        if len(self._waiting) < self._batch:
            order = list(range(self._problems))
            random.Random(f"{self._seed}:epoch:{self._epochs}").shuffle(order)
            left = set(self._waiting)
            first = [index for index in order if index not in left][: self._batch - len(left)]
            moved = set(first)
            self._waiting += first + [index for index in order if index not in moved]
            self._epochs += 1
        taken, self._waiting = self._waiting[: self._batch], self._waiting[self._batch :]
        self._next_step += 1
        return taken


def probe_subset(problems: Sequence[Problem], size: int) -> list[Problem]:
    """A fixed subset in file order, the same for every run on these problems, independent of its seed."""
    ranked = sorted(range(len(problems)), key=lambda i: hashlib.sha256(f"probe:{problems[i].id}".encode()).digest())
    return [problems[i] for i in sorted(ranked[:size])]
