"""Every backend's logs, written by what really writes them: the same of one folder, whichever way it is read."""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import zipfile
from collections.abc import Callable
from contextlib import chdir
from dataclasses import dataclass, fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest

from isocompute_sdk.ingest import Diagnosis, RunMap, diagnose, propose, read_mapped
from isocompute_sdk.ingest.formats import registry as formats
from isocompute_sdk.records import RunSet
from isocompute_sdk.run_folders.run_journal import Journal
from isocompute_sdk.specs import Evaluation, RunSpec
from isocompute_sdk.timing.measuring import fit_lengths, read_timings
from isocompute_sdk.training import ScriptBackend, registry
from isocompute_trl import payload as trl_payload
from isocompute_verl.flags import VERSION as VERL_VERSION
from tests.backends.framework_runs import contract_run
from tests.backends.programs import load
from tests.backends.verl.writers import Writers
from tests.backends.wheels import cached_wheel
from tests.parameters import few

SMALL_TORCH = Path(__file__).parent / "torch_runner" / "small_run"


def run_of(backend: str, **changes: Any) -> RunSpec:
    small = {"group_size": 2, "problems_per_batch": 3, "update_steps": 7}
    evaluation = Evaluation(every_steps=3, samples=4, n_problems=2)
    return contract_run(**{"backend": backend, "evaluation": evaluation, **small, **changes})


def of_verl(top: Path) -> Path:
    """veRL's own FileLogger, console line and dump writer, two starts of which the second goes on from step 4."""
    run, folder, writers, rng = run_of("verl"), top / "contract", Writers(), np.random.default_rng(0)
    with zipfile.ZipFile(cached_wheel("verl", VERL_VERSION)) as wheel:
        tree = ast.parse(wheel.read("verl/utils/tracking.py").decode())
    (logger,) = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "FileLogger"]
    import orjson

    known: dict[str, Any] = {"os": SimpleNamespace(getenv=None, path=os.path), "orjson": orjson, "print": str}
    exec(compile(ast.Module([logger], type_ignores=[]), "tracking.py", "exec"), known)
    (folder / "logs").mkdir(parents=True)
    (folder / "request.json").write_text(registry.load("verl").documents(run)["request.json"])
    (folder / "claim_folder.py").write_text("")
    for attempt, steps in ((1, range(6)), (2, range(4, 8))):
        log = str(folder / "logs" / f"attempt-{attempt}.jsonl")
        known["os"].getenv = lambda name, default, log=log: log if name == "VERL_FILE_LOGGER_PATH" else default
        file_logger = known["FileLogger"]("project", "run")
        for step in steps:
            data: dict[str, Any] = {"training/global_step": step}
            if step > steps[0]:
                data |= {"critic/score/mean": np.float64(rng.random()), "actor/lr": 1e-6, "actor/kl_loss": float("nan")}
                data |= {"timing_s/step": 2.5, "timing_s/gen": 1.5, "response_length/mean": 100.0}
            if step % 3 == 0 or step == steps[0]:
                rewards = rng.integers(0, 2, (2, 4)).astype(float)
                uids = [f"p{i}_{j}_0" for i in range(2) for j in range(4)]
                scores = rewards.ravel().tolist()
                extra = {"acc": scores, "uid": uids}
                dumps = folder / "validation" / str(attempt)
                dumps.mkdir(parents=True, exist_ok=True)
                writers.dump(["?"] * 8, ["!"] * 8, ["1"] * 8, scores, extra, dumps, step)
                data |= {"val-core/validation/acc/mean@4": rewards.mean(), "val-core/validation/acc/best@4/mean": 0.111}
                data |= {"timing_s/testing": 0.5}
            file_logger.log(data, step)
            with (folder / "console.log").open("a") as console:
                console.write(f"(TaskRunner pid=1) {writers.line(data, step)}\n")
        file_logger.finish()
    return folder


def of_trl(top: Path) -> Path:
    """The programs that the script carries beside TRL, given what its trainer logs, and transformers' own state."""
    from transformers.trainer_callback import TrainerState

    run, folder = run_of("trl"), top / "contract"
    checkpoint = folder / "checkpoint-6"
    checkpoint.mkdir(parents=True)
    backend = registry.load("trl")
    (folder / "claim_folder.py").write_text("")
    train = load("train", trl_payload)
    document = {"kind": "trl-run", "framework": "trl", "run": run.model_dump(mode="json"), "context": run.context()}
    (folder / "request.json").write_text(json.dumps(document))
    assert backend.name == "trl"
    history: list[dict[str, Any]] = []
    for attempt, steps in ((1, range(6)), (2, range(4, 8))):
        clock, reached = train.StepClock(iter(np.arange(0.0, 1000.0, 1.25)).__next__), dict[str, Any]()
        book = train.Bookkeeper(
            folder, document, Journal(folder / "metrics.jsonl", run.run_id, attempt), reached, clock
        )
        book.begin(steps[0])
        for step in steps:
            if step > steps[0]:
                clock.begin()
                with clock.part("sampling"):
                    pass
                clock.end()
                logs = {"reward": step / 10, "entropy": 0.5, "learning_rate": 1e-6, "completions/mean_length": 50.0}
                book.updated(step, logs)
                history.append({**logs, "step": step})
            if step % 3 == 0:
                for problem in "ab":
                    records = [{"problem": problem, "score": float(i < step % 4), "error": None} for i in range(4)]
                    train.write_samples(folder, step, attempt, records)
                book.evaluated(step, {"eval_reward": 0.5, "eval_runtime": 0.75})
                history.append({"eval_reward": 0.5, "step": step})
    TrainerState(global_step=6, log_history=history).save_to_json(str(checkpoint / "trainer_state.json"))
    return folder


