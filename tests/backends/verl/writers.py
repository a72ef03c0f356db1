"""What a start of veRL leaves on disk and on the console, by functions of its wheel that need nothing but numpy."""

from __future__ import annotations

import ast
import json
import math
import numbers
import os
import pprint
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from isocompute_verl.flags import VERSION
from tests.backends.wheels import cached_wheel

PREFIX = "\x1b[36m(TaskRunner pid=4711)\x1b[0m "


def _from_wheel(module: str, name: str, **known: Any) -> Callable[..., Any]:
    with zipfile.ZipFile(cached_wheel("verl", VERSION)) as wheel:
        tree = ast.parse(wheel.read(module).decode())
    (function,) = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == name]
    function.decorator_list = []
    exec(compile(ast.Module([function], type_ignores=[]), module, "exec"), known)
    return known[name]


class Writers:
    """veRL's line on the console and its dump writer; its file log in the form that orjson gives it."""

    def __init__(self) -> None:
        self.line = _from_wheel(
            "verl/utils/logger/aggregate_logger.py", "concat_dict_to_str", numbers=numbers, pprint=pprint
        )
        self.dump = _from_wheel(
            "verl/trainer/ppo/v1/trainer_base.py", "_write_generations", json=json, os=os, np=np, print=str
        )


class Start:
    """One start of a run: its file log is emptied, its console goes on in its file, dumps are overwritten."""

    def __init__(self, writers: Writers, rng: np.random.Generator, log: Path, console: Path | None, dumps: Path | None):
        self.writers, self.rng, self.log, self.console, self.dumps = writers, rng, log, console, dumps
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text("")

    def run(self, begin: int, updates: int, every: int = 10, samples: int = 4) -> dict[int, float]:
        """Validate where it goes on, then make updates; returns step -> train reward."""
        found: dict[int, float] = {}
        for step in range(begin, begin + updates + 1):
            data: dict[str, Any] = {"training/global_step": step}
            if step > begin:
                found[step] = float(self.rng.random())
                data |= {"critic/score/mean": np.float64(found[step]), "actor/entropy": float(self.rng.random())}
                data |= {"actor/lr": 1e-06, "timing_s/step": float(self.rng.random()), "actor/kl_loss": math.nan}
                self._dump("rollout_data", step, np.full((2, samples), found[step]))
            if step % every == 0 or step == begin:
                rewards = self.rng.integers(0, 2, (6, samples)).astype(float)
                data |= {f"val-core/gsm/acc/mean@{samples}": float(rewards.mean())}
                data |= {f"val-core/gsm/acc/best@{samples}/mean": 0.111}
                self._dump("validation_data", step, rewards)
            self._write(step, data)
        return found

    def _write(self, step: int, data: dict[str, Any]) -> None:
        plain = {key: None if isinstance(value, float) and math.isnan(value) else value for key, value in data.items()}
        with self.log.open("a") as file:
            file.write(json.dumps({"step": step, "data": plain}) + "\n")
        if self.console is not None:
            with self.console.open("a") as file:
                file.write(f"{PREFIX}INFO:2026-11-21 vllm step:{step}: generating\n")
                file.write(f"{PREFIX}{self.writers.line(data, step)}\n")

    def _dump(self, kind: str, step: int, rewards_PN: np.ndarray) -> None:
        if self.dumps is None:
            return
        scores = rewards_PN.ravel().tolist()
        samples = rewards_PN.shape[1]
        keys = [f"problem_{i // samples}_{i % samples}_0" for i in range(len(scores))]
        count = len(scores)
        extra = {"acc": scores, "uid": keys} if kind == "validation_data" else {"uid": keys}
        self.writers.dump(["?"] * count, ["\u2028"] * count, ["1"] * count, scores, extra, self.dumps / kind, step)
