"""Overrides as veRL 0.9.1 composes them, and runs that cover what the backend can write."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from isocompute_sdk.specs import Data, Evaluation, Hardware, Recipe, RunSpec
from isocompute_verl import payload as own
from isocompute_verl.flags import VeRLBackend, override
from tests.backends.programs import load


def words(run: RunSpec, folder: str = "/data/runs/small", attempt: int = 1) -> list[str]:
    """The overrides that veRL's program receives."""
    written = [override(flag) for part in VeRLBackend().sections(run) for flag in part.flags]
    return load("start_training", own).arguments(written, Path(folder), run.model, attempt)


@dataclass(frozen=True)
class Composer:
    """Composition and resolution by Hydra and OmegaConf."""

    folder: Path

    def __call__(self, overrides: list[str]) -> Any:
        """The resolved configuration.

        Raises:
            hydra.errors.ConfigCompositionException: an override that veRL does not know, or cannot parse.
        """
        with initialize_config_dir(config_dir=str(self.folder), version_base=None):
            config = compose("ppo_trainer", overrides=overrides)
        OmegaConf.resolve(config)
        return config


def generated_runs(count: int, seed: int, model: str = "Qwen/Qwen2.5-7B-Instruct") -> list[RunSpec]:
    """Runs over batches, presets, algorithms, machines and options."""
    draw, runs = random.Random(seed), list[RunSpec]()
    while len(runs) < count:
        gpus_per_node, nodes, parallel = draw.choice([1, 2, 4, 8]), draw.choice([1, 1, 2]), draw.choice([1, 1, 2])
        gpus, n, problems = gpus_per_node * nodes, draw.choice([2, 3, 8, 64, 512]), draw.choice([8, 32, 48, 256, 1024])
        updates = draw.choice([1, 1, 1, 2])
        if gpus_per_node % parallel or problems % updates or (n * problems // updates) % gpus:
            continue
        recipe = Recipe.preset(
            draw.choice(["easy", "hard", "mixture"]),
            algorithm=draw.choice(["grpo", "grpo", "ppo", "cispo"]),
            kl_coef=draw.choice([0.0, 1e-3]),
            kl_in=draw.choice(["loss", "reward"]),
            kl_estimator=draw.choice(["k1", "k2", "k3"]),
            entropy_coef=draw.choice([0.0, 1e-3]),
            importance_sampling=draw.choice(["tis", "tis", "none"]),
            tis_cap=draw.choice([1.0, 2.0, 5.5]),
            loss_aggregation=draw.choice(["token-mean", "seq-mean-token-mean"]),
            warmup_steps=draw.choice([0, 1, 10]),
            updates_per_batch=updates,
            max_response_tokens=draw.choice([1024, 8192, 32768]),
        )
        runs.append(
            RunSpec(
                run_id=f"n{n}-bp{problems}",
                model=model,
                data=Data(train="train.jsonl", validation="validation.jsonl", reward="reward.py"),
                recipe=recipe,
                group_size=n,
                problems_per_batch=problems,
                update_steps=draw.choice([11, 147, 2000]),
                seed=draw.randrange(2**31),
                evaluation=Evaluation(
                    every_steps=draw.choice([1, 10]), samples=draw.choice([1, 4]), temperature=draw.choice([0.0, 0.6])
                ),
                hardware=Hardware(gpus=gpus),
                options={"nodes": nodes, "tensor_parallel": parallel, "tensorboard": draw.random() < 0.5},
            )
        )
    return runs
