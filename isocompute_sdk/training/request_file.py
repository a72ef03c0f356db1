"""`Request`: content of request.json, from which the programs in a run folder work; and the interval of checkpoints."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from isocompute_sdk.specs import RunSpec

REQUEST = "request.json"
REMEDY = "Run launch.sh again in the same place; it rewrites the file."
CHECKPOINTS_PER_RUN = 20


@dataclass(frozen=True, kw_only=True)
class Request:
    """What a launch script asks for. A backend adds the fields of its own programs in a subclass."""

    framework: str
    """Package that must be installed, as its own documentation spells it."""
    version: str
    """Its version."""
    run: RunSpec
    identity: dict[str, Any]
    """Everything that a later start in the same folder must have in common with the first."""


def identity(run: RunSpec, **own: Any) -> dict[str, Any]:
    """`Request.identity`: the run without options, folder and hardware, which may change on a resume.

    Args:
        run: the run.
        **own: what else the backend cannot change on a resume, such as the number of GPUs.
    """
    return {**run.model_dump(mode="json", exclude={"options", "output_dir", "hardware"}), **own}


def checkpoint_interval(run: RunSpec, save_every_steps: int | None) -> int:
    """Update steps between checkpoints: the option, else a multiple of the evaluation interval, about 20 per run."""
    if save_every_steps is not None:
        return save_every_steps
    every = run.evaluation.every_steps
    return min(every * max(1, -(-run.update_steps // (CHECKPOINTS_PER_RUN * every))), run.update_steps)
