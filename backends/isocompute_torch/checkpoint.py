"""Checkpoints: everything a run needs to resume bit for bit. A kill leaves the old checkpoint or the new one.

RUN_FOLDER/checkpoints/step-000040/state.pt holds weights, optimisers and counters; a finished run drops it unless it
keeps its state. best/ holds the policy with the best validation reward so far. No generator state is saved: every draw
is seeded by the run's seed and the step.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from isocompute_sdk.interrupts import interrupts_later
from isocompute_sdk.training.payload.run_files import better, record_best
from isocompute_torch.configuration import CHECKPOINTS, Counters, InputError
from isocompute_torch.learner import Learner
from isocompute_torch.policy import Policy, load_model

BEST_FOLDER = "best"
STATE = "state.pt"
SCHEMA_VERSION = 1


def latest_step(run_folder: Path) -> int | None:
    """Update step of the newest checkpoint; None without a checkpoint."""
    steps = [int(path.parent.name.rpartition("-")[2]) for path in (run_folder / CHECKPOINTS).glob(f"step-*/{STATE}")]
    return max(steps, default=None)


@interrupts_later()  # torch.save turns an interrupt inside its writes into a RuntimeError, or ends the process.
def save(run_folder: Path, learner: Learner, counters: Counters) -> None:
    """Write a checkpoint and remove the older ones.

    Raises:
        OSError: the disk is full; the older checkpoint is kept.
    """
    state: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "counters": vars(counters),
        "policy": learner.policy.model.state_dict(),
        "optimiser": learner.optimiser.state(),
    }
    if learner.value_model is not None and learner.value_optimiser is not None:
        state["value_model"] = learner.value_model.state_dict()
        state["value_optimiser"] = learner.value_optimiser.state()

    def write(folder: Path) -> None:
        folder.mkdir(parents=True)
        with (folder / STATE).open("wb") as file:
            torch.save(state, file)
            file.flush()
            os.fsync(file.fileno())

    final = run_folder / CHECKPOINTS / f"step-{counters.step:06d}"
    _replace(final, write)
    _remove_others(final)


@interrupts_later()
def keep_best(run_folder: Path, learner: Learner, step: int, metric: str, reward: float) -> None:
    """Save the policy in Hugging Face's form if its reward is the best so far, and name it in best.json.

    Raises:
        OSError: the disk is full; the earlier best is kept.
    """
    if step == 0 or not better(run_folder, reward):
        return
    folder = run_folder / BEST_FOLDER / f"step-{step:06d}"
    save_model(learner.policy, folder)
    record_best(run_folder, step, metric, reward, folder)
    _remove_others(folder)


def save_model(policy: Policy, folder: Path) -> None:
    """Write the policy and its tokenizer in Hugging Face's form, in one step."""
    _replace(folder, policy.save)


def _replace(folder: Path, write: Callable[[Path], None]) -> None:
    """Write a folder beside its place and rename it."""
    temporary = folder.with_name(f".{folder.name}.new")
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        write(temporary)
        shutil.rmtree(folder, ignore_errors=True)
        temporary.rename(folder)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def _remove_others(folder: Path) -> None:
    for other in folder.parent.glob("*step-*"):
        if other != folder:
            shutil.rmtree(other, ignore_errors=True)


def load_best(policy: Policy, folder: Path) -> None:
    """Copy the weights of a checkpoint in Hugging Face's form into the policy."""
    policy.model.load_state_dict(load_model(str(folder), torch.device("cpu"), policy.dtype).state_dict())


def saved_dtype(run_folder: Path, step: int) -> torch.dtype:
    """Number format of the policy in a checkpoint.

    Raises:
        InputError: the checkpoint cannot be read.
    """
    with _usable(_path(run_folder, step)) as path:
        weights = torch.load(path, map_location="cpu", mmap=True, weights_only=True)["policy"]
        return next(weight.dtype for weight in weights.values() if weight.is_floating_point())


def load(run_folder: Path, step: int, learner: Learner, counters: Counters) -> None:
    """Load a checkpoint into the learner and the counters.

    Raises:
        InputError: the checkpoint cannot be read, or belongs to another model.
    """
    with _usable(_path(run_folder, step)) as path:
        state = torch.load(path, map_location=learner.policy.device, weights_only=True)
        if state["schema_version"] != SCHEMA_VERSION:
            raise ValueError(f"schema_version {state['schema_version']}; this release reads {SCHEMA_VERSION}")
        learner.policy.model.load_state_dict(state["policy"])
        learner.optimiser.load_state(state["optimiser"])
        if learner.value_model is not None and learner.value_optimiser is not None:
            learner.value_model.load_state_dict(state["value_model"])
            learner.value_optimiser.load_state(state["value_optimiser"])
        vars(counters).update(state["counters"])


def _path(run_folder: Path, step: int) -> Path:
    return run_folder / CHECKPOINTS / f"step-{step:06d}" / STATE


@contextmanager
def _usable(path: Path) -> Generator[Path]:
    try:
        yield path
    except (OSError, RuntimeError, ValueError, KeyError, EOFError) as error:
        raise InputError(
            f"the checkpoint {path} is unusable: {str(error).splitlines()[0] if str(error) else error!r}",
            f"Remove {path.parent} to start from the base model.",
        ) from error
