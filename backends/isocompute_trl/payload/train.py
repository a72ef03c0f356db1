"""Train one run with TRL's GRPOTrainer and keep a journal of it.

    python3 train.py RUN_FOLDER MODEL         (after prepare_rows.py; or through `accelerate launch`)

trainer.json holds the arguments of GRPOConfig. Written into RUN_FOLDER: metrics.jsonl (run_journal.py), samples/ with
the reward of every validation response, checkpoints/ and, at the end, model/. Started again after any stop, training
resumes from the last complete checkpoint. Exit status: 0 finished, 1 failed, 2 unusable input.
"""

from __future__ import annotations

import importlib
import json
import math
import os
import sys
import time
import traceback
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import reward_calls
from run_files import ROW_FILES, InputError, attempt_of, better, hold, pin, record_best
from run_journal import Journal, read

EVAL_SET = "validation"
SAMPLES = "samples"
"""Folder of <step>.<attempt>.<process>.jsonl: one validation response a line, with problem, score and error."""
STEP_METRICS = {
    "reward": "train_reward",
    "entropy": "entropy",
    "kl": "kl",
    "loss": "loss",
    "grad_norm": "gradient_norm",
    "learning_rate": "learning_rate",
    "completions/mean_length": "response_length",
    "completions/clipped_ratio": "truncated_share",
    "frac_reward_zero_std": "zero_variance_share",
    "reward_error": "reward_error_share",
    "clip_ratio/region_mean": "clipped_share",
    "sampling/importance_sampling_ratio/mean": "importance_weight_mean",
}
"""Metrics of an update: TRL's name -> name in the journal."""
EVALUATION_METRICS = {
    "eval_reward": "trl_eval_reward",
    "eval_completions/mean_length": "response_length",
    "eval_completions/clipped_ratio": "truncated_share",
}


class StepClock:
    """Measures one update after the other; `now` returns seconds."""

    def __init__(self, now: Callable[[], float] = time.perf_counter) -> None:
        self.now = now
        self.parts: dict[str, float] = {}
        self.started = now()
        self.whole = 0.0

    def begin(self) -> None:
        """Start an update; parts measured before it, as in an evaluation, are dropped."""
        self.parts = {}
        self.started = self.now()

    def end(self) -> None:
        """End the update."""
        self.whole = self.now() - self.started

    @contextmanager
    def part(self, name: str) -> Generator[None]:
        """Add the time inside the context to part `name`."""
        started = self.now()
        try:
            yield
        finally:
            self.parts[name] = self.parts.get(name, 0.0) + self.now() - started

    def seconds(self) -> dict[str, float]:
        """Seconds of each part of the last update; their sum is the whole."""
        rest = max(0.0, self.whole - sum(self.parts.values()))
        return {name: round(value, 6) for name, value in {**self.parts, "training": rest}.items()}


def main(argv: list[str]) -> int:
    """Train the run and the model named on the command line; returns the exit status."""
    folder, model = Path(argv[0]), argv[1]
    chief = os.environ.get("RANK", "0") == "0"
    try:
        if chief:
            hold(folder)
    except InputError as error:
        sys.stderr.write(f"train: {error}\n")
        return 2
    request = json.loads((folder / "request.json").read_text(encoding="utf-8"))
    journal = Journal(folder / "metrics.jsonl", request["run"]["run_id"], attempt_of(folder))
    records = read(journal.path)
    if records and records[-1].get("status") == "finished":
        sys.stderr.write("train: the run is finished\n")
        return 0
    reached: dict[str, Any] = {"step": 0, "rollouts": 0, "tokens": 0, "gpu_seconds": 0.0}
    try:
        train(folder, model, request, journal, reached)
    except InputError as error:
        sys.stderr.write(f"train: {error}\n")
        return 2
    except Exception as error:
        if isinstance(error, ModuleNotFoundError):
            sys.stderr.write(f"train: {sys.executable}: {error}\n")
        else:
            traceback.print_exc()
        if chief:
            journal.fail(f"{type(error).__name__}: {error}", **reached)
        return 1
    if chief:
        journal.append("end", **reached, status="finished", message=f"{reached['step']} updates done")
        journal.close()
    return 0


