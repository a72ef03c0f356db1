"""A simulated run from its specification to a `RunSet`."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

from isocompute_sdk.records import RunSet
from isocompute_sdk.specs import Evaluation, RunSpec
from isocompute_sdk.training import registry
from isocompute_simulator import SimulatorBackend
from isocompute_simulator.backend import METRICS_FILE
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
