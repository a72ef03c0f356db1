"""Whole runs that sample with vLLM, as processes: what they record, and that they go on after being killed."""

from __future__ import annotations

import dataclasses
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from isocompute_sdk.run_folders import journal_records
from isocompute_torch.checkpoint import latest_step
from tests.processes import HANG_SECONDS, wait_for

pytestmark = pytest.mark.vllm


def start(folder: Path) -> subprocess.Popen[bytes]:
    with (folder / "output").open("wb") as output:
        return subprocess.Popen(
            [sys.executable, "-m", "isocompute_torch.train", str(folder)], stdout=output, stderr=subprocess.STDOUT
        )


def finish(folder: Path) -> None:
    assert start(folder).wait(HANG_SECONDS) == 0, (folder / "output").read_text()[-4000:]


@pytest.mark.usefixtures("no_engine")
def test_the_engine_sleeps_through_every_update_and_no_other_part_of_a_run(
    prepared: Callable[[str, str], Path], model_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from isocompute_torch import train
    from isocompute_torch.learner import Learner
    from isocompute_torch.vllm_sampler import VLLMSampler

    engines: list[Any] = []
    seen: dict[str, list[bool]] = {"update": [], "sample": []}
    check_agreement, update, sample = VLLMSampler._check_agreement, Learner.update, VLLMSampler.sample

    def started(self: VLLMSampler) -> None:
        engines.append(self._engine)
        check_agreement(self)

    def updated(self: Learner, *given: Any, **named: Any) -> Any:
        seen["update"].append(engines[0].llm_engine.is_sleeping())
        return update(self, *given, **named)

    def sampled(self: VLLMSampler, *given: Any, **named: Any) -> Any:
        seen["sample"].append(engines[0].llm_engine.is_sleeping())
        return sample(self, *given, **named)

    monkeypatch.setattr(VLLMSampler, "_check_agreement", started)
    monkeypatch.setattr(Learner, "update", updated)
    monkeypatch.setattr(VLLMSampler, "sample", sampled)
    assert train.main([str(prepared("run", str(model_folder)))]) == 0
    assert seen["update"] == [True] * 6
    # The check at the start, 6 batches, and 3 evaluations of 2 sets; the best checkpoint is evaluated anew.
    assert seen["sample"] == [False] * len(seen["sample"])
    assert len(seen["sample"]) >= 1 + 6 + 3 * 2


@pytest.mark.usefixtures("no_engine")
def test_a_model_that_vllm_does_not_run_is_sampled_from_by_torch_unless_vllm_was_asked_for(
    prepared: Callable[[str, str], Path], model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from contextlib import ExitStack

    import transformers

    from isocompute_torch import assembly
    from isocompute_torch.configuration import InputError, load_configuration
    from isocompute_torch.sampler import TorchSampler

    config: Any = transformers.AutoConfig.from_pretrained(model_folder)
    config.num_attention_heads = config.num_key_value_heads = 4  # of 16 each, which vLLM's kernels do not take
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path / "small-heads")
    transformers.AutoTokenizer.from_pretrained(model_folder).save_pretrained(tmp_path / "small-heads")
    asked = load_configuration(prepared("run", str(tmp_path / "small-heads")))
    left = dataclasses.replace(asked, options=asked.options.model_copy(update={"sampler": "auto"}))
    # As on a GPU, where vLLM is tried first.
    monkeypatch.setattr(assembly, "chosen_sampler", lambda *_: ("vllm", None))
    with ExitStack() as stack:
        parts = assembly.assemble(left, assembly.load_problems(left), stack)
        assert isinstance(parts.sampler, TorchSampler)
        (note,) = [note for note in parts.notes if note.code == "sampler-fallback"]
        assert "head_dim=16" in note.message
        with pytest.raises(InputError, match="head_dim=16"):
            assembly.assemble(asked, assembly.load_problems(asked), stack)


def what_was_recorded(folder: Path) -> list[tuple[Any, ...]]:
    records = journal_records.read(folder / "metrics.jsonl")
    return [(r["kind"], r.get("step"), r.get("rollouts"), r.get("eval_set")) for r in records]


def test_a_killed_run_goes_on_to_the_same_steps_and_records_as_a_whole_one(
    prepared: Callable[[str, str], Path], model_folder: Path
) -> None:
    whole, killed = prepared("whole", str(model_folder)), prepared("killed", str(model_folder))
    finish(whole)
    records = journal_records.read(whole / "metrics.jsonl")
    first, steps = records[0], [record for record in records if record["kind"] == "step"]
    assert "vllm" in first["versions"]
    assert [record["step"] for record in steps] == [1, 2, 3, 4, 5, 6]
    assert all(record["seconds"]["sync"] > 0 for record in steps)
    # Engine and trainer hold the same weights in every step, or this would not be 1. Steps without a gradient lack it.
    weights = [record["metrics"].get("importance_weight_mean") for record in steps]
    assert any(weight is not None for weight in weights)
    assert all(weight == pytest.approx(1.0, abs=1e-3) for weight in weights if weight is not None)
    assert len([record for record in records if record["kind"] == "evaluation"]) == 3 * 2
    assert records[-1]["status"] == "finished"

    process = start(killed)
    wait_for(lambda: latest_step(killed), process)
    process.kill()
    assert process.wait() == -signal.SIGKILL
    finish(killed)
    assert what_was_recorded(killed) == what_was_recorded(whole)
    assert (killed / "model" / "model.safetensors").stat().st_size > 0
