"""`Configuration`: one run, as its folder's `run.json` describes it. Imports no torch.

`run.json` is the run's `RunSpec` with "kind": "torch-run" and "schema_version": 1; its field `options` holds the
options of this backend. Data paths are relative to the current folder of the process.
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from isocompute_sdk.errors import IsoComputeError
from isocompute_sdk.run_folders.store import RUNNER_SPEC
from isocompute_sdk.specs import RunSpec
from isocompute_torch.failures import InputError
from isocompute_torch.options import TorchOptions

RUN_FILE = "run.json"
METRICS_FILE = "metrics.jsonl"
VALIDATION = "validation"
"""Evaluation set of the validation problems."""

CHECKPOINTS_PER_RUN = 20
"""Checkpoints of a run without `save_every_steps`."""
OPTIONS_OF_SPEED = frozenset(
    {
        "threads",
        "max_tokens_per_micro_batch",
        "gradient_checkpointing",
        "sampling_batch",
        "merge_duplicates",
        "save_every_steps",
        "keep_state",
        "reward_timeout_seconds",
        "reward_processes",
        "vllm_memory_share",
        "vllm_cache_gib",
    }
)
"""Options that may change between two starts of one run: they change its results by rounding only."""


@dataclass(frozen=True)
class Configuration:
    """One run with its options and its folder."""

    run: RunSpec
    """What to train."""
    options: TorchOptions
    """Options of this backend."""
    folder: Path
    """Run folder: journal, checkpoints and the trained model."""

    @property
    def metrics_path(self) -> Path:
        """Path of the journal."""
        return self.folder / METRICS_FILE

    @property
    def save_every_steps(self) -> int:
        """Update steps between two checkpoints."""
        return self.options.save_every_steps or max(1, math.ceil(self.run.update_steps / CHECKPOINTS_PER_RUN))

    @property
    def evaluation_steps(self) -> frozenset[int]:
        """Update steps after which the run is evaluated: 0, the last one, and the scheduled ones between."""
        last = self.run.update_steps
        per_decade = self.options.evaluations_per_decade
        if per_decade is None:
            return self.run.evaluation.steps(last)
        count = math.floor(per_decade * math.log10(last)) + 1
        scheduled = {round(10 ** (i / per_decade)) for i in range(count)}
        return frozenset({0, last} | {step for step in scheduled if step <= last})

    def identity(self) -> str:
        """Digest of everything that decides the results; it must be equal in all starts in one folder.

        The length is no part of it, nor are the places of evaluations: no step depends on what follows, so a run can be
        made longer.
        """
        left_out: dict[str, Any] = dict.fromkeys(("options", "output_dir", "hardware", "update_steps"), True)
        left_out["evaluation"] = {"every_steps", "count"}
        fixed = {k: v for k, v in self.options.model_dump(mode="json").items() if k not in OPTIONS_OF_SPEED}
        if fixed["sampler"] == "auto":
            # Both samplers draw from one distribution.
            fixed["sampler"] = "torch"
        named = self.run.model_dump(mode="json", exclude=left_out)
        return hashlib.sha256(json.dumps([named, fixed], sort_keys=True).encode()).hexdigest()


def load_configuration(folder: str | Path) -> Configuration:
    """Read and check `run.json` of a run folder.

    Raises:
        InputError: the file is missing or malformed, or asks for something that this runner does not support.
    """
    folder = Path(folder)
    try:
        run = RUNNER_SPEC.load(folder / RUN_FILE)
    except IsoComputeError as error:
        raise InputError(error.message, error.hint) from error
    try:
        options = TorchOptions.model_validate(run.options)
        options.evaluation_files()
        options.stop_texts()
    except IsoComputeError as error:
        raise InputError(f"{folder / RUN_FILE}: {error.message}", error.hint) from error
    _check_supported(run, options)
    return Configuration(run, options, folder)


def _check_supported(run: RunSpec, options: TorchOptions) -> None:
    if run.recipe.updates_per_batch != 1:
        raise InputError(
            f"recipe.updates_per_batch: received {run.recipe.updates_per_batch}; accepted: 1 (one optimiser step per "
            "rollout batch)",
            "Set updates_per_batch to 1; the allocation laws were measured with 1.",
        )
    if options.n_train is not None and options.n_train > run.group_size:
        raise InputError(
            f"options.n_train: received {options.n_train}; accepted: 1 to group_size = {run.group_size}",
            "Lower n_train, or remove it to train on all rollouts of a group.",
        )
    if options.n_train is not None and run.recipe.algorithm == "ppo":
        raise InputError(
            f"options.n_train: received {options.n_train} with algorithm ppo; accepted: grpo or cispo",
            "PPO has no group baseline to decouple. Remove n_train.",
        )


def derive_seed(seed: int, purpose: str, step: int = 0) -> int:
    """A 63-bit seed for one purpose in one step, so that resuming needs no saved generator state."""
    digest = hashlib.sha256(f"{seed}:{purpose}:{step}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1
