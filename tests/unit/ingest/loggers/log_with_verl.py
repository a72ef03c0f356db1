"""Log with veRL's own Tracking: `log_with_verl.py WHEEL FOLDER`, the wheel unpacked; its other packages are not needed.

Twenty batches to console, file and TensorBoard, an evaluation before them and after every fifth. The configuration is
printed first, as veRL's main program does.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from pprint import pprint
from types import ModuleType

WHEEL, FOLDER = Path(sys.argv[1]).absolute() / "verl" / "utils", Path(sys.argv[2])


def load(name: str, path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    sys.modules[name] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


for name in ("verl", "verl.utils", "verl.utils.logger"):
    sys.modules[name] = ModuleType(name)
aggregate = load("verl.utils.logger.aggregate_logger", WHEEL / "logger" / "aggregate_logger.py")
sys.modules["verl.utils.logger"].LocalLogger = aggregate.LocalLogger  # type: ignore[attr-defined]
tracking = load("verl.utils.tracking", WHEEL / "tracking.py")

CONFIG = {
    "actor_rollout_ref": {
        "actor": {"ppo_mini_batch_size": 16, "ppo_epochs": 1, "use_kl_loss": False, "optim": {"lr": 1e-6}},
        "model": {"path": "Qwen/Qwen2.5-3B"},
        "rollout": {"n": 8, "temperature": 1.0, "val_kwargs": {"n": 4, "temperature": 0.6}},
    },
    "algorithm": {"adv_estimator": "grpo", "use_kl_in_reward": False},
    "data": {"train_batch_size": 32, "max_prompt_length": 512, "max_response_length": 1024, "seed": None},
    "trainer": {"project_name": "math", "experiment_name": "qwen", "default_local_dir": "checkpoints/math/qwen"},
}
FOLDER.mkdir(parents=True, exist_ok=True)
os.chdir(FOLDER)
pprint(CONFIG)
logger = tracking.Tracking("math", "qwen", ["console", "file", "tensorboard"], CONFIG)
for step in range(21):
    values = {"val-core/gsm8k/acc/mean@4": 0.1 + step / 50, "val-aux/gsm8k/reward/std@4": 0.1} if step % 5 == 0 else {}
    if step:
        values |= {"critic/score/mean": step / 40, "critic/rewards/mean": step / 40, "actor/entropy": 0.5}
        values |= {"training/global_step": step, "response_length/mean": 300.5 + step, "timing_s/step": 20.5}
    logger.log(values, step)
logger.finish()
