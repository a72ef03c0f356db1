"""Studies, their recipes and what an error in them says."""

from __future__ import annotations

import pickle
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isocompute_sdk.errors import IsoComputeError, SpecError
from isocompute_sdk.specs import (
    Allocation,
    Budget,
    Data,
    Evaluation,
    Hardware,
    Recipe,
    RunSpec,
    Study,
    Sweep,
    Throughput,
    dump_spec,
    parse_spec,
)
from isocompute_sdk.specs.syntax.complaints import meanings

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


def test_gpus_of_a_budget_are_those_of_its_runs() -> None:
    named = "40 GPU-hours on 8xH100"
    assert study(budget=named).hardware.gpu_counts == (8,)
    assert study(budget=named, hardware={"gpus": [8, 16]}).hardware.gpu_counts == (8, 16)
    # Else those of its speed: what runs cost is counted with the GPUs that they were planned for.
    assert study(throughput={"rollouts_per_second": 20, "gpus": 4}).hardware.gpu_counts == (4,)
    again = Study.model_validate(study(budget=named).model_dump(mode="json", exclude_none=True))
    assert again == study(budget=named)


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


@pytest.mark.parametrize("name", ["hard", "mixture"])
def test_hard_and_mixture_differ_from_easy_in_kl_entropy_and_floor_only(name: str) -> None:
    easy, other = Recipe().model_dump(), Recipe.model_validate(name).model_dump()
    changed = {key: value for key, value in other.items() if value != easy[key]}
    assert changed == {"based_on": name, "name": name, "kl_coef": 0, "entropy_coef": 0, "min_problems_per_batch": 64}


@pytest.mark.parametrize(
    "form",
    [
        {"preset": "hard", "kl_coef": 0.002},
        {"based_on": "hard", "kl_coef": 0.002},
        {"preset": "hard", "kl_coef": "2e-3"},
    ],
)
def test_a_preset_with_changes_keeps_the_rest(form: dict[str, object]) -> None:
    recipe = Recipe.model_validate(form)
    assert recipe == Recipe.preset("hard", kl_coef=0.002)
    assert (recipe.kl_coef, recipe.entropy_coef, recipe.min_problems_per_batch) == (0.002, 0, 64)


@given(st.floats(1, 1e6))
def test_learning_rate_rules_meet_at_the_anchor_and_scale_as_named(batch: float) -> None:
    for rule, power in (("sqrt", 0.5), ("linear", 1.0), ("constant", 0.0)):
        recipe = Recipe.model_validate({"learning_rate_rule": rule})
        assert recipe.learning_rate(1024) == 1e-6
        ratio = recipe.learning_rate(4 * batch) / recipe.learning_rate(batch)
        assert ratio == pytest.approx(4**power, rel=1e-12)


@pytest.mark.parametrize(
    ("form", "complaint"),
    [
        ("hrd", r"Recipe: received 'hrd'; accepted presets: easy, hard, mixture\n  Did you mean hard\?"),
        ({"preset": "esy"}, r"Recipe\.preset: received 'esy'"),
        ({"preset": "easy", "based_on": "easy"}, "preset.*based_on"),
        (7, "7.*easy, hard, mixture"),
        ({"algorithm": "gpro"}, r"algorithm.*'gpro'.*grpo, ppo, cispo\n.*grpo"),
        ({"loss_aggregation": "token_mean"}, "token-mean"),
        ({"normalize_advantage": "yes"}, "normalize_advantage.*'yes'.*true or false"),
        ({"normalize_advantage": 1}, "true or false"),
        ({"adam_betas": 0.9}, r"adam_betas.*0\.9"),
        ({"adam_betas": [0.9, 1]}, r"adam_betas\[1\].* 1;.*< 1"),
        ({"kl_coef": -1}, "kl_coef.*-1;.*>= 0"),
        ({"tis_cap": 0.5}, "tis_cap.*0.5;.*>= 1"),
        ({"top_p": 0}, "top_p.* 0;.*<= 1"),
        ({"warmup_steps": 2.5}, "warmup_steps.*2.5;.*>= 0"),
        ({"learning_rate": 1e-6}, "learning_rate_anchor"),
        (
            {"preset": "hard", "zero_variance_filter_kl": True},
            "zero_variance_filter_kl.*kl_coef",
        ),
    ],
)
def test_wrong_recipes_are_explained(form: object, complaint: str) -> None:
    with pytest.raises(SpecError, match=complaint):
        Recipe.model_validate(form)


STUDY = {
    "name": "s",
    "model": "m",
    "data": {"train": "t", "validation": "v", "reward": "r.py"},
    "recipe": "easy",
    "sweep": {"group_size": [8, 16], "problems_per_batch": 32, "rollouts": "1M"},
}


def complaint(**changes: object) -> str:
    with pytest.raises(SpecError) as caught:
        Study.model_validate({**STUDY, **changes})
    return str(caught.value)


def test_a_spec_error_is_a_value_error_and_survives_pickling() -> None:
    with pytest.raises(ValueError, match="update_steps") as caught:
        Allocation(group_size=8, problems_per_batch=32, update_steps=0)
    assert isinstance(caught.value, IsoComputeError)
    copy = pickle.loads(pickle.dumps(caught.value))
    assert (type(copy), copy.message, copy.hint) == (SpecError, caught.value.message, caught.value.hint)


def test_an_unknown_key_gets_the_close_match_of_its_own_mapping() -> None:
    text = complaint(evaluation={"every_step": 5})
    assert all(part in text for part in ("Study.evaluation.every_step:", " 5;", "every_steps, count, samples"))
    assert text.endswith("Did you mean every_steps?")


@pytest.mark.parametrize(
    ("spec", "key", "meant"),
    [
        (Allocation, "n", "group_size"),
        (Recipe, "lr", "learning_rate_anchor"),
        (Hardware, "B_max", "max_rollouts_per_batch"),
    ],
)
def test_names_of_the_paper_and_of_other_frameworks_are_translated(spec: type, key: str, meant: str) -> None:
    with pytest.raises(SpecError, match=meant):
        spec(**{key: 1})


def test_a_long_list_of_problems_is_cut() -> None:
    text = complaint(options={f"option{i}": None for i in range(30)})
    assert text.startswith("Study: 30 problems\n")
    assert " 20 " in text


def test_fields_cannot_be_assigned() -> None:
    budget = Budget(rollouts=5)
    with pytest.raises(SpecError, match=r"Budget\.rollouts.*\n.*\.replace\(rollouts"):
        budget.rollouts = 6
    with pytest.raises(ValueError, match="frozen"):
        del budget.rollouts
    assert budget == Budget(rollouts=5)


def test_replace_validates_and_leaves_the_original_alone() -> None:
    before = Allocation(group_size=8, problems_per_batch=32, update_steps=10)
    assert before.replace(group_size="16").group_size == 16
    assert before.group_size == 8
    for change in ({"group_size": 1}, {"groups": 2}):
        with pytest.raises(SpecError, match=r"Allocation\.group"):
            before.replace(**change)


@pytest.mark.parametrize(
    "spec", [Allocation, Budget, Data, Evaluation, Hardware, Recipe, Study, Sweep, Throughput], ids=lambda s: s.__name__
)
def test_every_field_is_documented(spec: type[Study]) -> None:
    assert meanings(spec).keys() == spec.model_fields.keys()
