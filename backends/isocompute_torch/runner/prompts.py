"""`PromptSet`: problems with the token ids of their prompts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from isocompute_sdk.training.payload.problem_files import Problem
from isocompute_torch.failures import InputError
from isocompute_torch.policy.text import TextCodec
from isocompute_torch.rewards.function import Call
from isocompute_torch.sampling.sampler import Samples


@dataclass(frozen=True)
class PromptSet:
    """Problems with their prompts as the model reads them."""

    codec: TextCodec
    """The tokenizer that encoded them."""
    problems: list[Problem]
    """The problems."""
    texts: list[str]
    """The text of each prompt."""
    ids: list[list[int]]
    """The token ids of each prompt."""

    @classmethod
    def encode(cls, codec: TextCodec, problems: Sequence[Problem], *, max_tokens: int, name: str) -> PromptSet:
        """Encode every problem of the set `name`.

        Raises:
            InputError: a prompt is too long. Skipping it would change the problem set.
        """
        ids = [codec.encode(problem) for problem in problems]
        long = [i for i, prompt in enumerate(ids) if len(prompt) > max_tokens]
        if long:
            raise InputError(
                f"{name}: {len(long)} of {len(ids)} prompts are longer than max_prompt_tokens = {max_tokens}; the "
                f"first is {problems[long[0]].id!r} with {len(ids[long[0]])} tokens",
                "Raise recipe.max_prompt_tokens, or remove these problems from the file.",
            )
        return cls(codec, list(problems), [codec.prompt_text(problem) for problem in problems], ids)

    def subset(self, indices: Sequence[int]) -> PromptSet:
        """The problems at these positions, in this order."""
        return PromptSet(
            self.codec,
            [self.problems[i] for i in indices],
            [self.texts[i] for i in indices],
            [self.ids[i] for i in indices],
        )

    def calls(self, samples: Samples) -> list[Call]:
        """Arguments of the reward function, one call per rollout: prompt text, response text, answer."""
        responses = self.codec.decode(samples.responses(self.codec.eos_ids))
        owners: list[int] = samples.prompt_index_R.tolist()
        return [
            (self.texts[p], response, self.problems[p].answer) for p, response in zip(owners, responses, strict=True)
        ]
