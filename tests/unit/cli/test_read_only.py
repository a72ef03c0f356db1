"""Commands that look change nothing: no byte, no mode and no time of what they read, and no file where they run."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from isocompute_sdk import Recipe, RunSet, Sweep
from isocompute_sdk.campaigns.campaign import Campaign
from isocompute_sdk.campaigns.executors import LocalExecutor
from isocompute_sdk.cli.app import PANELS
from isocompute_sdk.specs import Data, Study
from tests.parameters import few

Command = Callable[..., "subprocess.CompletedProcess[str]"]
RUNS = "{study}/runs/loop"
FIT = "--eval-set validation --pool learning_rate"
LINES = (
    "quickstart --help",
    "plan --budget 3M",
    "plan --fits {study}/fits.json --budget 60k --compare n=8,bp=8",
    "plan --fits {study}/fits.json --for-reward 0.4",
    f"allocate {RUNS} {FIT} --budget 60k",
    "allocate {study}/fits.json --budget 60k --marginal",
    "allocate {study}/fits.json --budget 60k --compare n=8,bp=8 --reference n=4,bp=8 --equal steps",
    "next {study}/fits.json --budget 60k",
    "next {study}/study.yaml --budget 90k",
    f"forecast {RUNS} --run n8-bp8-seed0 --eval-set validation --remaining 20k",
    f"doctor {RUNS}",
    "doctor {logs}",
    "doctor {study}/runs.csv",
    f"fit {RUNS} {FIT} --draws 20",
    f"audit {RUNS} --eval-set validation",
    "backtest {study}/runs.csv --eval-set validation --cuts 0.5 --seeds 1",
    "problems --help",
    "launch {study}/plan.json --dry-run",
    "launch {study}/plan.json --backend verl --model m --overrides",
    "launch {study}/plan.json --backend verl --model m --against {study}/mine.sh",
    "run {study}/study.yaml --dry-run",
    "status {study}",
    f"status {RUNS}",
    "status {logs} --set learning_rate=1e-6",
    "stop --help",
    "list backends",
    "list schema study",
    "list sweeps",
)
"""Uses that write no file, of every command."""
ONCE = {line.split()[0]: line for line in reversed(LINES)}.values()
"""The first of each command."""


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished campaign, with its runs as a table as well."""
    folder = tmp_path_factory.mktemp("kept") / "study"
    asked = Study(
        name="loop",
        model="simulation/easy-1",
        data=Data(train="t.jsonl", validation="v.jsonl", reward="r.py"),
        recipe=Recipe.preset("easy", min_problems_per_batch=8),
        sweep=Sweep(group_size=(4, 8, 16), problems_per_batch=(8,), rollouts=6000),
        budget="30k",  # type: ignore[arg-type]
        backend="simulator",
        options={"task": "easy", "task_seed": 1, "scale": 20_000},
    )
    executor = LocalExecutor(max_parallel=4, poll_seconds=0.05)
    Campaign(asked, folder, executor=executor, fit_options={"pool": ("learning_rate",), "draws": 20}).run()
    RunSet.read(folder / "runs" / "loop").to_polars().write_csv(folder / "runs.csv")
    command = "python -m verl.trainer.main_ppo actor_rollout_ref.rollout.n=8 data.train_batch_size=8\n"
    (folder / "mine.sh").write_text(command)
    return folder


@pytest.fixture(scope="module")
def logs(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Logs of frameworks."""
    folder = tmp_path_factory.mktemp("logs") / "logs"
    shutil.copytree(repository / "tests/unit/ingest/data", folder)
    return folder


def state(*folders: Path) -> dict[Path, tuple[int, int, bytes | None]]:
    """Mode, time of the last change and bytes of every file and folder."""
    found: dict[Path, tuple[int, int, bytes | None]] = {}
    for path in (path for folder in folders for path in (folder, *folder.rglob("*"))):
        told = path.lstat()
        found[path] = (told.st_mode, told.st_mtime_ns, path.read_bytes() if path.is_file() else None)
    return found


def test_every_command_is_looked_at() -> None:
    # Every form of `report` writes a page or a figure.
    assert {line.split()[0] for line in LINES} == {name for panel in PANELS.values() for name in panel} - {"report"}


@pytest.mark.parametrize("line", few(LINES, {*ONCE, "list sweeps", "next {study}/study.yaml --budget 90k"}))
def test_nothing_is_written(isocompute: Command, study: Path, logs: Path, tmp_path: Path, line: str) -> None:
    before = state(study, logs)
    for form in ("", "--json") if line in ONCE else ("--json",):
        done = isocompute(*shlex.split(f"{line} {form}".format(study=study, logs=logs)))
        assert done.returncode == 0, done.stderr
        assert done.stdout
        assert state(study, logs) == before
        assert not list(tmp_path.iterdir())
