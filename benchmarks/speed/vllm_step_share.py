"""Share of a training step on the vLLM path that is neither sampling nor optimisation.

A run of the built-in runner with `sampler: vllm` on a random Llama model that is large enough for sampling to be the
work it is in practice. Its journal has the seconds of sampling, rewards, training and weight sync; what a step takes
beyond them is the runner's own. Steps before the warm-up is over are not counted.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from workload import make_task, prepare_run, train

WARM_UP = 2


def main() -> None:
    """Train and print where the time went."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, help="where the task is kept for the next time")
    parser.add_argument("--problems", type=int, default=16)
    parser.add_argument("--group", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=16)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--steps", type=int, default=6, help="steps that are measured")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = (options.folder or Path(temporary)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        task = make_task(folder)
        model, parameters = make_model(task, folder / "larger", options.width, options.layers)
        run = prepare_run(
            task,
            folder / "run",
            steps=WARM_UP + options.steps,
            group_size=options.group,
            problems=options.problems,
            model=str(model),
            recipe={"max_response_tokens": options.tokens, "learning_rate_anchor": 1e-5},
            options={"sampler": "vllm"},
        )
        steps = [record for record in train(task, run) if record["kind"] == "step"]
    sys.stdout.write(
        f"{parameters:,} parameters, {options.problems} problems x {options.group} rollouts x {options.tokens} tokens\n"
    )
    sys.stdout.write(table(steps))


def make_model(task: Path, folder: Path, width: int, layers: int) -> tuple[Path, int]:
    """A Llama model of another size with random weights, and the task's tokenizer; here responses can end."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(task / "model")
    config: Any = AutoConfig.from_pretrained(task / "model")
    config.vocab_size = len(tokenizer)  # vLLM wants a logit for the end token
    config.hidden_size, config.intermediate_size, config.num_hidden_layers = width, 4 * width, layers
    config.head_dim = 64
    config.num_attention_heads = config.num_key_value_heads = width // config.head_dim
    torch.manual_seed(0)
    model: Any = AutoModelForCausalLM.from_config(config)
    model.generation_config.eos_token_id = json.loads((task / "model" / "generation_config.json").read_text())[
        "eos_token_id"
    ]
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder, int(model.num_parameters())


def table(steps: list[dict[str, Any]]) -> str:
    """Median seconds of each part of a step, and its share."""
    rows: dict[str, list[float]] = {}
    for before, step in zip(steps[WARM_UP - 1 :], steps[WARM_UP:], strict=False):
        whole = step["wall_seconds"] - before["wall_seconds"]
        parts = dict(step["seconds"])
        parts["the runner's own"] = whole - sum(parts.values())
        parts["everything but sampling and training"] = whole - parts["sampling"] - parts["training"]
        for name, seconds in {**parts, "step": whole}.items():
            rows.setdefault(name, []).append(seconds)
    whole = statistics.median(rows["step"])
    lines = ["| part | seconds | share |", "|---|---|---|"]
    for name, seconds in rows.items():
        lines.append(f"| {name} | {statistics.median(seconds):.4f} | {statistics.median(seconds) / whole:.1%} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
