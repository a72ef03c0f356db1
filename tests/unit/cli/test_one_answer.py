"""One run is told alike by every command: its peak, whether it fell, collapsed or never rose, whether it is a copy."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import numpy as np
import polars as pl
import pytest

from isocompute_sdk.health.findings import FALLS, FELL
from isocompute_sdk.records.reward_metrics import no_rise_note
from isocompute_sdk.reporting.material import Asked, gather
from isocompute_sdk.reporting.sections.first_screen import answer
from tests.parameters import few
from tests.processes import ok
from tests.unit.sweeps import simulated

Command = Callable[..., CompletedProcess[str]]
KEPT = {"collapse": 0.05, "decay": 0.5}
"""Share of the reward that a planted fall leaves."""


def with_falls(seed: int) -> pl.DataFrame:
    """A simulated sweep in which some runs fall, at once or slowly."""
    rng = np.random.default_rng(seed)
    frame = simulated(seed, first=400).filter(metric="avg@4").to_polars()
    parts: list[pl.DataFrame] = []
    for part in frame.partition_by("run_id", maintain_order=True):
        at = part["rollouts"].to_numpy() / float(part["rollouts"].to_numpy()[-1])
        fault, begin = rng.choice([*KEPT, "none"]), rng.uniform(0.3, 0.8)
        over = 0.05 if fault == "collapse" else 1.0 - begin
        lost = (1.0 - KEPT.get(str(fault), 1.0)) * np.clip((at - begin) / over, 0.0, 1.0)
        parts.append(part.with_columns(value=part["value"] * (1.0 - lost)))
    return pl.concat(parts)


def asked(isocompute: Command, command: str) -> dict[str, Any]:
    done = isocompute(command, "runs.csv", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    return found["fits"]["avg@4"] if command == "fit" else found


@pytest.mark.parametrize("seed", few(range(4), {3}))
def test_every_command_names_the_same_runs_that_fell_and_the_same_peaks(
    seed: int, isocompute: Command, tmp_path: Path
) -> None:
    with_falls(seed).write_csv(tmp_path / "runs.csv")
    status = {row["run_id"]: row for row in asked(isocompute, "status")["runs"]}
    told = {run: (row["fault"], row["fault_rollouts"]) for run, row in status.items() if row["fault"] is not None}
    audited = [run for group in asked(isocompute, "audit")["groups"] for run in group["runs"]]
    assert told == {run["run_id"]: (run["fault"], run["fault_rollouts"]) for run in audited if run["fault"] is not None}
    table = {
        line.split()[0]: line for line in ok(isocompute("audit", "runs.csv", columns=400)).stdout.splitlines() if line
    }
    assert all(FELL[fault] in table[run] for run, (fault, _) in told.items())
    every = asked(isocompute, "fit")["notes"]
    assert not [run for note in every if note["code"] == "ends-left-out" for run in note["data"]["runs"] if run in told]
    notes = [note for note in every if note["code"] in FALLS]
    noted = {run: (FALLS[note["code"]], at["rollouts"]) for note in notes for run, at in note["data"]["runs"].items()}
    assert told == noted
    causes = ""
    for finding in asked(isocompute, "doctor")["runs"]:
        fell = [problem for problem in finding["problems"] if any(word in problem for word in FELL.values())]
        assert len(fell) == (finding["name"] in told)
        for problem in fell:
            row = status[finding["name"]]
            assert FELL[row["fault"]] in problem
            assert f"(step {row['fault_step']:,.0f})" in problem
            # The command that the doctor sends to knows the fall.
            advice = finding["advice"][finding["problems"].index(problem)]
            sent = shlex.split(advice[advice.index("isocompute ") :].partition(" names ")[0])[1:]
            causes = causes or ok(isocompute(*sent, "--json")).stdout
            assert f"Run {finding['name']}: " in causes
    for forecast in asked(isocompute, "forecast")["forecasts"]:
        run = forecast["run_id"]
        assert forecast["rises"] == status[run]["rises"]
        if run in told:
            # Of the base model there is no checkpoint to keep.
            assert not told[run][1] or forecast["card"]["keep"]["rollouts"] == told[run][1]
            measured = dict(zip(forecast["evaluated"], forecast["measured"], strict=True))
            before = [value for at, value in measured.items() if at <= told[run][1]]
            assert measured[told[run][1]] == max(before)


def test_the_command_that_names_causes_shows_a_run_in_percent_that_lost_its_gain(
    isocompute: Command, tmp_path: Path
) -> None:
    values = [*np.linspace(20.0, 70.0, 15), *([1.0] * 10)]
    rows = [f"exp,8,32,{20 * i},{value + i % 2}" for i, value in enumerate(values)]
    (tmp_path / "runs.csv").write_text("\n".join(["run,n,bp,step,eval_acc", *rows]) + "\n")
    (finding,) = asked(isocompute, "doctor")["runs"]
    (command,) = [text.partition("isocompute ")[2] for text in finding["advice"] if "isocompute " in text]
    told = ok(isocompute(*shlex.split(command.partition(" names ")[0]))).stdout
    assert "collapsed-run" in told


def test_trouble_for_which_no_plan_is_approved_is_shown_by_doctor_and_status(
    isocompute: Command, tmp_path: Path
) -> None:
    steps = np.arange(0, 400, 10)
    rising = 0.3 + 0.3 * (1 - np.exp(-steps / 150))
    rows = [
        f"r{n},{n},8,{step},{value - n / 100},{5.0 if n == 8 and step > 200 else 0.001}"
        for n in (8, 16)
        for step, value in zip(steps, rising, strict=True)
    ]
    (tmp_path / "runs.csv").write_text("\n".join(["run,n,bp,step,avg@4,kl", *rows]) + "\n")
    plan = json.loads(ok(isocompute("allocate", "runs.csv", "--budget", "60k", "--json")).stdout)
    assert plan["approval"]["kind"] == "do-not"
    assert "kl-drift" in plan["approval"]["reason"]
    sick = {row["run_id"]: row["trouble"] for row in asked(isocompute, "status")["runs"]}
    assert sick == {"r8": ["kl-drift"], "r16": []}
    assert ok(isocompute("status", "runs.csv")).stdout.count("kl-drift") == 1
    told = {one["name"]: " ".join(one["problems"]) for one in asked(isocompute, "doctor")["runs"]}
    assert {name for name, problems in told.items() if "kl-drift" in problems} == {"r8"}


@pytest.mark.slow
def test_what_to_do_with_the_rest_follows_the_forecast_of_the_run(isocompute: Command, tmp_path: Path) -> None:
    with_falls(4).write_csv(tmp_path / "runs.csv")
    found = {one["card"]["action"]: one for one in asked(isocompute, "forecast")["forecasts"]}
    assert len(found) > 1
    for forecast in found.values():
        run, spent = forecast["run_id"], forecast["evaluated"][-1]
        rest = ("--run", run, "--remaining", str(round(spent)), "--json")
        advice = json.loads(ok(isocompute("forecast", "runs.csv", *rest)).stdout)
        assert advice["forecast"]["card"]["action"] == forecast["card"]["action"]
        assert advice["checkpoint"] == forecast["card"]["keep"]
        if forecast["card"]["action"] == "stop-here":
            assert advice["follow"] != "go-on"


def test_a_new_run_for_hours_that_are_left_is_the_plan_for_them(isocompute: Command, repository: Path) -> None:
    runs, speed = str(repository / "docs" / "examples" / "runs.csv"), ("--rollouts-per-second", "20", "--gpus", "8")
    told = ("--step-overhead-seconds", "1", *speed)
    plan = json.loads(ok(isocompute("allocate", runs, "--budget", "100 GPU-hours", *told, "--json")).stdout)
    rest = ("--run", "run-n8", "--remaining", "100 GPU-hours", *told)
    advice = json.loads(ok(isocompute("forecast", runs, *rest, "--json")).stdout)
    (new,) = (option for option in advice["options"] if option["name"] == "new-run")
    names = ("group_size", "problems_per_batch", "update_steps", "rollouts")
    assert [new[name] for name in names] == [plan[name] for name in names]
    assert isocompute("forecast", runs, *rest[:4]).returncode == 1
    assert isocompute("forecast", runs, "--gpus", "8").returncode == 1


def test_runs_that_together_do_not_rise_are_told_so_by_every_command(isocompute: Command, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    columns: dict[str, list[Any]] = {"n": [], "bp": [], "step": [], "avg@4": []}
    for n in (4, 8, 16, 32):
        # One of them rises by luck, as one in twenty does.
        noise = np.sort(rng.random(12)) if n == 32 else rng.random(12)
        columns["n"] += [n] * 12
        columns["bp"] += [8] * 12
        columns["step"] += [*range(12)]
        columns["avg@4"] += [*(0.3 + 0.05 * noise - 0.04 * (n < 32) * np.arange(12) / 12)]
    pl.DataFrame(columns).write_csv(tmp_path / "runs.csv")
    (remark,) = asked(isocompute, "doctor")["remarks"]
    assert not any(row["rises"] for row in asked(isocompute, "status")["runs"])
    assert remark in isocompute("status", "runs.csv").stdout
    for command in ("next", "allocate"):
        # The same question again has the same answer.
        said = isocompute(command, "runs.csv", "--budget", "100k").stdout
        assert "problems PROBLEMS.jsonl --label" in said
        assert "allocate runs.csv --budget 100k\n" not in said
    ok(isocompute("allocate", "runs.csv", "--budget", "100k", "--output", "plan.json"))
    refused = isocompute("launch", "plan.json", "--model", "x/y")
    assert refused.returncode == 1
    assert not (tmp_path / "launch.sh").exists()
    sizes = re.search("(--change group_size=.*)", refused.stderr)
    assert sizes is not None
    ok(isocompute("launch", "plan.json", "--model", "x/y", *re.sub("=[A-Z]+", "=8", sizes[0]).split()))
    (note,) = (note for note in asked(isocompute, "fit")["notes"] if note["code"] == "no-rise-seen")
    assert note["message"] == remark
    reasons = [one["card"]["reason"] for one in asked(isocompute, "forecast")["forecasts"]]
    # The lucky one does not stand alone; the others do not rise themselves.
    assert [reason == remark for reason in reasons] == [False, False, False, True]
    assert {*reasons} == {remark, no_rise_note("avg@4", 1).message}


def test_a_run_that_was_evaluated_late_rose_before(isocompute: Command, tmp_path: Path) -> None:
    step = np.arange(40)
    rising = 0.3 + 0.4 * (1.0 - np.exp(-step / 4)) + np.random.default_rng(3).normal(0, 0.01, 40)
    frame = pl.DataFrame({"n": 8, "bp": 8, "step": [*step, *step[25:]], "avg@4": [*rising, *rising[25:] + 0.02]})
    names = pl.DataFrame({"run_id": ["whole"] * 40 + ["late"] * 15})
    pl.concat([frame, names], how="horizontal").write_csv(tmp_path / "runs.csv")
    assert all(row["rises"] for row in asked(isocompute, "status")["runs"])
    assert all(one["rises"] for one in asked(isocompute, "forecast")["forecasts"])


@pytest.mark.parametrize("seeds", [pytest.param((None, None), marks=pytest.mark.slow), (0, 1)])
def test_a_copied_run_is_no_second_seed(
    seeds: tuple[int | None, int | None], isocompute: Command, tmp_path: Path
) -> None:
    frame = simulated(0).filter(metric="avg@4").to_polars().drop("seed")
    first = frame["run_id"][0]
    copy = frame.filter(pl.col("run_id") == first).with_columns(pl.lit("again").alias("run_id"))
    both = [frame.with_columns(seed=pl.lit(seeds[0], pl.Int64)), copy.with_columns(seed=pl.lit(seeds[1], pl.Int64))]
    frame.write_csv(tmp_path / "runs.csv")
    alone = asked(isocompute, "fit")
    pl.concat(both).write_csv(tmp_path / "runs.csv")
    fits = asked(isocompute, "fit")
    assert fits["passport"] == alone["passport"]
    (note,) = (note for note in fits["notes"] if note["code"] == "run-left-out")
    assert (note["data"]["run_id"], note["data"]["same_as"]) == ("again", first)
    assert note["message"] in isocompute("status", "runs.csv", columns=400).stdout
    assert "again" in {note["data"].get("run_id") for note in asked(isocompute, "audit")["notes"]}
    assert [one["name"] for one in asked(isocompute, "doctor")["runs"] if one["context_group"] is None] == ["again"]
    # One evaluation that differs makes two runs.
    other = copy.with_columns(value=pl.col("value").shift(1).fill_null(0.1))
    pl.concat([frame, other]).write_csv(tmp_path / "runs.csv")
    assert "again" in {row["run_id"] for row in asked(isocompute, "status")["runs"]}


def table(**rewards: Any) -> pl.DataFrame:
    """Runs of n = 8 and B_p = 8 by name, evaluated once a step from step 0."""
    parts = [
        pl.DataFrame({"run_id": run, "n": 8, "bp": 8, "step": [*range(len(values))], "avg@4": [*values]})
        for run, values in rewards.items()
    ]
    return pl.concat(parts)


def rising(seed: int, start: float = 0.2, rise: float = 0.5) -> Any:
    return start + rise * (1.0 - np.exp(-np.arange(30) / 6)) + np.random.default_rng(seed).normal(0, 0.01, 30)


def test_the_highest_evaluation_and_the_level_of_gains_are_told_apart(isocompute: Command, tmp_path: Path) -> None:
    spiked, at_the_end = rising(0), rising(1)
    spiked[20] += 0.1
    at_the_end[29] += 0.1
    table(a=spiked, b=at_the_end).write_csv(tmp_path / "runs.csv")
    plan = json.loads(ok(isocompute("allocate", "runs.csv", "--budget", "2k", "--json")).stdout)
    level = plan["gain"]["best"]
    assert level["fitted"]
    highest = max(run["reached"] for run in asked(isocompute, "audit")["groups"][0]["runs"])
    assert highest == pytest.approx(max(spiked.max(), at_the_end.max()))
    assert level["reward"] < highest - 0.03
    screens = {
        name: ok(isocompute(name, "runs.csv", *more, columns=400)).stdout
        for name, more in {"allocate": ("--budget", "2k"), "audit": (), "forecast": ("--run", "b")}.items()
    }
    assert f"{level['reward']:.3f} (fitted at" in screens["allocate"]
    for name in ("audit", "forecast"):
        assert "highest evaluation" in screens[name]
        assert f"{highest:.3f}" in screens[name]


def test_a_comparison_is_with_the_plan_that_is_printed(isocompute: Command, tmp_path: Path) -> None:
    table(a=rising(0), b=rising(1)).write_csv(tmp_path / "runs.csv")
    command = ("allocate", "runs.csv", "--budget", "100k")
    plan = json.loads(ok(isocompute(*command, "--json")).stdout)
    alone = ok(isocompute(*command, columns=400)).stdout
    assert plan["stopping"] is not None
    for n in (8, 16):
        against = (*command, "--against", f"n={n},bp=8")
        found = json.loads(ok(isocompute(*against, "--json")).stdout)["plan"]
        assert {name: found[name] for name in ("update_steps", "approval")} == {
            name: plan[name] for name in ("update_steps", "approval")
        }
        screen = ok(isocompute(*against, "-o", "plan.json", columns=400)).stdout
        lines, shown = ({" ".join(line.split()) for line in one.splitlines()} for one in (alone, screen))
        (comparison,) = (line for line in shown - lines if line.startswith("comparison"))
        # What differs is where the plan is saved, and so what comes next.
        assert {line for line in lines - shown if not line.startswith(("info ", "-v ", "next: ", "or, "))} == set()
        # The page of the saved plan compares with the same.
        labels = [fact.label for fact in answer(gather(tmp_path / "plan.json", Asked())).facts]
        assert any(f"today's n = {n}," in label for label in labels)
        assert (f"your n = {n}: " in comparison) == (n != 8)
        assert "equal rollouts" not in screen
        assert ("equal rollouts" in ok(isocompute(*against, "-v", columns=400)).stdout) == (n != 8)


def test_a_seed_that_fell_below_the_base_model_does_not_move_the_plan(isocompute: Command, tmp_path: Path) -> None:
    alive = {"a": rising(0), "b": rising(1)}
    for others in ({}, {"dead": [0.2, 0.4, *[0.0] * 28]}, {"dead": [0.2, *[0.05] * 29]}):
        table(**alive, **others).write_csv(tmp_path / "runs.csv")
        plan = json.loads(ok(isocompute("allocate", "runs.csv", "--budget", "5k", "--json")).stdout)
        assert plan["predicted_reward"] == pytest.approx(0.7, abs=0.03)
        assert [*plan["passport"]["ends_left_out"]] == [*others]


def test_a_run_that_never_rose_is_told_so_once_also_where_it_fell(isocompute: Command, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    flat, fell = 0.5 + rng.normal(0, 0.01, (2, 30))
    fell[10:] -= 0.3
    table(flat=flat).write_csv(tmp_path / "runs.csv")
    (row,) = asked(isocompute, "status")["runs"]
    assert not row["rises"]
    assert asked(isocompute, "forecast")["card"]["reason"] in isocompute("status", "runs.csv", columns=400).stdout
    assert "fitted" not in isocompute("forecast", "runs.csv", columns=400).stdout
    table(fell=fell).write_csv(tmp_path / "runs.csv")
    (row,) = asked(isocompute, "status")["runs"]
    assert (row["rises"], row["fault"]) == (False, "collapse" if fell[-1] < 0.35 * 0.5 else "decay")
    assert "not rise in" not in isocompute("status", "runs.csv", columns=400).stdout
    audit = isocompute("audit", "runs.csv", columns=400).stdout
    assert ["%" in line for line in audit.splitlines() if "no rise lasted" in line] == [False]
    assert "rise that the fit" not in audit
    assert "fitted" not in isocompute("forecast", "runs.csv", columns=400).stdout
