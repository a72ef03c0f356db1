"""The command in a real shell: completion, output that nobody reads, commands that are pasted."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import pytest

Shell = Callable[..., subprocess.CompletedProcess[str]]


@pytest.mark.parametrize(
    ("command", "where"),
    [
        pytest.param("--version", ">&-", id="closed"),
        pytest.param("--version", ">/dev/full", id="full disk"),
        pytest.param("plan --budget 3M --json", ">/dev/full", id="full disk at the end"),
        pytest.param("plan --budget 3M --json", "| true; exit ${PIPESTATUS[0]}", id="closed pipe"),
        pytest.param("plan --budget none", "| true; exit ${PIPESTATUS[0]}", id="a message and a closed pipe"),
    ],
)
def test_output_that_is_lost_is_no_success(shell: Shell, command: str, where: str) -> None:
    done = shell(f"isocompute {command} {where}")
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr
    assert ("--budget" in done.stderr) == command.endswith("none")


def test_bash_completes_commands_options_and_values(shell: Shell) -> None:
    script = 'eval "$(isocompute --show-completion)"; function="$(complete -p isocompute | grep -o \'_[a-z_]*\')"; '
    for words in ("al", "allocate --for-r", "launch plan.json --backend op"):
        script += f"COMP_WORDS=(isocompute {words}); COMP_CWORD={len(words.split())}; "
        script += '$function isocompute; echo "${COMPREPLY[@]}"; '
    assert shell(script).stdout.splitlines() == ["allocate", "--for-reward", "openrlhf"]
