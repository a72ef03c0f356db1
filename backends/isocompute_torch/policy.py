"""The language model that is trained: loading it, hidden states, logits, decoding with a KV cache, and PPO's critic.

Prefix trees replace the attention mask of a model, and scoring applies the output head to chosen positions only. Both
are exact only if the model has no further rule: a window, a cap, a scale. The configuration states such rules; small
weights can hide them from a numerical comparison.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol, cast

import torch
from torch import Tensor, nn

from isocompute_torch.configuration import InputError
from isocompute_torch.problems import TextCodec

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
    return Architecture(bool(text.get("attn_logit_softcapping")), obstacle, longest)


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


class KVCache(Protocol):
    """Keys and values of the tokens read so far, one row per sequence."""

    def batch_select_indices(self, indices: Tensor, /) -> None:
        """Replace row i by the former row indices[i], for every i."""
        ...


class Policy:
    """A causal language model with its tokenizer.

    Args:
        model: a Hugging Face causal language model on its device.
        codec: its tokenizer.
    """

    def __init__(self, model: nn.Module, codec: TextCodec) -> None:
        self.model = model
        self.codec = codec
        self._call = cast("Any", model)
        self.architecture = architecture_of(self._call.config.to_dict())
        # Architectures with other rules compute their logits themselves, from token ids to logits.
        self._backbone: Any = self._call.base_model if self.architecture.reads_trees else None
        self._head: Any = self._call.get_output_embeddings() if self.architecture.reads_trees else None

    @property
    def device(self) -> torch.device:
        """Device of the weights."""
        return next(self.model.parameters()).device

    @property
    def dtype(self) -> torch.dtype:
        """Number format of the weights."""
        return next(self.model.parameters()).dtype

    @property
    def vocabulary(self) -> int:
        """Number of logits per token."""
        return int(self._call.get_output_embeddings().weight.shape[0])

    @property
    def cache_bytes(self) -> int:
        """Bytes of keys and values of one token in all layers."""
        return cache_bytes(self._call.config.get_text_config(), self.dtype)

    def hidden_states(
        self,
        input_ids_SL: Tensor,
        attention_mask: Tensor | None = None,
        position_ids_SL: Tensor | None = None,
        *,
        wanted_J: Tensor | None = None,
    ) -> Tensor:
        """The input of `logits` per token: hidden states, or the logits themselves if the head cannot be separated.

        Args:
            input_ids_SL: token ids.
            attention_mask: additive mask of shape (S, 1, L, L); None for plain causal attention.
            position_ids_SL: positions; None if they count up from 0.
            wanted_J: flat positions (of S times L) to return; None returns all.

        Returns:
            Shape (J, width), or (S, L, width) without `wanted_J`.
        """
        arguments = _given(attention_mask=attention_mask, position_ids=position_ids_SL)
        if self._backbone is None:
            hidden_SLD = self._call(input_ids=input_ids_SL, use_cache=False, **arguments).logits
        else:
            hidden_SLD = self._backbone(input_ids=input_ids_SL, use_cache=False, **arguments).last_hidden_state
        return hidden_SLD if wanted_J is None else hidden_SLD.flatten(0, 1).index_select(0, wanted_J)

    def logits(self, hidden_KD: Tensor) -> Tensor:
        """Logits of what `hidden_states` returned, at least float32, shape (K, V)."""
        return at_least_float32(hidden_KD if self._head is None else self._head(hidden_KD))

    def new_cache(self) -> KVCache:
        """An empty KV cache for `next_logits`."""
        import transformers

        return transformers.DynamicCache(config=self._call.config)

    def next_logits(
        self,
        input_ids_KL: Tensor,
        cache: KVCache,
        seen_KL: Tensor | None = None,
        position_ids_KL: Tensor | None = None,
    ) -> Tensor:
        """Logits after the last token of each row, at least float32, shape (K, V); extends the cache.

        Args:
            input_ids_KL: the next tokens of each row.
            cache: the tokens read before.
            seen_KL: 1 for tokens, 0 for padding, over all tokens so far; None if there is no padding.
            position_ids_KL: positions; None if they continue those in the cache.
        """
        arguments = _given(attention_mask=seen_KL, position_ids=position_ids_KL)
        arguments |= {"past_key_values": cache, "use_cache": True}
        if self._backbone is None:
            return at_least_float32(self._call(input_ids=input_ids_KL, **arguments).logits[:, -1])
        return self.logits(self._backbone(input_ids=input_ids_KL, **arguments).last_hidden_state[:, -1])

    def save(self, folder: Path) -> None:
        """Write model and tokenizer in Hugging Face's form."""
        self._call.save_pretrained(folder)
        self.codec.save(folder)


