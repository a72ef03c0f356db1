"""Tiny models of several families, prepared runs, and a way to start them as processes that can be killed."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from isocompute_sdk.run_folders import journal_records, run_journal
from isocompute_torch import train
from isocompute_torch.policy import Policy, load_policy
from tests.backends.tiny_runs import tiny_run, write_inputs, write_run

torch.set_num_threads(1)

CHARACTERS = "0123456789+=*-"
WIDTH = len(CHARACTERS) + 2


def tokenizer() -> transformers.PreTrainedTokenizerFast:
    """One token per character; 0 is the padding token, 1 the end token."""
    vocabulary = {token: i for i, token in enumerate(["<pad>", "<eos>", *CHARACTERS])}
    inner = Tokenizer(models.WordLevel(vocabulary))
    inner.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    inner.decoder = decoders.Fuse()
    return transformers.PreTrainedTokenizerFast(tokenizer_object=inner, pad_token="<pad>", eos_token="<eos>")


def configurations() -> dict[str, transformers.PretrainedConfig]:
    """Small models that differ in what can go wrong: positions, grouped heads, windows, soft caps."""
    common: dict[str, Any] = {
        "vocab_size": WIDTH,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 512,
        "eos_token_id": 1,
        "pad_token_id": 0,
        "bos_token_id": None,
        "initializer_range": 0.3,
    }
    return {
        "qwen2": transformers.Qwen2Config(**common, tie_word_embeddings=True),
        "qwen3": transformers.Qwen3Config(**common, head_dim=16),
        "llama": transformers.LlamaConfig(**{**common, "num_key_value_heads": 4}, attention_bias=True),
        "mistral": transformers.MistralConfig(**common, sliding_window=256),
        "mistral-window": transformers.MistralConfig(**common, sliding_window=4),
        "gemma": transformers.GemmaConfig(**common, head_dim=8),
        "gemma2": transformers.Gemma2Config(
            **common, head_dim=8, sliding_window=4, final_logit_softcapping=2.0, attn_logit_softcapping=0.5
        ),
        "gemma3_text": transformers.Gemma3TextConfig(**common, head_dim=8),
        "glm4": transformers.Glm4Config(**common, head_dim=8),
        "phi3": transformers.Phi3Config(**common),
        "smollm3": transformers.SmolLM3Config(**common),
        "starcoder2": transformers.Starcoder2Config(**common),
        "olmo": transformers.OlmoConfig(**common),
        "olmo3": transformers.Olmo3Config(**common),
        "olmo2": transformers.Olmo2Config(**common),
        "gpt2": transformers.GPT2Config(
            vocab_size=WIDTH,
            n_embd=32,
            n_layer=2,
            n_head=4,
            n_positions=64,
            eos_token_id=1,
            bos_token_id=1,
            pad_token_id=0,
            initializer_range=0.3,
        ),
        "stablelm": transformers.StableLmConfig(**common),
    }


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Folder of a saved random model of one family."""
    root = tmp_path_factory.mktemp("models")

    def folder(family: str) -> Path:
        path = root / family
        if not path.exists():
            torch.manual_seed(0)
            transformers.AutoModelForCausalLM.from_config(configurations()[family]).save_pretrained(path)
            tokenizer().save_pretrained(path)
        return path

    return folder


@pytest.fixture
def policy(model_folder: Callable[[str], Path]) -> Callable[..., Policy]:
    """A freshly loaded policy of one family."""

    def load(family: str = "qwen2", dtype: torch.dtype = torch.float32) -> Policy:
        return load_policy(str(model_folder(family)), torch.device("cpu"), dtype)

    return load


@pytest.fixture
def prepared(
    tmp_path: Path, model_folder: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Path]:
    """A run folder in a folder with problems and reward function; changes are those of `tiny_run`."""
    monkeypatch.chdir(tmp_path)
    write_inputs(tmp_path)

    def prepare(name: str = "run", *, recipe: dict[str, Any] | None = None, **changes: Any) -> Path:
        named = {"run_id": name, "output_dir": name, "model": str(model_folder("qwen2")), **changes}
        return write_run(tmp_path / name, tiny_run(recipe={"learning_rate_anchor": 0.02, **(recipe or {})}, **named))

    return prepare


class Started:
    """A training process made by forking: a real process, without the seconds that importing torch takes."""

    def __init__(self, folder: Path, before: Callable[[], None] | None = None) -> None:
        self.output = folder.parent / f"{folder.name}.output"
        self.pid = os.fork()
        if self.pid == 0:
            status = 70
            try:
                stream = self.output.open("w")
                os.dup2(stream.fileno(), 1)
                os.dup2(stream.fileno(), 2)
                sys.stdout = sys.stderr = stream
                if before is not None:
                    before()
                status = train.main([str(folder)])
                stream.flush()
            finally:
                os._exit(status)

    def wait(self) -> int:
        """Exit status; negative for a signal."""
        try:
            _, status = os.waitpid(self.pid, 0)
        except BaseException:
            os.kill(self.pid, signal.SIGKILL)
            raise
        return os.waitstatus_to_exitcode(status)


def at_line(folder: Path, lines: int, act: Callable[[], object]) -> Callable[[], None]:
    """For `before`: have the process do this whenever a record is written to its journal of so many lines or more."""

    def before() -> None:
        append = run_journal.append_line

        def appending(path: Path, text: str, **how: Any) -> None:
            append(path, text, **how)
            if path == folder / "metrics.jsonl" and path.read_bytes().count(b"\n") >= lines:
                act()

        run_journal.append_line = appending

    return before


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.fixture
def start() -> Callable[..., tuple[int, str]]:
    """Train a prepared run to its end in a process of its own; returns exit status and output."""

    def run(folder: Path, before: Callable[[], None] | None = None) -> tuple[int, str]:
        started = Started(folder, before)
        return started.wait(), started.output.read_text()

    return run


@pytest.fixture
def fork_run() -> type[Started]:
    """Start a prepared run without waiting for it."""
    return Started


@pytest.fixture
def records() -> Callable[..., list[dict[str, Any]]]:
    """Records of a run folder, perhaps of one kind."""

    def read(folder: Path, kind: str | None = None) -> list[dict[str, Any]]:
        return [record for record in journal_records.read(folder / "metrics.jsonl") if kind in (None, record["kind"])]

    return read
