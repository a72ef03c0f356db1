"""Making a task from its settings: warm up a model, label all problems with it, choose sets. Imports torch."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers.utils import logging as transformers_logging

from isocompute_sdk.records.difficulty import ProblemSet
from isocompute_torch.tasks import reward
from isocompute_torch.tasks.label import pass_rates, sampled_passes
from isocompute_torch.tasks.problem_families import Problem, problems
from isocompute_torch.tasks.sets import choose
from isocompute_torch.tasks.settings import MODEL_FOLDER, REWARD_FILE, TRAIN_FILE, VALIDATION_FILE, TaskSettings
from isocompute_torch.tasks.tiny_model import build_model, build_tokenizer, encode
from isocompute_torch.tasks.warmup import WarmedUp, warm_up

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

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
