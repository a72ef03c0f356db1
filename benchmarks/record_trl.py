"""Record runs of three small tasks by another engine: GRPO of TRL on a random two-layer Qwen2.

    python benchmarks/record_trl.py --tasks copy --out isocompute_sdk/laws/data/sweeps/trl-copy.csv
    python benchmarks/record_trl.py --tasks copy --sizes 4 8 --seeds 0 --rollouts 20000 --out copy.csv

A prompt is a few letters of a to h and "="; the answer is the same letters (`copy`, three letters), the letters in
order (`sort`, three letters), or the letters backwards (`pair`, two letters, all or nothing). Reward is the share of
the places that are right, on 64 words (16 of `pair`) that training does not see, 16 answers each. One run of 80,000
rollouts takes one to two minutes on one core. Runs that are in the file already are left out. Needs TRL: `pip install
"isocompute[peers]" datasets`.
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import random
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import polars as pl

LETTERS = "abcdefgh"
SIZES = (4, 8, 16, 32, 64)
PROBLEMS_PER_BATCH = 8
LEARNING_RATE = 3e-4
EVALUATIONS, ANSWERS = 60, 16
HELD_OUT = {2: 16, 3: 64}
"""Words that training does not see, by their length."""
TASKS: dict[str, tuple[int, Callable[[str], str], bool]] = {
    "copy": (3, lambda word: word, False),
    "pair": (2, lambda word: word[::-1], True),
    "sort": (3, lambda word: "".join(sorted(word)), False),
}
"""Letters of a word, the answer, and whether only a whole answer counts."""


def trained(task: str, group_size: int, seed: int, rollouts: int, updates: int, rate: float) -> list[dict[str, Any]]:
    """Train one run, with `updates` steps on equal parts of each batch; one row for each of its evaluations."""
    import torch
    from datasets import Dataset
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

    trl = importlib.import_module("trl")
    length, answer, whole = TASKS[task]
    words = ["".join(letters) for letters in itertools.product(LETTERS, repeat=length)]
    random.Random(0).shuffle(words)
    held_out = HELD_OUT[length]

    def table(some: Sequence[str]) -> Any:
        return Dataset.from_list([{"prompt": f"{word}=", "answer": answer(word)} for word in some])

    def reward(completions: Sequence[str], answer: Sequence[str], **_: Any) -> list[float]:
        shares: list[float] = []
        for said, right in zip(completions, answer, strict=True):
            hits = sum(a == b for a, b in zip(said.replace(" ", "")[:length], right, strict=False))
            shares.append(float(hits == length) if whole else hits / length)
        return shares

    symbols = ["<pad>", "<eos>", *LETTERS, "="]
    words_of = models.WordLevel({symbol: i for i, symbol in enumerate(symbols)}, unk_token="<pad>")
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(words_of), pad_token="<pad>", eos_token="<eos>")
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    torch.manual_seed(seed)
    shape = Qwen2Config(
        vocab_size=len(symbols),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        pad_token_id=0,
        eos_token_id=1,
        bos_token_id=None,
    )
    batch = group_size * PROBLEMS_PER_BATCH
    steps = rollouts // batch * updates
    with tempfile.TemporaryDirectory() as folder:
        config = trl.GRPOConfig(
            output_dir=folder,
            num_generations=group_size,
            num_generations_eval=ANSWERS,
            per_device_train_batch_size=batch // updates,
            steps_per_generation=updates,
            max_completion_length=length,
            max_steps=steps,
            learning_rate=rate,
            lr_scheduler_type="constant",
            beta=0.0,
            seed=seed,
            eval_strategy="steps",
            eval_steps=max(steps // EVALUATIONS // updates, 1) * updates,
            eval_on_start=True,
            per_device_eval_batch_size=256,
            save_strategy="no",
            report_to=[],
            use_cpu=True,
            bf16=False,
            disable_tqdm=True,
        )
        trainer = trl.GRPOTrainer(
            model=Qwen2ForCausalLM(shape),
            reward_funcs=reward,
            args=config,
            train_dataset=table(words[held_out:][:400]),
            eval_dataset=table(words[:held_out]),
            processing_class=tokenizer,
        )
        trainer.train()
        found = {int(row["step"]): row["eval_reward"] for row in trainer.state.log_history if "eval_reward" in row}
    return [
        {
            "run_id": run_id(task, group_size, seed, updates, rate),
            "group_size": group_size,
            "problems_per_batch": PROBLEMS_PER_BATCH,
            "seed": seed,
            "step": step // updates,
            "rollouts": step // updates * batch,
            "updates_per_batch": updates,
            "learning_rate": rate,
            f"avg@{ANSWERS}": round(float(value), 4),
        }
        for step, value in sorted(found.items())
    ]


def run_id(task: str, group_size: int, seed: int, updates: int, rate: float) -> str:
    """Name of a run."""
    name = f"trl-{task}-n{group_size}-s{seed}"
    return name + (f"-u{updates}" if updates > 1 else "") + (f"-lr{rate:g}" if rate != LEARNING_RATE else "")


def main(arguments: Sequence[str] | None = None) -> int:
    """Record the runs that are missing from the file."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--out", type=Path, required=True, help="table that rows are added to")
    parser.add_argument("--tasks", nargs="+", choices=list(TASKS), default=list(TASKS))
    parser.add_argument("--sizes", nargs="+", type=int, default=SIZES, help="n")
    parser.add_argument("--seeds", nargs="+", type=int, default=(0,))
    parser.add_argument("--rollouts", type=int, default=80_000, help="of each run")
    parser.add_argument("--updates", nargs="+", type=int, default=(1,), help="optimiser steps per batch")
    parser.add_argument("--rates", nargs="+", type=float, default=(LEARNING_RATE,), help="learning rates")
    options = parser.parse_args(arguments)
    table = pl.read_csv(options.out) if options.out.exists() else pl.DataFrame()
    known = set(table["run_id"].to_list()) if len(table) else set[str]()
    axes = (options.tasks, options.seeds, options.sizes, options.updates, options.rates)
    for task, seed, size, updates, rate in itertools.product(*axes):
        if run_id(task, size, seed, updates, rate) not in known:
            rows = pl.DataFrame(trained(task, size, seed, options.rollouts, updates, rate))
            table = pl.concat([table, rows], how="diagonal")
            partial = options.out.with_suffix(".part")
            table.write_csv(partial)
            partial.replace(options.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
