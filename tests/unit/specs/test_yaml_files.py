"""Files in YAML: what is read, refused, written and described by the schema."""

from __future__ import annotations

import functools
import os
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isocompute_sdk.errors import SpecError
from isocompute_sdk.specs import Budget, Recipe, Spec, Study, Sweep, dump_spec, json_schema, load_study, parse_spec
from isocompute_sdk.specs.syntax.plain_yaml import read_yaml, write_yaml
from tests.studies import make_study

STUDY = """\
# a comment
name: demo
model: Qwen/Qwen2.5-7B-Instruct
data:
  train: train.jsonl
  validation: validation.jsonl
  reward: reward.py
recipe: {preset: easy, kl_coef: 2e-3}
sweep:
  problems_per_batch: [32, 64]
  rollouts: 3M
  group_size: [8, 16]
  seeds:
    - 0
    - 1
budget: 65_536
options:
  nodes: 2
"""


def complaint(text: str, spec: type = Study) -> str:
    with pytest.raises(SpecError) as caught:
        parse_spec(text, spec, source="study.yaml")
    return str(caught.value)


def test_a_study_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "study.yaml"
    path.write_bytes(b"\xef\xbb\xbf" + STUDY.replace("\n", "\r\n").encode())
    study = load_study(path)
    assert study == parse_spec(STUDY, Study)
    assert study.sweep == Sweep(
        group_size=(8, 16), problems_per_batch=(32, 64), rollouts=3_000_000, update_steps=None, seeds=(0, 1)
    )
    assert (study.budget, study.recipe.kl_coef, study.options) == (Budget(rollouts=65_536), 0.002, {"nodes": 2})


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("[8, 16]", "3.5", "study.yaml:12: sweep.group_size: received 3.5; accepted: whole numbers >= 2"),
        ("[8, 16]", "[8, 1]", "study.yaml:12: sweep.group_size[1]: received 1; accepted: whole numbers >= 2"),
        ("3M", "yes", "study.yaml:11: sweep.rollouts: received 'yes'; accepted: whole numbers >= 1"),
        ("3M", ".nan", "study.yaml:11: sweep.rollouts: received nan; accepted: whole numbers >= 1"),
        ("rollouts: 3M", "rolouts: 3M", "study.yaml:11: sweep.rolouts: unknown key, received '3M'"),
        ("  rollouts: 3M\n", "", "study.yaml:9: sweep: received neither rollouts nor update_steps"),
        ("3M", "100", "study.yaml:11: sweep.rollouts: group_size = 16 with problems_per_batch = 64 takes 16 * 64"),
        ("preset: easy", "preset: eazy", "study.yaml:8: recipe.preset: received 'eazy'; accepted presets: easy"),
        ("kl_coef: 2e-3", "kl_coef: -1", "study.yaml:8: recipe.kl_coef: received -1; accepted: numbers >= 0"),
        ("65_536", "3 apples", "study.yaml:16: budget: received '3 apples'; accepted units: rollouts"),
        ("65_536", "-5", "study.yaml:16: budget.rollouts: received -5; accepted: numbers > 0"),
        ("name: demo", "name: 2024", "study.yaml:2: name: received 2024; accepted: text"),
        ("  reward: reward.py\n", "", "study.yaml:4: data.reward: missing; it is: Reward function"),
        ("name: demo\n", "", "study.yaml:1: name: missing; it is: Name of the study"),
    ],
)
def test_an_error_names_file_line_field_value_and_what_is_accepted(before: str, after: str, expected: str) -> None:
    assert STUDY.count(before) == 1
    assert complaint(STUDY.replace(before, after)).startswith(expected)


