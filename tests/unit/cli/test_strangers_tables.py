"""Tables as strangers keep them, written by pandas: what the doctor says is next works when it is pasted."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from isocompute_sdk.errors import RecordError
from isocompute_sdk.ingest import RunMap, diagnose
from isocompute_sdk.ingest.stores.saved_config import translate
from isocompute_sdk.records import RunSet
from isocompute_sdk.records.asked import unasked
from tests.parameters import few
from tests.processes import ok
from tests.unit.ingest.log_files import write_hydra, write_verl

Command = Callable[..., subprocess.CompletedProcess[str]]
RUNS = [(n, seed) for n in (4, 8, 16, 32) for seed in (0, 1)]


def eight_runs(metric: str = "avg@4") -> pd.DataFrame:
    """Eight runs with 182 evaluations, in the words of a script of one's own."""
    rng = np.random.default_rng(0)
    rows = [
        {
            "experiment": f"exp_{i}",
            "num_generations": n,
            "prompts_per_step": 16,
            "step": step,
            metric: round(0.2 + 0.4 * -np.expm1(-step * n * 16 / 3e4) + rng.normal(0, 0.01), 4),
            "entropy": round(1 - step / 400, 4),
        }
        for i, (n, _) in enumerate(RUNS)
        for step in range(0, 230 if i < 6 else 220, 10)
    ]
    return pd.DataFrame(rows)


def nested(row: dict[str, object]) -> str:
    """One line of a log with its settings in an object of their own."""
    settings = {name: row.pop(name) for name in ("num_generations", "prompts_per_step")}
    return json.dumps({"config": settings, **row, "eval": {"length": 90 + 3 * int(str(row["step"]))}}) + "\n"


WAYS: dict[str, Callable[[pd.DataFrame, Path], object]] = {
    "plain.csv": lambda table, path: table.to_csv(path, index=False),
    "index.csv": lambda table, path: table.to_csv(path),
    "other-spelling.csv": lambda table, path: table.rename(
        columns={"experiment": "Run Name", "num_generations": "Num Generations", "step": "Global Step"}
    ).to_csv(path, index=False),
    "verl-words.csv": lambda table, path: table.rename(
        columns={"num_generations": "rollout.n", "prompts_per_step": "train_batch_size", "step": "global_step"}
    ).to_csv(path, index=False),
    "batch.csv": lambda table, path: (
        table.assign(generation_batch_size=table["num_generations"] * 16)
        .drop(columns="prompts_per_step")
        .to_csv(path, index=False)
    ),
    "wandb-table.csv": lambda table, path: (
        table.rename(columns={"experiment": "Name"})
        .assign(State="finished", Created="2026-01-01T10:00:00Z", Tags="")
        .to_csv(path, index=False)
    ),
    "two-steps.csv": lambda table, path: table.assign(_step=7 * table["step"]).to_csv(path, index=False),
    "letters.csv": lambda table, path: table.rename(
        columns={"num_generations": "G", "prompts_per_step": "batch_size", "step": "iteration"}
    ).to_csv(path, index=False),
    "labels.csv": lambda table, path: table.rename(
        columns={"experiment": "Experiment Label", "num_generations": "Group Size", "step": "Update"}
    ).to_csv(path, index=False),
    "percents.csv": lambda table, path: table.assign(**{"avg@4": table["avg@4"].map("{:.2%}".format)}).to_csv(
        path, index=False
    ),
    "settings.csv": lambda table, path: table.assign(gpus=8, warmup=table["num_generations"] * 2).to_csv(
        path, index=False
    ),
    "schedule.csv": lambda table, path: table.assign(lr=1e-6 * (1 - table["step"] / 300)).to_csv(path, index=False),
    "indexed.parquet": lambda table, path: table.set_index(["experiment", "step"]).to_parquet(path),
    "records.json": lambda table, path: table.to_json(path, orient="records"),
    "nested.jsonl": lambda table, path: path.write_text("".join(map(nested, table.to_dict("records")))),
    "records.jsonl": lambda table, path: table.to_json(path, orient="records", lines=True),
}


def next_of(done: subprocess.CompletedProcess[str]) -> list[str]:
    """The words of the command that was printed as next, without `isocompute`."""
    found = re.findall(r"^(?:next|  try): isocompute (.*)$", done.stdout + done.stderr, re.MULTILINE)
    assert len(found) == 1, done.stdout + done.stderr
    return shlex.split(found[0])


def endings(done: subprocess.CompletedProcess[str]) -> int:
    """How many of the three endings the doctor printed."""
    return len(re.findall(r"^(?:ready|question|error: not usable):", done.stdout + done.stderr, re.MULTILINE))


