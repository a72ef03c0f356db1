"""For every command: help with an example, JSON for programs, errors with a remedy, nothing written unasked."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from isocompute_sdk import Fits, Planner, RunSet, fit
from isocompute_sdk.cli.app import MOVED, PANELS
from tests.processes import ok

Command = Callable[..., "subprocess.CompletedProcess[str]"]
STUDY = """\
name: mine
model: simulation
data: {train: t.jsonl, validation: v.jsonl, reward: r.py}
recipe: {preset: easy}
sweep: {group_size: [8, 16], problems_per_batch: 32, rollouts: 20k}
backend: simulator
"""

EASY = "qwen2.5-7b-instruct/guru-math-easy"
TABLE = "n,bp,step,avg@4\n" + "".join(f"8,32,{step},0.{step}\n" for step in range(1, 7))
PYTHON = re.compile(
    r"[Pp]ass [a-z_]+=|[A-Z][a-z]+[A-Za-z]*\(|(?<![-\w'])[a-z_]+=(?:\.\.\.|[\[({'\"])|\(Python\)|\brunsk?\."
)
"""How hints name Python: `pass name=`, `Class(`, `name=...` that follows no option."""
MIXED = "run_id,n,bp,step,avg@4,learning_rate\n" + "".join(
    f"r{n},{n},32,{step},0.{step},{n}e-6\n" for n in (8, 16) for step in range(1, 7)
)
PROBLEMATIC = {
    "ok.csv": TABLE,
    "mixed.csv": MIXED,
    "no_n.csv": "bp,step,avg@4\n32,1,0.5\n",
    "slip.csv": "n,bp,step,avg@4,grop_size\n8,32,1,0.5,8\n",
    "text.csv": "n,bp,step,avg@4,host\n8,32,1,0.5,abc\n",
    "reward.csv": "n,bp,step,reward\n8,32,1,0.5\n",
    "twice.csv": "n,bp,step,avg@4\n8,32,1,0.5\n8,32,1,0.6\n",
    "alias.csv": "n,group_size,bp,step,avg@4\n8,8,32,1,0.5\n",
    "no_step.csv": "n,C,step,avg@4\n8,,1,0.5\n",
    "sets.csv": "n,bp,step,avg@4,eval_set\n8,32,1,0.5,a\n8,32,1,0.5,b\n",
    "large.csv": "n,bp,step,avg@4\n8,32,1,50\n8,32,2,60\n16,32,1,50\n16,32,2,60\n",
    "odd.xyz": TABLE,
    "chart.csv": "Step,lively-sun-3 - reward,lively-sun-3 - reward__MIN\n1,0.5,0.5\n",
}
"""Tables with one fault each."""


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
    "forecast": Case("sweep.csv --run r8", "sweep.csv --to soon"),
    "doctor": Case("sweep.csv", "sweep.csv --where model=m"),
    "fit": Case("sweep.csv --draws 20", "sweep.csv --method spline"),
    "audit": Case("sweep.csv", "sweep.csv --metric best@4"),
    "backtest": Case("sweep.csv", "missing.csv"),
    "problems": Case("problems.jsonl --limit 2", "problems.jsonl --label tiny --limit 3", ("train.jsonl",)),
    "launch": Case("plan.json --model m --dry-run", "plan.json --model m --change grup_size=8"),
    "run": Case("study.yaml --dry-run", "study.yaml --steps 20"),
    "status": Case("sweep.csv", "sweep.csv --once"),
    "stop": Case("study", "missing", ("study",)),
    "report": Case("plan.json", "plan.json --figure pie", ("report.html",)),
    "list": Case("backends", "planets"),
}
ALSO = {
    "plan": (f"--published {EASY} --budget 3M --compare n=8,bp=32 --reference n=128,bp=32 --equal steps", ()),
    "allocate": ("fits.json --budget 1,000k --problems-per-batch 1_0", ()),
    "doctor": ("sweep.csv --output table.csv", ("table.csv",)),
    "run": ("study.yaml --prepare", ("runs",)),
    "report": ("sweep.csv --figure evaluations", ("figure.png",)),
    "list": ("backends openrlhf", ()),
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
    "doctor sweep.csv --map map.yaml",
    "doctor sweep.csv --output sweep.txt",
    "doctor sweep.csv --seconds took",
    "forecast sweep.csv --run r8 --follow stop",
    "report plan.json --problems-per-batch 8 --figure allocation",
    "list schema planet",
    "list notes no-such-code",
    "list published no/such",
    "list backends no-such",
    "plan --budget '200 gpu_hours'",
    "plan --budget '2B tokens' --rollouts-per-second 60 --step-overhead-seconds 25",
    "plan --budget '500 usd' --rollouts-per-second 60 --step-overhead-seconds 25",
    "plan --budget 3,5M",
    "plan --budget 3M --update-steps 5",
    "plan --budget 3M --spend most",
    "plan --budget 3M --beyond-grid x",
    "plan --budget 3M --evaluation 3by4",
    "plan --budget 3M --published qwen2.5-7b-instruct/guru-math-easy --model org/other",
    "plan --budget 3M --published qwen2.5-7b-instruct/guru-math-easy:fixed-batch",
    "plan --budget 3M --spent pilot=4M",
    "plan --budget 3M --compare n=1",
    "plan --for-reward 0.7",
    "plan",
    "fit mixed.csv",
    "fit no_n.csv",
    "fit slip.csv",
    "fit text.csv",
    "fit twice.csv",
    "fit alias.csv",
    "fit no_step.csv",
    "fit sets.csv",
    "fit large.csv",
    "fit odd.xyz",
    "fit chart.csv",
    "fit ok.csv --set n=16",
    "fit ok.csv --set width=16",
    "fit ok.csv --metric avg@8",
    "fit ok.csv --pool width",
    "fit ok.csv --method paper",
    "audit ok.csv --metric best@4",
    "doctor --speed ok.csv",
    "doctor --speed ok.csv --gpus 8",
    "doctor --speed ok.csv --gpus 8 --seconds x",
    "launch ok.csv",
    "fit ok.csv --points all",
    "fit ok.csv --bin-width 0.01",
    "allocate ok.csv --budget 3M --curve hill",
    "allocate fits.json --budget 3M --method paper --metric best@4",
    "audit ok.csv --bounds 5 6",
    "audit ok.csv --bounds LOW HIGH",
    "doctor --speed ok.csv --gpus 8 --usd-per-gpu-hour nan",
    "plan --budget 3M --step-overhead-seconds 25",
    "plan --budget 100 --output plan.json",
    "next --budget 3M --output next.yaml",
    "next --budget 10",
    "run study.yaml --probe --backend none",
    "run study.yaml --executor slrum",
    "run study.yaml --executor '{name: local, paralel: 2}'",
    "quickstart --budget 20k",
    "quickstart --budget '3 gpu_hours'",
    "quickstart --output plan.json",
    "status nothing",
    "plan --budget 3M --output /proc/none/plan.json",
    "launch study",
    "launch plan.json --change group_size=some",
    "run study.yaml --only n4-bp32-seed0",
)
"""Further uses that cannot work."""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with runs, fits, a plan, a study, a started run and problems."""
    folder = tmp_path_factory.mktemp("made")
    rows = [
        f"r{n},{n},32,{step},{0.3 + (0.1 + 0.02 * i) * (1 - 2.718 ** (-step / (40 * (i + 1)))):.4f}"
        for i, n in enumerate((8, 16, 32))
        for step in range(0, 200, 10)
    ]
    (folder / "sweep.csv").write_text("\n".join(["run,n,bp,step,avg@4", *rows]) + "\n")
    fits = fit(RunSet.read(folder / "sweep.csv"), draws=20)
    assert isinstance(fits, Fits)
    fits.save(folder / "fits.json")
    Planner(fits).allocate("400k").save(folder / "plan.json")
    for name, text in {**PROBLEMATIC, "study.yaml": STUDY}.items():
        (folder / name).write_text(text)
    (folder / "nothing").mkdir()
    (folder / "study" / "a").mkdir(parents=True)
    (folder / "study" / "a" / "metrics.jsonl").write_text('{"kind": "run", "run_id": "a"}\n')
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


