"""Mappings for runs with odd names: what is certain, what is likely, what is asked, and that nothing is guessed."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from isocompute_sdk import RunSet
from isocompute_sdk.errors import RecordError, SpecError
from isocompute_sdk.ingest import RunMap, diagnose, propose, read_mapped
from isocompute_sdk.ingest.stores.saved_config import read_config
from tests.unit.ingest.finding.test_run_folders import RUN
from tests.unit.ingest.log_files import OPENRLHF, every, write_events, write_hydra, write_verl

Command = Callable[..., subprocess.CompletedProcess[str]]


def answered(path: Path, answers: dict[str, object]) -> None:
    """What a person does to a proposed mapping: an answer behind every question about these fields."""
    text = path.read_text()
    for field, answer in answers.items():
        text, count = re.subn(rf"(field: {field}\n(?:.*\n)*?    answer: )null", rf"\g<1>{answer}", text)
        assert count
    path.write_text(text)


def test_samples_in_a_logged_batch_settle_it(tmp_path: Path) -> None:
    write_events(tmp_path / "n8_b64", range(1, 31), {**OPENRLHF, "train/rollout/num_samples": lambda step: 64.0})
    entry = propose(tmp_path, set={"n": 8}).runs["n8_b64"]
    assert entry.problems_per_batch == 8


def test_an_unknown_log_is_asked_for_everything_that_it_does_not_say(tmp_path: Path) -> None:
    tags = {"my/loss": lambda step: 0.5, "eval/score": every(10, 0.5), "eval/hard_score": every(10, 0.25)}
    write_events(tmp_path / "logs" / "lively-sun", range(31), tags)
    target = tmp_path / "map.yaml"
    mapping = propose(tmp_path / "logs", relative_to=tmp_path)
    mapping.save(target)
    asked = {question.field: set(question.candidates) for question in mapping.questions.values()}
    assert set(asked) == {"group_size", "problems_per_batch", "step_unit", "metrics", "eval_samples"}
    assert asked["metrics"] == {"eval/score", "eval/hard_score"}
    assert "rollouts" in asked["step_unit"]
    answers = {"group_size": 8, "problems_per_batch": 32, "step_unit": "rollout_batches", "eval_samples": 4}
    proposed = target.read_text()
    answered(target, {**answers, "step_unit": "batches", "metrics": "eval/score"})
    with pytest.raises(RecordError, match=r"'batches'.*rollout_batches"):
        read_mapped(target)
    target.write_text(proposed)
    answered(target, {**answers, "metrics": "eval/score"})
    runs = read_mapped(target)
    assert runs.metrics == ("avg@4", "step_seconds")
    assert runs.runs()[0].rollouts == 30 * 256


def test_a_plain_table_without_n_is_asked_for_it_and_keeps_the_name_of_its_reward(tmp_path: Path) -> None:
    rows = [f"{run},32,{step},{0.2 + step / 100}" for run in ("a", "b") for step in range(0, 50, 5)]
    (tmp_path / "own.csv").write_text("\n".join(["run,B_p,step,reward", *rows]))
    proposed, target = propose(tmp_path / "own.csv", tmp_path), tmp_path / "map.yaml"
    assert {one.field for one in proposed.questions.values()} == {"group_size"}
    proposed.save(target)
    answered(target, {"group_size": 8})
    assert read_mapped(target).metrics == ("reward",)


def test_answers_outlive_another_proposal(isocompute: Command, tmp_path: Path) -> None:
    for name in ("lively-sun", "misty-lake"):
        write_events(tmp_path / "logs" / name, range(31), OPENRLHF)
    target = tmp_path / "map.yaml"
    command = ("doctor", tmp_path / "logs", "--output", target)
    isocompute(*command)
    answered(target, {"group_size": 8, "problems_per_batch": 32})
    target.write_text(target.read_text().replace("problems_per_batch: null", "problems_per_batch: 16", 1))
    write_events(tmp_path / "logs" / "new-moon", range(31), OPENRLHF)
    isocompute(*command)
    mapping = RunMap.load(target)
    assert mapping.reading("lively-sun").constants.items() >= {"group_size": 8, "problems_per_batch": 16}.items()
    assert mapping.reading("misty-lake").constants.items() >= {"group_size": 8, "problems_per_batch": 32}.items()
    assert [one.runs for one in mapping.open_questions()] == [("new-moon",)] * 2
    isocompute(*command, "--set", "problems_per_batch=4")
    assert RunMap.load(target).reading("lively-sun").constants["problems_per_batch"] == 4


@pytest.mark.parametrize("broken", [False, True])
def test_a_mapping_of_other_runs_is_not_replaced(
    isocompute: Command, tmp_path: Path, broken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("first", "second"):
        write_events(tmp_path / name / "run", range(31), OPENRLHF)
    isocompute("doctor", "first", "--output", "map.yaml")
    before = Path("map.yaml").read_text() + ("{" if broken else "")
    Path("map.yaml").write_text(before)
    refused = isocompute("doctor", "second", "--output", "map.yaml")
    assert refused.returncode == 1
    assert "map.yaml" in refused.stderr
    assert Path("map.yaml").read_text() == before
    # What it says to do next leaves it alone too.
    isocompute(*isocompute("doctor", "second").stdout.split("next: isocompute ")[1].split())
    assert Path("map.yaml").read_text() == before
    assert RunMap.load("second-map.yaml").searched == ("second",)


def test_of_many_tags_those_that_may_be_a_reward_are_the_candidates(tmp_path: Path) -> None:
    tags = {f"part{i}/kl": lambda step: 0.1 for i in range(12)}
    tags |= {"zeta": lambda step: step / 10, "zeta/solve_rate": lambda step: 3 + step}
    write_events(tmp_path, range(1, 6), tags)
    questions = propose(tmp_path, set={"eval_samples": 4}).questions.values()
    assert "eval_samples" not in {one.field for one in questions}
    (asked,) = (one for one in questions if one.field == "metrics")
    shown = {tag: [float(one) for one in re.findall(r"[\d.]+", asked.candidates[tag])] for tag in list(tags)[12:]}
    assert shown == {"zeta": [5, 0.1, 0.5], "zeta/solve_rate": [5, 4, 8]}


def test_an_entry_that_is_filled_in_answers_its_question(tmp_path: Path) -> None:
    write_events(tmp_path / "sun", range(1, 31), OPENRLHF)
    mapping = propose(tmp_path)
    assert len(mapping.open_questions()) == 2
    entry = mapping.runs["sun"].replace(group_size=16, problems_per_batch=32)
    filled = mapping.replace(runs={"sun": entry}, searched=(str(tmp_path),))
    path = filled.save(tmp_path / "maps" / "map.yaml")
    # A field of the context is said to go there.
    header = " ".join(path.read_text().partition("\nkind:")[0].split())
    assert re.search("updates_per_batch.*`context:`", header)
    runs = read_mapped(tmp_path / "maps" / "map.yaml", filled)
    assert [info.group_size for info in runs.runs()] == [16]
    again = RunMap.load(tmp_path / "maps" / "map.yaml")
    assert again == filled
    skipped = mapping.replace(runs={"sun": mapping.runs["sun"].replace(skip=True)})
    assert not skipped.open_questions()


def test_a_wandb_chart_of_runs_with_odd_names_becomes_one_mapping(tmp_path: Path) -> None:
    names = ["lively-sun-3", "n8 - bp32", "n16 - bp32"]
    header = ["Step", *(f"{run} - eval/acc{bound}" for run in names for bound in ("", "__MIN", "__MAX"))]
    rows = [[str(step), *["" if step == 20 else "0.5"] * 9] for step in range(0, 50, 10)]
    text = "\n".join(",".join(f'"{cell}"' for cell in row) for row in [header, *rows]) + "\n"
    (tmp_path / "chart.csv").write_text(text)
    target = tmp_path / "map.yaml"
    proposed = propose(tmp_path / "chart.csv", relative_to=tmp_path)
    # The chart says its step, and has one evaluation.
    assert {question.field for question in proposed.open_questions()} == {"group_size", "problems_per_batch", "names"}
    proposed.save(target)
    answered(target, {"group_size": 4, "problems_per_batch": 16, "names": "right"})
    runs = read_mapped(target)
    assert {(info.run_id, info.group_size, info.problems_per_batch) for info in runs.runs()} == {
        ("lively-sun-3", 4, 16),
        ("n8 - bp32", 8, 32),
        ("n16 - bp32", 16, 32),
    }
    assert runs.series("eval/acc")[0].step_T.tolist() == [0, 10, 30, 40]
    # A command that needs n says what the names suggest, and who collects it.
    (tmp_path / "chart.csv").write_text("Step,n8-s1 - eval/acc,n16-s1 - eval/acc\n1,0.5,0.5\n")
    with pytest.raises(RecordError, match="suggests 8") as refused:
        RunSet.read(tmp_path / "chart.csv")
    assert "--output map.yaml" in str(refused.value.shell_hint)
    # So does one that reads a long table, and proposes no n for all runs; a mapping needs steps.
    for place in ("step", "C"):
        (tmp_path / "long.csv").write_text(f"run,{place},avg@4\nn8-s1,1,0.5\nn16-s1,1,0.5\n")
        with pytest.raises(RecordError) as refused:
            RunSet.read(tmp_path / "long.csv")
        hint = str(refused.value.shell_hint)
        assert "n8, n16" in hint
        assert "--set" not in hint
        assert ("--output map.yaml" in hint) == (place == "step")
    with pytest.raises(RecordError, match="group_size"):
        propose(tmp_path / "long.csv")


@pytest.mark.parametrize(
    ("names", "sizes"),
    [
        (("n8-bp16", "n32-bp16"), [(8, 16), (32, 16)]),
        (("n=8_B=16", "n=32_B=16"), [(8, 16), (32, 16)]),
        (("G8", "G32"), [(8, None), (32, None)]),
        (("qwen3-8b_run7", "n4_again_n16"), [(None, None), (None, None)]),
    ],
)
def test_sizes_that_names_state_are_proposed_and_have_to_be_confirmed(
    names: tuple[str, ...], sizes: list[tuple[int | None, int | None]], tmp_path: Path
) -> None:
    rows = "".join(f"{name},{step},0.{step}\n" for name in names for step in range(1, 9))
    (tmp_path / "runs.csv").write_text(f"run,step,avg@4\n{rows}")
    with pytest.raises(RecordError, match=r"group_size") as refused:
        RunSet.read(tmp_path / "runs.csv")
    assert "--output map.yaml" in str(refused.value.shell_hint)
    mapping = propose(tmp_path, relative_to=tmp_path)
    assert [(one.group_size, one.problems_per_batch) for one in mapping.runs.values()] == sizes
    asked = {question.field for question in mapping.open_questions()}
    assert ("names" in asked) == (sizes[0][0] is not None)
    assert asked
    # What the doctor shows and no command takes is marked.
    shown = [(one.group_size, one.problems_per_batch) for one in diagnose(tmp_path).runs]
    assert shown == [tuple("?" if size is None else f"{size}?" for size in pair) for pair in sizes]


def test_a_mapping_of_a_table_names_its_columns_and_says_what_is_left_out(tmp_path: Path) -> None:
    table, rename = tmp_path / "t.csv", {"G": "group_size", "Iter": "step"}
    rows = "".join(f"r,8,{step},07/13/2026 09:{step},a word,0.{step},1e-06\n" for step in range(10, 40, 10))
    table.write_text(f"Run,G,Iter,Timestamp,Remark,Avg@4,LR\n{rows}")
    mapping = propose(table, relative_to=tmp_path, rename=rename)
    entry = mapping.runs["r"]
    assert (entry.group_size, entry.context) == (8, {"learning_rate": 1e-6})
    assert entry.evidence["group_size"].endswith(": G")
    assert "'Iter'" in entry.evidence["step_unit"]
    runs = read_mapped(tmp_path / "map.yaml", mapping.told(set={"problems_per_batch": 4}))
    assert runs.metrics == ("avg@4",)
    left = {note.code: note.data for note in runs.notes}
    assert left["columns-left-out"]["columns"] == ["Remark"]
    assert left["clock-not-read"]["column"] == "Timestamp"
    table.write_text(f"Run,G,Iter,Logged At,Remark,Avg@4,LR\n{rows.replace('07/13/2026', '13.07.2026')}")
    told = " ".join(diagnose(table, rename=rename, set={"problems_per_batch": 4}).runs[0].problems)
    assert "--rename 'Logged At=timestamp'" in told
    assert "Remark=" not in told
    table.write_text(f"Run,G,Iter,Timestamp,Remark,Avg@4,Learnin_rate\n{rows}")
    assert diagnose(table, rename=rename).next.endswith("--rename Learnin_rate=learning_rate")


def test_thirty_runs_are_read_with_one_confirmation_and_tables_join_them(tmp_path: Path) -> None:
    for i in range(30):
        write_hydra(tmp_path / f"exp{i}", n=2 ** (i % 5 + 1), problems=16 * (i % 2 + 1))
        write_verl(tmp_path / f"exp{i}" / "log.jsonl", range(0, 21, 5))
    (tmp_path / "more.csv").write_text("run_id,n,bp,step,avg@4\nmine,8,32,10,0.5\n")
    (tmp_path / "broken.parquet").write_bytes(b"PAR1")
    target = tmp_path / "map.yaml"
    propose(tmp_path, relative_to=tmp_path).save(target)
    answered(target, {})
    runs = read_mapped(target)
    assert len(runs.run_ids) == 31
    assert [note.data["files"][0] for note in runs.notes if note.code == "files-not-read"] == [
        str(tmp_path / "broken.parquet")
    ]


def test_a_run_that_came_or_went_is_said(tmp_path: Path) -> None:
    for name in ("n8_bp32", "n16_bp32"):
        write_events(tmp_path / name, range(1, 31), OPENRLHF)
    mapping = propose(tmp_path, set={"n": 8, "bp": 32}).replace(searched=(".",))
    fewer = mapping.replace(runs={"n8_bp32": mapping.runs["n8_bp32"]})
    runs = read_mapped(tmp_path / "map.yaml", fewer)
    assert [note.data["runs"] for note in runs.notes if note.code == "run-left-out"] == [["n16_bp32"]]
    with pytest.raises(RecordError, match=r"'n4_bp32'"):
        read_mapped(tmp_path / "map.yaml", mapping.replace(runs={"n4_bp32": mapping.runs["n8_bp32"]}))


def test_tables_that_hold_one_run_twice_are_refused_with_what_to_change(tmp_path: Path) -> None:
    for name, value in (("one.csv", 0.6), ("other.csv", 0.7)):
        (tmp_path / name).write_text(f"run,n,bp,step,avg@4\na,8,32,0,0.5\na,8,32,10,{value}\n")
    mapping = propose(tmp_path).replace(searched=(str(tmp_path),))
    with pytest.raises(RecordError, match="`searched`"):
        read_mapped(tmp_path / "map.yaml", mapping)


def test_a_slip_in_the_file_is_refused_by_line(tmp_path: Path) -> None:
    write_events(tmp_path / "n8_bp32", range(1, 31), OPENRLHF)
    target = tmp_path / "map.yaml"
    propose(tmp_path, relative_to=tmp_path, set={"n": 8, "bp": 32}).save(target)
    target.write_text(target.read_text().replace("problems_per_batch: 32", "problem_per_batch: 32"))
    with pytest.raises(SpecError, match=r"map.yaml:\d+: runs.n8_bp32.problem_per_batch"):
        RunMap.load(target)


SAVED = {
    "launch.sh": (
        "python3 -m openrlhf.cli.train_ppo_ray \\\n  --rollout.n_samples_per_prompt 8 --rollout.batch_size 64 "
        '\\\n  --train.batch_size 256 --actor.adam.lr 1e-06 --algo.kl.init_coef=0 --data.input_key "a b"\n',
        {"group_size": 8, "problems_per_batch": 64, "updates_per_batch": 2, "learning_rate": 1e-6, "kl_coef": 0},
    ),
    "args.json": (
        '{"n_samples_per_prompt": 8, "rollout_batch_size": 64, "train_batch_size": 512, "pretrain": "qwen"}',
        {"group_size": 8, "problems_per_batch": 64, "updates_per_batch": 1, "model": "qwen"},
    ),
    "config.yaml": (
        "wandb_version: 1\nnum_generations: {value: 4}\ngeneration_batch_size: {value: 64}\nbeta: {value: 0.0}\n",
        {"group_size": 4, "problems_per_batch": 16, "kl_coef": 0.0},
    ),
    "request.json": (
        json.dumps({"kind": "openrlhf-run", "run": RUN.model_dump(mode="json")}),
        {"algorithm": "grpo", "group_size": 8, "problems_per_batch": 32, "learning_rate": RUN.learning_rate},
    ),
    "params.json": ('{"lr": 1e-6, "n": 8}', None),
    "config.json": ("{broken", None),
}


@pytest.mark.parametrize("name", SAVED)
def test_configurations_are_read_in_the_words_of_their_framework(tmp_path: Path, name: str) -> None:
    text, expected = SAVED[name]
    (tmp_path / name).write_text(text)
    found = read_config(tmp_path / name)
    if expected is None:
        assert found is None
    else:
        assert found is not None
        assert {field: found.fields[field].value for field in expected} == expected


def test_a_column_that_follows_a_schedule_says_nothing_of_the_whole_run(tmp_path: Path) -> None:
    rates = [0.0, 1e-6, 2e-6, 2e-6]
    rows = "".join(f"a,8,{10 * i},{rate},0.{i + 1}\n" for i, rate in enumerate(rates))
    (tmp_path / "runs.csv").write_text(f"run_id,n,step,learning_rate,avg@4\n{rows}")
    assert "learning_rate" not in propose(tmp_path).runs["a"].context


def test_what_a_mapping_cannot_read_keeps_the_remedies_of_its_error(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("n,bp,step,avg@4,gpus\n8,32,0,0.1,0\n8,32,10,0.2,0\n")
    RunMap(searched=("t.csv",)).save(tmp_path / "map.yaml")
    with pytest.raises(RecordError) as refused:
        read_mapped(tmp_path / "map.yaml")
    assert refused.value.options == ("--ignore gpus",)
    assert "--ignore gpus" in str(refused.value.shell_hint)
    assert "ignore=['gpus']" in str(refused.value)
