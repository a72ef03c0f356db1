"""What every spec does alike: it is frozen, refuses unknown keys, and explains itself."""

import pickle

import pytest

from isocompute_sdk.errors import IsoComputeError, SpecError
from isocompute_sdk.specs import Allocation, Budget, Data, Evaluation, Hardware, Recipe, Study, Sweep, Throughput

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
    with pytest.raises(SpecError, match=r"Budget\.rollouts"):
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
    undocumented = [name for name, field in spec.model_fields.items() if not field.description]
    assert undocumented == []