@pytest.mark.parametrize("name", few(WAYS, {"letters.csv", "percents.csv", "nested.jsonl", "indexed.parquet"}))
def test_what_the_doctor_says_is_next_reads_eight_runs(isocompute: Command, tmp_path: Path, name: str) -> None:
    table = eight_runs()
    WAYS[name](table, tmp_path / name)
    done = isocompute("doctor", name)
    assert (done.returncode, endings(done)) == (0, 1), done.stderr
    words = next_of(done)
    if words[0] == "doctor" and "--output" not in words:
        done = isocompute(*words)
        assert (done.returncode, endings(done)) == (0, 1), done.stderr
        words = next_of(done)
    ok(isocompute(*words))
    if words[0] == "fit":
        ok(isocompute("doctor", *words[1:], "--output", "runs.parquet"))
    runs = RunSet.read(tmp_path / ("runs.parquet" if words[0] == "fit" else words[-1]))
    assert len(runs.run_ids) == 8
    assert sorted(info.group_size for info in runs.runs()) == sorted(n for n, _ in RUNS)
    series = runs.series("avg@4")
    assert sum(len(one.value_T) for one in series) == len(table) == 182
    assert {one.rollouts_T[-1] for one in series} == {210 * 32 * 16.0, *(220 * n * 16.0 for n in (4, 8, 16))}
    assert np.concatenate([one.value_T for one in series]) == pytest.approx(table["avg@4"].to_numpy())


def test_every_command_takes_the_same_words_for_columns(isocompute: Command, tmp_path: Path) -> None:
    WAYS["letters.csv"](eight_runs("accuracy"), tmp_path / "t.csv")
    words = ["--rename", "G=n", "--rename", "iteration=step", "--set", "seed=0", "--ignore", "batch_size"]
    words += ["--set", "problems_per_batch=16", "--metric", "accuracy"]
    for command in ("doctor", "doctor --output x.csv", "status", "audit", "fit", "status --watch --once"):
        name, *more = command.split()
        done = ok(isocompute(name, "t.csv", *more, *words))
        if command == "status":
            assert done.stdout.count(" step     220 ") == 6
            assert done.stdout.count(" step     210 ") == 2
    done = ok(isocompute("allocate", "t.csv", *words, "--budget", "100k", "--json"))
    wrong = [word.replace("iteration", "iteratoin") for word in words]
    for command in ("doctor", "doctor --output x.csv", "status", "audit", "fit", "status --watch --once"):
        name, *more = command.split()
        done = isocompute(name, "t.csv", *more, *wrong)
        assert done.returncode == 1
        assert "iteratoin" in done.stderr
        assert "'iteration'" in done.stderr, command


def test_a_measurement_of_speed_reads_tables_of_strangers(isocompute: Command, tmp_path: Path) -> None:
    table = eight_runs("accuracy").assign(
        took=lambda rows: 20 + rows["num_generations"] * 16 / 10 + rows["step"] % 3 / 100
    )
    WAYS["letters.csv"](table, tmp_path / "t.csv")
    words = ["--rename", "G=n", "--rename", "iteration=step", "--rename", "batch_size=bp"]
    done = ok(isocompute("doctor", "--speed", "t.csv", *words, "--gpus", 1, "--seconds", "took", "--json"))
    measured = json.loads(done.stdout)
    assert measured["step_overhead_seconds"] == pytest.approx(20, rel=0.1)
    assert measured["rollouts_per_second"] == pytest.approx(10, rel=0.1)
    refused = isocompute("doctor", "--speed", "t.csv", "--gpus", 1, "--seconds", "took")
    assert refused.returncode == 1
    assert "--rename G=group_size" in refused.stderr


def test_plain_names_of_time_and_length_are_read_and_other_ones_are_named(isocompute: Command, tmp_path: Path) -> None:
    rows = ["run,n,bp,step,avg@4,seconds_per_step,tokens_per_rollout,num_tokens,gpus"]
    rows += [
        f"{n},{n},32,{step},{0.6 - 0.4 * np.exp(-n * step / 2000):.4f},{6 + 0.4 * n},600,{n * 32 * step * 700},8xH100"
        for n in (8, 32)
        for step in range(0, 220, 20)
    ]
    (tmp_path / "t.csv").write_text("\n".join(rows) + "\n")
    shown = ok(isocompute("doctor", "t.csv")).stdout
    assert "num_tokens" in shown
    assert "seconds_per_step" not in shown
    plan = json.loads(ok(isocompute("allocate", "t.csv", "--budget", "1B tokens", "--deadline", 900, "--json")).stdout)
    assert plan["throughput"]["tokens_per_rollout"] == 600
    assert plan["throughput"]["step_overhead_seconds"] == pytest.approx(6)
    refused = isocompute("doctor", "t.csv", "--speed", "--gpus", 16)
    assert refused.returncode == 1
    assert "8 GPUs" in refused.stderr
    assert "on 8 GPUs" in ok(isocompute("doctor", "t.csv", "--speed", "--gpus", 8)).stdout


