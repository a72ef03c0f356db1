"""Logs of frameworks through every command, and folders of odd names."""

from __future__ import annotations

import json
import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import polars as pl
import pytest

from isocompute_sdk.records import RunSet
from tests.parameters import few
from tests.processes import need, ok
from tests.unit.ingest.log_files import write_events, write_hydra, write_verl

Command = Callable[..., subprocess.CompletedProcess[str]]
LOGGERS = Path(__file__).parents[1] / "ingest" / "loggers"
SIZES = {"num_generations": 8, "per_device_train_batch_size": 8, "gradient_accumulation_steps": 4}
ARGUMENTS = {**SIZES, "steps_per_generation": 4, "generation_batch_size": 32}


def wandb_folder(folder: Path) -> None:
    need("wandb")
    subprocess.run([sys.executable, LOGGERS / "log_to_wandb.py", folder], capture_output=True, check=True)


def trainer_states(folder: Path) -> None:
    rows = [{"step": step, "reward": step / 100, "completions/mean_length": 9.0} for step in range(1, 31)]
    (folder / "trainer_state.json").write_text(json.dumps({"log_history": rows}))
    (folder / "args.json").write_text(json.dumps(ARGUMENTS))


def prime_rl(folder: Path) -> None:
    rows = [
        {
            "step": i,
            "progress/samples": 32,
            "progress/problems": 4,
            "progress/total_problems": 4 * i,
            "reward/mean": i / 99,
        }
        for i in range(30)
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def mlflow_database(folder: Path) -> None:
    """The columns that are read; a database that MLflow made itself is in test_mlflow.py."""
    with closing(sqlite3.connect(folder / "mlflow.db")) as connection, connection:
        connection.execute("CREATE TABLE runs (run_uuid TEXT, name TEXT, start_time INT, lifecycle_stage TEXT)")
        connection.execute("CREATE TABLE params (key TEXT, value TEXT, run_uuid TEXT)")
        columns = "key TEXT, value REAL, timestamp INT, run_uuid TEXT, step INT, is_nan INT"
        connection.execute(f"CREATE TABLE metrics ({columns})")
        connection.execute("INSERT INTO runs VALUES ('1', 'a', 0, 'active')")
        params = [(key, str(value), "1") for key, value in ARGUMENTS.items()]
        connection.executemany("INSERT INTO params VALUES (?, ?, ?)", params)
        tags = {"train/reward": 0.01, "train/frac_reward_zero_std": 0.0}
        rows = [(tag, rate * step, step, "1", step, 0) for tag, rate in tags.items() for step in range(1, 31)]
        connection.executemany("INSERT INTO metrics VALUES (?, ?, ?, ?, ?, ?)", rows)


def verl_file_log(folder: Path) -> None:
    lines = [{"step": i, "data": {"critic/score/mean": i / 100, "training/global_step": i}} for i in range(1, 31)]
    (folder / "run.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    write_hydra(folder, n=8, problems=4)


def openrlhf_events(folder: Path) -> None:
    tags = {"train/reward": lambda step: step / 100, "train/actor_lr": lambda step: 1e-6}
    write_events(folder / "ppo_1102", range(1, 31), tags)
    words = "python3 -m openrlhf.cli.train_ppo_ray --rollout_batch_size 4 --n_samples_per_prompt 8"
    (folder / "ppo_1102" / "train.sh").write_text(f"{words}\n")


FORMATS = {
    "wandb": wandb_folder,
    "states": trainer_states,
    "mlflow database": mlflow_database,
    "verl file log": verl_file_log,
    "openrlhf events": openrlhf_events,
    "prime-rl": prime_rl,
}
REWARD = ("--metric", "train_reward")


@pytest.mark.parametrize("format", few(FORMATS, {"prime-rl", "mlflow database", "verl file log"}))
def test_every_command_reads_it(tmp_path: Path, isocompute: Command, format: str) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    FORMATS[format](folder)
    found = json.loads(isocompute("doctor", folder, "--json").stdout)
    assert {(run["group_size"], run["problems_per_batch"]) for run in found["runs"]} == {("8", "4")}
    told = json.loads(isocompute("doctor", folder, "--json", "--output", "out.jsonl").stdout)
    assert {run["group_size"] for run in told["runs"]} == {8}
    assert max(run["rollouts"] for run in told["runs"]) == 32 * (20 if format == "wandb" else 30)
    now = json.loads(isocompute("status", folder, "--json").stdout)["runs"]
    assert {run["rollouts"] for run in now} == {run["rollouts"] for run in told["runs"]}
    watched = json.loads(isocompute("status", folder, "--once", "--json", "--watch").stdout.splitlines()[-1])
    assert (watched["runs"], watched["unreadable"]) == (len(told["runs"]), 0)
    audited = json.loads(isocompute("audit", folder, *REWARD, "--json").stdout)
    assert audited["metric"] == "train_reward"
    ok(isocompute("allocate", folder, *REWARD, "--budget", "100k"))


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """Two veRL runs that only their names tell apart, one with a broken tail, and a file that is no table."""
    folder = tmp_path / "logs"
    for n in (4, 16):
        run = folder / f"grpo_n{n}_bp32"
        run.mkdir(parents=True)
        lines = [
            json.dumps({"step": step, "data": {"val-core/gsm/acc/mean@4": 0.5 + step / 1000, **updated}})
            for step, updated in ((step, {"critic/score/mean": 0.5} if step else {}) for step in range(0, 60, 10))
        ]
        (run / "log.jsonl").write_text("\n".join([*lines, '{"step": 60, "da']))
    (folder / "broken.parquet").write_bytes(b"PAR1")
    return folder


def test_a_folder_of_odd_names_becomes_a_table_with_one_confirmation(
    isocompute: Command, logs: Path, tmp_path: Path
) -> None:
    target, table = tmp_path / "map.yaml", tmp_path / "runs.parquet"
    said = ok(isocompute("doctor", logs, "--output", target))
    assert str(target) in said.stdout
    refused = isocompute("doctor", "--map", target, "--output", table)
    assert refused.returncode == 1
    assert str(target) in refused.stderr
    assert not table.exists()
    text = target.read_text()
    target.write_text(text.replace("answer: null", "answer: right"))
    done = ok(isocompute("doctor", "--map", target, "--output", table, "--json"))
    document = json.loads(done.stdout)
    assert document["schema_version"] == 1
    assert {note["code"] for note in document["notes"]} == {"log-damaged", "files-not-read"}
    assert sorted(run["group_size"] for run in document["runs"]) == [4, 16]
    runs = RunSet.read(table)
    assert {run.rollouts_T[-1] for run in runs.series("avg@4", "gsm")} == {50 * 4 * 32, 50 * 16 * 32}


def test_the_doctor_fails_only_where_nothing_can_be_read(isocompute: Command, logs: Path, tmp_path: Path) -> None:
    folder = tmp_path / "damaged"
    folder.mkdir()
    (folder / "cut.parquet").write_bytes(b"PAR1")
    (folder / "empty.csv").write_bytes(b"")
    for options in ((), ("--json",)):
        said = isocompute("doctor", folder, *options)
        assert said.returncode == 1
        assert "empty.csv" in said.stdout
    assert len(json.loads(said.stdout)["runs"]) == 2
    ok(isocompute("doctor", folder, logs))


def test_what_is_printed_of_odd_names_stays_on_one_line_and_can_be_pasted(isocompute: Command, tmp_path: Path) -> None:
    folder = tmp_path / "my $runs"
    odd = folder / "n8_bp32\n\x1b[31m"
    odd.mkdir(parents=True)
    line = {"critic/score/mean": 0.5, "val-core/gsm/acc/mean@4": 0.5}
    (odd / "log.jsonl").write_text("".join(json.dumps({"step": i, "data": line}) + "\n" for i in range(5)))
    for name, bp in (("first", 32), ("second", 16)):
        (folder / f"{name}.csv").write_text(
            "run,n,bp,step,avg@4\n" + "".join(f"same,8,{bp},{i},0.{i}\n" for i in range(5))
        )
    said = isocompute("doctor", folder).stdout
    assert "\x1b" not in said
    assert [line for line in said.splitlines() if line.startswith("n8_bp32\\n\\x1b[31m")]
    assert re.findall(r"^(\w+)/same ", said, re.M) == ["first", "second"]
    assert f"isocompute doctor '{folder}' --output map.yaml" in said
    refused = isocompute("fit", odd / "log.jsonl").stderr
    assert "group_size" in refused
    assert "\x1b" not in refused


def test_a_run_without_n_is_left_out_of_a_table_of_runs_that_have_one(isocompute: Command, tmp_path: Path) -> None:
    write_verl(tmp_path / "a/plain.jsonl", range(31))
    write_verl(tmp_path / "b/said.jsonl", range(41))
    write_hydra(tmp_path / "b")
    written = ok(isocompute("doctor", "a", "b", "--output", "runs.csv")).stdout
    assert "plain left out" in " ".join(written.split())
    assert pl.read_csv(tmp_path / "runs.csv")["group_size"].unique().to_list() == [4]


def test_the_mapping_that_an_error_suggests_is_a_new_file_and_keeps_what_was_said(
    isocompute: Command, tmp_path: Path
) -> None:
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        for name, reward in (("a.csv", 0.2), ("b.csv", 0.3)):
            (tmp_path / folder / name).write_text(f"step,avg@4\n0,0.1\n10,{reward}\n")
    ok(isocompute("doctor", "one", "--output", "map.yaml"))
    refused = isocompute("allocate", "two", "--budget", "3M", "--set", "model=mine")
    (typed,) = re.findall(r"isocompute (doctor two .*?yaml)", refused.stderr)
    written = ok(isocompute(*typed.split()))
    assert "wrote map.yaml" not in written.stdout
    assert "model: mine" in (tmp_path / typed.split()[-1]).read_text()
