"""The built-in runner as a backend."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from isocompute_sdk.errors import SpecError
from isocompute_sdk.specs import Evaluation, RunSpec
from isocompute_torch import TorchBackend, configuration
from isocompute_torch.configuration import InputError, TorchOptions, chosen_sampler, load_configuration
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
        make_run(output_dir="here/small", options={"stop": "=", "eval_sets": "hard=hard.jsonl", "probe_problems": 0}),
    ],
)
def test_the_runner_reads_back_exactly_the_run_that_was_asked_for(tmp_path: Path, run: RunSpec) -> None:
    folder = start(run, tmp_path)
    assert folder == tmp_path / run.output_dir / ("" if run.output_dir.endswith("small") else "small")
    configuration = load_configuration(folder)
    assert configuration.run == run
    assert configuration.options == TorchOptions.model_validate(run.options)
    assert [path.name for path in folder.iterdir()] == [".run.json.new"]
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


@pytest.mark.parametrize("installed", [True, False])
def test_vllm_samples_on_a_gpu_where_it_is_installed_and_where_it_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, installed: bool
) -> None:
    monkeypatch.setattr(configuration, "vllm_is_installed", lambda: installed)
    for device in ("cpu", "cuda"):
        assert chosen_sampler("torch", device) == ("torch", None)
    assert chosen_sampler("auto", "cpu") == ("torch", None)
    sampler, note = chosen_sampler("auto", "cuda")
    assert (sampler, note.code if note else None) == (("vllm", None) if installed else ("torch", "sampler-fallback"))
    if installed:
        assert chosen_sampler("vllm", "cpu") == ("vllm", None)
    else:
        with pytest.raises(InputError, match=r"isocompute\[vllm\]|install"):
            chosen_sampler("vllm", "cpu")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_the_memory_of_a_gpu_is_read() -> None:
    from isocompute_torch.memory import memory_of

    found = memory_of(torch.device("cuda"))
    assert 0 < found.free <= found.total == torch.cuda.get_device_properties(0).total_memory


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_a_full_gpu_raises_what_the_learner_takes_for_a_full_device() -> None:
    from isocompute_torch.configuration import is_out_of_memory

    with pytest.raises(RuntimeError) as caught:
        torch.empty(2**50, dtype=torch.uint8, device="cuda")
    assert is_out_of_memory(caught.value)
