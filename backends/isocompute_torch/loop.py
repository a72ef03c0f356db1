"""The training loop, from end to end: sample, score, update, evaluate, save.

    for every update step:
        problems  <- the next B_p of the seeded order
        rollouts  <- n samples of each from the current policy
        rewards   <- the user's function
        weights   <- one optimiser step on the policy loss (learning/)
        journal   <- the measurements; at scheduled steps also an evaluation, then a checkpoint

Every draw is seeded by (run seed, purpose, step), so a resumed run repeats nothing and skips nothing: on a CPU its
journal equals that of an uninterrupted run.
"""

from __future__ import annotations

import math
import sys
import time
from collections import deque
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from isocompute_sdk.metrics import k_metrics
from isocompute_sdk.notes import Note
from isocompute_sdk.records.columns import DEFAULT_EVAL_SET
from isocompute_sdk.run_folders.run_journal import Journal
from isocompute_sdk.run_folders.store import read_best
from isocompute_sdk.specs.run import Evaluation
from isocompute_sdk.training.payload.problem_files import Problem
from isocompute_sdk.training.payload.run_files import record_reported
from isocompute_torch import checkpoint
from isocompute_torch.configuration import Configuration, Counters, InputError, RunFailed, derive_seed
from isocompute_torch.learner import Learner, warmed_up
from isocompute_torch.problems import BatchOrder, TextCodec
from isocompute_torch.rewards import Call, RewardPool, Scores
from isocompute_torch.sampler import Sampler, Samples

LINE_SECONDS = 10.0
"""Shortest time between the lines of two updates."""
BEST_AGAIN = 1
"""Evaluations after the last update: the best policy on new samples."""
RECENT = 20
"""Updates whose mean time, evaluations between them included, is that of the ones to come."""


class RunConsole:
    """Shows the progress of one run.

    Args:
        run_id: name of the run.
        total: update steps of the whole run.
        done: update steps done before this attempt.
    """

    def __init__(self, run_id: str, total: int, done: int) -> None:
        self.run_id = run_id
        self.total = total
        self.done = done
        self._started = time.monotonic()
        self._rollouts = 0
        self._ends: deque[float] = deque([self._started], maxlen=RECENT + 1)
        self._last_line = -LINE_SECONDS

    def step(self, step: int, rollouts: int, reward: float) -> None:
        """Show that one update is done, with its rollouts and mean training reward."""
        self.done = step
        self._rollouts += rollouts
        self._ends.append(time.monotonic())
        elapsed = self._ends[-1] - self._started
        if step < self.total and elapsed - self._last_line < LINE_SECONDS:
            return
        self._last_line = elapsed
        speed = f"{self._rollouts / max(elapsed, 1e-9):,.0f}"
        left = (self._ends[-1] - self._ends[0]) / (len(self._ends) - 1) * (self.total - step)
        self.note(f"step {step}/{self.total}  reward {reward:.3f}  {speed} rollouts/s  {_clock(left)} left")

    def evaluation(self, step: int, eval_set: str, metrics: dict[str, float]) -> None:
        """Show the metrics at k of one evaluation."""
        shown = "  ".join(f"{name} {value:.3f}" for name, value in metrics.items() if "@" in name)
        self.note(f"step {step}/{self.total}  {eval_set}: {shown}")

    def note(self, text: str) -> None:
        """Print one line."""
        sys.stdout.write(f"{self.run_id}: {text}\n")
        sys.stdout.flush()


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


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
        """Encode every problem of the set `name`."""
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


PASS_REWARD = 0.5
"""Smallest reward of a sample that passes; rewards are usually 0 or 1."""


@dataclass(frozen=True)
class Measured:
    """One evaluation of one set."""

    metrics: dict[str, float]
    """avg@k, best@k and worst@k for k = `samples` and the powers of two below, response length, truncation."""
    pass_counts: list[int]
    """Samples that passed, per problem in file order."""
    sample_counts: list[int]
    """Samples with a reward, per problem: fewer than `samples` if the reward function failed."""
    zero_pass_share: float
    """Fraction of problems without a passing sample."""
    scores: Scores
    """Rewards and failures."""


def evaluate(
    prompts: PromptSet,
    sampler: Sampler,
    reward: RewardPool,
    plan: Evaluation,
    *,
    top_p: float,
    max_tokens: int,
    seed: int,
) -> Measured:
    """Sample `plan.samples` responses to each problem and score them."""
    samples = sampler.sample(
        prompts.ids, plan.samples, temperature=plan.temperature, top_p=top_p, max_tokens=max_tokens, seed=seed
    )
    scores = reward.score(prompts.calls(samples), seed=seed)
    reward_PN = np.array(scores.rewards).reshape(-1, plan.samples)
    known_PN = ~np.isnan(reward_PN)
    if not known_PN.any():
        raise RunFailed(
            f"the reward function failed for all {reward_PN.size} rollouts: {'; '.join(scores.messages)}",
            "Correct the reward function, then start the run again.",
        )
    passes_P = (np.where(known_PN, reward_PN, -math.inf) >= PASS_REWARD).sum(axis=1)
    return Measured(
        metrics={**k_metrics(reward_PN), **samples.measures()},
        pass_counts=[int(count) for count in passes_P],
        sample_counts=[int(count) for count in known_PN.sum(axis=1)],
        zero_pass_share=float((passes_P == 0).mean()),
        scores=scores,
    )