def test_a_missing_column_is_answered_with_the_command_that_works(isocompute: Command, tmp_path: Path) -> None:
    WAYS["letters.csv"](eight_runs(), tmp_path / "t.csv")
    refused = isocompute("fit", "t.csv", "--draws", 20)
    assert refused.returncode == 1
    ok(isocompute(*next_of(refused)))
    # A question that can do without n and B_p gets the same names of columns.
    words = next_of(isocompute("status", "t.csv"))
    assert words[2:] == next_of(refused)[4:]
    assert "isocompute doctor" not in ok(isocompute(*words)).stdout
    lacking = ok(isocompute("status", "t.csv", "--rename", "iteration=step", "--rename", "G=n")).stdout
    asked = lacking.splitlines()[-1].partition("isocompute ")[2]
    assert next_of(isocompute(*shlex.split(asked)))[-1] == "batch_size=problems_per_batch"
    absent = isocompute("audit", "t.csv", *next_of(refused)[2:], "--metric", "avg@5")
    assert absent.returncode != 0
    for wrong in (0, 7.5, "2 nodes x 8 H100"):
        eight_runs().assign(gpus=wrong).to_csv(tmp_path / "gpus.csv", index=False)
        refused = isocompute("fit", "gpus.csv", "--draws", 20)
        assert f"{wrong}" in refused.stderr
        ok(isocompute(*next_of(refused)))
    # The doctor asks about the same columns.
    odd = {"num_generations": "samples/prompt", "prompts_per_step": "qs per batch"}
    eight_runs().rename(columns=odd).to_csv(tmp_path / "odd.csv", index=False)
    fit, doctor = (next_of(isocompute(command, "odd.csv")) for command in ("fit", "doctor"))
    assert doctor[1:] == fit[1:]
    assert ok(isocompute(*doctor)).stdout.splitlines()[-1].startswith("next: isocompute fit odd.csv")
    # Runs without n: the column of B_p is kept, and n alone is asked for.
    eight_runs().rename(columns=odd).drop(columns="samples/prompt").to_csv(tmp_path / "unsized.csv", index=False)
    doctor = next_of(isocompute("doctor", "unsized.csv"))
    assert doctor[1:] == ["unsized.csv", "--rename", "qs per batch=problems_per_batch"]
    assert "what is n of" in ok(isocompute(*doctor)).stdout
    assert "next:" not in isocompute("fit", "unsized.csv").stderr


def test_a_metric_that_is_absent_is_an_error_with_the_command_that_works(isocompute: Command, tmp_path: Path) -> None:
    eight_runs("accuracy").to_csv(tmp_path / "t.csv", index=False)
    for command, more in (("fit", ["--draws", 20]), ("audit", [])):
        refused = isocompute(command, "t.csv", "--metric", "avg@4", *more)
        assert refused.returncode == 1
        assert "accuracy" in refused.stderr
        words = next_of(refused)
        assert words[-2:] == ["--metric", "accuracy"]
        assert words.count("--metric") == 1
        ok(isocompute(*words))


def training_only(folder: Path) -> None:
    """The rows that TRL's trainer keeps, of three runs, with n and B_p beside them."""
    rng = np.random.default_rng(1)
    rows = [
        {
            "run": f"r{n}",
            "num_generations": n,
            "prompts_per_step": 16,
            "global_step": step,
            "reward": 0.2 + 0.3 * -np.expm1(-step * n / 800) + rng.normal(0, 0.02),
            "rewards/format_reward": 0.9,
            "epoch": step / 50,
            "clipped_share": 0.2 - 0.0005 * step,
            "completion_length": 200.0 + step,
            "learning_rate": 1e-6 * (1 - step / 200),
        }
        for n in (4, 8, 16)
        for step in range(1, 100)
    ]
    pd.DataFrame(rows).to_csv(folder / "t.csv", index=False)


def test_without_an_evaluation_the_training_reward_is_used_with_a_warning(isocompute: Command, tmp_path: Path) -> None:
    training_only(tmp_path)
    words = ["doctor", "t.csv"]
    for _ in range(2):
        done = ok(isocompute(*words))
        words = next_of(done)
    assert words[words.index("--metric") + 1] == "train_reward"
    done = ok(isocompute(*words))
    for command, more in (("audit", []), ("fit", ["--draws", 20]), ("allocate", ["--budget", "100k", "-v"])):
        done = ok(isocompute(command, "t.csv", *more))
        assert "training-reward-only" in done.stdout, command
    for absent in ("avg@4", "accuracy"):
        refused = isocompute("fit", "t.csv", "--metric", absent)
        assert refused.returncode == 1
        assert "train_reward" in refused.stderr


