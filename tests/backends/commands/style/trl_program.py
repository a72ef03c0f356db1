# A program of one's own.
from datasets import load_dataset
from trl import GRPOConfig, GRPOTrainer

GROUP = 8
PROMPTS = 4
LENGTH = 512 * 2

args = GRPOConfig(
    output_dir="out",
    num_generations=GROUP,
    per_device_train_batch_size=GROUP * PROMPTS,
    gradient_accumulation_steps=2,
    max_steps=100,
    learning_rate=1e-6,
    beta=0.0,
    max_completion_length=LENGTH,
    loss_type="dr_grpo",
)
trainer = GRPOTrainer("Qwen/Qwen2.5-0.5B", lambda *_, **__: [0.0], args, load_dataset("a/b", split="train"))
trainer.train()
