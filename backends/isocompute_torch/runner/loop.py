"""The training loop, from end to end: sample, score, update, measure, save.

    for every update step:
        problems  <- the next B_p of the seeded order
        rollouts  <- n samples of each from the current policy
        rewards   <- the user's function
        weights   <- one optimiser step on the policy loss (learner.py)
        journal   <- what was measured; at scheduled steps also an evaluation, then a checkpoint

Every draw is seeded by (run seed, purpose, step), so a run that goes on from a checkpoint repeats nothing and skips
nothing: on a CPU its journal equals that of a run that was never stopped.
"""

from __future__ import annotations

import math
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from isocompute_torch.learning.learner import Learner
from isocompute_torch.learning.optimiser import warmed_up
from isocompute_torch.problems import BatchOrder
from isocompute_torch.rewards.function import RewardFunction
from isocompute_torch.runner import checkpoint
from isocompute_torch.runner.checkpoint import Counters
from isocompute_torch.runner.configuration import Configuration, derive_seed
from isocompute_torch.runner.console import RunProgress
from isocompute_torch.runner.evaluation import evaluate
from isocompute_torch.runner.journal import Journal
from isocompute_torch.runner.prompts import PromptSet
from isocompute_torch.sampling.sampler import Sampler


@dataclass
class Parts:
    """What a run is made of; `assemble` in assembly.py makes it."""

    train: PromptSet
    """Training problems."""
    evaluations: dict[str, PromptSet]
    """Evaluation sets by name: validation, others, and the probe of the training set."""
    order: BatchOrder
    """Which problems each step trains on."""
    sampler: Sampler
    """Draws rollouts from the learner's policy."""
    reward: RewardFunction
    """The user's reward function."""
    learner: Learner
    """Holds the policy and updates it."""


def train(
    configuration: Configuration, parts: Parts, counters: Counters, journal: Journal, progress: RunProgress
) -> None:
    """Run the updates that `counters` says are still to do; `counters` is kept up to date.

    Raises:
        RunFailed: training cannot go on.
        OSError: the disk is full.
    """
    last = configuration.run.update_steps
    if counters.step == 0:
        measure(configuration, parts, counters, journal, progress)
    for step in range(counters.step + 1, last + 1):
        update(configuration, parts, counters, journal, progress, step)
        if step in configuration.evaluation_steps:
            measure(configuration, parts, counters, journal, progress)
        if step % configuration.save_every_steps == 0 or step == last:
            checkpoint.save(configuration.folder, parts.learner, counters)


def update(
    configuration: Configuration,
    parts: Parts,
    counters: Counters,
    journal: Journal,
    progress: RunProgress,
    step: int,
) -> None:
    """One rollout batch and one optimiser step."""
    run, recipe = configuration.run, configuration.run.recipe
    seconds: dict[str, float] = {}
    batch = parts.train.subset(parts.order.batch(step))
    with _timed(seconds, "sampling"):
        samples = parts.sampler.sample(
            batch.ids,
            run.group_size,
            temperature=recipe.temperature,
            top_p=recipe.top_p,
            max_tokens=recipe.max_response_tokens,
            seed=derive_seed(run.seed, "rollouts", step),
        )
    with _timed(seconds, "reward"):
        scores = parts.reward.score(batch.calls(samples), seed=derive_seed(run.seed, "reward", step))
        scores.check(f"step {step}", stop_on_error=configuration.options.on_reward_error == "stop")
    learning_rate = warmed_up(run.learning_rate, step, recipe.warmup_steps)
    with _timed(seconds, "training"):
        stats = parts.learner.update(
            samples,
            torch.tensor(scores.rewards, dtype=torch.float64, device=samples.mask_RT.device),
            learning_rate=learning_rate,
            value_learning_rate=warmed_up(recipe.value_learning_rate, step, recipe.warmup_steps),
        )
    seconds["sync"] = parts.sampler.sync(parts.learner.policy.model)
    counters.step = step
    counters.rollouts += run.rollouts_per_batch
    counters.tokens += samples.tokens
    known = [reward for reward in scores.rewards if not math.isnan(reward)]
    metrics = {
        "train_reward": math.fsum(known) / len(known) if known else math.nan,
        "response_length": samples.tokens / run.rollouts_per_batch,
        "truncated_share": float(samples.truncated_R.double().mean()),
        "learning_rate": learning_rate,
        "reward_errors": scores.errors,
        **stats,
    }
    _record(journal, "step", counters, metrics=metrics, seconds=seconds)
    progress.step(step, run.rollouts_per_batch, metrics["train_reward"])
    if scores.errors:
        progress.note(f"step {step}: the reward function failed {scores.errors} times: {'; '.join(scores.messages)}")


def measure(
    configuration: Configuration, parts: Parts, counters: Counters, journal: Journal, progress: RunProgress
) -> None:
    """Evaluate the policy as it is now on every evaluation set."""
    run = configuration.run
    for name, prompts in parts.evaluations.items():
        seconds: dict[str, float] = {}
        with _timed(seconds, "evaluation"):
            measured = evaluate(
                prompts,
                parts.sampler,
                parts.reward,
                run.evaluation,
                max_tokens=run.recipe.max_response_tokens,
                seed=derive_seed(run.seed, f"evaluation:{name}", counters.step),
            )
        measured.scores.check(
            f"evaluation of {name} after step {counters.step}",
            stop_on_error=configuration.options.on_reward_error == "stop",
        )
        _record(
            journal,
            "evaluation",
            counters,
            durable=True,
            eval_set=name,
            metrics=measured.metrics,
            samples=run.evaluation.samples,
            pass_counts=measured.pass_counts,
            sample_counts=measured.sample_counts,
            zero_pass_share=measured.zero_pass_share,
            reward_errors=measured.scores.errors,
            seconds=seconds,
        )
        progress.evaluation(counters.step, name, measured.metrics)


def _record(journal: Journal, kind: str, counters: Counters, *, durable: bool = False, **fields: object) -> None:
    journal.append(
        kind, step=counters.step, rollouts=counters.rollouts, tokens=counters.tokens, durable=durable, **fields
    )


@contextmanager
def _timed(seconds: dict[str, float], name: str) -> Generator[None]:
    started = time.perf_counter()
    yield
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    seconds[name] = round(time.perf_counter() - started, 6)
