"""Arguments that a Hugging Face trainer leaves: training_args.bin, and texts in event files."""

from __future__ import annotations

import enum
import json
import os
import pickle
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from isocompute_sdk.errors import RecordError
from isocompute_sdk.ingest import diagnose, propose
from isocompute_sdk.ingest.formats.configuration import SIZES, STEPS_PER_BATCH
from isocompute_sdk.ingest.stores.event_files import read_event_file
from isocompute_sdk.ingest.stores.saved_config import find_config, on_devices, translate
from isocompute_sdk.ingest.stores.trainer_state import read_training_args
from isocompute_sdk.records import RunSet
from tests.unit.ingest.log_files import write_events, write_hydra, write_verl

EVERY = {"adam_beta1": 0.9, "max_grad_norm": 1.0}
"""Arguments that tell that a file holds all of them."""


class Strategy(enum.Enum):
    STEPS = "steps"


@dataclass
class Arguments:
    """As saved by a trainer: plain values among objects of other packages."""

    num_generations: int = 4
    eval_strategy: Strategy = Strategy.STEPS
    report_to: list[str] = field(default_factory=lambda: ["tensorboard"])
    nested: dict[str, Any] = field(default_factory=lambda: {"a": {"b": 1.5}, "path": Path("x")})
    logging: set[int] = field(default_factory=lambda: {1, 2})
    device: Any = None


def save(path: Path, **values: Any) -> Path:
    torch = pytest.importorskip("torch")
    arguments = Arguments(device=torch.device("cpu"))
    vars(arguments).update(values)
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save(arguments, path)
    return path


def test_plain_values_are_read_without_the_classes_of_the_others(tmp_path: Path) -> None:
    found = read_training_args(save(tmp_path / "training_args.bin", learning_rate=1e-6, run_name=None))
    assert found["__class__"] == "Arguments"
    assert found["num_generations"] == 4
    assert found["eval_strategy"] == "steps"
    assert found["learning_rate"] == 1e-6
    assert found["run_name"] is None
    assert found["nested"]["a"] == {"b": 1.5}
    assert found["device"] == "cpu"
    assert "logging" not in found


class Harmful:
    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.target),)


def test_nothing_in_the_file_is_run(tmp_path: Path) -> None:
    target = tmp_path / "made"
    path = save(tmp_path / "training_args.bin", harmful=Harmful(target))
    assert read_training_args(path)["num_generations"] == 4
    assert not target.exists()
    with zipfile.ZipFile(path) as archive:
        content = archive.read("training_args/data.pkl")
    # An ordinary unpickler does run it.
    pickle.loads(content)
    assert target.exists()


RELEASES: dict[str, tuple[dict[str, Any], dict[str, float | None]]] = {
    "0.14 counts prompts": (
        {**EVERY, "gradient_accumulation_steps": 2, "num_processes": 3},
        {"problems_per_batch": 4 * 2 * 3, "updates_per_batch": 1},
    ),
    "0.15 counts completions": (
        {**EVERY, "gradient_accumulation_steps": 4, "num_processes": 1, "reward_weights": None},
        {"problems_per_batch": 4 * 4 / 8, "updates_per_batch": 1},
    ),
    "0.16 uses a batch several times": (
        {**EVERY, "gradient_accumulation_steps": 4, "num_processes": 1, "reward_weights": None, "num_iterations": 3},
        {"problems_per_batch": 2, "updates_per_batch": 3},
    ),
    "0.17 does not say how many processes": (
        {**EVERY, "gradient_accumulation_steps": 4, "reward_weights": None, "loss_type": "bnpo"},
        {"problems_per_batch": None},
    ),
    "0.18 says it by its generation batch": (
        {**EVERY, "gradient_accumulation_steps": 2, "steps_per_generation": 2, "generation_batch_size": 32},
        {"problems_per_batch": 4, "updates_per_batch": 1},
    ),
    "a generation of several updates": (
        {**EVERY, "gradient_accumulation_steps": 2, "steps_per_generation": 4, "generation_batch_size": 32},
        {"problems_per_batch": 4, "updates_per_batch": 2},
    ),
    "a generation of several updates, used twice": (
        {
            **EVERY,
            "gradient_accumulation_steps": 2,
            "steps_per_generation": 4,
            "generation_batch_size": 32,
            "num_iterations": 2,
        },
        {"problems_per_batch": 4, "updates_per_batch": 4},
    ),
    "no batch of a device": (
        {
            **EVERY,
            "per_device_train_batch_size": None,
            "gradient_accumulation_steps": 2,
            "steps_per_generation": 4,
            "generation_batch_size": 32,
            "num_iterations": 2,
        },
        {"problems_per_batch": 4, "updates_per_batch": 4},
    ),
    "12 steps over 8": (
        {**EVERY, "gradient_accumulation_steps": 8, "steps_per_generation": 12, "generation_batch_size": 48},
        {"problems_per_batch": 6, "updates_per_batch": None, STEPS_PER_BATCH: 1.5},
    ),
    "an update of several generations": (
        {**EVERY, "gradient_accumulation_steps": 4, "steps_per_generation": 2, "generation_batch_size": 8},
        {"problems_per_batch": 2, "updates_per_batch": 1},
    ),
    "several GPUs in one process": (
        {**EVERY, "gradient_accumulation_steps": 2, "steps_per_generation": 2, "generation_batch_size": 8, "_n_gpu": 4},
        {"problems_per_batch": 4, "updates_per_batch": 1},
    ),
}


