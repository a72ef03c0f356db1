"""Plans on one screen: what comes first, what is left for --verbose, and commands that work when they are pasted."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import isocompute_sdk as iso
from isocompute_sdk.cli.shared.display import print_notes, what_next
from isocompute_sdk.cli.shared.typed import Typed, filled, with_words
from isocompute_sdk.laws import measured_easy
from tests.processes import ok
from tests.unit.sweeps import recorded

Command = Callable[..., subprocess.CompletedProcess[str]]
LINES, COLUMNS = 24, 80
FOLDERS = ("isocompute_sdk/laws/data/sweeps", "benchmarks/data/smollm2/sweep")
PASTED = tuple(
    f"{label}isocompute "
    for label in (
        "  ",
        "next: ",
        "next, what a higher reward would cost: ",
        "or run this plan anyway: ",
        "or save this plan anyway: ",
        "to run this plan anyway: ",
    )
)


@pytest.fixture
def runs_csv(tmp_path: Path) -> Path:
    """The paper's measured runs."""
    columns, context = measured_easy()
    path = tmp_path / "my runs.csv"
    iso.RunSet.from_columns(columns, metric="avg@4", **context).to_polars().write_csv(path)
    return path


@pytest.fixture
def pilot_csv(runs_csv: Path) -> Path:
    """Short runs of three group sizes, which leave n open far beyond them."""
    short = pl.read_csv(runs_csv).filter(pl.col("rollouts") < 3e5, pl.col("group_size").is_in([8, 32, 128]))
    short.write_csv(runs_csv.with_name("pilot.csv"))
    return runs_csv