@dataclass
class Parts:
    """The parts of a run, as `assembly.assemble` makes them."""

    train: PromptSet
    """Training problems."""
    evaluations: dict[str, PromptSet]
    """Evaluation sets by name: validation, others, and the probe of the training set."""
    order: BatchOrder
    """Order in which training problems are used."""
    sampler: Sampler
    """Draws rollouts from the learner's policy."""
    reward: RewardPool
    """The user's reward function."""
    learner: Learner
    """Holds the policy and updates it."""
    notes: tuple[Note, ...] = ()
    """What the run should know of: sampler and sizes that differ from the usual ones."""


@dataclass
class Loop:
    """The update steps of one attempt at a run."""

    configuration: Configuration
    """The run."""
    parts: Parts
    counters: Counters
    """How far the run is; kept up to date."""
    journal: Journal
    """Receives every measurement."""
    console: RunConsole
    """Shows progress."""

    def __post_init__(self) -> None:
        self._unwritten: list[Note] = []
        for note in self.parts.notes:
            self.note(note)

    def train(self) -> None:
        """Run the remaining updates.

        Raises:
            RunFailed: training cannot continue.
            OSError: the disk is full.
        """
        configuration, last = self.configuration, self.configuration.run.update_steps
        if self.counters.step == 0:
            self.evaluate()
        for step in range(self.counters.step + 1, last + 1):
            self.update(step)
            if step in configuration.evaluation_steps:
                self.evaluate()
            if step % configuration.save_every_steps == 0 or step == last:
                checkpoint.save(configuration.folder, self.parts.learner, self.counters)

    def note(self, note: Note) -> None:
        """Show a note; the next record of the journal carries it."""
        self._unwritten.append(note)
        self.console.note(f"[{note.code}] {note.message}")

    def update(self, step: int) -> None:
        """One rollout batch and one optimiser step; the sampler rests between the two."""
        run, recipe, parts = self.configuration.run, self.configuration.run.recipe, self.parts
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
            scores.check(f"step {step}")
        budget = parts.learner.token_budget
        learning_rate = warmed_up(run.learning_rate, step, recipe.warmup_steps)
        seconds["sync"] = parts.sampler.rest()
        with _timed(seconds, "training"):
            stats = parts.learner.update(
                samples,
                torch.tensor(scores.rewards, dtype=torch.float64, device=samples.mask_RT.device),
                learning_rate=learning_rate,
                value_learning_rate=warmed_up(recipe.value_learning_rate, step, recipe.warmup_steps),
            )
        seconds["sync"] += parts.sampler.sync(parts.learner.policy.model)
        if parts.learner.token_budget < budget:
            self.note(_halved(parts.learner.token_budget, step))
        self.counters.step = step
        self.counters.rollouts += run.rollouts_per_batch
        self.counters.tokens += samples.tokens
        known = [reward for reward in scores.rewards if not math.isnan(reward)]
        metrics = {
            "train_reward": math.fsum(known) / len(known) if known else math.nan,
            **samples.measures(),
            "learning_rate": learning_rate,
            "reward_errors": scores.errors,
            **stats,
        }
        self._record("step", metrics=metrics, seconds=seconds)
        self.console.step(step, run.rollouts_per_batch, metrics["train_reward"])
        if scores.errors:
            self.console.note(
                f"step {step}: the reward function failed {scores.errors} times: {'; '.join(scores.messages)}"
            )

    def evaluate(self) -> None:
        """Evaluate the current policy on every evaluation set."""
        run, step = self.configuration.run, self.counters.step
        for name, prompts in self.parts.evaluations.items():
            seconds: dict[str, float] = {}
            with _timed(seconds, "evaluation"):
                measured = self._measured(prompts, f"evaluation:{name}", step)
            self._record(
                "evaluation",
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
            self.console.evaluation(step, name, measured.metrics)
            if name == DEFAULT_EVAL_SET:
                metric = f"avg@{run.evaluation.samples}"
                checkpoint.keep_best(
                    self.configuration.folder, self.parts.learner, step, metric, measured.metrics[metric]
                )

    def report(self) -> None:
        """Evaluate the best checkpoint on new samples, for best.json; the policy then holds its weights."""
        parts, folder = self.parts, self.configuration.folder
        best = read_best(folder)
        if best is None:
            return
        checkpoint.load_best(parts.learner.policy, folder / best.checkpoint)
        parts.sampler.sync(parts.learner.policy.model)
        measured = self._measured(parts.evaluations[DEFAULT_EVAL_SET], "report", best.step)
        record_reported(folder, measured.metrics[best.metric])

    def _measured(self, prompts: PromptSet, purpose: str, step: int) -> Measured:
        """One evaluation, with draws of its own for each purpose and step."""
        run = self.configuration.run
        measured = evaluate(
            prompts,
            self.parts.sampler,
            self.parts.reward,
            run.evaluation,
            top_p=run.evaluation_top_p,
            max_tokens=run.recipe.max_response_tokens,
            seed=derive_seed(run.seed, purpose, step),
        )
        measured.scores.check(f"{purpose} after step {step}")
        return measured

    def _record(self, kind: str, *, durable: bool = False, **fields: Any) -> None:
        if self._unwritten:
            fields["notes"] = [note.to_dict() for note in self._unwritten]
            self._unwritten = []
        self.journal.append(kind, **vars(self.counters), durable=durable, **fields)


def _halved(tokens: int, step: int) -> Note:
    message = (
        f"step {step} ran out of memory and was recomputed with micro-batches of at most {tokens:,} tokens, used "
        "from here on. The gradient is the same. To start with them, set options.max_tokens_per_micro_batch."
    )
    return Note("micro-batches-smaller", "warning", message, {"tokens": tokens, "step": step})


@contextmanager
def _timed(seconds: dict[str, float], name: str) -> Generator[None]:
    started = time.perf_counter()
    yield
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    seconds[name] = round(time.perf_counter() - started, 6)
