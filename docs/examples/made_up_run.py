"""Write a made-up run in veRL's form into exp/: 600 updates, whose entropy collapses at step 400."""

import json
from pathlib import Path

import numpy as np

rng = np.random.default_rng(3)
folder = Path("exp")
(folder / ".hydra").mkdir(parents=True)
(folder / ".hydra" / "overrides.yaml").write_text(
    "- data.train_batch_size=64\n- actor_rollout_ref.rollout.n=16\n- actor_rollout_ref.actor.ppo_mini_batch_size=64\n"
    "- actor_rollout_ref.rollout.val_kwargs.n=4\n- actor_rollout_ref.model.path=Qwen/Qwen2.5-3B-Instruct\n"
    "- actor_rollout_ref.actor.optim.lr=1e-6\n- actor_rollout_ref.actor.use_kl_loss=False\n"
    "- actor_rollout_ref.actor.entropy_coeff=0\n"
)
with (folder / "metrics.jsonl").open("w") as log:
    for step in range(1, 601):
        sick = max(step - 400, 0)
        right = 0.42 + 0.22 * (1 - np.exp(-min(step, 400) / 180)) - 0.10 * (1 - np.exp(-sick / 60))
        entropy = 0.40 * np.exp(-sick / 25) + 0.01 if sick else 0.62 * np.exp(-step / 900)
        data = {"critic/score/mean": right + 0.03 + rng.normal(0, 0.01)}
        data |= {"actor/entropy": entropy * np.exp(rng.normal(0, 0.05)), "response_length/mean": 600 + 0.2 * step}
        if step % 20 == 0:
            data["val-core/math/acc/mean@4"] = right + rng.normal(0, 0.008)
        log.write(json.dumps({"step": step, "data": data}) + "\n")
        if step % 100 == 0:
            weights = folder / "checkpoints" / f"global_step_{step}"
            weights.mkdir(parents=True)
            (weights / "config.json").write_text("{}")
            (weights / "model.safetensors").write_bytes(b"weights")
