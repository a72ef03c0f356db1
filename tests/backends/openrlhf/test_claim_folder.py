"""One run per folder: what is checked before any data is read."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.backends.programs import load

Prepare = Callable[..., Path]
claim_folder, run_files = load("claim_folder"), load("run_files")


def test_the_reward_target_may_name_a_function(tmp_path: Path) -> None:
    for name in ("r.py", "odd:name.py", "c:d"):
        (tmp_path / name).write_text("")
    assert claim_folder.reward_target(tmp_path, "r.py") == (tmp_path / "r.py", None)
    assert claim_folder.reward_target(tmp_path, "r.py:mine") == (tmp_path / "r.py", "mine")
    assert claim_folder.reward_target(tmp_path, "odd:name.py") == (tmp_path / "odd:name.py", None)
    assert claim_folder.reward_target(tmp_path, "c:d") == (tmp_path / "c:d", None)


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
