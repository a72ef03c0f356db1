"""`isocompute forecast`, with and without --remaining, on logs of several frameworks, pasted commands included."""

from __future__ import annotations

import csv
import json
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from isocompute_sdk import Forecast, Plan
from isocompute_sdk.planning import Replan
from isocompute_sdk.run_folders.run_journal import Journal
from tests.parameters import few
from tests.processes import ok
from tests.unit.ingest.log_files import verl_line, write_events, write_hydra

Command = Callable[..., subprocess.CompletedProcess[str]]
LAST = 1000
EVERY = 20
NOISE = np.random.default_rng(5).normal(0.0, 0.005, LAST + 1)


def reward(step: int) -> float:
    """Rises from .45 to .65 and falls by .12 from step 600 on."""
    return float(0.45 + 0.2 * (1 - np.exp(-step / 150)) - max(step - 600, 0) / 400 * 0.12 + NOISE[step])


def evaluated(step: int) -> float | None:
    return reward(step) if step % EVERY == 0 else None


def weights(folder: Path, *files: str) -> None:
    folder.mkdir(parents=True)
    for file in files:
        (folder / file).write_bytes(b"{}")


def as_csv(folder: Path) -> list[str]:
    folder.mkdir()
    with (folder / "log.csv").open("w", newline="") as lines:
        table = csv.writer(lines)
        table.writerow(["run_id", "step", "group_size", "problems_per_batch", "avg@4", "kl_coef", "entropy_coef"])
        table.writerows(["exp", step, 4, 32, reward(step), 0, 0] for step in range(0, LAST + 1, EVERY))
    for step in range(200, LAST + 1, 200):
        weights(folder / f"checkpoint-{step}", "config.json", "model.safetensors")
    return []


def as_verl(folder: Path) -> list[str]:
    write_hydra(folder, n=4, problems=32)
    lines: list[str] = []
    for step in range(EVERY, LAST + 1, EVERY):
        lines.append(verl_line(step, **{"val-core/gsm/acc/mean@4": reward(step)}))
    (folder / "log.jsonl").write_text("\n".join(lines) + "\n")
    for step in range(200, LAST + 1, 200):
        weights(folder / f"global_step_{step}" / "actor", "model_world_size_1_rank_0.pt")
    return []


def as_openrlhf(folder: Path) -> list[str]:
    tags = {"train/reward": reward, "eval/eval_math_pass1": evaluated, "eval/eval_math_pass4": evaluated}
    write_events(folder, range(1, LAST + 1), tags)
    for step in range(200, LAST + 1, 200):
        weights(folder / "checkpoints" / f"global_step{step}_hf", "config.json", "model.safetensors")
    return ["--set", "n=4", "--set", "problems_per_batch=32"]


def as_trl(folder: Path) -> list[str]:
    """What transformers saves beside each checkpoint."""
    rows: list[dict[str, float]] = []
    for step in range(EVERY, LAST + 1, EVERY):
        rows.append({"step": step, "reward": reward(step), "frac_reward_zero_std": 0.1})
        rows.append({"step": step, "eval_reward": reward(step)})
    for step in range(200, LAST + 1, 200):
        weights(folder / f"checkpoint-{step}", "config.json", "model.safetensors")
        state = {"global_step": step, "log_history": [row for row in rows if row["step"] <= step]}
        (folder / f"checkpoint-{step}" / "trainer_state.json").write_text(json.dumps(state))
    return ["--set", "n=4", "--set", "problems_per_batch=32", "--set", "eval_samples=4", "--set", "updates_per_batch=1"]


def as_torch(folder: Path) -> list[str]:
    """The journal of the built-in runner."""
    folder.mkdir()
    journal = Journal(folder / "metrics.jsonl", "exp", 1)
    journal.begin(resumed_step=None, group_size=4, problems_per_batch=32, seed=0, framework="torch", model="mine")
    for step in range(0, LAST + 1, EVERY):
        metrics = {"avg@4": reward(step)}
        journal.append("evaluation", step=step, rollouts=step * 128, tokens=0, eval_set="validation", metrics=metrics)
    journal.close()
    for step in range(200, LAST + 1, 200):
        weights(folder / f"checkpoint-{step}", "config.json", "model.safetensors")
    return []


FORMATS = {"csv": as_csv, "verl": as_verl, "openrlhf": as_openrlhf, "trl": as_trl, "torch": as_torch}