def test_a_page_without_a_plan_shows_the_training_reward_and_ends_with_the_command_that_works(
    isocompute: Command, tmp_path: Path
) -> None:
    training_only(tmp_path)
    table = pd.read_csv(tmp_path / "t.csv")
    rewards = 3 * table.pop("reward")
    table.assign(train_reward=rewards).to_csv(tmp_path / "t.csv", index=False)
    done = ok(isocompute("report", "t.csv", "--ignore", "epoch"))
    page = (tmp_path / "report.html").read_text()
    assert "metric train_reward" in page
    assert f"{rewards.max():.3f}" in page
    words = [{"LOW": "0", "HIGH": "3"}.get(word, word) for word in next_of(done)]
    assert "next:" not in ok(isocompute(*words)).stdout


@pytest.mark.parametrize(
    ("beside", "every", "metric", "code"),
    [
        ((), 10, "reward", "column-assumed"),
        (("entropy",), 10, "train_reward", "column-assumed"),
        ((), 1, "train_reward", "column-assumed"),
    ],
)
def test_a_reward_without_a_name_is_what_stands_beside_it_says(
    isocompute: Command, tmp_path: Path, beside: tuple[str, ...], every: int, metric: str, code: str
) -> None:
    table = eight_runs("reward").assign(step=lambda rows: rows["step"] * every // 10)
    table[["experiment", "num_generations", "prompts_per_step", "step", "reward", *beside]].to_csv(
        tmp_path / "t.csv", index=False
    )
    document = json.loads(isocompute("fit", "t.csv", "--draws", 20, "--json").stdout)
    (fits,) = document["fits"].values()
    assert fits["metric"] == metric
    messages = {note["code"]: note["message"] for note in fits["notes"]}
    codes = list(messages)
    # The remedy is for the other case.
    assert ("--rename reward=avg@4" in messages[code]) == (metric == "train_reward")
    assert ("training-reward-only" in codes) == (metric == "train_reward")
    named = json.loads(isocompute("audit", "t.csv", "--metric", "avg@8", "--json").stdout)
    assert (named["metric"], named["eval_set"]) == ("avg@8", "validation")


@pytest.mark.parametrize("name", few(["train/reward", "train_reward", "rollout/mean_reward"], 1))
def test_a_training_reward_under_any_name_is_no_evaluation(isocompute: Command, tmp_path: Path, name: str) -> None:
    eight_runs(name).assign(gpu_util=lambda rows: rows["step"] / 300).to_csv(tmp_path / "t.csv", index=False)
    document = json.loads(isocompute("audit", "t.csv", "--json").stdout)
    assert (document["metric"], document["eval_set"]) == (name, "train")
    (note,) = (one for one in document["notes"] if one["code"] == "training-reward-only")
    assert not note["data"]["asked"]


def test_one_percent_among_other_cells_is_no_number(tmp_path: Path) -> None:
    table = eight_runs().astype({"avg@4": str})
    table.loc[3, "avg@4"] = "20%"
    table.to_csv(tmp_path / "t.csv", index=False)
    with pytest.raises(RecordError, match=r"t\.csv:5.*'20%'"):
        RunSet.read(tmp_path / "t.csv")


def test_a_table_of_several_seeds_without_a_known_name_of_the_run_is_parted_by_what_tells_rows_apart(
    isocompute: Command, tmp_path: Path
) -> None:
    table = eight_runs().assign(seed_number=[RUNS[int(name[4:])][1] for name in eight_runs()["experiment"]])
    table.drop(columns="experiment").to_csv(tmp_path / "t.csv", index=False)
    refused = isocompute("fit", "t.csv", "--draws", 20)
    assert next_of(refused)[-2:] == ["--rename", "seed_number=seed"]
    ok(isocompute(*next_of(refused)))


def test_among_columns_whose_names_say_nothing_the_command_asks(isocompute: Command, tmp_path: Path) -> None:
    eight_runs("zeta").assign(eta=lambda rows: rows["step"] / 300).to_csv(tmp_path / "t.csv", index=False)
    for command in ("fit", "audit"):
        refused = isocompute(command, "t.csv")
        assert refused.returncode == 1
        assert "eta" in refused.stderr
        assert "zeta" in refused.stderr
    done = isocompute("doctor", "t.csv")
    assert (done.returncode, endings(done)) == (0, 1)
    # The other only ever rises, as a clock does.
    assert next_of(done)[-2:] == ["--metric", "zeta"]
    done = isocompute("doctor", "t.csv", "--metric", "zeta")
    assert next_of(done)[-2:] == ["--metric", "zeta"]
    ok(isocompute(*next_of(done), "--draws", 20))


def test_a_table_that_says_neither_n_nor_problems_is_one_question_and_a_map_of_a_minute(
    isocompute: Command, tmp_path: Path
) -> None:
    eight_runs().drop(columns=["num_generations", "prompts_per_step"]).to_csv(tmp_path / "t.csv", index=False)
    done = isocompute("doctor", "t.csv")
    assert (done.returncode, endings(done)) == (0, 1)
    done = ok(isocompute(*next_of(done)))
    mapping = RunMap.load(tmp_path / "map.yaml")
    assert {question.field for question in mapping.questions.values()} == {"group_size", "problems_per_batch"}
    refused = isocompute(*next_of(done))
    assert refused.returncode == 1
    runs = {f"exp_{i}": mapping.runs[f"exp_{i}"].replace(group_size=n) for i, (n, _) in enumerate(RUNS)}
    answered = {
        name: one.replace(answer=16 if one.field == "problems_per_batch" else None)
        for name, one in mapping.questions.items()
    }
    mapping.replace(runs=runs, questions=answered).save(tmp_path / "map.yaml")
    looked = isocompute("doctor", "--map", "map.yaml")
    assert (looked.returncode, endings(looked)) == (0, 1), looked.stdout
    assert next_of(looked) == next_of(done)
    done = ok(isocompute(*next_of(done)))
    assert RunSet.read(tmp_path / "runs.parquet").runs()[-1].rollouts == 210 * 32 * 16
    for command in ("audit", "fit", "status", "status --watch --once"):
        name, *more = command.split()
        done = ok(isocompute(name, "--map", "map.yaml", *more))


def test_what_needs_neither_n_nor_problems_works_without(isocompute: Command, tmp_path: Path) -> None:
    table = eight_runs().drop(columns=["num_generations", "prompts_per_step"])
    fall = table["step"].map(lambda step: 0.2 + min(step, 100) * 0.004 - max(step - 100, 0) * 0.005)
    fall += 1e-5 * table.groupby("experiment").ngroup()
    table.assign(**{"avg@4": fall}).to_csv(tmp_path / "t.csv", index=False)
    watched = ok(isocompute("status", "t.csv", "--once", "--json", "--watch"))
    assert '"rollouts": null' in watched.stdout
    assert "collapsed-run" in watched.stdout
    assert ok(isocompute("status", "t.csv")).stdout.count("0.600 (step 100)") == 8
    ok(isocompute("doctor", "t.csv", "--output", "runs.csv"))
    written = pd.read_csv(tmp_path / "runs.csv")
    assert "group_size" not in written
    assert written["run_id"].nunique() == 8
    ok(isocompute("fit", "runs.csv", "--set", "n=8", "--set", "bp=16", "--draws", 20))


def test_rows_without_a_name_are_told_apart_by_configuration_and_refused_where_they_repeat(tmp_path: Path) -> None:
    table = eight_runs().drop(columns="experiment")
    table.sort_values(["step", "num_generations"], kind="stable").drop_duplicates(["step", "num_generations"]).to_csv(
        tmp_path / "interleaved.csv", index=False
    )
    runs = RunSet.read(tmp_path / "interleaved.csv")
    assert [info.group_size for info in runs.runs()] == [4, 8, 16, 32]
    table.to_csv(tmp_path / "restarts.csv", index=False)
    with pytest.raises(RecordError, match="repeats"):
        RunSet.read(tmp_path / "restarts.csv")


@pytest.mark.parametrize("beside", few(["broken", "copy", "logs"], 1))
def test_the_next_command_works_beside_broken_files_copies_and_logs(
    isocompute: Command, tmp_path: Path, beside: str
) -> None:
    folder = tmp_path / "runs"
    (folder / "a").mkdir(parents=True)
    eight_runs().to_csv(folder / "a" / "t.csv", index=False)
    if beside == "broken":
        (folder / "b.parquet").write_bytes(b"PAR1")
    elif beside == "copy":
        (folder / "b").mkdir()
        eight_runs().to_csv(folder / "b" / "t.csv", index=False)
    else:
        write_hydra(folder / "verl", n=16)
        write_verl(folder / "verl" / "log.jsonl", range(31))
    words = ["doctor", "runs"]
    for _ in range(3):
        done = ok(isocompute(*words))
        if "next:" not in done.stdout:
            break
        words = next_of(done)
    assert words[0] in ("audit", "fit", "allocate")


def test_a_run_that_logged_nan_in_a_cut_table_is_kept_without_it(isocompute: Command, tmp_path: Path) -> None:
    table = eight_runs()
    table.loc[60, "avg@4"] = np.nan
    text = table.to_csv(index=False, na_rep="nan", lineterminator="\r\n")
    (tmp_path / "t.csv").write_bytes(text.encode()[:-9])
    runs = RunSet.read(tmp_path / "t.csv")
    assert len(runs.filter(metric="avg@4")) == 182 - 2
    damaged, not_finite = sorted(runs.notes, key=lambda note: note.code)
    assert (damaged.code, not_finite.code) == ("log-damaged", "values-not-finite")
    # The doctor shows it with its run.
    (said,) = [one for one in diagnose(tmp_path / "t.csv").runs if not_finite.without_run() in one.problems]
    assert said.name == table["experiment"][60] != table["experiment"][0]
    ok(isocompute("allocate", "t.csv", "--budget", "100k"))


def test_a_file_for_each_run_is_asked_for_its_n(isocompute: Command, tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    for n in (8, 16):
        rows = [json.dumps({"step": step, "eval_acc": 0.3 + step / 100 + n / 1000}) + "\n" for step in range(8)]
        (tmp_path / "logs" / f"G{n}_seed1.jsonl").write_text("".join(rows))
    done = isocompute("allocate", "logs", "--budget", "100k")
    assert done.returncode == 1
    assert "group_size=N" not in done.stderr
    (command,) = re.findall(r"isocompute (doctor .*)$", done.stderr, re.MULTILINE)
    ok(isocompute(*shlex.split(command), "--set", "problems_per_batch=64"))
    mapping = RunMap.load(tmp_path / "map.yaml")
    (question,) = mapping.open_questions()
    assert (question.field, set(question.runs)) == ("names", {"G8_seed1", "G16_seed1"})
    assert {name: run.group_size for name, run in mapping.runs.items()} == {"G8_seed1": 8, "G16_seed1": 16}


def test_files_of_one_name_are_runs_by_their_folders_with_the_settings_beside_them(
    isocompute: Command, tmp_path: Path
) -> None:
    # As Lightning's CSVLogger leaves them.
    for n in (4, 8):
        folder = tmp_path / "logs" / f"g{n}" / "version_0"
        folder.mkdir(parents=True)
        (folder / "hparams.yaml").write_text(f"group_size: {n}\nlr: 0.0001\nprompts_per_step: 8\n")
        rows = "".join(f"{step},{0.5 / (step + 1)},\n{step},,{0.3 + step / 100}\n" for step in range(8))
        (folder / "metrics.csv").write_text(f"step,train/loss,val/acc\n{rows}")
    done = isocompute("doctor", "logs")
    assert (done.returncode, endings(done)) == (0, 1), done.stderr
    ok(isocompute(*next_of(done)))
    found = {
        run.run_id: (run.group_size, run.problems_per_batch, run.context["learning_rate"])
        for run in RunSet.read(tmp_path / "logs.parquet").runs()
    }
    assert found == {f"g{n}/version_0/metrics": (n, 8, 0.0001) for n in (4, 8)}


@pytest.mark.parametrize(
    ("saved", "sizes"),
    [
        ({"group_size": 4, "rollouts_per_step": 32}, (4, 8)),
        ({"n": 4, "bp": 8}, (4, 8)),
        # A quantised model, and a name that counts problems in one framework and rollouts in another.
        ({"group_size": 128, "bits": 4}, None),
        ({"group_size": 4, "train_batch_size": 32}, None),
        ({"group_size": 4, "rollouts_per_step": 30}, None),
    ],
)
def test_settings_of_a_program_of_ones_own_count_where_they_say_n_and_b_p(
    saved: dict[str, int], sizes: tuple[int, int] | None
) -> None:
    found = translate(Path("config.json"), saved)
    told = None if found is None else tuple(found.fields[name].value for name in ("group_size", "problems_per_batch"))
    assert told == sizes


def test_runs_of_two_tasks_are_parted_by_the_command_in_the_error(isocompute: Command, tmp_path: Path) -> None:
    table = eight_runs()
    task = table["experiment"].map(lambda name: "code" if int(name.split("_")[1]) % 2 else "math")
    table.assign(train_data=task).to_csv(tmp_path / "t.csv", index=False)
    done = isocompute("allocate", "t.csv", "--budget", "100k")
    assert done.returncode == 1
    (command,) = re.findall(r"isocompute (doctor [^)]*)", done.stderr)
    assert isocompute(*shlex.split(command.replace("RUNS", "t.csv"))).returncode == 0
    runs = RunSet.read(tmp_path / "part.parquet")
    assert {run.context["train_data"] for run in runs.runs()} == {"code"}
    assert len(runs.run_ids) == 4
    ok(isocompute("allocate", "part.parquet", "--budget", "100k"))
    # Of runs that differ in several fields, the part that agrees in all.
    model = np.where((task == "math") & table["experiment"].str.endswith(("0", "2")), "small", "large")
    table.assign(train_data=task, model=model).to_csv(tmp_path / "u.csv", index=False)
    (command,) = re.findall(r"isocompute (doctor [^)]*)", isocompute("allocate", "u.csv", "--budget", "100k").stderr)
    ok(isocompute(*shlex.split(command)))
    ok(isocompute("allocate", "part.parquet", "--budget", "100k"))
    ok(isocompute("doctor", "t.csv", "--where", "model=null", "--output", "out.jsonl"))
    assert isocompute("doctor", "t.csv", "--where", "train_data=cod", "--output", "out.jsonl").returncode == 1


def trained(evaluated: bool) -> pd.DataFrame:
    """A row for every update, as a notebook logs it, with an evaluation in percent now and then or none."""
    step = np.arange(1, 61)
    reward = np.round(0.2 + 0.5 * step / 60 + 0.01 * np.sin(step), 4)
    rows = {"step": step, "loss": -reward, "reward_avg": reward, "format_reward_avg": reward / 2, "adv_avg": 0.0 * step}
    if evaluated:
        rows["eval_acc"] = np.where(step % 6 == 0, np.round(100 * reward), np.nan)
    return pd.DataFrame(rows)


@pytest.mark.parametrize(
    ("evaluated", "metric", "where"), [(True, "eval_acc", "validation"), (False, "reward_avg", "train")]
)
def test_an_evaluation_beats_the_reward_of_updates_and_that_one_the_reward_of_a_format(
    isocompute: Command, tmp_path: Path, evaluated: bool, metric: str, where: str
) -> None:
    trained(evaluated).to_csv(tmp_path / "t.csv", index=False)
    given = ("--set", "n=8", "--set", "problems_per_batch=1")
    (run,) = json.loads(isocompute("doctor", "t.csv", *given, "--json").stdout)["runs"]
    assert run["metric"] == metric
    runs = RunSet.read(tmp_path / "t.csv", group_size=8, problems_per_batch=1)
    assert unasked(runs, None)[0] == metric
    assert runs.filter(metric=metric).eval_sets == (where,)


def test_no_counter_is_suggested_for_a_setting(isocompute: Command, tmp_path: Path) -> None:
    pd.DataFrame({"name": list("abcde"), "batch": [20, 40, 60, 80, 80]}).to_csv(tmp_path / "t.csv", index=False)
    assert "batch=problems_per_batch" not in isocompute("doctor", "t.csv", "--output", "out.jsonl").stderr


def test_unknown_columns_of_a_long_table_are_left_out_and_named(isocompute: Command, tmp_path: Path) -> None:
    long = eight_runs().drop(columns="entropy").rename(columns={"avg@4": "value"})
    long.assign(metric="avg@4", hours=1.5, picked=16).to_csv(tmp_path / "t.csv", index=False)
    done = isocompute("doctor", "t.csv")
    assert "hours, picked" in done.stdout
    assert isocompute(*next_of(done)).returncode == 0


def test_a_name_that_says_what_is_measured_is_the_reward(tmp_path: Path) -> None:
    rows = [f"{n},16,{step},{3 + step},{90 + step},0.5\n" for n in (4, 8) for step in range(3)]
    (tmp_path / "t.csv").write_text("n,B_p,step,eval/turns,eval/len,eval/reward\n" + "".join(rows))
    assert unasked(RunSet.read(tmp_path / "t.csv"), None)[0] == "eval/reward"


def test_n_is_taken_from_the_column_that_names_agree_with_and_never_from_one_value_unsaid(
    isocompute: Command, tmp_path: Path
) -> None:
    rows = [
        f"run_G{n}_s{seed},{n},{seed},{step},32,{0.2 + n * step / 4000 + seed / 100:.3f}"
        for n, seed in ((8, 1), (8, 2), (16, 1), (16, 9))
        for step in range(0, 50, 5)
    ]
    header = "trial,completions_each,rng_seed,update,questions,eval_acc"
    (tmp_path / "t.csv").write_text("\n".join([header, *rows]))
    columns = pd.read_csv(tmp_path / "t.csv")
    columns.drop(columns="completions_each").to_csv(tmp_path / "names.csv", index=False)
    columns.rename(columns={"update": "counter"}).to_csv(tmp_path / "later.csv", index=False)
    # Before it is known which column counts steps, none is known to hold n.
    assert "group_size=N" not in isocompute("allocate", "later.csv", "--budget", "100k").stderr
    for file in ("t.csv", "names.csv"):
        told = isocompute("allocate", file, "--budget", "100k")
        assert "group_size=N" not in told.stderr
        assert ("completions_each=group_size" in told.stderr) == (file == "t.csv")
        assert ("`isocompute doctor" in told.stderr) == (file != "t.csv")
    known = {"trial": "run_id", "update": "step", "questions": "problems_per_batch"}
    runs = RunSet.read(tmp_path / "t.csv", rename=known, group_size=8)
    (note,) = [note for note in runs.notes if note.code == "sources-disagree"]
    assert note.data["names"] == {"run_G16_s1": "G16", "run_G16_s9": "G16"}
    right = RunSet.read(tmp_path / "t.csv", rename={**known, "completions_each": "n"}, ignore=["rng_seed"])
    assert {run.run_id: run.group_size for run in right.runs()}["run_G16_s9"] == 16
    assert not [note for note in right.notes if note.code == "sources-disagree"]


def rows_of_three_runs(columns: str, cells: str) -> str:
    rows = (cells.format(n=n) + f",{step},{0.2 + step * n / 4000:.4f}" for n in (4, 8, 16) for step in range(0, 50, 5))
    return "\n".join([f"{columns},iter,reward", *rows]) + "\n"


@pytest.mark.parametrize(
    ("columns", "cells", "size"),
    [
        ("Gruppe,prompts/batch", "{n},256", "Gruppe"),
        ("run,Gruppe,prompts/batch", "r{n},{n},256", "Gruppe"),
        # Both may hold n.
        ("run,Gruppe,nodes,prompts/batch", "r{n},{n},1{n},256", None),
    ],
)
def test_a_column_that_tells_runs_apart_is_proposed_as_n_and_never_merged(
    isocompute: Command, tmp_path: Path, columns: str, cells: str, size: str | None
) -> None:
    (tmp_path / "odd.csv").write_text(rows_of_three_runs(columns, cells))
    told = isocompute("doctor", "odd.csv").stdout
    if size is None:
        assert "Gruppe or nodes" in told
        told = told.replace("--set group_size=N", "--rename Gruppe=group_size")
    options = shlex.split(re.findall(r"-> Add ((?:--\w+ \S+=\w+ ?)+)", told)[0])
    read = json.loads(ok(isocompute("doctor", "odd.csv", *options, "--json")).stdout)
    assert [one["group_size"] for one in read["runs"]] == ["4", "8", "16"]


@pytest.mark.parametrize("command", ["doctor", "fit"])
def test_one_n_for_rows_that_repeat_their_steps_is_refused(isocompute: Command, tmp_path: Path, command: str) -> None:
    (tmp_path / "odd.csv").write_text(rows_of_three_runs("Gruppe,prompts/batch", "{n},256"))
    sizes = ("--set", "group_size=8", "--set", "problems_per_batch=256")
    done = isocompute(command, "odd.csv", "--rename", "iter=step", *sizes)
    assert done.returncode == 1
    assert "repeats odd.csv" in done.stdout + done.stderr


def test_what_is_true_of_all_runs_is_said_once(isocompute: Command, tmp_path: Path) -> None:
    rows = [f"r{n},{n},32,{step},{0.1 + step * n / 400:.4f}" for n in (4, 8, 16) for step in range(0, 20, 2)]
    (tmp_path / "runs.csv").write_text("\n".join(["run,n,bp,step,train_reward", *rows]) + "\n")
    shown = isocompute("doctor", "runs.csv").stdout
    assert shown.count("only the training reward") == 1
    listed = json.loads(isocompute("doctor", "runs.csv", "--json").stdout)["runs"]
    assert all("only the training reward" in " ".join(one["problems"]) for one in listed)


def test_an_unknown_code_gets_the_nearest_and_not_all(isocompute: Command) -> None:
    refused = isocompute("list", "notes", "extrapolation-beyond")
    assert refused.returncode == 1
    assert "extrapolation-beyond-3x" in refused.stderr
    assert refused.stderr.count("-") < 10


def test_of_several_evaluation_sets_status_names_the_one_that_it_shows_and_doctor_counts_one(
    isocompute: Command, tmp_path: Path
) -> None:
    rows = [f"r,8,32,{step},{name},{0.2 + step / 100}" for step in range(0, 13) for name in ("math", "aime")]
    (tmp_path / "t.csv").write_text("\n".join(["run,n,B_p,step,eval_set,avg@4", *rows]) + "\n")
    assert "avg@4 on aime" in ok(isocompute("status", "t.csv")).stdout
    assert " 12 x avg@4" in ok(isocompute("doctor", "t.csv")).stdout
    (tmp_path / "t.csv").write_text("\n".join(["run,n,B_p,step,eval_set,avg@4", *rows[::2]]) + "\n")
    assert "on math" not in ok(isocompute("status", "t.csv")).stdout
