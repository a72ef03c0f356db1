"""`isocompute status`: how far runs are, one line each."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from isocompute_sdk.cli.shared import options as opt
from isocompute_sdk.cli.shared.output import emit_json, say
from isocompute_sdk.errors import IsoComputeError, RecordError

if TYPE_CHECKING:
    from isocompute_sdk.run_folders.store import RunStatus


def status(
    folder: Annotated[Path, typer.Argument(help="Folder of a run, a study or a campaign.")],
    json: opt.Json = False,
) -> None:
    """Show how far every run in a folder is, and what has it: GPUs, or the job of Slurm or Ray with its state there.

    Unreadable runs are reported last, with exit code 1.

    Example:
        isocompute status runs/quick
    """
    from isocompute_sdk.run_folders import store
    from isocompute_sdk.training import registry

    found: list[RunStatus] = []
    unreadable: dict[str, IsoComputeError] = {}
    for watch in registry.watches(store.find_runs(folder)):
        try:
            found.append(watch.status())
        except IsoComputeError as error:
            unreadable[str(watch.folder)] = error
    words = _engine_states(found)
    if json:
        damaged = {name: error.message for name, error in unreadable.items()}
        shown = [{**status_dict(one), "job_state": words.get(one.folder)} for one in found]
        emit_json({"kind": "status", "runs": shown, "unreadable": damaged})
    else:
        for one in found:
            state = words.get(one.folder)
            say(describe(one) + (f": {state}" if state else ""))
    for name, error in unreadable.items():
        raise RecordError(f"{len(unreadable)} run(s) cannot be read, such as {name}: {error.message}", error.hint)


def _engine_states(statuses: Sequence[RunStatus]) -> dict[Path, str]:
    """What the engine of each run says about its job, in its own words; only for engines of other machines."""
    from isocompute_sdk.campaigns.executors import ClusterExecutor, Job
    from isocompute_sdk.campaigns.executors.registry import executors_of
    from isocompute_sdk.run_folders.store import LOCAL
    from isocompute_sdk.training.backend import Launch

    asked = [one.folder for one in statuses if one.engine not in ("", LOCAL)]
    found: dict[Path, str] = {}
    try:
        engines = executors_of(asked)
    except IsoComputeError as error:
        return dict.fromkeys(asked, error.message)
    for folder, engine in engines.items():
        if isinstance(engine, ClusterExecutor):
            handle = engine.adopt(Job(folder.name, Launch(folder, (), ()), folder))
            found[folder] = engine.words([handle])[0] if handle is not None else ""
    return found


def describe(status: RunStatus) -> str:
    """One run on one line: n, B_p, steps done, rollouts, the last evaluation (or training reward), state."""
    length = "?" if status.update_steps is None else f"{status.update_steps:,}"
    share = f" ({status.step / status.update_steps:4.0%})" if status.update_steps else ""
    value = f"{status.headline[0]} {status.headline[1]:.3f}" if status.headline else ""
    state = f"{status.state}: {status.message}" if status.message else status.state
    if status.engine and status.job:
        state += f", {status.engine} {status.job}"
    if status.devices:
        state += f" on GPU {', '.join(status.devices)}"
    n, problems = _or_unknown(status.group_size), _or_unknown(status.problems_per_batch)
    return (
        f"{status.run_id:<24} n = {n:<5} B_p = {problems:<5} "
        f"step {status.step:>7,} of {length:>7}{share}  C = {status.rollouts:<11,} {value:<18} {state}"
    )


def status_dict(status: RunStatus) -> dict[str, Any]:
    """One run for programs."""
    return {**vars(status), "folder": str(status.folder), "metrics": dict(status.metrics)}


def _or_unknown(value: int | None) -> str:
    return "?" if value is None else str(value)
