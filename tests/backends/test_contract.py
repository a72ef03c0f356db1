"""What every registered backend promises, built in or third party."""

from __future__ import annotations

import functools
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from isocompute_sdk.errors import BackendError, RecordError
from isocompute_sdk.ingest.stores.saved_config import read_config
from isocompute_sdk.notes import Note
from isocompute_sdk.run_folders.store import write_spec
from isocompute_sdk.specs import Data, Hardware, Recipe, RunSpec
from isocompute_sdk.training import registry
from isocompute_sdk.training.backend import Backend, BackendInfo, run_folder
from isocompute_sdk.training.framework import FrameworkBackend
from tests.backends.framework_runs import CHANGED, CHANGES, Recorder, contract_run, run_maker
from tests.parameters import few

HOSTILE = [
    "it's",
    'a "quoted" name',
    "$(touch escaped)",
    "`touch escaped`",
    "a;touch escaped",
    "a && touch escaped",
    "back\\slash",
    "ünïcødé 模型",
    "-leading-dash",
    "two  spaces",
    "#hash",
    "${HOME}",
    "!history",
    "END_OF_DOCUMENT",
]


BUILT_IN = ("openrlhf", "simulator", "torch", "trl", "verl")

Start = Callable[[str], list[list[str]]]
"""Runs a script and returns the arguments of every program that it would have started with Python."""


@pytest.fixture(params=registry.available())
def backend(request: pytest.FixtureRequest) -> Backend:
    return registry.load(request.param)


def run_for(backend: Backend, **changes: Any) -> RunSpec:
    return contract_run(backend=backend.name, **changes)


@pytest.fixture
def start(tmp_path: Path) -> Start:
    """Run a script in tmp_path/work with a `python3` that notes its arguments and does nothing."""
    recorder = Recorder(tmp_path / "bin")
    return lambda script: recorder(script, tmp_path / "work")


def strings(document: Any) -> set[str]:
    """All texts inside a JSON value."""
    if isinstance(document, str):
        return {document}
    parts = document.values() if isinstance(document, dict) else document if isinstance(document, list) else ()
    return set[str]().union(*map(strings, parts))


def test_the_changes_that_every_framework_is_tested_with_cover_every_field_of_a_recipe() -> None:
    assert set(CHANGED) | {"name", "based_on"} == set(Recipe.model_fields)


@pytest.mark.parametrize("algorithm", ["grpo", "ppo", "cispo"])
@pytest.mark.parametrize("name", ["openrlhf", "trl", "verl"])
def test_no_field_of_a_recipe_is_dropped_in_silence(name: str, algorithm: str) -> None:
    """Another value changes a flag, or it is noted or refused."""
    backend, make = registry.load(name), run_maker(backend=name)
    assert isinstance(backend, FrameworkBackend)
    before = make(recipe={"algorithm": algorithm})
    for field, value in CHANGES:
        after = make(recipe={"algorithm": algorithm, field: value})
        if after.recipe == before.recipe:
            continue
        notes, changed = backend.preflight(after), backend.sections(before) != backend.sections(after)
        noted = {note.message for note in notes} != {note.message for note in backend.preflight(before)}
        assert changed or noted or any(note.severity == "refuse" for note in notes), (field, value)


def test_it_describes_itself(backend: Backend) -> None:
    info = backend.describe()
    assert isinstance(info, BackendInfo)
    assert info.name == backend.name
    assert all([info.framework, info.version, info.summary, info.needs, info.algorithms])
    assert json.loads(json.dumps(info.to_dict()))["name"] == backend.name
    assert all(option.description for option in info.options)


def test_it_accepts_the_presets_of_the_paper(backend: Backend) -> None:
    for name in ("easy", "hard", "mixture"):
        run = run_for(backend, recipe=Recipe.preset(name), problems_per_batch=64)
        notes = backend.preflight(run)
        assert all(isinstance(note, Note) for note in notes)
        assert not [note for note in notes if note.severity == "refuse"]


