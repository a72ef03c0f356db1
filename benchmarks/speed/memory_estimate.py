"""The memory estimate of the built-in runner against what a training process really takes.

Four architectures, layers kept and computed again in the backward pass, two lengths of a row. Each case is a process
of its own on random weights: two updates of two micro-batches, the peak of its resident memory (VmHWM) above that
before the model was made, and beside it the bytes that autograd keeps. The process returns freed memory at once,
as a run does where memory is short; where there is plenty it keeps blocks, and its peak is up to twice the estimate.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from workload import environment

FAMILIES = ("llama", "qwen2", "qwen3", "gemma2")
MIB = 2**20
PROMPT = 16


def main() -> None:
    """Measure every case and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--vocabulary", type=int, default=4096)
    parser.add_argument("--tokens", type=int, default=2048, help="tokens of a micro-batch")
    parser.add_argument("--lengths", type=int, nargs="+", default=[256, 1024], help="tokens of a row")
    parser.add_argument("--families", nargs="+", default=FAMILIES)
    parser.add_argument("--case", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.case is not None:
        sys.stdout.write(json.dumps(measure(**json.loads(options.case))) + "\n")
        return
    sys.stdout.write(
        "| model | layers | tokens of a row | kept by autograd, MiB | estimate | process, MiB | estimate | ratio |\n"
        "|---|---|---|---|---|---|---|---|\n"
    )
    shape = {name: getattr(options, name) for name in ("hidden", "layers", "vocabulary", "tokens")}
    for family in options.families:
        for checkpointing in (False, True):
            for length in options.lengths:
                case = {**shape, "family": family, "checkpointing": checkpointing, "length": length}
                command = [sys.executable, __file__, "--case", json.dumps(case)]
                # From the first allocation on: glibc reads these when a process starts.
                returned = {"MALLOC_MMAP_THRESHOLD_": "131072", "MALLOC_TRIM_THRESHOLD_": "131072"}
                done = subprocess.run(
                    command, env={**environment(), **returned}, capture_output=True, text=True, check=False
                )
                if done.returncode:
                    raise SystemExit(done.stderr)
                one = json.loads(done.stdout.splitlines()[-1])
                sys.stdout.write(
                    f"| {family} | {'again' if checkpointing else 'kept'} | {length} | {one['saved'] / MIB:.0f} | "
                    f"{one['activations'] / MIB:.0f} | {one['peak'] / MIB:.0f} | {one['estimate'] / MIB:.0f} | "
                    f"{one['estimate'] / one['peak']:.2f} |\n"
                )
                sys.stdout.flush()


def measure(
    *, family: str, checkpointing: bool, length: int, hidden: int, layers: int, vocabulary: int, tokens: int
) -> dict[str, float]:
    """Bytes of one case: kept of the layers and their estimate, peak of the process and its estimate."""
    import torch

    from isocompute_torch.memory import Sizes, estimate

    torch.set_num_threads(1)
    # The first update loads libraries, which are no part of the model.
    update_twice(configuration(family, 64, 1, 400), 64, 512, checkpointing)
    gc.collect()
    before = status("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")
    config = configuration(family, hidden, layers, vocabulary)
    model = update_twice(config, length, tokens, checkpointing)
    peak = status("VmHWM") - before
    sizes = Sizes(
        tokens=tokens,
        row_tokens=length,
        dtype=torch.float32,
        reference=False,
        value_model=False,
        entropy=False,
        checkpointing=checkpointing,
    )
    found = estimate(config, sizes)
    return {
        "peak": peak,
        "estimate": found.peak,
        "saved": saved_bytes(model, tokens // length, length, checkpointing),
        "activations": found.parts["activations"],
    }


def configuration(family: str, hidden: int, layers: int, vocabulary: int) -> Any:
    """Configuration of a random model."""
    import transformers

    common: dict[str, Any] = {
        "hidden_size": hidden,
        "intermediate_size": hidden * 11 // 4,
        "num_hidden_layers": layers,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": hidden // 8,
        "vocab_size": vocabulary,
        "max_position_embeddings": 4096,
    }
    classes: dict[str, Any] = {
        "llama": transformers.LlamaConfig,
        "qwen2": transformers.Qwen2Config,
        "qwen3": transformers.Qwen3Config,
        "gemma2": transformers.Gemma2Config,
    }
    return classes[family](**common)


def update_twice(config: Any, length: int, tokens: int, checkpointing: bool) -> Any:
    """Two updates of two micro-batches, as the runner makes them; returns the model."""
    import torch
    import transformers

    from isocompute_sdk.specs import Recipe
    from isocompute_torch.learner import Learner
    from isocompute_torch.policy import Policy
    from isocompute_torch.problems import TextCodec
    from isocompute_torch.sampler import Samples
    from isocompute_torch.tasks.build import build_tokenizer

    attention = "eager" if config.model_type == "gemma2" else "sdpa"
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation=attention).eval()
    rows, response = 2 * (tokens // length), length - PROMPT
    samples = Samples(
        torch.zeros(rows, dtype=torch.long),
        [list(range(2, 2 + PROMPT))],
        torch.randint(2, config.vocab_size, (rows, response), generator=torch.Generator().manual_seed(0)),
        torch.ones(rows, response),
        torch.full((rows, response), -8.0),
        torch.full((rows, response), 8.0),
        torch.ones(rows, dtype=torch.bool),
    )
    recipe = Recipe.preset("hard", max_response_tokens=response)
    policy = Policy(model, TextCodec(build_tokenizer(), {1}))
    learner = Learner(policy, recipe, rows, token_budget=tokens, checkpointing=checkpointing)
    for _ in range(2):
        learner.update(samples, torch.arange(rows).double() % 2, learning_rate=1e-4)
    return model


def saved_bytes(model: Any, rows: int, length: int, checkpointing: bool) -> float:
    """Bytes that autograd keeps of the layers of one forward pass."""
    import torch

    weights = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    kept: dict[int, Any] = {}

    def pack(tensor: Any) -> Any:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = storage  # held, so that its address is not used again
        return tensor

    if checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        model.train()
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        model.base_model(input_ids=torch.zeros((rows, length), dtype=torch.long), use_cache=False)
    return float(sum(storage.nbytes() for storage in kept.values()))


def status(name: str) -> int:
    """A line of /proc/self/status, in bytes."""
    text = Path(f"/proc/{os.getpid()}/status").read_text(encoding="utf-8")
    return int(text.partition(f"{name}:")[2].split()[0]) * 1024


if __name__ == "__main__":
    main()
