"""What plans say: ties, ranges, refusals, notes; each note appears when it should and only then."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import isocompute_sdk as iso
from isocompute_sdk.errors import DocumentError
from isocompute_sdk.laws import digitised, measured_easy

EASY, HARD = "qwen2.5-7b-instruct/guru-math-easy", "qwen2.5-7b-instruct/guru-math-hard"
QWEN = "Qwen/Qwen2.5-7B-Instruct"


def codes(plan: iso.Plan) -> set[str]:
    return {note.code for note in plan.notes}


@pytest.fixture(scope="module")
def measured() -> iso.Fits:
    columns, context = measured_easy()
    return iso.fit(iso.RunSet.from_columns(columns, metric="avg@4", **context), points="all", method="paper")


@pytest.mark.parametrize("source", ["published", "measured"])
def test_at_3m_on_easy_256_and_512_tie_and_64_does_not(source: str, measured: iso.Fits) -> None:
    plan = iso.Planner(iso.published(EASY) if source == "published" else measured).allocate("3M")
    ties = {a.group_size for a in plan.alternatives if a.kind == "near-tie"} | {plan.group_size}
    assert ties == {256, 512}
    assert "near-tie" in codes(plan)


def test_a_clear_winner_has_no_tie(measured: iso.Fits) -> None:
    plan = iso.Planner(measured).allocate("4M")
    assert plan.group_size == 512
    assert "near-tie" not in codes(plan)


def test_constants_of_another_model_are_named_unless_the_model_is_that_one() -> None:
    fits = iso.published(EASY)
    assert "constants-of-another-model" in codes(iso.Planner(fits).allocate("3M"))
    assert "constants-of-another-model" not in codes(iso.Planner(fits, model=QWEN).allocate("3M"))
    assert "constants-of-another-model" not in codes(
        iso.Planner(fits, model="local/qwen2.5-7b-instruct").allocate("3M")
    )
    assert "constants-of-another-model" in codes(iso.Planner(iso.published_prior(), model="a/b").allocate("3M"))


def test_a_published_law_for_another_model_needs_consent_and_predicts_no_reward() -> None:
    with pytest.raises(iso.PlanError, match="32-fold"):
        iso.Planner(iso.published(EASY), model="meta/llama")
    plan = iso.Planner(iso.published(EASY), model="meta/llama", allow_other_model=True).allocate("3M")
    assert "constants-of-another-model" in codes(plan)
    assert plan.predicted_reward is None
    assert plan.reward_interval is None


def test_without_data_the_answer_is_a_range_over_all_published_pairs_with_a_pilot() -> None:
    plan = iso.Planner(iso.published_prior()).allocate("10M")
    assert plan.group_size_interval is not None
    low, high = plan.group_size_interval
    assert low <= 16
    assert high == 512
    assert 16 <= plan.group_size <= 128
    assert plan.predicted_reward is None
    assert plan.pilot is not None
    assert sum(a.rollouts for a in plan.pilot.expand()) <= 0.2 * 10e6
    assert "prior-over-published-models" in codes(plan)


def test_the_prior_chooses_by_least_expected_regret() -> None:
    plan = iso.Planner(iso.published_prior()).allocate("10M")
    losses = [a.expected_loss for a in plan.alternatives]
    assert losses
    assert all(loss is not None and loss >= 0 for loss in losses)


def test_a_law_without_curves_predicts_no_reward_and_names_the_neighbour() -> None:
    plan = iso.Planner(iso.published(f"{EASY}:joint")).allocate("1.2M")
    assert plan.predicted_reward is None
    assert {a.kind for a in plan.alternatives} <= {"next-power-of-two", "conservative"}


@pytest.mark.parametrize(
    ("factor", "code"), [(2, "extrapolation"), (5, "extrapolation-beyond-3x"), (20, "extrapolation-beyond-10x")]
)
def test_extrapolation_is_said_with_its_ratio(measured: iso.Fits, factor: int, code: str) -> None:
    assert measured.largest_compute is not None
    plan = iso.Planner(measured).allocate(measured.largest_compute * factor, spend="all")
    assert plan.extrapolation == pytest.approx(factor, rel=0.03)
    assert code in codes(plan)
    inside = iso.Planner(measured).allocate(measured.largest_compute * 0.9)
    assert not {c for c in codes(inside) if c.startswith("extrapolation")}


def test_beyond_the_grid_only_on_request_and_with_the_on_grid_answer(measured: iso.Fits) -> None:
    planner = iso.Planner(measured)
    stays = planner.allocate("40M")
    assert stays.group_size == 512
    assert "group_size_grid" in stays.binding
    goes = planner.allocate("40M", beyond_grid=2)
    assert goes.group_size > 512
    assert "beyond-grid" in codes(goes)
    assert goes.predicted_reward is None
    assert [a.group_size for a in goes.alternatives if a.kind == "on-grid"] == [512]


def test_small_sets_and_many_epochs() -> None:
    planner = iso.Planner(iso.published(EASY))
    few = planner.allocate("3M", n_problems=500)
    assert "small-problem-set" in codes(few)
    assert few.epochs == pytest.approx(few.update_steps * few.problems_per_batch / 500)
    assert "many-epochs" not in codes(few)
    assert "many-epochs" in codes(planner.allocate("3M", n_problems=50))
    plenty = planner.allocate("3M", n_problems=6000)
    assert not codes(plenty) & {"small-problem-set", "many-epochs"}
    assert planner.allocate("3M").epochs is None


def test_both_large_is_a_guess() -> None:
    planner = iso.Planner(iso.published(EASY))
    assert "batch-and-group-both-large" in codes(planner.allocate("30M", problems_per_batch=512))
    assert "batch-and-group-both-large" not in codes(planner.allocate("30M"))


def test_few_steps_and_the_floor() -> None:
    planner = iso.Planner(iso.published(EASY))
    assert "few-update-steps" in codes(planner.allocate("2M", problems_per_batch=256))
    assert "few-update-steps" not in codes(planner.allocate("3M"))
    assert "below-stability-floor" in codes(planner.allocate("3M", problems_per_batch=8))
    assert "below-stability-floor" not in codes(planner.allocate("3M"))


def test_fewer_steps_than_twice_the_warm_up_need_consent() -> None:
    planner = iso.Planner(iso.published(EASY))
    with pytest.raises(iso.PlanError, match="min_update_steps"):
        planner.allocate("3M", update_steps=12)
    assert planner.allocate("3M", update_steps=12, min_update_steps=12).update_steps == 12


def test_the_batch_limit_binds_and_is_named() -> None:
    plan = iso.Planner(iso.published(EASY), iso.Hardware(max_rollouts_per_batch=4096)).allocate("3M")
    assert plan.group_size == 128
    assert plan.binding[0] == "max_rollouts_per_batch"
    assert "plateau-censored-by-batch-limit" in codes(plan)


def test_impossible_constraints_are_refused_without_a_budget() -> None:
    with pytest.raises(iso.PlanError) as refusal:
        iso.Planner(iso.published(EASY), iso.Hardware(max_rollouts_per_batch=128)).allocate("3M")
    assert refusal.value.smallest_budget is None
    assert "max_rollouts_per_batch" in str(refusal.value)


@pytest.mark.parametrize(
    "arguments",
    [
        {"budget": -5},
        {"budget": "3 bananas"},
        {"budget": float("nan")},
        {"budget": "3M", "mode": "bold"},
        {"budget": "3M", "spend": "some"},
        {"budget": "3M", "beyond_grid": -1},
        {"budget": "3M", "problems_per_batch": 0},
        {"budget": "3M", "update_steps": 2.5},
        {"budget": "3M", "n_problems": 0},
        {"budget": "3M", "beyond_grid": None},
        {"budget": "3M", "evaluation_share": "a"},
        {"budget": "3M", "evaluation_share": float("nan")},
        {"budget": "1e30"},
        {"budget": None},
    ],
)
def test_bad_arguments_are_typed_errors(arguments: dict[str, object]) -> None:
    budget = arguments.pop("budget")
    with pytest.raises(iso.IsoComputeError) as caught:
        iso.Planner(iso.published(EASY)).allocate(budget, **arguments)
    assert caught.value.hint


@pytest.mark.parametrize("fits", [None, "fits.json", {"curves": []}])
def test_a_planner_takes_fits_and_nothing_else(fits: Any) -> None:
    with pytest.raises(iso.PlanError, match="fits"):
        iso.Planner(fits)


@pytest.mark.parametrize(
    "argument", [{"hardware": 8}, {"recipe": "easy"}, {"throughput": 5}, {"evaluation": 4}, {"model": 7}]
)
def test_what_a_planner_cannot_use_is_refused_at_once(argument: dict[str, Any]) -> None:
    with pytest.raises(iso.PlanError, match=next(iter(argument))):
        iso.Planner(iso.published(EASY), **argument)


@pytest.mark.parametrize(
    ("part", "value"),
    [("group_size", "8"), ("update_steps", -1), ("cost", None), ("costs", []), ("predicted_reward", "high")],
)
def test_a_plan_whose_numbers_are_none_is_refused(tmp_path: Path, part: str, value: object) -> None:
    path = iso.Planner(iso.published(EASY)).allocate("3M").save(tmp_path / "plan.json")
    path.write_text(json.dumps({**json.loads(path.read_text()), part: value}))
    with pytest.raises(DocumentError) as caught:
        iso.Plan.load(path)
    assert caught.value.field == part


def test_a_result_that_cannot_be_saved_says_why_and_leaves_nothing(tmp_path: Path) -> None:
    plan = iso.Planner(iso.published(EASY)).allocate("3M")
    (tmp_path / "file").write_text("here")
    for target in (tmp_path, tmp_path / "file" / "plan.json", tmp_path / ("x" * 300), Path("/proc/none/plan.json")):
        for result in (plan, iso.published(EASY)):
            with pytest.raises(iso.IsoComputeError):
                result.save(target)
    for none in (None, "", 5, "a\0b"):
        for call in (plan.save, iso.published(EASY).save, iso.Plan.load, iso.Fits.load, iso.load_study):
            with pytest.raises(iso.IsoComputeError, match="path"):
                call(none)  # pyright: ignore[reportArgumentType]
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert not list(tmp_path.parent.glob(f".{tmp_path.name}*"))


def test_flat_curves_say_how_much_is_worth_spending() -> None:
    table = digitised("reward_curves_hard_bp32.csv")
    fits = iso.fit(iso.RunSet.from_columns(table, metric="avg@4"), points="all", method="paper")
    planner = iso.Planner(fits, recipe=iso.Recipe.preset("hard"))
    plan = planner.allocate("60M")
    assert "rest-not-worthwhile" in codes(plan)
    everything = planner.allocate("60M", spend="all")
    assert plan.rollouts < 0.5 * everything.rollouts
    assert everything.rollouts >= 0.97 * 60e6
    assert plan.predicted_reward is not None
    assert everything.predicted_reward is not None
    assert everything.predicted_reward - plan.predicted_reward < 0.005
    assert "rest-not-worthwhile" not in codes(planner.allocate("2M"))


def test_a_budget_in_other_units_without_a_throughput_says_what_is_missing() -> None:
    with pytest.raises(iso.PlanError, match="throughput"):
        iso.Planner(iso.published(EASY)).allocate(iso.Budget(gpu_hours=10))
    with pytest.raises(iso.IsoComputeError, match="usd_per_gpu_hour"):
        iso.Planner(
            iso.published(EASY), throughput=iso.Throughput(step_overhead_seconds=1, rollouts_per_second=10)
        ).allocate(iso.Budget(usd=10))
    with pytest.raises(iso.PlanError, match="tokens"):
        iso.Planner(iso.published(f"{EASY}:tokens")).allocate("3M")


def test_laws_in_steps_need_a_fixed_batch() -> None:
    with pytest.raises(iso.PlanError, match="rollouts_per_batch"):
        iso.Planner(iso.published(f"{EASY}:fixed-batch")).allocate("3M")


def test_few_steps_favour_many_problems_and_many_steps_large_groups() -> None:
    planner = iso.Planner(iso.published(f"{EASY}:fixed-batch"))
    short = planner.allocate(8192 * 30, rollouts_per_batch=8192)
    long = planner.allocate(8192 * 400, rollouts_per_batch=8192)
    assert short.problems_per_batch > long.problems_per_batch
    assert short.group_size < long.group_size


def test_several_metrics_stand_side_by_side_and_far_ones_are_named() -> None:
    steps = [10.0 * 2**i for i in range(8)]
    rows: dict[str, list[float]] = {"n": [], "B_p": [], "step": [], "avg@4": [], "best@4": []}
    for n in (8, 32, 128):
        for step in steps:
            c = n * 32 * step
            rows["n"].append(n)
            rows["B_p"].append(32)
            rows["step"].append(step)
            # avg@4 rewards large n at large C, best@4 small n always.
            rows["avg@4"].append(0.4 + (0.05 + 0.03 * (n >= 32) + 0.03 * (n >= 128)) * c / (c + 2e4 * n / 8))
            rows["best@4"].append(0.8 - 0.05 * (n >= 32) - 0.05 * (n >= 128) + 0.05 * c / (c + 1e4))
    fits = iso.fit(iso.RunSet.from_columns(rows), metric=["avg@4", "best@4"], points="all", draws=20, method="paper")
    plan = iso.Planner(fits).allocate("10M", spend="all")
    assert plan.metric == "avg@4"
    assert plan.group_size == 128
    assert plan.other_metrics == {"best@4": 8}
    assert "metrics-disagree" in codes(plan)


def test_plans_survive_saving_and_still_draw_and_launch(tmp_path: Path, measured: iso.Fits) -> None:
    plan = iso.Planner(measured, iso.Hardware(gpus=8)).allocate("3M")
    again = iso.Plan.load(plan.save(tmp_path / "plan.json"))
    assert again == plan
    assert again.to_dict() == plan.to_dict()
    assert again.launch_script() == plan.launch_script()
    assert QWEN in plan.launch_script()
    assert plan.launch_script(train_data=Path("a b.jsonl")) == plan.launch_script(train_data="a b.jsonl")
    assert plan.summary() == again.summary()
    assert "<table>" in plan._repr_html_()


def test_a_plan_for_an_unnamed_model_wants_one_for_its_script() -> None:
    plan = iso.Planner(iso.published_prior()).allocate("3M")
    with pytest.raises(iso.PlanError, match="model"):
        plan.launch_script()
    assert "org/mine" in plan.launch_script(model="org/mine")
