"""`isocompute run`: train a study's sweep on this machine."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from isocompute_sdk.cli.shared import options as opt
from isocompute_sdk.cli.shared.output import emit_json, say
from isocompute_sdk.cli.shared.work_progress import WorkProgress, resumable
from isocompute_sdk.cli.status import describe, status_dict

if TYPE_CHECKING:
    from isocompute_sdk.campaigns.executors import Slots
    from isocompute_sdk.specs import RunSpec


def run(
    study: Annotated[Path, typer.Argument(help="Study file (YAML); its paths are relative to the current folder.")],
    parallel: opt.Parallel = None,
    only: Annotated[list[str] | None, typer.Option("--only", help="Name of a run to do; repeatable.")] = None,
    json: opt.Json = False,
) -> None:
    """Train every run of a study's sweep here, with the study's backend.

    Each run gets GPUs of its own, as many as hardware.gpus says, out of CUDA_VISIBLE_DEVICES or all of this machine.
    Runs that need no GPU share the CPU cores. Finished runs are skipped and stopped ones resume, so the same command
    continues after Ctrl-C or a crash.

    Examples:
        isocompute run study.yaml --parallel 2

        isocompute run specs/quick.yaml --only n8-bp32-seed0
    """
    from isocompute_sdk.campaigns.campaign import carry_out
    from isocompute_sdk.campaigns.executors import LocalExecutor
    from isocompute_sdk.errors import SpecError
    from isocompute_sdk.specs import load_study
    from isocompute_sdk.training import registry
    from isocompute_sdk.training.backend import needs_of, run_folder

    loaded = load_study(study)
    every = loaded.expand()
    strangers = sorted(set(only or ()) - {one.run_id for one in every})
    if strangers:
        raise SpecError(
            f"--only {strangers[0]}: no such run in {study}; it has: {', '.join(one.run_id for one in every)}",
            "Use a run of the study.",
        )
    runs = [one for one in every if not only or one.run_id in only]
    backend, executor = registry.load(loaded.backend), LocalExecutor(parallel)
    for one in runs:
        backend.script(one)  # Refuses a run whose needs cannot be told.
    for needs in dict.fromkeys(needs_of(backend, one) for one in runs):
        print(f"{loaded.name}: {_slots(executor.slots(needs))}", file=sys.stderr)
    with resumable(), WorkProgress() as progress:
        carry_out(
            runs,
            backend,
            executor,
            Path.cwd(),
            lambda statuses: progress.runs(loaded.name, statuses),
        )
    statuses = [watch.status() for watch in registry.watches(run_folder(one) for one in runs)]
    folder = Path(runs[0].output_dir).parent
    if json:
        emit_json({"kind": "run", "study": loaded.name, "runs": [status_dict(status) for status in statuses]})
        return
    for status in statuses:
        say(describe(status))
    say(f"next: isocompute fit {quote(str(folder))} --eval-set validation{_pooled(runs)}")


def _slots(slots: Slots) -> str:
    """How many runs go on at a time, and on what."""
    if not slots.gpus_each:
        return f"up to {slots.count} run(s) at a time on the CPU"
    names = ", ".join(gpu.token for gpu in slots.gpus)
    return f"{slots.count} slot(s) of {slots.gpus_each} GPU(s); visible GPUs: {names}"


def _pooled(runs: Sequence[RunSpec]) -> str:
    """The option that lets `fit` pool learning rates set by batch, where too few batches show the rule."""
    from isocompute_sdk.records.comparable import BATCHES_FOR_A_RULE

    few = len({run.rollouts_per_batch for run in runs}) < BATCHES_FOR_A_RULE
    return " --pool learning_rate" if few and len({run.learning_rate for run in runs}) > 1 else ""
