"""Record runs of the built-in task, as far as 3M rollouts: tables of the corpus (`iso.sweeps()`).

    python benchmarks/record_runs.py --study long --folder recorded   # Easy, n = 4, 16, 64, four seeds, to 3M
    python benchmarks/record_runs.py --study sets --folder recorded   # Hard, other n of Easy: two seeds, to 600k
    python benchmarks/record_runs.py --study other --folder recorded  # other families and task seeds, to 600k
    python benchmarks/record_runs.py --study few --folder recorded    # 64 training problems, to 160k

Each run is trained by the built-in runner in a process of its own, one thread each, and its table is written to
FOLDER/tables/ when it ends. Started again, finished tables are kept and a stopped run resumes from its checkpoint.
Studies may share a folder and run at the same time. `--collect` joins the tables that FOLDER holds into one file per
study below `--out`.

Settings: family mul31 and task seed 0 (one base model for all runs) unless the name of a run says otherwise, B_p = 16,
temperature 1, learning rate 4e-4 sqrt(B / 1024), no KL and no entropy term, one update per batch. Each evaluation
samples 64 responses to each of the 200 validation problems, so sampling gives avg@4 a standard deviation of about .0035
on Easy.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
import polars as pl

from isocompute_sdk import RunSet
from isocompute_sdk.campaigns.carrying_out import carry_out
from isocompute_sdk.campaigns.executors import LocalExecutor
from isocompute_sdk.errors import RecordError
from isocompute_sdk.records.reward_metrics import TRAIN_REWARD
from isocompute_sdk.specs import Data, Evaluation, Recipe, RunSpec, Study, Sweep
from isocompute_sdk.training import registry

PROBLEMS_PER_BATCH = 16
SAMPLES = 64
"""Responses per validation problem and evaluation."""
EVALUATIONS = 36
"""Evaluations of a run between `FIRST` rollouts and its end, evenly spaced in log C."""
FIRST = 2_000
METRICS = ("avg@4", "best@4", "worst@4")


@dataclass(frozen=True)
class Task:
    """Which problems are trained on."""

    kind: Literal["easy", "hard", "mixed"]
    family: str = "mul31"
    seed: int = 0
    problems: int | None = None
    """Training problems, the first ones of the set; None for all."""

    @property
    def name(self) -> str:
        """Unique name of the task: its kind, unless family, seed or problems differ from the default."""
        family = self.family.replace("+", ".")
        base = self.kind if (family, self.seed) == ("mul31", 0) else f"{family}-{self.kind}-t{self.seed}"
        return base if self.problems is None else f"{base}-d{self.problems}"

    @property
    def folder(self) -> str:
        """Folder of its files: tasks that differ in `problems` only share one."""
        return f"task-{replace(self, problems=None).name}"

    @property
    def train(self) -> str:
        """File of its training problems."""
        whole = f"{self.folder}/train.jsonl"
        return whole if self.problems is None else f"train-{self.name}.jsonl"

    def prepare(self, folder: Path) -> None:
        """Make its files in a folder, unless they are there."""
        from isocompute_torch.tasks import prepare

        prepare(folder / self.folder, family=self.family, kind=self.kind, seed=self.seed)
        if self.problems is not None:
            lines = (folder / self.folder / "train.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
            (folder / self.train).write_text("".join(lines[: self.problems]), encoding="utf-8")


@dataclass(frozen=True)
class Cell:
    """One run."""

    task: Task
    group_size: int
    rollouts: int
    seed: int

    @property
    def name(self) -> str:
        """Unique name of the run."""
        return f"{self.task.name}-{self.rollouts // 1000}k-n{self.group_size}-s{self.seed}"

    @property
    def sweep(self) -> str:
        """Name of its sweep in the corpus."""
        task = self.task
        parts = [task.family.replace("+", "-"), task.kind, *([f"t{task.seed}"] if task.seed else [])]
        longer = ["3m"] if self.rollouts == 3_000_000 else []
        return "-".join([*parts, *([f"d{task.problems}"] if task.problems else []), *longer])

    @property
    def evaluations_per_decade(self) -> int:
        """Evaluations per factor of ten in update steps: `EVALUATIONS` from `FIRST` rollouts or step 1 on."""
        batch = PROBLEMS_PER_BATCH * self.group_size
        return math.ceil(EVALUATIONS / math.log10(self.rollouts / max(FIRST, batch)))

    def spec(self) -> RunSpec:
        """What to train; paths are relative to the folder of all runs."""
        task = self.task.folder
        (run,) = Study(
            name=f"{self.task.name}-{self.rollouts // 1000}k",
            model=f"{task}/model",
            data=Data(
                train=self.task.train,
                validation=f"{task}/validation.jsonl",
                reward=f"{task}/reward.py",
            ),
            recipe=Recipe.preset(
                "hard",
                learning_rate_anchor=4e-4,
                temperature=1.0,
                max_response_tokens=5,
                min_problems_per_batch=PROBLEMS_PER_BATCH,
            ),
            sweep=Sweep(
                group_size=(self.group_size,),
                problems_per_batch=(PROBLEMS_PER_BATCH,),
                rollouts=self.rollouts,
                seeds=(self.seed,),
            ),
            evaluation=Evaluation(samples=SAMPLES, temperature=1.0),
            backend="torch",
            options={
                "threads": 1,
                "device": "cpu",
                "evaluations_per_decade": self.evaluations_per_decade,
                "probe_problems": 0,
            },
        ).expand()
        return run


LONG = (64, 16, 4)
"""Group sizes of Easy that are run to 3M. Their first 600k are what a run to 600k would be, bit for bit."""
KINDS: tuple[Literal["easy", "hard"], ...] = ("easy", "hard")
OTHER = (
    Task("hard", "rev31"),
    Task("hard", "mul31", 1),
    Task("easy", "rev31"),
    Task("hard", "add32"),
    Task("mixed", "mul31+rev31"),
    Task("easy", "add32"),
    Task("easy", "mul31", 1),
)
STUDIES: dict[str, tuple[Cell, ...]] = {
    "long": tuple(Cell(Task("easy"), n, 3_000_000, seed) for seed in (0, 1, 2, 3) for n in LONG),
    "sets": tuple(
        Cell(Task(kind), n, 600_000, seed)
        for seed in (0, 1)
        for n in (256, 128, 64, 32, 16, 8, 4)
        for kind in KINDS
        if kind == "hard" or n not in LONG
    ),
    "other": tuple(Cell(task, n, 600_000, 0) for task in OTHER for n in (128, 32, 8, 64, 16)),
    "few": tuple(
        Cell(replace(task, problems=64), n, 160_000, 0) for task in OTHER if task.kind == "easy" for n in (128, 32, 8)
    ),
}


SWEEPS: dict[str, list[Cell]] = {}
"""Runs by the sweep of the corpus that they belong to."""
for _cell in (cell for cells in STUDIES.values() for cell in cells):
    SWEEPS.setdefault(_cell.sweep, []).append(_cell)


CORPUS = Path(__file__).parents[1] / "isocompute_sdk" / "laws" / "data" / "sweeps"
RECORD = Path(__file__).parent / "data" / "recorded_runs.json"
"""Settings and measurements of the tasks, and package versions."""


def record(cell: Cell, folder: Path) -> Path:
    """Train one run, or keep what is there; returns its table.

    Raises:
        BackendError: the run failed or was interrupted.
    """
    table = folder / "tables" / f"{cell.name}.csv"
    if table.exists():
        return table
    cell.task.prepare(folder)
    run = cell.spec()
    carry_out([run], registry.load("torch"), LocalExecutor(1), folder)
    table.parent.mkdir(exist_ok=True)
    partial = table.with_suffix(".partial")
    wide(RunSet.read(folder / run.output_dir), cell).write_csv(partial)
    partial.rename(table)
    return table


def wide(runs: RunSet, cell: Cell) -> pl.DataFrame:
    """One row per evaluation on the validation problems: context, step, rollouts and one column per metric.

    Tasks that are not the default also have the mean training reward of the steps since the evaluation before.
    """
    rows = runs.filter(pl.col("metric").is_in(METRICS) & (pl.col("eval_set") == "validation")).to_polars()
    keys = ("problems_per_batch", "group_size", "seed", "learning_rate", "n_problems", "step", "rollouts")
    table = (
        rows.pivot(on="metric", index=keys, values="value")
        .sort("step")
        .with_columns(pl.col(METRICS).round(5))
        .select(pl.lit(cell.name).alias("run_id"), *keys, *METRICS)
    )
    if cell.task.name in KINDS:
        return table
    trained = runs.filter(metric=TRAIN_REWARD).to_polars().sort("step")
    ends = table["step"].to_numpy()
    since = np.searchsorted(ends, trained["step"].to_numpy(), side="left")
    reward = trained["value"].to_numpy()
    means = [float(reward[since == i].mean()) if np.any(since == i) else None for i in range(len(ends))]
    return table.with_columns(pl.Series(TRAIN_REWARD, means, dtype=pl.Float64).round(5))


def collect(folder: Path, out: Path) -> None:
    """Join the tables of each sweep, with a record of how they were made.

    A run that was stopped counts as far as it came, from `FIRST` rollouts on.
    """
    out.mkdir(parents=True, exist_ok=True)
    for name, cells in SWEEPS.items():
        found = [_so_far(cell, folder) for cell in cells]
        tables = [table for table in found if table is not None]
        if tables:
            pl.concat(tables).sort("group_size", "seed", "run_id", "step").write_csv(out / f"{name}.csv")
    tasks = {path.parent.name: json.loads(path.read_text()) for path in sorted(folder.glob("task-*/task.json"))}
    provenance = {
        "command": "python benchmarks/record_runs.py --study sets|long|other|few, then --collect",
        "python": platform.python_version(),
        "machine": platform.machine(),
        "versions": {name: task["versions"] for name, task in tasks.items()},
        "tasks": {name: {"settings": task["settings"], "measured": task["measured"]} for name, task in tasks.items()},
    }
    RECORD.write_text(json.dumps(provenance, indent=2) + "\n")


def _so_far(cell: Cell, folder: Path) -> pl.DataFrame | None:
    """The table of a run, finished or not; None before it reached `FIRST`."""
    table = folder / "tables" / f"{cell.name}.csv"
    if table.exists():
        return pl.read_csv(table)
    run = folder / cell.spec().output_dir
    if not (run / "metrics.jsonl").exists():
        return None
    try:
        reached = wide(RunSet.read(run), cell)
    except RecordError:
        return None
    return reached if float(reached["rollouts"].to_numpy().max()) > FIRST else None


def main() -> None:
    """Record or collect, as asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--study", choices=sorted(STUDIES), default="sets")
    parser.add_argument(
        "--seeds", type=int, nargs="+", default=(0, 1, 2, 3), help="only runs of these seeds, in this order"
    )
    parser.add_argument("--group-sizes", type=int, nargs="+", help="only runs of these n, in this order")
    parser.add_argument("--tasks", nargs="+", help="only runs of tasks with these names, such as add32-easy-t0")
    parser.add_argument("--folder", type=Path, default=Path("recorded"))
    parser.add_argument("--out", type=Path, default=CORPUS)
    parser.add_argument("--collect", action="store_true", help="join finished tables instead of training")
    options = parser.parse_args()
    if options.collect:
        collect(options.folder, options.out)
        return
    cells = [cell for seed in options.seeds for cell in STUDIES[options.study] if cell.seed == seed]
    if options.group_sizes:
        cells = [cell for n in options.group_sizes for cell in cells if cell.group_size == n]
    if options.tasks:
        cells = [cell for cell in cells if cell.task.name in options.tasks]
    for cell in cells:
        table = record(cell, options.folder)
        sys.stdout.write(f"{table}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
