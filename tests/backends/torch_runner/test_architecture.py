"""Rules of a model's own are read from its configuration, and the forward pass keeps them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from isocompute_torch.policy import SHORTEST_WINDOW, Policy, architecture_of

IDS = torch.tensor([[3, 4, 5, 13, 7, 8, 9, 2, 2, 6]])


@pytest.mark.parametrize(
    ("config", "reads"),
    [
        ({"model_type": "llama"}, True),
        ({"model_type": "qwen2", "sliding_window": 32, "use_sliding_window": False}, True),
        ({"model_type": "mistral", "sliding_window": SHORTEST_WINDOW}, True),
        ({"model_type": "mistral", "sliding_window": SHORTEST_WINDOW - 1}, False),
        ({"model_type": "qwen3", "layer_types": ["full_attention", "linear_attention"]}, False),
        ({"model_type": "llama", "final_logit_softcapping": 30.0}, False),
        ({"model_type": "llama", "attn_logit_softcapping": 50.0}, False),
        ({"model_type": "llama", "attn_logit_softcapping": None}, True),
        ({"model_type": "gemma3_text", "use_bidirectional_attention": True}, False),
        ({"model_type": "gemma3_text"}, True),
        ({"model_type": "gemma3", "text_config": {"model_type": "gemma3_text"}}, False),
        ({"model_type": "llama", "text_config": {"final_logit_softcapping": 30.0}}, False),
        ({"model_type": "an-unknown-one"}, False),
        ({}, False),
    ],
)
def test_the_configuration_decides_whether_prefixes_are_shared(config: dict[str, Any], reads: bool) -> None:
    found = architecture_of(config)
    assert found.reads_trees is reads
    assert (found.note is None) is reads
    assert (found.longest_tree > 0) is reads
    if config.get("sliding_window") == SHORTEST_WINDOW:
        assert found.longest_tree == SHORTEST_WINDOW
    assert found.caps_attention is bool(config.get("attn_logit_softcapping"))


@pytest.mark.parametrize("removed", ["attn_logit_softcapping", "final_logit_softcapping"])
def test_a_tiny_gemma_2_keeps_both_caps(
    policy: Callable[..., Policy], model_folder: Callable[[str], Path], tmp_path: Path, removed: str
) -> None:
    """The expected logits come from transformers' eager attention, the only one that applies the cap."""
    folder, chosen = model_folder("gemma2"), policy("gemma2")

    def eager(config: Any) -> torch.Tensor:
        model: Any = transformers.AutoModelForCausalLM.from_pretrained(
            folder, config=config, dtype=torch.float32, attn_implementation="eager"
        )
        return model.eval()(input_ids=IDS).logits[0]

    config = transformers.AutoConfig.from_pretrained(folder)
    found = chosen.logits(chosen.hidden_states(IDS))[0]
    torch.testing.assert_close(found, eager(config), rtol=1e-5, atol=1e-5)
    setattr(config, removed, None)
    assert (eager(config) - found).abs().max() > 0.05
    # Decoding with a cache applies the same caps.
    torch.testing.assert_close(chosen.next_logits(IDS, chosen.new_cache())[0], found[-1], rtol=1e-5, atol=1e-5)
