"""What a run folder of OpenRLHF has measured, as a `RunSet` under the names that every backend uses.

Evaluations are described in evaluations.py. What each update measured stands in the evaluation set `train`. C on the
curve (`rollouts`) counts what the surviving weights were trained on, groups that dynamic filtering threw away
included; `rollouts_spent` also counts the steps that were lost when the run was stopped and resumed.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from isocompute_openrlhf.attempts import Attempt, read_history
from isocompute_openrlhf.evaluations import Agreement, evaluations
from isocompute_openrlhf.flag_sets import written_for
from isocompute_openrlhf.flags import VERSION
from isocompute_openrlhf.progress import FILTER_RATE, Progress
from isocompute_openrlhf.request import REQUEST, is_request, read_request
from isocompute_openrlhf.samples import Samples, read_samples
from isocompute_sdk.errors import RecordError
from isocompute_sdk.notes import Note
from isocompute_sdk.records import RunSet

TRAIN_SET = "train"
"""Evaluation set of what each update measured."""
STEP_METRICS = {
    "rollout/reward_mean": "train_reward",
    "policy_loss": "loss",
    "entropy_loss": "entropy",
    "kl": "kl",
    "actor_grad_norm": "gradient_norm",
    "rollout/response_length_mean": "response_length",
    "rollout/truncated_rate": "truncated_share",
    "vllm_kl": "sampler_kl",
    "is_filter_ratio": "importance_capped_share",
    "reward_error": "reward_error_share",
    "timing/step_total": "step_seconds",
    "timing/generation": "generation_seconds",
    "critic_loss": "value_loss",
}
"""OpenRLHF's names of what an update measures, and ours. Its entropy_loss is the mean entropy, with a plus sign."""
CELLS = ("step", "rollouts", "tokens", "gpu_seconds", "rollouts_spent", "eval_set", "metric", "value")


@dataclass
class Rows:
    """A long table under construction."""

    columns: dict[str, list[Any]] = field(default_factory=lambda: {name: [] for name in CELLS})
    left_out: int = 0
    """Values that are not finite."""

    def add(self, place: Mapping[str, float | None], eval_set: str, metrics: Mapping[str, float]) -> None:
        """One row for each metric measured at one place of the curve."""
        finite = {metric: value for metric, value in metrics.items() if math.isfinite(value)}
        self.left_out += len(metrics) - len(finite)
        for metric, value in finite.items():
            for name, cell in zip(CELLS, (*place.values(), eval_set, metric, value), strict=True):
                self.columns[name].append(cell)


def read_folder(folder: str | Path) -> RunSet:
    """Every run at or below a folder that has measured something; its notes say what the logs lack.

    Raises:
        RecordError: there is no run, none has measured anything, or one cannot be read.
    """
    top = Path(folder)
    found = sorted(Path(here) for here, _, names in os.walk(top) if REQUEST in names and is_request(Path(here)))
    if not found:
        raise RecordError(
            f"{top} holds nothing that a run with OpenRLHF wrote, such as {REQUEST}" + old_flags(top),
            "Start the run with its launch.sh; logs of other runs are read with `isocompute ingest`.",
        )
    runs = [measured for one in found if (measured := read_run(one)) is not None]
    if not runs:
        raise RecordError(
            f"{top}: {len(found)} runs, and none of them has measured anything yet",
            "Wait for the first update step; console.1.log in the run's folder says what happens.",
        )
    return runs[0].concat(*runs[1:])


def read_run(folder: Path) -> RunSet | None:
    """One run folder; None where nothing was measured yet.

    Raises:
        RecordError: the folder is of another release, or a file in it cannot be read.
    """
    request = read_request(folder)
    run = request.run
    history, samples = read_history(folder, run.run_id), read_samples(folder)
    progress = Progress(history, samples, run.group_size, run.rollouts_per_batch, request.gpus)
    rows, agreement = Rows(), Agreement()
    for attempt, last in history.surviving():
        for step, metrics in _updates(attempt, last, samples, run.rollouts_per_batch, run.group_size).items():
            rows.add(progress.at(attempt, step), TRAIN_SET, metrics)
        plan = run.evaluation
        found = evaluations(attempt, last, samples, request.problems, plan.every_steps, plan.samples, agreement)
        for step, sets in found.items():
            for name, metrics in sets.items():
                rows.add(progress.at(attempt, step), name, metrics)
    notes = (*history.notes, *progress.notes(), *agreement.notes(), *_sample_notes(samples), *_left_out(rows))
    values = rows.columns["value"]
    if not values:
        return None
    constants: dict[str, Any] = {**run.context(), "n_problems": request.n_problems}
    runs = RunSet.from_columns({"run_id": [run.run_id] * len(values), **rows.columns}, **constants)
    # One folder may hold many runs: a note says of which of them it speaks.
    named = (Note(n.code, n.severity, f"{run.run_id}: {n.message}", {"run": run.run_id, **n.data}) for n in notes)
    return RunSet(runs.to_polars(), named)


def old_flags(folder: Path) -> str:
    """What scripts in a folder without a run say about the release they were written for."""
    for script in sorted(folder.glob("*.sh")):
        version = written_for(script.read_text(encoding="utf-8", errors="replace"))
        if version is not None and version != VERSION:
            return f"; {script.name} calls OpenRLHF with the flags of {version}, this release reads runs of {VERSION}"
    return ""


def _updates(
    attempt: Attempt, last: int, samples: Samples | None, batch: int, group_size: int
) -> dict[int, dict[str, float]]:
    """What each update of an attempt measured, up to step `last`."""
    shares = [] if samples is None else samples.zero_variance_shares(attempt.number, batch)
    found: dict[int, dict[str, float]] = {}
    for step, values in sorted(attempt.logged.train.items()):
        if step > last:
            break
        found[step] = {new: values[old] for old, new in STEP_METRICS.items() if old in values}
        if values.get(FILTER_RATE):
            found[step]["trained_share"] = min(1.0, values[FILTER_RATE] / (100.0 * group_size))
        index = step - attempt.from_step - 1
        if 0 <= index < len(shares):
            found[step]["zero_variance_share"] = shares[index]
    return found


def _sample_notes(samples: Samples | None) -> tuple[Note, ...]:
    """Failures of the reward function, and lines that were lost."""
    if samples is None:
        return ()
    notes: list[Note] = []
    failed, total = int(samples.frame["failed"].sum()), len(samples.frame)
    if failed:
        message = (
            f"the reward function failed for {failed} of {total} samples, which scored 0.0. The field error of "
            "samples.*.jsonl says why."
        )
        notes.append(Note("reward-errors", "warning", message, {"failed": failed, "samples": total}))
    if samples.unreadable:
        message = f"{samples.unreadable} lines of samples.*.jsonl cannot be read, as after a kill, and are left out."
        notes.append(Note("log-damaged", "warning", message, {"lines": samples.unreadable}))
    return tuple(notes)


def _left_out(rows: Rows) -> tuple[Note, ...]:
    if not rows.left_out:
        return ()
    message = f"{rows.left_out} logged values are not finite numbers (nan or inf) and are left out."
    return (Note("log-values-not-finite", "warning", message, {"values": rows.left_out}),)
