"""The adapter of the built-in runner: what it refuses, and what its script hands over."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from isocompute_sdk.errors import SpecError
from isocompute_sdk.specs import Evaluation, RunSpec
from isocompute_torch import TorchBackend
from isocompute_torch.configuration import TorchOptions, load_configuration
from tests.backends.framework_runs import run_maker

BACKEND = TorchBackend()


make_run = run_maker(model="task/model", preset="hard", group_size=4, problems_per_batch=64, backend="torch")


def start(run: RunSpec, folder: Path) -> Path:
    """Run the script with a `python3` that only notes its arguments; the run folder."""
    programs = folder / "bin"
    programs.mkdir(parents=True, exist_ok=True)
    (programs / "python3").write_text(f'#!/bin/sh\nprintf \'%s\\n\' "$@" > "{folder}/arguments"\n')
    (programs / "python3").chmod(0o755)
    environment = {k: v for k, v in os.environ.items() if k != "PYTHON"}
    environment["PATH"] = f"{programs}:{environment['PATH']}"
    subprocess.run(["bash"], input=BACKEND.script(run).encode(), cwd=folder, env=environment, check=True)
    module, name, run_folder = (folder / "arguments").read_text().splitlines()
    assert (module, name) == ("-m", "isocompute_torch.train")
    return Path(run_folder)


@pytest.mark.parametrize(
    "run",
    [
        make_run(),
        make_run(
            recipe={"algorithm": "ppo", "name": "it's $HOME\\ `x` END_OF_RUN", "kl_coef": 1e-3, "entropy_coef": 1e-3},
            evaluation=Evaluation(every_steps=7, n_problems=None),
            options={"threads": 2, "dtype": "float64"},
            seed=2**32 - 1,
        ),
        make_run(output_dir="here/small", options={"n_train": 2, "eval_sets": "hard=hard.jsonl", "probe_problems": 0}),
    ],
)
def test_the_runner_reads_back_exactly_the_run_that_was_asked_for(tmp_path: Path, run: RunSpec) -> None:
    folder = start(run, tmp_path)
    assert folder == tmp_path / run.output_dir / ("" if run.output_dir.endswith("small") else "small")
    configuration = load_configuration(folder)
    assert configuration.run == run
    assert configuration.options == TorchOptions.model_validate(run.options)
    assert [path.name for path in folder.iterdir()] == ["run.json"]
    assert start(run, tmp_path) == folder


def test_a_script_starts_with_the_interpreter_that_wrote_it_unless_told_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHON", raising=False)
    assert dict(BACKEND.prepare(make_run(), tmp_path).env) == {"PYTHON": sys.executable}
    monkeypatch.setenv("PYTHON", "/opt/other/python")
    assert dict(BACKEND.prepare(make_run(), tmp_path).env) == {}


def test_texts_that_end_a_response_are_one_text_or_a_list() -> None:
    assert TorchOptions().stop_texts() == ()
    assert TorchOptions(stop="\n").stop_texts() == ("\n",)
    assert TorchOptions(stop='["\\n", "."]').stop_texts() == ("\n", ".")
    for wrong in ("", "[]", '["a", ""]', "[a]"):
        with pytest.raises(SpecError, match="stop"):
            TorchOptions(stop=wrong).stop_texts()