def test_several_errors_are_listed_with_a_line_each() -> None:
    text = complaint(STUDY.replace("[8, 16]", "1").replace("name: demo", "nam: demo"))
    assert text.startswith("study.yaml: 3 problems\n")
    assert all(part in text for part in ("study.yaml:2: nam:", "'demo'", "name, model"))
    assert "study.yaml:12: sweep.group_size: received 1" in text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("rollouts: &x 3", "study.yaml:1: anchor &x; anchors are not read"),
        ("rollouts: 3\ntokens: *x", "study.yaml:2: alias *x; aliases are not read"),
        ("<<: {rollouts: 3}", "study.yaml:1: merge key <<; merging is not read"),
        ("rollouts: 3\nrollouts: 4", "study.yaml:2: rollouts is given twice, first in line 1"),
        ("rollouts: !!int 3", "study.yaml:1: tag tag:yaml.org,2002:int; tags are not read"),
        ("rollouts: !python/object 3", "study.yaml:1: tag !python/object; tags are not read"),
        ("rollouts: 3\n---\nrollouts: 4", "study.yaml:2: a second document starts here"),
        ("rollouts: 3\n? [a]\n: 4", "study.yaml:2: received ['a'] as a key; accepted: text"),
        ("\n3: 4", "study.yaml:2: received 3 as a key; accepted: text"),
        ("rollouts: 3\n\ttokens: 4", "study.yaml:2: not valid YAML: "),
        ("rollouts: [3", "study.yaml:1: not valid YAML: "),
        ("a: 1\nrollouts: \x00", "study.yaml:2: not valid YAML: character '\\x00' is not allowed"),
        ("", "study.yaml:1: empty; accepted: a mapping"),
        ("# nothing but a comment", "study.yaml:1: empty; accepted: a mapping"),
        ("[1, 2]", "study.yaml:1: Budget: received [1, 2]; accepted: "),
        ("[" * 50 + "]" * 50, "study.yaml:1: nested more than 20 levels deep"),
        ("[" * 5000, "study.yaml:1: nested more than 20 levels deep"),
    ],
)
def test_yaml_that_says_something_else_than_it_shows_is_refused(text: str, expected: str) -> None:
    assert expected.removesuffix("; accepted: ") in complaint(text, Budget)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3", 3),
        ("65_536", 65536),
        ("1e-6", 1e-6),
        ("2.5e6", 2.5e6),
        ("-.5e+3", -500.0),
        ("1.", 1.0),
        ("-.inf", float("-inf")),
        ("true", True),
        ("null", None),
        ("", None),
        ("yes", "yes"),
        ("3M", "3M"),
        ("2024-01-01", "2024-01-01"),
        ("12:30:45", "12:30:45"),
        ("0x1F", "0x1F"),
        ("1__0", "1__0"),
        ("9" * 5000, "9" * 5000),
        ("'3'", "3"),
        ('"true"', "true"),
        ("|-\n  two\n  lines", "two\nlines"),
    ],
)
def test_scalars_have_the_type_they_look_like(text: str, value: object) -> None:
    read = read_yaml(f"key: {text}", "x").data
    assert read == {"key": value}
    assert isinstance(read, dict)
    assert type(read["key"]) is type(value)


def test_files_that_cannot_be_read_say_why(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"absent\.yaml"):
        load_study(tmp_path / "absent.yaml")
    with pytest.raises(SpecError):
        load_study(tmp_path)
    os.mkfifo(tmp_path / "pipe.yaml")
    with pytest.raises(SpecError):
        load_study(tmp_path / "pipe.yaml")
    with (tmp_path / "large.yaml").open("wb") as file:
        file.truncate(200 * 2**20)
    with pytest.raises(SpecError, match="209,715,200 bytes"):
        load_study(tmp_path / "large.yaml")
    (tmp_path / "latin.yaml").write_bytes("name: caf\xe9".encode("latin-1"))
    with pytest.raises(SpecError):
        load_study(tmp_path / "latin.yaml")


ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
TRICKY = st.sampled_from(["3M", "65_536", "1e-6", "true", "null", "~", "", "yes", "*a", "&a", "<<", "- x", "a: b", "#"])
SCALARS = st.none() | st.booleans() | st.integers(-(10**17), 10**17) | st.floats(allow_nan=False, allow_infinity=False)
TREES = st.recursive(
    SCALARS | ANY_TEXT | TRICKY | st.lists(SCALARS | TRICKY, max_size=3),
    lambda inner: st.dictionaries(ANY_TEXT | TRICKY, inner, max_size=3),
    max_leaves=8,
)

NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,20}", fullmatch=True)
LINES = st.text(st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"]), min_size=1, max_size=30).filter(str.strip)
AMOUNTS = st.integers(1, 10**12) | st.floats(1e-3, 1e12)
OPTIONS = st.dictionaries(
    st.from_regex(r"[A-Za-z][A-Za-z0-9._-]{0,10}", fullmatch=True),
    ANY_TEXT.filter(lambda text: "\0" not in text)
    | TRICKY
    | st.booleans()
    | st.integers(-(10**9), 10**9)
    | st.floats(-1e9, 1e9),
    max_size=3,
)
SWEEPS = st.fixed_dictionaries(
    {
        "group_size": st.lists(st.integers(2, 2048), min_size=1, max_size=4, unique=True),
        "problems_per_batch": st.lists(st.integers(1, 1024), min_size=1, max_size=4, unique=True),
        "update_steps": st.integers(1, 10**6),
        "seeds": st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=3, unique=True),
    }
)
RECIPES = st.fixed_dictionaries(
    {"preset": st.sampled_from(["easy", "hard", "mixture"])},
    optional={
        "kl_coef": st.floats(0, 1),
        "temperature": st.floats(0.01, 5),
        "adam_betas": st.tuples(st.floats(0, 0.999), st.floats(0, 0.999)),
        "algorithm": st.sampled_from(["grpo", "ppo", "cispo"]),
        "name": LINES,
    },
)
STUDIES = st.fixed_dictionaries(
    {
        "name": NAMES,
        "model": LINES,
        "data": st.fixed_dictionaries(
            {"train": LINES, "validation": LINES, "reward": LINES}, optional={"prompt_key": LINES}
        ),
        "recipe": RECIPES,
    },
    optional={
        "sweep": SWEEPS,
        "budget": st.sampled_from(["rollouts", "tokens", "gpu_hours", "usd"]).flatmap(
            lambda unit: st.fixed_dictionaries({unit: AMOUNTS}, optional={"deadline_hours": st.floats(0.1, 1e3)})
        ),
        "throughput": st.fixed_dictionaries(
            {"step_overhead_seconds": st.floats(0, 1e3), "rollouts_per_second": AMOUNTS}
        ),
        "evaluation": st.fixed_dictionaries({"n_problems": st.none() | st.integers(1, 10**4)}),
        "options": OPTIONS,
    },
)


@settings(deadline=None)
@given(STUDIES)
def test_a_written_study_reads_back_equal(form: dict[str, object]) -> None:
    study = Study.model_validate(form)
    again = parse_spec(dump_spec(study), Study)
    assert again == study
    assert [type(value) for value in again.options.values()] == [type(value) for value in study.options.values()]


@pytest.mark.parametrize("budget", ["1M", "200 gpu_hours", "$2.5", "1.5B tokens"])
def test_the_budget_of_a_written_study_is_changed_on_its_line(budget: str) -> None:
    written = dump_spec(make_study(budget=budget))
    assert parse_spec(written, Study).budget == Budget(budget)
    edited = re.sub(r"^budget: .*", "budget: 3M", written, flags=re.MULTILINE)
    assert parse_spec(edited, Study).budget == Budget("3M")


@settings(deadline=None)
@given(st.dictionaries(ANY_TEXT, TREES, min_size=1, max_size=4))
def test_any_tree_of_scalars_reads_back_equal(tree: dict[str, object]) -> None:
    assert repr(read_yaml(write_yaml(tree), "x").data) == repr(tree)


def test_a_list_that_is_too_long_for_a_line_has_one_for_each_item() -> None:
    tree = {"about": {"runs": [f"run {i}" for i in range(50)], "few": [1, 2]}}
    written = write_yaml(tree)
    assert max(map(len, written.splitlines())) <= 120
    assert "few: [1, 2]" in written
    assert read_yaml(written, "x").data == tree


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
