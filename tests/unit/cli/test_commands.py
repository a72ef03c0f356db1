"""The command line as a newcomer and as a program meet it."""

from __future__ import annotations

import json
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path

import jsonschema
import pytest

from isocompute_sdk import __version__
from isocompute_sdk.laws import digitised

PAPER = ("--method", "paper", "--points", "all")
Command = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def curves_csv(tmp_path: Path) -> Path:
    """The paper's fitted Easy curves as a user's CSV file."""
    table = digitised("sweeps/qwen2.5-7b-easy.csv")
    path = tmp_path / "curves.csv"
    rows = zip(*(table[name] for name in ("Bp", "n", "C", "avg@4")), strict=True)
    path.write_text("Bp,n,C,avg@4\n" + "".join(f"{bp:g},{n:g},{c:.17g},{r:.17g}\n" for bp, n, c, r in rows))
    return path


def succeeded(result: subprocess.CompletedProcess[str]) -> str:
    assert result.returncode == 0, result.stderr
    return result.stdout


def refused(result: subprocess.CompletedProcess[str]) -> str:
    assert result.returncode != 0
    assert "Traceback" not in result.stderr, result.stderr
    return result.stderr


def test_the_version_can_be_asked_for(isocompute: Command) -> None:
    assert succeeded(isocompute("--version")) == f"isocompute {__version__}\n"


def test_the_papers_quickstart_leaves_runs_fits_plan_script_and_pictures(isocompute: Command, tmp_path: Path) -> None:
    text = succeeded(isocompute("quickstart", "--paper", "--output", "out"))
    assert "2,998,272 = 512 x 32 x 183" in text
    assert text.splitlines()[0].startswith("verdict")
    assert len(text.splitlines()) < 24
    assert "the paper's own method" in text
    for name in ("runs.csv", "fits.json", "plan.json", "launch.sh", "reward_curves.png", "allocation_law.png"):
        assert (tmp_path / "out" / name).stat().st_size > 1000, name
    subprocess.run(["bash", "-n", tmp_path / "out" / "launch.sh"], check=True)
    # What it leaves is what the other commands take.
    again = json.loads(succeeded(isocompute("plan", "--fits", "out/fits.json", "--budget", "3M", "--json")))
    assert again["group_size"] == 512
    # The runs in long form go the whole way again.
    refit = json.loads(succeeded(isocompute("allocate", "out/runs.csv", *PAPER, "--budget", "3M", "--json")))
    assert refit["rollouts"] == again["rollouts"]


@pytest.mark.slow  # As long as the one above, which shows all but the form.
def test_the_papers_quickstart_prints_one_json_document(isocompute: Command) -> None:
    document = json.loads(succeeded(isocompute("quickstart", "--paper", "--json")))
    assert document["group_size"] == 512
    assert document["schema_version"] == 3


def test_the_readme_shows_what_its_first_command_prints(isocompute: Command, repository: Path) -> None:
    readme = (repository / "README.md").read_text(encoding="utf-8")
    text = succeeded(isocompute("allocate", repository / "docs/examples/runs.csv", "--budget", "900k"))
    shown = readme[readme.index("\nverdict ") :]
    for line in shown[1 : shown.index("```")].split("\n\n")[0].splitlines():
        assert set(line.split()) <= set(text.split()), line


def test_csv_to_script_in_two_commands(isocompute: Command, curves_csv: Path, tmp_path: Path) -> None:
    arguments = ("allocate", curves_csv, "--budget", "3M", "--output", "plan.json", "--plot", "pics", "--verbose")
    text = succeeded(isocompute(*arguments))
    assert "512" in text
    assert "passport" in text
    assert "backtest: everything beyond C = " in text
    assert sorted(p.name for p in (tmp_path / "pics").iterdir()) == ["allocation_law.png", "reward_curves.png"]
    script = succeeded(isocompute("launch", "plan.json", "--model", "org/model", "--dry-run"))
    assert script.startswith("#!/usr/bin/env bash")
    assert "openrlhf.cli.train_ppo_ray" in script
    assert not (tmp_path / "launch.sh").exists()
    succeeded(isocompute("launch", "plan.json", "--model", "org/model"))
    assert (tmp_path / "launch.sh").read_text().rstrip() == script.rstrip()
    assert (tmp_path / "launch.sh").stat().st_mode & 0o100


def test_the_command_to_give_next_can_be_pasted_whatever_the_file_is_called(isocompute: Command) -> None:
    odd = "my 'plan' ü.json"
    said = succeeded(isocompute("plan", "--budget", "3M", "--model", "org/model", "--output", odd))
    program, *arguments = shlex.split(said.splitlines()[-1].partition(": ")[2])
    assert (program, arguments) == ("isocompute", ["launch", odd])
    assert "train_ppo_ray" in succeeded(isocompute(*arguments, "--dry-run"))


def test_a_folder_that_cannot_be_written_to_is_one_clear_error(isocompute: Command, tmp_path: Path) -> None:
    (tmp_path / "runs.csv").write_text("n,bp,step,avg@4\n8,32,1,0.5\n")
    for command in (["plan", "--budget", "3M"], ["doctor", "runs.csv"]):
        said = refused(isocompute(*command, "--output", "/proc/none/runs.csv"))
        assert "error: /proc/none/runs.csv cannot be written: " in said
        assert "cannot be written" in said


