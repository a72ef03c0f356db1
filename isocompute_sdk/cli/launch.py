"""`isocompute launch`: the launch script of a plan."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import Annotated

import typer

from isocompute_sdk import files
from isocompute_sdk.cli.shared import options as opt
from isocompute_sdk.cli.shared.output import emit_json, say


def launch(
    plan: Annotated[Path, typer.Argument(help="Saved plan (JSON).")],
    backend: Annotated[str, typer.Option(help="Training framework; see `isocompute backends`.")] = "openrlhf",
    model: Annotated[str | None, typer.Option(help="Hub name or local folder; the plan's by default.")] = None,
    train_data: Annotated[str, typer.Option(help="Training problems, JSONL.")] = "train.jsonl",
    eval_data: Annotated[str, typer.Option(help="Validation problems, JSONL.")] = "validation.jsonl",
    reward: Annotated[str, typer.Option(help="Reward function: file.py or file.py:function.")] = "reward.py",
    output_dir: Annotated[str, typer.Option(help="Folder for everything the run writes.")] = "runs/plan",
    option: Annotated[list[str] | None, typer.Option("--option", help="Backend option name=value; repeatable.")] = None,
    script: Annotated[Path, typer.Option(help="Where to write the script.")] = Path("launch.sh"),
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the script, write nothing.")] = False,
    json: opt.Json = False,
) -> None:
    """Write the script that trains a plan; start it with `bash launch.sh` where data and reward file lie.

    Examples:
        isocompute launch plan.json --backend openrlhf --dry-run

        isocompute launch plan.json --model Qwen/Qwen2.5-7B-Instruct --option gpus_per_node=8
    """
    from isocompute_sdk import api
    from isocompute_sdk.planning import Plan

    text = api.launch_script(
        Plan.load(plan),
        backend,
        model=model,
        train_data=train_data,
        eval_data=eval_data,
        reward=reward,
        output_dir=output_dir,
        **opt.assignments(option, "--option"),
    )
    if not dry_run:
        files.write_text(script, text, executable=True)
    if json:
        emit_json({"kind": "launch", "backend": backend, "script": text, "path": None if dry_run else str(script)})
    elif dry_run:
        say(text.rstrip("\n"))
    else:
        say(f"wrote {script}\nnext: bash {quote(str(script))}")
