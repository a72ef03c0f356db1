"""`fit`, `refit` and the published laws as a caller sees them: reproducible, and strict about what is pooled."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import isocompute_sdk as iso
from isocompute_sdk import FitError, Fits, FitsSet, RecordError, RunSet
from tests.parameters import few

Make = Callable[..., RunSet]
LEVELS = [(8, 32), (64, 32), (512, 32)]
COMPUTE = np.geomspace(2e4, 4e6, 16)
PAPER = {"method": "paper"}
METHODS = pytest.mark.parametrize("method", ["surface", "paper"])


def reward(n: int, bp: int, c: float) -> float:
    """A fixed noise, different for every point."""
    noise = 0.004 * np.sin(1000 * np.log(c) * np.log2(n))
    plateau, tau = {8: (0.58, 1e5), 64: (0.65, 4e5), 512: (0.74, 2e6)}[n]
    return float(plateau - (plateau - 0.4) * np.exp(-c / tau) + noise)


@pytest.fixture(scope="module")
def runs(make_runs: Make) -> RunSet:
    return make_runs(reward, LEVELS, COMPUTE)


@pytest.fixture(scope="module")
def reference(runs: RunSet) -> Fits:
    return iso.fit(runs, draws=30)


def wide(runs: RunSet, **columns: Any) -> dict[str, Any]:
    frame = runs.to_polars()
    base = {
        "n": frame["group_size"].to_list(),
        "bp": frame["problems_per_batch"].to_list(),
        "C": frame["rollouts"].to_list(),
        "avg@4": frame["value"].to_list(),
    }
    return base | columns


def test_the_default_method_is_the_surface(runs: RunSet, reference: Fits) -> None:
    assert reference.method == "surface"
    assert reference == iso.fit(runs, draws=30, method="surface")


def drawn(fits: Fits) -> bytes:
    """The bits of everything random in fits."""
    assert fits.surface is not None
    return fits.surface.parameters_DP.tobytes()


def test_the_same_input_gives_the_same_bits(runs: RunSet) -> None:
    reference = iso.fit(runs, draws=20)
    # 0 is the fixed seed, and a default that was given is no other argument.
    assert iso.fit(runs, draws=20, rng=0, compute="rollouts") == reference


def test_seeds_and_generators_agree_and_other_seeds_differ(runs: RunSet) -> None:
    def bits(rng: Any) -> bytes:
        return drawn(iso.fit(runs, draws=10, rng=rng))

    assert bits(7) == bits(np.random.default_rng(7)) == bits(np.int64(7))
    assert bits(7) != bits(8)
    generator = np.random.default_rng(7)
    assert bits(generator) != bits(generator)


def test_fitting_does_not_touch_the_global_generator(runs: RunSet) -> None:
    np.random.seed(3)  # noqa: NPY002
    before = np.random.get_state()[1].tobytes()  # type: ignore[index]  # noqa: NPY002
    iso.fit(runs, draws=5)
    assert np.random.get_state()[1].tobytes() == before  # type: ignore[index]  # noqa: NPY002


def test_the_seed_moves_a_surfaces_predictions_by_less_than_its_intervals(runs: RunSet) -> None:
    a, b = (iso.fit(runs, rng=seed).predict(COMPUTE[4:], 64) for seed in (1, 2))
    assert np.all(np.abs(a.mean - b.mean) < 0.5 * (a.high - a.low))


@METHODS
def test_the_order_of_rows_does_not_matter(runs: RunSet, method: Any) -> None:
    table = wide(runs)
    order = np.random.default_rng(0).permutation(len(table["n"]))
    shuffled = RunSet.from_columns({name: [column[i] for i in order] for name, column in table.items()})
    fits, reference = (iso.fit(one, draws=10, method=method) for one in (shuffled, runs))
    assert fits.curves == reference.curves
    assert fits.law() == reference.law()
    at = fits.predict(COMPUTE, 64).mean
    assert at.tobytes() == reference.predict(COMPUTE, 64).mean.tobytes()


@pytest.mark.parametrize(
    "options",
    few(
        [
            {"rng": 5, "max_rollouts_per_batch": 65_536},
            {"method": "paper", "points": "all", "curve": "logistic", "bin_width": 0.01},
            {},
            {"method": "paper"},
            {"method": "paper", "rng": 5},
        ],
        2,
    ),
)
def test_refitting_equals_fitting_on_all_runs(make_runs: Make, tmp_path: Path, options: dict[str, Any]) -> None:
    first = make_runs(reward, LEVELS[:2], COMPUTE)
    more = make_runs(reward, LEVELS[2:], COMPUTE)
    everything = iso.fit(first.concat(more), draws=20, **options)
    part = iso.fit(first, draws=20, **options)
    assert iso.refit(part, more) == everything
    loaded = Fits.load(part.save(tmp_path / "part.json"))
    assert iso.refit(loaded, more) == everything


@pytest.mark.slow
def test_refitting_continues_runs_and_can_change_options(make_runs: Make) -> None:
    early, late = make_runs(reward, LEVELS, COMPUTE[:8]), make_runs(reward, LEVELS, COMPUTE[8:])
    fits = iso.refit(iso.fit(early, draws=10), late)
    assert fits == iso.fit(make_runs(reward, LEVELS, COMPUTE), draws=10)
    other = iso.refit(iso.fit(early, draws=10), late, method="paper")
    assert other == iso.fit(make_runs(reward, LEVELS, COMPUTE), draws=10, method="paper")


def test_laws_hold_no_runs_to_refit_and_plans_those_that_were_fitted(runs: RunSet) -> None:
    with pytest.raises(FitError, match="guru-math-easy"):
        iso.refit(iso.published("qwen2.5-7b-instruct/guru-math-easy"), runs)
    table = wide(runs)
    both = RunSet.from_columns(table | {"entropy": [3.0 + v for v in table["avg@4"]]})
    plan = iso.Planner(iso.fit(both, "avg@4", draws=10)).allocate("1M")
    kept = iso.Plan.from_dict(plan.to_dict()).fits
    assert kept is not None
    assert kept.table == both.filter(metric="avg@4")
    assert both.metrics == ("avg@4", "entropy")


def test_a_saved_plan_takes_no_other_speed_than_its_runs() -> None:
    steps = [0, *range(10, 210, 10)]
    rows = [(n, step) for n in (8, 64, 512) for step in steps]
    columns = {
        "n": [n for n, _ in rows],
        "bp": [16] * len(rows),
        "step": [step for _, step in rows],
        "avg@4": [reward(n, 16, float(max(step, 1) * n * 16)) for n, step in rows],
        "step_time": [4.0 + n * 16 / 50 for n, _ in rows],
        # Evaluations take ten times as long.
        "gpu_seconds": [80.0 * (4.0 + n * 16 / 50) * step for n, step in rows],
    }
    fits = iso.fit(RunSet.from_columns(columns), "avg@4", draws=10)
    asked = "40 GPU-hours on 8xH100"
    assert iso.Planner(fits).allocate(asked).throughput is not None
    kept = iso.Plan.from_dict(iso.Planner(fits).allocate("300k").to_dict()).fits
    assert kept is not None
    with pytest.raises(iso.PlanError, match="rollouts per second"):
        iso.Planner(kept).allocate(asked)
    timed = iso.Plan.from_dict(iso.Planner(fits).allocate(asked).to_dict())
    again = iso.Planner.of(timed).allocate(asked)
    assert again.update_steps == timed.update_steps


def test_a_list_of_metrics_gives_each_as_if_fitted_alone(runs: RunSet) -> None:
    table = wide(runs)
    both = RunSet.from_columns(table | {"best@4": [min(1.0, v + 0.1) for v in table["avg@4"]]})
    fits = iso.fit(both, ["best@4", "avg@4"], draws=10, rng=4)
    assert isinstance(fits, FitsSet)
    assert list(fits) == ["best@4", "avg@4"]
    for metric in fits:
        assert fits[metric] == iso.fit(both, metric, draws=10, rng=4)
        assert fits[metric].metric == metric
    assert fits == FitsSet(dict(fits))


def test_bounds_are_checked_for_the_metric_that_is_fitted_and_for_no_other(runs: RunSet) -> None:
    table = wide(runs)
    both = RunSet.from_columns(table | {"entropy": [3.0 + v for v in table["avg@4"]]})
    assert iso.fit(both, "avg@4", draws=4).metric == "avg@4"
    with pytest.raises(FitError, match=r"entropy = 3\.\d+.*\(0\.0, 1\.0\).* 3\.39957 to 3\.69352"):
        iso.fit(both, "entropy")
    assert iso.fit(both, "entropy", bounds=(0, 5), draws=4).bounds == (0, 5)


def test_the_run_and_the_compute_of_an_outlier_are_named(make_runs: Make) -> None:
    runs = make_runs(lambda n, bp, c: 1.2 if (n, c) == (64, COMPUTE[3]) else 0.5, LEVELS, COMPUTE)
    with pytest.raises(FitError, match=r"'n64-bp32-seed0', C = 57,\d\d\d.*avg@4 = 1.2 "):
        iso.fit(runs)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"method": "spline"}, "method = 'spline'; accepted: 'surface', 'paper'"),
        ({"draws": 0}, "draws = 0; accepted by method='surface': 1 or more"),
        ({"draws": -1}, "draws = -1; accepted: a whole number, 0 or more"),
        ({"draws": 20.0}, "draws = 20.0; accepted: a whole number"),
        ({"draws": True}, "draws = True; accepted"),
        ({"rng": -1}, "rng = -1; accepted: a whole number, 0 or more, or a numpy Generator"),
        ({"rng": "seed"}, "rng = 'seed'; accepted"),
        ({"bounds": (1, 0)}, r"bounds = \(1, 0\); accepted: \(lowest, highest\) value of the metric"),
        ({"bounds": (0, float("inf"))}, "bounds = .*finite and increasing"),
        ({"bounds": (0, 1, 2)}, r"bounds = \(0, 1, 2\); accepted"),
        ({"bounds": None}, "bounds = None; accepted"),
        ({"points": "all"}, r"no option of method 'surface': points.*\n.*method='paper'"),
        ({"curve": "hill", "bin_width": 0.01}, r"no option of method 'surface': bin_width, curve"),
        (PAPER | {"points": "best"}, "points = 'best'; accepted: 'records', 'all'"),
        (PAPER | {"bin_width": 0}, "bin_width = 0; accepted: a share of the metric's range, 0 < width <= 1"),
        (PAPER | {"bin_width": 1.5}, "bin_width = 1.5; accepted"),
        (PAPER | {"bin_width": float("nan")}, "bin_width = nan; accepted"),
        (PAPER | {"bin_width": "small"}, "bin_width = 'small'; accepted"),
        (
            PAPER | {"curve": "sigmoid"},
            "unknown curve 'sigmoid'; accepted: auto, saturating_exponential, logistic, hill",
        ),
        (PAPER | {"curve": "hill"}, "curve 'hill' needs the reward at step 0"),
        ({"compute": "flops"}, "compute = 'flops'; accepted: rollouts, tokens"),
        ({"compute": "tokens"}, "run 'n8-bp32-seed0' has no tokens"),
        ({"max_rollouts_per_batch": 0}, "max_rollouts_per_batch = 0; accepted: a whole number, 1 or more"),
        ({"max_rollouts_per_batch": "64k"}, "max_rollouts_per_batch = '64k'; accepted"),
        ({"rollouts_per_batch": 2.5}, "rollouts_per_batch = 2.5; accepted"),
        (
            {"smooth": True},
            r"no option of method 'surface': smooth; accepted: compute, max_rollouts_per_batch",
        ),
        (PAPER | {"smooth": True}, r"method 'paper': smooth; accepted: bin_width, compute, curve, max_rollouts"),
        ({"metric": []}, "metric is an empty list"),
        ({"metric": 4}, "metric is 4; accepted: a metric name or a list of them"),
        ({"metric": ["avg@4", None]}, r"metric is \['avg@4', None\]; accepted"),
        ({"method": ["surface"]}, r"method = \['surface'\]; accepted"),
        ({"compute": ["tokens"]}, r"compute = \['tokens'\]; accepted: rollouts, tokens"),
        (PAPER | {"curve": ["hill"]}, r"unknown curve \['hill'\]; accepted"),
        ({"bounds": "01"}, "bounds = '01'; accepted"),
        ({"pool": 3}, "pool names 3; accepted: model"),
        (
            {"bounds": (-1e12, 1e12)},
            r"avg@4 spans .* bounds = \(-1000000000000.0, 1000000000000.0\)",
        ),
        ({"pool": ("lr",)}, "pool names lr; accepted: model, train_data, algorithm, learning_rate"),
    ],
)
def test_bad_arguments_are_refused_with_what_is_accepted(runs: RunSet, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(FitError, match=message) as caught:
        iso.fit(runs, **arguments)
    assert caught.value.hint


@pytest.mark.parametrize("given", [None, "runs.csv", {"n": [8]}, 5])
def test_what_is_no_run_set_is_refused_with_how_to_make_one(runs: RunSet, reference: Fits, given: Any) -> None:
    for call in (iso.fit, iso.audit, partial(iso.refit, reference), runs.concat):
        with pytest.raises(RecordError, match=r"RunSet\n.*\.(read|from_columns)\("):
            call(given)


def test_a_metric_or_evaluation_set_that_is_not_there_is_refused(runs: RunSet) -> None:
    with pytest.raises(RecordError, match=r"'best@4'.*avg@4") as caught:
        iso.fit(runs, "best@4")
    assert caught.value.options == ("--metric avg@4",)
    assert "metric='avg@4'" in str(caught.value.hint)
    frame = runs.to_polars().with_columns(framework=pl.lit("trl"), metric=pl.lit("avg@?"))
    with pytest.raises(RecordError, match=r"eval_reward .* read as avg@\?"):
        iso.fit(RunSet(frame), "eval_reward")
    with pytest.raises(RecordError, match=r"'aime24'.*validation"):
        iso.fit(runs, eval_set="aime24")


def test_one_of_several_evaluation_sets_must_be_named(runs: RunSet, make_runs: Make) -> None:
    other = make_runs(lambda *a: reward(*a) / 2, LEVELS, COMPUTE, eval_set="aime24")
    both = runs.concat(other)
    with pytest.raises(RecordError, match="aime24, validation"):
        iso.fit(both)
    half = iso.fit(both, eval_set="aime24", draws=4)
    assert half.eval_set == "aime24"
    assert half.curves == iso.fit(other, draws=4).curves
    assert iso.refit(half, _level_32(make_runs)).group_sizes == (8, 32, 64, 512)


def _level_32(make_runs: Make) -> RunSet:
    return make_runs(lambda n, bp, c: reward(8, bp, c) / 2 + 0.01, [(32, 32)], COMPUTE, eval_set="aime24")


def test_one_group_size_cannot_show_the_best(make_runs: Make) -> None:
    for levels in ([(8, 32)], [(8, 32), (8, 64)]):
        fits = iso.fit(make_runs(reward, levels, COMPUTE), draws=10)
        assert "few-group-sizes" in {note.code for note in fits.notes}
        with pytest.raises(FitError, match="'group_size'"):
            fits.law()
        with pytest.raises(FitError, match=r"1 group size.*'avg@4'") as caught:
            iso.fit(make_runs(reward, levels, COMPUTE), method="paper")
        assert caught.value.hint


FIELDS = {
    "model": ("a", "b"),
    "train_data": ("easy", "hard"),
    "algorithm": ("grpo", "ppo"),
    "learning_rate": (1e-6, 2e-6),
    "kl_coef": (0.0, 1e-3),
    "entropy_coef": (0.0, 1e-3),
    "updates_per_batch": (1, 2),
    "max_tokens": (4096, 8192),
    "eval_temperature": (0.6, 1.0),
    "n_problems": (500, 6000),
}


@pytest.mark.parametrize("field", few(FIELDS, {"model", "learning_rate", "n_problems"}))
def test_runs_that_differ_in_context_are_pooled_only_when_told(make_runs: Make, field: str) -> None:
    one, other = FIELDS[field]
    mixed = make_runs(reward, LEVELS[:2], COMPUTE, **{field: one}).concat(
        make_runs(reward, LEVELS[2:], COMPUTE, **{field: other})
    )
    with pytest.raises(FitError, match=f"{field} .*{other!r}") as caught:
        iso.fit(mixed)
    assert caught.value.hint is not None
    assert f"pool=('{field}',)" in caught.value.hint
    pooled = iso.fit(mixed, pool=(field,), draws=4)
    assert pooled.group_sizes == (8, 64, 512)
    assert [n.data["field"] for n in pooled.notes if n.code == "group-size-confounded"] == [field]
    if field == "model":
        assert iso.fit(mixed, pool=field, draws=4) == pooled


def test_averages_over_more_or_fewer_samples_are_fitted_together(make_runs: Make) -> None:
    first = make_runs(reward, LEVELS[:2], COMPUTE, eval_samples=4)
    fits = iso.fit(first.concat(make_runs(reward, LEVELS[2:], COMPUTE, eval_samples=16)), draws=4)
    assert fits.group_sizes == (8, 64, 512)
    assert "group-size-confounded" not in {note.code for note in fits.notes}


def test_runs_of_another_metric_or_evaluation_set_do_not_have_to_agree(runs: RunSet, make_runs: Make) -> None:
    for name, severity in (("entropy", None), ("val/accuracy", "warning"), ("train_reward", "info")):
        other = make_runs(lambda *_: 0.5, [(16, 32)], COMPUTE, name, model="b")
        fits = iso.fit(runs.concat(other), draws=4)
        assert fits.group_sizes == (8, 64, 512)
        told = [note for note in fits.notes if note.code == "run-left-out"]
        assert [note.severity for note in told] == ([] if severity is None else [severity])
        assert all(note.data == {"metric": name, "runs": list(other.run_ids)} for note in told)
        assert all((f"--rename {name}=avg@4" in note.message) == (severity == "warning") for note in told)
    assert fits.model is None


def test_unknown_context_pools_with_unknown_only_unless_it_is_said_to_be_alike(runs: RunSet, make_runs: Make) -> None:
    assert "group-size-confounded" not in {note.code for note in iso.fit(runs, draws=4).notes}
    known = make_runs(lambda *a: reward(8, *a[1:]), [(16, 32)], COMPUTE, model="a")
    with pytest.raises(FitError, match="do not state model") as caught:
        iso.fit(runs.concat(known))
    assert "pool=('unstated',)" in caught.value.hint
    fits = iso.fit(runs.concat(known), pool="unstated", draws=4)
    assert fits.model == "a"
    (note,) = (one for one in fits.notes if one.code == "context-taken-for-granted")
    assert note.data["fields"] == ["model"]
    other = make_runs(lambda *a: reward(8, *a[1:]), [(32, 32)], COMPUTE, model="b")
    with pytest.raises(FitError, match="model: 'a', 'b'"):
        iso.fit(runs.concat(known).concat(other), pool="unstated")


def test_a_field_that_varies_within_every_group_size_is_not_confounded(make_runs: Make) -> None:
    both = make_runs(reward, LEVELS, COMPUTE, seed=0, learning_rate=1e-6).concat(
        make_runs(reward, LEVELS, COMPUTE, seed=1, learning_rate=2e-6)
    )
    fits = iso.fit(both, pool=("learning_rate",), draws=4)
    assert "group-size-confounded" not in {note.code for note in fits.notes}


def test_the_context_that_all_runs_share_travels_with_the_fits(make_runs: Make) -> None:
    runs = make_runs(reward, LEVELS, COMPUTE, model="Qwen/Qwen3-4B-Instruct", n_problems=6000)
    fits = iso.fit(runs, draws=4)
    assert (fits.model, fits.n_problems) == ("Qwen/Qwen3-4B-Instruct", 6000)
    plan = iso.Planner(fits).allocate("1M")
    assert plan.model == "Qwen/Qwen3-4B-Instruct"
    assert plan.epochs == plan.update_steps * plan.problems_per_batch / 6000


@pytest.mark.slow
def test_numpy_scalars_are_as_good_as_python_numbers(runs: RunSet, tmp_path: Path) -> None:
    fits = iso.fit(
        runs,
        draws=np.int64(10),
        rng=np.int32(3),
        bounds=np.array([0.0, 1.0]),
        max_rollouts_per_batch=np.int64(65_536),
    )
    assert fits == iso.fit(runs, draws=10, rng=3, max_rollouts_per_batch=65_536)
    binned = iso.fit(runs, draws=2, bin_width=np.float64(0.01), method="paper")
    assert binned == iso.fit(runs, draws=2, bin_width=0.01, method="paper")
    assert Fits.load(fits.save(tmp_path / "fits.json")) == fits


def test_fractional_steps_from_digitised_compute_are_fitted(make_runs: Make) -> None:
    runs = make_runs(reward, LEVELS, COMPUTE + 0.123)
    assert any(step % 1 for step in runs.to_polars()["step"])
    assert iso.fit(runs, draws=4).law() is not None


def test_launch_scripts_need_a_model_and_take_the_plans(make_runs: Make, reference: Fits) -> None:
    plan = iso.Planner(reference).allocate("1M")
    with pytest.raises(iso.PlanError, match="model"):
        plan.launch_script()
    named = iso.Planner(iso.fit(make_runs(reward, LEVELS, COMPUTE, model="Qwen/Qwen3-4B"), draws=4)).allocate("1M")
    assert "Qwen/Qwen3-4B" in named.launch_script(reward="reward.py")
    assert "other/model" in named.launch_script(model="other/model")


def test_a_plan_becomes_a_run_with_the_same_numbers(reference: Fits) -> None:
    from isocompute_sdk.api import run_spec

    plan = iso.Planner(reference, iso.Hardware(gpus=8)).allocate("1M", n_problems=6000)
    run = run_spec(plan, model="m", train_data="a.jsonl", eval_data="b.jsonl", reward="r.py", output_dir="out", seed=3)
    assert (run.group_size, run.problems_per_batch, run.update_steps) == (
        plan.group_size,
        plan.problems_per_batch,
        plan.update_steps,
    )
    assert run.rollouts == plan.rollouts
    assert run.learning_rate == plan.learning_rate
    assert (run.seed, run.output_dir, run.data.n_problems) == (3, "out", 6000)
    assert run.recipe == plan.recipe
    assert run.hardware == plan.hardware


def test_what_readers_found_in_logs_travels_with_fits_once_a_code() -> None:
    columns = {"n": [4] * 6 + [8] * 6 + [16] * 6, "B_p": [32] * 18, "step": [0, 10, 20, 40, 80, 160] * 3}
    reward = [0.2 + 0.02 * np.log2(n) * np.log1p(step) for n, step in zip(columns["n"], columns["step"], strict=True)]
    plain = iso.RunSet.from_columns({**columns, "reward": reward}, metric="avg@4")
    names = plain.run_ids
    late = [(name, f"run {name!r} begins late.") for name in names[:2]]
    found = [iso.Note("log-starts-late", "warning", message, {"run_id": name}) for name, message in late]
    runs = iso.RunSet(plain.to_polars(), found)
    (note,) = [note for note in iso.fit(runs, draws=4).notes if note.code == "log-starts-late"]
    assert note.message.startswith(f"run {names[0]!r} begins late.")
    assert note.data["also"] == [names[1]]
    others = runs.filter(run_id=list(names[2:]))
    assert "log-starts-late" not in {note.code for note in iso.fit(others, draws=4).notes}


@pytest.mark.parametrize(("rates", "pooled"), [((1e-6, 2e-6 * 2**0.5, 8e-6), True), ((1e-6, 2e-6, 8e-6), False)])
def test_learning_rates_of_one_rule_over_three_batches_are_pooled_unasked(
    make_runs: Callable[..., iso.RunSet], rates: tuple[float, ...], pooled: bool
) -> None:
    parts = [
        make_runs(reward, [(n, 32)], COMPUTE, seed=0, learning_rate=rate)
        for n, rate in zip((8, 64, 512), rates, strict=True)
    ]
    runs = parts[0].concat(*parts[1:])
    if not pooled:
        with pytest.raises(iso.IsoComputeError, match="learning_rate"):
            iso.fit(runs, draws=4)
        return
    fits = iso.fit(runs, draws=4)
    assert len(fits.group_sizes) == 3
    # Two batch sizes agree on a rule too easily.
    with pytest.raises(iso.IsoComputeError, match="learning_rate"):
        iso.fit(parts[0].concat(parts[1]), draws=4)
    # Of batches that nobody knows there is no rule.
    with pytest.raises(iso.IsoComputeError, match="learning_rate"):
        iso.fit(iso.RunSet.from_frame(runs.to_polars().with_columns(problems_per_batch=None)), draws=4)


def test_evaluation_sets_of_other_names_are_fitted_together_where_they_are_the_same_problems(
    make_runs: Callable[..., RunSet],
) -> None:
    compute = np.geomspace(1e3, 1e5, 8)
    runs = make_runs(lambda n, bp, c: 0.3 + 0.1 * np.log10(c) * n / 64, [(8, 32), (32, 32)], compute)
    table = runs.to_polars()
    named = table.with_columns(eval_set=pl.when(pl.col("group_size") == 8).then(pl.lit("other")).otherwise("eval_set"))
    apart = RunSet.from_frame(named)
    with pytest.raises(FitError) as caught:
        iso.fit(apart, "avg@4", draws=4)
    assert caught.value.options == ("--pool eval_set",)
    # Not where the rewards of their base models show that they are not.
    unlike = make_runs(lambda n, bp, c: n / 80 + 1e-6 * c, [(8, 32), (16, 32), (32, 32)], np.linspace(0, 1e5, 8))
    other = pl.when(pl.col("group_size") == 8).then(pl.lit("a")).otherwise(pl.lit("b")).alias("eval_set")
    with pytest.raises(RecordError) as chosen:
        iso.fit(RunSet.from_frame(unlike.to_polars().with_columns(other)), "avg@4", draws=4)
    assert chosen.value.options == ("--eval-set b",)
    together = iso.fit(apart, "avg@4", pool="eval_set", draws=4)
    assert together.best_group_size([1e5]) == iso.fit(runs, "avg@4", draws=4).best_group_size([1e5])
    both = RunSet.from_frame(pl.concat([table, table.with_columns(eval_set=pl.lit("other"))]))
    with pytest.raises(RecordError) as several:
        iso.fit(both, "avg@4", pool="eval_set")
    assert "--eval-set" in str(several.value.options)
    # Of a named set, the runs that lack it have it under another name.
    new = make_runs(lambda n, bp, c: 0.3 + 0.1 * np.log10(c) * n / 64, [(64, 32)], compute, eval_set="new")
    mixed = both.concat(new)
    left = iso.fit(mixed, "avg@4", "validation", draws=4)
    (note,) = (note for note in left.notes if note.code == "run-left-out")
    assert (left.group_sizes, note.data["runs"], "--pool eval_set" in note.message) == ((8, 32), [*new.run_ids], True)
    assert iso.fit(mixed, "avg@4", "validation", pool="eval_set", draws=4).group_sizes == (8, 32, 64)


def test_an_average_on_another_evaluation_set_does_not_stand_in(runs: RunSet) -> None:
    table = runs.to_polars()
    hard = table.with_columns(metric=pl.lit("avg@32"), eval_set=pl.lit("aime24"), value=pl.col("value") / 2)
    both = RunSet.from_frame(pl.concat([table.with_columns(eval_set=pl.lit("math")), hard]))
    for asked, fitted in ((None, runs), ("aime24", RunSet.from_frame(hard))):
        fits = iso.fit(both, eval_set=asked, draws=4)
        alone = iso.fit(fitted, draws=4)
        assert fits.metric == alone.metric
        assert fits.best_group_size([1e5]) == alone.best_group_size([1e5])
        assert "run-left-out" not in {note.code for note in fits.notes}
    name, *others = runs.run_ids
    apart = both.filter(run_id=others, metric="avg@4").concat(both.filter(run_id=name, metric="avg@32"))
    assert iso.forecast(apart, name).to_dict() == iso.forecast(apart.filter(run_id=name), metric="avg@32").to_dict()
