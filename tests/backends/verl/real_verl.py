"""Runs in an environment that has veRL 0.9.1; reads one JSON request from stdin and writes one JSON answer.

`validate`: each list of overrides is composed, checked by veRL's own `validate_config` and turned into veRL's own
dataclasses; the answer is the error of each, or null. `log`: veRL's FileLogger, LocalLogger (into a file that is
appended to) and dump writer write the given evaluations, with metrics from veRL's own `process_validation_metrics`.
"""

from __future__ import annotations

import ast
import contextlib
import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import verl


def validate(request: dict[str, Any]) -> list[str | None]:
    from hydra import compose, initialize_config_dir
    from omegaconf import OmegaConf
    from verl.trainer.ppo.core_algos import get_adv_estimator_fn, get_policy_loss_fn
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.utils.config import omega_conf_to_dataclass, validate_config

    answers: list[str | None] = []
    folder = str(Path(str(verl.__file__)).parent / "trainer" / "config")
    for overrides in request["overrides"]:
        try:
            with initialize_config_dir(config_dir=folder, version_base=None):
                config = compose("ppo_trainer", overrides=overrides)
            OmegaConf.resolve(config)
            validate_config(config, need_reference_policy(config), need_critic(config))
            for part in (config.actor_rollout_ref.actor, config.actor_rollout_ref.rollout, config.algorithm):
                omega_conf_to_dataclass(part)
            get_policy_loss_fn(config.actor_rollout_ref.actor.policy_loss.loss_mode)
            if config.algorithm.adv_estimator != "gae":
                get_adv_estimator_fn(config.algorithm.adv_estimator)
            answers.append(None)
        except Exception as error:
            answers.append(f"{type(error).__name__}: {error}")
    return answers


def log(request: dict[str, Any]) -> None:
    from verl.trainer.ppo.metric_utils import process_validation_metrics
    from verl.utils.logger import LocalLogger
    from verl.utils.tracking import FileLogger

    os.environ["VERL_FILE_LOGGER_PATH"] = request["log"]
    logger, local = FileLogger("isocompute", "run"), LocalLogger()
    for evaluation in request["evaluations"]:
        rewards = np.array(evaluation["rewards"])
        problems, samples = rewards.shape
        uids = [f"p{i}" for i in range(problems) for _ in range(samples)]
        scores = rewards.ravel().tolist()
        found = process_validation_metrics(["validation"] * len(uids), uids, {"reward": scores, "acc": scores})
        data: dict[str, Any] = {"training/global_step": evaluation["step"]}
        for source, variables in found.items():
            for variable, metrics in variables.items():
                for name, value in metrics.items():
                    core = variable == "acc" and f"@{samples}" in name
                    data[f"{'val-core' if core else 'val-aux'}/{source}/{variable}/{name}"] = value
        score = evaluation.get("score", 0.25)
        if score is not None:  # None where a start evaluates what it goes on from, before any update
            data |= {"critic/score/mean": np.float32(score), "actor/entropy": float("nan"), "response_length/mean": 7.5}
        logger.log(data, evaluation["step"])
        with open(request["console"], "a") as console, contextlib.redirect_stdout(console):
            local.log(data, evaluation["step"])
        dump(request["dumps"], evaluation["step"], uids, scores, samples)
    logger.finish()


def dump(folder: str, step: int, uids: list[str], scores: list[float], samples: int) -> None:
    """By veRL's own writer, taken out of its module, whose imports need vLLM and more."""
    path = Path(str(verl.__file__)).parent / "trainer" / "ppo" / "v1" / "trainer_base.py"
    functions = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)]
    (writer,) = [node for node in functions if node.name == "_write_generations"]
    writer.decorator_list = []
    namespace: dict[str, Any] = {"json": json, "os": os, "np": np}
    exec(compile(ast.Module([writer], type_ignores=[]), str(path), "exec"), namespace)
    count = len(uids)
    keys = [f"{uid}_{i % samples}_0" for i, uid in enumerate(uids)]
    extra = {"reward": scores, "acc": scores, "uid": keys}
    namespace["_write_generations"](["?"] * count, ["\u2028"] * count, ["1"] * count, scores, extra, folder, step)


def main() -> None:
    request = json.load(sys.stdin)
    answer = validate(request) if request["task"] == "validate" else log(request)
    Path(request["answer"]).write_text(json.dumps(answer))


if __name__ == "__main__":
    main()