def test_fit_saves_fits_and_reports_the_published_handovers(isocompute: Command, curves_csv: Path) -> None:
    text = succeeded(isocompute("fit", curves_csv, *PAPER, "--output", "fits.json"))
    assert "8 -> 32 at 259k, 32 -> 128 at 852k" in text
    document = json.loads(succeeded(isocompute("fit", curves_csv, *PAPER, "--json")))
    assert document["fits"]["avg@4"]["method"] == "paper"
    assert document["fits"]["avg@4"]["passport"] is None


def test_the_default_fit_is_the_surface_and_carries_its_passport(
    isocompute: Command, curves_csv: Path, tmp_path: Path
) -> None:
    text = succeeded(isocompute("fit", curves_csv, "--draws", 40, "--output", "fits.json", "--plot", "pics"))
    lines = text.splitlines()
    assert lines[0].startswith("avg@4, method surface")
    assert lines[1].startswith("backtest: everything beyond C = ")
    assert sorted(p.name for p in (tmp_path / "pics").iterdir()) == ["allocation_law.png", "reward_curves.png"]
    document = json.loads(succeeded(isocompute("fit", curves_csv, "--draws", 40, "--json")))["fits"]["avg@4"]
    assert document["method"] == "surface"
    assert 0 <= document["passport"]["backtest"]["coverage"] <= 1
    assert document["passport"] == json.loads((tmp_path / "fits.json").read_text())["passport"]
    plan = json.loads(succeeded(isocompute("plan", "--fits", "fits.json", "--budget", "3M", "--json")))
    assert plan["passport"] == document["passport"]


@pytest.mark.parametrize("option", [("--points", "all"), ("--bin-width", "0.01"), ("--curve", "hill")])
@pytest.mark.parametrize("command", ["fit", "allocate"])
def test_options_of_the_papers_method_are_refused_for_a_surface(
    isocompute: Command, curves_csv: Path, command: str, option: tuple[str, str]
) -> None:
    budget = ["--budget", "3M"] if command == "allocate" else []
    text = refused(isocompute(command, curves_csv, *option, *budget))
    assert f"{option[0]} with --method surface" in text
    assert f"Leave {option[0]} out, or add --method paper." in text


def test_another_model_needs_an_explicit_flag(isocompute: Command) -> None:
    arguments = ["plan", "--published", "qwen2.5-7b-instruct/guru-math-hard", "--budget", "2M", "--model", "org/other"]
    assert "--allow-other-model" in refused(isocompute(*arguments))
    assert "constants-of-another-model" in succeeded(isocompute(*arguments, "--allow-other-model"))


def test_budgets_in_other_units(isocompute: Command) -> None:
    rates = ["--rollouts-per-second", 60, "--step-overhead-seconds", 25, "--gpus", 8, "--usd-per-gpu-hour", 2.5]
    plan = json.loads(succeeded(isocompute("plan", "--budget", "500 usd", *rates, "--json")))
    assert plan["cost"] <= 500
    assert plan["costs"]["usd"] == plan["cost"]
    assert "--usd-per-gpu-hour" in refused(isocompute("plan", "--budget", "500 usd"))


def test_a_failed_command_leaves_the_earlier_file(isocompute: Command, tmp_path: Path) -> None:
    kept = tmp_path / "plan.json"
    kept.write_text("precious")
    refused(isocompute("plan", "--budget", "100", "--output", kept))
    assert kept.read_text() == "precious"


def test_the_printed_schema_accepts_the_examples_and_refuses_a_typo(isocompute: Command, repository: Path) -> None:
    from ruamel.yaml import YAML

    schema = json.loads(succeeded(isocompute("list", "schema", "study")))
    study = YAML(typ="safe", pure=True).load(repository / "specs" / "quick.yaml")
    jsonschema.validate(study, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**study, "bugdet": "3M"}, schema)


def test_backends_lists_openrlhf_with_its_version(isocompute: Command) -> None:
    assert "0.11.2" in succeeded(isocompute("list", "backends"))
    assert json.loads(succeeded(isocompute("list", "backends", "--json")))["backends"]["openrlhf"]["name"] == "openrlhf"


def test_one_backend_is_shown_with_its_options_and_an_unknown_one_with_those_there_are(isocompute: Command) -> None:
    assert "tensor_parallel (int, default 1)" in succeeded(isocompute("list", "backends", "openrlhf"))
    assert "registered: openrlhf" in refused(isocompute("list", "backends", "openrlfh"))


@pytest.mark.parametrize("written", ["1k", "1,000", "1_000", "1000"])
def test_counts_may_be_written_as_in_specs(isocompute: Command, written: str) -> None:
    said = succeeded(isocompute("plan", "--budget", "3,000,000", "--problems-per-batch", written, "--json"))
    plan = json.loads(said)
    assert plan["problems_per_batch"] == 1000
    assert plan["rollouts"] <= 3_000_000


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


def test_half_a_speed_is_refused_by_the_option_that_is_missing(isocompute: Command) -> None:
    said = refused(isocompute("plan", "--budget", "3M", "--rollouts-per-second", "60"))
    assert "--step-overhead-seconds" in said
    assert "step_overhead_seconds" not in said
