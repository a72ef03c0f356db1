"""The command in a real shell: completion, output that nobody reads, commands that are pasted."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Shell = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """A line of bash in an empty folder, as a user types it."""

    def run(line: str) -> subprocess.CompletedProcess[str]:
        # Without PYTHONUNBUFFERED, which would hide output that is lost when the interpreter ends.
        env = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
        env["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{env['PATH']}"
        return subprocess.run(
            ["bash", "-c", line], cwd=tmp_path, env=env, capture_output=True, text=True, check=False, timeout=120
        )

    return run


@pytest.mark.parametrize(
    "where",
    [
        pytest.param(">&-", id="closed"),
        pytest.param(">/dev/full", id="full disk"),
        pytest.param("| true; exit ${PIPESTATUS[0]}", id="closed pipe"),
    ],
)
@pytest.mark.parametrize("command", ["--version", "plan --budget 3M --json"])
def test_output_that_is_lost_is_no_success(shell: Shell, command: str, where: str) -> None:
    done = shell(f"isocompute {command} {where}")
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr


def test_a_command_that_fails_keeps_its_message_with_a_closed_pipe(shell: Shell) -> None:
    done = shell("isocompute plan --budget none | true; exit ${PIPESTATUS[0]}")
    assert done.returncode == 1
    assert "--budget" in done.stderr


@pytest.mark.parametrize(
    ("words", "expected"),
    [("al", {"allocate"}), ("allocate --for-r", {"--for-reward"}), ("report --budg", {"--budget"})],
)
def test_bash_completes_commands_and_options(shell: Shell, words: str, expected: set[str]) -> None:
    typed = f"COMP_WORDS=(isocompute {words}); COMP_CWORD={len(words.split())}"
    function = "$(complete -p isocompute | grep -o '_[a-z_]*')"
    done = shell(
        f'eval "$(isocompute --show-completion)"; {typed}; {function} isocompute; printf "%s\\n" "${{COMPREPLY[@]}}"'
    )
    assert set(done.stdout.split()) == expected
