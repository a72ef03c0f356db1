"""Loading a Hugging Face causal language model, its tokenizer and PPO's value model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, cast

import torch
from torch import nn

from isocompute_torch.failures import InputError
from isocompute_torch.policy.architecture import architecture_of
from isocompute_torch.policy.model import Policy, ValueModel
from isocompute_torch.policy.text import TextCodec

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float64": torch.float64}
NARROW = 256
"""Width of hidden states below which a CPU gains nothing from bfloat16."""


def choose_device(wanted: Literal["auto", "cpu", "cuda"]) -> torch.device:
    """The device to train on.

    Raises:
        InputError: cuda is requested and torch finds no GPU.
    """
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
    """PPO's critic.

    Raises:
        InputError: the model has no backbone without output head.
    """
    model: Any = load_model(name, device, dtype)
    if model.base_model is model:
        raise InputError(
            f"model {name!r}: transformers has no backbone without output head for it, so it can carry no value head",
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
        raise InputError(
            f"{_place(name)} cannot be loaded: {_first_line(error)}",
            "Accepted: a local folder written by save_pretrained, or the name of a causal language model on the hub.",
        ) from error


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
        raise InputError(
            f"{_place(name)} cannot be loaded: {_first_line(error)}",
            "Accepted: a local folder written by save_pretrained, or the name of a causal language model on the hub.",
        ) from error
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
    except Exception as error:  # as in load_model
        raise InputError(
            f"the tokenizer of model {name!r} cannot be loaded: {_first_line(error)}",
            "Save it into the model's folder with tokenizer.save_pretrained(folder).",
        ) from error
    if len(tokenizer) <= len(tokenizer.all_special_tokens):
        # transformers makes an empty tokenizer of the model's kind if the files are missing.
        raise InputError(
            f"the tokenizer of model {name!r}: its files are missing",
            "Save it into the model's folder with tokenizer.save_pretrained(folder).",
        )
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


def _place(name: str) -> str:
    """The model and the folder in which it was searched: a mistyped folder is taken for a name on the hub."""
    if Path(name).is_dir():
        return f"model folder {name!r}"
    return f"model {name!r} (no such folder in {str(Path.cwd())!r}, so a name on the hub)"


def _without_dropout(config: object) -> None:
    for key, value in vars(config).items():
        if ("dropout" in key or key.endswith("_pdrop")) and isinstance(value, int | float):
            setattr(config, key, 0.0)


def _first_line(error: Exception) -> str:
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__
