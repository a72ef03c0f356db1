"""Generated arithmetic and a tiny model that learns it: problems, warm-up, labels, and the choice of sets.

Prompts are short and answers have four digits, all padded with zeros: the answer to `007*3=` is `0021`. Every family
has its own sign, so that one model can learn several and distinguish them. The same settings give the same bits.
"""

from __future__ import annotations

import itertools
import random
import shutil
import string
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers.models import WordLevel
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedTokenizerFast
from transformers.utils import logging as transformers_logging

from isocompute_sdk.records.difficulty import BandName, DifficultySplit, ProblemSet, split_by_difficulty
from isocompute_torch.configuration import RunFailed
from isocompute_torch.tasks import reward
from isocompute_torch.tasks.folder import MODEL_FOLDER, REWARD_FILE, Kind, write_problems

if TYPE_CHECKING:
    from pathlib import Path

    from transformers import PreTrainedModel

Row = dict[str, str]
PROBLEMS = 10_000
"""Number of problems of each family."""
RULES: dict[str, tuple[str, int, Callable[[int, int], str]]] = {
    "mul31": ("*", 1, lambda first, second: f"{first * second:04d}"),
    "rev31": ("~", 1, lambda first, second: f"{first * second:04d}"[::-1]),
    "add32": ("+", 2, lambda first, second: f"{first + second:04d}"),
}
"""Sign, length of the second number (the first has three digits), and answer of each family. `mul31` multiplies,
`rev31` writes the product backwards, so that its rewards contradict those of `mul31`, and `add32` adds."""


def problems(names: str) -> list[Row]:
    """All problems of one family, or of several joined with `+`, always in the same order."""
    rows: list[Row] = []
    for name in names.split("+"):
        sign, digits, answer = RULES[name]
        pairs = list(itertools.product(range(1000), range(10**digits)))
        if len(pairs) > PROBLEMS:
            pairs = sorted(random.Random(name).sample(pairs, PROBLEMS))
        for first, second in pairs:
            prompt = f"{first:03d}{sign}{second:0{digits}d}="
            rows.append({"id": f"{name}-{first}-{second}", "prompt": prompt, "answer": answer(first, second)})
    return rows


PAD, EOS = "<pad>", "<eos>"
VOCABULARY = {token: number for number, token in enumerate((PAD, EOS, *string.digits, *"*~+="))}
"""Token ids, 16 of them: one per character, padding and end."""
CONTEXT_TOKENS = 128
"""Longest sequence; problems have at most 12 tokens."""
HEAD_SIZE = 32
"""Size of an attention head, the smallest that vLLM's attention kernels support."""


def build_tokenizer() -> PreTrainedTokenizerFast:
    """One token per character; encoding another character is an error."""
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


