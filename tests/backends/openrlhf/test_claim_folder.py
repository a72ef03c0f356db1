"""One run per folder: what is checked before any data is read."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from isocompute_openrlhf.flags import MISREAD_IN_PATHS
from isocompute_sdk.run_folders.starts import START, read_starts
from tests.backends.openrlhf.inputs import REWARD, problems, read
from tests.backends.programs import load

Prepare = Callable[..., Path]
claim_folder, run_files = load("claim_folder"), load("run_files")


@pytest.mark.parametrize("name", ["train", "validation", "reward"])
def test_a_missing_input_is_named(prepare: Prepare, name: str) -> None:
    with pytest.raises(claim_folder.InputError, match="'absent'"):
        prepare(data={name: "absent"})


def test_another_openrlhf_is_refused(prepare: Prepare, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claim_folder.metadata, "version", lambda name: "0.11.0")
    with pytest.raises(claim_folder.InputError, match=r"0\.11\.0.*0\.11\.2"):
        prepare()


@pytest.mark.parametrize("name", ["a,b", "a@b", "a*", "a[1]", "x::y"])
def test_a_folder_that_openrlhf_would_misread_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(claim_folder.InputError, match="OpenRLHF"):
        claim_folder.check_run_folder(tmp_path / name, "OpenRLHF", MISREAD_IN_PATHS)
    claim_folder.check_run_folder(tmp_path / "it's $(fine) {x} ü", "OpenRLHF", MISREAD_IN_PATHS)


def test_the_reward_target_may_name_a_function(tmp_path: Path) -> None:
    for name in ("r.py", "odd:name.py", "c:d"):
        (tmp_path / name).write_text("")
    assert claim_folder.reward_target(tmp_path, "r.py") == (tmp_path / "r.py", None)
    assert claim_folder.reward_target(tmp_path, "r.py:mine") == (tmp_path / "r.py", "mine")
    assert claim_folder.reward_target(tmp_path, "odd:name.py") == (tmp_path / "odd:name.py", None)
    assert claim_folder.reward_target(tmp_path, "c:d") == (tmp_path / "c:d", None)


def test_every_start_is_counted(prepare: Prepare) -> None:
    began = time.time()
    for attempt in (1, 2):
        folder = prepare()
        assert run_files.attempt_of(folder) == attempt
    starts = read_starts(folder / "attempts.jsonl")
    assert [one.attempt for one in starts] == [1, 2]
    assert began - 1 <= starts[0].started <= starts[1].started <= time.time()
    # As declared, without an upgrade.
    assert [START.from_dict(line) for line in read(folder / "attempts.jsonl")] == starts


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


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"seed": 1}, "seed .0 .* 1 "),
        ({"update_steps": 6}, "update_steps .5 .* 6 "),
        ({"data": {"answer_key": "answer"}}, r"data\.answer_key .None .*'answer' "),
        ({"train": problems(7)}, " train"),
        ({"reward": REWARD + "#"}, " reward"),
    ],
)
def test_another_run_in_the_same_folder_is_refused(prepare: Prepare, change: dict[str, Any], words: str) -> None:
    folder = prepare()
    before = (folder / "started.json").read_bytes()
    with pytest.raises(claim_folder.InputError, match=words):
        prepare(**change)
    assert (folder / "started.json").read_bytes() == before


def test_the_program_ends_with_one_line_and_a_status(prepare: Prepare, tmp_path: Path) -> None:
    folder = prepare()
    program = [sys.executable, claim_folder.__file__]
    good = subprocess.run([*program, str(folder)], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert good.returncode == 0
    (tmp_path / "train.jsonl").unlink()
    bad = subprocess.run([*program, str(folder)], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert bad.returncode == 2
    assert bad.stderr.splitlines()[-1].startswith("claim_folder: training data: there is no file 'train.jsonl'")
    assert subprocess.run(program, capture_output=True, check=False).returncode == 2
