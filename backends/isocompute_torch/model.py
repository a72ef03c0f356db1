"""Loading a Hugging Face causal language model, and the two things training asks of it: hidden states and logits."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, Protocol, cast

import torch
from torch import Tensor, nn

from isocompute_torch.failures import InputError
from isocompute_torch.lean import MASKED, LayerWeights, LeanCache, lean_model
from isocompute_torch.text import TextCodec

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float64": torch.float64}
HEAD_TOLERANCE = 1e-3
"""Largest difference between the model's logits and those of its head on its hidden states, relative to the logits."""


class KVCache(Protocol):
    """Keys and values of what a model has read, one row per sequence."""

    def batch_select_indices(self, indices: Tensor, /) -> None:
        """Make row i a copy of what was row indices[i]."""
        ...


class Policy:
    """A causal language model as training sees it.

    Args:
        model: a Hugging Face causal language model on its device.
        codec: its tokenizer.
    """

    def __init__(self, model: nn.Module, codec: TextCodec) -> None:
        self.model = model
        self.codec = codec
        self._call = cast("Any", model)
        self._backbone, self._head = _split(model)
        self._lean = None if self._backbone is None else lean_model(model, self._backbone, cast("Any", self._head))
        self._weights: list[LayerWeights] | None = None

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
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
    def reads_trees(self) -> bool:
        """Whether a mask and positions say all about who sees whom, with no window or order of the model's own."""
        return self._lean is not None or self._call.config.model_type == "gpt2"

    @property
    def has_hidden_states(self) -> bool:
        """Whether logits are the output head applied to hidden states, so that both can be asked for apart."""
        return self._head is not None

    def hidden_states(
        self,
        input_ids_SL: Tensor,
        attention_mask: Tensor | None = None,
        position_ids_SL: Tensor | None = None,
        *,
        wanted_J: Tensor | None = None,
    ) -> Tensor:
        """What `logits` takes, per token, shape (S, L, width) or (J, width): hidden states, or already the logits.

        Args:
            input_ids_SL: token ids.
            attention_mask: additive mask of shape (S, 1, L, L); None for plain causal attention.
            position_ids_SL: positions; None where they count up from 0.
            wanted_J: flat positions (of S times L) that are asked for; None for all, as (S, L, width).
        """
        if self._lean is not None:
            return self._lean.hidden_states(input_ids_SL, attention_mask, position_ids_SL, wanted_J=wanted_J)
        arguments = _given(attention_mask=attention_mask, position_ids=position_ids_SL)
        if self._backbone is None:
            hidden_SLD = self._call(input_ids=input_ids_SL, use_cache=False, **arguments).logits
        else:
            hidden_SLD = self._backbone(input_ids=input_ids_SL, use_cache=False, **arguments).last_hidden_state
        return hidden_SLD if wanted_J is None else hidden_SLD.flatten(0, 1).index_select(0, wanted_J)

    def logits(self, hidden_KD: Tensor) -> Tensor:
        """Logits of what `hidden_states` returned, at least float32, shape (K, V)."""
        if self._lean is not None:
            hidden_KD = self._lean.last_norm(hidden_KD)
        return at_least_float32(hidden_KD if self._head is None else self._head(hidden_KD))

    @contextmanager
    def decoding(self) -> Generator[None]:
        """While the weights stay as they are: what is derived from them is computed once."""
        self._weights = None if self._lean is None else self._lean.weights()
        try:
            yield
        finally:
            self._weights = None

    def new_cache(self, longest: int) -> KVCache:
        """An empty KV cache for `next_logits`: for a prompt and then one token at a time, `longest` at most."""
        if self._lean is not None:
            return self._lean.new_cache(longest, self._weights)
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
            cache: what was read before.
            seen_KL: 1 for tokens, 0 for padding, over all tokens so far; None where there is no padding.
            position_ids_KL: positions; None where they go on from those in the cache.
        """
        if self._lean is not None:
            mask = None if seen_KL is None else additive_mask(seen_KL, input_ids_KL.shape[1], self.dtype)
            hidden_KLD = self._lean.hidden_states(
                input_ids_KL, mask, position_ids_KL, weights=self._weights, cache=cast("LeanCache", cache)
            )
            return self.logits(hidden_KLD[:, -1])
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
    """PPO's critic: a backbone of its own, started from the base model, and a linear head started at 0.

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


