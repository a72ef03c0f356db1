"""The memory that is estimated without weights, against what autograd and the optimiser really hold."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from isocompute_sdk.specs import Recipe
from isocompute_torch.failures import InputError
from isocompute_torch.learning.optimiser import Optimiser
from isocompute_torch.policy.model import Policy
from isocompute_torch.runner.memory_estimate import GIB, Sizes, estimate, refuse_what_cannot_fit, rows_that_fit
from tests.backends.torch_runner.test_learner import gradient, learner_for, rollouts

COMMON = {
    "hidden_size": 128,
    "intermediate_size": 352,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 500,
}
CONFIGS: dict[str, Any] = {
    "llama": transformers.LlamaConfig(**COMMON),
    "qwen2": transformers.Qwen2Config(**COMMON),
    "qwen3": transformers.Qwen3Config(**COMMON, head_dim=32),
    "gemma2": transformers.Gemma2Config(**COMMON, head_dim=32),
}
TOKENS = 256


def sizes(**changes: Any) -> Sizes:
    values = {"tokens": TOKENS, "dtype": torch.float32, "reference": False, "value_model": False}
    return Sizes(**{**values, "cached_tokens": TOKENS, "checkpointing": False, **changes})


def model_of(config: Any, dtype: torch.dtype = torch.float32) -> Any:
    attention = "eager" if config.model_type == "gemma2" else "sdpa"
    return transformers.AutoModelForCausalLM.from_config(config, dtype=dtype, attn_implementation=attention).eval()


@pytest.mark.parametrize("family", sorted(CONFIGS))
@pytest.mark.parametrize("checkpointing", [False, True])
def test_activations_are_those_that_autograd_keeps(family: str, checkpointing: bool) -> None:
    model = model_of(CONFIGS[family])
    weights = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    kept: dict[int, torch.Tensor] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.untyped_storage().data_ptr() not in weights:
            kept[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    if checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        model.train()
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        model.base_model(input_ids=torch.zeros((1, TOKENS), dtype=torch.long), use_cache=False)
    measured = sum(one.untyped_storage().nbytes() for one in kept.values())
    found = estimate(CONFIGS[family], sizes(checkpointing=checkpointing)).parts["activations"]
    if checkpointing:  # and one layer, which is kept only while it is computed again
        measured += estimate(CONFIGS[family], sizes()).parts["activations"] / COMMON["num_hidden_layers"]
    assert found == pytest.approx(measured, rel=0.2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_states_are_those_of_the_real_optimiser(dtype: torch.dtype) -> None:
    model = model_of(CONFIGS["qwen2"], dtype)
    optimiser = Optimiser(model.parameters(), betas=(0.9, 0.999), weight_decay=0.0, clip=1.0)
    optimiser.step(1e-3)
    weights = {parameter.data_ptr() for parameter in model.parameters()}
    state = optimiser.state()
    moments = [one for entry in state["adam"]["state"].values() for one in (entry["exp_avg"], entry["exp_avg_sq"])]
    held = [*model.parameters(), *moments, *(one for one in state["masters"] if one.data_ptr() not in weights)]
    measured = sum(one.numel() * one.element_size() for one in held)
    found = estimate(CONFIGS["qwen2"], sizes(dtype=dtype))
    assert found.parameters == sum(parameter.numel() for parameter in model.parameters())
    assert found.states == pytest.approx(measured, rel=0.01)


def test_the_cache_is_that_of_the_real_model() -> None:
    model = model_of(CONFIGS["qwen3"])
    cache = model(input_ids=torch.zeros((1, TOKENS), dtype=torch.long), use_cache=True).past_key_values
    measured = sum(one.numel() * one.element_size() for layer in cache.layers for one in (layer.keys, layer.values))
    found = estimate(CONFIGS["qwen3"], sizes())
    assert found.parts["cache"] == measured
    room = found.states + 10.5 * measured
    assert rows_that_fit(found, sizes(), (room + GIB) / 0.95, TOKENS) == 10


def test_a_model_that_cannot_fit_is_refused_with_the_largest_that_would() -> None:
    config = transformers.Qwen2Config(
        hidden_size=3584,
        intermediate_size=18944,
        num_hidden_layers=28,
        num_attention_heads=28,
        num_key_value_heads=4,
        vocab_size=152064,
    )
    wanted = sizes(tokens=9216, cached_tokens=9216, dtype=torch.bfloat16, reference=True)
    found = estimate(config, wanted)
    assert found.parameters == pytest.approx(7.6e9, rel=0.01)
    with pytest.raises(InputError) as caught:
        refuse_what_cannot_fit(found, wanted, 80 * GIB, "Qwen2.5-7B")
    assert "Qwen2.5-7B" in caught.value.message
    assert "billion parameters fit" in (caught.value.hint or "")
    refuse_what_cannot_fit(found, wanted, 300 * GIB, "Qwen2.5-7B")


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3", "gemma2"])
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