def train(folder: Path, model: str, request: dict[str, Any], journal: Journal, reached: dict[str, Any]) -> None:
    """Build TRL's trainer and run it; `reached` is updated with step, rollouts, tokens and GPU time.

    Raises:
        InputError: a prompt is longer than the recipe allows.
    """
    transformers, trl, clock = imported("transformers"), imported("trl"), StepClock()
    rows = {kind: read_rows(folder / file) for kind, file in ROW_FILES.items()}
    tokenizer = transformers.AutoTokenizer.from_pretrained(model, padding_side="left", truncation_side="left")
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    check_lengths(tokenizer, [*rows["train"], *rows["evaluation"]], request["run"]["recipe"]["max_prompt_tokens"])
    checkpoint = last_checkpoint(folder / "checkpoints")
    settings = {
        **json.loads((folder / "trainer.json").read_text(encoding="utf-8")),
        "output_dir": str(folder / "checkpoints"),
        "per_device_eval_batch_size": eval_batch(
            len(rows["evaluation"]),
            request["run"]["evaluation"]["samples"],
            int(os.environ.get("WORLD_SIZE", "1")),
            request["eval_samples_per_pass"],
        ),
        # The journal already has the evaluation at the checkpoint's step.
        "eval_on_start": checkpoint is None,
    }
    trainer = timed(trl.GRPOTrainer, clock)(
        model=model,
        args=trl.GRPOConfig(**settings),
        reward_funcs=[reward_function(folder, journal.attempt, clock)],
        train_dataset=imported("datasets").Dataset.from_list(rows["train"]),
        eval_dataset=imported("datasets").Dataset.from_list(rows["evaluation"]),
        processing_class=tokenizer,
        callbacks=[journal_callback(Bookkeeper(folder, request, journal, reached, clock))],
    )
    trainer.train(resume_from_checkpoint=checkpoint)
    trainer.save_model(str(folder / "model"))


def timed(trainer: Any, clock: StepClock) -> Any:
    """TRL's trainer, with sampling timed (including copying the weights into the engine)."""

    class TimedTrainer(trainer):
        def _generate(self, *arguments: Any, **options: Any) -> Any:
            with clock.part("sampling"):
                return super()._generate(*arguments, **options)

    return TimedTrainer


def reward_function(folder: Path, attempt: int, clock: StepClock) -> Any:
    """The user's reward as TRL calls it; rewards of validation responses are also kept in samples/."""
    scorer = reward_calls.Scorer(reward_calls.function_of(folder))

    def reward(
        completions: list[Any],
        trainer_state: Any,
        log_metric: Any,
        problem: list[str],
        split: list[str],
        question: list[str],
        answer: list[str],
        **_: Any,
    ) -> list[float]:
        texts = [c if isinstance(c, str) else c[-1]["content"] for c in completions]
        with clock.part("reward"):
            found = [
                scorer(asked, text, json.loads(right), name)
                for asked, text, right, name in zip(question, texts, answer, problem, strict=True)
            ]
        log_metric("reward_error", sum(error is not None for _, error in found) / len(found))
        if split[0] == EVAL_SET:
            records = [
                {"problem": name, "score": score, "error": error}
                for name, (score, error) in zip(problem, found, strict=True)
            ]
            write_samples(folder, trainer_state.global_step, attempt, records)
        return [score for score, _ in found]

    return reward