def test_the_script_is_a_pure_function_of_the_run(
    backend: Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run = run_for(backend)
    assert backend.script(run) == backend.script(run)
    assert not list(tmp_path.iterdir())
    assert backend.script(run) != backend.script(run.replace(seed=1))


def test_its_header_says_what_the_run_is(backend: Backend) -> None:
    lines = backend.script(run_for(backend)).split("\n\n")[0].splitlines()
    assert all(line.startswith("#") for line in lines)
    header = " ".join(lines)
    for number in (4, 32, 4 * 32, 50, 4 * 32 * 50):
        assert f" {number} " in f"{header} "
    for word in (backend.describe().version, "resume", "Qwen/Qwen2.5-0.5B-Instruct"):
        assert word in header


@pytest.mark.parametrize("text", few(HOSTILE, {"it's", "$(touch escaped)", "-leading-dash", "END_OF_DOCUMENT"}))
def test_hostile_text_arrives_as_it_is_and_runs_nothing(
    backend: Backend, start: Start, tmp_path: Path, text: str
) -> None:
    data = Data(train=f"{text}.jsonl", validation=f"v/{text}", reward=f"{text}.py", prompt_key=text, answer_key=text)
    run = run_for(backend, model=text, data=data, output_dir=text, recipe=Recipe(name=text))
    refused = [note for note in backend.preflight(run) if note.severity == "refuse"]
    if refused:  # what a framework would misread is refused by name
        assert all(repr(text) in note.message for note in refused)
        return
    script = backend.script(run)
    subprocess.run(["bash", "-n"], input=script.encode(), check=True)
    calls = start(script)
    assert not list(tmp_path.rglob("escaped"))
    folder = tmp_path / "work" / run_folder(run)
    assert any(str(folder) in word for call in calls for word in call)
    arrived = {word for call in calls for word in call}
    for path in folder.glob("*.json*"):
        arrived |= strings(json.loads(path.read_text()))
    for value in (text, data.train, data.validation, data.reward):
        assert value in arrived, value


def test_shellcheck_has_nothing_to_say(backend: Backend, tmp_path: Path) -> None:
    scripts: list[Path] = []
    recipes: list[dict[str, Any]] = [{}, {"recipe": Recipe.preset("hard"), "problems_per_batch": 64}]
    for i, model in enumerate(("it's $HOME", '=a;`b` "c"', "$(touch escaped)\\")):
        scripts.append(tmp_path / f"{i}.sh")
        scripts[-1].write_text(backend.script(run_for(backend, model=model, output_dir=model, **recipes[i % 2])))
    # SC2016 and SC1003 take quoted values for mistakes; the built-in scripts tell shellcheck so themselves.
    excluded = [] if backend.name in BUILT_IN else ["--exclude=SC2016,SC1003"]
    command = [Path(sys.executable).with_name("shellcheck"), "--shell=bash", *excluded, *scripts]
    done = subprocess.run(command, capture_output=True, check=False)
    assert done.returncode == 0, done.stdout.decode()


def test_prepare_writes_a_short_executable_script_and_only_the_files_it_names(backend: Backend, tmp_path: Path) -> None:
    launch = backend.prepare(run_for(backend), tmp_path / "new" / "folder")
    assert launch.files[0] == tmp_path / "new" / "folder" / "launch.sh"
    assert os.access(launch.files[0], os.X_OK)
    assert launch.argv[-1] == str(launch.files[0])
    assert set(launch.folder.iterdir()) == set(launch.files)
    assert len(launch.files[0].read_text().splitlines()) < 200
    # The request beside it says what the run is.
    assert read_config(launch.files[0]) is None


def test_the_script_that_carries_its_files_and_the_one_beside_them_do_the_same(
    backend: Backend, start: Start, tmp_path: Path
) -> None:
    run = run_for(backend)
    folder = tmp_path / "work" / run_folder(run)

    def left() -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in folder.iterdir() if path.suffix in (".py", ".jsonl")}

    carried = start(backend.script(run))
    files = left()
    shutil.rmtree(folder)
    backend.prepare(run, folder)
    beside = start(f"bash {shlex.quote(str(folder / 'launch.sh'))}")
    assert beside == carried
    assert left().keys() == files.keys()


