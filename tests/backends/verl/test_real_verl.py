"""veRL's own checks of every generated run, in an environment that has veRL.

scripts/make_verl_environment.sh makes one; ISOCOMPUTE_VERL_PYTHON names its interpreter.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.backends.verl.composing import generated_runs, words

pytestmark = pytest.mark.slow

Ask = Callable[..., Any]


@pytest.fixture
def ask(tmp_path: Path) -> Ask:
    """Send one request to real_verl.py in veRL's environment."""
    interpreter = os.environ.get("ISOCOMPUTE_VERL_PYTHON")
    assert interpreter, "set ISOCOMPUTE_VERL_PYTHON; scripts/make_verl_environment.sh makes an environment"

    def run(**wanted: Any) -> Any:
        answer = tmp_path / "answer.json"
        text = json.dumps({**wanted, "answer": str(answer)})
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
        program = [interpreter, str(Path(__file__).with_name("real_verl.py"))]
        done = subprocess.run(program, input=text, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-3000:]
        return json.loads(answer.read_text())

    return run


@pytest.fixture
def model(tmp_path: Path) -> str:
    """A model folder as far as veRL's checks look at it: PPO's value model is opened."""
    folder = tmp_path / "model"
    folder.mkdir()
    config = {"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "hidden_size": 64, "vocab_size": 32}
    config |= {"num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2, "intermediate_size": 64}
    (folder / "config.json").write_text(json.dumps(config))
    return str(folder)


def test_verls_own_checks_pass_for_every_generated_run(ask: Ask, model: str) -> None:
    runs = generated_runs(120, 1, model)
    answers = ask(overrides=[words(run) for run in runs])
    assert [(run.recipe.algorithm, answer) for run, answer in zip(runs, answers, strict=True) if answer] == []


def test_verls_own_checks_refuse_what_composition_alone_lets_pass(ask: Ask, model: str) -> None:
    (run,) = generated_runs(1, 0, model)
    wrong = ["actor_rollout_ref.actor.optim.lr_scheduler_type=linear", "actor_rollout_ref.actor.loss_agg_mode=mean"]
    wrong += ["actor_rollout_ref.actor.policy_loss.loss_mode=nonsense"]
    answers = ask(overrides=[[*words(run), override] for override in wrong])
    assert all(answers), answers
