"""The command line as a newcomer and as a program meet it."""

from __future__ import annotations

import json
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from isocompute_sdk.records import RunSet
from tests.processes import ok

Command = Callable[..., subprocess.CompletedProcess[str]]


def refused(result: subprocess.CompletedProcess[str]) -> str:
    assert result.returncode != 0
    assert "Traceback" not in result.stderr, result.stderr
    return result.stderr


def test_the_papers_quickstart_leaves_runs_fits_plan_and_pictures(isocompute: Command, tmp_path: Path) -> None:
    text = ok(isocompute("quickstart", "--paper", "--output", "out")).stdout
    assert "2,998,272 = 512 x 32 x 183" in text
    assert text.splitlines()[0].startswith("verdict")
    assert len(text.splitlines()) < 26
    assert "isocompute forecast out/runs.csv --run " in text
    assert "the paper's own method" in text
    for name in ("runs.csv", "fits.json", "plan.json", "reward_curves.png", "allocation_law.png"):
        assert (tmp_path / "out" / name).stat().st_size > 1000, name
    # What it leaves is what the other commands take.
    again = json.loads(ok(isocompute("plan", "--fits", "out/fits.json", "--budget", "3M", "--json")).stdout)
    assert again["group_size"] == 512
    assert len(RunSet.read(tmp_path / "out" / "runs.csv").run_ids) >= 6
    page = (tmp_path / "out" / "report.html").read_text()
    assert "isocompute allocate out/runs.csv " in page
    assert " RUNS " not in page


def test_the_readme_shows_what_its_first_command_prints(isocompute: Command, repository: Path) -> None:
    readme = (repository / "README.md").read_text(encoding="utf-8")
    text = ok(isocompute("allocate", repository / "docs/examples/runs.csv", "--budget", "900k")).stdout
    shown = readme[readme.index("\nverdict ") :]
    for line in shown[1 : shown.index("```")].split("\n\n")[0].splitlines():
        assert set(line.split()) <= set(text.split()), line


def test_the_command_to_give_next_can_be_pasted_whatever_the_file_is_called(isocompute: Command) -> None:
    odd = "my 'plan' ü.json"
    said = ok(isocompute("plan", "--budget", "3M", "--model", "org/model", "--output", odd)).stdout
    program, *arguments = shlex.split(said.splitlines()[-1].partition(": ")[2])
    assert (program, arguments) == ("isocompute", ["launch", odd])
    assert "train_ppo_ray" in ok(isocompute(*arguments, "--dry-run")).stdout


def test_a_result_is_saved_only_under_a_name_by_which_commands_know_it(isocompute: Command, tmp_path: Path) -> None:
    refused = isocompute("plan", "--budget", "3M", "--output", "p900")
    assert (refused.returncode, "p900.json" in refused.stderr) == (1, True)
    assert not (tmp_path / "p900").exists()


@pytest.mark.parametrize(
    ("option", "value", "readings"),
    [
        ("--problems-per-batch", "3,2", ("3.2", "32")),
        ("--rollouts-per-second", "3,5", ("3.5", "35")),
        ("--update-steps", "0", ()),
        ("--usd-per-gpu-hour", "nan", ()),
    ],
)
def test_a_wrong_number_is_refused_under_the_name_of_its_option(
    isocompute: Command, option: str, value: str, readings: tuple[str, ...]
) -> None:
    said = refused(isocompute("plan", "--budget", "3M", option, value))
    assert said.startswith(f"error: {option}: received '{value}'")
    assert all(reading in said.splitlines()[1] for reading in readings)


@pytest.mark.parametrize("budget", [["3", "million"], ["500", "GPU-hours", "on", "8xH100"]])
def test_a_budget_without_quotes_is_answered_with_them(isocompute: Command, budget: list[str]) -> None:
    said = " ".join(isocompute("allocate", "--budget", *budget, "runs.csv").stderr.replace("│", " ").split())
    assert f"--budget '{' '.join(budget)}'" in said


def test_a_path_behind_a_budget_is_none_of_its_words(isocompute: Command) -> None:
    said = isocompute("allocate", "--budget", "3M", "pilto").stderr
    assert "pilto" in said
    assert "quotes" not in said


@pytest.mark.slow  # As long as the one above, which shows all but the form.
def test_the_papers_quickstart_prints_one_json_document(isocompute: Command) -> None:
    document = json.loads(ok(isocompute("quickstart", "--paper", "--json")).stdout)
    assert document["group_size"] == 512
    assert document["schema_version"] == 3
