"""Simulate one prepared run: `python -m isocompute_simulator.train FOLDER`.

FOLDER holds simulation.json, as the launch script writes it. The journal metrics.jsonl is written there in one step,
in the format of the built-in runner; the same run gives the same numbers. Exit status: 0 done, 2 input that cannot
be used.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from isocompute_sdk.errors import IsoComputeError
from isocompute_sdk.files import write_text
from isocompute_sdk.run_folders.run_journal import record
from isocompute_sdk.run_folders.store import METRICS_FILE
from isocompute_simulator.configuration import Configuration, load_configuration
from isocompute_simulator.families import PROCESSES, draw_process, draw_truth, typical_design
from isocompute_simulator.observation import Clock, Noise, draw_noise, measured_curve
from isocompute_simulator.truth import Task

N_EVALUATED = 300


def simulate(configuration: Configuration) -> Iterator[tuple[int, dict[str, float]]]:
    """(update step, metrics) of every evaluation of a run."""
    run = configuration.run
    truth, noise = curve_task(configuration)
    steps = np.array(configuration.evaluated_steps())
    values = measured_curve(
        truth, noise, steps * float(run.rollouts_per_batch), run.group_size, run.problems_per_batch, _rng(configuration)
    )
    name = f"avg@{run.evaluation.samples}"
    for step, value in zip(steps.tolist(), values.tolist(), strict=True):
        if not np.isnan(value):
            yield step, {name: value}


def curve_task(configuration: Configuration) -> tuple[Task, Noise]:
    """The task of a run on a reward curve: the same for all runs that name the same task, seed and scale."""
    options = configuration.options
    rng = np.random.default_rng([options.task_seed, options.scale])
    draw = draw_process if options.task in PROCESSES else draw_truth
    truth, noise = draw(options.task, typical_design(options.scale), rng), draw_noise(rng)
    if configuration.run.data.n_problems is not None:
        truth = replace(truth, n_problems=configuration.run.data.n_problems)
    if options.noise is not None:
        noise = replace(noise, evaluation_sd=float(options.noise))
    return truth, noise if options.faults else replace(noise, missing_rate=0.0, collapse_rate=0.0, decay_rate=0.0)


def _rng(configuration: Configuration) -> np.random.Generator:
    """Randomness of one run: another seed, size or task is another run, its length is not."""
    run, options = configuration.run, configuration.options
    key = (run.seed, run.group_size, run.problems_per_batch, options.task, options.task_seed, options.scale)
    return np.random.default_rng(int.from_bytes(hashlib.sha256(repr(key).encode()).digest()[:8], "big"))


DONE, REFUSED = 0, 2
_FIRST_TOKENS, _GROWTH, _GROWTH_SCALE = 600.0, 0.25, 1e5
"""Tokens of a rollout at first, and their relative growth for each e-fold of compute beyond a scale in rollouts."""


def main(argv: list[str]) -> int:
    """Simulate the run in the folder named on the command line; returns the exit status."""
    if len(argv) != 1:
        sys.stderr.write("usage: python -m isocompute_simulator.train FOLDER\n")
        return REFUSED
    try:
        configuration = load_configuration(argv[0])
        write_text(configuration.folder / METRICS_FILE, _journal(configuration))
    except (IsoComputeError, OSError) as error:
        sys.stderr.write(f"isocompute_simulator.train: {error}\n")
        return REFUSED
    sys.stdout.write(f"{configuration.run.run_id}: simulated {configuration.run.update_steps} updates\n")
    return DONE


def tokens_sampled(rollouts: float) -> int:
    """Tokens in the first C rollouts: responses grow along training."""
    reach = rollouts / _GROWTH_SCALE
    # Integral of the tokens of a rollout, 1 + growth ln(1 + C / scale).
    growth = (1 + reach) * np.log1p(reach) - reach
    return round(_FIRST_TOKENS * (rollouts + _GROWTH * _GROWTH_SCALE * growth))


class _Timer:
    """Made-up times of one run, by the law of clock.py for one GPU."""

    def __init__(self, configuration: Configuration) -> None:
        run = configuration.run
        self._batch, self._clock = run.rollouts_per_batch, Clock(gpus=max(run.hardware.gpu_counts))
        self._problems, self._samples = run.evaluation.n_problems or N_EVALUATED, run.evaluation.samples
        self._rng = np.random.default_rng([run.seed, run.group_size, run.problems_per_batch])

    def step(self, step: int) -> dict[str, Any]:
        at = (step - 0.5) * self._batch
        noise = float(np.exp(self._rng.normal(0.0, self._clock.step_noise)))
        total, overhead = self._clock.step_seconds(self._batch, at) * noise, self._clock.overhead * noise
        length = self._clock.tokens * self._clock.length(at)
        # A quarter of what a rollout costs is training.
        training = overhead + 0.25 * self._batch / self._clock.rate * self._clock.length(at) * noise
        seconds = {"sampling": total - training, "training": training}
        return {"metrics": {"response_length": length}, "seconds": seconds}

    def evaluation(self, step: int) -> dict[str, Any]:
        samples = self._problems * self._samples
        seconds = {"evaluation": self._clock.evaluation_seconds(samples, step * self._batch)}
        return {"sample_counts": [self._samples] * self._problems, "seconds": seconds}


def _journal(configuration: Configuration) -> str:
    run = configuration.run
    lines: list[str] = []

    def append(kind: str, step: int, fields: Mapping[str, Any]) -> None:
        rollouts = step * run.rollouts_per_batch
        amounts = {"step": step, "rollouts": rollouts, "tokens": tokens_sampled(rollouts)}
        lines.append(json.dumps(record(run.run_id, kind, **amounts, **fields), allow_nan=False) + "\n")

    opening = {"update_steps": run.update_steps, "simulation": True, "versions": {"numpy": np.__version__}}
    append("run", 0, {**configuration.context(), **opening})
    timer = _Timer(configuration) if configuration.options.clock else None
    done, before = 0, configuration.measured
    for step, metrics in simulate(configuration):
        if timer is not None:
            for between in range(done + 1, step + 1):
                append("step", between, timer.step(between))
            done = step
        times = {} if timer is None else timer.evaluation(step)
        append("evaluation", step, {"eval_set": "validation", "metrics": before.get(step, metrics), **times})
    append("end", run.update_steps, {"status": "finished", "message": f"simulated {run.update_steps} updates"})
    return "".join(lines)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
