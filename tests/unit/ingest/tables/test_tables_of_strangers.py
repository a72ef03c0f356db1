"""What people call their columns and how they export their runs: read as meant, or refused; never taken for more."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from isocompute_sdk.errors import RecordError
from isocompute_sdk.ingest import diagnose, read
from isocompute_sdk.ingest.formats.registry import names_of, unknown
from isocompute_sdk.records import RunSet
from isocompute_sdk.records.asked import unasked
from isocompute_sdk.records.reward_metrics import rank

STEPS = range(0, 80, 10)


def write(path: Path, header: str, rows: Sequence[Sequence[object]]) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join([header, *(",".join(map(str, row)) for row in rows)]) + "\n")
    return path


def reward(step: int, n: int = 8) -> float:
    return round(0.3 + step * n / 3001, 5)


@pytest.mark.parametrize(
    "header",
    ["Name,n,bp,update_step,avg@4", "Name,n,bp,eval_step,avg@4", "run ,n ,bp,step , avg@4", "RUN,N,BP,STEP,AVG@4"],
)
def test_known_names_are_read(tmp_path: Path, header: str) -> None:
    rows = [(f"r{n} ", n, 32, step, reward(step, n)) for n in (4, 8) for step in STEPS]
    runs = read(write(tmp_path / "t.csv", header, rows))
    assert [(one.run_id, one.group_size, one.rollouts) for one in runs.runs()] == [
        ("r4", 4, 70 * 4 * 32),
        ("r8", 8, 70 * 8 * 32),
    ]
    assert runs.metrics == ("avg@4",)


def test_case_does_not_matter_in_what_an_update_measured() -> None:
    assert names_of("kl", ["KL", "Entropy"]) == ["KL"]
    assert unknown(["Entropy", "Other"]) == ["Other"]


def test_two_data_sets_are_not_pooled(tmp_path: Path) -> None:
    rows = [(8, 32, step, where, reward(step)) for where in ("gsm8k", "math") for step in STEPS]
    runs = read(write(tmp_path / "t.csv", "n,bp,step,dataset,avg@4", rows))
    assert [run.context["train_data"] for run in runs.runs()] == ["gsm8k", "math"]


def test_numbers_of_no_known_name_are_left_out_unless_they_may_tell_runs_apart(tmp_path: Path) -> None:
    rows = [(n, 32, step, "avg@4", reward(step, n), step / 7, 5, n / 2) for n in (4, 8) for step in STEPS]
    named = "n,bp,step,metric,value,hours,cap,decay"
    table = write(tmp_path / "t.csv", named, rows)
    for left_out in (None, {}):
        with pytest.raises(RecordError, match="setting") as refused:
            read(table, left_out=left_out)
        assert refused.value.options == ("--ignore decay",)
    left_out = dict[str, str]()
    runs = read(table, ignore=["decay"], left_out=left_out)
    assert (runs.metrics, len(runs)) == (("avg@4",), len(rows))
    assert [note.data["columns"] for note in runs.notes] == [["hours", "cap"]]
    assert "hours" in str(left_out)
    slip = write(tmp_path / "slip.csv", named.replace("cap", "learnin_rate"), rows)
    with pytest.raises(RecordError, match="learning_rate"):
        read(slip, left_out={})


@pytest.mark.parametrize("name", ["bs", "prompts", "batch_size"])
@pytest.mark.parametrize("count", ["step", "rollouts"])
@pytest.mark.parametrize("n", ["n", "G"])
def test_a_batch_is_asked_about_whatever_the_table_counts(tmp_path: Path, name: str, count: str, n: str) -> None:
    rows = [(size, 64, step * (1 if count == "step" else size * 64), reward(step)) for size in (4, 8) for step in STEPS]
    table = write(tmp_path / "t.csv", f"{n},{name},{count},quality", rows)
    found = diagnose(table)
    assert found.verdict == "question"
    assert f"--rename {name}=problems_per_batch" in found.next
    renamed = {name: "problems_per_batch", "G": "group_size"}
    runs = read(table, rename={theirs: ours for theirs, ours in renamed.items() if theirs in (n, name)})
    assert {(run.problems_per_batch, run.rollouts) for run in runs.runs()} == {(64, 70 * 4 * 64), (64, 70 * 8 * 64)}
    if (n, count) == ("n", "rollouts"):
        with pytest.raises(RecordError, match="ignore"):
            read(table)
        assert read(table, ignore=[name]).metrics == ("quality",)


@pytest.mark.parametrize("known", [{}, {"problems_per_batch": 32}])
def test_a_number_that_never_changes_is_no_metric(tmp_path: Path, known: dict[str, int]) -> None:
    rows = [(n, 16, step, reward(step, n), n // 2) for n in (4, 8) for step in STEPS]
    table = write(tmp_path / "t.csv", "n,width,step,quality,heads", rows)
    assert "reward" not in (diagnose(table, set=known).question or "")
    runs = read(table, set={"problems_per_batch": 32})
    assert (runs.metrics, [note.data["columns"] for note in runs.notes]) == (("quality",), [["width", "heads"]])
    assert "width" in read(table, set={"problems_per_batch": 32}, metric="width").metrics


def test_decimals_with_a_comma_are_told_before_anything_is_asked(tmp_path: Path) -> None:
    rows = [f"L8;8;32;{step};{str(reward(step)).replace('.', ',')}" for step in STEPS]
    table = tmp_path / "t.csv"
    table.write_text("\n".join(["Lauf;Gruppe;Aufgaben;Schritt;Genauigkeit", *rows, ""]))
    found = diagnose(table)
    assert found.verdict == "unusable"
    assert "decimals with a point" in found.runs[0].advice[0]
    assert diagnose(table, ignore=["Genauigkeit"]).verdict == "question"


@pytest.mark.parametrize("form", ["step,avg@4", "step,metric,value"])
def test_text_is_no_slip_of_a_column_of_numbers(tmp_path: Path, form: str) -> None:
    def table(cell: object) -> Path:
        middle = ["avg@4"] if "metric" in form else []
        rows = [("a", 8, 32, cell, step, *middle, reward(step)) for step in STEPS]
        return write(tmp_path / "t.csv", f"run,n,bp,GPU,{form}", rows)

    assert [note.data["columns"] for note in read(table("H100")).notes] == [["GPU"]]
    for number in (8, "8xH100"):
        with pytest.raises(RecordError, match="looks like"):
            read(table(number))


RESUMED = (*range(0, 80, 10), *range(5, 85, 10))
"""Steps of a run whose second part counts from 0 again, between those of the first."""


@pytest.mark.parametrize("header", ["run,n,bp,step,avg@4", "Name,n,bp,train/global_step,train/kl,eval/reward"])
@pytest.mark.parametrize(
    ("steps", "told"),
    [
        (RESUMED, True),
        (sorted(RESUMED), False),
        (sorted(RESUMED, reverse=True), False),
        (sorted(RESUMED, key=lambda step: step * 37 % 101), False),
        # By a reward that peaks, with the base model last, and in two parts in the wrong order.
        (sorted(RESUMED, key=lambda step: -abs(step - 40)), False),
        ((*range(10, 80, 10), 0), False),
        ((*range(40, 80, 5), *range(0, 40, 5)), False),
    ],
)
def test_steps_that_count_from_zero_again_are_told(
    tmp_path: Path, header: str, steps: Sequence[int], told: bool
) -> None:
    more = [0.1] if "kl" in header else []
    rows = [("a", 8, 32, step, *more, reward(step)) for step in sorted(steps)]
    rows += [("b", 8, 32, step, *more, reward(i)) for i, step in enumerate(steps)]
    runs = read(write(tmp_path / "t.csv", header, rows))
    notes = [note.data for note in runs.notes if note.code == "steps-go-back"]
    assert notes == ([{"run_id": "b", "before": 70, "step": 5}] if told else [])


def test_a_resume_that_repeats_steps_and_replaces_them_is_no_step_back(tmp_path: Path) -> None:
    rows = [
        ("a", 8, 32, step, reward(step) + i / 1e3) for i, step in enumerate((*range(0, 80, 10), *range(40, 120, 10)))
    ]
    table = write(tmp_path / "t.csv", "run,n,bp,step,avg@4", rows)
    with pytest.raises(RecordError, match="on_duplicate") as refused:
        read(table)
    assert "docs/logs.md" in str(refused.value.shell_hint)
    runs = read(table, on_duplicate="last")
    assert (len(runs), runs.notes) == (12, ())


def test_a_reward_of_the_training_set_is_no_evaluation(tmp_path: Path) -> None:
    rows = [("a", 8, 32, step, "train", "reward", reward(step)) for step in STEPS]
    runs = read(write(tmp_path / "t.csv", "run,n,bp,update_step,set,metric,reward", rows))
    name, notes = unasked(runs, None)
    assert (name, runs.eval_sets, [note.code for note in notes]) == ("reward", ("train",), ["training-reward-only"])


@pytest.mark.parametrize(
    "name", ["mean_response_length", "len_mean", "mean_length/response", "eval/response_tokens_mean", "val/len@4"]
)
def test_a_response_length_is_no_reward(tmp_path: Path, name: str) -> None:
    assert rank(name, "validation") is None
    rows = [("a", 8, 32, step, 200 + step) for step in STEPS]
    found = diagnose(write(tmp_path / "t.csv", f"run,n,bp,step,{name}", rows))
    assert "--rename" not in found.next
    assert found.runs[0].metric is None


@pytest.mark.parametrize("start", [1.7e9, 1.7e12])
def test_a_clock_time_is_no_update_step(tmp_path: Path, start: float) -> None:
    rows = [("a", 8, 32, start + 60 * step, reward(step)) for step in STEPS]
    table = write(tmp_path / "t.csv", "run,n,bp,Step,avg@4", rows)
    with pytest.raises(RecordError, match="clock"):
        read(table)
    assert not diagnose(table).runs[0].readable


def test_suggestions_are_of_the_kind_that_is_missing(tmp_path: Path) -> None:
    rows = [("a", step, 3.3 * step, reward(step)) for step in STEPS]
    with pytest.raises(RecordError) as refused:
        read(write(tmp_path / "t.csv", "run,grpo_step,eval/time,eval/score", rows))
    assert refused.value.options[0] == "--rename grpo_step=step"
    assert not any("time" in option or "step=group_size" in option for option in refused.value.options)


@pytest.mark.parametrize("name", ["value", "reward"])
def test_a_lone_value_is_called_reward(tmp_path: Path, name: str) -> None:
    rows = [("a", 8, 32, step, reward(step)) for step in STEPS]
    assert read(write(tmp_path / "t.csv", f"run,n,bp,step,{name}", rows)).metrics == ("reward",)


def test_json_is_read_by_what_it_holds(tmp_path: Path) -> None:
    rows = [{"n": 8, "bp": 32, "step": step, "avg@4": reward(step)} for step in STEPS]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    texts = {"list.jsonl": json.dumps(rows), "list.json": json.dumps(rows), "lines.json": lines, "lines.jsonl": lines}
    expected = None
    for name, text in texts.items():
        path = tmp_path / name.replace(".", "-") / name
        path.parent.mkdir()
        path.write_text(text)
        (path.parent / "settings.json").write_text('{\n "batch": 32\n}\n')
        expected = read(path) if expected is None else expected
        for given in (path, path.parent, path.parent / "l*.json*"):
            assert read(given) == expected
        assert diagnose(path.parent).verdict == "ready"


@pytest.mark.parametrize("value", [0.9, 0.91])
def test_a_repeated_value_that_nobody_asked_about_drops_nothing(tmp_path: Path, value: float) -> None:
    rows = [(f"r{n}", n, 32, step, reward(step, n), 0.9) for n in (4, 8) for step in STEPS]
    table = write(tmp_path / "t.csv", "run,n,bp,step,avg@4,entropy", [*rows, ("r4", 4, 32, 30, "", value)])
    runs = read(table)
    assert [len(one.value_T) for one in runs.series("avg@4")] == [len(STEPS)] * 2
    assert runs.filter(run_id="r4", metric="entropy", step=30).to_polars()["value"].to_list() == [value]
    with pytest.raises(RecordError, match="repeats"):
        RunSet.read(write(tmp_path / "t.csv", "run,n,bp,step,avg@4,entropy", [*rows, ("r4", 4, 32, 30, 0.1, "")]))


@pytest.mark.parametrize("header", ["run,n,bp,step,avg@4", "seed,n,bp,step,avg@4"])
def test_a_run_that_was_exported_three_times_counts_once(tmp_path: Path, header: str) -> None:
    rows = [(n, n, 32, step, reward(step, n)) for n in (4, 8) for step in STEPS]
    folder = tmp_path / "exports"
    write(folder / "all.csv", header, rows)
    write(folder / "again.csv", header, rows)
    write(folder / "early.csv", header, [row for row in rows if int(row[3]) < STEPS[-1]])
    runs = read(folder)
    assert [len(one.value_T) for one in runs.series("avg@4")] == [len(STEPS)] * 2
    assert len(RunSet.read(folder, left_out={}).run_ids) == 2
    found = diagnose(folder)
    assert sum(bool(one.problems) for one in found.runs) == 3, "a copied file, and two runs in a shorter one"
    assert str(folder) in found.next


def test_exports_with_other_columns_are_one_run(tmp_path: Path) -> None:
    folder = tmp_path / "exports"
    write(folder / "a.csv", "step,eval/reward,train/kl", [(step, reward(step), 0.01 + step / 999) for step in STEPS])
    write(folder / "b.csv", "step,eval/reward", [(step, reward(step)) for step in STEPS])
    write(folder / "c.csv", "step,eval/reward,turns", [(step, reward(step), 3 + step / 777) for step in STEPS])
    runs = read(folder, n=8, bp=32)
    (name,) = runs.run_ids
    assert set(runs.metrics) == {"eval/reward", "train/kl", "turns"}
    assert name.startswith("a/")
    found = diagnose(folder)
    assert found.question is not None
    assert "b" not in found.question.split("?")[0].split(" of ")[-1].split(", ")


def test_other_seeds_are_other_runs(tmp_path: Path) -> None:
    for seed in range(3):
        rows = [(seed, 8, 32, step, reward(step) + seed * step / 9999) for step in STEPS]
        write(tmp_path / "runs" / f"s{seed}.csv", "seed,n,bp,step,avg@4", rows)
    assert len(read(tmp_path / "runs").run_ids) == 3