@pytest.mark.parametrize("name", RELEASES)
def test_every_release_of_trl_counts_its_own_way(name: str) -> None:
    more, expected = RELEASES[name]
    found = translate(Path("args"), {"num_generations": 8, "per_device_train_batch_size": 4, **more})
    assert found is not None
    assert {key: found.fields[key].value if key in found.fields else None for key in expected} == expected
    assert (found.batch is not None) == (expected["problems_per_batch"] is None)


@pytest.mark.parametrize("key", ["gradient_accumulation_steps", "steps_per_generation", "num_iterations", "_n_gpu"])
@pytest.mark.parametrize("value", [1e308, 2**70, float("inf"), float("nan"), 9e15])
def test_sizes_that_no_run_has_are_not_known(key: str, value: float) -> None:
    said = {**EVERY, "num_generations": 8, "per_device_train_batch_size": 4, "num_processes": 1, "steps": 2, key: value}
    found = translate(Path("args"), said)
    assert found is not None
    assert all(abs(float(one.value)) <= 2**53 for name, one in found.fields.items() if name in SIZES)


@pytest.mark.parametrize("own", [0, -4])
def test_a_batch_of_no_rollouts_on_a_device_says_nothing_of_the_number_of_devices(own: int) -> None:
    found = translate(Path("args"), {**EVERY, "num_generations": 8, "per_device_train_batch_size": own})
    assert found is not None
    assert on_devices(found, 16, Path("state")) == found


def test_a_step_that_is_no_number_is_refused_and_a_number_beyond_all_is_left_out(tmp_path: Path) -> None:
    state(tmp_path / "huge", range(1, 9))
    text = (tmp_path / "huge/trainer_state.json").read_text()
    for name, old, new in (("text", '"step": 3', '"step": "x"'), ("huge", '"reward": 0.03', '"reward": ' + "9" * 400)):
        state(tmp_path / name, range(1, 9))
        (tmp_path / name / "trainer_state.json").write_text(text.replace(old, new))
    sizes = {"group_size": 8, "problems_per_batch": 4, "updates_per_batch": 1}
    with pytest.raises(RecordError, match="step"):
        RunSet.read(tmp_path / "text", set=sizes)
    values = RunSet.read(tmp_path / "huge", set=sizes).to_polars()["value"].to_list()
    assert [value for value in values if value] == [step / 100 for step in range(1, 9) if step != 3]


@dataclass
class Launch:
    """As Accelerate's `PartialState` in the arguments."""

    num_processes: int


