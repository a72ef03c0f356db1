"""`isocompute next`: what to run first, and commands that work as printed."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from isocompute_sdk import Planner, RunSet, fit
from isocompute_sdk.cli.shared.new_runs import pooled
from isocompute_sdk.planning import PilotDesign
from isocompute_sdk.specs import load_study
from tests.processes import ok
from tests.unit.cli.test_commands import Command

Make = Callable[..., RunSet]
STUDY = """
name: small
model: simulated/easy
data: {train: train.jsonl, validation: validation.jsonl, reward: reward.py}
recipe: easy
sweep: {group_size: [8, 32], problems_per_batch: 32, rollouts: 40_960}
budget: 4M
backend: simulator
"""


def fit_runs(make_runs: Make, sizes: tuple[int, ...], longest: float, **context: object) -> RunSet:
    """Runs of which larger n rise later and higher."""
    rng = np.random.default_rng(0)
    compute = np.concatenate([[0.0], np.geomspace(1e4, longest, 16)])

    def noisy(n: int, bp: int, c: float) -> float:
        return float(0.35 + (0.08 + 0.03 * np.log2(n)) * -np.expm1(-c / (6e3 * n)) + 0.01 * rng.standard_normal())

    return make_runs(noisy, [(n, 32) for n in sizes], compute, model="some/model", **context)


def test_without_data_a_pilot_is_printed_and_its_commands_work(
    isocompute: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = ok(isocompute("next", "--budget", "3M", "--model", "some/model"))
    commands = [line for line in result.stdout.splitlines() if line.startswith("isocompute ")]
    assert len(commands) >= 4
    # The plan of the whole budget lies under its usual name.
    (tmp_path / "plan.json").write_text("mine")
    for line in commands:
        ok(isocompute(*shlex.split(line)[1:]))
    scripts = list(tmp_path.glob("next-*.sh"))
    assert len(scripts) == len(commands) - 1
    assert (tmp_path / "plan.json").read_text() == "mine"
    for script in scripts:
        # Without several evaluations no curve can be fitted to a run.
        text = script.read_text()
        steps = re.findall(r"update steps +M +(\d+)", text)[0]
        (every,) = re.findall(r"--eval\.steps (\d+)", text)
        assert int(steps) / int(every) > 6
    # Once these runs exist, the command for the next round reads them.
    (again,) = re.findall(r": isocompute (next .*next-1.*)$", result.stdout, re.MULTILINE)
    for number, line in enumerate(commands[1:], start=1):
        n, steps = (int(re.findall(rf"{name}=(\d+)", line)[0]) for name in ("group_size", "update_steps"))
        rows = [f"r{n},{n},32,{m},{0.3 + 0.1 * m / steps:.3f}\n" for m in range(0, steps + 1, 5)]
        (tmp_path / f"next-{number}").mkdir()
        (tmp_path / f"next-{number}" / "runs.csv").write_text("run,n,B_p,step,avg@4\n" + "".join(rows))
    # They are paid for.
    assert "--spent pilot=" in again
    ok(isocompute(*shlex.split(again)))


def test_a_study_gets_the_runs_that_were_named_and_those_that_it_has(
    isocompute: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "study.yaml").write_text(STUDY)
    printed = ok(isocompute("next", "study.yaml")).stdout
    ok(isocompute("next", "study.yaml", "--output", "design.json"))
    named = [run.allocation for run in PilotDesign.load("design.json").first.runs]
    (line,) = re.findall(r"^next: (.*)$", printed, re.MULTILINE)
    commands = [shlex.split(command)[1:] for command in line.split(" && ")]
    ok(isocompute(*commands[0]))
    first = load_study("next.yaml")
    assert list(first.runs) == named
    assert first.sweep is None
    ok(isocompute(*commands[1], "--dry-run", "--prepare"))
    # The sweep is paid beside the budget, so that nothing of it is spent; what has run stays in the study.
    ok(isocompute("run", "study.yaml"))
    ok(isocompute("next", "study.yaml", "--output", "next.yaml"))
    before, after = load_study("study.yaml"), load_study("next.yaml")
    assert after.sweep is None
    assert {run.run_id for run in before.expand()} <= {run.run_id for run in after.expand()}
    ok(isocompute("run", "next.yaml", "--dry-run"))


SPEED = "throughput: {step_overhead_seconds: 10, rollouts_per_second: 20, gpus: 8, usd_per_gpu_hour: 2.5}\n"


@pytest.mark.parametrize(("budget", "speed"), [("100k", ""), ("'$20'", SPEED)])
def test_a_study_without_runs_worth_their_cost_names_the_command_that_plans_its_budget(
    isocompute: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, budget: str, speed: str
) -> None:
    monkeypatch.chdir(tmp_path)
    short = STUDY.replace("4M", budget).replace("40_960", "20_480") + speed
    own = short.replace("recipe: easy", "recipe: {preset: easy, learning_rate_rule: linear}")
    (tmp_path / "study.yaml").write_text(own)
    for has_run in (False, True):
        printed = ok(isocompute("next", "study.yaml")).stdout
        refused = isocompute("next", "study.yaml", "--output", "next.yaml").stderr
        (command,) = re.findall(r"^next: isocompute (.*)$", printed, re.MULTILINE)
        assert command in refused
        planned = json.loads(ok(isocompute(*shlex.split(command), "--json")).stdout)
        assert (planned["verdict"]["kind"] == "borrowed") is not has_run
        assert planned["recipe"]["learning_rate_rule"] == "linear"
        if has_run:
            # The folder of its runs names the same command.
            assert f"next: isocompute {command}" in ok(isocompute("next", "runs/small")).stdout
        ok(isocompute("run", "study.yaml"))


def test_a_run_with_a_checkpoint_is_continued_and_without_one_trained_anew(
    isocompute: Command, make_runs: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    fit_runs(make_runs, (8, 32, 128, 512), 3e5).to_polars().write_csv("runs.csv")
    asked = ["next", "runs.csv", "--budget", "10M", "--slots", "4", "--model", "some/model"]
    runs = json.loads(isocompute(*asked, "--json").stdout)["runs"]
    continued = [run for run in runs if run["continues"] is not None]
    assert continued
    name = continued[0]["continues"]
    folder = tmp_path / "saved" / name / "checkpoint-2"
    folder.mkdir(parents=True)
    for file in ("config.json", "model.safetensors"):
        (folder / file).write_text("{}")

    def steps(lines: str) -> list[int]:
        found = [line for line in lines.splitlines() if line.startswith("isocompute launch")]
        return [int(line.split("update_steps=")[1].split()[0]) for line in found]

    anew, further = isocompute(*asked).stdout, isocompute(*asked, "--checkpoints", "saved").stdout
    assert steps(anew) == [run["update_steps"] for run in runs]
    at = runs.index(continued[0])
    assert steps(further)[at] == continued[0]["update_steps"] - 2
    assert str(folder) in further
    assert str(folder) not in anew
    # What the scripts cost is spent, also where one trains more than what was advised.
    for shown in (anew, further):
        batches = [run["group_size"] * run["problems_per_batch"] for run in runs]
        spent = sum(batch * some for batch, some in zip(batches, steps(shown), strict=True))
        assert re.findall(r"--spent pilot=(\d+)", shown) == [str(spent)]
    # Tokens are whole numbers.
    tokens = isocompute("next", "runs.csv", "--budget", "5B tokens", "--tokens-per-rollout", "500.0013").stdout
    assert re.search(r"--spent pilot=\d+( |$)", tokens, re.MULTILINE)


@pytest.mark.parametrize(("deadline", "slots"), [("60h", 1), ("60h", 2), ("Friday", 1)])
def test_hours_of_runs_made_first_are_off_a_deadline_that_is_no_day(
    isocompute: Command, make_runs: Make, tmp_path: Path, deadline: str, slots: int
) -> None:
    fit_runs(make_runs, (8, 128), 5e4).to_polars().write_csv(tmp_path / "runs.csv")
    speed = ["--rollouts-per-second", "100", "--gpus", "1", "--deadline", deadline, "--slots", str(slots)]
    asked = ["next", "runs.csv", "--budget", "10M", "--model", "some/model", *speed]
    runs = json.loads(isocompute(*asked, "--json").stdout)["runs"]
    assert len(runs) == slots
    shown = isocompute(*asked).stdout
    assert re.match(rf"deadline {deadline}: [\d.]+ hours", shown)
    again = shown.partition("when they have finished: ")[2].split("\n")[0]
    left = re.findall(r"--deadline (\S+)", again)
    hours = [run["group_size"] * run["problems_per_batch"] * run["update_steps"] / 360_000 for run in runs]
    if deadline == "Friday":
        assert left == ["Friday"]
    else:
        # Evaluations take up to a twentieth beside training, more of short runs.
        assert len(left) == 1
        assert max(hours) < 60 - float(left[0].removesuffix("h")) < 1.5 * max(hours) + 0.02


@pytest.mark.parametrize("backend", ["trl", "torch"])
def test_a_folder_whose_script_has_trained_nothing_names_that_script(
    isocompute: Command, make_runs: Make, tmp_path: Path, backend: str
) -> None:
    fit_runs(make_runs, (8, 128), 5e4).to_polars().write_csv(tmp_path / "runs.csv")
    Planner(fit(fit_runs(make_runs, (8, 128), 5e4))).allocate("10M").save(tmp_path / "plan.json")
    script = ("--backend", backend, "--output-dir", "next-1", "--script", "next-1.sh", "--model", "some/model")
    ok(isocompute("launch", "plan.json", *script))
    asked = ("next", "runs.csv", "next-1", "--budget", "10M")
    assert "bash next-1.sh" in isocompute(*asked).stderr
    if backend == "trl":
        # Its data are missing.
        subprocess.run(["bash", "next-1.sh"], cwd=tmp_path, env={**os.environ, "PYTHON": sys.executable}, check=False)
        (folder,) = (tmp_path / "next-1").iterdir()
    else:
        # As of a run that was interrupted at once.
        folder = tmp_path / "next-1" / "n8"
        folder.mkdir(parents=True)
        (folder / "attempts.jsonl").write_text('{"kind": "start", "attempt": 1}\n')
        os.utime(folder / "attempts.jsonl", (0, 0))
    refused = isocompute(*asked)
    assert refused.returncode == 1
    assert "bash next-1.sh" in refused.stderr
    assert str(folder.relative_to(tmp_path)) in isocompute("doctor", "next-1").stdout


@pytest.mark.parametrize(("rate", "differs"), [(1e-6, False), (2e-6, True)])
def test_a_second_learning_rate_is_pooled_where_no_rule_of_them_can_be_seen(
    make_runs: Make, rate: float, *, differs: bool
) -> None:
    fits = fit(fit_runs(make_runs, (8, 128), 5e4, learning_rate=1e-6), draws=4)
    assert ("learning_rate" in pooled(fits, [rate])) == differs


def test_a_script_that_reads_other_problems_than_the_runs_is_forecast_with_them_pooled(
    isocompute: Command, make_runs: Make, tmp_path: Path
) -> None:
    runs = fit_runs(make_runs, (8, 128), 5e4, train_data="task/train.jsonl")
    Planner(fit(runs, draws=4)).allocate("10M").save(tmp_path / "plan.json")
    for words, differs in (((), True), (("--train-data", "task/train.jsonl"), False)):
        shown = ok(isocompute("launch", "plan.json", "--model", "some/model", *words)).stdout
        forecast = next(line for line in shown.splitlines() if " --remaining " in line)
        assert ("--pool train_data" in forecast) is differs


def test_a_run_that_the_plan_names_is_not_taken_for_a_change_of_it(
    isocompute: Command, make_runs: Make, tmp_path: Path
) -> None:
    plan = Planner(fit(fit_runs(make_runs, (8, 128), 5e4))).allocate("10M")
    plan.save(tmp_path / "plan.json")
    assert plan.next_runs is not None
    assert plan.approval is not None
    run = plan.next_runs.runs[0]
    for n, is_told in ((run.group_size, False), (run.group_size // 2, True)):
        sizes = {"group_size": n, "problems_per_batch": run.problems_per_batch, "update_steps": run.update_steps}
        words = [word for name, value in sizes.items() for word in ("--change", f"{name}={value}")]
        shown = ok(isocompute("launch", "plan.json", "--model", "some/model", *words)).stdout
        assert (plan.approval.label in shown) == is_told


@pytest.mark.parametrize("framework", ["verl", "prime-rl"])
def test_commands_are_for_the_framework_that_made_the_runs(
    isocompute: Command, make_runs: Make, tmp_path: Path, framework: str
) -> None:
    runs = fit_runs(make_runs, (8, 128), 5e4, framework=framework)
    fit(runs, draws=60).save(tmp_path / "fits.json")
    result = isocompute("next", "fits.json", "--budget", "10M", "--slots", "2")
    launches = [line for line in result.stdout.splitlines() if line.startswith("isocompute launch ")]
    assert launches
    for line in launches:
        named = re.findall(r" --backend (\S+)", line)
        assert named == ([] if framework == "prime-rl" else [framework])


@pytest.mark.parametrize(
    ("data", "printed"),
    [
        ("gsm8k", "PROBLEMS.jsonl"),
        ("math.jsonl", "math.jsonl"),
        ("/d/math/train.parquet", "PROBLEMS.jsonl"),
        ("['/d/math/train.parquet']", "PROBLEMS.jsonl"),
        ("~/train.jsonl", "PROBLEMS.jsonl"),
    ],
)
def test_scripts_read_a_file_of_problems_also_where_the_runs_name_none_that_a_launch_accepts(
    isocompute: Command, make_runs: Make, tmp_path: Path, data: str, printed: str
) -> None:
    fit_runs(make_runs, (8, 128), 5e4, train_data=data).to_polars().write_csv(tmp_path / "runs.csv")
    shown = ok(isocompute("next", "runs.csv", "--budget", "10M"))
    (script,) = re.findall(r"^isocompute (launch .*--train-data (\S+).*)", shown.stdout, re.MULTILINE)
    assert script[1] == printed
    assert (f"# your runs call their training data {data}: " in shown.stdout) is (data != printed)
    assert ("isocompute problems" in shown.stdout) is (".parquet" in data)
    (saving,) = re.findall(r"^isocompute (allocate .*)", shown.stdout, re.MULTILINE)
    ok(isocompute(*shlex.split(saving)))
    ok(isocompute(*shlex.split(script[0])))
    # What the new runs record is the file, so that their data may differ.
    assert ("--pool train_data" in shown.stdout) is (data != printed)


def test_settings_that_the_runs_do_not_record_are_named_and_the_pilot_is_trained_with_what_is_given(
    make_runs: Make, isocompute: Command, tmp_path: Path
) -> None:
    rows = fit_runs(make_runs, (8, 16, 32, 64), 5e4).to_polars().select("run_id", "group_size", "step", "value")
    rows.rename({"value": "avg@4"}).write_csv(tmp_path / "runs.csv")
    names = "model,train_data,algorithm,learning_rate,kl_coef,entropy_coef,updates_per_batch,max_tokens"
    names += ",eval_temperature,eval_samples"
    said = "some/model,t.jsonl,grpo,5e-05,0,0,1,512,1,4"
    values = dict(zip(names.split(","), said.split(","), strict=True))
    printed = ok(isocompute("next", "runs.csv", "--set", "problems_per_batch=32", "--budget", "10M"))
    assert "unknown: the runs do not record model" in " ".join(printed.stdout.split())
    given = [word for name, value in values.items() for word in ("--set", f"{name}={value}")]
    known = ok(isocompute("next", "runs.csv", "--set", "problems_per_batch=32", "--budget", "10M", *given))
    (plan, launch, *_) = re.findall(r"^isocompute (allocate .*|launch .*)$", known.stdout, re.MULTILINE)
    ok(isocompute(*shlex.split(plan)))
    script = isocompute(*shlex.split(launch), "--dry-run")
    for flag in ("adam.lr 5e-05", "kl.init_coef 0", "max_new_tokens 512", "eval.temperature 1"):
        assert flag in script.stdout
    # The command needs nothing filled in: what the new runs record holds for those that say nothing.
    (again,) = re.findall(r": isocompute (next .*next-1.*)$", printed.stdout, re.MULTILINE)
    for number in range(1, len(re.findall(r"next-\d+", again)) + 1):
        (tmp_path / f"next-{number}").mkdir()
        lines = "".join(f"new-{number},64,{step},{0.35 + step / 1000},{said}\n" for step in range(0, 120, 8))
        (tmp_path / f"next-{number}" / "runs.csv").write_text(f"run,n,step,avg@4,{names}\n{lines}")
    second = ok(isocompute(*shlex.split(again))).stdout
    # The folders of the next round lie behind those of this one, and nothing is named twice.
    assert re.findall(r"--output-dir next-(\d+)", second) == ["2"]
    (third,) = re.findall(r": isocompute (next .*next-2.*)$", second, re.MULTILINE)
    assert third.count("--pool unstated") == third.count("next-1") == third.count("next-2") == 1


def test_new_runs_are_brought_to_the_scale_and_evaluation_set_of_the_runs_so_far(
    make_runs: Make, isocompute: Command, tmp_path: Path
) -> None:
    rows = fit_runs(make_runs, (8, 128), 5e4).to_polars()
    rows = rows.select("run_id", "group_size", "problems_per_batch", "rollouts", pl.col("value") * 100)
    sets = [rows.with_columns(eval_set=pl.lit(name)) for name in ("aime", "math")]
    pl.concat(sets).rename({"value": "avg@4"}).write_csv(tmp_path / "runs.csv")
    asked = ("next", "runs.csv", "--eval-set", "math", "--bounds", "0", "100", "--budget", "10M")
    (line,) = re.findall(r"^when .*next-1.*$", ok(isocompute(*asked)).stdout, re.MULTILINE)
    before, _, command = line.partition(": isocompute ")
    assert "by 100" in before
    for number in range(1, len(re.findall(r"next-\d+", command)) + 1):
        (tmp_path / f"next-{number}").mkdir()
        lines = "".join(f"new-{number},64,32,{step},{35 + step / 10}\n" for step in range(0, 120, 8))
        (tmp_path / f"next-{number}" / "runs.csv").write_text(f"run,n,B_p,step,avg@4\n{lines}")
    for words, left_out in ((command, False), (command.replace(" --pool eval_set", ""), True)):
        assert ("run-left-out" in ok(isocompute(*shlex.split(words))).stdout) is left_out


@pytest.mark.parametrize("mapped", [False, True])
def test_runs_with_a_reward_of_another_name_are_planned_with_the_new_ones_by_the_commands_that_are_printed(
    make_runs: Make, isocompute: Command, tmp_path: Path, mapped: bool
) -> None:
    rows = fit_runs(make_runs, (8, 128), 5e4).to_polars()
    rows = rows.select("run_id", "group_size", "problems_per_batch", "rollouts", "value")
    rows.rename({"value": "eval/reward"}).write_csv(tmp_path / "runs.csv")
    source = ["runs.csv"]
    if mapped:
        ok(isocompute("doctor", "runs.csv", "--output", "map.yaml"))
        source = ["--map", "map.yaml"]
    printed = ok(isocompute("next", *source, "--budget", "10M")).stdout
    after = re.findall(r"^(?:when they have finished|then): isocompute (.*)$", printed, re.MULTILINE)
    for number in range(1, len(re.findall(r"next-\d+", after[-1])) + 1):
        (tmp_path / f"next-{number}").mkdir()
        lines = "".join(f"new-{number},64,32,{step},{0.35 + step / 1000}\n" for step in range(0, 120, 8))
        (tmp_path / f"next-{number}" / "runs.csv").write_text(f"run,n,B_p,step,avg@4\n{lines}")
    for command in after:
        done = ok(isocompute(*shlex.split(command)))
    assert "only n = 64" not in done.stdout
