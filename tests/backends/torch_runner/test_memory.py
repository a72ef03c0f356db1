"""The sizes that follow from an estimate without weights, and steps that run out of memory."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from isocompute_sdk.specs import Recipe
from isocompute_torch import memory as memory_module
from isocompute_torch.configuration import InputError, TorchOptions
from isocompute_torch.learner import Optimiser
from isocompute_torch.memory import GIB, MAX_TOKENS, Memory, Sizing, estimate, memory_of, size_run
from isocompute_torch.policy import Policy
from tests.backends.torch_runner.test_learner import gradient, learner_for, rollouts
from tests.parameters import few

SMALL: Any = transformers.Qwen2Config(
    hidden_size=128,
    intermediate_size=352,
    num_hidden_layers=4,
    num_attention_heads=4,
    num_key_value_heads=2,
    vocab_size=500,
)
QWEN_7B: dict[str, Any] = {
    "hidden_size": 3584,
    "intermediate_size": 18944,
    "num_hidden_layers": 28,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "vocab_size": 152064,
}
QWEN_1_5B = {**QWEN_7B, "hidden_size": 1536, "intermediate_size": 8960, "num_attention_heads": 12, "vocab_size": 151936}
H100 = Memory(80 * GIB, 79 * GIB, GIB)


def sized(
    config: Any, memory: Memory, device: str = "cuda", sampler: Any = "torch", recipe: Any = None, **options: Any
) -> Sizing:
    chosen = Recipe.model_validate({"preset": "hard", "max_prompt_tokens": 1024, **(recipe or {})})
    return size_run(
        "the model",
        config,
        chosen,
        TorchOptions.model_validate(options),
        memory,
        device=torch.device(device),
        dtype=torch.bfloat16 if device == "cuda" else torch.float32,
        sampler=sampler,
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_states_are_those_of_the_real_optimiser(dtype: torch.dtype) -> None:
    model: Any = transformers.AutoModelForCausalLM.from_config(SMALL, dtype=dtype)
    optimiser = Optimiser(model.parameters(), betas=(0.9, 0.999), weight_decay=0.0, clip=1.0)
    optimiser.step(1e-3)
    weights = {parameter.data_ptr() for parameter in model.parameters()}
    state = optimiser.state()
    moments = [one for entry in state["adam"]["state"].values() for one in (entry["exp_avg"], entry["exp_avg_sq"])]
    held = [*model.parameters(), *moments, *(one for one in state["masters"] if one.data_ptr() not in weights)]
    measured = sum(one.numel() * one.element_size() for one in held)
    recipe = Recipe(kl_coef=0, max_prompt_tokens=64, max_response_tokens=64)
    found = estimate(SMALL, recipe, dtype, checkpointing=False, engine=False)
    assert found.parameters == sum(parameter.numel() for parameter in model.parameters())
    assert found.states == pytest.approx(measured, rel=0.01)


def test_a_7b_model_with_long_rows_is_refused_on_one_card_with_the_largest_that_would_fit() -> None:
    config = transformers.Qwen2Config(**QWEN_7B)
    long = {"max_response_tokens": 8192}
    with pytest.raises(InputError) as caught:
        sized(config, H100, recipe=long)
    assert "7.62 billion" in caught.value.message
    assert all(backend in (caught.value.hint or "") for backend in ("openrlhf", "verl", "trl"))
    largest = float((caught.value.hint or "").split()[1])
    assert 2.5 < largest < 4.5
    assert sized(config, Memory(300 * GIB, 300 * GIB, GIB), recipe=long).token_budget >= 9216


def test_micro_batches_shrink_with_the_free_memory_and_a_note_says_so() -> None:
    config = transformers.Qwen2Config(**QWEN_1_5B)
    plenty = sized(config, H100)
    assert plenty.token_budget == MAX_TOKENS["cuda"]
    assert plenty.notes == ()
    tight = sized(config, Memory(80 * GIB, 42 * GIB, GIB), recipe={"max_response_tokens": 3072})
    assert 4096 <= tight.token_budget < MAX_TOKENS["cuda"]
    assert tight.notes[0].data["peak_bytes"] <= 0.95 * 42 * GIB - GIB
    assert [(note.code, note.severity) for note in tight.notes] == [("micro-batches-smaller", "info")]
    assert tight.notes[0].data["tokens"] == tight.token_budget


@pytest.mark.parametrize("asked", [100, 5_000, 20_000])
def test_a_size_that_the_user_set_is_kept(asked: int) -> None:
    found = sized(
        transformers.Qwen2Config(**QWEN_1_5B), Memory(80 * GIB, 42 * GIB, GIB), max_tokens_per_micro_batch=asked
    )
    assert found.token_budget == asked
    assert found.notes == ()


def test_vllm_gets_what_the_states_leave_and_is_refused_where_that_is_too_little() -> None:
    small = sized(transformers.Qwen2Config(**{**QWEN_1_5B, "num_hidden_layers": 8}), H100, sampler="vllm")
    assert small.vllm_share == 0.6
    large = sized(transformers.Qwen2Config(**QWEN_1_5B), Memory(40 * GIB, 39 * GIB, GIB), sampler="vllm")
    assert 0 < large.vllm_share < 0.6
    with pytest.raises(InputError, match=r"options\.sampler|vLLM needs"):
        sized(transformers.Qwen2Config(**QWEN_1_5B), Memory(80 * GIB, 30 * GIB, GIB), sampler="vllm")
    kept = sized(transformers.Qwen2Config(**QWEN_1_5B), H100, sampler="vllm", vllm_memory_share=0.25)
    assert kept.vllm_share == 0.25


def test_a_model_without_an_estimate_trains_with_the_usual_sizes() -> None:
    class Unknown:
        def to_dict(self) -> dict[str, Any]:
            raise KeyError("no such architecture")

    found = sized(Unknown(), Memory(4 * GIB, 4 * GIB, 0), device="cpu", recipe={"max_response_tokens": 1024})
    assert found.token_budget == MAX_TOKENS["cpu"]
    assert not found.notes


def test_the_limits_of_a_process_s_group_count_on_a_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = memory_of(torch.device("cpu"))
    assert 0 < plain.free <= plain.total
    job = tmp_path / "slurm" / "job_1"
    job.mkdir(parents=True)
    (tmp_path / "own").write_text("1:name=systemd:/x\n0::/slurm/job_1\n")
    for name, value in (("memory.max", GIB), ("memory.current", GIB // 4)):
        (job.parent / name).write_text(f"{value}\n")
    (job / "memory.max").write_text("max\n")
    monkeypatch.setattr(memory_module, "CGROUP", tmp_path)
    monkeypatch.setattr(memory_module, "OWN_GROUP", tmp_path / "own")
    found = memory_of(torch.device("cpu"))
    assert (found.total, found.free) == (GIB, 0.75 * GIB)


@pytest.mark.parametrize("family", few(["qwen2", "gemma2", "llama", "qwen3"], 2))
def test_recomputed_layers_leave_the_gradient_unchanged(
    policy: Callable[..., Policy], model_folder: Callable[[str], Path], family: str
) -> None:
    recipe = Recipe(max_response_tokens=4)
    found: list[torch.Tensor] = []
    for checkpointing in (False, True):
        chosen = policy(family)
        learner = learner_for(chosen, recipe, str(model_folder(family)), checkpointing=checkpointing)
        samples, rewards = rollouts(chosen)
        found.append(gradient(learner, samples, rewards)[0])
        assert not chosen.model.training
    torch.testing.assert_close(found[1], found[0], rtol=1e-5, atol=1e-7)


def test_a_device_without_memory_for_a_micro_batch_takes_smaller_ones_with_the_same_gradient(
    policy: Callable[..., Policy], monkeypatch: pytest.MonkeyPatch
) -> None:
    learner = learner_for(policy(), Recipe(max_response_tokens=5, kl_coef=0), "", token_budget=400, merge=False)
    samples, rewards = rollouts(learner.policy)
    whole, stats = gradient(learner, samples, rewards)
    loss, budgets = learner._loss, list[int]()  # pyright: ignore[reportPrivateUsage]

    def short_of_memory(*given: Any) -> Any:
        budgets.append(learner.token_budget)
        # The first micro-batch of a pass fits, the second does not.
        if learner.token_budget > 100 and budgets.count(learner.token_budget) == 2:
            # On a CPU torch has no error of its own for it.
            raise (torch.OutOfMemoryError("full") if len(budgets) == 2 else RuntimeError("DefaultCPUAllocator: full"))
        return loss(*given)

    monkeypatch.setattr(learner, "_loss", short_of_memory)
    smaller, again = gradient(learner, samples, rewards)
    assert list(dict.fromkeys(budgets)) == [400, 200, 100]
    torch.testing.assert_close(smaller, whole, rtol=1e-4, atol=1e-6)
    assert again == pytest.approx(stats, rel=1e-4, abs=1e-6)


def test_an_error_that_smaller_micro_batches_do_not_cure_is_raised(
    policy: Callable[..., Policy], monkeypatch: pytest.MonkeyPatch
) -> None:
    learner = learner_for(policy(), Recipe(max_response_tokens=5, kl_coef=0), "", token_budget=10_000)
    samples, rewards = rollouts(learner.policy)
    budgets: list[int] = []

    def full(*_: object) -> dict[str, float]:
        budgets.append(learner.token_budget)
        raise torch.OutOfMemoryError("the device is full")

    monkeypatch.setattr(learner, "_gradient", full)
    with pytest.raises(torch.OutOfMemoryError):
        learner.gradient(samples, rewards)
    shortest = min(len(prompt) for prompt in samples.prompt_ids) + 1
    assert budgets[0] == 10_000
    assert all(later <= before / 2 for before, later in itertools.pairwise(budgets))
    assert budgets[-1] < 4 * shortest
    monkeypatch.setattr(learner, "_gradient", lambda *_: (_ for _ in ()).throw(RuntimeError("another error")))
    with pytest.raises(RuntimeError, match="another error"):
        learner.gradient(samples, rewards)
