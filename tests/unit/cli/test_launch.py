"""`isocompute launch`: an edited plan gives no script, a changed one says what changed."""

from __future__ import annotations

import ast
import json
import re
import shlex
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from isocompute_sdk import Plan, Planner, published
from isocompute_sdk.cli.launch import _next  # pyright: ignore[reportPrivateUsage]
from isocompute_sdk.planning.plan_parts import Approval, Verdict
from tests.processes import ok

Command = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    made = Planner(published("qwen2.5-7b-instruct/guru-math-easy")).allocate("3M")
    made.save(tmp_path / "plan.json")
    return made


@pytest.mark.parametrize(
    ("field", "value"),
    [("group_size", 1024), ("learning_rate", -1), ("group_size_interval", "$(id)"), ("digest", None)],
)
@pytest.mark.usefixtures("plan")
def test_an_edited_plan_gives_no_script(isocompute: Command, tmp_path: Path, field: str, value: Any) -> None:
    raw = json.loads((tmp_path / "plan.json").read_text())
    raw = {**raw, field: value} if value is not None else {k: v for k, v in raw.items() if k != field} | {"rollouts": 1}
    (tmp_path / "plan.json").write_text(json.dumps(raw))
    for more in ([], ["--dry-run"], ["--json"], ["--change", "update_steps=100"]):
        done = isocompute("launch", "plan.json", *more)
        assert done.returncode == 1
        assert done.stdout == ""
        assert "digest" in done.stderr
        assert "--change" in done.stderr
    assert not (tmp_path / "launch.sh").exists()


def test_a_change_is_shown_side_by_side_and_the_script_has_it(isocompute: Command, tmp_path: Path, plan: Plan) -> None:
    change = ["--change", "group_size=64", "--change", "learning_rate=2e-6"]
    done = ok(isocompute("launch", "plan.json", *change, "--save-plan", "changed.json"))
    rows = {line.split()[0]: line.split()[1:] for line in done.stdout.splitlines() if line}
    assert rows["group_size"] == [str(plan.group_size), "64"]
    changed = Plan.load(tmp_path / "changed.json")
    assert rows["update_steps"] == [str(plan.update_steps), f"{changed.update_steps:,}"]
    assert rows["learning_rate"][-1] == "2e-06"
    assert changed.learning_rate == 2e-6
    assert f"n{changed.group_size}-bp{changed.problems_per_batch}-m{changed.update_steps}" in (
        tmp_path / "launch.sh"
    ).read_text(encoding="utf-8")
    dry = isocompute("launch", "plan.json", *change, "--dry-run")
    assert dry.stdout.rstrip() == (tmp_path / "launch.sh").read_text(encoding="utf-8").rstrip()
    assert "group_size" in dry.stderr
    told = json.loads(isocompute("launch", "plan.json", *change, "--json").stdout)
    assert told["changed"]["group_size"] == {"before": plan.group_size, "after": 64}
    assert told["script"].rstrip() == dry.stdout.rstrip()


def test_what_differs_from_the_runs_is_shown_by_allocate_and_launch(isocompute: Command, tmp_path: Path) -> None:
    header = "run_id,n,bp,C,avg@4,learning_rate,kl_coef,entropy_coef"
    rows = [
        f"n{n},{n},16,{c},{0.3 + 0.2 * c / (c + 1e4 * n**0.5):.4f},5e-6,0,0"
        for n in (4, 16, 64)
        for c in (2e3, 2e4, 2e5)
    ]
    (tmp_path / "runs.csv").write_text("\n".join([header, *rows]) + "\n")
    asked = ("allocate", "runs.csv", "--budget", "100k", "--output", "plan.json")
    plain = json.loads(isocompute(*asked, "--json").stdout)
    assert plain["learning_rate"] == 5e-6
    assert plain["problems_per_batch"] == 16
    assert not any(one["differs"] for one in plain["settings"])
    given = ok(isocompute(*asked, "--recipe-value", "learning_rate=2e-6", "--recipe-value", "kl_coef=0.001"))
    assert "warning recipe-differs-from-runs" in given.stdout
    assert "unlike the runs" in Plan.load(tmp_path / "plan.json").summary()
    done = isocompute("launch", "plan.json", "--model", "m", "--backend", "verl", "--json")
    answer = json.loads(done.stdout)
    unlike = {one["name"]: one for one in answer["recipe"]}
    assert unlike["learning_rate"] == {"name": "learning_rate", "runs": [5e-6], "plan": 2e-6, "script": 2e-6}
    assert set(unlike) == {"learning_rate", "kl_coef"}
    assert "learning_rate  5e-06 | 2e-06 | 2e-06" in answer["script"]
    shown = isocompute("launch", "plan.json", "--model", "m", "--backend", "verl", "--dry-run")
    assert shown.stdout.startswith("#!")
    assert "kl_coef: 0 | 0.001 | 0.001" in shown.stderr