# The quickstart takes ten times as long as all others; test_commands.py looks at what it leaves.
USES = [(name, case.works, case.writes) for name, case in CASES.items() if name != "quickstart"]
USES += [(name, words, writes) for name, (words, writes) in ALSO.items()]


@pytest.mark.parametrize(("name", "words", "writes"), USES, ids=str)
def test_json_is_one_document_and_nothing_else_is_written(
    isocompute: Command, place: Path, name: str, words: str, writes: tuple[str, ...]
) -> None:
    before = contents(place)
    done = ok(isocompute(name, *shlex.split(words), "--json"))
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
    # People in a shell get flags and commands, no Python.
    assert not PYTHON.search(re.sub(r"--(set|rename|output) \S+", "", done.stderr.removeprefix("error: ")))
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


def test_an_option_of_other_commands_names_them(isocompute: Command) -> None:
    done = isocompute("audit", "runs.csv", "--budget", "3M")
    assert done.returncode == 2
    named = re.findall(r"\w+", done.stderr.partition("--budget")[2])
    assert {"allocate", "next"} <= {*named}
    assert "bounds" not in named


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ("--budget -5", "--budget"),
        ("--budget 3M --deadline -2", "--deadline"),
        ("--budget 3M --deadline soon", "--deadline"),
        ("--for-reward 0.6 --deadline friday", "--deadline"),
        ("--budget 3M --compare n=16", "n=16 lacks bp"),
        ("--budget 3M --compare n=16 --equal batch --reference bp=4", "bp=4 lacks n"),
    ],
)
def test_an_error_names_the_option_as_it_was_typed_and_no_class(
    isocompute: Command, place: Path, options: str, named: str
) -> None:
    assert (place / "fits.json").exists()
    refused = isocompute("allocate", "fits.json", *shlex.split(options))
    assert refused.returncode == 1
    assert named in refused.stderr
    assert not re.search(r"Budget\.|deadline_hours|[{}]", refused.stderr)
