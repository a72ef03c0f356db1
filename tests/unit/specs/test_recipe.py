"""The recipes of paper section 3, their changes, and where each value comes from."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isocompute_sdk.errors import SpecError
from isocompute_sdk.specs import PRESET_NAMES, Recipe


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


def test_sources_tell_printed_assumed_and_changed_values_apart() -> None:
    sources = Recipe.preset("hard", temperature=1.0).sources()
    assert sources["temperature"] == "user"
    assert sources["learning_rate_anchor"] == sources["kl_coef"] == sources["entropy_coef"] == "paper section 3"
    assert sources["tis_cap"] == sources["adam_betas"] == sources["min_problems_per_batch"] == "assumed"
    assert Recipe().sources()["kl_coef"] == "assumed"


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
