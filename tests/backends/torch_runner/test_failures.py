"""What goes wrong is said, ends with its own exit status, and costs nothing that was measured."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from isocompute_torch.train import main
from tests.backends.torch_runner.conftest import at_line

Start = Callable[..., tuple[int, str]]
Records = Callable[..., list[dict[str, Any]]]


def the_end(records: Records, folder: Path) -> dict[str, Any]:
    last = records(folder)[-1]
    assert last["kind"] == "end"
    assert last["status"] == "failed"
    return last


def test_a_missing_model(prepared: Callable[..., Path], start: Start, records: Records) -> None:
    folder = prepared(model="/nowhere/model")
    status, output = start(folder)
    assert status == 2
    assert "'/nowhere/model'" in output
    assert "Traceback" not in output
    assert "'/nowhere/model'" in the_end(records, folder)["message"]


def test_a_model_with_missing_weights(
    prepared: Callable[..., Path], start: Start, records: Records, model_folder: Callable[[str], Path], tmp_path: Path
) -> None:
    from safetensors.torch import load_file, save_file

    broken = tmp_path / "broken"
    shutil.copytree(model_folder("qwen2"), broken)
    tensors = load_file(broken / "model.safetensors")
    tensors.pop("model.layers.1.mlp.up_proj.weight")
    save_file(tensors, broken / "model.safetensors", metadata={"format": "pt"})
    status, output = start(prepared(model=str(broken)))
    assert status == 2
    assert "model.layers.1.mlp.up_proj.weight" in output


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ({"train": "absent.jsonl"}, "'absent.jsonl'"),
        ({"reward": "absent.py"}, "'absent.py'"),
        ({"reward": "reward.py:other"}, "'other'"),
        ({"reward": "no_such_module:score"}, "'no_such_module'"),
    ],
)
def test_missing_data(
    prepared: Callable[..., Path], start: Start, records: Records, data: dict[str, str], says: str
) -> None:
    named = {"train": "train.jsonl", "validation": "validation.jsonl", "reward": "reward.py", **data}
    folder = prepared(data=named)
    status, output = start(folder)
    assert status == 2
    assert says in output
    assert "Traceback" not in output
    assert says in the_end(records, folder)["message"]


def test_a_reward_that_raises_later_stops_the_run_and_keeps_what_was_measured(
    prepared: Callable[..., Path], start: Start, records: Records
) -> None:
    counted = "import pathlib\ncount = pathlib.Path('calls')\n"
    body = (
        "def reward(prompt, response, answer):\n"
        "    n = len(count.read_text()) if count.exists() else 0\n"
        "    count.write_text('x' * (n + 1))\n"
        "    if n > 80:\n        raise KeyError('broken grader')\n"
        "    return 1.0\n"
    )
    good = Path("reward.py").read_text()
    Path("reward.py").write_text(counted + body)
    folder = prepared()
    status, output = start(folder)
    assert status == 1
    assert "KeyError: 'broken grader' (reward.py:7)" in output
    assert "Traceback" not in output
    kinds = [record["kind"] for record in records(folder)]
    assert kinds[:3] == ["run", "evaluation", "evaluation"]
    assert kinds.count("step") >= 1
    assert "KeyError: 'broken grader' (reward.py:7)" in the_end(records, folder)["message"]
    # A corrected file goes on where the other failed.
    Path("reward.py").write_text(good)
    status, output = start(folder)
    assert status == 0
    assert "attempt 1 failed" in output
    assert records(folder, "end")[-1]["status"] == "finished"


def test_a_few_failing_rewards_are_counted_and_left_out(
    prepared: Callable[..., Path], start: Start, records: Records
) -> None:
    Path("reward.py").write_text(
        "import random\n"
        "def reward(prompt, response, answer):\n"
        "    if random.random() < 0.06:\n        raise ValueError('unlucky')\n"
        "    return 1.0 if len(response) % 2 else 0.5\n"
    )
    folder = prepared()
    status, output = start(folder)
    assert status == 0
    steps = records(folder, "step")
    failed = [record["metrics"]["reward_errors"] for record in steps]
    assert sum(failed) > 0
    # A failure counted as 0 would pull the mean below the smallest reward there is in a batch of one value.
    assert all(record["metrics"]["train_reward"] >= 0.5 for record in steps)
    assert "ValueError: unlucky" in output
    evaluations = records(folder, "evaluation")
    assert any(record["reward_errors"] for record in evaluations)
    for record in evaluations:
        assert sum(record["sample_counts"]) + record["reward_errors"] == record["samples"] * len(record["pass_counts"])


def test_a_loss_that_is_not_finite(prepared: Callable[..., Path], start: Start, records: Records) -> None:
    folder = prepared(recipe={"learning_rate_anchor": 1e15})
    status, output = start(folder)
    assert status == 1
    assert "Traceback" not in output
    assert len(records(folder, "evaluation")) >= 2
    assert the_end(records, folder)["message"] in output


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path | None]:
    """A file system of its own with little room; None where it may not be mounted."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=600k", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        yield None
        return
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk(
    prepared: Callable[..., Path], start: Start, records: Records, small_disk: Path | None, tmp_path: Path
) -> None:
    """The checkpoint does not fit; the record of the failure still does."""

    def little_room() -> None:
        if small_disk is None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))

    source = prepared(update_steps=300, options={"save_every_steps": 3})
    folder = source if small_disk is None else small_disk / "run"
    if small_disk is not None:
        shutil.copytree(source, folder)
        filler = small_disk / "filler"
        filler.write_bytes(b"x" * 420_000)
    status, output = start(folder, little_room)
    assert status == 1
    assert "No space left" in output or "File too large" in output
    assert "Traceback" not in output
    assert the_end(records, folder)["message"] in output
    measured = records(folder, "step")
    assert [record["step"] for record in measured] == list(range(1, len(measured) + 1))
    assert len(measured) >= 3


def test_interrupted_from_the_keyboard_it_can_go_on(
    prepared: Callable[..., Path], start: Start, fork_run: Any, records: Records
) -> None:
    folder = prepared()
    started = fork_run(folder, at_line(folder, 6, lambda: os.kill(os.getpid(), signal.SIGINT)))
    assert started.wait() == 130
    assert "Traceback" not in started.output.read_text()
    assert records(folder, "end") == []
    assert start(folder)[0] == 0
    assert len(records(folder, "step")) == 7


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"kind": "other"}, "'other'"),
        ({"schema_version": 9}, "schema_version: received 9"),
        ({"group_size": 1}, "group_size"),
        ({"options": {"sampling_batsh": 4}}, "sampling_batsh"),
    ],
)
def test_a_run_file_that_cannot_be_used(
    prepared: Callable[..., Path], capsys: pytest.CaptureFixture[str], change: dict[str, Any], says: str
) -> None:
    folder = prepared()
    document = json.loads((folder / ".run.json.new").read_text())
    (folder / ".run.json.new").write_text(json.dumps({**document, **change}))
    assert main([str(folder)]) == 2
    assert says in capsys.readouterr().err
    assert not (folder / "metrics.jsonl").exists()