def test_an_unknown_option_is_refused_with_the_nearest_known_one(backend: Backend, tmp_path: Path) -> None:
    known = backend.describe().options[0].name
    run = run_for(backend, options={f"{known}x": 1})
    (note,) = [note for note in backend.preflight(run) if note.severity == "refuse"]
    assert (note.code, note.data["field"]) == ("unsupported", f"options.{known}x")
    assert f"{known}x" in note.message
    assert f"Did you mean {known}?" in note.message
    with pytest.raises(BackendError, match=r"\[unsupported: options"):
        backend.script(run)
    with pytest.raises(BackendError, match=r"\[unsupported: options"):
        backend.prepare(run, tmp_path)
    assert not list(tmp_path.iterdir())


def test_an_algorithm_it_does_not_list_is_refused(backend: Backend) -> None:
    for algorithm in ("grpo", "ppo", "cispo"):
        run = run_for(backend, recipe=Recipe(algorithm=algorithm))
        refused = [note for note in backend.preflight(run) if note.severity == "refuse"]
        assert bool(refused) == (algorithm not in backend.describe().algorithms)


def test_a_run_that_has_measured_nothing_has_no_records(backend: Backend, tmp_path: Path) -> None:
    run = run_for(backend)
    with pytest.raises(RecordError):
        backend.read_records(tmp_path / "missing")
    write_spec(tmp_path, run)
    backend.prepare(run, tmp_path)
    with pytest.raises(RecordError):
        backend.read_records(tmp_path)


def test_a_run_that_was_started_and_has_measured_nothing_says_so(
    backend: Backend, start: Start, tmp_path: Path
) -> None:
    run = run_for(backend)
    start(f"bash {shlex.quote(str(backend.prepare(run, tmp_path / 'work' / run_folder(run)).files[0]))}")
    with pytest.raises(RecordError) as caught:
        backend.read_records(tmp_path / "work")
    assert caught.value.hint


LOOKING = """
import json, sys
from isocompute_sdk.specs import RunSpec
from isocompute_sdk.training import registry
loaded = {}
for name, run in json.loads(sys.argv[1]).items():
    backend = registry.load(name)
    backend.describe()
    backend.preflight(RunSpec.model_validate(run))
    loaded[name] = sorted({module.split(".")[0] for module in sys.modules})
print(json.dumps(loaded))
"""


@functools.cache
def loaded_by_backends() -> dict[str, list[str]]:
    """Modules of a fresh process once a backend has been described and has checked a run, one after the other."""
    runs = {name: run_for(registry.load(name)).model_dump(mode="json") for name in registry.available()}
    command = [sys.executable, "-c", LOOKING, json.dumps(runs)]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def test_describing_and_checking_a_run_loads_no_training_framework(backend: Backend) -> None:
    heavy = {"torch", "transformers", "vllm", "ray", "trl", "verl", "openrlhf", "hydra", "omegaconf", "deepspeed"}
    assert not heavy & set(loaded_by_backends()[backend.name])


def test_a_refused_run_writes_nothing_and_names_every_reason(backend: Backend, tmp_path: Path) -> None:
    options = {"no_such_option": 1}
    run = run_for(
        backend, options=options, hardware=Hardware(gpus=8, divisible_by=1), group_size=3, problems_per_batch=35
    )
    refused = [note.message for note in backend.preflight(run) if note.severity == "refuse"]
    assert len(refused) > 1
    # The multiples of 8 GPUs around 105 rollouts.
    assert all({"104", "112"} <= set(re.findall(r"\d+", one)) for one in refused if "105" in one)
    with pytest.raises(BackendError) as caught:
        backend.prepare(run, tmp_path / "new")
    assert all(message in str(caught.value) for message in refused)
    assert not list(tmp_path.iterdir())


def test_its_install_commands_are_in_the_documentation(backend: Backend) -> None:
    page = (Path(__file__).parents[2] / "docs" / "backends.md").read_text(encoding="utf-8")
    assert all(command in page for command in backend.describe().install)


@pytest.mark.slow
def test_what_its_install_commands_name_exists(backend: Backend) -> None:
    """A dry run of pip for every pinned package, without what it depends on: that would be gigabytes."""
    named = {
        word
        for command in backend.describe().install
        for word in shlex.split(command, comments=True)
        if re.match(r"[A-Za-z][\w.-]*(\[[\w,]+\])?(==|>=)", word)
    }
    for package in sorted(named):
        command = [sys.executable, "-m", "pip", "install", "--dry-run", "--no-deps", "--ignore-installed", package]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert "No matching distribution" not in done.stderr, package