def build_model(seed: int, *, hidden_size: int = 64, layers: int = 2, feed_forward: int = 172) -> PreTrainedModel:
    """A Llama model with random weights in float32, by default 100,672; the global random state does not change.

    Biases in its attention layers speed up learning from rewards (docs/builtin_task.md). Qwen2 has such biases by
    default, but for it `AutoTokenizer` replaces the saved tokenizer by a byte-level one with another token. With the
    usual deviation of the initial weights, 0.02, the warm-up takes twice the steps.
    """
    config = LlamaConfig(
        vocab_size=len(VOCABULARY),
        hidden_size=hidden_size,
        intermediate_size=feed_forward,
        num_hidden_layers=layers,
        num_attention_heads=hidden_size // HEAD_SIZE,
        num_key_value_heads=hidden_size // HEAD_SIZE,
        max_position_embeddings=CONTEXT_TOKENS,
        attention_bias=True,
        tie_word_embeddings=True,
        initializer_range=0.08,
        bos_token_id=None,
        eos_token_id=VOCABULARY[EOS],
        pad_token_id=VOCABULARY[PAD],
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model: Any = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    model.generation_config.max_new_tokens = 5
    model.generation_config.do_sample = True
    return model


@dataclass(frozen=True)
class Encoded:
    """Prompt, answer and end token of each problem, padded on the right to one length."""

    ids_PT: torch.Tensor
    """Token ids, shape (problems, tokens)."""
    answer_PT: torch.Tensor
    """True where the token belongs to the answer or ends it; same shape."""

    def __getitem__(self, positions: torch.Tensor) -> Encoded:
        """The problems at these positions."""
        return Encoded(self.ids_PT[positions], self.answer_PT[positions])


def encode(rows: list[Row], tokenizer: PreTrainedTokenizerFast) -> Encoded:
    """Encode problems for teacher forcing. A character is a token; padding after everything needs no mask."""
    ids: list[list[int]] = tokenizer([row["prompt"] + row["answer"] + EOS for row in rows])["input_ids"]
    width = max(map(len, ids))
    ids_PT = torch.tensor([row + [VOCABULARY[PAD]] * (width - len(row)) for row in ids])
    starts_P = torch.tensor([len(row["prompt"]) for row in rows])
    ends_P = torch.tensor([len(row) for row in ids])
    columns_T = torch.arange(width)
    return Encoded(ids_PT, (columns_T >= starts_P[:, None]) & (columns_T < ends_P[:, None]))


def answer_logprobs(model: Any, encoded: Encoded) -> torch.Tensor:
    """Log-probability of each answer token given all before it, 0 elsewhere; shape (problems, tokens - 1)."""
    logits_PTV = model(input_ids=encoded.ids_PT[:, :-1], use_cache=False).logits
    chosen_PT = logits_PTV.log_softmax(-1).gather(-1, encoded.ids_PT[:, 1:, None]).squeeze(-1)
    return chosen_PT * encoded.answer_PT[:, 1:]


CHUNK = 2048
"""Problems per forward pass; fixed, because results of another chunk size differ in their last bits."""


@torch.no_grad()
def pass_rates(model: Any, encoded: Encoded) -> NDArray[np.float64]:
    """Probability that one sampled response is the answer followed by the end token, shape (problems,)."""
    chunks = map(Encoded, encoded.ids_PT.split(CHUNK), encoded.answer_PT.split(CHUNK))
    logprobs_P = torch.cat([answer_logprobs(model, chunk).double().sum(-1) for chunk in chunks])
    # The exponential of a sum of rounded logarithms can exceed 1 in its last digit.
    return np.asarray(logprobs_P.exp().clamp(max=1.0).numpy(), dtype=np.float64)


PASS_RATE, MAX_STEPS, CHECK_EVERY = 0.35, 1500, 20
"""The warm-up stops at this mean pass rate and fails after so many steps. With a fixed number of steps the sizes of the
sets would differ several times between seeds."""
BATCH, LEARNING_RATE, RISE_STEPS, CHECKED_PROBLEMS = 128, 2e-3, 20, 512
"""Problems per step, rate of AdamW, steps over which it rises from 0, and problems that measure the pass rate."""


def warm_up(model: Any, encoded: Encoded, rng: np.random.Generator, pass_rate: float) -> dict[str, float]:
    """Train the model in place on these problems until it solves `pass_rate` of them; returns what was measured."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=0.0)
    count = len(encoded.ids_PT)
    measured = encoded[torch.from_numpy(rng.permutation(count)[:CHECKED_PROBLEMS])]
    batches = _batches(count, rng)
    rate = 0.0
    for step in range(1, MAX_STEPS + 1):
        for group in optimizer.param_groups:
            group["lr"] = LEARNING_RATE * min(1.0, step / RISE_STEPS)
        batch = encoded[next(batches)]
        loss = -answer_logprobs(model, batch).sum() / batch.answer_PT.sum()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % CHECK_EVERY == 0:
            rate = float(pass_rates(model, measured).mean())
            if rate >= pass_rate:
                return {"steps": step, "loss": float(loss.detach()), "pass_rate": rate}
    raise RunFailed(
        f"after {MAX_STEPS} supervised steps the pass rate is {rate:.3f}, below {pass_rate}", "Use another seed."
    )


def _batches(count: int, rng: np.random.Generator) -> Iterator[torch.Tensor]:
    """Positions of one batch after another; every epoch has its own order, and batches may cross its end."""
    waiting = np.empty(0, dtype=np.int64)
    while True:
        while len(waiting) < BATCH:
            waiting = np.concatenate([waiting, rng.permutation(count)])
        yield torch.from_numpy(waiting[:BATCH])
        waiting = waiting[BATCH:]


HELD_OUT_SHARE = 0.3
"""Share of all problems outside the warm-up; validation problems are drawn from these."""
LABEL_SAMPLES, VALIDATION = 16, 200
"""Samples per problem that decide its difficulty, and number of validation problems."""
SHARES: dict[Kind, dict[BandName, float]] = {
    "easy": {"easy": 1.0},
    "hard": {"hard": 1.0},
    "mixed": {"hard": 0.5, "easy": 0.5},
}
"""Bands of each kind of set; half hard and half easy is the paper's mixture (section 3)."""


def choose(
    passes_P: NDArray[np.int64],
    held_out_P: NDArray[np.bool_],
    kind: Kind,
    rng: np.random.Generator,
    validation: int = VALIDATION,
) -> ProblemSet:
    """Training and validation problems of one kind, both in random order.

    Args:
        passes_P: right responses of the base model among `LABEL_SAMPLES`, per problem.
        held_out_P: True for problems outside the warm-up.
        kind: difficulty of the set.
        rng: generator of every choice.
        validation: number of validation problems.

    Raises:
        RunFailed: too few problems of that difficulty.
    """
    shares = SHARES[kind]
    split = split_by_difficulty(passes_P, LABEL_SAMPLES, rng=rng, validation=0)
    bands: dict[BandName, ProblemSet] = dict(split.bands)
    for band, share in shares.items():
        bands[band] = _held_out_first(split, band, held_out_P, round(validation * share), rng)
    size = min(int(len(bands[band].train_P) / share) for band, share in shares.items())
    chosen = replace(split, bands=bands).mixture(shares, size, rng)
    return ProblemSet(rng.permutation(chosen.train_P), rng.permutation(chosen.validation_P))


def _held_out_first(
    split: DifficultySplit, band: BandName, held_out_P: NDArray[np.bool_], count: int, rng: np.random.Generator
) -> ProblemSet:
    """The problems of a band; validation problems are drawn from those outside the warm-up."""
    members = split[band].train_P
    fresh = members[held_out_P[members]]
    if len(fresh) < count or len(members) == len(fresh):
        raise RunFailed(
            f"the base model has {len(members)} {band} problems, {len(fresh)} of them outside the warm-up; the "
            f"set needs {count} outside the warm-up for validation, and others for training",
            "Use another seed.",
        )
    validation = np.sort(rng.choice(fresh, count, replace=False))
    return ProblemSet(np.setdiff1d(members, validation), validation)


def make_task(
    folder: Path, family: str, kind: Kind, seed: int, *, pass_rate: float = PASS_RATE, **shape: int
) -> dict[str, Any]:
    """Write model, problems and reward function into an empty folder; about 15 seconds on one core.

    Returns:
        Settings and measurements, as JSON values.

    Raises:
        RunFailed: the warm-up missed its pass rate, or too few problems have the difficulty of the set.
    """
    rows, tokenizer, model = problems(family), build_tokenizer(), build_model(seed, **shape)
    # One stream per use, so that a longer warm-up draws the same labels and sets.
    held_out_rng, order_rng, label_rng, set_rng = (np.random.default_rng([seed, stream]) for stream in range(4))
    held_out_P = np.zeros(len(rows), dtype=np.bool_)
    held_out_P[held_out_rng.permutation(len(rows))[: round(HELD_OUT_SHARE * len(rows))]] = True
    # Sums must not depend on the number of cores, and small models gain nothing from more.
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        encoded = encode(rows, tokenizer)
        warmed_up = warm_up(model, encoded[torch.from_numpy(np.flatnonzero(~held_out_P))], order_rng, pass_rate)
        rates_P = pass_rates(model, encoded)
    finally:
        torch.set_num_threads(threads)
    passes_P = label_rng.binomial(LABEL_SAMPLES, rates_P).astype(np.int64)
    sets = choose(passes_P, held_out_P, kind, set_rng)
    transformers_logging.disable_progress_bar()
    model.eval().save_pretrained(folder / MODEL_FOLDER)
    tokenizer.save_pretrained(folder / MODEL_FOLDER)
    write_problems(folder, [rows[i] for i in sets.train_P], [rows[i] for i in sets.validation_P])
    shutil.copyfile(str(reward.__file__), folder / REWARD_FILE)
    measured: dict[str, Any] = {
        "parameters": int(model.num_parameters()),
        "warm_up": warmed_up,
        "problems": len(rows),
        "pass_rate_of_all": float(rates_P.mean()),
    }
    for name, positions in (("train", sets.train_P), ("validation", sets.validation_P)):
        measured[name] = {
            "problems": len(positions),
            f"avg@{LABEL_SAMPLES}": float(passes_P[positions].mean() / LABEL_SAMPLES),
            "pass_rate": float(rates_P[positions].mean()),
        }
    return {"settings": {"family": family, "kind": kind, "seed": seed}, "measured": measured}
