"""Speeds computed by hand: exact logs, the interval of one batch, and the runs of a probe."""

from __future__ import annotations

from statistics import mean, stdev

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isocompute_sdk import RunSet, Throughput
from isocompute_sdk.errors import SpecError
from isocompute_sdk.specs import Data, Recipe, RunSpec, Study, Sweep
from isocompute_sdk.timing.probe import probe_pairs, probe_runs
from isocompute_sdk.training import registry

T_90_OF_3 = 1.637744
"""Quantile .9 of Student's t with 3 degrees of freedom."""


def test_an_exact_law_is_recovered_and_the_first_step_of_a_run_is_left_out() -> None:
    overhead, floor, rate = 12.0, 5.0, 40.0
    rows = [(bp, step) for bp in (16, 64, 256) for step in range(1, 9)]
    sampling = [floor + 0.6 * 8 * bp / rate for bp, _ in rows]
    rest = [overhead + 0.4 * 8 * bp / rate + (1000.0 if step == 1 else 0.0) for bp, step in rows]
    columns = {
        "n": [8] * len(rows),
        "bp": [bp for bp, _ in rows],
        "step": [step for _, step in rows],
        "step_seconds": [a + b for a, b in zip(sampling, rest, strict=True)],
        "sampling_seconds": sampling,
    }
    found = Throughput.measure(RunSet.from_columns(columns), gpus=4)
    assert found.step_overhead_seconds == pytest.approx(overhead)
    assert found.latency_floor_seconds == pytest.approx(floor)
    assert found.rollouts_per_second == pytest.approx(rate)
    assert found.measured is not None
    assert (found.measured.runs, found.measured.steps) == (3, 21)
    assert found.measured.rollouts_per_batch == (128, 512, 2048)
    assert found.measured.relative_error == pytest.approx(0.0, abs=1e-6)
    assert (found.gpus, found.gpu_exponent, found.startup_seconds) == (4, None, 0.0)


def test_the_interval_of_one_batch_is_that_of_the_means_of_its_runs() -> None:
    runs = {"a": [9.0, 10.0], "b": [10.0, 11.0], "c": [12.0, 11.0], "d": [10.0, 9.5]}
    rows = [(name, step, s) for name, seconds in runs.items() for step, s in enumerate([50.0, *seconds], start=1)]
    columns = {"run_id": [r[0] for r in rows], "step": [r[1] for r in rows], "step_seconds": [r[2] for r in rows]}
    found = Throughput.measure(RunSet.from_columns({**columns, "n": [8] * 12, "bp": [32] * 12}))
    means = [mean(seconds) for seconds in runs.values()]
    error = stdev(means) / 2
    assert found.rollouts_per_second == pytest.approx(256 / mean(means))
    assert found.step_overhead_seconds == 0.0
    assert found.measured is not None
    low, high = found.measured.intervals["rollouts_per_second"]
    assert low == pytest.approx(256 / (mean(means) + T_90_OF_3 * error), rel=1e-5)
    assert high == pytest.approx(256 / (mean(means) - T_90_OF_3 * error), rel=1e-5)
    assert found.measured.relative_error == pytest.approx(error / mean(means), rel=1e-5)


def test_where_b_p_is_unknown_the_batch_follows_from_rollouts_and_steps() -> None:
    rows = [(batch, step) for batch in (128, 512, 2048) for step in range(1, 6)]
    columns = {
        "run_id": [f"b{batch}" for batch, _ in rows],
        "n": [8] * len(rows),
        "C": [batch * step for batch, step in rows],
        "step": [step for _, step in rows],
        "step_seconds": [30 + batch / 64 for batch, _ in rows],
    }
    found = Throughput.measure(RunSet.from_columns(columns))
    assert (found.step_overhead_seconds, found.rollouts_per_second) == (pytest.approx(30), pytest.approx(64))


