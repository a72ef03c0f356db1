"""Problem files are read strictly, and batches walk through them in seeded epochs."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isocompute_torch.failures import InputError
from isocompute_torch.problems import BatchOrder, Problem, probe_subset, read_problems


def written(folder: Path, text: str) -> Path:
    path = folder / "set.jsonl"
    path.write_text(text, encoding="utf-8")
    return path


def test_rows_become_problems_in_file_order(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        '{"question": "1+1=", "answer": 2, "id": 7}\n\n'
        '{"question": [{"role": "user", "content": "hi"}], "answer": {"a": [1]}}\n',
    )
    assert read_problems(path) == [
        Problem("7", "1+1=", 2),
        Problem("set-1", [{"role": "user", "content": "hi"}], {"a": [1]}),
    ]


def test_named_keys_win_over_known_ones(tmp_path: Path) -> None:
    path = written(tmp_path, '{"prompt": "a", "question": "b", "gold": "c", "answer": "d"}\n')
    assert read_problems(path, prompt_key="question", answer_key="gold") == [Problem("set-0", "b", "c")]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "set.jsonl"),
        ('{"prompt": "a", "answer": "b"}\n{"prompt": "a", "ans', "set.jsonl:2:"),
        ("[1]\n", "set.jsonl:1:"),
        ('{"prompt": "a", "question": "b", "answer": "c"}\n', "(prompt, question)"),
        ('{"text": "a", "answer": "c"}\n', "text, answer"),
        ('{"prompt": "a", "answer": "c"}\n{"prompt": "b"}\n', "set.jsonl:2:"),
        ('{"prompt": " ", "answer": "c"}\n', '" "'),
        ('{"prompt": [{"role": "user"}], "answer": "c"}\n', '[{"role": "user"}]'),
        ('{"prompt": "a", "answer": 1, "id": "x"}\n{"prompt": "b", "answer": 1, "id": "x"}\n', "set.jsonl:2:"),
        ('{"prompt": "a", "answer": 1, "id": true}\n', "True"),
    ],
)
def test_what_cannot_be_meant_is_refused(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(InputError) as refused:
        read_problems(written(tmp_path, text))
    assert says in str(refused.value)


def test_a_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "set.jsonl").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="UTF-8"):
        read_problems(tmp_path / "set.jsonl")


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


@given(step=st.integers(1, 40))
def test_a_resumed_order_is_the_same(step: int) -> None:
    order = BatchOrder(7, 3, seed=2)
    walked = [order.batch(i) for i in range(1, step + 1)]
    assert BatchOrder(7, 3, seed=2).batch(step) == walked[-1]
    assert order.batch(1) == walked[0]


def test_seeds_and_epochs_have_orders_of_their_own() -> None:
    def epochs(seed: int) -> list[list[int]]:
        order = BatchOrder(50, 50, seed)
        return [order.batch(1), order.batch(2)]

    assert epochs(0)[0] != epochs(0)[1]
    assert epochs(0) != epochs(1)


def test_fewer_problems_than_a_batch_are_refused() -> None:
    with pytest.raises(InputError, match=r"3.*4"):
        BatchOrder(3, 4, 0)


def test_the_probe_is_the_same_for_every_run_and_not_the_head_of_the_file() -> None:
    problems = [Problem(str(i), str(i), i) for i in range(100)]
    probe = probe_subset(problems, 10)
    assert probe == probe_subset(list(problems), 10)
    assert [problem.answer for problem in probe] == sorted(problem.answer for problem in probe) != list(range(10))
    assert len(probe_subset(problems, 200)) == 100
