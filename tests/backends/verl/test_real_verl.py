"""veRL's own checks of every generated run, and its own loggers read back, in an environment that has veRL.

scripts/make_verl_environment.sh makes one; ISOCOMPUTE_VERL_PYTHON names its interpreter.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from isocompute_sdk.metrics import avg_at_k, best_at_k, worst_at_k
from isocompute_sdk.records import RunSet
from isocompute_sdk.run_folders.progress import Progress
from isocompute_sdk.specs import Evaluation, RunSpec
from isocompute_verl import VeRLBackend
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
    answers = ask(task="validate", overrides=[words(run) for run in runs])
    assert [(run.recipe.algorithm, answer) for run, answer in zip(runs, answers, strict=True) if answer] == []


def test_verls_own_checks_refuse_what_composition_alone_lets_pass(ask: Ask, model: str) -> None:
    (run,) = generated_runs(1, 0, model)
    wrong = ["actor_rollout_ref.actor.optim.lr_scheduler_type=linear", "actor_rollout_ref.actor.loss_agg_mode=mean"]
    wrong += ["actor_rollout_ref.actor.policy_loss.loss_mode=nonsense"]
    answers = ask(task="validate", overrides=[[*words(run), override] for override in wrong])
    assert all(answers), answers


def test_what_verls_own_loggers_write_is_read_back_exactly(
    ask: Ask, make_run: Callable[..., RunSpec], tmp_path: Path
) -> None:
    run = make_run(evaluation=Evaluation(samples=4))
    folder = tmp_path / "run"
    (folder / "logs").mkdir(parents=True)
    (folder / "request.json").write_text(VeRLBackend().documents(run)["request.json"])
    rng = np.random.default_rng(0)
    rewards = {step: rng.integers(0, 2, (30, 4)).astype(float) for step in (0, 10, 20)}
    # The second start goes on from step 10 and evaluates it again.
    for attempt, steps in ((1, (0, 10)), (2, (10, 20))):
        evaluations = [{"step": step, "rewards": rewards[step].tolist()} for step in steps]
        dumps, console = str(folder / "validation" / str(attempt)), str(folder / "console.log")
        log = str(folder / "logs" / f"attempt-{attempt}.jsonl")
        ask(task="log", log=log, console=console, dumps=dumps, evaluations=evaluations)
    logged = json.loads((folder / "logs" / "attempt-1.jsonl").read_text().splitlines()[0])["data"]
    runs = VeRLBackend().read_records(folder)
    for step, exact in rewards.items():
        for name, expected in (("avg", exact.mean()), ("best", best_at_k(exact, 4)), ("worst", worst_at_k(exact, 4))):
            (series,) = runs.series(f"{name}@4", "validation")
            (value,) = series.value_T[series.step_T == step]
            assert value == pytest.approx(expected, abs=1e-12), (name, step)
    progress = VeRLBackend().progress(folder)
    assert progress == Progress(20, metrics={"avg@4": pytest.approx(rewards[20].mean())}, train_reward=0.25)
    # veRL bootstraps with replacement: its value is another one.
    assert logged["val-core/validation/acc/mean@4"] == pytest.approx(rewards[0].mean())
    assert logged["val-core/validation/acc/best@4/mean"] < best_at_k(rewards[0], 4) - 0.01
    assert runs.series("train_reward", "train")[0].value_T.tolist() == [0.25, 0.25, 0.25]
    assert "entropy" not in runs.metrics


def test_what_verls_file_logger_empties_comes_back_from_its_console_and_dumps(ask: Ask, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rewards = {step: rng.integers(0, 2, (30, 4)).astype(float) for step in range(7)}
    # Two starts with the default name of the log: the second, which goes on from step 3, empties it.
    for steps, score in (((0, 1, 2, 3, 4, 5), 0.25), ((3, 4, 5, 6), 0.75)):
        if score == 0.75:
            rewards |= {step: rng.integers(0, 2, (30, 4)).astype(float) for step in steps}
        evaluations = [{"step": s, "rewards": rewards[s].tolist(), "score": score + s / 100} for s in steps]
        evaluations[0]["score"] = None
        log, console, dumps = (str(tmp_path / name) for name in ("exp.jsonl", "console.log", "val_dumps"))
        ask(task="log", log=log, console=console, dumps=dumps, evaluations=evaluations)
    assert '"step":0' not in (tmp_path / "exp.jsonl").read_text()
    runs = RunSet.read(tmp_path, n=4, bp=2)
    (info,) = runs.runs()
    assert (info.rollouts, info.rollouts_spent) == (6 * 8, 8 * 8)
    for name, exact in {"avg": avg_at_k, "best": best_at_k, "worst": worst_at_k}.items():
        (series,) = runs.series(f"{name}@4", "validation")
        found = dict(zip(series.step_T.tolist(), series.value_T.tolist(), strict=True))
        assert found == pytest.approx({step: exact(values, 4) for step, values in rewards.items()})
    (note,) = [note for note in runs.notes if note.code == "attempts-recovered"]
    assert [(a["first"], a["last"]) for a in note.data["attempts"]] == [(0, 5)]
