"""The JSON schema accepts what the loader accepts, and catches plain mistakes."""

import functools
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from isocompute_sdk.errors import SpecError
from isocompute_sdk.specs import Budget, Recipe, Spec, Study, json_schema
from isocompute_sdk.specs.syntax.plain_yaml import read_yaml

FILES = sorted((Path(__file__).parents[3] / "specs").glob("*.yaml"))
VALID: dict[str, Any] = {
    "name": "s",
    "model": "m",
    "data": {"train": "t", "validation": "v", "reward": "r.py"},
    "recipe": "easy",
    "sweep": {"group_size": [8, 16], "problems_per_batch": 32, "rollouts": "1M"},
}


@functools.cache
def validator(type: type[Spec] = Study) -> Any:
    schema = json_schema(type)
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_schema_accepts_the_examples(path: Path) -> None:
    validator().validate(read_yaml(path.read_text(encoding="utf-8"), path.name).data)


ACCEPTED: list[dict[str, Any]] = [
    {},
    {"recipe": {"preset": "hard", "kl_coef": "2e-3"}},
    {"recipe": {"based_on": "hard", "adam_betas": [0.9, 0.95]}},
    {"budget": 3_000_000},
    {"budget": "200 gpu_hours"},
    {"budget": {"usd": "1.5k", "deadline_hours": 24}},
    {"budget": None, "sweep": None, "throughput": None},
    {"hardware": {"gpus": [8, 16], "max_rollouts_per_batch": None}},
    {"hardware": {"gpus": 8, "max_rollouts_per_batch": "65_536"}},
    {"sweep": {"group_size": "8", "problems_per_batch": [32.0], "update_steps": "1k", "seeds": [0, 1]}},
    {"options": {"a": 1, "b": True, "c": "x", "d": 0.5}},
    {"evaluation": {"n_problems": None, "temperature": 0}},
]


@pytest.mark.parametrize("changes", ACCEPTED)
def test_schema_accepts_what_the_loader_accepts(changes: dict[str, Any]) -> None:
    Study.model_validate({**VALID, **changes})
    validator().validate({**VALID, **changes})


REFUSED: list[dict[str, Any]] = [
    {"recipe": "esy"},
    {"recipe": {"preset": "easy", "learning_rate": 1e-6}},
    {"recipe": {"normalize_advantage": "yes"}},
    {"sweep": {"group_size": [8, 1], "problems_per_batch": 32, "rollouts": "1M"}},
    {"sweep": {"group_size": [8, 8], "problems_per_batch": 32, "rollouts": "1M"}},
    {"sweep": {"group_size": [], "problems_per_batch": 32, "rollouts": "1M"}},
    {"sweep": {"group_size": 8, "problems_per_batch": 32, "rollouts": "lots"}},
    {"data": {"train": "t", "validation": "v"}},
    {"budget": -3},
    {"hardware": {"gpus": 0}},
    {"options": {"a": None}},
    {"name": 7},
    {"unknown": 1},
]


@pytest.mark.parametrize("changes", REFUSED)
def test_schema_and_loader_refuse_the_same_mistakes(changes: dict[str, Any]) -> None:
    with pytest.raises(SpecError):
        Study.model_validate({**VALID, **changes})
    assert not validator().is_valid({**VALID, **changes})


def test_other_specs_have_schemas_with_their_short_forms() -> None:
    assert validator(Recipe).is_valid("hard")
    assert not validator(Recipe).is_valid("hrd")
    assert validator(Budget).is_valid("3M")
