"""Plans in time against rollout-optimal plans on simulated campaigns with a known law of seconds per step.

Each campaign draws a task (a family of reward curves), a pilot sweep over n and B_p on it, and a cluster: overhead,
latency floor, rate, scaling over GPUs, growing responses, noise. The throughput is measured from ten noisy steps at
three batches and from the pilot's own logs. Then the same GPU-hours are spent twice:

    in time      allocate(Budget(gpu_hours, deadline_hours)) over n, B_p and the GPUs on offer
    in rollouts  the hours converted at the pilot's mean speed, allocate(Budget(rollouts)), and its n and B_p trained
                 until the GPU-hours (or the deadline) end, on the number of GPUs that fits most steps in

and the noise-free reward of both is looked up, with the hours that the cluster's law really takes. Rewards are shares
of what can be gained. A simulation: it compares two ways to plan and promises nothing about a training run.

    python benchmarks/time_planning.py --campaigns 60
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace

import numpy as np
from timed_logs import run_hours, timed_logs

import isocompute_sdk as iso
from isocompute_sdk.planning.pricing import evaluations
from isocompute_sdk.specs import Evaluation
from isocompute_simulator.families import FAMILIES
from isocompute_simulator.observation import Clock
from isocompute_simulator.scenario import Scenario, draw_scenario

GPUS = (8, 16, 32)
SAMPLES = 1200
DISTANCES = (1.0, 3.0)
"""GPU-hours of the plan, as a multiple of what the pilot's longest run takes."""


@dataclass(frozen=True)
class Outcome:
    """One way to plan, carried out."""

    group_size: int
    problems_per_batch: int
    gpus: int
    rollouts: int
    reward: float
    """True reward, as a share of what can be gained."""
    wall_hours: float
    """By the cluster's law."""
    gpu_hours: float
    lateness: float
    """Wall-clock hours over the deadline, less 1; -inf without a deadline."""
    overspent: float = 0.0
    """GPU-hours over the budget, less 1."""


def draw_clock(rng: np.random.Generator) -> Clock:
    """A cluster: half of the time of a mid-sized step may be overhead and floor, or nearly none."""
    rate = float(np.exp(rng.uniform(np.log(15), np.log(150))))
    fixed = 2048 / rate * float(np.exp(rng.uniform(np.log(0.1), np.log(2.0))))
    share = rng.uniform(0.2, 0.8)
    return Clock(
        overhead=fixed * share,
        floor=fixed * (1 - share),
        rate=rate,
        gpus=GPUS[0],
        exponent=rng.uniform(0.6, 1.0),
        growth=rng.uniform(0.0, 0.3),
        scale=float(np.exp(rng.uniform(np.log(3e4), np.log(3e6)))),
        evaluation_rate=2.5 * rate,
        startup=rng.uniform(30, 600),
        step_noise=0.1,
        run_noise=0.02,
    )


def measured(clock: Clock, scenario: Scenario, rng: np.random.Generator) -> iso.Throughput:
    """From the pilot's logs (some steps of each run), a probe of ten steps at three batches, and one on more GPUs."""
    runs = scenario.design.runs[:12]
    logged = [r for r in runs if r.update_steps >= 3]
    pilot = [
        timed_logs(
            clock,
            [(r.group_size, r.problems_per_batch)],
            sorted({round(s) for s in np.linspace(1, r.update_steps, 30)}),
            rng,
            samples=SAMPLES,
            prefix=f"pilot-{i}",
        )
        for i, r in enumerate(logged)
    ]
    batches = [(8, 32), (32, 64), (128, 128)]
    probe = timed_logs(clock, batches, 10, rng, samples=SAMPLES, prefix="probe")
    wide = timed_logs(clock, batches[1:], 10, rng, gpus=GPUS[-1], samples=SAMPLES, prefix="wide")
    everything = probe.concat(wide, *pilot)
    counts = {run: GPUS[-1] if run.startswith("wide") else GPUS[0] for run in everything.run_ids}
    return iso.Throughput.measure(everything, gpus=counts)


def carry_out(
    scenario: Scenario, clock: Clock, n: int, bp: int, steps: int, gpus: int, every: int, deadline: float | None
) -> Outcome:
    """What a configuration really reaches and takes."""
    at = [min(i * every, steps) for i in range(evaluations(steps, every))]
    hours = run_hours(clock, n * bp, steps, gpus, at, SAMPLES)
    rollouts = n * bp * steps
    gained = float(scenario.true_reward(rollouts, n, bp)) - scenario.truth.base_reward
    late = -np.inf if deadline is None else hours / deadline - 1
    return Outcome(n, bp, gpus, rollouts, gained / scenario.reward_range, hours, gpus * hours, late)


