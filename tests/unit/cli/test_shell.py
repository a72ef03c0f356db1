"""The command in a shell and on a terminal."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from isocompute_sdk import Fits, Planner, RunSet, fit
from tests.parameters import few

Shell = Callable[..., subprocess.CompletedProcess[str]]
Command = Callable[..., subprocess.CompletedProcess[str]]


@pytest.mark.parametrize(
    ("command", "where"),
    [
        pytest.param("--version", ">&-", id="closed"),
        pytest.param("--version", ">/dev/full", id="full disk"),
        pytest.param("plan --budget 3M --json", ">/dev/full", id="full disk at the end", marks=pytest.mark.slow),
        pytest.param("plan --budget 3M --json", "| true; exit ${PIPESTATUS[0]}", id="closed pipe"),
        pytest.param(
            "plan --budget none",
            "| true; exit ${PIPESTATUS[0]}",
            id="a message and a closed pipe",
            marks=pytest.mark.slow,
        ),
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
    for words in ("allocate --for-r", "launch plan.json --backend op"):
        script += f"COMP_WORDS=(isocompute {words}); COMP_CWORD={len(words.split())}; "
        script += '$function isocompute; echo "${COMPREPLY[@]}"; '
    assert shell(script).stdout.splitlines() == ["--for-reward", "openrlhf"]


NAMES = ("\x1b[31mred\x1b]0;title\x07", "abc\u202egnp.exe", "b\u200b\x9b31m")


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rows = [
        f"{name},{n},32,{i},{0.1 + 0.005 * i * n**0.5}"
        for name, n in zip(NAMES, (8, 16, 32), strict=True)
        for i in range(12)
    ]
    path = tmp_path_factory.mktemp("runs") / "runs.csv"
    path.write_text("\n".join(["run,n,bp,step,avg@4", *rows, ""]))
    return path


PROGRAM = """
import sys
from isocompute_sdk.cli import main
for words in (["fit", "--draws=10"], ["status"]):
    sys.argv = ["isocompute", *words, sys.argv[-1]]
    try:
        main()
    except SystemExit as ended:
        assert not ended.code, words
"""


def test_no_command_sends_control_characters_of_names(table: Path) -> None:
    program = [sys.executable, "-c", PROGRAM, str(table)]
    ours, theirs = pty.openpty()
    said = b""
    with subprocess.Popen(program, stdout=theirs, stderr=theirs, env={**os.environ, "TERM": "xterm"}) as process:
        os.close(theirs)
        with suppress(OSError):  # the other end is closed
            while part := os.read(ours, 1 << 16):
                said += part
    os.close(ours)
    text = said.decode().replace("\r\n", "\n")
    assert process.returncode == 0, text
    assert text.count("red") > 3
    assert "\x1b[31mred" not in text
    # What remains are colours of our own.
    assert not [c for c in re.sub(r"\x1b\[[\d;]*m", "", text) if not c.isprintable() and c != "\n"]


LOOKS = (
    "doctor {runs}",
    "doctor {runs} --map {runs}",
    "fit {runs} --draws 10 --verbose",
    "fit {runs} --metric {name}",
    "audit {runs}",
    "audit {runs} --pool {name}",
    "status {runs}",
    "status {runs} --watch --once --state {state}",
    "forecast {runs}",
    "forecast {runs} --run {name}",
    "allocate {runs} --budget 40k --draws 10",
    "allocate {runs} --budget 40k --compare {name}",
    "allocate {runs} --budget {name}",
    "next {runs} --budget 400k",
    "backtest {runs} --cuts 0.5 --seeds 1",
    "report {folder}",
    "report {runs} --figure {name}",
    "plan --budget 3M --model {name}",
    "plan --fits {fits} --budget 40k --verbose",
    "launch {plan} --backend verl --dry-run",
    "launch {plan} --backend {name}",
    "launch {plan} --change {name}=1",
    "run {runs} --dry-run",
    "list schema {name}",
    "list notes {name}",
    "stop {folder}/{name}",
    "problems {runs} --label {name}",
    "{name}",
)
"""Commands over hostile names: of files, runs, models, data sets, and in their own words."""
QUICK = {line for line in LOOKS if not line.startswith(("report {runs}", "next", "backtest"))}
HOSTILE = "x\x1b[31m\u202e\x07\x9b\u2028y"


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    """What the commands are given."""
    folder = tmp_path_factory.mktemp("hostile") / HOSTILE
    folder.mkdir()
    rows = [
        f"{HOSTILE}{n},{n},32,{i},{0.3 + 0.1 * n / 8 * (1 - 0.8**i):.4f},{HOSTILE},{HOSTILE},{HOSTILE}"
        for n in (8, 16)
        for i in range(12)
    ]
    runs = folder / f"{HOSTILE}.csv"
    runs.write_text("\n".join(["run,n,bp,step,avg@4,model,train_data,eval_set", *rows, ""]))
    fits = fit(RunSet.read(runs), draws=10)
    assert isinstance(fits, Fits)
    plan = Planner(fits).allocate("40k").save(folder / "plan.json")
    given = {"runs": runs, "folder": folder, "name": HOSTILE, "state": folder / "state.json"}
    return {**given, "fits": fits.save(folder / "fits.json"), "plan": plan}


@pytest.mark.parametrize("line", few(LOOKS, QUICK))
def test_whatever_a_command_says_is_printable(isocompute: Command, hostile: dict[str, object], line: str) -> None:
    done = isocompute(*(word.format(**hostile) for word in line.split()))
    said = done.stdout + done.stderr
    assert said
    assert not [c for c in said if not c.isprintable() and c not in "\n\t"]
