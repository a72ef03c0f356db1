"""Making a task: a tiny model, its warm-up, labels of all problems, and the choice of sets. Imports torch."""

from __future__ import annotations

import json
import shutil
import string
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from importlib import metadata
from pathlib import Path
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
from isocompute_torch.tasks.arithmetic import (
    MAX_RESPONSE_TOKENS,
    MODEL_FOLDER,
    REWARD_FILE,
    SIGNS,
    TRAIN_FILE,
    VALIDATION_FILE,
    Kind,
    ModelShape,
    Problem,
    TaskSettings,
    WarmUp,
    problems,
)

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerFast


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


CHUNK = 2048
"""Problems per forward pass; fixed, because results of another chunk size differ in their last bits."""


@torch.no_grad()
def pass_rates(model: Any, problems: EncodedProblems, temperature: float = 1.0) -> NDArray[np.float64]:
    """Probability that one sampled response is the answer followed by the end token, shape (problems,)."""
    chunks = [
        EncodedProblems(ids_PT, answer_PT)
        for ids_PT, answer_PT in zip(problems.ids_PT.split(CHUNK), problems.answer_PT.split(CHUNK), strict=True)
    ]
    logprobs_P = torch.cat([answer_logprobs(model, chunk, temperature).double().sum(-1) for chunk in chunks])
    # The exponential of a sum of rounded logarithms can exceed 1 in its last digit.
    return np.asarray(logprobs_P.exp().clamp(max=1.0).cpu().numpy(), dtype=np.float64)


def sampled_passes(rates_P: NDArray[np.float64], samples: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Number of right responses among `samples` independent ones for each problem, shape (problems,)."""
    return rng.binomial(samples, rates_P).astype(np.int64)


RISE_STEPS = 20
"""Steps over which the learning rate rises from 0."""
CHECKED_PROBLEMS = 512
"""Number of warm-up problems whose pass rate is measured, always the same ones."""


@dataclass(frozen=True)
class WarmedUp:
    """Result of a warm-up."""

    steps: int
    """Number of updates."""
    loss: float
    """Mean cross-entropy per answer token in the last batch, nats."""
    pass_rate: float
    """Mean pass rate of the measured problems at the end."""


def warm_up(
    model: Any,
    problems: EncodedProblems,
    settings: WarmUp,
    rng: np.random.Generator,
    progress: Callable[[int, int], None],
) -> WarmedUp:
    """Train the model in place on `problems`.

    Args:
        model: Hugging Face causal language model.
        problems: the problems to learn, on the model's device.
        settings: length, batch and learning rate.
        rng: generator of the order of problems.
        progress: called with the steps done and `max_steps`.

    Raises:
        RunFailed: `max_steps` steps do not reach the pass rate.
    """
    optimizer = torch.optim.AdamW(model.parameters(), lr=settings.learning_rate, weight_decay=0.0)
    measured = problems[torch.from_numpy(rng.permutation(len(problems))[:CHECKED_PROBLEMS])]
    batches = _batches(len(problems), settings.batch, rng)
    rate = 0.0
    for step in range(1, settings.max_steps + 1):
        for group in optimizer.param_groups:
            group["lr"] = settings.learning_rate * min(1.0, step / RISE_STEPS)
        batch = problems[next(batches)]
        loss = -answer_logprobs(model, batch).sum() / batch.answer_PT.sum()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % settings.check_every == 0:
            rate = float(pass_rates(model, measured).mean())
            if rate >= settings.pass_rate:
                progress(settings.max_steps, settings.max_steps)
                return WarmedUp(step, float(loss.detach()), rate)
        progress(step, settings.max_steps)
    raise RunFailed(
        f"after {settings.max_steps} supervised steps the pass rate is {rate:.3f}, below {settings.pass_rate}",
        "Raise max_steps or the model's size, lower pass_rate, or use another seed.",
    )


def _batches(problems: int, size: int, rng: np.random.Generator) -> Iterator[torch.Tensor]:
    """Positions of one batch after another; every epoch has its own order, and batches may cross its end."""
    waiting = np.empty(0, dtype=np.int64)
    while True:
        while len(waiting) < size:
            waiting = np.concatenate([waiting, rng.permutation(problems)])
        yield torch.from_numpy(waiting[:size])
        waiting = waiting[size:]


SHARES: dict[Kind, dict[BandName, float]] = {
    "easy": {"easy": 1.0},
    "hard": {"hard": 1.0},
    "mixed": {"hard": 0.5, "easy": 0.5},
}
"""Bands of each kind of set; half hard and half easy is the paper's mixture (section 3)."""


def choose(
    passes_P: NDArray[np.int64],
    samples: int,
    held_out_P: NDArray[np.bool_],
    *,
    kind: Kind,
    validation: int,
    rng: np.random.Generator,
) -> ProblemSet:
    """Training and validation problems of one kind, both in random order.

    Args:
        passes_P: number of right responses of the base model, per problem.
        samples: number of responses per problem.
        held_out_P: True for problems outside the warm-up, from which validation problems are drawn.
        kind: difficulty of the set.
        validation: number of validation problems.
        rng: generator of every choice.

    Raises:
        RunFailed: too few problems of that difficulty.
    """
    shares = SHARES[kind]
    split = split_by_difficulty(passes_P, samples, rng=rng, validation=0)
    bands: dict[BandName, ProblemSet] = dict(split.bands)
    for band, share in shares.items():
        bands[band] = _held_out_first(split, band, held_out_P, round(validation * share), kind, rng)
    chosen = _mixture(replace(split, bands=bands), shares, rng)
    return ProblemSet(rng.permutation(chosen.train_P), rng.permutation(chosen.validation_P))


def _held_out_first(
    split: DifficultySplit,
    band: BandName,
    held_out_P: NDArray[np.bool_],
    wanted: int,
    kind: Kind,
    rng: np.random.Generator,
) -> ProblemSet:
    """The problems of a band; validation problems are drawn from those outside the warm-up."""
    members = split[band].train_P
    fresh = members[held_out_P[members]]
    if len(fresh) < wanted or len(members) == len(fresh):
        raise RunFailed(
            f"the base model has {len(members)} {band} problems, {len(fresh)} of them outside the warm-up; the "
            f"{kind} set needs {wanted} outside the warm-up for validation, and others for training",
            "Change the pass rate at which the warm-up stops, use fewer validation problems, or another seed.",
        )
    validation = np.sort(rng.choice(fresh, wanted, replace=False))
    return ProblemSet(np.setdiff1d(members, validation), validation)


def _mixture(split: DifficultySplit, shares: Mapping[BandName, float], rng: np.random.Generator) -> ProblemSet:
    """The largest set with these shares."""
    size = min(int(len(split[band].train_P) / share) for band, share in shares.items())
    return split.mixture(shares, size, rng)


Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, eq=False)
class Task:
    """A task in memory."""

    settings: TaskSettings
    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerFast
    problems: list[Problem]
    sets: ProblemSet
    rates_P: NDArray[np.float64]
    """Exact pass rate of every problem under the model."""
    passes_P: NDArray[np.int64]
    """Number of right responses among `settings.label_samples`, per problem."""
    warmed_up: WarmedUp

    def measured(self) -> dict[str, Any]:
        """Pass rates of the base model and sizes of the sets, as JSON values."""
        found: dict[str, Any] = {
            "parameters": int(self.model.num_parameters()),
            "warm_up": asdict(self.warmed_up),
            "problems": len(self.problems),
            "pass_rate_of_all": float(self.rates_P.mean()),
        }
        for name, positions in (("train", self.sets.train_P), ("validation", self.sets.validation_P)):
            found[name] = {
                "problems": len(positions),
                f"avg@{self.settings.label_samples}": float(
                    self.passes_P[positions].mean() / self.settings.label_samples
                ),
                "pass_rate": float(self.rates_P[positions].mean()),
            }
        return found