def test_the_saved_arguments_say_how_many_processes_trained(tmp_path: Path) -> None:
    more = {**EVERY, "num_generations": 8, "per_device_train_batch_size": 8, "gradient_accumulation_steps": 1}
    path = save(tmp_path / "training_args.bin", **more, reward_weights=None)
    found = find_config(tmp_path, tmp_path)
    assert found is not None
    assert "problems_per_batch" not in found.fields
    save(path, **more, reward_weights=None, distributed_state=Launch(4))
    found = find_config(tmp_path, tmp_path)
    assert found is not None
    assert found.fields["problems_per_batch"].value == 4
    # In TRL 0.14, which had no such field, a batch counts prompts.
    save(path, **more, distributed_state=Launch(4))
    found = find_config(tmp_path, tmp_path)
    assert found is not None
    assert found.fields["problems_per_batch"].value == 32


def state(folder: Path, steps: range, **more: Any) -> Path:
    rows = [{"step": step, "reward": step / 100, "frac_reward_zero_std": 0.0} for step in steps]
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "trainer_state.json"
    path.write_text(json.dumps({"log_history": rows, "global_step": steps[-1], **more}))
    return path


def test_sources_that_disagree_are_asked_about(tmp_path: Path) -> None:
    checkpoint = tmp_path / "run" / "checkpoint-30"
    state(checkpoint, range(1, 31))
    sizes = {"per_device_train_batch_size": 8, "gradient_accumulation_steps": 1, "generation_batch_size": 8_000_008}
    save(checkpoint / "training_args.bin", **EVERY, num_generations=8, steps_per_generation=1, **sizes)
    (tmp_path / "run" / "args.json").write_text(json.dumps({"num_generations": 4, "steps_per_generation": 1, **sizes}))
    candidates = {one.field: set(one.candidates) for one in propose(tmp_path).questions.values()}
    assert candidates["group_size"] == {"4", "8"}
    assert candidates["problems_per_batch"] == {"1000001", "2000002"}
    with pytest.raises(RecordError):
        RunSet.read(tmp_path)
    runs = RunSet.read(tmp_path, group_size=8, problems_per_batch=1)
    assert runs.runs()[0].group_size == 8


