"""What a run folder and problem files say."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isocompute_sdk.training.payload.problem_files import Problem
from isocompute_torch.configuration import InputError, derive_seed, load_configuration
from isocompute_torch.problems import BatchOrder, TextCodec, probe_subset, read_problems
from tests.backends.torch_runner.conftest import tokenizer


@pytest.mark.parametrize(
    ("change", "same"),
    [
        ({"options": {"threads": 2, "merge_duplicates": False}}, True),
        ({"options": {"max_tokens_per_micro_batch": 50, "sampling_batch": 8}}, True),
        ({"output_dir": "elsewhere"}, True),
        ({"update_steps": 20}, True),
        ({"seed": 1}, False),
        ({"recipe": {"kl_coef": 0.1}}, False),
        ({"options": {"probe_problems": 3}}, False),
        ({"evaluation": {"samples": 8}}, False),
        ({"evaluation": {"count": 2, "samples": 4}}, True),
    ],
)
def test_the_identity_is_that_of_the_results(prepared: Callable[..., Path], change: dict[str, Any], same: bool) -> None:
    before = load_configuration(prepared()).identity()
    assert (load_configuration(prepared(**change)).identity() == before) is same


def test_every_purpose_and_step_has_a_seed_of_its_own() -> None:
    seeds = {derive_seed(seed, purpose, step) for seed in range(3) for purpose in ("a", "b") for step in range(50)}
    assert len(seeds) == 300
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert derive_seed(0, "rollouts", 1) == 3699509170653107421


def test_reading_a_run_folder_loads_no_torch(prepared: Callable[..., Path]) -> None:
    code = (
        "import sys; from isocompute_torch.configuration import load_configuration; "
        "from isocompute_sdk.run_folders import journal_records; load_configuration(sys.argv[1]); "
        "sys.exit(any(name in sys.modules for name in ('torch', 'transformers')))"
    )
    assert subprocess.run([sys.executable, "-c", code, str(prepared())], check=False).returncode == 0


def test_what_a_file_cannot_mean_is_refused_and_a_missing_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "set.jsonl").write_text('{"prompt": "a", "answer": "b"}\n{"prompt": "a"}\n')
    with pytest.raises(InputError, match=r"set\.jsonl:2"):
        read_problems(tmp_path / "set.jsonl")
    for absent in ("absent.jsonl", "."):
        with pytest.raises(InputError, match=str(tmp_path / absent)):
            read_problems(tmp_path / absent)


@given(problems=st.integers(1, 30), data=st.data(), seed=st.integers(0, 5))
def test_every_epoch_holds_each_problem_once_and_no_batch_one_twice(
    problems: int, data: st.DataObject, seed: int
) -> None:
    batch = data.draw(st.integers(1, problems))
    order = BatchOrder(problems, batch, seed)
    steps = 3 * problems
    batches = [order.batch(step) for step in range(1, steps + 1)]
    assert all(len(set(chosen)) == batch for chosen in batches)
    flat = [index for chosen in batches for index in chosen]
    for start in range(0, len(flat) - problems + 1, problems):
        assert sorted(flat[start : start + problems]) == list(range(problems))


def test_the_probe_is_the_same_for_every_run_and_not_the_head_of_the_file() -> None:
    problems = [Problem(str(i), str(i), i) for i in range(100)]
    probe = probe_subset(problems, 10)
    assert probe == probe_subset(list(problems), 10)
    assert [problem.answer for problem in probe] == sorted(problem.answer for problem in probe) != list(range(10))
    assert len(probe_subset(problems, 200)) == 100


def test_a_chat_that_ends_with_the_assistant_goes_on_from_there() -> None:
    inner = tokenizer()
    inner.chat_template = (
        "{% for m in messages %}{% if m.role == 'user' %}*{% else %}+{% endif %}{{ m.content }}-{% endfor %}"
        "{% if add_generation_prompt %}+{% endif %}"
    )
    codec = TextCodec(inner, {1})
    asked, begun = {"role": "user", "content": "12"}, {"role": "assistant", "content": "34="}
    assert codec.prompt_text(Problem("a", [asked], "")) == "*12-+"
    assert codec.prompt_text(Problem("b", [asked, begun], "")) == "*12-+34="
    assert codec.encode(Problem("b", [asked, begun], "")) == inner("*12-+34=")["input_ids"]
