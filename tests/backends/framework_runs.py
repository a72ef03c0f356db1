"""What the tests of backends for training frameworks share: runs, changes of recipes and inputs."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from isocompute_sdk.notes import Note
from isocompute_sdk.specs import Data, Recipe, RunSpec

CHANGED: dict[str, list[Any]] = {
    "algorithm": ["ppo", "cispo"],
    "normalize_advantage": [False],
    "std_epsilon": [1e-9, 1e-7, 1e-5, 1e-4, 1e-2],
    "kl_coef": [0.0, 0.01],
    "kl_estimator": ["k1", "k2"],
    "kl_in": ["reward"],
    "entropy_coef": [0.0, 0.01],
    "zero_variance_filter_policy": [True],
    "zero_variance_filter_kl": [True],
    "zero_variance_filter_entropy": [True],
    "learning_rate_rule": ["linear", "constant"],
    "learning_rate_anchor": [2e-6],
    "learning_rate_anchor_batch": [512],
    "warmup_steps": [0, 20],
    "adam_betas": [(0.9, 0.95)],
    "weight_decay": [0.1],
    "gradient_clip": [0.5],
    "ratio_clip": [0.3],
    "importance_sampling": ["none"],
    "tis_cap": [3.0],
    "loss_aggregation": ["seq-mean-token-mean"],
    "temperature": [1.0],
    "top_p": [0.9],
    "max_response_tokens": [4096],
    "max_prompt_tokens": [512],
    "updates_per_batch": [2],
    "min_problems_per_batch": [64],
    "value_learning_rate": [2e-5],
    "gae_lambda": [0.9],
    "gae_gamma": [0.9],
    "value_clip": [0.1],
}
"""Other values of every field of a recipe that decides something (`name` and `based_on` do not)."""


def keyed(notes: Iterable[Note], *severities: str) -> dict[str, Note]:
    """Notes of these severities, or all, by code; refusals by the field that they refuse."""
    chosen = severities or ("info", "warning", "refuse")
    return {
        note.data["field"] if note.code == "unsupported" else note.code: note
        for note in notes
        if note.severity in chosen
    }


CHANGES = [(field, value) for field, values in CHANGED.items() for value in values]


def run_maker(*, preset: str | None = None, **always: Any) -> Callable[..., RunSpec]:
    """Makes runs of a usual size; `recipe` may be the fields that differ from the preset, or from the default."""
    usual = {} if preset is None else {"preset": preset}

    def make(**changes: Any) -> RunSpec:
        recipe = changes.pop("recipe", {})
        values: dict[str, Any] = {
            "run_id": "small",
            "model": "Qwen/Qwen2.5-7B-Instruct",
            "data": Data(train="train.jsonl", validation="validation.jsonl", reward="reward.py"),
            "recipe": recipe if isinstance(recipe, Recipe) else Recipe(**usual, **recipe),
            "group_size": 16,
            "problems_per_batch": 32,
            "update_steps": 100,
            "output_dir": "runs",
        }
        return RunSpec(**{**values, **always, **changes})

    return make


contract_run = run_maker(
    preset="easy",
    run_id="contract",
    model="Qwen/Qwen2.5-0.5B-Instruct",
    group_size=4,
    problems_per_batch=32,
    update_steps=50,
)
"""A run that every backend accepts."""


def write_sums(folder: Path) -> Path:
    """Five training problems, four validation problems and a reward function."""
    folder.mkdir(exist_ok=True)
    for name, count in (("train", 5), ("validation", 4)):
        rows = [{"id": f"{name[0]}{i}", "question": f"{i} + {i}?", "answer": 2 * i} for i in range(count)]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "reward.py").write_text("def reward(prompt, response, answer):\n    return response == str(answer)\n")
    return folder


class Recorder:
    """Runs scripts with programs first on PATH that note their arguments and do nothing.

    Args:
        folder: where the programs and their record lie.
        programs: their names.
    """

    def __init__(self, folder: Path, *programs: str) -> None:
        folder.mkdir(exist_ok=True)
        self.folder, self.record = folder, folder / "record"
        note = 'for a in "$@"; do printf \'%s\\0\' "$a"; done >> "$RECORD"; printf \'\\1\\0\' >> "$RECORD"'
        for name in programs or ("python3",):
            (folder / name).write_text(f"#!/bin/sh\n{note}\n")
            (folder / name).chmod(0o755)

    def __call__(self, script: str, work: Path) -> list[list[str]]:
        """The arguments of every program that the script starts in this folder."""
        self.record.unlink(missing_ok=True)
        work.mkdir(exist_ok=True)
        environment = {k: v for k, v in os.environ.items() if k != "PYTHON"}
        environment |= {"PATH": f"{self.folder}:{environment['PATH']}", "HOME": str(work), "RECORD": str(self.record)}
        done = subprocess.run(
            ["bash"], input=script.encode(), cwd=work, env=environment, capture_output=True, check=False
        )
        assert done.returncode == 0, done.stderr.decode()
        return [call.split("\0")[:-1] for call in self.record.read_bytes().decode().split("\1\0")[:-1]]
