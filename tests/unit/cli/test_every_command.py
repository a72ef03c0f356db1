"""For every command: help with an example, JSON for programs, errors with a remedy, nothing written unasked."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from isocompute_sdk import Fits, Planner, RunSet, fit
from isocompute_sdk.cli.app import MOVED, PANELS

Command = Callable[..., "subprocess.CompletedProcess[str]"]
STUDY = """\
name: mine
model: simulation
data: {train: t.jsonl, validation: v.jsonl, reward: r.py}
recipe: {preset: easy}
sweep: {group_size: [8, 16], problems_per_batch: 32, rollouts: 20k}
backend: simulator
"""


class Case(NamedTuple):
    """One use of a command that works, with what it writes, and one that cannot."""

    works: str
    fails: str
    writes: tuple[str, ...] = ()


CASES = {
    "quickstart": Case("--paper", "--paper --budget many", ("isocompute-paper",)),
    "plan": Case("--budget 3M", "--budget 3M --prior --fits fits.json"),
    "allocate": Case("fits.json --budget 3M", "fits.json --budget 3M --mode bold"),
    "next": Case("fits.json --budget 400k", "fits.json"),
    "forecast": Case("runs.csv --run r8", "runs.csv --to soon"),
    "doctor": Case("runs.csv", "runs.csv --where model=m"),
    "fit": Case("runs.csv --draws 20", "runs.csv --method spline"),
    "audit": Case("runs.csv", "runs.csv --metric best@4"),
    "backtest": Case("runs.csv", "missing.csv"),
    "problems": Case("problems.jsonl --limit 2", "problems.jsonl --set a=1", ("train.jsonl",)),
    "launch": Case("plan.json --model m --dry-run", "plan.json --model m --change grup_size=8"),
    "run": Case("study.yaml --dry-run", "study.yaml --steps 20"),
    "status": Case("runs.csv", "runs.csv --once"),
    "stop": Case("study", "missing", ("study",)),
    "report": Case("plan.json", "plan.json --figure pie", ("report.html",)),
    "list": Case("backends", "planets"),
}
ALSO = {
    "doctor": ("runs.csv --output table.csv", ("table.csv",)),
    "run": ("study.yaml --prepare", ("runs",)),
    "report": ("runs.csv --figure evaluations", ("figure.png",)),
    "list": ("notes extrapolation", ()),
    "launch": ("plan.json --model m", ("launch.sh",)),
}
"""Second uses, with what they write."""
REFUSED = (
    "plan --budget many",
    "plan --budget 100",
    "plan --budget 3M --published no/such",
    "plan --budget 3M --recipe medium",
    "plan --budget 3M --fits missing.json",
    "plan --budget 3M --for-reward 0.6",
    "plan --budget 3M --marginal --compare n=8",
    "plan --budget 3M --equal steps",
    "allocate missing.csv --budget 3M",
    "launch missing.json",
    "run missing.yaml --prepare",
    "run study.yaml --probe --batch eight",
    "run study.yaml --probe --only n8-bp32-seed0",
    "fit missing.csv --set nonsense",
    "doctor",
    "doctor runs.csv --map map.yaml",
    "doctor runs.csv --output runs.txt",
    "doctor runs.csv --seconds took",
    "forecast runs.csv --run r8 --follow stop",
    "report runs.csv --figure sensitivity-bp",
    "report plan.json --problems-per-batch 8 --figure allocation",
    "list schema planet",
    "list notes no-such-code",
    "list published no/such",
    "list backends no-such",
)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with runs, fits, a plan, a study, a started run and problems."""
    folder = tmp_path_factory.mktemp("made")
    rows = [
        f"r{n},{n},32,{step},{0.3 + (0.1 + 0.02 * i) * (1 - 2.718 ** (-step / (40 * (i + 1)))):.4f}"
        for i, n in enumerate((8, 16, 32))
        for step in range(0, 200, 10)
    ]
    (folder / "runs.csv").write_text("\n".join(["run,n,bp,step,avg@4", *rows]) + "\n")
    fits = fit(RunSet.read(folder / "runs.csv"), draws=20)
    assert isinstance(fits, Fits)
    fits.save(folder / "fits.json")
    Planner(fits).allocate("400k").save(folder / "plan.json")
    (folder / "study.yaml").write_text(STUDY)
    (folder / "study" / "a").mkdir(parents=True)
    (folder / "study" / "a" / "metrics.jsonl").write_text("")
    problems = [json.dumps({"id": str(i), "prompt": f"{i} + 1?", "answer": str(i + 1)}) for i in range(4)]
    (folder / "problems.jsonl").write_text("\n".join(problems) + "\n")
    return folder


@pytest.fixture
def place(made: Path, tmp_path: Path) -> Path:
    """The same, in the folder in which commands run."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    return tmp_path


def contents(folder: Path) -> dict[str, bytes | None]:
    """Every file with its bytes, and every folder."""
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


def test_every_command_has_a_case() -> None:
    assert {name for panel in PANELS.values() for name in panel} == set(CASES)


@pytest.mark.parametrize("name", CASES)
def test_help_shows_examples_one_a_line(isocompute: Command, name: str) -> None:
    done = isocompute(name, "--help")
    assert done.returncode == 0
    lines = [line.strip() for line in done.stdout.splitlines()]
    after = next(line for line in lines[lines.index("Examples:") + 1 :] if line)
    assert after.startswith(f"isocompute {name}")


USES = [(name, case.works, case.writes) for name, case in CASES.items()]
USES += [(name, words, writes) for name, (words, writes) in ALSO.items()]


@pytest.mark.parametrize(("name", "words", "writes"), USES, ids=str)
def test_json_is_one_document_and_nothing_else_is_written(
    isocompute: Command, place: Path, name: str, words: str, writes: tuple[str, ...]
) -> None:
    before = contents(place)
    done = isocompute(name, *shlex.split(words), "--json")
    assert done.returncode == 0, done.stderr
    assert isinstance(json.loads(done.stdout)["schema_version"], int)
    after = contents(place)
    changed = {path.split("/")[0] for path in after if after[path] != before.get(path, ...)}
    assert changed - {"runs"} == set(writes) - {"runs"}
    assert before.keys() <= after.keys()


@pytest.mark.parametrize("line", [*(f"{name} {case.fails}" for name, case in CASES.items()), *REFUSED])
def test_bad_input_is_one_error_with_a_remedy(isocompute: Command, place: Path, line: str) -> None:
    before = contents(place)
    done = isocompute(*shlex.split(line))
    assert done.returncode == 1, done.stdout
    error, remedy, *_ = done.stderr.splitlines()
    assert error.startswith("error: ")
    assert remedy.startswith("  ")
    assert "Traceback" not in done.stderr
    assert contents(place) == before


@pytest.mark.parametrize("old", MOVED)
def test_a_command_that_went_away_names_one_that_works(isocompute: Command, old: str) -> None:
    done = isocompute(old, "my file")
    assert done.returncode == 2
    words = shlex.split(done.stderr.partition("is now: isocompute ")[2])
    assert words[0] in CASES
    assert words[-1] == "my file"
    options = [word for word in words if word.startswith("--")]
    text = isocompute(words[0], "--help").stdout
    assert all(option in text for option in options)
