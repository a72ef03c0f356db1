"""Six updates of the real GRPOTrainer on a random model of one layer: `train_with_trl.py FOLDER JSON`.

The JSON holds arguments to change; with `resume` it goes on from the newest checkpoint.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

FOLDER, CHANGES = Path(sys.argv[1]), json.loads(sys.argv[2])
RESUME = CHANGES.pop("resume", None)
os.environ.update(WANDB_MODE="offline", WANDB_SILENT="true", WANDB_DIR=str(FOLDER), CUDA_VISIBLE_DEVICES="")
FOLDER.mkdir(parents=True, exist_ok=True)

from datasets import Dataset  # noqa: E402
from tokenizers import Tokenizer, models, pre_tokenizers  # noqa: E402
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast  # noqa: E402
from trl import GRPOConfig, GRPOTrainer  # noqa: E402

WORDS = ["<pad>", "<eos>", *map(str, range(20)), "+", "="]


def tokenizer() -> PreTrainedTokenizerFast:
    words = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="<pad>"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    names = {"pad_token": "<pad>", "eos_token": "<eos>", "unk_token": "<pad>"}
    # Releases of 2025 hand everything that a tokenizer returns to the model.
    return PreTrainedTokenizerFast(tokenizer_object=words, model_input_names=["input_ids", "attention_mask"], **names)


def accuracy_reward(completions: list[str], **columns: object) -> list[float]:
    return [float("3" in one) for one in completions]


def length_reward(completions: list[str], **columns: object) -> list[float]:
    return [len(one) % 7 / 7 for one in completions]


sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
data = Dataset.from_dict({"prompt": [f"{i % 9} + {i % 7} =" for i in range(64)]})
settings = {
    "output_dir": str(FOLDER),
    "per_device_train_batch_size": 4,
    "gradient_accumulation_steps": 2,
    "num_generations": 4,
    "max_completion_length": 4,
    "max_steps": 6,
    "logging_steps": 1,
    "save_steps": 3,
    "use_cpu": True,
    "bf16": False,
    "report_to": ["tensorboard", "wandb"],
}
trainer = GRPOTrainer(
    model=LlamaForCausalLM(LlamaConfig(vocab_size=len(WORDS), pad_token_id=0, eos_token_id=1, **sizes)),
    processing_class=tokenizer(),
    reward_funcs=[accuracy_reward, length_reward],
    args=GRPOConfig(**{**settings, **CHANGES}),
    train_dataset=data,
    eval_dataset=data.select(range(8)),
)
trainer.train(resume_from_checkpoint=RESUME)
