"""How far runs of every registered backend are, from what their frameworks write while they train."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from isocompute_sdk.run_folders.progress import FURTHEST, Progress
from isocompute_sdk.run_folders.store import RunStatus, find_runs, write_spec
from isocompute_sdk.run_folders.wrapper import write_exit
from isocompute_sdk.specs import RunSpec
from isocompute_sdk.training import payload as launch_payload
from isocompute_sdk.training import registry
from isocompute_sdk.training.backend import Backend, follow
from tests.backends.framework_runs import contract_run

Line = Callable[[int, float | None, float | None], str]
"""Text of one step from its number, mean training reward and avg@4, of which either may be unknown."""
BATCH = 4 * 32


def console(step: int, reward: float | None, average: float | None) -> str:
    """As OpenRLHF prints it through Ray."""
    head = "\x1b[36m(PPOTrainer pid=7)\x1b[0m INFO ppo_trainer.py:551] \u2728"
    text = ""
    if reward is not None:
        text += f"{head} Global step {step}: {{'policy_loss': nan, 'rollout/reward_mean': {reward}}}\n"
    if average is not None:
        logged = {"eval_validation_pass1": average, "eval_validation_pass4": 0.9, "eval_probe_pass1": 0.8}
        text += f"{head} Evaluation completed in 0:00:09, global_step {step}, eval_metrics: {logged}\n"
    return text + "(LLMRayActor pid=9) Global step of nothing\n"


def file_log(step: int, reward: float | None, average: float | None) -> str:
    """As veRL's file logger writes it."""
    data: dict[str, Any] = {"actor/entropy": None}
    if reward is not None:
        data["critic/score/mean"] = reward
    if average is not None:
        data |= {"val-core/validation/acc/mean@4": average, "val-core/validation/acc/best@4/mean": 0.9}
    return json.dumps({"step": step, "data": data}) + "\n"


def journal(step: int, reward: float | None, average: float | None) -> str:
    """As the built-in runner, the programs beside TRL and the simulator write it."""
    shared = {"schema_version": 1, "run_id": "contract", "step": step, "rollouts": step * BATCH}
    records: list[dict[str, Any]] = []
    if step == 0:
        records.append({**shared, "kind": "run"})
    if reward is not None:
        records.append({**shared, "kind": "step", "metrics": {"train_reward": reward}})
    if average is not None:
        for name, value in (("validation", average), ("train_probe", 0.8)):
            records.append({**shared, "kind": "evaluation", "eval_set": name, "metrics": {"avg@4": value}})
    return "".join(json.dumps(record) + "\n" for record in records)


LOGS: dict[str, tuple[str, Line]] = {
    "openrlhf": ("console.{attempt}.log", console),
    "verl": ("logs/attempt-{attempt}.jsonl", file_log),
}
"""Backend -> its log in a run folder, and a line of it; others write metrics.jsonl."""


class Training:
    """A run folder of one backend, and what its training writes there."""

    def __init__(self, backend: Backend, folder: Path, run: RunSpec) -> None:
        self.backend, self.folder, self.run = backend, folder, run
        self.name, self.line = LOGS.get(backend.name, ("metrics.jsonl", journal))
        write_spec(folder, run)

    def write(self, text: str, attempt: int = 1) -> None:
        path = self.folder / self.name.format(attempt=attempt)
        path.parent.mkdir(exist_ok=True)
        with path.open("a") as file:
            file.write(text)

    def steps(self, numbers: Iterable[int], attempt: int = 1) -> None:
        """Updates with a reward of step / 100, and an evaluation before the first and after every fourth."""
        for step in numbers:
            average = 0.5 + step / 100 if step % 4 == 0 else None
            self.write(self.line(step, step / 100 if step else None, average), attempt)

    def progress(self) -> Progress | None:
        return follow(self.backend, self.folder).look(self.folder)

    def status(self) -> RunStatus:
        (watch,) = registry.watches([self.folder])
        return watch.status()


def training_of(name: str, top: Path) -> Training:
    return Training(registry.load(name), top / "runs" / "contract", contract_run(backend=name))


@pytest.fixture(params=registry.available())
def training(request: pytest.FixtureRequest, tmp_path: Path) -> Training:
    return training_of(request.param, tmp_path)


def test_a_run_that_has_written_nothing_is_waiting(training: Training) -> None:
    assert training.progress() is None
    status = training.status()
    assert (status.state, status.step, status.rollouts, status.headline) == ("waiting", 0, 0, None)


