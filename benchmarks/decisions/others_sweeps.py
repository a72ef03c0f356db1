"""Write sweeps that others published into the form of the corpus, to judge choices on them.

    python benchmarks/decisions/others_sweeps.py TABLES FOLDER
    isocompute backtest FOLDER --cuts 0.333 --cuts 0.5 --seeds 3 --min-evaluations 1

TABLES is a folder with the tables as read from the repositories named below. They are not ours to ship: results on them
are in docs/allocation.md. Nothing is learned from them.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import polars as pl

from isocompute_sdk.laws.sweeps import Provenance
from isocompute_sdk.specs.syntax.plain_yaml import dump_spec

COLUMNS = ["run_id", "seed", "group_size", "problems_per_batch", "update_step", "rollouts"]
SWEEPS: dict[str, tuple[tuple[str, ...], Provenance]] = {
    "pods_gsm8k": (
        ("pods_gsm8k_n.ans_acc.csv", "pods_gsm8k_n.both_acc.csv"),
        Provenance(
            title="PODS on GSM8K",
            source="YixuanEvenXu/pods at 187f43b, arXiv 2504.13818",
            licence="Apache-2.0",
            model="Qwen/Qwen2.5-3B-Instruct",
            data="GSM8K",
            algorithm="GRPO on the 16 of n responses with most variance, LoRA 64, learning rate 5e-6, no KL",
            differs="runs end at equal time, so that small n has more updates",
            read="logged by the runs; ten seeds of each n",
            family="pods",
            group="others' 3B sweep",
            metrics=("ans_acc", "both_acc"),
            targets=(40_000.0, 80_000.0, 120_000.0),
        ),
    ),
    "linyuan_gsm8k": (
        ("linyuan_gsm8k_n.csv",),
        Provenance(
            title="Small reasoning models on GSM8K",
            source="Linyuan30/small-llm-reasoning-posttraining at 318519a",
            licence="MIT",
            model="Qwen/Qwen3-0.6B-Base after SFT",
            data="GSM8K",
            algorithm="GRPO by veRL, four updates per batch",
            differs="n = 16 is drawn from step 70 on",
            read="read off a figure",
            family="linyuan",
            group="others' 0.6B sweep",
            metrics=("val_reward_mean1",),
        ),
    ),
    "tinker_gsm8k": (
        ("tinker_w2_group_sweep.csv",),
        Provenance(
            title="Tinker on GSM8K, nothing learned",
            source="arvindcr4/tinker-rl-lab at 21a99ef",
            licence="Apache-2.0",
            model="Qwen/Qwen3-8B",
            data="GSM8K",
            algorithm="GRPO by Tinker",
            differs="runs end at 30 updates each",
            read="training reward logged by the runs, two problems a step",
            family="tinker",
            group="others' sweep without learning",
            metrics=("train_reward",),
        ),
    ),
}


def write(tables: Path, folder: Path) -> None:
    """Write every sweep whose tables are there."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, (files, about) in SWEEPS.items():
        frames = [pl.read_csv(tables / file, infer_schema_length=None) for file in files]
        rows = pl.concat([frame.select([*COLUMNS, "metric", "reward"]) for frame in frames])
        wide = rows.pivot("metric", index=COLUMNS, values="reward").rename(
            {"update_step": "step", "reward": "train_reward"}, strict=False
        )
        wide.write_csv(folder / f"{name}.csv")
        (folder / f"{name}.yaml").write_text(dump_spec(about), encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> int:
    """Write them from the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("tables", type=Path)
    parser.add_argument("folder", type=Path)
    given = parser.parse_args(arguments)
    write(given.tables, given.folder)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
