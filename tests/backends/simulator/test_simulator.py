"""Simulated sweeps: their truth, their noise, and the backend."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isocompute_sdk.records import RunSet
from isocompute_sdk.run_folders.store import METRICS_FILE
from isocompute_sdk.specs import Evaluation, RunSpec
from isocompute_sdk.training import registry
from isocompute_simulator import SimulatorBackend
from isocompute_simulator.families import FAMILIES
from isocompute_simulator.observation import Noise, evaluation_noise
from isocompute_simulator.scenario import Scenario, draw_scenario
from isocompute_simulator.train import main
from tests.backends.framework_runs import run_maker

run_spec = run_maker(
    preset="easy",
    run_id="sim",
    update_steps=200,
    evaluation=Evaluation(every_steps=20),
    backend="simulator",
)


def simulate(run: RunSpec, folder: Path) -> RunSet:
    """Without a shell: what the script writes, then the module that it starts."""
    folder.mkdir(parents=True)
    text = SimulatorBackend().script(run)
    document = text.split("<<'END_OF_RUN'\n")[1].split("\nEND_OF_RUN")[0]
    (folder / "simulation.json").write_text(document)
    assert main([str(folder)]) == 0
    return RunSet.read(folder / METRICS_FILE)


def test_a_script_under_another_python_says_what_it_needs_and_writes_nothing(tmp_path: Path) -> None:
    launch, bare = registry.load("simulator").prepare(run_spec(), tmp_path / "prepared"), tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S "$@"\n')
    bare.chmod(0o755)
    work = tmp_path / "work"
    work.mkdir()
    done = subprocess.run(
        launch.argv, check=False, cwd=work, env={**os.environ, "PYTHON": str(bare)}, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert "isocompute" in done.stderr
    assert "Traceback" not in done.stderr
    assert list(work.iterdir()) == []


def test_the_launched_script_leaves_a_journal_that_reads_back(tmp_path: Path) -> None:
    backend = registry.load("simulator")
    launch = backend.prepare(run_spec(), tmp_path / "prepared")
    work = tmp_path / "work"
    work.mkdir()
    subprocess.run(launch.argv, cwd=work, env={**os.environ, **launch.env}, check=True, capture_output=True)
    runs = RunSet.read(work / "runs" / "sim" / METRICS_FILE)
    (series,) = runs.series("avg@4")
    assert series.step_T.tolist() == list(range(0, 201, 20))
    assert series.rollouts_T[-1] == 200 * 16 * 32
    assert series.tokens_T is not None
    assert series.context["model"] == "simulation/easy-0"
    records = [json.loads(line) for line in (work / "runs" / "sim" / METRICS_FILE).read_text().splitlines()]
    assert records[0]["simulation"] is True
    assert records[-1]["status"] == "finished"
    (watch,) = registry.watches([work / "runs" / "sim"])
    assert watch.status().update_steps == 200


def test_runs_of_a_sweep_share_one_task(tmp_path: Path) -> None:
    quiet = {"noise": 1e-6, "task": "easy", "task_seed": 3}
    long, same, longer, other = (
        simulate(run_spec(options={**quiet, **extra}, update_steps=steps), tmp_path / str(i)).series("avg@4")[0].value_T
        for i, (extra, steps) in enumerate([({}, 200), ({}, 200), ({}, 400), ({"task_seed": 4}, 200)])
    )
    assert np.array_equal(long, same)
    assert np.allclose(longer[: len(long)], long, atol=1e-5)
    assert not np.allclose(long, other, atol=1e-3)


def test_every_place_a_user_looks_says_simulation() -> None:
    backend = SimulatorBackend()
    run = run_spec()
    assert "simulation" in backend.describe().summary
    assert backend.preflight(run)[0].code == "simulation"
    assert "SIMULATION" in backend.script(run).splitlines()[1]


def test_a_folder_without_a_run_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path)]) == 2
    assert "simulation.json" in capsys.readouterr().err
    assert main([]) == 2


def drawn_scenario(seed: int, family: str) -> Scenario:
    return draw_scenario(np.random.default_rng(seed), family)


scenarios = st.builds(
    drawn_scenario,
    st.integers(0, 10_000),
    st.sampled_from(FAMILIES),
)


@settings(max_examples=12)
@given(scenarios)
def test_true_reward_never_falls_with_compute_and_stays_in_bounds(scenario: Scenario) -> None:
    rollouts_T = np.r_[0.0, np.geomspace(1.0, 1e10, 300)]
    sizes = np.array([scenario.levels[0], scenario.levels[-1], 2 * scenario.levels[-1]])
    reward_NT = scenario.true_reward(rollouts_T[None, :], sizes[:, None])
    assert np.all(np.diff(reward_NT, axis=1) >= -1e-12)
    assert reward_NT.min() >= scenario.truth.base_reward - 1e-12
    assert reward_NT.max() < 1
    assert np.all(reward_NT[:, 0] == scenario.truth.base_reward)


@settings(max_examples=10)
@given(scenarios)
def test_the_best_n_is_allowed_and_nothing_allowed_beats_it(scenario: Scenario) -> None:
    low, high = scenario.levels[0], scenario.levels[-1]
    for ratio in (1, 3, 10):
        target = ratio * scenario.largest_rollouts
        n, reward = scenario.best(target, low, high)
        assert low <= n <= 2 * high
        assert target / (n * scenario.problems_per_batch[0]) >= 5
        assert reward == scenario.true_reward(target, n)
        tried = np.array([n for n in scenario.levels if target / (n * scenario.problems_per_batch[0]) >= 5])
        assert np.all(scenario.true_reward(target, tried) <= reward + 1e-12)
        assert 0 < reward - scenario.truth.base_reward <= scenario.reward_range + 1e-12


def test_overfitting_makes_the_mean_curve_fall_and_fewer_problems_make_it_fall_earlier() -> None:
    scenario = draw_scenario(np.random.default_rng(4), "overfitting")
    assert scenario.truth.n_problems is not None
    few, some, many = (replace(scenario.truth, n_problems=d) for d in (200, 2000, 20000))
    rollouts_T = np.geomspace(1e3, 1e12, 2000)
    peak = [float(rollouts_T[np.argmax(truth.mean(rollouts_T, 32))]) for truth in (few, some, many)]
    assert peak[0] < peak[1] < peak[2] < rollouts_T[-1]
    assert float(few.best(1e12, 32)) < float(many.best(1e12, 32))


def test_evaluation_noise_has_the_stated_spread_and_correlation() -> None:
    noise = Noise(0.02, 0.6, 0.05, 0.1, 0.0)
    drawn = evaluation_noise(noise, 40_000, np.random.default_rng(0))
    assert drawn.std() == pytest.approx(0.02, rel=0.05)
    assert np.corrcoef(drawn[:-1], drawn[1:])[0, 1] == pytest.approx(0.6, abs=0.03)
