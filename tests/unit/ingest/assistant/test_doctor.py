"""The doctor on a messy folder: one finding per run, and no file that stops it."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from isocompute_sdk.errors import RecordError
from isocompute_sdk.ingest import diagnose
from isocompute_sdk.records import RunSet
from tests.processes import ok
from tests.unit.ingest.log_files import OPENRLHF, by_name, write_events, write_hydra, write_verl

Command = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def messy(tmp_path: Path) -> Path:
    for name, n in (("n16_bp32", 16), ("n8_bp32", 8)):
        (tmp_path / name).mkdir()
        sizes = {"n_samples_per_prompt": n, "rollout_batch_size": 32, "train_batch_size": 32 * n}
        (tmp_path / name / "args.json").write_text(json.dumps(sizes))
    write_events(tmp_path / "n16_bp32", range(1, 58), OPENRLHF)
    write_events(tmp_path / "n16_bp32", range(41, 101), OPENRLHF, began=1000)
    write_events(tmp_path / "n8_bp32", range(201, 231), OPENRLHF)
    write_events(tmp_path / "n8_b64", range(1, 31), OPENRLHF)
    write_hydra(tmp_path / "verl")
    write_verl(tmp_path / "verl" / "log.jsonl", range(31), tail='\n{"step": 31, "da')
    (tmp_path / "good.csv").write_text("run_id,n,bp,step,avg@4\n" + "".join(f"g,8,32,{i},0.5\n" for i in range(6)))
    (tmp_path / "cut.csv").write_text("run_id,n,bp,step,avg@4\nc,8,32,1,0.5\nc,8,32,2,0.5\nc,8,3")
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 and nothing else")
    (tmp_path / "text.csv").write_text("this,is\nno,table\n")
    (tmp_path / "binary.jsonl").write_bytes(bytes(range(256)))
    return tmp_path


def test_every_run_is_a_line_with_its_numbers(messy: Path) -> None:
    found = by_name(messy)
    run = found["n16_bp32"]
    assert (run.group_size, run.problems_per_batch, run.metric, run.evaluations) == ("16", "32", "avg@4", 10)
    assert (run.rollouts, run.rollouts_spent, run.attempts) == (100 * 512, 117 * 512, 2)
    assert found["g"].rollouts == 5 * 256


def test_what_looks_wrong_comes_with_what_to_do(messy: Path) -> None:
    found = by_name(messy)
    assert "begins after step 200" in found["n8_bp32"].problems[0]
    assert "earlier part" in found["n8_bp32"].advice[0]
    assert "ends inside this line" in found["log"].problems[0]
    assert "what its name says" in found["n8_b64"].problems[-1]
    assert "confirm" in found["n8_b64"].advice[-1]
    assert any("cut.csv:4: the file ends inside this line" in problem for problem in found["c"].problems)
    assert not found["g"].problems
    assert all(len(one.problems) == len(one.advice) for one in found.values())


@pytest.mark.parametrize(("given", "asked"), [({}, "n and B_p"), ({"problems_per_batch": 64}, "n")])
def test_the_question_is_about_the_values_that_only_a_name_says(
    tmp_path: Path, given: dict[str, int], asked: str
) -> None:
    write_events(tmp_path / "n8_bp64", range(1, 31), OPENRLHF)
    assert f" {asked} marked ?" in (diagnose(tmp_path, set=given).question or "")


def test_what_is_so_in_many_runs_is_said_once(isocompute: Command, tmp_path: Path) -> None:
    for n in (4, 8):
        (tmp_path / f"n{n}").mkdir()
        (tmp_path / f"n{n}" / "args.json").write_text(
            json.dumps({"n_samples_per_prompt": n, "rollout_batch_size": 32, "train_batch_size": 32 * n})
        )
        write_events(tmp_path / f"n{n}", range(201, 231), OPENRLHF)
    said = isocompute("doctor", tmp_path).stdout
    assert said.count("begins after step 200") == 1
    assert "1 other run" in said


def test_files_that_cannot_be_read_are_lines_too(messy: Path) -> None:
    found = by_name(messy)
    for name in ("broken.parquet", "text.csv", "binary.jsonl"):
        assert not found[name].readable
        assert str(messy / name) in found[name].problems[0]
        assert found[name].advice[0]


def test_it_says_what_to_do_next(messy: Path) -> None:
    assert diagnose(messy).next == f"isocompute doctor {messy} --output map.yaml"
    good = messy / "good.csv"
    assert diagnose(good).next == f"isocompute doctor {good} --output {messy.name}-good-csv.parquet"
    with pytest.raises(RecordError):
        diagnose(messy / "nowhere")


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        ("8,32,10,0.5\n8,32,10,0.6\n", "table.csv:3 repeats .*table.csv:2"),
        ("8,32,10,0.5\n8,32,x,0.6\n", "table.csv:3, column step: received 'x'"),
    ],
)
def test_a_table_that_makes_no_sense_says_where(tmp_path: Path, rows: str, reason: str) -> None:
    (tmp_path / "table.csv").write_text("n,bp,step,avg@4\n" + rows)
    (finding,) = diagnose(tmp_path).runs
    assert any(re.search(reason, problem) for problem in finding.problems)


def test_a_table_that_excel_saved_as_unicode_text_is_read(tmp_path: Path) -> None:
    (tmp_path / "table.tsv").write_bytes("n\tbp\tstep\tavg@4\r\n8\t32\t0\t0.5\r\n8\t32\t10\t0.6\r\n".encode("utf-16"))
    (finding,) = diagnose(tmp_path).runs
    assert (finding.evaluations, finding.rollouts) == (1, 2560)


@settings(
    deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(
    st.binary(max_size=200), st.sampled_from(["a.csv", "a.jsonl", "a.parquet", "trainer_state.json", "x.tfevents.1"])
)
def test_no_file_stops_the_doctor(tmp_path: Path, content: bytes, name: str) -> None:
    folder = tmp_path / "any"
    folder.mkdir(exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    (folder / name).write_bytes(content)
    (finding,) = diagnose(folder).runs
    assert finding.problems


def test_a_plain_table_need_not_be_written_again(isocompute: Command, tmp_path: Path) -> None:
    for models, command in ((("a", "a"), "fit"), (("a", "b"), "audit")):
        rows = [(f"r{n}", model, n, step) for model, n in zip(models, (4, 8), strict=True) for step in range(0, 80, 10)]
        table, written = tmp_path / "runs.csv", tmp_path / "written.parquet"
        lines = (f"{run},{model},{n},16,{step},{0.1 + step * n / 1000}\n" for run, model, n, step in rows)
        table.write_text("run,model,n,bp,step,avg@4\n" + "".join(lines))
        assert f"next: isocompute {command} {written}" in isocompute("doctor", table, "--output", written).stdout
        for path in (table, written):
            assert json.loads(isocompute("doctor", path, "--json").stdout)["next"] == f"isocompute {command} {path}"


@pytest.mark.slow
def test_groups_are_those_of_an_audit(isocompute: Command, tmp_path: Path) -> None:
    # The second base model is better than the first, whatever the columns say.
    starts = {"a": 0.1, "b": 0.1, "c": 0.5}
    rows = [
        f"{run},{n},16,{step},{start + step / 1000}\n"
        for (run, start), n in zip(starts.items(), (4, 8, 8), strict=True)
        for step in range(0, 200, 10)
    ]
    (tmp_path / "runs.csv").write_text("run,n,bp,step,avg@4\n" + "".join(rows))
    said, audited = (
        json.loads(isocompute(name, tmp_path / "runs.csv", "--json").stdout) for name in ("doctor", "audit")
    )
    numbers = {one["name"]: str(one["context_group"]) for one in said["runs"]}
    assert numbers == {run["run_id"]: group["name"] for group in audited["groups"] for run in group["runs"]}
    assert len(said["groups"]) == len(audited["groups"]) == 2


def test_runs_that_differ_in_samples_per_problem_only_are_one_group(isocompute: Command, tmp_path: Path) -> None:
    # TRL evaluates with as many samples as it trains with: avg@n.
    rows = [f"r{n},{n},4,{step},.5,{n}\n" for n in (4, 8) for step in range(4)]
    (tmp_path / "runs.csv").write_text("run,n,bp,step,avg@4,eval_samples\n" + "".join(rows))
    found = json.loads(isocompute("doctor", tmp_path, "--json").stdout)
    assert {one["context_group"] for one in found["runs"]} == {1}
    assert "eval_samples" not in found["groups"][0]


def _table(path: Path, value: Callable[[int, int], float], models: Sequence[str] = ("qwen",)) -> Path:
    """Runs with n = 4, 8, 16 and 31 evaluations each."""
    rows = [
        f"r{n},{n},32,{step},{value(n, step):.4f},{models[i % len(models)]}"
        for i, n in enumerate((4, 8, 16))
        for step in range(0, 310, 10)
    ]
    path.write_text("\n".join(["run,n,bp,step,avg@4,model", *rows]) + "\n")
    return path


def test_of_columns_of_unknown_names_the_one_that_moves_as_a_reward_is_proposed(tmp_path: Path) -> None:
    rows = [f"{n},32,{step},{7 * step},{0.2 + (step % 30) / 99:.3f},3" for n in (4, 8) for step in range(0, 200, 10)]
    (tmp_path / "runs.csv").write_text("\n".join(["n,bp,step,aaa,resultado,semilla", *rows]))
    assert "--metric resultado" in diagnose(tmp_path / "runs.csv").next


def test_files_that_were_not_looked_at_are_counted(tmp_path: Path) -> None:
    _table(tmp_path / "runs.csv", lambda n, step: 0.3 + step / 1000)
    for name in ("a.json", "b.json", "c.log", "model.safetensors"):
        (tmp_path / name).write_text('{"checkpoint-1": {"acc": [0.1]}}\n')
    # Those that would be refused if they were named say why.
    named, refused = diagnose(tmp_path).remarks
    assert "1 .log. Name" in named
    assert "2 .json" in refused
    (tmp_path / "runs.csv").unlink()
    alone = diagnose(tmp_path)
    (first,), (named, refused) = alone.runs, alone.remarks
    assert not alone.usable
    assert "checkpoint-1" in first.problems[0]
    assert ".json" not in named
    assert "1 .json" in refused


def test_a_list_of_checkpoints_is_no_table_that_lacks_n(tmp_path: Path) -> None:
    rows = [f'{{"name": "{batch:06}", "batch": {batch}, "state_path": "x/{batch}"}}\n' for batch in (20, 40, 60, 60)]
    (tmp_path / "checkpoints.jsonl").write_text("".join(rows))
    (found,) = diagnose(tmp_path).runs
    assert "no column holds a metric" in found.problems[0]


def test_models_that_are_mixed_are_named(tmp_path: Path) -> None:
    rising = _table(tmp_path / "runs.csv", lambda n, step: 0.3 + step / 1000, ("qwen", "llama"))
    (remark,) = diagnose(rising).remarks
    assert "qwen (2 runs), llama (1 run)" in remark


def test_a_run_that_collapsed_is_said(isocompute: Command, tmp_path: Path) -> None:
    table = _table(
        tmp_path / "runs.csv", lambda n, step: 0.05 if n == 8 and step > 150 else 0.3 + (step % 20 + step) / 1e3
    )
    found = json.loads(isocompute("doctor", table, "--json").stdout)["runs"]
    assert [run["name"] for run in found if any("collapsed" in problem for problem in run["problems"])] == ["r8"]


def test_all_runs_together_need_one_range_of_the_reward(isocompute: Command, tmp_path: Path) -> None:
    table = _table(tmp_path / "runs.csv", lambda n, step: n + step / 10)
    found = json.loads(isocompute("doctor", table, "--json").stdout)
    (asked,) = [text for text in found["remarks"] if "--bounds" in text]
    assert "4 to 46" in asked
    assert not any("--bounds" in text for run in found["runs"] for text in (*run["problems"], *run["advice"]))
    # Of shares and percents no bounds are right: the next command keeps the shares.
    table = _table(tmp_path / "runs.csv", lambda n, step: (100 if n == 8 else 1) * (0.3 + step / 1e3))
    found = json.loads(isocompute("doctor", table, "--json").stdout)
    assert found["verdict"] == "question"
    assert not any("--bounds" in text for text in (*found["remarks"], found["next"]))
    kept = isocompute(*shlex.split(found["next"].removeprefix("isocompute ")), "--json")
    assert {run["group_size"] for run in json.loads(kept.stdout)["runs"]} == {4, 16}


def test_each_of_several_metrics_has_a_range_of_its_own(tmp_path: Path) -> None:
    for name, metric, rewards in (("a", "eval_acc", (15.6, 56.2)), ("b", "reward_avg", (0.1, 2.0))):
        rows = "".join(f"{name},8,1,{9 * at},{reward}\n" for at, reward in enumerate(rewards))
        (tmp_path / f"{name}.csv").write_text(f"run,n,bp,step,{metric}\n{rows}")
    said = " ".join(diagnose(tmp_path).remarks)
    assert "--metric eval_acc --bounds 0 100" in said
    assert "--metric reward_avg --bounds LOW HIGH" in said


def test_the_range_of_an_evaluation_holds_the_rewards_of_updates_too(tmp_path: Path) -> None:
    rows = "".join(f"r,8,32,{step},{step / 100 - 0.9},{step / 100 - 1.7}\n" for step in range(0, 90, 10))
    (tmp_path / "t.csv").write_text(f"run_id,n,bp,step,avg@4,train_reward\n{rows}")
    (asked,) = [text for text in diagnose(tmp_path).remarks if "--bounds" in text]
    assert asked.startswith("avg@4")
    assert asked.endswith("LOW HIGH")


def test_the_metric_that_was_given_is_kept_where_one_file_lacks_it(tmp_path: Path) -> None:
    for i in range(3):
        name, rows = "reward_avg" if i == 1 else "eval_acc", "".join(f"{step},0.{step}{i}\n" for step in range(1, 9))
        (tmp_path / f"r{i}.csv").write_text(f"step,{name}\n{rows}")
    found = diagnose(tmp_path, metric="eval_acc", set={"group_size": 8, "problems_per_batch": 1})
    assert (found.verdict, [one.readable for one in found.runs].count(False)) == ("ready", 1)
    assert "--metric eval_acc" in found.next


def test_data_without_a_rise_say_so_before_any_number(isocompute: Command, tmp_path: Path) -> None:
    table = _table(tmp_path / "runs.csv", lambda n, step: 0.3 + (-1) ** (step // 10) / 200 - n * step / 1e5)
    for command in (
        ("doctor",),
        ("fit", "--draws", 20),
        ("allocate", "--budget", "300k"),
        ("audit",),
        ("next", "--budget", "300k"),
    ):
        said = isocompute(command[0], table, *command[1:], columns=400).stdout
        before, found, _ = said.partition(" runs together do not rise")
        assert found
        assert len(re.findall(r"\d+", before.replace("group 1", ""))) == 1, said
    asked = ("allocate", table, "--budget", "300k")
    for command in (("backtest", table), (*asked, "--marginal"), (*asked, "--compare", "n=8,bp=32")):
        assert "not rise in" in isocompute(*command, columns=400).stderr


def test_an_unused_column_is_asked_about_and_what_is_known_is_shown(isocompute: Command, tmp_path: Path) -> None:
    table = tmp_path / "runs.csv"
    table.write_text("run_id,n,prompts,step,avg@4\n" + "".join(f"a,8,32,{i},0.{i}\n" for i in range(6)))
    (row,) = json.loads(isocompute("status", table, "--json").stdout)["runs"]
    assert (row["group_size"], row["problems_per_batch"], row["rollouts"]) == (8, None, None)
    found = diagnose(table)
    assert found.verdict == "question"
    assert "--rename prompts=problems_per_batch" in found.next
    answered = diagnose(table, rename={"prompts": "problems_per_batch"})
    assert [(one.group_size, one.problems_per_batch) for one in answered.runs] == [("8", "32")]


@pytest.mark.parametrize(("column", "ours"), [("tokens_generated", "tokens"), ("wall_s", "timestamp")])
def test_an_unknown_column_of_numbers_is_told_its_name(tmp_path: Path, column: str, ours: str) -> None:
    table = tmp_path / "runs.csv"
    rows = (f"a,8,32,{i},0.{i},{100.5 * i}\n" for i in range(6))
    table.write_text(f"run_id,n,bp,step,avg@4,{column}\n" + "".join(rows))
    (found,) = diagnose(table).runs
    (advice,) = (told for what, told in zip(found.problems, found.advice, strict=True) if column in what)
    assert ours in advice.partition("--rename")[2].replace(",", " ").split()
    assert not diagnose(table, rename={column: ours}).runs[0].problems


def test_a_resumed_run_in_two_tables_is_one_run_only_if_they_agree(isocompute: Command, tmp_path: Path) -> None:
    def part(name: str, steps: range, late: float = 0.0) -> None:
        rows = [f"e{n},{n},32,{t * 640 // n},{t / (t + n + 2.5) + late}" for n in (8, 32) for t in steps]
        (tmp_path / name).write_text("\n".join(["run,n,B_p,step,avg@4", *rows, ""]))

    part("a.csv", range(9))
    part("b.csv", range(7, 13))
    found = diagnose([tmp_path / "a.csv", tmp_path / "b.csv"])
    assert [(one.name, one.evaluations) for one in found.runs] == [("e8", 12), ("e32", 12)]
    read = RunSet.read([tmp_path / "a.csv", tmp_path / "b.csv"])
    assert ok(isocompute("doctor", "a.csv", "b.csv", "--output", "both.csv"))
    assert RunSet.read(tmp_path / "both.csv") == read
    part("b.csv", range(7, 13), late=0.01)
    for command in (["doctor"], ["doctor", "--output", "c.csv"], ["fit"], ["audit"], ["allocate", "--budget", "1M"]):
        refused = isocompute(command[0], "a.csv", "b.csv", *command[1:])
        assert refused.returncode == 1, command
        assert "overlapping" in refused.stdout + refused.stderr
    # Runs of other settings are others, which only a table of both can tell apart.
    part("b.csv", range(13))
    (tmp_path / "b.csv").write_text((tmp_path / "b.csv").read_text().replace(",32,", ",16,"))
    apart = diagnose([tmp_path / "a.csv", tmp_path / "b.csv"])
    assert (len(apart.runs), apart.verdict, apart.plain) == (4, "ready", False)