@pytest.mark.parametrize("format", few(FORMATS, {"csv", "verl"}))
def test_a_fall_is_found_in_the_logs_of_every_framework_and_the_commands_of_an_option_work_when_pasted(
    format: str, tmp_path: Path, isocompute: Command
) -> None:
    options = FORMATS[format](tmp_path / "exp")
    done = ok(isocompute("forecast", "exp", *options, "--json"))
    found = Forecast.from_dict(json.loads(done.stdout))
    assert found.rollouts == LAST * 4 * 32
    assert found.card.action == "stop-here"
    assert found.card.keep.path is not None
    assert found.card.keep.step == 600
    assert [one.factor for one in found.ahead] == [2.0, 4.0]
    asked = ("forecast", "exp", *options, "--remaining", "300k", "--follow", "halve-learning-rate")
    done = ok(isocompute(*asked, "--json", "-o", "replan.json"))
    replan = Replan.load(tmp_path / "replan.json")
    assert replan.checkpoint.step == 600
    assert replan.salvageable == 600 * 4 * 32
    if not options:
        # By a mapping too, which says where it searched.
        ok(isocompute("doctor", "exp", "--output", "map.yaml"))
        mapped = isocompute("forecast", "--map", "map.yaml", "--json")
        assert Forecast.from_dict(json.loads(mapped.stdout)).card.keep.path == found.card.keep.path
    *before, launch, start = json.loads(done.stdout)["commands"]
    assert [line.split()[2] for line in before] == (["verl.model_merger"] if format == "verl" else [])
    words = shlex.split(launch)
    assert words[words.index("--backend") + 1] == ("openrlhf" if format == "csv" else format)
    ok(isocompute(*words[1:]))
    script = tmp_path / start.removeprefix("bash ")
    model = words[words.index("--model") + 1]
    assert model in script.read_text(encoding="utf-8")
    assert "global_step" in model or "checkpoint-600" in model
    assert subprocess.run(["bash", "-n", str(script)], check=False).returncode == 0


def test_named_checkpoints_are_found_with_and_without_a_rest(tmp_path: Path, isocompute: Command) -> None:
    as_csv(tmp_path / "exp")
    log = (tmp_path / "exp" / "log.csv").rename(tmp_path / "log.csv")
    rows = log.read_text(encoding="utf-8").splitlines()
    log.write_text("\n".join([*rows, *(row.replace("exp,", "two,", 1) for row in rows[1:-1])]), encoding="utf-8")
    asked = ("forecast", "log.csv", "--run", "two", "--checkpoints", "exp", "--json")
    plain = json.loads(ok(isocompute(*asked)).stdout)["card"]["keep"]
    rest = json.loads(ok(isocompute(*asked, "--remaining", "300k")).stdout)["checkpoint"]
    assert plain == rest
    assert plain["path"] is not None


def test_a_picture_is_drawn_and_several_runs_get_one_each(tmp_path: Path, isocompute: Command) -> None:
    as_csv(tmp_path / "exp")
    text = (tmp_path / "exp" / "log.csv").read_text(encoding="utf-8")
    head, *rows = text.splitlines()
    (tmp_path / "both.csv").write_text("\n".join([head, *rows, *(row.replace("exp,", "two,", 1) for row in rows[:-1])]))
    ok(isocompute("forecast", "both.csv", "--to", "2x", "-o", "picture.png"))
    for name in ("picture_exp.png", "picture_two.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")
    asked = isocompute("forecast", "both.csv", "--remaining", "1M")
    assert asked.returncode == 1
    assert "--run" in asked.stderr


def test_many_runs_get_a_line_each_those_to_stop_first_and_one_without_the_metric_stops_nothing(
    isocompute: Command, tmp_path: Path
) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    steps = range(0, 400, EVERY)
    for name in range(6):
        slow = 2000 if name % 2 else 60
        rows = [
            f"{step},4,32,{0.4 + 0.01 * name + 0.3 * (1 - np.exp(-step / slow)) + NOISE[step]:.4f}" for step in steps
        ]
        (logs / f"run{name}.csv").write_text("\n".join(["step,n,bp,accuracy", *rows]) + "\n")
    (logs / "other.csv").write_text("step,n,bp,loss\n" + "".join(f"{step},4,32,0.5\n" for step in steps))
    asked = ("forecast", "logs", "--metric", "accuracy")
    forecasts = json.loads(ok(isocompute(*asked, "--json")).stdout)
    assert [*forecasts["left_out"]] == [str(Path("logs") / "other.csv")]
    actions = {one["run_id"]: one["card"]["action"] for one in forecasts["forecasts"]}
    assert len(actions) == 6
    lines = [line.split() for line in ok(isocompute(*asked)).stdout.splitlines()]
    told = [(line[-1], line[0]) for line in lines if line[-1] in actions]
    assert dict(told) == actions
    assert [action for _, action in told] == sorted(actions.values(), key=lambda action: action == "go-on")
    assert any(line[:2] == ["left", "out:"] for line in lines)
    whole = ok(isocompute(*asked, "-v")).stdout
    one = ok(isocompute(*asked, "--run", told[0][0])).stdout
    assert one.splitlines()[0] in whole


