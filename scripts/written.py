"""Files that read well, as frameworks, W&B, MLflow and this package write them: what `fuzz.py` damages.

Each function fills an empty folder. W&B, MLflow and slime's events are written by the programs in
tests/unit/ingest/loggers.
"""

import csv
import json
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import isocompute_sdk as iso
from isocompute_sdk.run_folders.run_journal import Journal
from isocompute_sdk.specs import Data, Recipe, RunSpec
from isocompute_sdk.training import registry

LOGGERS = Path(__file__).resolve().parents[1] / "tests/unit/ingest/loggers"
STEPS = range(1, 13)
Rows = list[tuple[int, dict[str, float]]]


def _by(program: str, *words: str | Path) -> None:
    subprocess.run([sys.executable, LOGGERS / program, *words], check=True, capture_output=True)


def wandb(folder: Path) -> Path:
    """The first start of a run of TRL; the `.wandb` file."""
    _by("log_to_wandb.py", folder / "all")
    (first, *_) = sorted((folder / "all/wandb").glob("offline-run-*-kept/*.wandb"))
    shutil.copy(first, folder)
    shutil.rmtree(folder / "all")
    return folder / first.name


def mlflow(folder: Path) -> Path:
    """The folder of a run of veRL with one metric."""
    _by("log_to_mlflow.py", folder.absolute().as_uri())
    (size,) = folder.rglob("params/actor_rollout_ref/rollout/n")
    run = size.parents[3]
    for metric in [path for path in (run / "metrics").rglob("*") if path.is_file() and path.name != "mean_at_4"]:
        metric.unlink()
    return run


def slime_events(folder: Path) -> Path:
    """The event file of slime."""
    _by("log_as_slime.py", "tensorboard", folder)
    (events,) = folder.iterdir()
    return events


def trl_rows() -> Rows:
    """Steps of TRL with what each logged, in the words of W&B."""
    rows: Rows = []
    for step in STEPS:
        rows.append((step, {"train/reward": step / 20, "train/frac_reward_zero_std": step / 99}))
        if step % 4 == 0:
            rows.append((step, {"eval/reward": step / 30}))
    return rows


def _table(path: Path, rows: list[dict[str, Any]], delimiter: str = ",") -> Path:
    with path.open("w", newline="") as file:
        table = csv.DictWriter(file, list(dict.fromkeys(name for row in rows for name in row)), delimiter=delimiter)
        table.writeheader()
        table.writerows(rows)
    return path


def wandb_history(folder: Path) -> Path:
    """A history as W&B exports it: its own step counts calls, that of the trainer stands beside it."""
    rows = [
        {"_step": i, "_runtime": 2.5 * i, "_timestamp": 1.7e9 + i, "train/global_step": step, **values}
        for i, (step, values) in enumerate(trl_rows())
    ]
    return _table(folder / "history.csv", rows)


def wandb_chart(folder: Path) -> Path:
    """A chart of two runs as W&B exports it."""
    values = {f"{run} - eval/avg@4": scale for run, scale in (("sun-3", 20), ("sea - 4", 30))}
    rows = [
        {"Step": step} | {name + end: step / scale for name, scale in values.items() for end in ("", "__MIN", "__MAX")}
        for step in STEPS
    ]
    return _table(folder / "chart.csv", rows)


def tables(runs: iso.RunSet, wide: Path, folder: Path) -> dict[str, Path]:
    """A table in other forms: with semicolons, with tabs, and one row per value."""
    with wide.open(newline="") as file:
        rows = list(csv.DictReader(file))
    runs.to_polars().write_csv(folder / "long.csv")
    return {
        ";": _table(folder / "semicolons.csv", rows, ";"),
        "\t": _table(folder / "tabs.tsv", rows, "\t"),
        "long": folder / "long.csv",
    }


def _console(path: Path, rows: list[tuple[str, int, Mapping[str, float]]], words: Mapping[str, str]) -> Path:
    """Lines of a logger; `words` stand between the kind of a row and its dict."""
    head = "\x1b[36m(Trainer pid=7)\x1b[0m [2026-11-22 12:52:21] trainer.py:99 -"
    path.write_text("".join(f"{head} {words[kind].format(step)}{dict(values)}\n" for kind, step, values in rows))
    return path


