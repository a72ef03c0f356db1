"""`isocompute status --watch` over logs that grow while it looks, with a real command behind it."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import isocompute_sdk as iso
from isocompute_sdk.cli.shared import alerts as alert_command
from isocompute_sdk.health.alerts import Alert
from isocompute_sdk.health.rewards import band_findings
from isocompute_sdk.health.traces import gather
from isocompute_sdk.notes import Note
from tests.processes import HANG_SECONDS, ok, wait_for

Command = Callable[..., "subprocess.CompletedProcess[str]"]
N, BP = 16, 32
RECORDER = """\
import json, os, sys
told = {name: value for name, value in os.environ.items() if name.startswith("ISOCOMPUTE_ALERT_")}
with open(sys.argv[1], "a", encoding="utf-8") as file:
    file.write(json.dumps({"stdin": json.loads(sys.stdin.read()), "env": told, "argv": sys.argv[2:]}) + chr(10))
print("heard")
sys.exit(int(sys.argv[2]) if len(sys.argv) > 2 else 0)
"""
HOSTILE = "run'; touch pwned; $(touch pwned) `touch pwned` \"\n\x1b[31mred\u202e\t%s {0} ~"


@pytest.fixture
def recorder(tmp_path: Path) -> Path:
    """A command that writes down what it is given; its first argument is where, its second the exit code."""
    script = tmp_path / "recorder.py"
    script.write_text(RECORDER)
    return script


def command(recorder: Path, heard: Path, *more: object) -> str:
    return shlex.join([sys.executable, str(recorder), str(heard), *map(str, more)])


def lines(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    # The last line may still be on its way.
    return [
        json.loads(line) for line in path.read_text(encoding="utf-8").splitlines(keepends=True) if line.endswith("\n")
    ]


def line(step: int, run: str = "run", **metrics: float) -> str:
    return json.dumps({"run_id": run, "n": N, "bp": BP, "step": step, **metrics}) + "\n"


def write(path: Path, updates: int, *, sick_from: int | None = None, run: str = "run") -> None:
    """A run's log in place; KL runs away from an update on."""
    text = ""
    for step in range(1, updates + 1):
        kl = 0.01 if sick_from is None or step < sick_from else 2.0
        text += line(step, run, kl=kl, entropy=0.5)
    path.write_text(text)


LOOKING = """
import time
from isocompute_sdk.cli import main
from isocompute_sdk.cli.shared import alerts as command

class Noting:
    def __getattr__(self, name):
        return getattr(time, name)

    def sleep(self, seconds):
        open("looks", "a").write(".")
        time.sleep(seconds)

command.time = Noting()
command.STILL_SECONDS = 600
main()
"""
"""The real command, noting its looks."""


def wait_for_a_look(folder: Path, process: subprocess.Popen[str]) -> None:
    """Wait until a look has begun and ended."""
    seen = (folder / "looks").stat().st_size
    wait_for(lambda: (folder / "looks").stat().st_size > seen + 1, process)


@pytest.fixture
def watching(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """The real command, going on until the test ends."""
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: object) -> subprocess.Popen[str]:
        with (tmp_path / "stderr.txt").open("w") as errors:
            process = subprocess.Popen(
                [sys.executable, "-c", LOOKING, "status", "--watch", *map(str, arguments)],
                cwd=tmp_path,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "NO_COLOR": "1"},
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()
        print((tmp_path / "stderr.txt").read_text())


