"""Log with tinker-cookbook's own JsonLogger: `log_with_tinker.py FOLDER`; fifteen batches, and a resume after ten."""

from __future__ import annotations

import sys

from tinker_cookbook.utils.ml_log import JsonLogger

logger = JsonLogger(sys.argv[1])
builder = {"group_size": 16, "batch_size": 8, "seed": 0}
logger.log_hparams(
    {"model_name": "Qwen/Qwen3-8B", "learning_rate": 4e-5, "max_tokens": 256, "dataset_builder": builder}
)


def row(step: int) -> dict[str, float]:
    found = {"progress/batch": step, "optim/lr": 4e-5, "env/all/total_episodes": 128, "env/all/reward/total": step / 40}
    return found | ({"test/env/all/reward/total": step / 50} if step % 5 == 0 else {})


for batch in range(15):
    logger.log_metrics(row(batch), step=batch)
logger.store.truncate_metrics(10)
for batch in range(10, 20):
    logger.log_metrics(row(batch), step=batch)