def of_torch(top: Path) -> Path:
    """A run of the built-in runner."""
    from isocompute_torch import train

    shutil.copytree(SMALL_TORCH, top, dirs_exist_ok=True)
    with chdir(top):
        assert train.main(["run"]) == 0
    return top / "run"


def launched(top: Path, name: str) -> Path:
    """Any other backend: its own script, run by bash."""
    run = run_of(name, group_size=4, problems_per_batch=32, update_steps=20)
    launch = registry.load(name).prepare(run, top / "runs" / "contract")
    environment = {**os.environ, **launch.env}
    done = subprocess.run(launch.argv, cwd=top, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return top / "runs" / "contract"


WRITERS: dict[str, Callable[[Path], Path]] = {
    "verl": of_verl,
    "trl": of_trl,
    "torch": of_torch,
}


@dataclass(frozen=True)
class Written:
    """A run folder, and what its backend reads of it."""

    name: str
    folder: Path
    records: RunSet


@pytest.fixture(scope="module", params=few(registry.available(), {"simulator", "torch", "trl", "verl"}))
def written(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Written:
    if request.param == "openrlhf":
        _, folder = request.getfixturevalue("resumed_openrlhf")
    else:
        writer = WRITERS.get(request.param, lambda top: launched(top, request.param))
        folder = writer(tmp_path_factory.mktemp(request.param))
    return Written(request.param, folder, registry.load(request.param).read_records(folder))


def test_a_registered_description_says_how_its_folder_is_read(written: Written) -> None:
    backend = registry.load(written.name)
    assert isinstance(backend, ScriptBackend)
    form = formats.load(backend.log_format)
    progress = form.progress_in(written.folder)
    assert progress is not None
    assert progress.step == written.records.to_polars()["step"].max()
    if form.journal is None:
        assert form.run_folder is not None
        return
    journal = written.folder / form.journal.file
    assert formats.journal_of(journal) is form
    # Every number of the journal is one that the description names.
    logged = set(form.journal.read(journal).columns["metric"])
    assert logged == set(form.meanings(sorted(logged)))


def ordered(runs: RunSet) -> pl.DataFrame:
    return runs.to_polars().sort("run_id", "eval_set", "metric", "step")


def test_anybodys_reader_gives_the_rows_of_the_backend(written: Written) -> None:
    for path in (written.folder, written.folder.parent):
        runs = RunSet.read(path)
        assert ordered(runs).equals(ordered(written.records))
        assert [note.code for note in runs.notes] == [note.code for note in written.records.notes]
        assert runs.runs() == written.records.runs()


def test_a_proposed_mapping_is_certain_and_gives_the_same_rows(written: Written, tmp_path: Path) -> None:
    mapping = propose(written.folder, relative_to=tmp_path)
    assert not mapping.questions
    path = mapping.save(tmp_path / "map.yaml")
    assert ordered(read_mapped(path, RunMap.load(path))).equals(ordered(written.records))


def test_the_doctor_sees_the_same_run(written: Written) -> None:
    found: Diagnosis = diagnose(written.folder)
    (finding,), (info,) = found.runs, written.records.runs()
    assert found.usable
    assert (finding.name, finding.rollouts, finding.rollouts_spent) == (info.run_id, info.rollouts, info.rollouts_spent)
    assert finding.context == {name: value for name, value in info.context.items() if value is not None}
    average = max((name for name in written.records.metrics if name.startswith("avg@")), key=lambda name: int(name[4:]))
    held_out = written.records.to_polars().filter(
        pl.col("eval_set") != "train", pl.col("metric") == average, pl.col("rollouts") > 0
    )
    assert finding.evaluations == held_out.height


def test_times_and_context_come_with_the_rows(written: Written) -> None:
    (info,) = written.records.runs()
    if written.name != "torch":  # its run was started by an earlier release
        run = run_of(written.name)
        asked = ("algorithm", "kl_coef", "max_tokens", "eval_samples", "temperature", "top_p", "max_prompt_tokens")
        asked += ("filter", "off_policy", "updates_per_batch")
        assert {name: info.context[name] for name in asked} == {name: run.context()[name] for name in asked}
        assert info.context["learning_rate"] is not None
    if written.name in (*WRITERS, "openrlhf"):
        ours, anybodys = (read_timings(runs, 1, None) for runs in (written.records, RunSet.read(written.folder)))
        for field in fields(ours):
            np.testing.assert_array_equal(getattr(ours, field.name), getattr(anybodys, field.name))
        assert (ours.seconds_S > 0).all()
        _, _, tokens, _ = lengths = fit_lengths(written.records)
        assert tokens
        assert lengths == fit_lengths(RunSet.read(written.folder))
        assert np.isfinite(ours.sampling_S).all()
        assert "train_reward" in written.records.metrics


def test_audit_and_status_agree_with_the_rows(written: Written) -> None:
    left: dict[str, str] = {}
    audited = RunSet.read(written.folder, left_out=left)
    assert ordered(audited).equals(ordered(written.records))
    assert left == {}
    (watch,) = registry.watches([written.folder])
    status = watch.status()
    frame = written.records.to_polars()
    assert (status.run_id, status.step) == (written.records.run_ids[0], frame["step"].max())
    rewards = frame.filter(pl.col("metric") == "train_reward").sort("step")["value"]
    assert status.train_reward == (pytest.approx(rewards[-1], abs=1e-6) if len(rewards) else None)
    assert status.headline is not None
    name, value = status.headline
    measured = frame.filter(pl.col("metric") == name, pl.col("eval_set") == "validation").sort("step")["value"]
    assert value == pytest.approx(measured[-1], abs=1e-6)
