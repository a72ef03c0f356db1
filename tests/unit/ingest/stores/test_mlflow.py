"""MLflow's folder and database; the slow tests have the real `mlflow` write them."""

from __future__ import annotations

import runpy
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from isocompute_sdk.ingest import diagnose
from isocompute_sdk.ingest.stores.mlflow import STORE as MLFLOW
from isocompute_sdk.records import RunSet
from tests.processes import need

PROGRAM = Path(__file__).parents[1] / "loggers" / "log_to_mlflow.py"


class Written:
    """Stands in for the module `mlflow`, which takes seconds to load: writes the files that it writes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "1"

    def __getattr__(self, name: str) -> Callable[[str], None]:
        return lambda _: None

    @contextmanager
    def start_run(self, run_name: str) -> Iterator[None]:
        self.run = self.folder / run_name
        for part in ("metrics", "params"):
            (self.run / part).mkdir(parents=True)
        (self.run / "meta.yaml").write_text(f"lifecycle_stage: active\nrun_name: {run_name}\nstart_time: 1\n")
        yield

    def log_params(self, params: dict[str, object]) -> None:
        for name, value in params.items():
            self.append(f"params/{name}", str(value))

    def log_metrics(self, metrics: dict[str, float], step: int) -> None:
        for name, value in metrics.items():
            self.append(f"metrics/{name}", f"{1795874917800 + step} {value} {step}\n")

    def append(self, name: str, text: str) -> None:
        (self.run / name).parent.mkdir(parents=True, exist_ok=True)
        with (self.run / name).open("a") as file:
            file.write(text)


@pytest.fixture(scope="module", params=["as written", pytest.param("mlflow", marks=pytest.mark.slow)])
def folder_store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mlflow") / "mlruns"
    if request.param == "mlflow":
        need("mlflow")
        subprocess.run([sys.executable, PROGRAM, folder.as_uri()], capture_output=True, check=True)
        return folder
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "mlflow", Written(folder))
        patch.setattr(sys, "argv", [str(PROGRAM), folder.as_uri()])
        for name in ("MLFLOW_ALLOW_FILE_STORE", "GIT_PYTHON_REFRESH"):
            patch.setenv(name, "")
        runpy.run_path(str(PROGRAM))
    return folder


def check(path: Path) -> None:
    """Both runs are read without a question, whichever store they lie in."""
    found = {one.name: one for one in diagnose(path).runs}
    assert {name: (one.group_size, one.problems_per_batch, one.metric) for name, one in found.items()} == {
        "verl-n4": ("4", "16", "avg@4"),
        "trl-n8": ("8", "4", "train_reward"),
    }
    runs = RunSet.read(path)
    (series,) = runs.series("avg@4")
    assert series.rollouts_T.tolist() == [0, 5 * 64, 10 * 64]
    assert series.value_T.tolist() == [0, 0.25, 0.5]
    training = {one.run_id: one for one in runs.series("train_reward")}
    assert training["trl-n8"].rollouts_T.tolist() == [32 * step for step in range(1, 6)]


def test_a_folder_store_is_read(folder_store: Path) -> None:
    check(folder_store)


def test_metric_lines_that_are_cut_or_beyond_all_numbers_are_left_out_with_a_note(
    folder_store: Path, tmp_path: Path
) -> None:
    (meta,) = [path for path in folder_store.rglob("meta.yaml") if "verl-n4" in path.read_text()]
    run = tmp_path / meta.parent.name
    meta.parent.rename(run)
    try:
        metric = run / "metrics" / "critic" / "score" / "mean"
        # A step beyond all numbers, one that is missing, and a time in its place.
        damage = b"1 0.5 " + b"9" * 400 + b"\n1795874917799 0.5\n1795874917799 0.5 1795874917801 0.5 5\n"
        metric.write_bytes(damage + metric.read_bytes()[:-9])
        log = MLFLOW.read([run], "run")
        assert log.series("critic/score/mean").step_T.tolist() == list(range(1, 10))
        assert [note.code for note in log.notes] == ["log-damaged"]
        assert np.isnan(log.series("bad").value_T).all()
        assert dict(log.settings[0][1])["actor_rollout_ref.rollout.n"] == 4
    finally:
        run.rename(meta.parent)


def test_a_deleted_run_is_left_out(folder_store: Path, tmp_path: Path) -> None:
    shutil.copytree(folder_store, tmp_path / "mlruns")
    (meta,) = [path for path in tmp_path.rglob("meta.yaml") if "trl-n8" in path.read_text()]
    meta.write_text(meta.read_text().replace("lifecycle_stage: active", "lifecycle_stage: deleted"))
    assert [one.name for one in diagnose(tmp_path).runs] == ["verl-n4"]


@pytest.mark.slow  # MLflow makes its tables step by step
def test_a_database_is_read_and_not_changed_while_another_process_writes(tmp_path: Path) -> None:
    need("mlflow")
    pytest.importorskip("sqlalchemy")
    pytest.importorskip("alembic")
    path = tmp_path / "mlflow.db"
    writer = subprocess.Popen(
        [sys.executable, PROGRAM, f"sqlite:///{path}", "wait"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert writer.stdout is not None
    assert writer.stdout.readline() == "waiting\n"
    before = path.read_bytes()
    assert MLFLOW.runs_of is not None
    (run,) = MLFLOW.runs_of(path)
    assert MLFLOW.read([run.part], run.name).series("critic/score/mean").step_T.tolist() == list(range(1, 11))
    assert path.read_bytes() == before
    writer.communicate()
    assert MLFLOW.holds(path)
    check(path)
    (tmp_path / "unrelated.db").write_bytes(b"SQLite format 3\0 and no more")
    assert not MLFLOW.holds(tmp_path / "unrelated.db")


@pytest.mark.parametrize("content", [b"", b"a note", bytes(4096)])
def test_a_file_that_only_ends_like_a_database_is_none(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "notes.db").write_bytes(content)
    assert not MLFLOW.holds(tmp_path / "notes.db")
    assert [one.name for one in tmp_path.iterdir()] == ["notes.db"]
