"""What `replan` predicts for runs in trouble, beside what its options really reached.

    python benchmarks/decisions/replan.py --folder replanned                # train, some 20 minutes on one core
    python benchmarks/decisions/replan.py --folder replanned --collect      # join what the folder holds into --out
    python benchmarks/decisions/replan.py                                   # the table of the recorded data

Each case is a run of the built-in task that gets into trouble. It is trained up to `spent` rollouts; `replan` is asked
about `remaining` rollouts more, with the checkpoints on its disk; then every option is carried out from the checkpoint
that it names. Going on is the same run, started again with more steps: its first part is the same, bit for bit. Runs
in `--folder` are kept; started again, the script goes on where it was.

Measured: the best mean of three neighbouring evaluations after the checkpoint, or the checkpoint's own reward if that
is larger, by 32 responses to each of the 200 validation problems (standard deviation about .003 on a mean of three).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import polars as pl

import isocompute_sdk as iso
from isocompute_sdk import RunSet
from isocompute_sdk.campaigns.carrying_out import carry_out
from isocompute_sdk.campaigns.executors import LocalExecutor
from isocompute_sdk.ingest.saved_checkpoints import find_checkpoints
from isocompute_sdk.planning.replan import Option, Replan
from isocompute_sdk.specs import Data, Evaluation, Recipe, RunSpec
from isocompute_sdk.training import registry

DATA = Path(__file__).parents[1] / "data" / "replanned.csv"
METRIC = "avg@4"
PROBLEMS_PER_BATCH = 16
SEEDS = (0, 1)
SAMPLES = 24
EVALUATIONS = 20
"""Evaluations of the first part; the rest is evaluated as often."""
TASK_SEED = 0


@dataclass(frozen=True)
class Case:
    """One kind of trouble."""

    name: str
    kind: Literal["easy", "hard"]
    """Problem set."""
    spent: int
    remaining: int
    anchor: float = 4e-4
    """Learning rate at B = 1,024; 4e-4 is healthy."""
    kl: float = 0.0
    entropy: float = 0.0
    group_size: int = 16

    def spec(self, seed: int, rollouts: int) -> RunSpec:
        """The run in trouble, up to some rollouts."""
        task = f"task-{self.kind}"
        batch = self.group_size * PROBLEMS_PER_BATCH
        name = f"{self.name}-s{seed}-{rollouts // 1000}k"
        return RunSpec(
            run_id=name,
            model=f"{task}/model",
            data=Data(train=f"{task}/train.jsonl", validation=f"{task}/validation.jsonl", reward=f"{task}/reward.py"),
            recipe=Recipe.preset(
                "hard",
                learning_rate_anchor=self.anchor,
                kl_coef=self.kl,
                entropy_coef=self.entropy,
                temperature=1.0,
                max_response_tokens=5,
                min_problems_per_batch=PROBLEMS_PER_BATCH,
            ),
            group_size=self.group_size,
            problems_per_batch=PROBLEMS_PER_BATCH,
            update_steps=rollouts // batch,
            seed=seed,
            evaluation=Evaluation(
                samples=SAMPLES, temperature=1.0, every_steps=max(self.spent // batch // EVALUATIONS, 1)
            ),
            backend="torch",
            options={"threads": 1, "device": "cpu", "probe_problems": 0},
            output_dir=f"runs/{name}",
        )


CASES = (
    Case("entropy-bonus", "hard", 40_000, 80_000, kl=1e-3, entropy=0.1),
    Case("high-rate", "easy", 20_000, 40_000, anchor=6.4e-3),
)


def carried_out(case: Case, seed: int, folder: Path) -> pl.DataFrame:
    """Replan one run and carry out every option; one row each."""
    from isocompute_torch.tasks import prepare

    prepare(folder / f"task-{case.kind}", family="mul31", kind=case.kind, seed=TASK_SEED)
    run = case.spec(seed, case.spent)
    answer = _asked(_trained(run, folder), folder / run.output_dir, case)
    if answer.loadable is None:
        raise SystemExit(f"{run.run_id}: no checkpoint before the trouble loads as a model")
    rows = []
    for option in answer.options:
        if option.name == "go-on":
            longer = _trained(case.spec(seed, case.spent + case.remaining), folder)
            measured = _best(longer.filter(pl.col("rollouts") >= answer.checkpoint.rollouts * 0.999))
        elif option.name == "stop":
            measured = float("nan")
        else:
            measured = _best(_trained(_changed(run, option, answer), folder))
        rows.append(_row(case, seed, answer, option, measured))
    table = pl.DataFrame(rows)
    # The checkpoint's reward: first evaluations of the runs that start from it, whose samples differ.
    starts = [
        float(_trained(_changed(run, option, answer), folder).series(METRIC)[0].value_T[0])
        for option in answer.options
        if option.start is not None and option.name != "stop"
    ]
    kept = float(np.mean(starts))
    return table.with_columns(
        pl.when(pl.col("option") == "stop")
        .then(kept)
        .otherwise(pl.max_horizontal(pl.col("measured"), pl.lit(kept)))
        .round(5)
        .alias("measured"),
        pl.lit(round(kept, 5)).alias("at_checkpoint"),
    )


def _row(case: Case, seed: int, answer: Replan, option: Option, measured: float) -> dict[str, str | float | int]:
    predicted = {"predicted": option.reward, "low": option.low, "high": option.high}
    return {
        "case": case.name,
        "seed": seed,
        "trouble": " ".join(answer.trouble) or ("falls" if answer.onset is not None else "none found"),
        "spent": round(answer.spent),
        "remaining": round(answer.remaining),
        "checkpoint": round(answer.checkpoint.rollouts),
        "option": option.name,
        "group_size": option.group_size,
        "followed": int(option.name == answer.follow),
        **{name: round(value, 5) for name, value in predicted.items()},
        "measured": measured,
    }


def _asked(runs: RunSet, folder: Path, case: Case) -> Replan:
    planner = iso.Planner(iso.fit(runs, METRIC, rng=0))
    return planner.replan(runs, case.remaining, checkpoints=find_checkpoints([folder]), rng=0)


def _changed(run: RunSpec, option: Option, answer: Replan) -> RunSpec:
    """The run of an option, from the checkpoint."""
    fields = dict(option.changes)
    size = int(fields.pop("group_size", run.group_size))
    batch = size * run.problems_per_batch
    rate = float(fields.pop("learning_rate", run.recipe.learning_rate(batch)))
    anchor = rate / run.recipe.learning_rate(batch) * run.recipe.learning_rate_anchor
    name = f"{run.run_id}-{option.name}"
    return run.model_copy(
        update={
            "run_id": name,
            "model": str(answer.loadable),
            "recipe": run.recipe.model_copy(update={**fields, "learning_rate_anchor": anchor}),
            "group_size": size,
            "update_steps": option.update_steps,
            "evaluation": run.evaluation.model_copy(
                update={"every_steps": max(run.evaluation.every_steps * run.group_size // size, 1)}
            ),
            "output_dir": f"runs/{name}",
        }
    )


def _trained(run: RunSpec, folder: Path) -> RunSet:
    """Train a run, or read it where that is done."""
    carry_out([run], registry.load("torch"), LocalExecutor(1), folder)
    return RunSet.read(folder / run.output_dir)


def _best(runs: RunSet) -> float:
    (series,) = runs.series(METRIC)
    value = series.value_T
    return float(np.max(np.convolve(value, np.ones(3) / 3.0, mode="valid"))) if len(value) >= 3 else float(value.max())


def table(rows: pl.DataFrame) -> str:
    """A Markdown table: a line per case and option, seeds one after the other."""
    lines = [
        "| case | option | followed | predicted | measured | predicted less measured | 80 % holds |",
        "|---|---|---|---|---|---|---|",
    ]
    for (case, option), some in rows.group_by("case", "option", maintain_order=True):
        error = some["predicted"] - some["measured"]
        held = (some["low"] <= some["measured"]) & (some["measured"] <= some["high"])
        cells = [
            str(case),
            str(option),
            f"{some['followed'].sum()} of {len(some)}",
            ", ".join(f"{value:.3f}" for value in some["predicted"]),
            ", ".join(f"{value:.3f}" for value in some["measured"]),
            f"{error.mean():+.3f}",
            f"{held.sum()} of {len(some)}",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def lost(rows: pl.DataFrame) -> Iterator[str]:
    """What following the advice lost against the best option, per case and seed."""
    for (case, seed), some in rows.group_by("case", "seed", maintain_order=True):
        best = some.sort("measured", descending=True)
        followed = some.filter(pl.col("followed") == 1)
        loss = float(best["measured"][0]) - float(followed["measured"][0])
        yield f"{case}, seed {seed}: followed {followed['option'][0]}, best {best['option'][0]}, lost {loss:.3f}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Train, collect or show, as asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, help="where runs are trained or lie")
    parser.add_argument("--case", type=int, choices=range(len(CASES)), help="only this case")
    parser.add_argument("--seed", type=int, help="only this seed")
    parser.add_argument("--collect", action="store_true", help="join finished cases into --out")
    parser.add_argument("--out", type=Path, default=DATA)
    options = parser.parse_args(arguments)
    if options.collect and options.folder is None:
        parser.error("--collect needs --folder")
    if options.folder is not None and not options.collect:
        for case in CASES if options.case is None else (CASES[options.case],):
            for seed in SEEDS if options.seed is None else (options.seed,):
                rows = carried_out(case, seed, options.folder)
                rows.write_csv(options.folder / f"{CASES.index(case)}-{seed}.csv")
                sys.stdout.write(f"{table(rows)}\n")
        return 0
    if options.folder is not None:
        found = sorted(options.folder.glob("**/?-?.csv"))
        options.out.parent.mkdir(parents=True, exist_ok=True)
        pl.concat([pl.read_csv(path) for path in found]).write_csv(options.out)
    rows = pl.read_csv(options.out)
    sys.stdout.write(table(rows) + "\n" + "\n".join(lost(rows)) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
