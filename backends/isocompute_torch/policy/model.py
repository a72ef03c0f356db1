"""A language model as training sees it: hidden states, logits, and decoding with a KV cache."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol, cast

import torch
from torch import Tensor, nn
from transformers.utils import logging as transformers_logging

from isocompute_torch.policy.architecture import architecture_of
from isocompute_torch.policy.text import TextCodec


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
        shown = transformers_logging.is_progress_bar_enabled()
        transformers_logging.disable_progress_bar()
        try:
            self._call.save_pretrained(folder)
        finally:
            if shown:
                transformers_logging.enable_progress_bar()
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


def at_least_float32(tensor: Tensor) -> Tensor:
    """`tensor` in float32, or in float64 if it has that format already."""
    return tensor if tensor.dtype == torch.float64 else tensor.float()


def _given(**arguments: Tensor | None) -> dict[str, Any]:
    return {name: value for name, value in arguments.items() if value is not None}
