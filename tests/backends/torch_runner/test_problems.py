"""A missing file is named, and batches walk through them in seeded epochs."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isocompute_sdk.training.payload.problem_files import Problem
from isocompute_torch.configuration import InputError
from isocompute_torch.problems import BatchOrder, TextCodec, probe_subset, read_problems
from tests.backends.torch_runner.conftest import tokenizer


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
