"""`isocompute problems`: problem files of a data set, and a reward function for mathematics."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from shlex import quote
from typing import Annotated

import typer

from isocompute_sdk import files
from isocompute_sdk.cli.shared import options as opt
from isocompute_sdk.cli.shared.output import emit_json, say


def problems(
    source: Annotated[str, typer.Argument(help="Parquet, CSV, JSON or JSON-lines file, or the name of a data set.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Problem file to write, JSON lines.")] = Path(
        "train.jsonl"
    ),
    split: Annotated[str, typer.Option(help="Split of a data set.")] = "train",
    config: Annotated[str | None, typer.Option(help="Configuration of a data set, such as main.")] = None,
    prompt_key: Annotated[str | None, typer.Option(help="Key of the prompt, if it has an unusual name.")] = None,
    answer_key: Annotated[str | None, typer.Option(help="Key of the answer, if it has an unusual name.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Take only this many rows.")] = None,
    reward: Annotated[
        Path | None, typer.Option(help="Also write a reward function for mathematics there (needs math-verify).")
    ] = None,
    json: opt.Json = False,
) -> None:
    """Write the problems of a data set as JSON lines, which every backend reads.

    Examples:
        isocompute problems openai/gsm8k --config main --output train.jsonl --reward reward.py

        isocompute problems openai/gsm8k --config main --split test --output validation.jsonl --limit 300

        isocompute problems data/train.parquet --prompt-key question --output train.jsonl
    """
    from isocompute_sdk.training import problem_sets

    rows = problem_sets.read_rows(source, split=split, config=config)
    count = problem_sets.write_problems(rows, output, prompt_key=prompt_key, answer_key=answer_key, limit=limit)
    if reward is not None:
        text = resources.files("isocompute_sdk.training.rewards").joinpath("maths.py").read_text(encoding="utf-8")
        files.write_text(reward, text)
    if json:
        emit_json({"kind": "problems", "path": str(output), "problems": count, "reward": reward and str(reward)})
        return
    say(f"wrote {output}: {count:,} problems")
    if reward is not None:
        say(f"wrote {reward}\nnext: pip install {quote('isocompute[math]')} where the training runs")