def choose_device(wanted: Literal["auto", "cpu", "cuda"]) -> torch.device:
    """The device to train on.

    Raises:
        InputError: a GPU is asked for where there is none.
    """
    found = torch.cuda.is_available()
    if wanted == "cuda" and not found:
        raise InputError("options.device: received cuda; torch finds no GPU here", "Use auto or cpu.")
    return torch.device("cuda" if found and wanted != "cpu" else "cpu")


def choose_dtype(wanted: str, device: torch.device) -> torch.dtype:
    """Number format of the weights: bfloat16 on a GPU, float32 on a CPU, unless another is wanted."""
    if wanted != "auto":
        return DTYPES[wanted]
    return torch.bfloat16 if device.type == "cuda" else torch.float32


def load_policy(name: str, device: torch.device, dtype: torch.dtype) -> Policy:
    """Model and tokenizer from a local folder or by their name on the model hub.

    Raises:
        InputError: there is no such model, it cannot be loaded, or some of its weights are missing.
    """
    model = load_model(name, device, dtype)
    return Policy(model, _load_codec(name, model))


def load_reference(name: str, device: torch.device, dtype: torch.dtype, codec: TextCodec) -> Policy:
    """The frozen base model, for KL terms."""
    return Policy(load_model(name, device, dtype).requires_grad_(False), codec)


def load_value_model(name: str, device: torch.device, dtype: torch.dtype) -> ValueModel:
    """PPO's critic.

    Raises:
        InputError: the model has no backbone apart from its output head.
    """
    model = load_model(name, device, dtype)
    backbone, _ = _split(model)
    if backbone is None:
        raise InputError(
            f"model {name!r}: its hidden states cannot be had apart from its logits, so it can carry no value head",
            "Use algorithm grpo or cispo.",
        )
    width = int(cast("Any", model).get_output_embeddings().in_features)
    return ValueModel(cast("nn.Module", backbone), width)


def load_model(name: str, device: torch.device, dtype: torch.dtype) -> nn.Module:
    """A causal language model without dropout, so that sampler and trainer see the same function."""
    import transformers

    transformers.utils.logging.disable_progress_bar()
    _check_folder(name)
    try:
        config = transformers.AutoConfig.from_pretrained(name)
        _without_dropout(config)
        loaded = transformers.AutoModelForCausalLM.from_pretrained(
            name, config=config, dtype=dtype, attn_implementation="sdpa", output_loading_info=True
        )
    except Exception as error:  # a checkpoint can fail in as many ways as there are model classes
        raise InputError(
            f"{_place(name)} cannot be loaded: {_first_line(error)}",
            "Accepted: a local folder written by save_pretrained, or the name of a causal language model on the hub.",
        ) from error
    model, report = cast("tuple[nn.Module, dict[str, Any]]", loaded)
    if report["missing_keys"]:
        missing = sorted(report["missing_keys"])
        raise InputError(
            f"model {name!r}: the weights of {len(missing)} parameters are missing, the first {missing[0]!r}",
            "They would be random numbers. Give a complete checkpoint.",
        )
    return model.to(device).eval()


