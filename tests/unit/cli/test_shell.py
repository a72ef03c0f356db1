"""The command in a real shell: completion, output that nobody reads, commands that are pasted."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import pytest

Shell = Callable[..., subprocess.CompletedProcess[str]]


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
    [
        ("al", {"allocate"}),
        ("allocate --for-r", {"--for-reward"}),
        ("launch plan.json --backend op", {"openrlhf"}),
    ],
)
def test_bash_completes_commands_options_and_values(shell: Shell, words: str, expected: set[str]) -> None:
    typed = f"COMP_WORDS=(isocompute {words}); COMP_CWORD={len(words.split())}"
    function = "$(complete -p isocompute | grep -o '_[a-z_]*')"
    done = shell(
        f'eval "$(isocompute --show-completion)"; {typed}; {function} isocompute; printf "%s\\n" "${{COMPREPLY[@]}}"'
    )
    assert set(done.stdout.split()) == expected
