"""Runs in an environment that has veRL 0.9.1; reads one JSON request from stdin and writes one JSON answer.

Each list of overrides is composed, checked by veRL's own `validate_config` and turned into veRL's own dataclasses; the
answer is the error of each, or null.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

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


def main() -> None:
    request = json.load(sys.stdin)
    Path(request["answer"]).write_text(json.dumps(validate(request)))


if __name__ == "__main__":
    main()