def slime_console(folder: Path) -> Path:
    """Rollouts and evaluations as slime prints them."""
    rows: list[tuple[str, int, Mapping[str, float]]] = [("eval", 0, {"eval/aime": 0.125, "eval/aime-pass@8": 0.5})]
    for i in range(12):
        rows.append(("rollout", i, {"rollout/raw_reward": i / 20, "rollout/response_len/mean": 90.5 + i}))
        if i % 3 == 2:
            rows.append(("eval", i, {"eval/aime": i / 30, "eval/aime-pass@8": 0.75}))
    return _console(folder / "console.txt", rows, {"rollout": "rollout {}: ", "eval": "eval {}: "})


def openrlhf_rows() -> list[tuple[str, int, Mapping[str, float]]]:
    """Kind, step and values of what OpenRLHF prints and logs."""
    rows: list[tuple[str, int, Mapping[str, float]]] = []
    for step in STEPS:
        train = {"rollout/reward_mean": step / 20, "policy_loss": 0.01 * step, "timing/step_total": 20.5 + step}
        rows.append(("train", step, {**train, "actor_lr": 1e-6}))
        if step % 4 == 0:
            rows.append(("eval", step, {"eval_math_pass1": step / 30, "eval_math_pass4": 0.75}))
    return rows


def openrlhf_console(path: Path) -> Path:
    """Updates and evaluations as OpenRLHF prints them."""
    evaluation = "Evaluation completed in 0:00:09, global_step {}, eval_metrics: "
    return _console(path, openrlhf_rows(), {"train": "\u2728 Global step {}: ", "eval": f"\u2728 {evaluation}"})


def openrlhf_events(folder: Path) -> Path:
    """The same as an event file."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    writer = EventFileWriter(str(folder))
    for kind, step, values in openrlhf_rows():
        summary = Summary(value=[Summary.Value(tag=f"{kind}/{tag}", simple_value=one) for tag, one in values.items()])
        writer.add_event(Event(wall_time=1.7e9 + step, step=step, summary=summary))
    writer.close()
    (events,) = folder.iterdir()
    return events


def prime_rl(folder: Path) -> Path:
    """`metrics.jsonl` of trainer and orchestrator, with `rl.json` beside it."""
    (folder / "rl.json").write_text(json.dumps({"orchestrator": {"batch_size": 256, "group_size": 16}}))
    rows: list[dict[str, float]] = [{"step": 0, "progress/ckpt_step": 0, "eval/math/solver/avg@4": 0.25}]
    for step in range(12):
        rows.append({"step": step, "train/agg/all/solver/reward/mean": step / 20, "progress/ckpt_step": step})
        rows.append({"step": step, "optim/lr": 1e-6, "optim/grad_norm": 0.5 + step / 7})
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder / "metrics.jsonl"


def run_folder(folder: Path, backend: str) -> Path:
    """The folder of a run that a launch script of a backend started, with its log; the file to which it logs."""
    data = Data(train="train.jsonl", validation="validation.jsonl", reward="reward.py")
    run = RunSpec(
        run_id="small",
        model="Qwen/Qwen2.5-7B-Instruct",
        data=data,
        recipe=Recipe(preset="hard"),
        group_size=16,
        problems_per_batch=32,
        update_steps=12,
        output_dir="runs",
        backend=backend,
    )
    registry.load(backend).prepare(run, folder)
    if backend == "openrlhf":
        return openrlhf_console(folder / "console.1.log")
    journal = Journal(folder / "metrics.jsonl", run.run_id, 1)
    journal.begin(resumed_step=None, **run.context())
    for step in range(13):
        counts = {"step": step, "rollouts": step * 512, "tokens": 0}
        if step:
            journal.append("step", **counts, metrics={"train_reward": step / 20, "entropy": 0.5 + step / 7})
        if step % 4 == 0:
            journal.append("evaluation", **counts, eval_set="math", metrics={"avg@4": step / 30})
    journal.close()
    return folder / "metrics.jsonl"
