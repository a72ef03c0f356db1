"""What a script does before OpenRLHF trains, and a whole run of it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from isocompute_openrlhf import payload
from isocompute_sdk.run_folders.locks import is_running
from isocompute_sdk.specs import RunSpec
from tests.backends.openrlhf.inputs import read, start
from tests.backends.programs import load


def summary(work: Path) -> dict[str, Any]:
    (path,) = work.glob("out*/tiny/model/summary.json")
    return json.loads(path.read_text())


def test_a_run_makes_exactly_m_steps_of_n_rollouts_a_problem(small: RunSpec, site: Path, work: Path) -> None:
    finished = start(small, site, work)
    assert finished.returncode == 0, finished.stderr
    result = summary(work)
    assert (result["steps"], result["rows"]) == (7, 21)
    assert result["rewards"] == [[1.0, 0.0] * 3] * 7
    assert not (work / "x").exists()


def test_a_working_folder_that_openrlhf_would_misread_stops_the_script(
    small: RunSpec, site: Path, work: Path, tmp_path: Path
) -> None:
    odd = work.rename(tmp_path / "a,b")
    finished = start(small, site, odd)
    assert finished.returncode == 2
    assert "a,b" in finished.stderr


Prepare = Callable[..., Path]
claim_folder, run_files = load("claim_folder"), load("run_files")


def test_the_reward_target_may_name_a_function(tmp_path: Path) -> None:
    for name in ("r.py", "odd:name.py", "c:d"):
        (tmp_path / name).write_text("")
    for target, found in {
        "r.py": ("r.py", None),
        "r.py:mine": ("r.py", "mine"),
        "odd:name.py": ("odd:name.py", None),
        "c:d": ("c:d", None),
    }.items():
        assert run_files.split_target(target, tmp_path) == found


def test_a_folder_in_which_a_process_trains_cannot_be_claimed(
    prepare: Prepare, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = prepare()
    monkeypatch.setattr(run_files, "LOCK_PATIENCE_SECONDS", 0.1)
    monkeypatch.setattr(claim_folder, "hold", run_files.hold)
    lock = run_files.hold(folder)
    with pytest.raises(run_files.InputError, match=str(folder)):
        prepare()
    assert run_files.attempt_of(folder) == 1
    os.close(lock)
    prepare()
    assert run_files.attempt_of(folder) == 2


problem_rows, prepare_rows = load("problem_rows"), load("prepare_rows", payload)


def test_a_folder_is_seen_to_be_active_while_its_rows_are_made(prepare: Prepare) -> None:
    folder = prepare()
    (folder / "started.json").unlink()
    active: list[bool] = []

    def row(problem: Any, split: str, request: dict[str, Any]) -> dict[str, Any]:
        active.append(is_running(folder))
        return prepare_rows.row(problem, split, request)

    assert problem_rows.main([str(folder)], row) == 0
    assert active
    assert all(active)


def test_the_seed_fixes_the_order() -> None:
    first = list(problem_rows.epoch_orders(50, 100, 3))
    assert first == list(problem_rows.epoch_orders(50, 100, 3))
    assert first != list(problem_rows.epoch_orders(50, 100, 4))
    assert first[:50] != first[50:]
    assert list(problem_rows.epoch_orders(6, 6, 0)) == [2, 3, 1, 0, 5, 4]  # on Python 3.10 to 3.13 alike


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("metrics.jsonl", '{"kind": "step", "step": 1}'),
        ("logs/attempt-1.jsonl", '{"step": 12, "data": {}}'),
        ("console.1.log", "Global step 3: {'reward': 0.5}"),
        ("checkpoints/global_step_2/model.pt", ""),
        ("model/config.json", ""),
    ],
)
def test_a_folder_is_another_runs_from_its_first_update_on(prepare: Prepare, name: str, text: str) -> None:
    folder = prepare(nodes=1)
    (folder / "console.1.log").write_text("Traceback\n")
    (folder / "metrics.jsonl").write_text('{"kind": "evaluation", "step": 0}\n')
    prepare(nodes=2)
    assert json.loads((folder / run_files.STARTED).read_text())["request"]["nodes"] == 2
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)
    prepare(nodes=2)
    with pytest.raises(claim_folder.InputError, match=r"nodes.*--output-dir"):
        prepare(nodes=1)
    assert json.loads((folder / "request.json").read_text())["nodes"] == 2


@pytest.mark.parametrize("answer", ["text", 7, 1.5, None, True, ["a", 1], {"value": "x", "unit": "m"}, "ü\n\"'"])
def test_answers_of_any_json_type_arrive_as_they_are(prepare: Prepare, answer: Any) -> None:
    folder = prepare([{"prompt": "a", "answer": answer}])
    assert json.loads(read(folder / "train_rows.jsonl")[0]["label"])["answer"] == answer


def test_a_bad_problem_file_and_a_prompt_that_openrlhf_would_change_are_refused(prepare: Prepare) -> None:
    with pytest.raises(problem_rows.ProblemFileError, match=r"train\.jsonl:2"):
        prepare('{"prompt": "a", "answer": "b"}\n{"prompt": "a"}\n')
    with pytest.raises(problem_rows.InputError, match="<image>"):
        prepare('{"prompt": "see <image>", "answer": "b"}\n')


@pytest.mark.parametrize("problem", ["p0", "v0"])
def test_a_reward_that_fails_on_every_response_to_a_problem_is_refused(prepare: Prepare, problem: str) -> None:
    fails = f"    if {problem!r} in prompt: raise ValueError('odd')\n    return 0.0\n"
    with pytest.raises(problem_rows.reward_calls.RewardFileError, match=f"'{problem}'"):
        prepare(reward="def reward(prompt, response, answer):\n" + fails)


@pytest.mark.parametrize("planned", [None, 5, 6, 7])
def test_another_number_of_problems_than_planned_is_a_warning(
    prepare: Prepare, capsys: pytest.CaptureFixture[str], planned: int | None
) -> None:
    prepare(data={"n_problems": planned})
    warned = [line for line in capsys.readouterr().err.splitlines() if line.startswith("prepare_rows: ")]
    assert len(warned) == (planned in (5, 7))


supervise = load("supervise", payload)


@pytest.fixture
def checkpoints(tmp_path: Path) -> Path:
    """The checkpoint folder of a run whose third start this is."""
    (tmp_path / "attempts.jsonl").write_text("{}\n" * 3)
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    return folder


def save(folder: Path, tag: str, *, complete: bool = True, latest: bool = True) -> None:
    """A checkpoint as OpenRLHF leaves it: `latest` by DeepSpeed, then metric.json as the last step."""
    (folder / tag).mkdir(parents=True)
    (folder / tag / "mp_rank_00_model_states.pt").write_bytes(b"")
    if latest:
        (folder / "latest").write_text(tag)
    if complete:
        (folder / tag / "metric.json").write_text("{}")


def latest(folder: Path) -> str:
    return (folder / "latest").read_text()


def test_a_half_written_checkpoint_is_passed_over(checkpoints: Path) -> None:
    save(checkpoints / "_actor", "global_step9")
    save(checkpoints / "_actor", "global_step10", complete=False)
    supervise.resume(checkpoints.parent, ["_actor"])
    assert latest(checkpoints / "_actor") == "global_step9"


def test_actor_and_critic_go_on_from_the_same_step(checkpoints: Path) -> None:
    for tag in ("global_step10", "global_step20"):
        save(checkpoints / "_actor", tag)
    save(checkpoints / "_critic", "global_step10")
    supervise.resume(checkpoints.parent, ["_actor", "_critic"])
    assert latest(checkpoints / "_actor") == latest(checkpoints / "_critic") == "global_step10"


def test_a_folder_without_a_complete_checkpoint_is_moved_aside(checkpoints: Path) -> None:
    for _ in range(2):
        save(checkpoints / "_actor", "global_step10", complete=False, latest=False)
        supervise.resume(checkpoints.parent, ["_actor", "_critic"])
        assert not (checkpoints / "_actor").exists()
    assert {path.name for path in checkpoints.iterdir()} == {"_actor.incomplete1", "_actor.incomplete2"}


def test_every_start_notes_the_step_it_goes_on_from(checkpoints: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save(checkpoints / "_actor", "global_step20")
    supervise.resume(checkpoints.parent, ["_actor"])
    assert "20" in capsys.readouterr().err
    assert read(checkpoints.parent / "resumed.jsonl") == [{"attempt": 3, "step": 20}]
