"""What people hand to commands by mistake: each is one error that says what to do, and never a traceback."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from isocompute_sdk.cli import app
from tests.processes import ok

Command = Callable[..., "subprocess.CompletedProcess[str]"]
TABLE = "n,bp,step,avg@4\n" + "".join(f"8,32,{step},0.{step}\n" for step in range(1, 7))


def refused(result: subprocess.CompletedProcess[str]) -> str:
    """The error, which has a hint in its second line."""
    assert result.returncode == 1, result.stdout
    assert result.stderr.startswith("error: ")
    assert result.stderr.split("\n")[1].startswith("  ")
    return result.stderr


@pytest.mark.parametrize(
    ("text", "why"), [("[" * 100_000, "nested too deep"), ('{"n": ' + "1" * 5000 + "}", "too many digits")]
)
def test_json_beyond_all_limits_is_an_error_like_any_other(
    isocompute: Command, tmp_path: Path, text: str, why: str
) -> None:
    (tmp_path / "saved.json").write_text(text)
    assert why in refused(isocompute("plan", "--budget", "3M", "--fits", "saved.json"))
    assert why in refused(isocompute("launch", "saved.json"))
    (tmp_path / "runs.jsonl").write_text(f"{text}\n")
    assert why in refused(isocompute("fit", "runs.jsonl"))
    refused(isocompute("doctor", "runs.jsonl"))
    # The page says first what it does.
    assert why in isocompute("report", "saved.json").stderr
    (tmp_path / "study").mkdir()
    for name in ("request.json", "spec.json"):
        (tmp_path / "study" / name).write_text(text)
    refused(isocompute("status", "study"))
    # A configuration that cannot be read keeps no log from being read.
    (tmp_path / "study" / "config.json").write_text(text)
    (tmp_path / "study" / "log.jsonl").write_text('{"step": 1, "data": {"critic/score/mean": 0.5}}\n')
    ok(isocompute("doctor", "study", "--set", "n=8", "--set", "bp=32", "--output", "out.jsonl"))


def test_a_link_that_leads_nowhere_is_called_one(isocompute: Command, tmp_path: Path) -> None:
    (tmp_path / "circle.csv").symlink_to("circle.csv")
    (tmp_path / "gone.csv").symlink_to("nothing.csv")
    for name in ("circle.csv", "gone.csv"):
        for command in ("fit", "audit", "doctor"):
            refused(isocompute(command, name))
        assert "link" in refused(isocompute("fit", name))


def test_a_number_too_large_for_n_does_not_stop_the_doctor(isocompute: Command, tmp_path: Path) -> None:
    (tmp_path / "runs.csv").write_text(TABLE + "99999999999999999999999,32,7,0.5\n")
    said = isocompute("doctor", "runs.csv")
    assert "99999999999999999999999" in said.stdout + said.stderr


def test_a_named_file_that_may_not_be_read_hides_no_other(
    isocompute: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("closed.csv", "open.csv"):
        (tmp_path / name).write_text(TABLE)
    opened = Path.open

    # The tests may run as root, whom no permission stops.
    def refusing(path: Path, *arguments: object, **options: object) -> object:
        if path.name == "closed.csv":
            raise PermissionError(13, "Permission denied", str(path))
        return opened(path, *arguments, **options)  # pyright: ignore[reportCallIssue, reportArgumentType]

    monkeypatch.setattr(Path, "open", refusing)

    def allowed(path: str, mode: int) -> bool:
        return not path.endswith("closed.csv")

    monkeypatch.setattr(os, "access", allowed)
    for command in ("doctor", "audit"):
        said = ok(isocompute(command, "closed.csv", "open.csv"))
        assert "closed.csv" in said.stdout


def test_ctrl_c_before_a_command_has_begun_is_no_traceback(
    isocompute: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(app, "command", interrupted)
    said = isocompute("plan", "--budget", "3M")
    assert (said.returncode, said.stderr) == (130, "")


def test_a_pipe_is_never_waited_for(isocompute: Command, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.csv")
    assert "pipe.csv" in refused(isocompute("fit", "pipe.csv"))
    (tmp_path / "runs.csv").write_text(TABLE)
    for command in ("doctor", "audit"):
        ok(isocompute(command, "."))


def test_what_was_logged_is_not_replaced_by_what_was_read_from_it(isocompute: Command, tmp_path: Path) -> None:
    (tmp_path / "runs.csv").write_text(TABLE)
    for source in ("runs.csv", "*.csv", tmp_path / "runs.csv"):
        assert "runs.csv" in refused(isocompute("doctor", source, "-o", "runs.csv"))
    assert (tmp_path / "runs.csv").read_text() == TABLE
    for _ in range(2):
        ok(isocompute("doctor", "runs.csv", "-o", "other.csv"))


def test_status_of_a_folder_names_what_its_only_table_lacks(isocompute: Command, tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "bad.csv").write_text("step,step\n1,2\n")
    assert "bad.csv" in refused(isocompute("status", "logs"))
    # An empty one is a folder without runs.
    (tmp_path / "empty").mkdir()
    assert "isocompute run STUDY" in refused(isocompute("status", "empty"))


def test_a_damaged_run_hides_no_other_from_status(isocompute: Command, tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / "study" / name).mkdir(parents=True)
        (tmp_path / "study" / name / "metrics.jsonl").write_text(f'{{"kind": "run", "run_id": "{name}"}}\n')
    (tmp_path / "study" / "b" / "spec.json").write_text("{")
    said = isocompute("status", "study")
    assert [line.split()[0] for line in said.stdout.splitlines()] == ["a", "c"]
    assert "1 run, such as study/b" in refused(said)
    assert list(json.loads(isocompute("status", "study", "--json").stdout)["unreadable"]) == ["study/b"]


def test_a_damaged_campaign_hides_no_run_and_is_told(isocompute: Command, tmp_path: Path) -> None:
    study = {"name": "small", "model": "simulation/easy-0", "pilot": "auto", "budget": {"rollouts": "300k"}}
    data = {"train": "t.jsonl", "validation": "v.jsonl", "reward": "r.py", "n_problems": 1000}
    (tmp_path / "small.yaml").write_text(json.dumps({**study, "data": data, "recipe": "easy", "backend": "simulator"}))
    assert isocompute("run", "small.yaml").returncode == 0
    # An edit that a start refuses is refused where one asks about it.
    edited = {**study, "data": data, "recipe": "hard", "backend": "simulator"}
    (tmp_path / "edited.yaml").write_text(json.dumps(edited))
    assert all("recipe.kl_coef" in refused(isocompute(command, "edited.yaml")) for command in ("next", "run"))
    runs = isocompute("status", "runs/small").stdout.splitlines()[:2]
    (tmp_path / "runs" / "small" / "campaign.json").write_text('{"kind": "campaign"')
    said = isocompute("status", "runs/small")
    assert said.stdout.splitlines()[:2] == runs
    advice = refused(said)
    assert "campaign.json" in advice
    # What it advises keeps the trained plan, which a larger budget follows.
    folder = tmp_path / "runs" / "small"
    for name in re.findall(r"\w+\.json\b(?!\.old)", advice.partition("Rename")[2]):
        (folder / name).rename(folder / f"{name}.old")
    (folder / "campaign.json").rename(folder / "campaign.json.old")
    planned = json.loads(max((folder / "decisions").glob("*-plan.json")).read_text())["planned"]
    assert f"trained: {planned}" in isocompute("run", "small.yaml").stderr
    study["budget"] = {"rollouts": "600k"}
    (tmp_path / "small.yaml").write_text(json.dumps({**study, "data": data, "recipe": "easy", "backend": "simulator"}))
    assert isocompute("run", "small.yaml").returncode == 0


@pytest.mark.parametrize(
    "command",
    [
        ["run", "--prepare", "PIPE.yaml"],
        ["run", "PIPE.yaml"],
        ["run", "--probe", "PIPE.yaml"],
        ["doctor", "--speed", "PIPE.csv", "--gpus", "1"],
        ["launch", "PIPE.json"],
        ["plan", "--budget", "3M", "--fits", "PIPE.json"],
        ["plan", "--budget", "3M", "--recipe", "PIPE.yaml"],
        ["plan", "--budget", "3M", "--throughput", "PIPE.yaml"],
        ["allocate", "PIPE.json", "--budget", "3M"],
        ["allocate", "PIPE.csv", "--budget", "3M"],
        ["fit", "PIPE.csv"],
        ["doctor", "PIPE.jsonl", "-o", "x.csv"],
        ["doctor", "--map", "PIPE.yaml", "-o", "x.csv"],
        ["doctor", "PIPE.csv"],
        ["audit", "PIPE.csv"],
        ["status", "PIPE"],
        ["status", "--watch", "PIPE.csv", "--once"],
        ["status", "--watch", "--map", "PIPE.yaml", "--once"],
    ],
    ids=" ".join,
)
def test_no_command_waits_for_a_pipe(isocompute: Command, tmp_path: Path, command: list[str]) -> None:
    for name in ("PIPE.yaml", "PIPE.json", "PIPE.csv", "PIPE.jsonl", "PIPE"):
        os.mkfifo(tmp_path / name)
    said = isocompute(*command)
    assert "PIPE" in said.stdout + refused(said)
