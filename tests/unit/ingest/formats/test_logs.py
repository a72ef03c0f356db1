"""Logs of OpenRLHF, veRL and TRL through `RunSet.read`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import isocompute_sdk as iso
from isocompute_sdk.errors import RecordError
from isocompute_sdk.ingest.doctor import diagnose
from isocompute_sdk.records import RunSet
from tests.unit.ingest.log_files import OPENRLHF, verl_line, write_events, write_hydra, write_verl
from tests.unit.sweeps import codes

DATA = Path(__file__).parents[1] / "data" / "trl"


def test_a_log_says_what_is_missing_and_how_to_give_it(tmp_path: Path) -> None:
    write_events(tmp_path / "a", range(1, 31), OPENRLHF)
    with pytest.raises(RecordError, match=r"group_size.*'a'(.|\n)*--output") as caught:
        RunSet.read(tmp_path)
    assert any(option.startswith("--set group_size") for option in caught.value.options)
    with pytest.raises(RecordError, match=r"of runs=: received 'b'.* a"):
        RunSet.read(tmp_path, runs={"b": {"n": 8, "bp": 32}})
    # One n for two runs may be wrong for one of them.
    write_events(tmp_path / "b", range(1, 31), OPENRLHF)
    with pytest.raises(RecordError) as caught:
        RunSet.read(tmp_path)
    assert caught.value.options == ()


def test_after_a_resume_both_the_curve_and_what_was_paid_are_kept(tmp_path: Path) -> None:
    write_events(tmp_path / "a", range(1, 58), OPENRLHF)
    write_events(tmp_path / "a", range(41, 101), OPENRLHF, began=1000)
    runs = RunSet.read(tmp_path, n=8, bp=32)
    (info,) = runs.runs()
    assert info.rollouts == 100 * 256
    assert info.rollouts_spent == (57 + 60) * 256
    table = runs.filter(metric="avg@4").to_polars()
    assert table["step"].to_list() == list(range(10, 101, 10))
    before = table.filter(table["step"] <= 40)
    assert before["rollouts_spent"].to_list() == before["rollouts"].to_list()


def test_measurements_of_weights_that_were_given_up_do_not_count(tmp_path: Path) -> None:
    """The first attempt evaluated at step 50, the second went on from 41 and never got that far."""
    write_events(tmp_path / "a", range(1, 58), OPENRLHF)
    write_events(tmp_path / "a", range(42, 46), OPENRLHF, began=1000)
    runs = RunSet.read(tmp_path, n=8, bp=32)
    assert runs.series("avg@4")[0].step_T.tolist() == [10, 20, 30, 40]
    assert max(runs.series("entropy")[0].step_T) == 45


def test_a_log_that_begins_late_does_not_begin_with_the_base_model(tmp_path: Path) -> None:
    write_events(tmp_path / "late", range(201, 231), OPENRLHF)
    write_events(tmp_path / "whole", range(1, 31), OPENRLHF)
    runs = RunSet.read(tmp_path, n=8, bp=32)
    (note,) = [note for note in runs.notes if note.code == "log-starts-late"]
    assert (note.data["run_id"], note.data["step"]) == ("late", 200)
    assert min(runs.filter(run_id="late").to_polars()["rollouts"]) == 201 * 256


def test_samples_that_a_filter_threw_away_were_generated(tmp_path: Path) -> None:
    # 100 n times the share of groups that were kept: half of them here.
    tags = {**OPENRLHF, "train/dynamic_filtering_pass_rate": lambda step: 400.0 if step > 10 else 800.0}
    write_events(tmp_path / "a", range(1, 21), tags)
    runs = RunSet.read(tmp_path, n=8, bp=32)
    assert runs.series("avg@4")[0].rollouts_T.tolist() == [10 * 256, 10 * 256 + 10 * 512]
    assert runs.series("trained_share", "train")[0].value_T.tolist() == [1.0] * 10 + [0.5] * 10
    # veRL counts groups, and says nothing with an update that lost none.
    lost = {"training/filter_groups/evicted_samples": 6.0, "training/filter_groups/discarded_surplus_samples": 2.0}
    lines = [verl_line(step, **(lost if step % 2 else {})) for step in range(1, 21)]
    (tmp_path / "verl.jsonl").write_text("\n".join(lines))
    filtered = RunSet.read(tmp_path / "verl.jsonl", n=8, bp=32)
    assert filtered.series("avg@4")[0].rollouts_T.tolist() == [5 * (320 + 256), 10 * (320 + 256)]
    assert filtered.series("trained_share", "train")[0].value_T.tolist() == [0.8, 1.0] * 10


def test_what_a_filter_threw_away_is_told_and_a_log_without_a_filter_says_nothing(tmp_path: Path) -> None:
    lost = {"training/filter_groups/evicted_samples": 48.0}
    for name, extra in (("filtered", lost), ("plain", {})):
        (tmp_path / name).mkdir()
        (tmp_path / name / "log.jsonl").write_text("\n".join(verl_line(step, **extra) for step in range(1, 41)))
    found = {name: RunSet.read(tmp_path / name / "log.jsonl", n=8, bp=32) for name in ("filtered", "plain")}
    assert "trained_share" not in found["plain"].metrics
    codes_of = {name: [note.code for note in iso.check_health(runs).notes] for name, runs in found.items()}
    assert "filtered-rollouts" in codes_of["filtered"]
    assert "filtered-rollouts" not in codes_of["plain"]
    (note,) = [note for note in iso.check_health(found["filtered"]).notes if note.code == "filtered-rollouts"]
    assert note.severity == "warning"
    assert "40%" in note.message


def test_verls_bootstrap_is_never_called_best_at_k(tmp_path: Path) -> None:
    write_verl(tmp_path / "exp.jsonl", range(31))
    runs = RunSet.read(tmp_path, n=4, bp=32)
    assert runs.metrics == ("avg@4", "best@4:bootstrap", "entropy", "train_reward", "worst@4:bootstrap")
    assert runs.series("avg@4")[0].value_T.tolist() == [0.5, 0.51, 0.52, 0.53]
    assert runs.series("avg@4")[0].step_T.tolist() == [0, 10, 20, 30]
    (finding,) = diagnose(tmp_path, set={"n": 4, "bp": 32}).runs
    assert not any("best@4" in text for text in finding.problems)


def test_a_saved_configuration_says_what_a_log_does_not(tmp_path: Path) -> None:
    for name, n in (("small", 4), ("large", 16)):
        write_hydra(tmp_path / name, n=n, problems=128, mini=32)
        write_verl(tmp_path / name / "log.jsonl", range(11))
    runs = RunSet.read(tmp_path)
    assert sorted(info.group_size for info in runs.runs()) == [4, 16]
    info = runs.runs()[0]
    assert (info.problems_per_batch, info.seed, info.context["updates_per_batch"]) == (128, 1, 4)
    assert (info.context["model"], info.context["kl_coef"]) == ("Qwen/Qwen2.5-7B", 0.001)
    # What the caller says counts more, and is told.
    larger, halved = RunSet.read(tmp_path, n=64), RunSet.read(tmp_path / "large", rollouts_per_batch=1024)
    assert (larger.runs()[0].group_size, halved.runs()[0].problems_per_batch) == (64, 64)
    (finding,) = diagnose(tmp_path / "large", set={"n": 64}).runs
    assert {"sources-disagree"} <= codes(larger) & codes(halved)
    assert any("sources disagree" in text for text in finding.problems)
    # A name is a source too.
    write_verl(tmp_path / "named" / "G16.jsonl", range(11))
    read = [codes(RunSet.read(tmp_path / "named", n=n, bp=32)) for n in (16, 64)]
    assert ["sources-disagree" in one for one in read] == [False, True]


def test_verl_attempts_are_stitched_and_a_broken_tail_is_all_that_is_lost(tmp_path: Path) -> None:
    write_verl(tmp_path / "exp" / "attempt-1.jsonl", range(36), tail='\n{"step": 36, "da')
    write_verl(tmp_path / "exp" / "attempt-2.jsonl", range(31, 61))
    runs = RunSet.read(tmp_path, n=4, bp=32)
    (info,) = runs.runs()
    assert info.run_id == "exp"
    assert (info.rollouts, info.rollouts_spent) == (60 * 128, 65 * 128)
    assert runs.series("entropy")[0].step_T.tolist() == list(range(61))
    assert "log-damaged" in codes(runs)


def test_a_log_that_was_appended_to_has_its_attempts_told_apart(tmp_path: Path) -> None:
    write_verl(tmp_path / "exp.jsonl", [*range(26), *range(21, 41)])
    (info,) = RunSet.read(tmp_path, n=4, bp=32).runs()
    assert (info.rollouts, info.rollouts_spent) == (40 * 128, 45 * 128)


def test_values_that_are_not_finite_are_left_out_with_a_note(tmp_path: Path) -> None:
    tags = {**OPENRLHF, "train/entropy_loss": lambda step: float("nan") if step > 25 else 0.5}
    write_events(tmp_path / "a", range(1, 31), tags)
    runs = RunSet.read(tmp_path, n=8, bp=32)
    assert max(runs.series("entropy")[0].step_T) == 25
    (note,) = [note for note in runs.notes if note.code == "values-not-finite"]
    assert (note.data["metric"], note.data["step"], note.data["values"]) == ("entropy", 26, 5)


def test_the_state_of_a_real_trl_run_is_read_exactly(tmp_path: Path) -> None:
    """Written by TRL 1.16: 12 steps of n = 4, B_p = 4, killed after step 6 and resumed from checkpoint 4."""
    state = json.loads((DATA / "trainer_state.json").read_text())
    # At step 4 it evaluated twice, before the kill and after the resume: the later value counts.
    told = list({row["step"]: row["eval_reward"] for row in state["log_history"] if "eval_reward" in row}.items())
    runs = RunSet.read(DATA)
    (series,) = runs.series("avg@4")
    assert list(zip(series.step_T, series.value_T, strict=True)) == told
    assert series.rollouts_T.tolist() == [step * 16 for step, _ in told]
    assert (series.group_size, series.problems_per_batch) == (4, 4)
    entropy = [row["entropy"] for row in state["log_history"] if "entropy" in row]
    assert runs.series("entropy")[0].value_T.tolist() == entropy


def test_events_beside_a_state_tell_of_the_attempts_it_forgot(tmp_path: Path) -> None:
    for name in ("trainer_state.json", "args.json"):
        (tmp_path / name).write_bytes((DATA / name).read_bytes())
    tags = {"train/reward": lambda step: 0.5, "train/frac_reward_zero_std": lambda step: 0.5}
    write_events(tmp_path / "runs" / "Nov21_08-52-48_host", range(1, 7), tags)
    write_events(tmp_path / "runs" / "Nov21_08-54-02_host", range(5, 13), tags, began=1000)
    (info,) = RunSet.read(tmp_path).runs()
    assert (info.rollouts, info.rollouts_spent) == (12 * 16, 14 * 16)


def test_without_a_number_of_samples_a_mean_keeps_an_open_name(tmp_path: Path) -> None:
    (tmp_path / "trainer_state.json").write_bytes((DATA / "trainer_state.json").read_bytes())
    runs = RunSet.read(tmp_path, n=4, bp=4)
    assert "avg@?" in runs.metrics
    assert "evaluation-samples-unknown" in codes(runs)
    assert "avg@4" in RunSet.read(tmp_path, n=4, bp=4, eval_samples=4).metrics


def test_optimiser_steps_are_counted_in_rollout_batches(tmp_path: Path) -> None:
    (tmp_path / "trainer_state.json").write_bytes((DATA / "trainer_state.json").read_bytes())
    runs = RunSet.read(tmp_path, n=4, bp=4, updates_per_batch=2, eval_samples=4)
    assert runs.series("avg@4")[0].step_T.tolist() == [0, 2, 4, 6]
    assert runs.series("avg@4")[0].rollouts_T.tolist() == [0, 32, 64, 96]


def test_events_of_runs_without_a_name_stay_apart(tmp_path: Path) -> None:
    for moment in ("Nov21_08-52-48_host", "Nov22_08-52-48_host"):
        write_events(tmp_path / "runs" / moment, range(1, 31), OPENRLHF)
    assert len(RunSet.read(tmp_path, n=8, bp=32).run_ids) == 2


def test_two_short_logs_of_one_name_need_a_choice(tmp_path: Path) -> None:
    write_events(tmp_path / "tb" / "exp", range(1, 3), {"critic/score/mean": lambda step: 0.5})
    write_verl(tmp_path / "exp.jsonl", range(1, 3))
    with pytest.raises(RecordError, match="tensorboard, verl"):
        RunSet.read(tmp_path, n=8, bp=32)
    assert RunSet.read(tmp_path, "verl", n=8, bp=32).run_ids == ("exp",)


def test_what_lies_beside_logs_is_named(tmp_path: Path) -> None:
    write_events(tmp_path / "a", range(1, 31), OPENRLHF)
    (tmp_path / "runs.csv").write_text("n,C,avg@4\n8,1,0.5\n")
    runs = RunSet.read(tmp_path, n=8, bp=32)
    assert runs.run_ids == ("a",)
    (note,) = [note for note in runs.notes if note.code == "files-not-read"]
    assert note.data["files"] == [str(tmp_path / "runs.csv")]


def test_an_unknown_log_asks_for_the_evaluation_and_what_its_steps_count(tmp_path: Path) -> None:
    tags = {"my/loss": lambda step: 0.5, "my/accuracy": lambda step: 0.25}
    write_events(tmp_path / "a", range(0, 31), tags)
    with pytest.raises(RecordError, match=r"'step'.*rollout_batches, optim"):
        RunSet.read(tmp_path, n=8, bp=32, rename={"my/accuracy": "avg@4"})
    with pytest.raises(RecordError, match="my/accuracy, my/loss"):
        RunSet.read(tmp_path, n=8, bp=32, step_unit="rollout_batches")
    read = {"n": 8, "bp": 32, "rename": {"my/accuracy": "avg@4"}}
    assert RunSet.read(tmp_path, step_unit="rollout_batches", **read).runs()[0].rollouts == 30 * 256
    assert RunSet.read(tmp_path, step_unit="rollouts", **read).runs()[0].rollouts == 30


def test_what_an_update_measured_is_no_evaluation_under_another_name(tmp_path: Path) -> None:
    write_events(tmp_path / "a", range(1, 31), OPENRLHF)
    rename = {"train/reward": "right", "eval/eval_math_pass1": "solved"}
    table = RunSet.read(tmp_path, n=8, bp=32, rename=rename).to_polars()
    sets = {one["metric"]: one["eval_set"] for one in table.select("metric", "eval_set").unique().to_dicts()}
    assert (sets["right"] == "train", sets["solved"] == "train") == (True, False)


def test_counted_rollouts_survive_saving_and_reading_again(tmp_path: Path) -> None:
    write_events(tmp_path / "a", range(1, 31), {**OPENRLHF, "train/dynamic_filtering_pass_rate": lambda step: 400.0})
    runs = RunSet.read(tmp_path / "a", n=8, bp=32)
    runs.to_polars().write_parquet(tmp_path / "runs.parquet")
    again = RunSet.read(tmp_path / "runs.parquet")
    assert again == runs
    assert RunSet.from_dict(json.loads(json.dumps(runs.to_dict()))).notes == runs.notes


def test_times_of_optimiser_steps_are_not_taken_for_times_of_updates(tmp_path: Path) -> None:
    tags = {"train/reward": lambda step: 0.5, "train/frac_reward_zero_std": lambda step: 0.5}
    write_events(tmp_path / "a", range(1, 13), {**tags, "train/step_time": lambda step: 2.0})
    assert "step_seconds" in RunSet.read(tmp_path / "a", n=4, bp=4, updates_per_batch=1).metrics
    assert "step_seconds" not in RunSet.read(tmp_path / "a", n=4, bp=4, updates_per_batch=2).metrics
