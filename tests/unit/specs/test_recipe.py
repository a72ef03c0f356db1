"""The recipes of paper section 3, their changes, and where each value comes from."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isocompute_sdk.errors import SpecError
from isocompute_sdk.specs import PRESET_NAMES, Recipe

EASY_AS_STATED = {
    "algorithm": "grpo",
    "normalize_advantage": True,
    "std_epsilon": 1e-6,
    "kl_coef": 1e-3,
    "kl_estimator": "k3",
    "kl_in": "loss",
    "entropy_coef": 1e-3,
    "zero_variance_filter_policy": False,
    "zero_variance_filter_kl": False,
    "zero_variance_filter_entropy": False,
    "learning_rate_rule": "sqrt",
    "learning_rate_anchor": 1e-6,
    "learning_rate_anchor_batch": 1024,
    "warmup_steps": 10,
    "adam_betas": (0.9, 0.999),
    "weight_decay": 0.0,
    "gradient_clip": 1.0,
    "ratio_clip": 0.2,
    "importance_sampling": "tis",
    "tis_cap": 2.0,
    "loss_aggregation": "token-mean",
    "temperature": 0.6,
    "top_p": 1.0,
    "max_response_tokens": 8192,
    "updates_per_batch": 1,
    "min_problems_per_batch": 32,
}


def test_the_easy_preset_has_the_stated_values() -> None:
    recipe = Recipe.preset("easy")
    assert {name: getattr(recipe, name) for name in EASY_AS_STATED} == EASY_AS_STATED
    assert Recipe() == recipe


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


def test_learning_rate_at_8192_is_the_papers() -> None:
    assert Recipe().learning_rate(8192) == pytest.approx(2.8284271247461903e-6, rel=1e-12)


def test_sources_tell_printed_assumed_and_changed_values_apart() -> None:
    sources = Recipe.preset("hard", temperature=1.0).sources()
    assert sources["temperature"] == "user"
    assert sources["learning_rate_anchor"] == sources["kl_coef"] == sources["entropy_coef"] == "paper section 3"
    assert sources["tis_cap"] == sources["adam_betas"] == sources["min_problems_per_batch"] == "assumed"
    assert Recipe().sources()["kl_coef"] == "assumed"


@pytest.mark.parametrize("name", PRESET_NAMES)
def test_every_field_but_the_labels_has_a_source(name: str) -> None:
    recipe = Recipe.model_validate(name)
    assert {*recipe.sources()} == {*Recipe.model_fields} - {"based_on", "name"}
    assert {*recipe.sources().values()} == {"paper section 3", "assumed"}


def test_every_field_says_its_source_in_its_documentation() -> None:
    for name, field in Recipe.model_fields.items():
        extra = field.json_schema_extra
        if isinstance(extra, dict):
            text = " ".join((field.description or "").split())
            assert str(extra["source"]) in text or "ppo only" in text, name


@pytest.mark.parametrize(("kl", "entropy"), [(0.001, 0), (0, 0.001)])
def test_kl_or_entropy_alone_is_allowed_with_a_warning(kl: float, entropy: float) -> None:
    (note,) = Recipe(kl_coef=kl, entropy_coef=entropy).notes()
    assert (note.code, note.severity) == ("kl-entropy-unpaired", "warning")
    assert note.data == {"kl_coef": kl, "entropy_coef": entropy}


def test_presets_have_nothing_to_note_and_off_policy_does() -> None:
    assert [Recipe.model_validate(name).notes() for name in PRESET_NAMES] == [(), (), ()]
    assert [note.code for note in Recipe(updates_per_batch=2).notes()] == ["off-policy-unstudied"]


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
