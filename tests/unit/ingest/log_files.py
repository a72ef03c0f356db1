"""Logs as frameworks write them, for the tests of readers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from isocompute_sdk.ingest import RunFinding, diagnose

Tags = Mapping[str, Callable[[int], float | None]]

HYDRA = """\
data: {{train_batch_size: {problems}, seed: 1, max_response_length: 4096, train_files: train.parquet}}
algorithm: {{adv_estimator: grpo, use_kl_in_reward: false}}
actor_rollout_ref:
  model: {{path: Qwen/Qwen2.5-7B}}
  actor:
    {{ppo_mini_batch_size: {mini}, ppo_epochs: 1, use_kl_loss: true, kl_loss_coef: 0.001, entropy_coeff: 0.0,
      optim: {{lr: 1.0e-6}}}}
  rollout: {{n: {n}, val_kwargs: {{n: 4, temperature: 0.6}}}}
"""


def every(interval: int, value: float) -> Callable[[int], float | None]:
    """A value at every multiple of `interval`."""
    return lambda step: value + step / 10_000 if step % interval == 0 else None


OPENRLHF: Tags = {
    "train/reward": lambda step: 0.5,
    "train/policy_loss": lambda step: 0.1,
    "train/actor_lr": lambda step: 1e-6,
    "train/entropy_loss": lambda step: 0.25,
    "eval/eval_math_pass1": every(10, 0.5),
    "eval/eval_math_pass4": every(10, 0.75),
}


def write_events(folder: Path, steps: Iterable[int], tags: Tags, began: float = 0.0) -> None:
    """One attempt: one event file."""
    writer = EventFileWriter(str(folder), filename_suffix=f".{began:g}")
    for step in steps:
        for tag, value_at in tags.items():
            value = value_at(step)
            if value is not None:
                summary = Summary(value=[Summary.Value(tag=tag, simple_value=value)])
                writer.add_event(Event(wall_time=began + step, step=step, summary=summary))
    writer.close()


def verl_line(step: int, **more: float | None) -> str:
    """One record of veRL's file logger, with an evaluation at every tenth step."""
    data: dict[str, float | None] = {"training/global_step": step, "critic/score/mean": 0.5, "actor/entropy": 0.25}
    if step % 10 == 0:
        data |= {
            "val-core/gsm/acc/mean@4": 0.5 + step / 1000,
            "val-core/gsm/acc/best@4/mean": 0.75,
            "val-aux/gsm/acc/worst@4/mean": 0.125,
            "val-aux/gsm/reward/mean@4": 0.9,
        }
    return json.dumps({"step": step, "data": {**data, **more}})


def write_verl(path: Path, steps: Iterable[int], tail: str = "\n") -> Path:
    """One attempt of a veRL run."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(map(verl_line, steps)) + tail)
    return path


def write_hydra(folder: Path, n: int = 4, problems: int = 32, mini: int | None = None) -> None:
    """The configuration that veRL's Hydra saves beside a run."""
    (folder / ".hydra").mkdir(parents=True, exist_ok=True)
    (folder / ".hydra" / "config.yaml").write_text(HYDRA.format(n=n, problems=problems, mini=mini or problems))


def by_name(folder: Path) -> dict[str, RunFinding]:
    """What `doctor` says of each run."""
    return {Path(finding.name).name: finding for finding in diagnose(folder).runs}
