"""The adapter of the built-in runner: what it refuses, and what its script hands over."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from isocompute_sdk.errors import BackendError, SpecError
from isocompute_sdk.specs import Data, Evaluation, Hardware, Recipe, RunSpec
from isocompute_torch import TorchBackend
from isocompute_torch.configuration import TorchOptions, load_configuration
from tests.backends.framework_runs import keyed

BACKEND = TorchBackend()


def make_run(**changes: Any) -> RunSpec:
    recipe = changes.pop("recipe", {})
    values: dict[str, Any] = {
        "run_id": "small",
        "model": "task/model",
        "data": Data(train="train.jsonl", validation="validation.jsonl", reward="reward.py"),
        "recipe": Recipe.model_validate({"preset": "hard", **recipe}),
        "group_size": 4,
        "problems_per_batch": 64,
        "update_steps": 50,
        "backend": "torch",
    }
    return RunSpec(**{**values, **changes})


def codes(run: RunSpec, severity: str) -> set[str]:
    return set(keyed(BACKEND.preflight(run), severity))


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


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"hardware": Hardware(gpus=2)}, "hardware.gpus"),
        ({"recipe": {"updates_per_batch": 2}}, "recipe.updates_per_batch"),
        ({"options": {"sampler": "sglang"}}, "options.sampler"),
        ({"options": {"threads": 0}}, "options.threads"),
        ({"options": {"n_train": 8}}, "options.n_train"),
        ({"options": {"n_train": 2}, "recipe": {"algorithm": "ppo"}}, "options.n_train"),
        ({"options": {"eval_sets": "validation=x.jsonl"}}, "options.eval_sets"),
        ({"options": {"sampler_": "torch"}}, "options.sampler_"),
        ({"data": Data(train="t.parquet", validation="v.jsonl", reward="r.py")}, "data.train"),
        ({"model": "~/models/mine"}, "model"),
    ],
)
def test_what_the_runner_cannot_do_is_refused_before_anything_runs(changes: dict[str, Any], code: str) -> None:
    run = make_run(**changes)
    assert codes(run, "refuse") == {code}
    with pytest.raises(BackendError, match=rf"\[unsupported: {code}\]"):
        BACKEND.script(run)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"recipe": {"kl_coef": 1e-3, "entropy_coef": 1e-3, "kl_estimator": "k1"}}, "kl-estimator-without-gradient"),
        ({"recipe": {"kl_coef": 1e-3}}, "kl-entropy-unpaired"),
        ({"recipe": {"top_p": 0.9}}, "importance-weights-biased"),
        ({"recipe": {"algorithm": "ppo", "zero_variance_filter_policy": True}}, "filter-drops-signal"),
        ({"problems_per_batch": 16}, "below-problems-floor"),
        ({"update_steps": 5}, "warmup-longer-than-run"),
        ({"data": Data(train="t", validation="v", reward="r", n_problems=32)}, "batch-repeats-problems"),
    ],
)
def test_what_may_surprise_is_said(changes: dict[str, Any], code: str) -> None:
    assert code in codes(make_run(**changes), "warning")
    assert not codes(make_run(**changes), "refuse")


def test_a_local_model_whose_prefixes_are_not_shared_is_noted(tmp_path: Path) -> None:
    config = {"model_type": "gemma2", "attn_logit_softcapping": 50.0}
    (tmp_path / "config.json").write_text(json.dumps(config))
    run = make_run(model=str(tmp_path))
    assert codes(run, "info") == {"prefixes-not-shared"}
    assert codes(make_run(model=str(tmp_path), options={"merge_duplicates": False}), "info") == set()
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    assert codes(run, "info") == set()


def test_texts_that_end_a_response_are_one_text_or_a_list() -> None:
    assert TorchOptions().stop_texts() == ()
    assert TorchOptions(stop="\n").stop_texts() == ("\n",)
    assert TorchOptions(stop='["\\n", "."]').stop_texts() == ("\n", ".")
    for wrong in ("", "[]", '["a", ""]', "[a]"):
        with pytest.raises(SpecError, match="stop"):
            TorchOptions(stop=wrong).stop_texts()