@pytest.fixture
def between_looks(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Does these things in place of the pauses between looks, and then interrupts."""

    class Pauses:
        def __init__(self, *steps: Callable[[], object]) -> None:
            self.steps = iter(steps)

        def __getattr__(self, name: str) -> object:
            return getattr(time, name)

        def sleep(self, _: float) -> None:
            next(self.steps, interrupt)()

    def interrupt() -> None:
        raise KeyboardInterrupt

    return lambda *steps: monkeypatch.setattr(alert_command, "time", Pauses(*steps))


@pytest.mark.slow
def test_a_run_that_falls_ill_while_it_is_watched_is_told_once(
    watching: Callable[..., subprocess.Popen[str]], recorder: Path, tmp_path: Path
) -> None:
    log, heard = tmp_path / "logs" / "run.jsonl", tmp_path / "heard.jsonl"
    log.parent.mkdir()
    process = watching("logs", "--interval", 0.1, "--json", "--on-alert", command(recorder, heard))
    wait_for(lambda: "waiting" in (tmp_path / "stderr.txt").read_text(), process)
    write(log, 40)
    for step in range(41, 61):
        with log.open("a") as file:
            text = line(step, kl=2.0, entropy=0.5)
            file.write(text[:20])
            file.flush()
            if step % 5 == 1:  # A look at half a line.
                wait_for_a_look(tmp_path, process)
            file.write(text[20:])
    wait_for(lambda: lines(heard), process)
    with log.open("a") as file:
        file.writelines(line(step, kl=2.0, entropy=0.5) for step in range(61, 90))
    wait_for_a_look(tmp_path, process)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=HANG_SECONDS)
    err = (tmp_path / "stderr.txt").read_text()
    assert process.returncode == 0, err
    # What the command prints does not mix with the alerts.
    assert "heard" in err
    (told,) = [json.loads(text) for text in out.splitlines()]
    (given,) = lines(heard)
    assert given["stdin"] == told
    assert (told["code"], told["severity"], told["run_id"]) == ("kl-drift", "warning", "run")
    assert 41 <= told["step"] <= 45
    assert given["env"] == {
        "ISOCOMPUTE_ALERT_CODE": "kl-drift",
        "ISOCOMPUTE_ALERT_SEVERITY": "warning",
        "ISOCOMPUTE_ALERT_RUN_ID": "run",
        "ISOCOMPUTE_ALERT_FOLDER": str(log.parent),
        "ISOCOMPUTE_ALERT_STEP": f"{told['step']:g}",
        "ISOCOMPUTE_ALERT_ROLLOUTS": f"{told['rollouts']:g}",
        "ISOCOMPUTE_ALERT_MESSAGE": told["message"],
    }


def test_a_restart_tells_nothing_twice_and_a_run_that_began_again_is_told_again(
    isocompute: Command, recorder: Path, tmp_path: Path
) -> None:
    log, heard = tmp_path / "run.jsonl", tmp_path / "heard.jsonl"
    look = ("status", "--watch", log, "--once", "--on-alert", command(recorder, heard))
    write(log, 60, sick_from=30)
    first, second = isocompute(*look), isocompute(*look)
    assert first.returncode == second.returncode == 0, first.stderr + second.stderr
    assert "kl-drift" in first.stdout
    assert second.stdout == ""
    write(log, 20)
    assert isocompute(*look).stdout == ""
    write(log, 60, sick_from=40)
    assert "kl-drift" in isocompute(*look).stdout
    assert len(lines(heard)) == 2


def test_a_log_that_no_longer_grows_ends_the_watch_and_one_that_does_not(
    isocompute: Command, between_looks: Callable[..., None], tmp_path: Path
) -> None:
    for name in ("done.jsonl", "going.jsonl"):
        write(tmp_path / name, 60, sick_from=40)
    old = (tmp_path / "done.jsonl").stat().st_mtime - 10_000
    os.utime(tmp_path / "done.jsonl", (old, old))
    ended = isocompute("status", "done.jsonl", "--json", "--watch")
    assert ended.returncode == 0
    assert "no log has grown for 2.8 h" in ended.stderr
    *alerts, last = [json.loads(text) for text in ended.stdout.splitlines()]
    assert alerts
    assert (last["kind"], last["runs"]) == ("watch", 1)
    looks: list[int] = []
    between_looks(*[lambda: looks.append(1)] * 3)
    assert isocompute("status", "going.jsonl", "done.jsonl", "--json", "--watch").returncode == 0
    assert len(looks) == 3


def test_names_of_runs_never_become_part_of_a_command(isocompute: Command, recorder: Path, tmp_path: Path) -> None:
    log, heard = tmp_path / "run.jsonl", tmp_path / "heard.jsonl"
    write(log, 60, sick_from=30, run=HOSTILE)
    result = ok(isocompute("status", log, "--once", "--on-alert", command(recorder, heard), "--watch"))
    (given,) = lines(heard)
    assert given["stdin"]["run_id"] == given["env"]["ISOCOMPUTE_ALERT_RUN_ID"] == HOSTILE
    assert given["argv"] == []
    assert not list(tmp_path.rglob("pwned"))
    # Nor can they write lines or colours of their own on the terminal.
    assert len(result.stdout.splitlines()) == 1
    assert "\x1b" not in result.stdout
    shell = 'sh -c \'printf "%s" "$ISOCOMPUTE_ALERT_RUN_ID" > shell.txt\''
    assert (
        isocompute(
            "status", log, "--once", "--state", tmp_path / "other.json", "--on-alert", shell, "--watch"
        ).returncode
        == 0
    )
    assert not list(Path.cwd().glob("pwned"))


def test_a_command_that_fails_is_tried_again_and_the_alert_printed_once(
    isocompute: Command, recorder: Path, tmp_path: Path
) -> None:
    log, heard = tmp_path / "run.jsonl", tmp_path / "heard.jsonl"
    write(log, 60, sick_from=30)
    look = ("status", "--watch", log, "--once", "--on-alert", command(recorder, heard, 3))
    results = [isocompute(*look) for _ in range(4)]
    assert [bool(result.stdout) for result in results] == [True, False, False, False]
    assert len(lines(heard)) == 3
    assert results[0].returncode == 1
    assert " 3" in results[0].stderr
    missing = isocompute(
        "status", log, "--once", "--state", tmp_path / "s.json", "--on-alert", "no-such-command x", "--watch"
    )
    assert missing.returncode == 1
    assert "no-such-command" in missing.stderr


def test_what_can_never_work_is_refused_at_once(isocompute: Command, tmp_path: Path) -> None:
    write(tmp_path / "run.jsonl", 20)
    (tmp_path / "notes.docx").write_text("no log")
    (tmp_path / "map.yaml").write_text("kind: run-map\nschema_version: 1\nsearched: [runs]\nquestions: [\n")
    ok(isocompute("plan", "--budget", "3M", "--output", "prior.json"))
    before = sorted(tmp_path.iterdir())
    for arguments, message in (
        ("""run.jsonl --on-alert "sh -c 'x" """, "--on-alert"),
        ("run.jsonl --on-alert ' '", "--on-alert"),
        ("run.jsonl --plan none.json", "none.json"),
        ("run.jsonl --plan prior.json", "prior"),
        ("run.jsonl --state run.jsonl/state.json", "another file with --state"),
        ("rnus/first/log.jsonl", "folder rnus/first does not exist"),
        ("'rnus/*.csv'", "folder rnus does not exist"),
        ("notes.docx/log.jsonl", "folder notes.docx is a file, not a folder"),
        ("notes.docx", "unknown ending '.docx'"),
        ("--map none.yaml", "none.yaml"),
        ("--map map.yaml", "map.yaml:"),
    ):
        refused = isocompute("status", *shlex.split(arguments), "--once", "--watch")
        assert refused.returncode == 1, arguments
        assert message in refused.stderr
    assert sorted(tmp_path.iterdir()) == before
    missing = isocompute("status", "nowhere", "--once", "--watch")
    assert missing.returncode == 1
    assert "nowhere" in missing.stderr


def test_a_run_that_begins_later_is_waited_for_and_logs_that_can_no_longer_be_read_are_an_alert(
    isocompute: Command, between_looks: Callable[..., None], recorder: Path, tmp_path: Path
) -> None:
    first, later, heard = tmp_path / "first", tmp_path / "later" / "run.jsonl", tmp_path / "heard.jsonl"
    first.mkdir()
    write(first / "run.jsonl", 40, sick_from=20)
    told: list[int] = []
    fails = alert_command.BLIND

    def look() -> None:
        told.append(len(lines(heard)))

    def begin() -> None:
        later.parent.mkdir()
        write(later, 40, sick_from=20)

    between_looks(
        *(look, begin),
        *(look, later.unlink, *[look] * fails),
        # Readable again, then not: that is another alert.
        *(lambda: write(later, 41, sick_from=20), look),
        *(lambda: later.write_text("this is no JSON\nat all\n"), *[look] * fails),
    )
    done = isocompute("status", "first", "later", "--on-alert", command(recorder, heard), "--watch")
    assert told == [1, *[2] * fails, 3, 3, *[3] * (fails - 1), 4]
    assert done.stderr.count("waiting") == 1
    assert ": later" in done.stderr
    found = [one["stdin"] for one in lines(heard)]
    assert [one["code"] for one in found[2:]] == ["log-damaged", "log-damaged"]
    assert "run.jsonl" in found[3]["message"]


def test_runs_of_one_name_in_two_folders_are_two_runs_and_a_broken_log_hides_no_other(
    isocompute: Command, tmp_path: Path
) -> None:
    for name, sick_from in (("a", 20), ("b", 30), ("c", None)):
        (tmp_path / "runs" / name).mkdir(parents=True)
        write(tmp_path / "runs" / name / "log.jsonl", 60, sick_from=sick_from)
    (tmp_path / "runs" / "c" / "log.jsonl").write_text("broken\nlog\n")
    # A run of the built-in runner that has only begun is no broken log.
    (tmp_path / "runs" / "d").mkdir()
    begun = {"schema_version": 1, "kind": "run", "run_id": "d", "group_size": N, "problems_per_batch": BP}
    (tmp_path / "runs" / "d" / "metrics.jsonl").write_text(json.dumps(begun) + "\n")
    folders = [tmp_path / "runs" / name for name in "abcd"]
    result = isocompute("status", *folders, "--once", "--json", "--watch")
    *alerts, end = [json.loads(text) for text in result.stdout.splitlines()]
    assert [(Path(a["folder"]).name, a["run_id"], a["code"]) for a in alerts] == [
        ("a", "run", "kl-drift"),
        ("b", "run", "kl-drift"),
    ]
    assert end["unreadable"] == 1
    assert result.returncode == 1
    assert "c/log.jsonl" in result.stderr


def reward(n: int, compute: np.ndarray) -> np.ndarray:
    return 0.4 + (0.1 + 0.03 * np.log2(n)) * (1 - np.exp(-compute / (4e3 * n)))


@pytest.fixture(scope="module")
def plan() -> iso.Plan:
    """A plan from a pilot over four n, of which the truth is known."""
    rng = np.random.default_rng(0)
    columns: dict[str, list[float]] = {"n": [], "bp": [], "step": [], "reward": []}
    for n in (4, 16, 64):
        steps = np.unique(np.linspace(0, 200_000 / (n * BP), 25).round())
        columns["n"] += [n] * len(steps)
        columns["bp"] += [BP] * len(steps)
        columns["step"] += steps.tolist()
        columns["reward"] += (reward(n, steps * n * BP) + rng.normal(0, 0.01, len(steps))).tolist()
    return iso.Planner(iso.fit(iso.RunSet.from_columns(columns, metric="avg@4"), draws=50)).allocate("300k")


def planned_run(plan: iso.Plan, factor: float, seed: int = 1) -> iso.RunSet:
    steps = np.unique(np.linspace(0, plan.update_steps, 31).round())
    truth = reward(plan.group_size, steps * plan.rollouts_per_batch)
    value = 0.4 + (truth - 0.4) * factor + np.random.default_rng(seed).normal(0, 0.01, len(steps))
    columns = {"n": [plan.group_size] * len(steps), "bp": [BP] * len(steps), "step": steps, "reward": value}
    return iso.RunSet.from_columns(columns, metric="avg@4")


@pytest.mark.parametrize(
    ("factor", "codes"), [(1.0, []), (0.3, ["outside-predicted-band"]), (1.9, ["outside-predicted-band"])]
)
def test_a_planned_run_is_held_against_what_was_predicted(
    plan: iso.Plan, factor: float, codes: list[str], isocompute: Command, tmp_path: Path
) -> None:
    runs = planned_run(plan, factor)
    assert plan.fits is not None
    (run,) = gather(runs)
    assert [finding.code for finding in band_findings(run, plan.fits)] == codes
    plan.save(tmp_path / "plan.json")
    runs.to_polars().write_parquet(tmp_path / "runs.parquet")
    result = ok(
        isocompute("status", tmp_path / "runs.parquet", "--once", "--info", "--plan", tmp_path / "plan.json", "--watch")
    )
    assert [text.split()[2].rstrip(":") for text in result.stdout.splitlines()] == codes
    if codes:
        assert "98% band" in result.stdout


def test_runs_of_other_sizes_are_not_held_against_the_plan(plan: iso.Plan, isocompute: Command, tmp_path: Path) -> None:
    plan.save(tmp_path / "plan.json")
    other = planned_run(plan, 0.3).to_polars().drop("rollouts", "run_id").to_dict(as_series=False)
    other["group_size"] = [2 * plan.group_size] * len(other["group_size"])
    iso.RunSet.from_columns(other).to_polars().write_parquet(tmp_path / "runs.parquet")
    result = isocompute("status", tmp_path / "runs.parquet", "--once", "--plan", tmp_path / "plan.json", "--watch")
    assert result.stdout == ""
    assert f"no run has the plan's n = {plan.group_size}" in result.stderr


def test_what_a_hanging_command_has_started_ends_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alert_command, "COMMAND_SECONDS", 0.5)
    alert = Alert(Note("kl-drift", "warning", "x"), "run")
    # The pipe ends once nobody has it open any more.
    reading, writing = os.pipe()
    os.set_inheritable(writing, True)
    monkeypatch.setattr(subprocess, "Popen", partial(subprocess.Popen, pass_fds=[writing]))
    said = alert_command.run_command(["sh", "-c", "sleep 600 & sleep 600"], alert)
    os.close(writing)
    assert said is not None
    assert "was stopped" in said
    with os.fdopen(reading, "rb") as pipe:
        assert pipe.read() == b""
