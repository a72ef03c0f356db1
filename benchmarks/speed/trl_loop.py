"""TRL's GRPOTrainer on a task: `trl_loop.py TASK STEPS WARM_UP PROBLEMS GROUP TOKENS RATE DTYPE ROWS`.

Started by loop_against_trl.py; prints one JSON object with the seconds of the steps after the warm-up. The trainer
generates with transformers and its KV cache, one generation batch for one optimiser step, in backward passes of ROWS
rollouts, without a second forward pass for old log-probabilities, without a reference model, gradient checkpointing,
logging or saving.
"""

from __future__ import annotations

import json
import runpy
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from transformers import AutoTokenizer, TrainerCallback
from trl.trainer.grpo_config import GRPOConfig
from trl.trainer.grpo_trainer import GRPOTrainer


class Clock(TrainerCallback):
    """Notes when each step ends."""

    def __init__(self) -> None:
        self.ends: list[tuple[float, float]] = []

    def on_step_end(self, *_: Any, **__: Any) -> None:
        """The optimiser step is done."""
        self.ends.append((time.perf_counter(), time.process_time()))


def rewards(task: Path) -> Any:
    """The function of the task's reward.py, in this process, as TRL calls it."""
    score = runpy.run_path(str(task / "reward.py"))["reward"]

    def reward(prompts: list[str], completions: list[str], answer: list[str], **_: Any) -> list[float | None]:
        return [score(*row) for row in zip(prompts, completions, answer, strict=True)]

    return reward


def main() -> None:
    """Train and print the seconds."""
    task = Path(sys.argv[1])
    steps, warm_up, problems, group, tokens = map(int, sys.argv[2:7])
    rows = int(sys.argv[9])
    torch.set_num_threads(1)
    tokenizer: Any = AutoTokenizer.from_pretrained(task / "model", padding_side="left")
    data = [json.loads(line) for line in (task / "train.jsonl").read_text().splitlines()]
    clock = Clock()
    with tempfile.TemporaryDirectory() as output:
        trainer = GRPOTrainer(
            model=str(task / "model"),
            processing_class=tokenizer,
            reward_funcs=rewards(task),
            train_dataset=Dataset.from_list([{"prompt": row["prompt"], "answer": row["answer"]} for row in data]),
            callbacks=[clock],
            args=GRPOConfig(
                output_dir=output,
                model_init_kwargs={"dtype": sys.argv[8], "attn_implementation": "sdpa"},
                max_steps=warm_up + steps,
                per_device_train_batch_size=rows,
                gradient_accumulation_steps=problems * group // rows,
                num_generations=group,
                max_completion_length=tokens,
                temperature=1.0,
                beta=0.0,
                epsilon=0.2,
                learning_rate=float(sys.argv[7]),
                lr_scheduler_type="constant",
                max_grad_norm=1.0,
                gradient_checkpointing=False,
                use_cpu=True,
                bf16=False,
                logging_strategy="no",
                save_strategy="no",
                report_to="none",
                disable_tqdm=True,
                dataloader_pin_memory=False,
                seed=0,
            ),
        )
        trainer.train()
    length = trainer.state.log_history[-1]["completions/mean_length"]
    (first_wall, first_cpu), (wall, processor) = clock.ends[warm_up - 1], clock.ends[-1]
    seconds = {"seconds": wall - first_wall, "cpu_seconds": processor - first_cpu, "length": float(length)}
    sys.stdout.write(json.dumps(seconds) + "\n")


if __name__ == "__main__":
    main()