def test_steps_rollouts_reward_and_the_last_evaluation_are_told_while_it_trains(training: Training) -> None:
    for last in (3, 11, 49):
        (training.folder / training.name.format(attempt=1)).unlink(missing_ok=True)
        training.steps(range(last + 1))
        status = training.status()
        assert (status.state, status.step, status.rollouts) == ("stopped", last, last * BATCH)
        assert status.train_reward == pytest.approx(last / 100)
        assert status.headline == ("avg@4", pytest.approx(0.5 + last // 4 * 4 / 100))


def test_before_the_first_evaluation_the_training_reward_is_shown(training: Training) -> None:
    training.write(training.line(1, 0.25, None))
    assert training.status().headline == ("train_reward", 0.25)


def test_a_line_that_is_still_being_written_does_not_count(training: Training) -> None:
    training.steps(range(6))
    before = training.progress()
    training.write(training.line(6, 0.06, None).split("\n")[0][:-1])
    assert training.progress() == before


def test_only_the_end_of_a_long_log_is_read(training: Training) -> None:
    training.write(training.line(0, None, 0.5))
    # What a whole reading would refuse, or would take seconds for.
    training.write("{broken\n" * (FURTHEST // 4))
    training.steps(range(40, 46))
    found = training.progress()
    assert found is not None
    assert (found.step, found.train_reward, dict(found.metrics)) == (45, 0.45, {"avg@4": 0.94})


def test_what_a_resumed_run_gave_up_is_not_shown(training: Training) -> None:
    training.steps(range(11))
    if "{attempt}" in training.name:
        training.steps([7], attempt=2)
        training.write("", attempt=3)
    else:  # cut back by the program that goes on
        (training.folder / training.name).write_text("")
        training.steps(range(8))
    status = training.status()
    assert (status.step, status.rollouts, status.train_reward) == (7, 7 * BATCH, 0.07)
    assert status.headline == ("avg@4", 0.54)


def test_how_the_process_ended_is_told_beside_it(training: Training) -> None:
    training.steps(range(6))
    (training.folder / "log.txt").write_text("CUDA out of memory\n")
    write_exit(training.folder, 1, 1, stopped=False)
    status = training.status()
    assert (status.state, status.step) == ("failed", 5)
    assert "exit code 1: CUDA out of memory" in status.message
    write_exit(training.folder, 1, 0, stopped=False)
    assert training.status().state == "finished"


def test_a_run_of_a_backend_that_is_not_installed_says_so(training: Training) -> None:
    write_spec(training.folder, training.run.replace(backend="elsewhere"))
    (watch,) = registry.watches([training.folder])
    status = watch.status()
    assert (status.state, status.step) == ("waiting", 0)
    assert "no backend is registered as 'elsewhere'" in status.message


@pytest.mark.parametrize("name", ["openrlhf", "trl", "verl"])
def test_isocompute_status_shows_a_script_that_was_started_by_hand(
    isocompute: Callable[..., subprocess.CompletedProcess[str]], name: str, tmp_path: Path
) -> None:
    training = training_of(name, tmp_path)
    # The script's own request is all that says what the run is; other tools write files of that name too.
    (training.folder / "spec.json").unlink()
    request = {"kind": f"{name}-run", "framework": name, "run": training.run.model_dump(mode="json")}
    (training.folder / "request.json").write_text(json.dumps(request))
    (tmp_path / "runs" / "other").mkdir()
    (tmp_path / "runs" / "other" / "request.json").write_text('{"kind": "pizza"}')
    training.steps(range(13))
    assert find_runs(tmp_path) == (training.folder,)
    with holding(training.folder):
        shown = isocompute("status", tmp_path).stdout
    assert " ".join(shown.split()) == ("contract n = 4 B_p = 32 step 12 of 50 ( 24%) C = 1,536 avg@4 0.620 running")


def test_verl_is_done_with_its_last_step(tmp_path: Path) -> None:
    training = training_of("verl", tmp_path)
    (training.folder / "request.json").write_text(json.dumps({"run": training.run.model_dump(mode="json")}))
    training.steps(range(50))
    assert training.status().state == "stopped"
    training.steps([50])
    assert training.status().state == "finished"


@contextmanager
def holding(folder: Path) -> Iterator[None]:
    """A process that keeps the folder as the programs of a script do."""
    payload = str(Path(launch_payload.__file__).parent)
    code = f"import sys; sys.path.insert(0, {payload!r}); import run_files, pathlib; "
    code += "run_files.hold(pathlib.Path(sys.argv[1])); print('held', flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield
        process.communicate("\n")