def launch(folder: Path, arguments: dict[str, Any], steps: range, second: int) -> None:
    """One event file, as the trainer's TensorBoard callback writes it."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
    from tensorboard.compat.proto.tensor_pb2 import TensorProto
    from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto
    from tensorboard.summary.writer.record_writer import RecordWriter

    folder.mkdir(parents=True, exist_ok=True)
    shape = TensorShapeProto(dim=[TensorShapeProto.Dim(size=1)])
    text = TensorProto(dtype="DT_STRING", string_val=[json.dumps(arguments, indent=2).encode()], tensor_shape=shape)
    plugin = SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name="text"))
    with (folder / f"events.out.tfevents.{second}.host.7.0").open("wb") as file:
        writer = RecordWriter(file)
        writer.write(Event(wall_time=second, file_version="brain.Event:2").SerializeToString())
        value = Summary.Value(tag="args/text_summary", metadata=plugin, tensor=text)
        writer.write(Event(wall_time=second, summary=Summary(value=[value])).SerializeToString())
        for step in steps:
            for tag, number in (("train/reward", step / 100), ("train/frac_reward_zero_std", 0.0)):
                summary = Summary(value=[Summary.Value(tag=tag, simple_value=number)])
                writer.write(Event(wall_time=second + step, step=step, summary=summary).SerializeToString())


def arguments(n: int, rate: float = 1e-6, **more: Any) -> dict[str, Any]:
    sizes = {"per_device_train_batch_size": n, "gradient_accumulation_steps": 4, "steps_per_generation": 4}
    return {**EVERY, "num_generations": n, "generation_batch_size": 4 * n, "learning_rate": rate, **sizes, **more}


def test_launches_in_one_folder_are_runs_of_their_own(tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    launch(folder, arguments(4), range(1, 21), 1000)
    launch(folder, arguments(8), range(1, 31), 2000)
    launch(folder, arguments(8, 1e-5), range(1, 41), 3000)
    launch(folder, arguments(8, 1e-5), range(21, 51), 4000)  # goes on after step 20
    launch(folder, arguments(8, 1e-5), range(1, 11), 5000)  # begins anew
    launch(folder, arguments(12), range(0), 6000)  # died before its first update
    start = read_event_file(folder / "events.out.tfevents.4000.host.7.0", only_beginning=True)
    assert start is not None
    assert start.first_step == 21
    runs = RunSet.read(folder)
    found = [(one.group_size, one.context["learning_rate"], one.rollouts, one.rollouts_spent) for one in runs.runs()]
    assert sorted(found) == [
        (4, 1e-6, 20 * 16, 20 * 16),
        (8, 1e-6, 30 * 32, 30 * 32),
        (8, 1e-5, 10 * 32, 10 * 32),
        (8, 1e-5, 50 * 32, 70 * 32),
    ]
    assert [one.attempts for one in diagnose(folder).runs] == [1, 1, 2, 1]


def test_launches_are_called_by_their_run_names_if_these_differ(tmp_path: Path) -> None:
    launch(tmp_path, arguments(4, run_name="small"), range(1, 11), 1000)
    launch(tmp_path, arguments(8, run_name="large"), range(1, 11), 2000)
    assert {name.rpartition("/")[2] for name in RunSet.read(tmp_path).run_ids} == {"small", "large"}


def verl_configuration(n: int, problems: int, name: str, project: str = "math") -> str:
    return (
        f"trainer: {{project_name: {project}, experiment_name: {name}}}\n"
        f"actor_rollout_ref: {{rollout: {{n: {n}}}, actor: {{ppo_mini_batch_size: {problems}}}}}\n"
        f"data: {{train_batch_size: {problems}}}\n"
    )


@pytest.mark.parametrize(
    ("said", "gpus"),
    [
        ("nnodes: 2, n_gpus_per_node: 8", 16),
        ("n_gpus_per_node: 8", 8),
        ("nnodes: 2", None),
        ("nnodes: $NODES, n_gpus_per_node: 8", None),
    ],
)
def test_verl_says_the_gpus_of_a_run(tmp_path: Path, said: str, gpus: int | None) -> None:
    write_verl(tmp_path / "run.jsonl", range(11))
    write_hydra(tmp_path)
    with (tmp_path / ".hydra" / "config.yaml").open("a") as settings:
        settings.write(f"trainer: {{{said}}}\n")
    (run,) = RunSet.read(tmp_path).runs()
    assert run.gpus == gpus


def test_an_average_over_k_samples_was_measured_with_k_where_the_configuration_states_none(tmp_path: Path) -> None:
    for name in ("stated", "silent"):
        (tmp_path / name).mkdir()
        write_verl(tmp_path / name / "run.jsonl", range(11))
        write_hydra(tmp_path / name)
    settings = tmp_path / "silent" / ".hydra" / "config.yaml"
    settings.write_text(settings.read_text().replace("val_kwargs: {n: 4, temperature: 0.6}", "val_kwargs: {}"))
    runs = RunSet.read(tmp_path)
    assert "avg@4" in runs.metrics
    assert [run.context["eval_samples"] for run in runs.runs()] == [4, 4]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("overrides.yaml", "- actor_rollout_ref.rollout.n=8\n- +data.train_batch_size=16\n"),
        ("hydra_overrides.yaml", "- actor_rollout_ref.rollout.n=8\n- +data.train_batch_size=16\n"),
        (".hydra/config.yaml", verl_configuration(8, 16, "a")),
        (
            "start_on_node_3.sh",
            "python3 -m verl.trainer.main_ppo actor_rollout_ref.rollout.n=8 data.train_batch_size=16\n",
        ),
    ],
)
def test_a_configuration_beside_the_log_is_used(tmp_path: Path, name: str, text: str) -> None:
    launch(tmp_path / "run", {}, range(0), 1000)

    write_events(tmp_path / "run", range(1, 11), {"critic/score/mean": lambda step: 0.5, "training/global_step": float})
    (tmp_path / "run" / name).parent.mkdir(exist_ok=True)
    (tmp_path / "run" / name).write_text(text)
    (found,) = diagnose(tmp_path / "run").runs
    assert (found.group_size, found.problems_per_batch, found.rollouts) == ("8", "16", 1280)
