"""Problem files are read strictly: one reader for the programs of all frameworks and for the built-in runner."""

from __future__ import annotations

from pathlib import Path

import pytest

from isocompute_sdk.training.payload.problem_files import (
    ANSWER_KEYS,
    PROMPT_KEYS,
    Problem,
    ProblemFileError,
    read_problems,
)

GOOD = '{"prompt": "a", "answer": "b"}\n'


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
    assert read_problems(path, "train", None, None) == [
        Problem("7", "1+1=", 2),
        Problem("train-1", [{"role": "user", "content": "hi"}], {"a": [1]}),
    ]


def test_named_keys_win_over_known_ones(tmp_path: Path) -> None:
    path = written(tmp_path, '{"prompt": "a", "question": "b", "gold": "c", "answer": "d"}\n')
    assert read_problems(path, "set", "question", "gold") == [Problem("set-0", "b", "c")]


@pytest.mark.parametrize("prompt_key", PROMPT_KEYS)
@pytest.mark.parametrize("answer_key", ANSWER_KEYS)
def test_usual_key_names_are_recognised_per_file(tmp_path: Path, prompt_key: str, answer_key: str) -> None:
    path = written(tmp_path, f'{{"{prompt_key}": "q", "{answer_key}": "a"}}\n')
    assert read_problems(path, "set", None, None) == [Problem("set-0", "q", "a")]


@pytest.mark.parametrize(
    ("text", "where", "received"),
    [
        ("\n\n", "set.jsonl:", ""),
        (GOOD + '{"prompt": "a", "ans', "set.jsonl:2:", ""),
        (GOOD + "[1, 2]\n", "set.jsonl:2:", "list"),
        (GOOD + '{"prompt": "a"}\n', "set.jsonl:2:", "'answer'"),
        ('{"text": "a", "answer": "b"}\n', "set.jsonl:", "'text', 'answer'"),
        ('{"prompt": "a", "gold": "b"}\n', "set.jsonl:", "'prompt', 'gold'"),
        ('{"prompt": "a", "question": "q", "answer": "b"}\n', "set.jsonl:", "(prompt, question)"),
        (GOOD + '{"prompt": "a", "answer": "b", "label": "c"}\n', "set.jsonl:", "(answer, label)"),
        ('{"prompt": " ", "answer": "b"}\n', "set.jsonl:1:", "' '"),
        ('{"prompt": 7, "answer": "b"}\n', "set.jsonl:1:", "7"),
        ('{"prompt": [], "answer": "b"}\n', "set.jsonl:1:", "[]"),
        ('{"prompt": [{"role": "user"}], "answer": "b"}\n', "set.jsonl:1:", "{'role': 'user'}"),
        ('{"prompt": [{"role": "u", "content": "x", "name": "y"}], "answer": "b"}\n', "set.jsonl:1:", "'name': 'y'"),
        ('{"prompt": [{"role": "user", "content": [1]}], "answer": "b"}\n', "set.jsonl:1:", "[1]"),
        ('{"prompt": "a\\ud800", "answer": "b"}\n', "set.jsonl:1:", ""),
        ('{"prompt": "a", "answer": ' + "9" * 5000 + "}\n", "set.jsonl:1:", ""),
        ('{"prompt": "a", "answer": "b", "id": 1.5}\n', "set.jsonl:1:", "1.5"),
        ('{"prompt": "a", "answer": "b", "id": true}\n', "set.jsonl:1:", "True"),
        (GOOD.replace("}", ', "id": 1}') + GOOD.replace("}", ', "id": "1"}'), "set.jsonl:2:", "'1'"),
    ],
)
def test_a_bad_line_is_refused_with_file_line_and_value(tmp_path: Path, text: str, where: str, received: str) -> None:
    with pytest.raises(ProblemFileError) as refused:
        read_problems(written(tmp_path, text), "set", None, None)
    assert f"{tmp_path}/{where}" in str(refused.value)
    assert received in str(refused.value)


def test_text_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    (tmp_path / "set.jsonl").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ProblemFileError):
        read_problems(tmp_path / "set.jsonl", "set", None, None)