def test_stretches_between_gpu_seconds_lie_in_their_middle() -> None:
    rows = [(bp, step) for bp in (16, 64, 256) for step in range(0, 101, 20)]
    columns = {
        "n": [8] * len(rows),
        "bp": [bp for bp, _ in rows],
        "step": [step for _, step in rows],
        "gpu_seconds": [4 * step * (30 + 8 * bp / 64) for bp, step in rows],
        "tokens": [600.0 * 8 * bp * step for bp, step in rows],
        "avg@4": [0.5] * len(rows),
    }
    found = Throughput.measure(RunSet.from_columns(columns), gpus=4)
    assert (found.step_overhead_seconds, found.rollouts_per_second) == (pytest.approx(30), pytest.approx(64))
    assert found.tokens_per_rollout == pytest.approx(600)
    assert found.evaluation_rollouts_per_second is None
    assert found.measured is not None
    assert found.measured.steps == 3 * 100
    assert found.measured.rollouts == 8 * 256 * 90


def study(*, n: list[int], bp: list[int], limit: int | None = None) -> Study:
    return Study(
        name="s",
        model="m",
        data=Data(train="t.jsonl", validation="v.jsonl", reward="r.py"),
        recipe=Recipe.preset("easy", min_problems_per_batch=32),
        sweep=Sweep(
            problems_per_batch=tuple(bp),
            group_size=tuple(n),
            rollouts=1_000_000,
            max_rollouts_per_batch=limit,
        ),
        output_dir="runs/",
    )


@pytest.mark.parametrize(
    ("sizes", "pairs"),
    [
        # 16 x between the smallest and the largest batch: the ends, and the batch nearest to their middle.
        ({"n": [8, 16, 64, 128], "bp": [32]}, ((8, 32), (16, 32), (128, 32))),
        ({"n": [8, 64], "bp": [32, 64]}, ((8, 32), (8, 64), (64, 64))),
        # Less: the middle n at 1, 4 and 16 times the floor.
        ({"n": [8, 16, 64], "bp": [32]}, ((16, 32), (16, 128), (16, 512))),
    ],
)
def test_a_probe_times_three_batches_far_apart(sizes: dict[str, list[int]], pairs: tuple[tuple[int, int], ...]) -> None:
    assert probe_pairs(study(n=sizes["n"], bp=sizes["bp"])) == pairs


powers = st.lists(st.sampled_from([2**i for i in range(3, 10)]), min_size=1, max_size=4, unique=True)


@given(powers, powers, st.integers(0, 3))
def test_batches_of_a_probe_grow_fourfold_or_are_the_ends_of_the_sweep(
    sizes: list[int], problems: list[int], left_out: int
) -> None:
    products = sorted({n * bp for n in sizes for bp in problems})
    kept = products[: max(1, len(products) - left_out)]
    batches = [n * bp for n, bp in probe_pairs(study(n=sorted(sizes), bp=sorted(problems), limit=kept[-1]))]
    assert batches == sorted(batches)
    if kept[-1] >= 16 * kept[0]:
        assert (batches[0], batches[2]) == (kept[0], kept[-1])
        assert batches[1] in kept
    else:
        assert [batch // batches[0] for batch in batches] == [1, 4, 16]


def test_runs_of_a_probe_are_short_and_evaluated_at_both_ends() -> None:
    backend, asked = registry.load("torch").describe(), study(n=[8], bp=[32])
    assert probe_pairs(asked) == ((8, 32), (8, 128), (8, 512))
    runs = probe_runs(asked, backend, [(8, 32), (16, 64)], 3)
    assert all(isinstance(run, RunSpec) and run.update_steps == 3 for run in runs)
    assert [run.evaluation.every_steps for run in runs] == [3, 3]
    assert [(run.group_size, run.problems_per_batch) for run in runs] == [(8, 32), (16, 64)]
    assert runs[1].output_dir == "runs/s-probe/probe-n16-bp64"
    assert all(run.options["save_every_steps"] == 3 for run in runs)
    with pytest.raises(SpecError, match="3 or more"):
        probe_runs(asked, backend, [(8, 32)], 2)