def test_what_was_assumed_can_be_given_by_the_names_that_are_shown(isocompute: Command, tmp_path: Path) -> None:
    rows = [f"n{n},{n},16,{c},{0.3 + 0.2 * c / (c + 1e4)}" for n in (4, 16) for c in (2e3, 2e4, 2e5)]
    (tmp_path / "runs.csv").write_text("\n".join(["run_id,n,bp,C,avg@4", *rows]) + "\n")
    asked = ("allocate", "runs.csv", "--budget", "100k", "--output", "plan.json", "-v")
    row = re.compile(r"^assumed\s+(.*?);", re.MULTILINE | re.DOTALL)
    (shown,) = row.findall(ok(isocompute(*asked)).stdout)
    told = dict(re.findall(r"(\w+)\s=\s([\w.,]*\w)", shown))
    # The filter is one word for three settings.
    values = [f"{name}={value.replace(',', '')}" for name, value in told.items() if name != "filter"]
    assert len(values) > 5
    given = ok(isocompute(*asked, *(word for one in values for word in ("--recipe-value", one)))).stdout
    assert not any(f"{name} =" in " ".join(row.findall(given)) for name in told if name != "filter")
    ok(
        isocompute(
            "launch", "plan.json", *(word for one in values for word in ("--change", one)), "--model", "m", "--dry-run"
        )
    )


@pytest.mark.usefixtures("plan")
@pytest.mark.parametrize(("model", "warned"), [("Qwen3-0.6B", True), ("Qwen/Qwen3-0.6B", False), ("mine", False)])
def test_a_model_that_is_no_folder_and_no_hub_name_is_warned_of(
    isocompute: Command, tmp_path: Path, model: str, warned: bool
) -> None:
    (tmp_path / "mine").mkdir()
    notes = json.loads(isocompute("launch", "plan.json", "--model", model, "--json").stdout)["notes"]
    assert ("model-not-here" in [note["code"] for note in notes]) is warned


def test_files_that_are_not_here_are_named_and_refuse_nothing(isocompute: Command, tmp_path: Path, plan: Plan) -> None:
    (tmp_path / "validation.jsonl").write_text("")
    (tmp_path / "grade.py").write_text("")
    asked = ("launch", "plan.json", "--reward", "grade.py:score")
    shown = ok(isocompute(*asked))
    assert "--train-data train.jsonl" in shown.stdout
    (note,) = _lacking(isocompute(*asked, "--json"))
    assert note["data"]["files"] == {"--train-data": "train.jsonl"}
    dry = isocompute(*asked, "--dry-run")
    assert dry.stdout.startswith("#!")
    assert "data-not-here" in dry.stderr
    (tmp_path / "train.jsonl").write_text("")
    assert "data-not-here" not in isocompute(*asked).stdout
    assert not _lacking(isocompute(*asked, "--json"))


