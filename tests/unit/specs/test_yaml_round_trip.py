"""What is written reads back equal, types included."""

from hypothesis import given, settings
from hypothesis import strategies as st

from isocompute_sdk.specs import Study, dump_spec, parse_spec
from isocompute_sdk.specs.syntax.plain_yaml import read_yaml, write_yaml

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


@settings(deadline=None)
@given(st.dictionaries(ANY_TEXT, TREES, min_size=1, max_size=4))
def test_any_tree_of_scalars_reads_back_equal(tree: dict[str, object]) -> None:
    assert repr(read_yaml(write_yaml(tree), "x").data) == repr(tree)
