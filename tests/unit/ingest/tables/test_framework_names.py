"""Tables with the names that frameworks give to n, B_p and runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from isocompute_sdk.ingest import diagnose, propose
from isocompute_sdk.records import RunSet


@pytest.mark.parametrize(
    ("n", "problems", "run"),
    [
        ("num_generations", "prompts_per_step", "experiment"),
        ("rollout.n", "data.train_batch_size", "experiment_name"),
        ("n_samples_per_prompt", "prompts_per_batch", "run_name"),
    ],
)
def test_a_table_of_several_runs_is_not_melted_into_one(tmp_path: Path, n: str, problems: str, run: str) -> None:
    path = tmp_path / "results.csv"
    rows = [
        f"{size},{32},exp-{size}-{seed},{step},{0.3 + step / 1000}"
        for size in (4, 8, 16, 32)
        for seed in (0, 1)
        for step in range(0, 101, 10)
    ]
    path.write_text("\n".join((f"{n},{problems},{run},step,avg@4", *rows)) + "\n")
    runs = RunSet.read(path)
    assert len(runs.run_ids) == 8
    assert sum(len(series.value_T) for series in runs.series("avg@4")) == 88
    for info in runs.runs():
        assert info.rollouts == info.group_size * 32 * 100
        assert info.rollouts_spent is None
    assert not propose(path).runs
    assert len(diagnose(path).runs) == 8
