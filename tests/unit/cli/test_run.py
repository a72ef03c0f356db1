"""`run`, `status` and the closed loop's words, over runs that really run."""

from __future__ import annotations

import fcntl
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from isocompute_sdk.campaigns.executors import running, slurm
from isocompute_sdk.cli.shared import following, work_progress
from isocompute_sdk.run_folders import store, wrapper
from tests.processes import HANG_SECONDS, wait_for
from tests.unit.cli.test_whole_campaign import STUDY as CAMPAIGN

STUDY = """\
name: small
model: tiny
data: {train: train.jsonl, validation: validation.jsonl, reward: reward.py}
recipe: hard
sweep:
  group_size: [4, 16]
  problems_per_batch: 4
  rollouts: 6400
backend: curve
options: %s
"""
Start = Callable[..., "subprocess.Popen[str]"]
Ask = Callable[..., tuple[str, str]]

REFRESH = 'http-equiv="refresh"'
WITH_PAGE = "import os; del os.environ['WITHOUT_PAGE']"
WITHOUT_PAGE = """
if __name__ != "__main__" and "WITHOUT_PAGE" in os.environ:
    from isocompute_sdk.cli.shared import following

    following.write_page = lambda *_, **__: (None, "")
"""
"""The page at the end takes longer than all else, and most tests do not look at it."""


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """The real command in `tmp_path`, in a process of its own, with the backend `curve` installed for all processes."""
    site = tmp_path / "site"
    info = site / "curve-1.0.dist-info"
    info.mkdir(parents=True)
    source = (Path(__file__).parents[1] / "curve_backend.py").read_text()
    (site / "curve_backend.py").write_text(source + WITHOUT_PAGE)
    monkeypatch.setenv("WITHOUT_PAGE", "")
    monkeypatch.setattr(following, "write_page", following.write_page)  # which the backend replaces
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: curve\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[isocompute.backends]\ncurve = curve_backend:CurveBackend\n")
    monkeypatch.syspath_prepend(site)
    monkeypatch.setenv("PYTHONPATH", str(site), prepend=os.pathsep)
    started: list[subprocess.Popen[str]] = []

    def run(*arguments: object, prelude: str = "pass", stdout: Any = subprocess.PIPE) -> subprocess.Popen[str]:
        program = f"import sys; {prelude}; from isocompute_sdk.cli import main; main()"
        environment = {**os.environ, "COLUMNS": "120", "NO_COLOR": "1", "TERM": "dumb"}
        process = subprocess.Popen(
            [sys.executable, "-c", program, *map(str, arguments)],
            cwd=tmp_path,
            env=environment,
            stdout=stdout,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield run
    for process in started:
        process.kill()
        process.communicate()
    sys.modules.pop("curve_backend", None)


@pytest.fixture
def ask(isocompute: Callable[..., subprocess.CompletedProcess[str]]) -> Ask:
    """A command that starts no run, with what it printed and its messages."""

    def told(*arguments: object, code: int = 0) -> tuple[str, str]:
        done = isocompute(*arguments)
        assert done.returncode == code, done.stderr
        return done.stdout, done.stderr

    return told


def finish(process: subprocess.Popen[str], code: int = 0) -> tuple[str, str]:
    out, err = process.communicate(timeout=HANG_SECONDS)
    assert process.returncode == code, err
    assert "Traceback" not in err
    return out, err


def write_study(folder: Path, **options: object) -> None:
    (folder / "study.yaml").write_text(STUDY % json.dumps(options))


def open_gate(folder: Path) -> None:
    """Let runs of a study with `gate="open"` go on, which have evaluated the base model and wait."""
    (folder / "open").touch()


def wait_until_measured(folder: Path, process: subprocess.Popen[str], runs: int) -> list[Path]:
    """Wait until so many runs have measured something; returns the journals of these."""

    def measured() -> list[Path]:
        found = [path for path in folder.glob("runs/small/*/metrics.jsonl") if "evaluation" in path.read_text()]
        return found if len(found) >= runs else []

    return wait_for(measured, process)


@pytest.mark.usefixtures("start")
def test_run_carries_a_study_out_and_status_tells(ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_study(tmp_path)
    monkeypatch.delenv("WITHOUT_PAGE")
    monkeypatch.setattr(work_progress, "SECONDS_BETWEEN_LINES", 0.0)
    out, err = ask("run", "study.yaml", "--parallel", 2)
    assert "% of 12,800 rollouts" in err
    assert "n4-bp4-seed0" in out
    assert out.count("finished") == 2
    assert "the answer on one page: runs/small/report.html" in out
    assert (tmp_path / "runs" / "small" / "report.html").is_file()
    assert "small: n16-bp4-seed0 finished, avg@4 0." in err
    shown, _ = ask("status", "runs")
    told = [line for line in out.splitlines() if line.startswith(("n4-", "n16-"))]
    assert [line for line in shown.splitlines() if line.startswith("n")] == told
    line, _ = told
    assert "n = 4 " in line
    assert "step     400 of     400 (100%)  C = 6,400       avg@4 0." in line
    document = json.loads(ask("status", "runs/small/n16-bp4-seed0", "--json")[0])
    assert document["schema_version"] == 1
    assert [(run["step"], run["update_steps"], run["state"]) for run in document["runs"]] == [(100, 100, "finished")]
    # What it leaves is what the other commands take; the learning rate follows n by the recipe's rule.
    assert out.splitlines()[-1] == "next: isocompute fit runs/small"
    fitted, _ = ask(*out.splitlines()[-1].split()[2:])
    assert "few-group-sizes" in fitted


def test_run_goes_on_after_an_interrupt_and_says_so(start: Start, ask: Ask, tmp_path: Path) -> None:
    write_study(tmp_path, gate="open")
    process = start("run", "study.yaml")
    journal, *_ = wait_until_measured(tmp_path, process, 1)
    process.send_signal(signal.SIGINT)
    _, err = finish(process, 130)
    assert "the same command resumes" in err
    shown, _ = ask("status", "runs/small")
    assert "stopped" in shown
    assert "isocompute run" in shown
    measured = journal.read_text()
    open_gate(tmp_path)
    ask("run", "study.yaml")
    assert journal.read_text().startswith(measured)
    shown, _ = ask("status", "runs/small")
    assert shown.count("finished") == 3
    assert "isocompute run" not in shown


@pytest.mark.usefixtures("start")
def test_a_failed_run_is_named_and_the_exit_code_is_1(ask: Ask, tmp_path: Path) -> None:
    write_study(tmp_path, fail_at=10)
    _, err = ask("run", "study.yaml", code=1)
    assert "n16-bp4-seed0 (exit code 1): the curve broke" in err
    shown, _ = ask("status", "runs")
    assert "failed: the curve broke" in shown


def test_without_torch_the_quickstart_says_what_to_install_and_what_goes_without(start: Start, tmp_path: Path) -> None:
    _, err = finish(start("quickstart", prelude="sys.modules['torch'] = None"), 1)
    first, second = err.splitlines()
    assert "needs torch: pip install 'isocompute[torch]'" in first
    assert "isocompute quickstart --paper" in second
    assert [path.name for path in tmp_path.iterdir()] == ["site"]


def states(ask: Ask) -> dict[str, str]:
    document = json.loads(ask("status", "runs", "--json")[0])
    return {run["run_id"]: run["state"] for run in document["runs"]}


def test_stop_ends_the_named_run_and_the_controller_goes_on_with_the_others(
    start: Start, ask: Ask, tmp_path: Path
) -> None:
    write_study(tmp_path, gate="open")
    controller = start("run", "study.yaml", "--parallel", 2)
    wait_until_measured(tmp_path, controller, 2)
    out, _ = ask("stop", "study.yaml", "--run", "n4-bp4-seed0", "--json")
    assert json.loads(out)["ended"] == ["runs/small/n4-bp4-seed0"]
    open_gate(tmp_path)
    _, err = finish(controller, 1)
    assert "n4-bp4-seed0" in err
    assert states(ask) == {"n4-bp4-seed0": "stopped", "n16-bp4-seed0": "finished"}
    ask("run", "study.yaml")
    assert set(states(ask).values()) == {"finished"}
    assert json.loads(ask("stop", "runs", "--json")[0])["ended"] == []


@pytest.mark.slow
def test_stop_ends_what_a_killed_controller_left_and_what_it_had_not_begun(
    start: Start, ask: Ask, tmp_path: Path
) -> None:
    write_study(tmp_path, gate="never")
    controller = start("run", "study.yaml", "--parallel", 1)
    wait_until_measured(tmp_path, controller, 1)
    # The second run has not begun, and must not.
    ask("stop", "runs")
    finish(controller, 1)
    assert states(ask) == {"n4-bp4-seed0": "stopped", "n16-bp4-seed0": "waiting"}
    controller = start("run", "study.yaml", "--parallel", 2)
    wait_until_measured(tmp_path, controller, 2)
    controller.kill()
    assert set(states(ask).values()) == {"running"}
    assert len(json.loads(ask("stop", "runs", "--json")[0])["ended"]) == 2
    assert set(states(ask).values()) == {"stopped"}


def test_stop_ends_a_campaign_between_its_runs_and_the_same_command_goes_on(
    start: Start, ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "write_page", lambda *_, **__: (None, ""))
    (tmp_path / "study.yaml").write_text(CAMPAIGN)
    hangs = f"lambda *_, **__: (open('fitting', 'x'), time.sleep({HANG_SECONDS}))"
    between = f"import time; from isocompute_sdk.campaigns import study_runs; study_runs.api.fit = {hangs}"
    controller = start("run", "study.yaml", prelude=between)
    wait_for((tmp_path / "fitting").exists, controller)
    document = json.loads(ask("stop", "runs/auto", "--json")[0])
    assert document["controllers"] == [controller.pid]
    finish(controller, -signal.SIGTERM)
    assert not (tmp_path / "runs/auto/plan.json").exists()
    assert "planned run " in ask("run", "study.yaml")[0]


@pytest.mark.usefixtures("start")
def test_stop_names_runs_that_no_executor_started_and_names_that_are_not_there(
    ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "SECONDS_TO_APPEAR", 0.0)
    write_study(tmp_path)
    ask("run", "study.yaml", "--only", "n4-bp4-seed0")
    folder = tmp_path / "runs" / "small" / "n4-bp4-seed0"
    (folder / "metrics.jsonl").unlink()
    (folder / "exit.json").unlink()
    with (folder / ".lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        document = json.loads(ask("stop", "runs", "--json", code=1)[0])
    assert (document["ended"], document["foreign"]) == ([], ["runs/small/n4-bp4-seed0"])
    assert "n4-bp4-seed0" in ask("stop", "runs", "--run", "n5", code=1)[1]


def append(folder: Path, text: str) -> None:
    with (folder / "study.yaml").open("a") as file:
        file.write(text + "\n")


@pytest.mark.usefixtures("start")
def test_a_run_that_learns_nothing_is_no_success(ask: Ask, tmp_path: Path) -> None:
    write_study(tmp_path, flat=4)
    out, err = ask("run", "study.yaml", code=1)
    assert "nothing-learned" in out
    assert "next: isocompute fit" not in out
    assert "n4-bp4-seed0" in err
    document = json.loads(ask("run", "study.yaml", "--json", code=1)[0])
    assert document["learned_nothing"] == ["n4-bp4-seed0"]
    assert document["notes"][0]["code"] == "nothing-learned"


def test_a_detached_controller_finishes_alone_and_stop_ends_its_runs(start: Start, ask: Ask, tmp_path: Path) -> None:
    write_study(tmp_path, gate="open")
    document = json.loads(finish(start("run", "study.yaml", "--parallel", 1, "--detach", "--json"))[0])
    assert document["log"] == "runs/small/controller.log"
    process = document["controller"]
    wait_for(lambda: states(ask) == {"n4-bp4-seed0": "running", "n16-bp4-seed0": "waiting"})
    open_gate(tmp_path)
    wait_for(lambda: wrapper.process_ref(process) is None)
    assert set(states(ask).values()) == {"finished"}


@pytest.mark.slow
def test_a_hangup_detaches_where_the_study_says_so_and_the_same_command_takes_over(
    start: Start, ask: Ask, tmp_path: Path
) -> None:
    write_study(tmp_path, gate="open")
    append(tmp_path, "supervision: {on_signal: detach}\nexecutor: {name: local, parallel: 2}")
    controller = start("run", "study.yaml")
    wait_until_measured(tmp_path, controller, 2)
    controller.send_signal(signal.SIGHUP)
    _, err = finish(controller, 129)
    assert re.search("SIGHUP: .*2 run.*n4-bp4-seed0, n16-bp4-seed0", err)
    document = json.loads(ask("status", "runs", "--json")[0])
    assert {(run["state"], run["engine"]) for run in document["runs"]} == {("running", "local")}
    assert all(wrapper.process_ref(int(run["job"])) for run in document["runs"])
    open_gate(tmp_path)
    ask("run", "study.yaml", "--executor", "local")
    assert set(states(ask).values()) == {"finished"}
    journal = (tmp_path / "runs" / "small" / "n4-bp4-seed0" / "metrics.jsonl").read_text()
    assert journal.count('"kind": "run"') == 1


@pytest.mark.usefixtures("start")
def test_status_and_stop_ask_the_engine_that_has_a_run(
    ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Slurm and the folders are looked at so rarely that the test would do nothing but wait.
    monkeypatch.setattr(slurm, "ASK_SECONDS", 0.1)
    monkeypatch.setattr(slurm, "ClusterExecutor", partial(slurm.ClusterExecutor, poll_seconds=0.02))
    write_study(tmp_path)
    ask("run", "study.yaml", "--only", "n4-bp4-seed0")
    folder = tmp_path / "runs" / "small" / "n4-bp4-seed0"
    for name in ("metrics.jsonl", "exit.json"):
        (folder / name).unlink()
    # As a controller leaves it that has handed the run over as job 4711, with these options.
    job = store.read_job(folder)
    assert job is not None
    store.write_job(folder, replace(job, attempt=2, executor={"name": "slurm", "qos": "low"}))
    store.write_started(folder, store.Started(2, "slurm", "4711"))
    commands = tmp_path / "bin"
    commands.mkdir()
    line = f"{'4711':<32}{'PENDING':<32}{'0':<32}{'Resources':<128}"
    gone = line.replace("PENDING  ", "CANCELLED")
    (commands / "squeue").write_text(
        f"#!/bin/sh\nif [ -e {commands}/ended ]; then echo '{gone}'; else echo '{line}'; fi\n"
    )
    (commands / "scancel").write_text(f'#!/bin/sh\necho "$@" >> {commands}/ended\n')
    for command in commands.iterdir():
        command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{commands}:{os.environ['PATH']}")
    (run,) = json.loads(ask("status", "runs", "--json")[0])["runs"]
    assert (run["state"], run["engine"], run["job"]) == ("waiting", "slurm", "4711")
    assert "PENDING" in run["job_state"]
    assert "slurm 4711: PENDING" in ask("status", "runs")[0]
    assert json.loads(ask("stop", "runs", "--json")[0])["ended"] == ["runs/small/n4-bp4-seed0"]
    assert "4711" in (commands / "ended").read_text()
    (run,) = json.loads(ask("status", "runs", "--json")[0])["runs"]
    assert (run["state"], run["engine"]) == ("waiting", "")


@pytest.mark.slow
def test_a_watch_follows_to_the_end_and_a_second_controller_is_told_who_is_at_work(
    start: Start, ask: Ask, tmp_path: Path
) -> None:
    write_study(tmp_path, gate="open")
    first = start("run", "study.yaml")
    wait_until_measured(tmp_path, first, 1)
    shown = tmp_path / "shown.txt"
    with shown.open("w") as file:
        watch = start("status", "runs/small", "--watch", "--interval", 0.2, prelude=WITH_PAGE, stdout=file)
    _, err = ask("run", "study.yaml", code=1)
    assert str(first.pid) in err
    page, versions = tmp_path / "runs" / "small" / "report.html", list[str]()

    def ended() -> bool:
        text = page.read_text() if page.exists() else ""
        if text and text not in versions:
            assert text.rstrip().endswith("</html>")
            versions.append(text)
        if versions and shown.stat().st_size:
            open_gate(tmp_path)
        return watch.poll() is not None

    wait_for(ended)
    finish(first)
    finish(watch)
    # While runs go on a browser loads the page anew.
    assert [REFRESH in text for text in (versions[0], page.read_text())] == [True, False]
    assert shown.read_text().count("report.html") == 1
    blocks = shown.read_text().strip().split("\n\n")
    assert len(blocks) > 1
    assert str(first.pid) in blocks[0]
    assert blocks[-1].count("finished") >= 2
    assert "pilot 12,800 rollouts" in blocks[-1]
    document = json.loads(ask("status", "runs/small", "--json")[0])
    assert document["study"]["spent"]["pilot"]["rollouts"] == 12_800
    assert document["study"]["controller"] is None
    (tmp_path / "study.yaml").write_text((tmp_path / "study.yaml").read_text().replace("model: tiny", "model: other"))
    _, err = ask("run", "study.yaml", code=1)
    assert "model: 'tiny' -> 'other'" in err


def test_runs_of_two_studies_are_told_apart(ask: Ask, tmp_path: Path) -> None:
    for study in ("rates", "sizes"):
        folder = tmp_path / "runs" / study / "n8-bp8-seed0"
        folder.mkdir(parents=True)
        (folder / "metrics.jsonl").write_text(
            '{"schema_version": 1, "kind": "run", "run_id": "n8-bp8-seed0", "group_size": 8, "problems_per_batch": 8}\n'
        )
    names = [line.split()[0] for line in ask("status", "runs")[0].splitlines()]
    assert names == ["rates/n8-bp8-seed0", "sizes/n8-bp8-seed0"]
    assert ask("status", "runs/rates")[0].startswith("n8-bp8-seed0 ")
