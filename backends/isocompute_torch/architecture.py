"""What a model's configuration says about its forward pass. Imports no torch.

Prefix trees replace the attention mask of a model, and scoring applies the output head to chosen positions only. Both
are exact only if the model has no further rule: a window, a cap, a scale. The configuration states such rules; small
weights can hide them from a numerical comparison.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

KNOWN = frozenset(
    {
        *("gemma", "gemma3_text", "glm4", "gpt2", "llama", "mistral", "olmo", "olmo2", "olmo3", "phi3"),
        *("qwen2", "qwen3", "smollm3", "starcoder2"),
    }
)
"""Model types that the tests compare with the plain forward pass, gradients included."""
LONGEST_TREE = 2_048
"""Most tokens of a sequence that holds trees; attention to all places of longer ones would cost as much as it saves."""
SHORTEST_WINDOW = 256
"""Least sliding window of a model that reads trees. A window hides nothing in a sequence that is not longer."""
RULES = ("attn_logit_softcapping", "final_logit_softcapping", "use_bidirectional_attention")
"""Configuration keys of rules that neither a causal mask nor the output head expresses: soft caps, and attention to
later tokens."""


@dataclass(frozen=True)
class Architecture:
    """How the runner may call a model."""

    model_type: str
    """Name of the architecture, as in config.json."""
    caps_attention: bool
    """Whether attention scores are soft-capped: transformers' eager attention applies the cap, its other kernels do
    not."""
    obstacle: str | None
    """Why prefixes are not shared and the head is not applied separately; None if both are exact."""
    longest_tree: int
    """Most tokens of a sequence that holds trees; 0 if the model reads none."""

    @property
    def reads_trees(self) -> bool:
        """Whether a mask and positions decide alone which tokens see each other, and logits are head(hidden states)."""
        return self.obstacle is None

    @property
    def note(self) -> str | None:
        """What a user should know about speed; None if prefixes are shared."""
        if self.obstacle is None:
            return None
        return (
            f"{self.obstacle}: training does not share prefixes between rollouts. Results are the same; a step takes "
            "up to twice as long."
        )


def architecture_of(config: Mapping[str, Any]) -> Architecture:
    """The architecture that a configuration describes.

    Args:
        config: the content of config.json. Caps and windows are read from its text part, if it has one.
    """
    model_type = str(config.get("model_type"))
    text = config.get("text_config") or config
    obstacle = _obstacle(model_type, text)
    longest = min(_window(text) or LONGEST_TREE, LONGEST_TREE) if obstacle is None else 0
    return Architecture(model_type, bool(text.get("attn_logit_softcapping")), obstacle, longest)


def _obstacle(model_type: str, config: Mapping[str, Any]) -> str | None:
    for key in RULES:
        if config.get(key):
            return f"model type {model_type} has {key} = {config[key]}"
    if model_type not in KNOWN:
        return f"model type {model_type} is not among the tested ones ({', '.join(sorted(KNOWN))})"
    kinds = set(config.get("layer_types") or ()) - {"full_attention", "sliding_attention"}
    if kinds:
        return f"model type {model_type} has layers of {', '.join(sorted(kinds))}"
    window = _window(config)
    if window is not None and window < SHORTEST_WINDOW:
        return f"model type {model_type} has a sliding window of {window} tokens, shorter than {SHORTEST_WINDOW}"
    return None


def _window(config: Mapping[str, Any]) -> int | None:
    """Tokens that a token sees, itself included; None for all."""
    return config.get("sliding_window") if config.get("use_sliding_window", True) else None