class Bookkeeper:
    """Writes TRL's logs into the journal.

    GPU time is that of updates times the number of processes, each with one GPU, without evaluations and checkpoints.
    """

    def __init__(
        self, folder: Path, request: dict[str, Any], journal: Journal, reached: dict[str, Any], clock: StepClock
    ) -> None:
        self.folder, self.request, self.journal, self.reached, self.clock = folder, request, journal, reached, clock
        self.batch = request["run"]["group_size"] * request["run"]["problems_per_batch"]
        self.gpus = int(os.environ.get("WORLD_SIZE", "1"))

    def begin(self, step: int) -> None:
        """Training resumes from `step`; 0 is the base model."""
        last = self.journal.begin(resumed_step=step or None, **self.request["context"])
        self.reached.update(step=step, rollouts=step * self.batch)
        self.reached.update({name: last.get(name, 0) for name in ("tokens", "gpu_seconds")})

    def updated(self, step: int, logs: dict[str, Any]) -> None:
        """An update was logged."""
        tokens = self.reached["tokens"] + round((logs.get("completions/mean_length") or 0) * self.batch)
        seconds = self.clock.seconds()
        spent = round(self.reached["gpu_seconds"] + self.gpus * sum(seconds.values()), 6)
        self.reached.update(step=step, rollouts=step * self.batch, tokens=tokens, gpu_seconds=spent)
        metrics = {ours: logs[theirs] for theirs, ours in STEP_METRICS.items() if theirs in logs}
        self.journal.append("step", **self.reached, metrics=metrics, seconds=seconds)

    def evaluated(self, step: int, logs: dict[str, Any]) -> None:
        """An evaluation was logged."""
        samples = self.request["run"]["evaluation"]["samples"]
        scores = read_samples(self.folder, step, self.journal.attempt)
        metrics = sample_metrics(scores, samples)
        metrics |= {ours: logs[theirs] for theirs, ours in EVALUATION_METRICS.items() if theirs in logs}
        self.journal.append(
            "evaluation",
            **self.reached,
            eval_set=EVAL_SET,
            samples=samples,
            sample_counts=[len(group) for group in scores.values()],
            metrics=metrics,
            seconds={"evaluation": logs.get("eval_runtime")},
        )

    def saved(self, checkpoint: Path, step: int, history: list[dict[str, Any]]) -> None:
        """A checkpoint was written; the best one that was evaluated is linked into best/.

        transformers keeps the best as well, but only if the best evaluation of all was at a step that is saved.
        """
        rewards = [entry["eval_reward"] for entry in history if entry.get("step") == step and "eval_reward" in entry]
        if rewards and better(self.folder, rewards[-1]):
            metric = f"avg@{self.request['run']['evaluation']['samples']}"
            record_best(self.folder, step, metric, rewards[-1], pin(checkpoint, self.folder / "best"))


def write_samples(folder: Path, step: int, attempt: int, records: list[dict[str, Any]]) -> None:
    """Append the responses that this process scored in one pass."""
    (folder / SAMPLES).mkdir(exist_ok=True)
    lines = "".join(json.dumps(record) + "\n" for record in records)
    with (folder / SAMPLES / f"{step}.{attempt}.{os.getpid()}.jsonl").open("a", encoding="utf-8") as file:
        file.write(lines)


