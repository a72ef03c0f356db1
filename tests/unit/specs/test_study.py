"""A study expands to complete runs, and refuses batches that cannot run."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isocompute_sdk.errors import SpecError
from isocompute_sdk.specs import (
    Data,
    Evaluation,
    Hardware,
    Recipe,
    RunSpec,
    Study,
    Sweep,
    dump_spec,
    parse_spec,
)

DATA = Data(train="train.jsonl", validation="validation.jsonl", reward="reward.py", n_problems=6000)
SWEEP = Sweep(group_size=(8, 16), problems_per_batch=(32, 64), update_steps=50, seeds=(0, 1))


def study(**changes: object) -> Study:
    base: dict[str, object] = {"name": "s", "model": "m", "data": DATA, "recipe": "hard", "sweep": SWEEP}
    return Study.model_validate({**base, **changes})


def run(**changes: object) -> RunSpec:
    base: dict[str, object] = {
        "run_id": "r",
        "model": "m",
        "data": DATA,
        "recipe": "easy",
        "group_size": 8,
        "problems_per_batch": 32,
        "update_steps": 100,
    }
    return RunSpec.model_validate({**base, **changes})


def test_every_run_inherits_the_study() -> None:
    shared = {
        "evaluation": Evaluation(samples=16),
        "hardware": Hardware(gpus=8),
        "backend": "verl",
        "options": {"nodes": 2},
    }
    runs = study(**shared, output_dir="out/").expand()
    assert len(runs) == 8
    for one in runs:
        assert (one.model, one.data, one.recipe) == ("m", DATA, Recipe.preset("hard"))
        assert {name: getattr(one, name) for name in shared} == shared
        assert one.output_dir == f"out/s/{one.run_id}"


@settings(deadline=None)
@given(st.lists(st.integers(2, 99), min_size=1, max_size=4, unique=True), st.sets(st.integers(0, 9), min_size=1))
def test_run_ids_are_unique_and_safe_as_folder_names(group_size: list[int], seeds: set[int]) -> None:
    sweep = {"group_size": group_size, "problems_per_batch": [1, 11], "update_steps": 1, "seeds": [*seeds]}
    ids = [one.run_id for one in study(sweep=sweep).expand()]
    assert len({*ids}) == len(ids)
    assert all(re.fullmatch(r"n\d+-bp\d+-seed\d+", run_id) for run_id in ids)


def test_a_learning_rate_is_swept_under_names_of_its_own() -> None:
    rates = [1e-5, 3e-5]
    runs = study(sweep={**SWEEP.model_dump(), "learning_rate_anchor": rates}).expand()
    assert len(runs) == len({one.run_id for one in runs}) == 2 * len(study().expand())
    assert {one.run_id: one.recipe.learning_rate_anchor for one in runs if one.group_size == 8 and one.seed == 0} == {
        f"n8-bp{bp}-lr{rate:g}-seed0": rate for bp in (32, 64) for rate in rates
    }
    assert runs[0].learning_rate == runs[0].recipe.learning_rate(runs[0].rollouts_per_batch)


@pytest.mark.parametrize("count", [1, 5, 25])
def test_evaluations_by_count_come_after_the_same_rollouts_for_every_group_size(count: int) -> None:
    sweep = {"group_size": [4, 16, 64], "problems_per_batch": 8, "rollouts": 60_000}
    for one in study(sweep=sweep, evaluation={"count": count}).expand():
        steps = sorted(one.evaluation.steps(one.update_steps))
        assert len(steps) == count + 1
        for i, step in enumerate(steps):
            assert abs(step * one.rollouts_per_batch - i * 60_000 / count) <= one.rollouts_per_batch
        assert abs(one.evaluation.every_steps - one.update_steps / count) <= 0.5
        longer = one.replace(update_steps=2 * one.update_steps)
        assert abs(longer.evaluation.every_steps - longer.update_steps / count) <= 0.5


def test_a_study_without_sweep_says_so_when_expanded() -> None:
    with pytest.raises(SpecError, match=r"'s'.*sweep"):
        study(sweep=None).expand()


def test_single_runs_stand_beside_the_sweep_and_replace_the_length_of_its_runs() -> None:
    runs = [
        {"group_size": 8, "problems_per_batch": 32, "update_steps": 90},
        {"group_size": 128, "problems_per_batch": 32, "update_steps": 7, "seed": 3},
    ]
    both = study(runs=runs)
    lengths = {one.run_id: one.update_steps for one in both.expand()}
    assert len(lengths) == 9
    assert lengths["n8-bp32-seed0"] == 90
    assert lengths["n8-bp32-seed1"] == 50
    assert lengths["n128-bp32-seed3"] == 7
    assert parse_spec(dump_spec(both), Study) == both
    assert study(runs=runs, sweep=None, budget="3M").designed is None
    assert len(study(runs=runs, sweep=None).expand()) == 2
    with pytest.raises(SpecError):
        study(runs=runs, hardware={"max_rollouts_per_batch": 2048})


@pytest.mark.parametrize(
    ("hardware", "why"),
    [
        ({"gpus": 24}, ".*256.*24"),
        ({"max_rollouts_per_batch": 512}, ".*1024.*max_rollouts_per_batch = 512"),
    ],
)
def test_a_sweep_with_batches_that_the_hardware_cannot_take_is_refused(hardware: object, why: str) -> None:
    with pytest.raises(SpecError, match=rf"Study\.sweep: group_size = \d+ with problems_per_batch = \d+: {why}"):
        study(hardware=hardware)


def test_a_batch_that_cannot_be_cut_into_updates_is_refused() -> None:
    with pytest.raises(SpecError, match="updates_per_batch = 3"):
        study(recipe={"updates_per_batch": 3})
    with pytest.raises(SpecError, match=r"RunSpec.*256"):
        run(recipe={"updates_per_batch": 3})


@pytest.mark.parametrize("run_id", ["", ".", "..", "a/b", "a b", "-rf", "a\nb", "x" * 129, "ä", "$(id)"])
def test_a_run_id_that_is_unsafe_on_a_command_line_is_refused(run_id: str) -> None:
    with pytest.raises(SpecError, match=r"RunSpec\.run_id"):
        run(run_id=run_id)


@pytest.mark.parametrize("model", ["", "  ", "a\nb", "a\0b", "a\u2028b", None, 3])
def test_text_is_one_line_and_not_empty(model: object) -> None:
    with pytest.raises(SpecError, match=r"RunSpec\.model"):
        run(model=model)


@pytest.mark.parametrize("value", [None, [1], {"a": 1}, float("nan"), 10**400, "nul\0"])
def test_options_are_scalars(value: object) -> None:
    with pytest.raises(SpecError, match=r"RunSpec\.options\.x"):
        run(options={"x": value})


def test_a_login_in_the_name_of_a_model_is_refused_and_not_repeated() -> None:
    name = "https://me:secret@hub.example/org/model"
    for make in (run, study):
        with pytest.raises(SpecError) as caught:
            make(model=name)
        assert "secret" not in str(caught.value)
        assert make(model="https://hub.example/org/model@main").model.endswith("@main")