def run_for(
    scenario: Scenario, clock: Clock, n: int, bp: int, gpu_hours: float, deadline: float | None
) -> Outcome | None:
    """A configuration trained until the GPU-hours or the deadline end, on the GPUs that fit most steps in."""
    found: list[Outcome] = []
    for gpus in GPUS:
        hours = gpu_hours / gpus if deadline is None else min(gpu_hours / gpus, deadline)
        low, high = 0, 1

        def fits(steps: int, gpus: int = gpus, hours: float = hours) -> bool:
            thin = _thin(steps)
            at = [min(i * thin, steps) for i in range(evaluations(steps, thin))]
            return run_hours(clock, n * bp, steps, gpus, at, SAMPLES) <= hours

        while high < 200_000 and fits(high):
            low, high = high, 2 * high
        while high - low > max(1, low // 200):
            middle = (low + high) // 2
            low, high = (middle, high) if fits(middle) else (low, middle)
        if low >= 1:
            found.append(carry_out(scenario, clock, n, bp, low, gpus, _thin(low), deadline))
    return max(found, key=lambda o: o.reward, default=None)


def _thin(steps: int) -> int:
    """Update steps between evaluations of a run that nobody planned them for: ten, and no more than 50 evaluations."""
    return max(10, int(np.ceil(steps / 50)))


def campaign(seed: int, family: str) -> list[tuple[float, bool, Outcome, Outcome]]:
    """(distance, with a deadline, in time, in rollouts) of one campaign."""
    rng = np.random.default_rng(seed)
    scenario = draw_scenario(rng, family)
    clock = draw_clock(rng)
    fits = iso.fit(scenario.runs, draws=60)
    throughput = measured(clock, scenario, rng)
    longest = max(scenario.design.runs, key=lambda r: r.group_size * r.problems_per_batch * r.update_steps)
    batch, steps = longest.group_size * longest.problems_per_batch, longest.update_steps
    pilot_hours = run_hours(clock, batch, steps)
    speed = batch * steps / (GPUS[0] * pilot_hours)
    recipe = iso.Recipe.preset("easy", min_problems_per_batch=min(scenario.problems_per_batch), warmup_steps=5)
    hardware = iso.Hardware(gpus=GPUS, divisible_by=1)
    planner = iso.Planner(
        fits, hardware, recipe, throughput, evaluation=Evaluation(n_problems=300, samples=4, every_steps=10)
    )
    found: list[tuple[float, bool, Outcome, Outcome]] = []
    for distance in DISTANCES:
        gpu_hours = distance * GPUS[0] * pilot_hours
        for deadline in (None, 0.5 * gpu_hours / GPUS[0]):
            budget = iso.Budget(gpu_hours=gpu_hours, deadline_hours=deadline)
            try:
                plan = planner.allocate(budget, spend="all")
                naive = iso.Planner(fits, recipe=recipe).allocate(gpu_hours * speed, spend="all")
            except iso.PlanError:
                continue
            timed = carry_out(
                scenario,
                clock,
                plan.group_size,
                plan.problems_per_batch,
                plan.update_steps,
                plan.gpus,
                plan.evaluation.every_steps,
                deadline,
            )
            other = run_for(scenario, clock, naive.group_size, naive.problems_per_batch, timed.gpu_hours, deadline)
            if other is not None:
                timed = replace(timed, overspent=timed.gpu_hours / gpu_hours - 1)
                found.append((distance, deadline is not None, timed, other))
    return found


def report(rows: list[tuple[str, float, bool, Outcome, Outcome]]) -> None:
    """The table."""
    print(
        "| campaigns | budget | deadline | in time | in rollouts | gained | better / worse by .01 "
        "| most past the deadline | most over the budget |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for family in ("all", *dict.fromkeys(row[0] for row in rows)):
        for distance in DISTANCES:
            for limited in (False, True):
                some = [r for r in rows if family in ("all", r[0]) and r[1] == distance and r[2] == limited]
                if not some:
                    continue
                timed, other = np.array([r[3].reward for r in some]), np.array([r[4].reward for r in some])
                gain = timed - other
                error = gain.std() / np.sqrt(len(gain))
                late = f"{max(r[3].lateness for r in some):+.1%}" if limited else "-"
                over = max(r[3].overspent for r in some)
                print(
                    f"| {family}, {len(some)} | {distance:g}x | {'half the time' if limited else 'none'} | "
                    f"{timed.mean():.3f} | {other.mean():.3f} | {gain.mean():+.3f} ± {error:.3f} | "
                    f"{np.mean(gain > 0.01):.0%} / {np.mean(gain < -0.01):.0%} | {late} | {over:+.1%} |"
                )


def main() -> None:
    """Run the campaigns and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--campaigns", type=int, default=60)
    parser.add_argument("--seed", type=int, default=80001)
    arguments = parser.parse_args()
    rows: list[tuple[str, float, bool, Outcome, Outcome]] = []
    for i in range(arguments.campaigns):
        family = FAMILIES[i % len(FAMILIES)]
        rows += [(family, *row) for row in campaign(arguments.seed + i, family)]
    report(rows)


if __name__ == "__main__":
    main()