def _lacking(done: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    return [note for note in json.loads(done.stdout)["notes"] if note["code"] == "data-not-here"]


@pytest.mark.usefixtures("plan")
def test_a_plan_that_is_not_approved_gets_a_script_with_a_warning(isocompute: Command, tmp_path: Path) -> None:
    warning = "plan-not-approved"
    assert warning in ok(isocompute("launch", "plan.json")).stdout.partition("wrote launch.sh")[0]
    header = (tmp_path / "launch.sh").read_text().partition("# May be edited")[0]
    assert "# Do not approve yet" in header
    for flag in ("--dry-run", "--overrides"):
        assert warning in isocompute("launch", "plan.json", flag).stderr
    # Who changes a plan decides about it.
    assert warning not in isocompute("launch", "plan.json", "--change", "group_size=8").stdout


def test_a_plan_with_a_check_gets_the_command_for_it(isocompute: Command, tmp_path: Path, plan: Plan) -> None:
    replace(plan, approval=Approval("check", "three times the largest run", step=60)).save(tmp_path / "plan.json")
    said = ok(isocompute("launch", "plan.json", "--output-dir", "out")).stdout
    rest = (plan.update_steps - 60) * plan.rollouts_per_batch
    assert f"isocompute forecast out --remaining {rest}" in said.partition("wrote launch.sh")[2]
    assert plan.fits is not None
    approval = Approval("check", "three times the largest run", step=60)
    own = replace(plan, approval=approval, verdict=Verdict("likely", "of runs of one's own"))
    # A reward file gives 0 to 1, whatever the unit of the runs so far.
    for bounds, words in (((-10.0, 11.0), "RUNS out --bounds -10 11"), ((0.0, 100.0), "out --remaining")):
        scaled = replace(own, fits=replace(plan.fits, bounds=bounds))
        assert f"isocompute forecast {words}" in [*_next(scaled, "", "out", "train.jsonl")][1]
    # What was set for the runs so far changes nothing that the script's own log says.
    read = replace(plan.fits, read_from="runs.csv --set problems_per_batch=16", bounds=(0.0, 1.0))
    said = [*_next(replace(own, fits=read), "", "out", "train.jsonl")][1]
    assert "isocompute forecast runs.csv --set problems_per_batch=16 out " in said
    # A mapping is read instead of paths: its runs go into a table first.
    mapped = replace(plan.fits, read_from="--map my.yaml", bounds=(0.0, 1.0))
    _, table, said, *_ = _next(replace(own, fits=mapped), "", "out", "train.jsonl")
    assert table.endswith("isocompute doctor --map my.yaml --output my.parquet")
    assert "isocompute forecast my.parquet out " in said
    # Another name is taken for the script's only if they are one reward, and it says so before the command.
    when = [*_next(replace(own, metric="val_reward_mean1"), "", "out", "train.jsonl")][1].partition(": isocompute")[0]
    assert "val_reward_mean1" in when


def test_flags_need_no_model(isocompute: Command, tmp_path: Path, plan: Plan) -> None:
    replace(plan, model=None).save(tmp_path / "plan.json")
    (tmp_path / "mine.sh").write_text(
        "python -m verl.trainer.main_ppo data.train_batch_size=64 actor_rollout_ref.rollout.n=8\n"
    )
    for more in (("--overrides",), ("--against", "mine.sh")):
        said = ok(isocompute("launch", "plan.json", "--backend", "verl", *more)).stdout
        named = ok(isocompute("launch", "plan.json", "--backend", "verl", *more, "--model", "me/mine")).stdout
        assert said.partition("next")[0] == named.partition("next")[0] != ""
    assert isocompute("launch", "plan.json", "--backend", "verl").returncode == 1


@pytest.mark.usefixtures("plan")
def test_a_script_that_was_edited_is_kept(isocompute: Command, tmp_path: Path) -> None:
    script = tmp_path / "launch.sh"
    ok(isocompute("launch", "plan.json"))
    script.write_text(edited := script.read_text() + "# mine\n")
    assert "launch.sh.old" in ok(isocompute("launch", "plan.json")).stdout
    assert (tmp_path / "launch.sh.old").read_text() == edited
    assert "launch.sh.old" not in ok(isocompute("launch", "plan.json")).stdout
    assert (tmp_path / "launch.sh.old").read_text() == edited


def test_what_a_script_does_not_say_is_no_difference(isocompute: Command, tmp_path: Path, plan: Plan) -> None:
    # Its temperature is that of the framework where none is given.
    sampling = f"--rollout.temperature {plan.recipe.temperature} --rollout.n_samples_per_prompt"
    train = f"python3 -m openrlhf.cli.train_ppo_ray {sampling}"
    for n, marked in ((plan.group_size, 0), (2 * plan.group_size, 1)):
        (tmp_path / "my.sh").write_text(f"{train} {n}\n")
        shown = ok(isocompute("launch", "plan.json", "--against", "my.sh")).stdout
        assert sum(line.startswith("!") for line in shown.splitlines()) == marked
        assert f"{marked} of 2 settings in my.sh" in shown


@pytest.mark.parametrize("backend", ["openrlhf", "verl", "trl"])
@pytest.mark.usefixtures("plan")
def test_a_script_of_ours_says_what_its_plan_says(isocompute: Command, backend: str) -> None:
    asked = ("launch", "plan.json", "--backend", backend, "--model", "some/model", "--gpus", "8")
    ok(isocompute(*asked, "--script", "ours.sh"))
    shown = ok(isocompute(*asked, "--against", "ours.sh")).stdout.splitlines()
    assert not [line for line in shown if line.startswith("!") or "no such file" in line or "--overrides" in line]


@pytest.mark.parametrize(
    "written",
    [
        "cat <<'EOF' > train.py\nfrom trl import GRPOConfig\nGRPOConfig(num_generations=8)\nEOF\n",
        'cat > c.yaml <<-"YAML"\n\tnum_generations: 8\n\tYAML\n',
    ],
)
@pytest.mark.usefixtures("plan")
def test_flags_for_a_script_are_for_as_many_gpus_as_it_starts_processes(
    isocompute: Command, tmp_path: Path, written: str
) -> None:
    (tmp_path / "my.sh").write_text(f"{written}accelerate launch --num_processes 4 train.py --config c.yaml\n")
    asked = ("launch", "plan.json", "--backend", "trl", "--against", "my.sh")
    shown = ok(isocompute(*asked)).stdout
    assert "num_generations = 8" in shown
    assert isocompute(*asked, "--overrides").returncode == 1
    (command,) = re.findall(r"isocompute (launch .*)$", shown, re.MULTILINE)
    assert "--gpus 4" in command
    ok(isocompute(*shlex.split(command)))


def test_an_assumed_learning_rate_gives_way_to_that_of_a_script(isocompute: Command, tmp_path: Path) -> None:
    rows = [f"n{n},{n},16,{c},{0.3 + 0.2 * c / (c + 1e4 * n**0.5):.4f}" for n in (4, 16) for c in (2e3, 2e4, 2e5)]
    (tmp_path / "runs.csv").write_text("\n".join(["run_id,n,bp,C,avg@4", *rows]) + "\n")
    ok(isocompute("allocate", "runs.csv", "--budget", "100k", "--output", "plan.json"))
    rate, length = "actor_rollout_ref.actor.optim.lr=", "data.max_response_length=2048"
    (tmp_path / "my.sh").write_text(
        f"python -m verl.trainer.main_ppo actor_rollout_ref.rollout.n=4 {length} {rate}3e-6\n"
    )
    asked = ("launch", "plan.json", "--backend", "verl", "--overrides", "--json")
    given = ("--change", "learning_rate=2e-6")
    for more, ours in (((), True), (("--against", "my.sh"), False), (("--against", "my.sh", *given), True)):
        assert (rate in json.loads(ok(isocompute(*asked, *more)).stdout)["overrides"]) is ours
    shown = ok(isocompute(*asked[:-1], "--against", "my.sh")).stdout
    (kept,) = [line for line in shown.splitlines() if "learning_rate = 3e-06" in line]
    assert "max_tokens = 2,048" in kept
    # A release with other names for the flags.
    (tmp_path / "my.sh").write_text("python3 -m openrlhf --n_samples_per_prompt 4 --actor_learning_rate 3e-6\n")
    asked = ("launch", "plan.json", "--backend", "openrlhf", "--overrides", "--against", "my.sh")
    for more, printed in (((), False), (given, True)):
        shown = ok(isocompute(*asked, *more)).stdout
        assert ("--actor.adam.lr" in shown) is printed
        assert ("learning_rate = 3e-06" in shown.partition("marked")[2]) is not printed


@pytest.mark.usefixtures("plan")
def test_settings_for_a_python_file_are_arguments_of_its_call(isocompute: Command, tmp_path: Path) -> None:
    (tmp_path / "my.py").write_text("from trl import GRPOConfig\nargs = GRPOConfig(num_generations=2)\n")
    shown = ok(isocompute("launch", "plan.json", "--backend", "trl", "--against", "my.py", "--overrides")).stdout
    given = ast.parse(f"dict(\n{shown[shown.index('num_generations=') :]})", mode="eval").body
    assert isinstance(given, ast.Call)
    assert {"num_generations", "max_steps", "learning_rate"} <= {one.arg for one in given.keywords}