def read_samples(folder: Path, step: int, attempt: int) -> dict[str, list[float]]:
    """Rewards of one evaluation, problem -> samples, from the files of all processes."""
    scores: dict[str, list[float]] = {}
    for path in sorted((folder / SAMPLES).glob(f"{step}.{attempt}.*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            record = json.loads(line)
            scores.setdefault(record["problem"], []).append(record["score"])
    return scores


def sample_metrics(scores: dict[str, list[float]], samples: int) -> dict[str, float]:
    """avg@k, best@k and worst@k for k = samples and the powers of two from 2 below, averaged over problems."""
    # Padding of the last batch can repeat a problem; only its first samples count.
    groups = [sorted(group[:samples]) for group in scores.values()]
    if not groups or any(len(group) < samples for group in groups):
        raise RuntimeError(f"an evaluation holds fewer than {samples} rewards of some problems")
    found: dict[str, float] = {}
    for k in sorted({2**i for i in range(1, 16) if 2**i < samples} | {samples}):
        found[f"avg@{k}"] = math.fsum(map(math.fsum, groups)) / (samples * len(groups))
        found[f"best@{k}"] = math.fsum(expected_best(group, k) for group in groups) / len(groups)
        worst = (expected_best([-score for score in reversed(group)], k) for group in groups)
        found[f"worst@{k}"] = -math.fsum(worst) / len(groups)
    return found


def expected_best(ascending: list[float], k: int) -> float:
    """Expected largest of k values drawn without replacement: value i is it in C(i, k - 1) of C(N, k) draws."""
    terms = (value * math.comb(i, k - 1) for i, value in enumerate(ascending))
    return math.fsum(terms) / math.comb(len(ascending), k)


def journal_callback(book: Bookkeeper) -> Any:
    """A TrainerCallback that passes TRL's logs to `book` and also evaluates after the last step."""

    class JournalCallback(imported("transformers").TrainerCallback):
        def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if state.is_world_process_zero:
                book.begin(state.global_step)

        def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            book.clock.begin()

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> Any:
            book.clock.end()
            if state.global_step >= args.max_steps:
                control.should_evaluate = True
            return control

        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
            if not state.is_world_process_zero or not logs:
                return
            if "eval_reward" in logs:
                book.evaluated(state.global_step, logs)
            elif "reward" in logs:
                book.updated(state.global_step, logs)

        def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if state.is_world_process_zero:
                step = int(state.global_step)
                book.saved(Path(args.output_dir) / f"checkpoint-{step}", step, state.log_history)

    return JournalCallback()


def eval_batch(problems: int, samples: int, processes: int, most: int) -> int:
    """Validation rollouts per process and pass: whole groups, if possible without repeated problems in the last batch.

    It is impossible if the problems are not a multiple of the processes: TRL's own average then counts some problems
    twice, while avg@k in the journal does not.
    """
    sizes = range(samples, max(most, samples) + 1, samples)
    exact = [size for size in sizes if problems * samples % (size * processes) == 0]
    if not exact:
        sys.stderr.write(
            f"train: warning: {problems} validation problems are not a multiple of {processes} processes: TRL repeats "
            "some to fill its last batch, and trl_eval_reward counts them twice\n"
        )
    return max(exact or sizes)


def check_lengths(tokenizer: Any, rows: list[dict[str, Any]], most: int) -> None:
    """Refuse prompts longer than the recipe allows: TRL would neither cut nor skip them."""
    prompts = {(row["split"], row["problem"]): row["prompt"] for row in rows}
    lengths: dict[str, int] = {}
    for (_, problem), prompt in prompts.items():
        if isinstance(prompt, str):
            length = len(tokenizer(prompt)["input_ids"])
        else:
            text = tokenizer.apply_chat_template(prompt, tokenize=False, add_generation_prompt=True)
            length = len(tokenizer(text, add_special_tokens=False)["input_ids"])
        if length > most:
            lengths[problem] = length
    if lengths:
        first = next(iter(lengths))
        raise InputError(
            f"{len(lengths)} prompts have more than recipe.max_prompt_tokens = {most} tokens, first {first!r} with "
            f"{lengths[first]}. Remove them from the problem files, or raise the limit."
        )


def last_checkpoint(folder: Path) -> str | None:
    """The newest checkpoint whose last file was written; None without one."""
    whole: dict[int, str] = {}
    for state in folder.glob("checkpoint-*/trainer_state.json"):
        try:
            whole[int(json.loads(state.read_text(encoding="utf-8"))["global_step"])] = str(state.parent)
        except ValueError:  # cut off in the middle of writing
            continue
    return whole[max(whole)] if whole else None


def imported(name: str) -> Any:
    """A module of the training environment, imported on first use because that takes seconds."""
    return importlib.import_module(name)


def read_rows(path: Path) -> list[dict[str, Any]]:
    """All objects of a JSONL file."""
    with path.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
