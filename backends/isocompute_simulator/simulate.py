"""From a prepared run to its evaluations: on a reward curve, or by training softmax policies."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from isocompute_sdk.metrics import avg_at_k, best_at_k, worst_at_k
from isocompute_simulator.configuration import Configuration
from isocompute_simulator.design import typical_design
from isocompute_simulator.observation.noise import Noise, draw_noise, measured_curve
from isocompute_simulator.truths.bandit import Bandit, draw_bandit, train_bandit
from isocompute_simulator.truths.processes import PROCESSES, draw_process
from isocompute_simulator.truths.scenario_families import draw_truth
from isocompute_simulator.truths.truth import Task

BANDITS = {"bandit": 0.0, "interference": None}
"""Tasks that are trained, with the share of features their problems have in common; None for the option's."""
N_PROBLEMS, N_EVALUATED = 512, 300


def simulate(configuration: Configuration) -> Iterator[tuple[int, dict[str, float]]]:
    """(update step, metrics) of every evaluation of a run."""
    if configuration.options.task in BANDITS:
        yield from _trained(configuration)
    else:
        yield from _on_a_curve(configuration)


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


def bandit_task(configuration: Configuration) -> Bandit:
    """The policies of a run, as far from trained as the base model."""
    options, wanted = configuration.options, configuration.run.data.n_problems
    share = BANDITS[options.task]
    return draw_bandit(
        np.random.default_rng(options.task_seed),
        problems=N_PROBLEMS if wanted is None else wanted,
        sharing=options.sharing if share is None else share,
    )


def _on_a_curve(configuration: Configuration) -> Iterator[tuple[int, dict[str, float]]]:
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


def _trained(configuration: Configuration) -> Iterator[tuple[int, dict[str, float]]]:
    run = configuration.run
    rng = _rng(configuration)
    rate = float(configuration.options.step_size) * run.learning_rate / run.recipe.learning_rate_anchor
    bandit = bandit_task(configuration)
    wanted = configuration.evaluated_steps()
    passes = train_bandit(
        bandit,
        run.group_size,
        run.problems_per_batch,
        run.update_steps,
        rng,
        learning_rate=rate,
        normalise=run.recipe.normalize_advantage,
        record_at=wanted,
    )
    k = run.evaluation.samples
    asked = run.evaluation.n_problems or N_EVALUATED
    for step, pass_P in zip(wanted, passes, strict=True):
        right = rng.binomial(k, pass_P[:asked])
        scores_PN = (np.arange(k)[None, :] < right[:, None]).astype(float)
        measures = {"avg": avg_at_k, "best": best_at_k, "worst": worst_at_k}
        yield step, {f"{name}@{k}": float(measure(scores_PN, k)) for name, measure in measures.items()}


def _rng(configuration: Configuration) -> np.random.Generator:
    """Randomness of one run: another seed, size or task is another run, its length is not."""
    run, options = configuration.run, configuration.options
    key = (run.seed, run.group_size, run.problems_per_batch, options.task, options.task_seed, options.scale)
    return np.random.default_rng(int.from_bytes(hashlib.sha256(repr(key).encode()).digest()[:8], "big"))
