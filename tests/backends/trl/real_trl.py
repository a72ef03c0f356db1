"""Runs beside the real TRL 1.16; reads one JSON request from stdin and writes one JSON answer.

A request is a list of `{"processes", "settings"}`, arguments of GRPOConfig, or `{"processes", "words"}`, a command line
for TRL's own program trl/scripts/grpo.py. The answer holds, for each, what TRL would run with, or its error as text.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
from typing import Any

from trl import GRPOConfig
from trl.scripts.grpo import make_parser

READ = (
    "num_generations",
    "generation_batch_size",
    "steps_per_generation",
    "gradient_accumulation_steps",
    "max_steps",
    "learning_rate",
    "num_generations_eval",
    "eval_steps",
    "beta",
    "loss_type",
)
WITHOUT_GPU = {"use_cpu": True, "bf16": False}


def read(one: dict[str, Any], parser: Any) -> dict[str, Any]:
    # The checks are those of a machine with as many GPUs.
    GRPOConfig.world_size = property(lambda _: one["processes"])
    if "settings" in one:
        config = GRPOConfig(**one["settings"] | WITHOUT_GPU)
    else:
        words = [*one["words"], "--use_cpu", "--bf16", "false"]
        config = parser.parse_args_and_config(words)[1]
    return {name: getattr(config, name) for name in READ}


def main() -> None:
    request, parser = json.load(sys.stdin), make_parser()
    answers: list[Any] = []
    for one in request["runs"]:
        printed = io.StringIO()
        try:
            with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
                answers.append(read(one, parser))
        except (Exception, SystemExit) as error:
            answers.append(f"{type(error).__name__}: {error} {printed.getvalue()[-500:]}")
    with open(request["answer"], "w") as file:
        json.dump(answers, file)


if __name__ == "__main__":
    main()