def additive_mask(seen_KL: Tensor, new: int, dtype: torch.dtype) -> Tensor:
    """Mask added to attention scores, shape (K, 1, new, L): a token sees itself and earlier tokens that are there.

    Args:
        seen_KL: 1 for tokens, 0 for padding, over all L tokens so far.
        new: the last `new` of them ask.
        dtype: number format of the scores.
    """
    length = seen_KL.shape[1]
    order_L = torch.arange(length, device=seen_KL.device)
    visible = (order_L <= order_L[length - new :, None]) & (seen_KL[:, None, None, :] > 0)
    return torch.zeros(visible.shape, dtype=dtype, device=seen_KL.device).masked_fill_(~visible, MASKED)


def at_least_float32(tensor: Tensor) -> Tensor:
    """`tensor` in float32, or in float64 where it is that already."""
    return tensor if tensor.dtype == torch.float64 else tensor.float()


def _load_codec(name: str, model: nn.Module) -> TextCodec:
    import transformers

    try:
        tokenizer = cast("Any", transformers.AutoTokenizer.from_pretrained(name))
    except Exception as error:  # as in load_model
        raise InputError(
            f"the tokenizer of model {name!r} cannot be loaded: {_first_line(error)}",
            "Save it into the model's folder with tokenizer.save_pretrained(folder).",
        ) from error
    if len(tokenizer) <= len(tokenizer.all_special_tokens):
        # transformers makes an empty tokenizer of the model's kind where the files are missing.
        raise InputError(
            f"the tokenizer of model {name!r} has no tokens but {tokenizer.all_special_tokens}: its files are missing",
            "Save it into the model's folder with tokenizer.save_pretrained(folder).",
        )
    named: object = getattr(getattr(model, "generation_config", None), "eos_token_id", None)
    listed = cast("list[object]", named) if isinstance(named, list) else [named]
    ends = {token for token in listed if isinstance(token, int)}
    if tokenizer.eos_token_id is not None:
        ends.add(int(tokenizer.eos_token_id))
    return TextCodec(tokenizer, ends)


def _check_folder(name: str) -> None:
    """A name that can only be a path has to be one: the hub would answer with a riddle, after a while."""
    if not Path(name).is_dir() and (name.startswith((".", "/", "~")) or name.count("/") > 1 or Path(name).exists()):
        raise InputError(
            f"there is no model folder {name!r}", "Give a folder written by save_pretrained, or a name on the hub."
        )


def _place(name: str) -> str:
    """The model, and where it was looked for: a mistyped folder becomes a name on the hub."""
    if Path(name).is_dir():
        return f"model folder {name!r}"
    return f"model {name!r} (no such folder in {str(Path.cwd())!r}, so a name on the hub)"


def _without_dropout(config: object) -> None:
    for key, value in vars(config).items():
        if ("dropout" in key or key.endswith("_pdrop")) and isinstance(value, int | float):
            setattr(config, key, 0.0)


def _split(model: nn.Module) -> tuple[Any, nn.Module | None]:
    """Backbone and output head; (None, None) where the logits are not just the head on the hidden states."""
    backbone: Any = getattr(model, "base_model", None)
    head = cast("Any", model).get_output_embeddings()
    if backbone is None or backbone is model or head is None:
        return None, None
    width = cast("Any", model).config.get_text_config().vocab_size
    probe_SL = torch.arange(4, device=next(model.parameters()).device).unsqueeze(0) % width
    with torch.no_grad():
        output = backbone(input_ids=probe_SL, use_cache=False)
        hidden = getattr(output, "last_hidden_state", None)
        if hidden is None:
            return None, None
        expected = cast("Any", model)(input_ids=probe_SL, use_cache=False).logits.float()
        found = head(hidden).float()
    # Soft-capped or scaled logits, as some families have them, differ here.
    same = found.shape == expected.shape and bool(
        (found - expected).abs().max() <= HEAD_TOLERANCE * expected.abs().max().clamp(min=1e-6)
    )
    return (backbone, head) if same else (None, None)


def _given(**arguments: Tensor | None) -> dict[str, Any]:
    return {name: value for name, value in arguments.items() if value is not None}


def _first_line(error: Exception) -> str:
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__