def screen(isocompute: Command, command: str) -> list[str]:
    done = ok(isocompute(*shlex.split(command), columns=COLUMNS))
    lines = done.stdout.splitlines()
    # A terminal wraps what is printed longer than it is wide.
    assert sum(-(-max(len(line.rstrip()), 1) // COLUMNS) for line in lines) < LINES
    assert lines[0].startswith("verdict")
    return lines


@pytest.mark.parametrize(
    ("command", "commands"),
    [
        ("allocate 'my runs.csv' --method paper --points all --budget 3M", 1),
        ("allocate pilot.csv --budget 10M", 2),
        ("plan --budget 3M", 2),
    ],
)
@pytest.mark.usefixtures("pilot_csv")
def test_a_plan_fits_one_screen_and_every_command_on_it_can_be_pasted(
    isocompute: Command, command: str, commands: int
) -> None:
    found = [line for line in screen(isocompute, command) if line.startswith(PASTED)]
    assert len(found) == commands
    for line in found:
        pasted = isocompute(*shlex.split(line[line.index("isocompute ") :], comments=True)[1:])
        assert pasted.returncode == 0, (line, pasted.stderr)


@pytest.mark.usefixtures("pilot_csv")
@pytest.mark.parametrize(
    ("command", "named"),
    [
        ("allocate 'my runs.csv' --budget 3M", False),
        ("allocate pilot.csv --budget 10M", True),
        ("plan --budget 7k", False),
    ],
)
def test_what_to_run_next_is_pointed_to_where_it_names_runs(isocompute: Command, command: str, named: bool) -> None:
    shown = isocompute(*shlex.split(command), "-v", columns=1000).stdout
    printed = {line[line.index("isocompute next") :] for line in shown.splitlines() if "  isocompute next" in line}
    printed |= {line.partition(": ")[2] for line in shown.splitlines() if line.startswith("next: isocompute next")}
    assert bool(printed) == named
    source, _, budget = command.removeprefix("allocate ").removeprefix("plan").partition(" --budget ")
    for line in printed or {f"isocompute next {source} --budget {budget}"}:
        asked = ok(isocompute(*shlex.split(line, comments=True)[1:], "--json"))
        answer = json.loads(asked.stdout)
        assert bool(answer.get("first", answer)["runs"]) == named


@pytest.mark.usefixtures("pilot_csv")
@pytest.mark.parametrize(
    ("command", "kind"),
    [
        ("allocate 'my runs.csv' --budget 7.5M", "part"),
        ("allocate 'my runs.csv' --budget 30M", "part"),
        ("allocate pilot.csv --budget 10M", "do-not"),
        ("plan --budget 3M --update-steps 1000 --rollouts-per-batch 3000", "do-not"),
    ],
)
def test_a_plan_that_is_not_approved_is_not_what_to_train_next(
    isocompute: Command, tmp_path: Path, command: str, kind: str
) -> None:
    lines = ok(isocompute(*shlex.split(command), "--output", "plan.json", columns=1000)).stdout.splitlines()
    approval = iso.Plan.load(tmp_path / "plan.json").approval
    assert approval is not None
    assert approval.kind == kind
    assert any(line.startswith("approval") and approval.label in line for line in lines)
    next_ = [line.split()[2] for line in lines if line.startswith("next: ")]
    assert next_ == [{"do-not": "next"}.get(kind, "launch")]
    if (kind, shlex.split(command)[0]) == ("do-not", "allocate"):
        # A campaign trains no such plan: it makes those runs.
        typed = Typed(tuple(shlex.split(command)), campaign="next: isocompute run s.yaml")
        *_, last = what_next(iso.Plan.load(tmp_path / "plan.json"), typed)
        assert last.endswith(": isocompute run s.yaml")
        assert "this plan" not in last
        warned = ok(isocompute("launch", "plan.json", "--model", "some/model")).stdout
        (words,) = re.findall(r"isocompute (next pilot.csv [^,\n]*)", warned)
        ok(isocompute(*shlex.split(words)))


@pytest.mark.parametrize("mode", ["expected", "conservative"])
def test_next_names_the_run_that_the_plan_says_to_make_first(isocompute: Command, tmp_path: Path, mode: str) -> None:
    runs = recorded("trl-sort").to_polars()
    runs.write_csv(tmp_path / "sort.csv")
    words = ("sort.csv", "--budget", "640k", "--mode", mode, "--json")
    plan, first = (json.loads(ok(isocompute(command, *words)).stdout) for command in ("allocate", "next"))
    assert plan["next_runs"]["runs"] == first["runs"]
    assert first["runs"]
    # What was not run is not planned then, so that no run can make it so.
    assert mode == "expected" or {run["group_size"] for run in first["runs"]} <= set(runs["group_size"])


def test_a_plan_that_gains_nothing_leads_to_its_page() -> None:
    plan = iso.Planner(iso.fit(recorded("trl-sort"), draws=80)).allocate("800k")
    assert plan.gains_nothing
    assert plan.gain is not None
    alone = replace(plan, gain=replace(plan.gain, run_to_go_on=None), next_runs=None)
    typed = Typed(("allocate", "sort.csv", "--budget", "800k"))
    for saved, page in ((None, "sort.csv --budget 800k"), (Path("p.json"), "p.json")):
        (line,) = what_next(alone, typed, saved)
        assert line.endswith(f": isocompute report {page}")


@pytest.mark.usefixtures("runs_csv")
@pytest.mark.parametrize("budget", ["3M", "10M"])
def test_where_nothing_is_run_first_next_ends_as_the_plan_does(isocompute: Command, budget: str) -> None:
    ends = [
        ok(isocompute(command, "my runs.csv", "--budget", budget, columns=1000)).stdout.splitlines()[-1]
        for command in ("allocate", "next")
    ]
    assert ends[0] == ends[1]
    assert ": isocompute " in ends[0]
    assert "'my runs.csv'" in ends[0]


@pytest.mark.parametrize(("sweep", "reached"), [("mul31-easy-3m", False), ("smollm2-hard", True)])
def test_commands_that_follow_from_each_other_keep_the_unit_and_end(
    isocompute: Command, sweep: str, reached: bool
) -> None:
    folders = (
        Path(iso.__file__).parent / "laws/data/sweeps",
        Path(iso.__file__).parents[1] / "benchmarks/data/smollm2",
    )
    (path,) = (found for folder in folders for found in folder.rglob(f"{sweep}.csv"))
    speed = ("--rollouts-per-second", "20", "--step-overhead-seconds", "15", "--usd-per-gpu-hour", "2.5", "--gpus", "8")
    command, asked = ["allocate", str(path), *speed, "--budget", "$60"], list[list[str]]()
    while command:
        assert command not in asked
        asked.append(command)
        lines = ok(isocompute(*command, columns=1000)).stdout.splitlines()
        typed = [
            line for line in lines if line.startswith(("next", "or, ", "to try it")) and ": isocompute allocate" in line
        ]
        command = shlex.split(typed[0].partition(": isocompute ")[2]) if typed and "--output" not in typed[0] else []
    rewards = [words for words in asked if "--for-reward" in words]
    # What no budget is expected to reach is not asked for.
    assert bool(rewards) == reached
    assert all(words[-2:] == ["--reward-unit", "usd"] for words in rewards)
    assert all(words[-1].endswith("usd") for words in asked[1:] if words not in rewards)


def test_what_is_true_of_many_runs_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    said = [("a", "samples unknown"), ("b", "samples unknown"), ("c", "damaged")]
    print_notes(iso.Note("some-code", "warning", f"run {run!r}: {text}", {"run_id": run}) for run, text in said)
    shown = capsys.readouterr().out
    assert [shown.count(text) for text in ("samples unknown", "same in 1 other run", "damaged")] == [1, 1, 1]


def test_which_of_several_metrics_decides_is_always_seen(isocompute: Command, pilot_csv: Path) -> None:
    pilot = pl.read_csv(pilot_csv.with_name("pilot.csv"))
    named = [pilot.with_columns(metric=pl.lit(name)) for name in ("val_hard", "val_math")]
    pl.concat(named).write_csv(pilot_csv.with_name("two.csv"))
    for command in (("allocate", "two.csv", "--budget", "10M"), ("audit", "two.csv")):
        unasked, asked = (ok(isocompute(*command, *more)).stdout for more in ((), ("--metric", "val_hard")))
        assert "val_math" in unasked.partition("metric-chosen")[2]
        assert "val_math" not in asked


def test_commands_about_the_table_that_was_read_name_it(isocompute: Command, tmp_path: Path) -> None:
    (tmp_path / "my chart.csv").write_text("Step,a - val/reward,b - val/reward\n0,0.1,0.1\n10,0.2,0.3\n20,0.3,0.4\n")
    refused = isocompute("allocate", "my chart.csv", "--budget", "3M")
    assert refused.returncode == 1
    (command,) = re.findall("`isocompute (doctor .*?)`", refused.stderr)
    ok(isocompute(*shlex.split(command)))


def test_a_model_that_no_framework_finds_is_asked_for(isocompute: Command, runs_csv: Path) -> None:
    named = pl.read_csv(runs_csv).with_columns(model=pl.lit("our-policy"))
    named.write_csv(runs_csv)
    last = ok(isocompute("allocate", runs_csv.name, "--budget", "10M", "-o", "plan.json", columns=1000))
    (command,) = re.findall("next: isocompute (launch .*)", last.stdout)
    assert isocompute(*shlex.split(command)).returncode == 1
    (runs_csv.parent / "our-policy").mkdir()
    ok(isocompute(*shlex.split(command.replace("NAME_OR_FOLDER", "our-policy"))))


@pytest.mark.parametrize(
    "limits",
    [
        "--max-rollouts-per-batch 64",
        "--problems-per-batch 32 --rollouts-per-batch 32",
        "--gpus 7 --rollouts-per-batch 64",
        "--rollouts-per-second 10 --step-overhead-seconds 20 --deadline 0.01",
        "--problems-per-batch 64 --n-problems 50",
    ],
)
def test_limits_that_leave_no_plan_name_a_value_that_does(isocompute: Command, limits: str) -> None:
    refused = isocompute("plan", "--budget", "3M", *shlex.split(limits))
    assert refused.returncode == 1
    (command,) = [line.partition(": isocompute ")[2] for line in refused.stderr.splitlines() if "  try: " in line]
    ok(isocompute(*shlex.split(command)))


def test_a_saved_plan_names_the_command_that_shows_its_script(isocompute: Command) -> None:
    named = screen(isocompute, "plan --published qwen2.5-7b-instruct/guru-math-easy --budget 3M -o 'a plan.json'")[-1]
    assert "--rollout.n_samples_per_prompt" in isocompute(*shlex.split(named.partition(": ")[2])[1:]).stdout


@pytest.mark.usefixtures("pilot_csv")
def test_what_the_screen_leaves_out_is_there_on_request(isocompute: Command, tmp_path: Path) -> None:
    words = ("allocate", "pilot.csv", "--budget", "10M")
    brief, whole, document = (isocompute(*words, *flag).stdout for flag in ((), ("-v",), ("--json",)))
    plan = json.loads(document)
    codes = [note["code"] for note in plan["notes"]]
    assert 0 < sum(code in brief for code in codes) < len(codes)
    assert all(code in whole for code in codes)
    order = [severity for line in whole.splitlines() for severity in ("warning", "info") if line.startswith(severity)]
    assert order == sorted(order, reverse=True)
    assert "backtest" in whole
    assert "backtest" not in brief
    # Python names arguments, a command its options.
    told = iso.Planner(iso.fit(iso.RunSet.read(tmp_path / "pilot.csv"))).allocate("10M").summary()
    assert "--recipe" in whole
    assert "recipe=" in told
    assert "--recipe" not in told


def test_commands_keep_what_was_typed_but_not_where_it_was_written() -> None:
    typed = Typed(("allocate", "my runs.csv", "--metric=avg@8", "--budget=3M", "-o", "a.json", "--plot=pics", "-v"))
    assert typed.saving() == "isocompute allocate 'my runs.csv' --metric=avg@8 --budget=3M --output plan.json"
    assert typed.asking("next") == "isocompute next 'my runs.csv' --metric=avg@8 --budget=3M"
    attached = Typed(("allocate", "runs.csv", "-oplan.json", "--update-steps", "90", "--rollouts-per-batch=512"))
    assert attached.asking("next") == "isocompute next runs.csv"
    planned = Typed(("plan", "--fits", "fits.json", "--budget", "3M", "--json"))
    assert planned.asking("next") == "isocompute next fits.json --budget 3M"
    borrowed = Typed(("plan", "--published", "some/law", "--budget", "3M", "--spend", "all"), own=False)
    assert borrowed.asking("next") == "isocompute next --published some/law --budget 3M --spend all"
    assert borrowed.asking("next", "next-1") == "isocompute next --budget 3M --spend all next-1"
    paid = Typed(("allocate", "runs.csv", "--spent", "pilot=335872", "--budget", "3M"))
    other = "--budget 731700 --spent pilot=335872"
    assert paid.instead(other) == f"isocompute allocate runs.csv {other}"


def test_an_audit_that_is_proposed_has_the_bounds_that_were_typed(tmp_path: Path) -> None:
    table = tmp_path / "runs.csv"
    table.touch()
    words = ["allocate", str(table), "--budget", "3M", "--metric", "score", "--bounds", "-1", "4", "--seed", "2"]
    about = f"{table} --metric score"
    assert filled("isocompute audit RUNS", words) == f"isocompute audit {about} --bounds -1 4"
    assert filled("isocompute doctor RUNS", words) == f"isocompute doctor {about}"
    # Of several metrics the first decides the plan.
    several = [*words, "--metric=other", "--eval-set", "math"]
    assert filled("isocompute forecast RUNS", several) == f"isocompute forecast {about} --bounds -1 4 --eval-set math"
    joined = ["fit", str(table), "--metric=score", "--metric", "other"]
    assert filled("isocompute doctor RUNS", joined) == f"isocompute doctor {table} --metric=score"


def test_a_plan_without_outlying_runs_follows_from_their_note(isocompute: Command, tmp_path: Path) -> None:
    rng, compute = np.random.default_rng(5), np.geomspace(5e3, 2e6, 30)
    rows = [
        f"n{n}-{seed},{n},{c:.0f},{0.4 + (0.1 + 0.02 * np.log2(n)) * -np.expm1(-c / 5e4) + off + noise:.4f}"
        for n, seed, off in ((n, seed, 0.2 * ((n, seed) == (8, 1))) for n in (4, 8, 16, 32, 64) for seed in (0, 1))
        for c, noise in zip(compute, rng.normal(0, 0.008, len(compute)), strict=True)
    ]
    (tmp_path / "runs.csv").write_text("\n".join(["run_id,n,C,avg@4", *rows]))
    plan = ("--budget", "1M", "--json")
    said = json.loads(ok(isocompute("allocate", "runs.csv", "--set", "bp=32", *plan)).stdout)["notes"]
    (note,) = [one for one in said if one["code"] == "outlying-run"]
    words = filled(note["message"], ["allocate", str(tmp_path / "runs.csv"), "--set", "bp=32"])
    command = re.search(r"isocompute (doctor .* --output (\S+\.csv))", words)
    assert command is not None
    ok(isocompute(*shlex.split(command[1])))
    table = pl.read_csv(tmp_path / command[2])
    table.filter(~pl.col("run_id").is_in([*note["data"]["runs"]])).write_csv(tmp_path / command[2])
    again = json.loads(ok(isocompute("allocate", command[2], *plan)).stdout)["notes"]
    assert "outlying-run" not in {one["code"] for one in again}


def test_a_fit_gives_one_answer_about_the_best_n(isocompute: Command, runs_csv: Path) -> None:
    ok(isocompute("fit", runs_csv.name, "--output", "fits.json"))
    changes = iso.Fits.load(runs_csv.parent / "fits.json").describe_handovers()
    assert changes not in ok(isocompute("fit", runs_csv.name, columns=400)).stdout


def test_brackets_in_names_are_shown_as_they_are(isocompute: Command, tmp_path: Path) -> None:
    rows = [f"{n},32,{c:g},{0.3 + 0.4 * c / (c + 2e4 * n**0.5):.4f}" for n in (8, 64) for c in (1e4, 5e4, 2e5, 1e6)]
    (tmp_path / "runs.csv").write_text("\n".join(["n,bp,C,value", *rows]) + "\n")
    words = ("fit", "runs.csv", "--metric", "accuracy[/easy]", "-o", "[bold].json")
    done = ok(isocompute(*words))
    assert "accuracy[/easy]" in done.stdout
    planned = ok(isocompute("plan", "--fits", "[bold].json", "--budget", "2M", "-o", "[red]plan.json"))
    assert "wrote [red]plan.json" in planned.stdout


@pytest.mark.parametrize(("saved", "one"), [(False, False), (True, False), (False, True)])
def test_a_fit_leads_to_a_plan_of_twice_the_largest_run(
    isocompute: Command, runs_csv: Path, *, saved: bool, one: bool
) -> None:
    """Also where one n was run."""
    output = ["--output", "fits.json"] if saved else []
    if one:
        runs = pl.read_csv(runs_csv)
        runs.filter(pl.col("group_size") == pl.col("group_size").max()).write_csv(runs_csv)
    shown = ok(isocompute("fit", runs_csv.name, "--metric", "avg@4", *output, columns=1000)).stdout
    (command,) = (line.removeprefix("next: ") for line in shown.splitlines() if line.startswith("next: "))
    plan = json.loads(ok(isocompute(*shlex.split(command)[1:], "--json")).stdout)
    largest = pl.read_csv(runs_csv)["rollouts"].max()
    assert isinstance(largest, int | float)
    assert plan["budget"]["rollouts"] == pytest.approx(2 * largest, rel=0.05)


def test_words_to_fill_in_are_said_to_be_so_once() -> None:
    said = with_words(["next: isocompute problems PROBLEMS.jsonl --label m --reward REWARD.py", "then: NEW_RUN"])
    assert len(said) == 3
    assert "capitals" in said[1]
    assert with_words(["next: isocompute allocate RUNS.csv"]) == ["next: isocompute allocate RUNS.csv"]
