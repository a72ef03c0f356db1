"""Reading CSV exports of Weights & Biases."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from isocompute_sdk import fit
from isocompute_sdk.errors import FitError, RecordError
from isocompute_sdk.ingest import diagnose, propose, read_mapped
from isocompute_sdk.ingest.reader import read
from isocompute_sdk.records import RunSet
from isocompute_sdk.timing.measuring import measure

CHART = (
    '"Step","sun-3 - eval/avg@4","sun-3 - eval/avg@4__MIN","sun-3 - eval/avg@4__MAX",'
    '"a - b - eval/avg@4","a - b - eval/avg@4__MIN","a - b - eval/avg@4__MAX"\n'
    '"0","0.45","0.45","0.45","","",""\n'
    '"10","0.5","0.5","0.5","0.52","0.52","0.52"\n'
)
RUNS = {
    "sun-3": {"group_size": 8, "problems_per_batch": 32, "model": "qwen"},
    "a - b": {"n": 16, "bp": 32, "seed": 4},
}


def write(folder: Path, text: str, name: str = "chart.csv") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_a_chart_gives_one_run_per_column(tmp_path: Path):
    runs = RunSet.read(write(tmp_path, CHART), runs=RUNS)
    sun, other = runs.series("eval/avg@4")
    assert (sun.run_id, sun.group_size, sun.context["model"]) == ("sun-3", 8, "qwen")
    assert (sun.rollouts_T.tolist(), sun.value_T.tolist()) == ([0.0, 2560.0], [0.45, 0.5])
    assert (other.run_id, other.seed, other.rollouts_T.tolist()) == ("a - b", 4, [5120.0])


def test_what_wandb_adds_to_a_chart_is_no_metric(tmp_path: Path):
    header, *rows = CHART.splitlines()
    more = [f'{row},"{i}","{i}"' for i, row in enumerate(rows)]
    text = "\n".join([f'{header},"sun-3 - _step","a - b - _runtime"', *more])
    assert RunSet.read(write(tmp_path, text), runs=RUNS).metrics == ("eval/avg@4",)


def test_the_steps_of_the_trainer_in_a_chart_are_taken_in_place_of_those_of_wandb(tmp_path: Path):
    tags = ("train/global_step", "eval/avg@4")
    header = ",".join(["Step", *(f"{run} - {tag}{bound}" for run in RUNS for tag in tags for bound in ("", "__MIN"))])
    rows = ["0,0,0,0.4,0.4,0,0,0.4,0.4", "11,130,130,0.5,0.5,32,32,0.5,0.5"]
    path = write(tmp_path, "\n".join([header, *rows, ""]))
    runs = RunSet.read(path, runs=RUNS)
    assert [one.step_T.tolist() for one in runs.series("eval/avg@4")] == [[0, 130], [0, 32]]
    assert runs.metrics == ("eval/avg@4",)
    assert not [one for one in propose(path).open_questions() if one.field == "step_unit"]


def test_runs_are_never_guessed_from_their_names(tmp_path: Path):
    path = write(tmp_path, CHART)
    with pytest.raises(RecordError, match=r"group_size of run 'sun-3'(.|\n)*runs=\{'sun-3': \{'group_size'"):
        RunSet.read(path)
    with pytest.raises(RecordError, match=r"'a - b - eval/avg@4'.*'sun-3'"):
        RunSet.read(path, runs={"sun-3": RUNS["sun-3"]})


def test_a_column_that_fits_two_runs_is_ambiguous(tmp_path: Path):
    with pytest.raises(RecordError, match=r"'a - b - eval/avg@4'.*'a - b', 'a'"):
        RunSet.read(write(tmp_path, CHART), runs={**RUNS, "a": {"n": 4}})


def test_time_on_the_x_axis_is_refused(tmp_path: Path):
    path = write(tmp_path, CHART.replace('"Step"', '"Relative Time (Process)"'))
    with pytest.raises(RecordError, match=r"'Relative Time \(Process\)'"):
        RunSet.read(path, runs=RUNS)


@pytest.mark.parametrize("name", ["train/global_step", "trainer/global_step", "global_step"])
def test_the_step_of_a_trainer_is_a_step(tmp_path: Path, name: str):
    path = write(tmp_path, CHART.replace('"Step"', f'"{name}"'))
    assert RunSet.read(path, runs=RUNS).series("eval/avg@4")[0].step_T.tolist() == [0.0, 10.0]


def test_a_history_needs_only_its_configuration(tmp_path: Path):
    path = write(tmp_path, "_step,_runtime,_timestamp,eval/avg@4\n0,1.5,1e9,0.4\n1,3.5,1e9,\n2,4.5,1e9,0.5\n")
    runs = RunSet.read(path, group_size=8, problems_per_batch=32)
    assert runs.metrics == ("eval/avg@4",)
    assert runs.series("eval/avg@4")[0].rollouts_T.tolist() == [0.0, 512.0]


def milliseconds(seconds: float) -> str:
    return str(1e3 * seconds)


def nanoseconds(seconds: float) -> str:
    return str(1e9 * seconds)


def iso_8601(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()


def without_zone(seconds: float) -> str:
    return iso_8601(seconds).partition("+")[0]


def day_first(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%d.%m.%Y %H:%M:%S.%f")


@pytest.mark.parametrize(
    ("clock", "start", "written"),
    [
        ("_runtime", 0.0, str),
        ("_timestamp", 1.7e9, str),
        ("timestamp", 1.7e9, str),
        ("timestamp", 1.7e9, milliseconds),
        ("timestamp", 1.7e9, nanoseconds),
        ("timestamp", 1.7e9, iso_8601),
        ("timestamp", 1.7e9, without_zone),
        ("timestamp", 1.7e9, day_first),
    ],
)
def test_a_clock_in_a_table_of_evaluations_gives_the_speed(
    tmp_path: Path, clock: str, start: float, written: Callable[[float], str]
):
    rows = [(n, step, start + step * (6.0 + n * 16 / 50)) for n in (8, 64) for step in range(0, 101, 20)]
    # One run was resumed after three days.
    rows = [(n, step, at + 3 * 86_400 * (n == 64 and step > 50)) for n, step, at in rows]
    lines = [f"run-{n},{n},16,{step},{0.3 + step / 300},{written(seconds)}" for n, step, seconds in rows]
    path = write(tmp_path, "\n".join([f"run,n,B_p,step,avg@4,{clock}", *lines, ""]))
    speed = measure(RunSet.read(path))
    assert speed.step_overhead_seconds + speed.latency_floor_seconds == pytest.approx(6.0, rel=0.01)
    assert speed.rollouts_per_second == pytest.approx(50.0, rel=0.01)
    # The same runs beside each other, as a chart.
    wide: dict[object, list[object]] = {
        "Step": ["Step", *(f"run-{n} - {tag}" for n in (8, 64) for tag in ("avg@4", clock))]
    }
    for _, step, seconds in rows:
        wide.setdefault(step, [step]).extend((0.3 + step / 300, written(seconds)))
    text = "\n".join(",".join(map(str, one)) for one in wide.values())
    sizes = {f"run-{n}": {"n": n, "B_p": 16} for n in (8, 64)}
    assert measure(RunSet.read(write(tmp_path, text, "wide.csv"), runs=sizes)) == speed
    # The clock in a chart of its own.
    both = list(wide.values())
    charts = tmp_path / "charts"
    charts.mkdir()
    write(charts, "\n".join(f"{one[0]},{one[1]},{one[3]}" for one in both), "reward.csv")
    with pytest.raises(FitError, match="nothing about time"):
        measure(RunSet.read(charts, runs=sizes))
    write(charts, "\n".join(f"{one[0]},{one[2]},{one[4]}" for one in both), "clock.csv")
    assert measure(RunSet.read(charts, runs=sizes)) == speed
    (charts / "reward.csv").unlink()
    with pytest.raises(RecordError, match="Export the chart of the reward"):
        RunSet.read(charts, runs=sizes)


def test_what_is_no_number_and_no_column_of_a_run_is_named(tmp_path: Path):
    whole = CHART + "".join(f'"{step}",' + ",".join(['"0.5"'] * 6) + "\n" for step in range(20, 80, 10))

    def read(text: str) -> tuple[list[list[float]], list[str]]:
        runs = RunSet.read(write(tmp_path, text), runs=RUNS)
        return [one.value_T.tolist() for one in runs.series("eval/avg@4")], [note.code for note in runs.notes]

    (sun, other), notes = read(whole)
    for broken in ('"0","x","0.45"', '"","0.45","0.45"'):
        assert read(whole.replace('"0","0.45","0.45"', broken)) == ([sun[1:], other], [*notes, "log-damaged"])
    # A step that lost a digit is no new start.
    assert [*map(sorted, read(whole.replace('"20",', '"2",'))[0])] == [sorted(sun), sorted(other)]
    assert "columns-left-out" in read(whole.replace("sun-3 - eval/avg@4__MIN", "other"))[1]


def test_what_runs_says_is_checked(tmp_path: Path):
    path = write(tmp_path, CHART)
    with pytest.raises(RecordError, match=r"'sun-3' in runs=.*'group'"):
        RunSet.read(path, runs={**RUNS, "sun-3": {"group": 8}})
    with pytest.raises(RecordError, match=r"group_size.*8.5"):
        RunSet.read(path, runs={**RUNS, "sun-3": {"group_size": 8.5, "bp": 32}})


def openrlhf_history(folder: Path, updates: int) -> Path:
    """What OpenRLHF's WandbLogger sends (utils/logging_utils.py): for every update a sample and its metrics in two
    calls, for every evaluation one, each with a step column of its own."""
    calls: list[dict[str, object]] = []
    for step in range(1, updates + 1):
        calls.append({"train/generated_samples": '"{""_type"": ""table-file""}"'})
        calls.append({"train/policy_loss": 0.1, "train/reward": 0.25, "train/global_step": step})
        if step % 10 == 0:
            evaluation = {"eval/eval_math_pass1": step / 100, "eval/eval_math_pass4": 0.75}
            calls.append({**evaluation, "eval/global_step": step})
    names = list(dict.fromkeys(name for call in calls for name in call))
    lines = [",".join(["_step", "_runtime", *names])]
    lines += [",".join([str(i), "1.5", *(str(call.get(name, "")) for name in names)]) for i, call in enumerate(calls)]
    return write(folder, "\n".join(lines) + "\n", "history.csv")


def test_a_history_of_a_framework_counts_by_its_own_steps_and_has_our_names(tmp_path: Path):
    path = openrlhf_history(tmp_path, 40)
    runs = RunSet.read(path, n=8, bp=32)
    assert runs.metrics == ("avg@4", "best@4", "loss", "train_reward")
    (series,) = runs.series("avg@4", "math")
    assert series.step_T.tolist() == [10, 20, 30, 40]
    assert series.rollouts_T.tolist() == [2560, 5120, 7680, 10240]
    (trained,) = runs.series("train_reward", "train")
    assert trained.step_T.tolist() == list(range(1, 41))
    assert not runs.notes
    entry = propose(path).runs["history"]
    assert entry.step_unit is None
    mapped = propose(path).replace(
        runs={"history": entry.replace(group_size=8, problems_per_batch=32)}, searched=(str(path),)
    )
    (again,) = read_mapped(tmp_path / "map.yaml", mapped).series("avg@4", "math")
    assert again.rollouts_T.tolist() == series.rollouts_T.tolist()


def test_a_history_with_the_configuration_of_verl_says_gpus_and_seconds(tmp_path: Path):
    names = "run_id,training/global_step,critic/score/mean,timing_s/step,config.actor_rollout_ref.rollout.n"
    names += ",config.data.train_batch_size,config.trainer.n_gpus_per_node,config.trainer.nnodes"
    rows = [f"a,{step},0.{step},20.5,8,16,8,2" for step in range(10, 40, 10)]
    runs = RunSet.read(write(tmp_path, "\n".join([names, *rows]), "wide.csv"))
    assert [(run.group_size, run.problems_per_batch, run.gpus) for run in runs.runs()] == [(8, 16, 16)]
    (seconds,) = runs.series("step_seconds", "train")
    assert seconds.value_T.tolist() == [20.5] * 3


def test_the_settings_of_a_trainer_in_a_history_are_its_configuration(tmp_path: Path):
    settings = {"generation_batch_size": 128, "per_device_train_batch_size": 4, "gradient_accumulation_steps": 4}
    settings = {f"config.{name}": value for name, value in {**settings, "steps_per_generation": 8}.items()}
    measured = {"eval/reward": 0.5, "train/completions/mean_length": 300.0}
    rows = [
        {"Name": f"n{n}", "train/global_step": step, **measured, "config.num_generations": n, **settings}
        for n in (4, 8)
        for step in (10, 20, 30)
    ]
    lines = [",".join(map(str, row)) for row in ([*rows[0]], *(row.values() for row in rows))]
    for source in (write(tmp_path, "\n".join(lines) + "\n", "history.csv"), rows):
        runs = read(source)
        assert {(one.group_size, one.problems_per_batch) for one in runs.runs()} == {(4, 32), (8, 16)}
        # 8 forward steps of which 4 make an update.
        assert {one.context["updates_per_batch"] for one in runs.runs()} == {2}
        assert {one.rollouts for one in runs.runs()} == {30 / 2 * 128}
        for given in ({"n": 2}, {"rollouts_per_batch": 256}):
            with pytest.raises(RecordError, match="is given twice"):
                read(source, set=given)


def test_the_configuration_in_a_history_says_the_sizes_whatever_it_measured(tmp_path: Path):
    names = "Name,train/global_step,eval/reward,config.num_generations,config.generation_batch_size,config.beta"
    rows = [f"n{n},{step},0.{step},{n},128,0.0" for n in (4, 8) for step in (10, 20, 30)]
    runs = RunSet.read(write(tmp_path, "\n".join([names, *rows]), "history.csv"))
    assert {(one.group_size, one.problems_per_batch, one.context["kl_coef"]) for one in runs.runs()} == {
        (4, 32, 0.0),
        (8, 16, 0.0),
    }
    assert not [name for name in runs.metrics if "config" in name]
    # A mean over n answers is one over any other number of them.
    assert fit(runs.filter(metric="eval/reward"), metric="eval/reward").group_sizes == (4, 8)


@pytest.mark.parametrize("batch", ["config.rollouts_per_batch", "config.rollouts_per_step", "completions_per_step"])
def test_a_history_may_say_the_rollouts_of_a_batch(tmp_path: Path, batch: str):
    names = f"Name,_step,train/global_step,eval/reward,train/completions/mean_length,config.num_generations,{batch}"
    rows = [f"n{n},{2 * step},{step},0.{step},300,{n},128" for n in (4, 8) for step in (10, 20, 30)]
    path = write(tmp_path, "\n".join([names, *rows, ""]), "history.csv")
    assert not propose(path).open_questions()
    runs = read(path)
    assert {(one.group_size, one.problems_per_batch, one.rollouts) for one in runs.runs()} == {
        (4, 32, 30 * 128),
        (8, 16, 30 * 128),
    }
    assert batch not in runs.metrics
    with pytest.raises(RecordError, match="cannot make the 128 rollouts"):
        read(path, problems_per_batch=64)


@pytest.mark.parametrize("measure", ["train/completions/mean_length", "other"])
@pytest.mark.parametrize("name", ["Name", "run"])
def test_runs_of_one_name_are_told_apart_by_a_column_of_ids(tmp_path: Path, name: str, measure: str):
    names = f"{name},notes,ID,train/global_step,{measure},eval/reward,n,bp"
    rows = [f"grpo,try {step},id{n},{step},0.1,0.{step},{n},16" for n in (4, 8) for step in (10, 20, 30)]
    path = write(tmp_path, "\n".join([names, *rows, ""]), "history.csv")
    found = diagnose(path)
    assert found.verdict == "question"
    assert "ID=run_id" in found.next
    runs = read(path, rename={"ID": "run_id"}, ignore=[name] * ("--ignore" in found.next))
    assert {run.run_id: run.group_size for run in runs.runs()} == {"id4": 4, "id8": 8}


def test_a_history_in_two_parts_in_the_wrong_order_is_one_start(tmp_path: Path):
    names = ("_step", "train/global_step", "train/reward", "train/frac_reward_zero_std")
    rows = [f"{step},{step},{step / 100},0.5" for step in (*range(6, 13), *range(1, 6))]
    (series,) = RunSet.read(write(tmp_path, "\n".join([",".join(names), *rows, ""])), n=8, bp=32).series("train_reward")
    assert series.value_T.tolist() == [step / 100 for step in range(1, 13)]


def test_a_step_that_counts_calls_is_a_question_and_never_taken_in_silence(tmp_path: Path):
    tags = ("eval/eval_math_pass1", "eval/eval_math_pass4")
    header = ",".join(["Step", *(f"n8_bp32 - {tag}" for tag in tags)])
    path = write(tmp_path, f"{header}\n20,0.5,0.6\n41,0.55,0.6\n")
    asked = [question.asks for question in propose(path).questions.values() if question.field == "step_unit"]
    assert len(asked) == 1
    assert "counts calls" in asked[0]
    with pytest.raises(RecordError, match="'Step' counts"):
        RunSet.read(path, runs={"n8_bp32": {"n": 8, "bp": 32}})
    # Of an unknown framework it is taken for an update, and a note says so, unless somebody confirmed it.
    chart = write(tmp_path, CHART, "unknown.csv")
    (told,) = [note for note in RunSet.read(chart, runs=RUNS).notes if note.code == "column-assumed"]
    assert told.message in diagnose(chart).runs[0].problems
    assert told not in RunSet.read(chart, runs=RUNS, rename={"Step": "step"}).notes
    own = write(tmp_path, path.read_text().replace("Step", "eval/global_step"), "own.csv")
    assert not RunSet.read(own, runs={"n8_bp32": {"n": 8, "bp": 32}}).notes
    assert not [question for question in propose(own).questions.values() if question.field == "step_unit"]


def test_a_cell_that_says_nan_was_measured_and_an_empty_one_was_not(tmp_path: Path):
    text = "Step,n8_bp32 - val-core/g/acc/mean@4\n0,0.5\n10,\n20,NaN\n30,0.6\n"
    path = write(tmp_path, text)
    mapping = propose(path, set={"n": 8, "bp": 32}).replace(searched=(str(path),))
    runs = read_mapped(tmp_path / "map.yaml", mapping)
    (note,) = [note for note in runs.notes if note.code == "values-not-finite"]
    assert note.data["step"] == 20
    assert runs.series("avg@4", "g")[0].step_T.tolist() == [0, 30]


def test_a_run_in_charts_of_several_metrics_is_proposed_once(tmp_path: Path):
    for file, tag in (("avg", "mean@4"), ("best", "best@4/mean")):
        text = f"Step,n8_bp32 - val-core/g/acc/{tag},n16_bp32 - val-core/g/acc/{tag}\n0,0.5,0.5\n10,0.6,0.6\n"
        write(tmp_path, text, f"{file}.csv")
    assert sorted(propose(tmp_path).runs) == ["n16_bp32", "n8_bp32"]
    runs = RunSet.read(tmp_path, n=8, bp=32)
    assert runs.run_ids == ("n8_bp32", "n16_bp32")
    assert runs.metrics == ("avg@4", "best@4:bootstrap")
    # The same metric twice is another run of that name, but in a copy of the file.
    write(tmp_path, (tmp_path / "avg.csv").read_text(), "copy.csv")
    assert len(propose(tmp_path).runs) == 2
    write(tmp_path, (tmp_path / "avg.csv").read_text() + "20,0.7,0.7\n", "copy.csv")
    assert sorted(propose(tmp_path).runs) == ["copy/n16_bp32", "copy/n8_bp32", "n16_bp32", "n8_bp32"]
