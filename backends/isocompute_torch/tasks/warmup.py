"""Supervised steps on right answers, until single samples reach a mean pass rate."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from isocompute_torch.failures import RunFailed
from isocompute_torch.tasks.label import pass_rates
from isocompute_torch.tasks.settings import WarmUp
from isocompute_torch.tasks.tiny_model import EncodedProblems, answer_logprobs

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