def test_of_runs_with_several_metrics_the_bounds_are_asked_for_one(tmp_path: Path, isocompute: Command) -> None:
    for name, metric, scale in (("a", "avg@4", -1.0), ("b", "train_reward", -3.0)):
        rows = [{"step": s, "n": 4, "bp": 32, metric: scale * (1 - reward(s))} for s in range(0, LAST + 1, EVERY)]
        (tmp_path / f"{name}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    refused = isocompute("forecast", "a.jsonl", "b.jsonl", "--json")
    assert refused.returncode == 1
    command = shlex.split(refused.stderr.rpartition("isocompute ")[2])
    assert json.loads(ok(isocompute(*command)).stdout)["metric"] == "avg@4"


def test_the_forecast_that_a_plan_prints_pools_what_it_pools_and_reads_its_evaluation_set(
    tmp_path: Path, isocompute: Command
) -> None:
    with (tmp_path / "runs.csv").open("w", newline="") as lines:
        table = csv.writer(lines)
        table.writerow(["run_id", "step", "n", "bp", "avg@4", "learning_rate", "eval_set"])
        for n, rate in ((4, 1e-6), (8, 3e-6), (16, 2e-6)):
            steps, sets = range(0, LAST // 2, EVERY), {"aime": 4, "math": 2}
            for name, part in sets.items():
                table.writerows([f"r{n}", step, n, 32, reward(step) / part + 0.01 * n, rate, name] for step in steps)
    asked = ("allocate", "runs.csv", "--budget", "60k", "--pool", "learning_rate", "--eval-set", "math")
    asked = (*asked, "--output", "plan.json")
    lines = ok(isocompute(*asked, columns=1000)).stdout.splitlines()
    best = Plan.load(tmp_path / "plan.json").gain
    assert best is not None
    (command,) = (line.partition("isocompute ")[2] for line in lines if "isocompute forecast runs.csv" in line)
    stop = json.loads(ok(isocompute(*shlex.split(command), "--json")).stdout)
    kept = stop["forecast"]["card"]["keep"]
    assert kept["reward"] == pytest.approx(best.best.reward, abs=1e-6)


@pytest.mark.parametrize(("problems", "asked"), [("validation", ()), ("gsm8k", ()), ("gsm8k", ("--eval-set", "gsm8k"))])
def test_runs_that_state_no_settings_are_used_by_the_forecast_that_launch_prints_and_else_it_says_so(
    tmp_path: Path, isocompute: Command, problems: str, asked: tuple[str, ...]
) -> None:
    with (tmp_path / "runs.csv").open("w", newline="") as lines:
        table = csv.writer(lines)
        table.writerow(["run_id", "step", "n", "bp", "avg@4", "eval_set"])
        for n in (4, 8, 16):
            steps = range(0, LAST // 2, EVERY)
            table.writerows([f"r{n}", step, n, 32, reward(step) - 0.01 * n, problems] for step in steps)
    ok(isocompute("allocate", "runs.csv", *asked, "--budget", "4M", "--spend", "all", "--output", "plan.json"))
    told = ok(isocompute("launch", "plan.json", "--model", "some/model", "--backend", "simulator")).stdout
    (printed,) = (line for line in told.splitlines() if "isocompute forecast runs.csv" in line)
    command = shlex.split(printed.partition("isocompute ")[2])
    (tmp_path / "runs/plan").mkdir(parents=True)
    rows = [f"new,{step},8,32,{reward(step) - 0.1},some/model,1e-6" for step in range(0, LAST // 4, EVERY)]
    (tmp_path / "runs/plan/log.csv").write_text("\n".join(["run_id,step,n,bp,avg@4,model,learning_rate", *rows]) + "\n")
    assert "not used" not in ok(isocompute(*command)).stdout
    at = command.index("unstated")
    alone = ok(isocompute(*command[: at - 1], *command[at + 1 :])).stdout
    (line,) = (line for line in alone.splitlines() if "not used" in line)
    assert "model and learning_rate" in line
    assert line.endswith("--pool unstated")
    table = (tmp_path / "runs.csv").read_text()
    for average in ("avg@?", "avg@16"):
        (tmp_path / "runs.csv").write_text(table.replace("avg@4", average))
        told = ok(isocompute(*command)).stdout
        assert "in the fit of 4 runs" in told
        assert "not used" not in told
    (tmp_path / "runs.csv").write_text(table.replace("avg@4", "eval/reward"))
    (line,) = (line for line in ok(isocompute(*command)).stdout.splitlines() if "not used" in line)
    option = shlex.split(line.rpartition(" add ")[2])
    assert "not used" not in ok(isocompute(*command, *option)).stdout


def test_the_table_of_runs_marks_rewards_that_are_no_fitted_ones(repository: Path, isocompute: Command) -> None:
    sweep = str(repository / "isocompute_sdk" / "laws" / "data" / "sweeps" / "trl-sort.csv")
    found = json.loads(ok(isocompute("forecast", sweep, "--json")).stdout)["forecasts"]
    rows = {
        line.split()[-1]: line.split() for line in ok(isocompute("forecast", sweep, columns=400)).stdout.splitlines()
    }
    off = {one["run_id"] for one in found if one["missed"] and one["rises"] and not one["lost"]}
    assert off
    assert {one["run_id"] for one in found if any(word.endswith("*") for word in rows[one["run_id"]])} == off
