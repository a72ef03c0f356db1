"""The command line in this process."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from isocompute_sdk.cli import main


@pytest.fixture
def in_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Callable[..., subprocess.CompletedProcess[str]]:
    """The command without a process of its own, for tests of many calls: whatever is not told as an error raises."""

    def run(*arguments: object) -> subprocess.CompletedProcess[str]:
        words = list(map(str, arguments))
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", ["isocompute", *words])
        capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capfd.readouterr()
        return subprocess.CompletedProcess(words, int(ended.value.code or 0), out, err)

    return run