def build(settings: TaskSettings, progress: Progress) -> Task:
    """Make a task; a few seconds on one core with the default settings.

    Raises:
        RunFailed: the warm-up missed its pass rate, or too few problems have the difficulty of the set.
    """
    everything = problems(settings.family)
    # One stream per use, so that a longer warm-up draws the same labels and sets.
    held_out_rng, order_rng, label_rng, set_rng = (
        np.random.default_rng([settings.seed, stream]) for stream in range(4)
    )
    held_out_P = np.zeros(len(everything), dtype=np.bool_)
    held_out = round(settings.held_out_share * len(everything))
    held_out_P[held_out_rng.permutation(len(everything))[:held_out]] = True
    tokenizer = build_tokenizer()
    model: Any = build_model(settings.shape, settings.seed)
    with _one_thread():
        model.to(settings.device)
        encoded = encode(everything, tokenizer).to(settings.device)
        learned = encoded[torch.from_numpy(np.flatnonzero(~held_out_P))]
        warmed_up = warm_up(
            model, learned, settings.warm_up, order_rng, lambda done, total: progress("warm-up", done, total)
        )
        progress("labels", 0, 1)
        rates_P = pass_rates(model, encoded, settings.temperature)
    passes_P = sampled_passes(rates_P, settings.label_samples, label_rng)
    sets = choose(
        passes_P,
        settings.label_samples,
        held_out_P,
        kind=settings.kind,
        validation=settings.validation,
        rng=set_rng,
    )
    progress("labels", 1, 1)
    return Task(settings, model.to("cpu").eval(), tokenizer, everything, sets, rates_P, passes_P, warmed_up)


def write(task: Task, folder: Path) -> None:
    """Write model, problems and reward function into an empty folder."""
    with _quiet_transformers():
        task.model.save_pretrained(folder / MODEL_FOLDER)
        task.tokenizer.save_pretrained(folder / MODEL_FOLDER)
    for file, positions in ((TRAIN_FILE, task.sets.train_P), (VALIDATION_FILE, task.sets.validation_P)):
        _write_problems(folder / file, [task.problems[position] for position in positions])
    shutil.copyfile(str(reward.__file__), folder / REWARD_FILE)
    # Weights are saved readable by their owner only, whatever the umask; a task may be shared.
    for path in folder.rglob("*.safetensors"):
        path.chmod((folder / REWARD_FILE).stat().st_mode)


def versions() -> dict[str, str]:
    """Versions of the packages that make a task."""
    return {name: metadata.version(name) for name in ("isocompute", "numpy", "tokenizers", "torch", "transformers")}


def _write_problems(path: Path, chosen: Sequence[Problem]) -> None:
    lines = (json.dumps({"id": each.id, "prompt": each.prompt, "answer": each.answer}) + "\n" for each in chosen)
    path.write_text("".join(lines), encoding="utf-8")


@contextmanager
def _one_thread() -> Generator[None]:
    """Run with one CPU thread: sums do not depend on the number of cores, and small models gain nothing from more."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def _quiet_transformers() -> Generator[None]:
    """Hide the progress bar of `save_pretrained`, which would disturb the caller's own."""
    shown = transformers_logging.is_progress_bar_enabled()
    transformers_logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            transformers_logging.enable_progress_bar()