class ValueModel(nn.Module):
    """PPO's critic: a copy of the base model without output head, and a linear head that starts at 0.

    Args:
        backbone: the model without its output head.
        width: size of its hidden states.
    """

    def __init__(self, backbone: nn.Module, width: int) -> None:
        super().__init__()
        self.backbone = backbone
        first = next(backbone.parameters())
        self.head = nn.Linear(width, 1, device=first.device, dtype=first.dtype)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def forward(self, input_ids_SL: Tensor, attention_mask: Tensor | None, position_ids_SL: Tensor | None) -> Tensor:
        """Value of the state after each token, at least float32, shape (S, L)."""
        arguments = _given(attention_mask=attention_mask, position_ids=position_ids_SL)
        output = cast("Any", self.backbone)(input_ids=input_ids_SL, use_cache=False, **arguments)
        return at_least_float32(self.head(output.last_hidden_state).squeeze(-1))


def cache_bytes(text: Any, dtype: torch.dtype) -> int:
    """Bytes of keys and values of one token in all layers, from the text part of a model's configuration."""
    heads = int(text.num_attention_heads)
    key_heads = int(getattr(text, "num_key_value_heads", None) or heads)
    head_size = int(getattr(text, "head_dim", None) or text.hidden_size // heads)
    return 2 * int(text.num_hidden_layers) * key_heads * head_size * (torch.finfo(dtype).bits // 8)


def at_least_float32(tensor: Tensor) -> Tensor:
    """`tensor` in float32, or in float64 if it has that format already."""
    return tensor if tensor.dtype == torch.float64 else tensor.float()


def _given(**arguments: Tensor | None) -> dict[str, Any]:
    return {name: value for name, value in arguments.items() if value is not None}


DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float64": torch.float64}
NARROW = 256
"""Width of hidden states below which a CPU gains nothing from bfloat16."""


def choose_device(wanted: Literal["auto", "cpu", "cuda"]) -> torch.device:
    """The device to train on."""
    found = torch.cuda.is_available()
    if wanted == "cuda" and not found:
        raise InputError("options.device: received cuda; torch finds no GPU here", "Use auto or cpu.")
    return torch.device("cuda" if found and wanted != "cpu" else "cpu")


def choose_dtype(wanted: str, device: torch.device, config: Any) -> torch.dtype:
    """Number format of the weights.

    `auto` is bfloat16 on a GPU, and on a CPU that computes in it (AVX512-BF16 or AMX) for models of at least `NARROW`
    hidden units; else float32.
    """
    if wanted != "auto":
        return DTYPES[wanted]
    wide = int(config.get_text_config().hidden_size) >= NARROW
    return torch.bfloat16 if device.type == "cuda" or (wide and computes_in_bfloat16()) else torch.float32


def computes_in_bfloat16() -> bool:
    """Whether this processor multiplies matrices in bfloat16."""
    cpu = cast("Any", torch.cpu)
    return bool(cpu._is_avx512_bf16_supported() or cpu._is_amx_tile_supported())


def load_policy(name: str, device: torch.device, dtype: torch.dtype, stop: Sequence[str] = ()) -> Policy:
    """Model and tokenizer from a local folder or by their name on the model hub; `stop` are texts that end a response.

    Raises:
        InputError: the model does not exist, does not load, or some of its weights are missing.
    """
    model = load_model(name, device, dtype)
    return Policy(model, _load_codec(name, model, stop))


def load_reference(name: str, device: torch.device, dtype: torch.dtype, codec: TextCodec) -> Policy:
    """The frozen base model, for KL terms."""
    return Policy(load_model(name, device, dtype).requires_grad_(False), codec)


def load_value_model(name: str, device: torch.device, dtype: torch.dtype) -> ValueModel:
    """PPO's critic."""
    model: Any = load_model(name, device, dtype)
    if model.base_model is model:
        raise InputError(
            f"model {name!r}: transformers cannot load it without its output head, so it cannot have a value head",
            "Use algorithm grpo or cispo.",
        )
    return ValueModel(model.base_model, int(model.get_output_embeddings().in_features))


def load_config(name: str) -> Any:
    """The configuration of a model.

    Raises:
        InputError: the model does not exist, or its configuration cannot be read.
    """
    import transformers

    _check_folder(name)
    try:
        return transformers.AutoConfig.from_pretrained(name)
    except Exception as error:  # as in load_model
        raise _unloadable(name, error) from error


def load_model(name: str, device: torch.device, dtype: torch.dtype) -> nn.Module:
    """A causal language model without dropout, so that sampler and trainer see the same function."""
    import transformers

    transformers.utils.logging.disable_progress_bar()
    config = load_config(name)
    try:
        _without_dropout(config)
        attention = "eager" if architecture_of(config.to_dict()).caps_attention else "sdpa"
        loaded = transformers.AutoModelForCausalLM.from_pretrained(
            name, config=config, dtype=dtype, attn_implementation=attention, output_loading_info=True
        )
    except Exception as error:  # a checkpoint can fail in as many ways as there are model classes
        raise _unloadable(name, error) from error
    model, report = cast("tuple[nn.Module, dict[str, Any]]", loaded)
    if report["missing_keys"]:
        missing = sorted(report["missing_keys"])
        raise InputError(
            f"model {name!r}: the weights of {len(missing)} parameters are missing, the first {missing[0]!r}",
            "Give a complete checkpoint; missing weights would be random numbers.",
        )
    return model.to(device).eval()


def _load_codec(name: str, model: nn.Module, stop: Sequence[str]) -> TextCodec:
    import transformers

    try:
        tokenizer = cast("Any", transformers.AutoTokenizer.from_pretrained(name))
        # transformers makes an empty tokenizer of the model's kind if the files are missing.
        if len(tokenizer) <= len(tokenizer.all_special_tokens):
            raise FileNotFoundError("its files are missing")
    except Exception as error:  # as in load_model
        raise InputError(
            f"the tokenizer of model {name!r} cannot be loaded: {_first_line(error)}",
            "Save it into the model's folder with tokenizer.save_pretrained(folder).",
        ) from error
    named: object = getattr(getattr(model, "generation_config", None), "eos_token_id", None)
    listed = cast("list[object]", named) if isinstance(named, list) else [named]
    ends = {token for token in listed if isinstance(token, int)}
    if tokenizer.eos_token_id is not None:
        ends.add(int(tokenizer.eos_token_id))
    return TextCodec(tokenizer, ends, stop)


def _check_folder(name: str) -> None:
    """Reject a name that can only be a path and is no folder: the hub's own answer would be slow and unclear."""
    if not Path(name).is_dir() and (name.startswith((".", "/", "~")) or name.count("/") > 1 or Path(name).exists()):
        raise InputError(
            f"model: received {name!r}; no such folder",
            "Give a folder written by save_pretrained, or a name on the hub.",
        )


def _unloadable(name: str, error: Exception) -> InputError:
    # A mistyped folder is taken for a name on the hub.
    missing = "" if Path(name).is_dir() else f" (no such folder in {str(Path.cwd())!r}, so a name on the hub)"
    return InputError(
        f"model {name!r}{missing} cannot be loaded: {_first_line(error)}",
        "Accepted: a local folder written by save_pretrained, or the name of a causal language model on the hub.",
    )


def _without_dropout(config: object) -> None:
    for key, value in vars(config).items():
        if ("dropout" in key or key.endswith("_pdrop")) and isinstance(value, int | float):
            setattr(config, key, 0.0)


def _first_line(error: Exception) -> str:
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__
