"""Train one box of coins: `python -m coin_backend.train FOLDER`."""

from __future__ import annotations

import json
import math
import random
import sys
from pathlib import Path

from coin_backend import CoinOptions
from isocompute_sdk.files import write_text
from isocompute_sdk.metrics import avg_at_k, best_at_k, worst_at_k
from isocompute_sdk.run_folders.run_journal import record as journal_record
from isocompute_sdk.specs import RunSpec


def heads(logit: float) -> float:
    return 1 / (1 + math.exp(-logit))


def flips(logits: list[float], times: int, rng: random.Random) -> list[list[float]]:
    return [[float(rng.random() < heads(logit)) for _ in range(times)] for logit in logits]


def train(run: RunSpec) -> list[dict[str, object]]:
    options, k = CoinOptions.model_validate(run.options), run.evaluation.samples
    box = random.Random("the same box for every run")
    logits = [box.gauss(-0.5, 1.0) for _ in range(options.coins)]
    rng = random.Random(run.seed)
    records: list[dict[str, object]] = []

    def record(kind: str, step: int, **fields: object) -> None:
        rollouts = step * run.rollouts_per_batch
        records.append(journal_record(run.run_id, kind, step=step, rollouts=rollouts, tokens=rollouts, **fields))

    record("run", 0, **run.context())
    for step in range(run.update_steps + 1):
        if step % run.evaluation.every_steps == 0 or step == run.update_steps:
            measured = flips(logits, k, rng)
            named = (("avg", avg_at_k), ("best", best_at_k), ("worst", worst_at_k))
            metrics = {f"{name}@{k}": metric(measured, k) for name, metric in named}
            record("evaluation", step, eval_set="validation", metrics=metrics)
        for coin in rng.sample(range(options.coins), run.problems_per_batch):
            (rewards,) = flips([logits[coin]], run.group_size, rng)
            mean = sum(rewards) / len(rewards)
            deviation = math.sqrt(mean * (1 - mean)) + run.recipe.std_epsilon
            gradient = sum((r - mean) / deviation * (r - heads(logits[coin])) for r in rewards) / len(rewards)
            logits[coin] += options.step_size * gradient
    record("end", run.update_steps, status="finished", message="all coins flipped")
    return records


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    journal = train(RunSpec.model_validate_json((folder / "coin.json").read_text(encoding="utf-8")))
    write_text(folder / "metrics.jsonl", "".join(json.dumps(line) + "\n" for line in journal))
