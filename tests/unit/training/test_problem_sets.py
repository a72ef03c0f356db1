"""Problem files and sets of problems in other forms."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from isocompute_sdk.errors import BackendError
from isocompute_sdk.training.payload.problem_files import (
    ANSWER_KEYS,
    PROMPT_KEYS,
    Problem,
    ProblemFileError,
    read_problems,
)
from isocompute_sdk.training.problem_sets import read_rows, write_problems
from isocompute_sdk.training.rewards import maths

ROWS = [{"question": f"{i} + {i}?", "answer": f"twice\n#### {2 * i}", "level": i} for i in range(5)]


def as_parquet(path: Path) -> None:
    pl.DataFrame(ROWS).write_parquet(path)


def as_csv(path: Path) -> None:
    pl.DataFrame(ROWS).write_csv(path)


def as_json(path: Path) -> None:
    path.write_text(json.dumps(ROWS))


def as_lines(path: Path) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))


@pytest.mark.parametrize(
    ("name", "write"),
    [("a.parquet", as_parquet), ("a.csv", as_csv), ("a.json", as_json), ("a.jsonl", as_lines)],
)
def test_a_file_becomes_problems_that_backends_read(tmp_path: Path, name: str, write: Callable[[Path], None]) -> None:
    write(tmp_path / name)
    assert write_problems(read_rows(str(tmp_path / name)), tmp_path / "out.jsonl", limit=4) == 4
    found = read_problems(tmp_path / "out.jsonl", "out", None, None)
    assert [(one.prompt, one.answer) for one in found] == [(row["question"], row["answer"]) for row in ROWS[:4]]
    assert len({one.id for one in found}) == 4


def test_a_data_set_is_loaded_by_the_real_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "sums"
    folder.mkdir()
    as_parquet(folder / "train.parquet")
    pl.DataFrame(ROWS[:2]).write_parquet(folder / "test.parquet")
    assert write_problems(read_rows(str(folder)), tmp_path / "train.jsonl") == 5
    assert write_problems(read_rows(str(folder), split="test"), tmp_path / "test.jsonl") == 2
    with pytest.raises(BackendError) as caught:
        list(read_rows(str(folder), split="missing"))
    assert "missing" in caught.value.message


@pytest.mark.parametrize("row", [{"text": "x"}, {"question": "x"}, {"question": "x", "problem": "y", "answer": 1}])
def test_a_row_without_one_prompt_and_one_answer_names_its_keys(tmp_path: Path, row: dict[str, Any]) -> None:
    with pytest.raises(BackendError) as caught:
        write_problems([row], tmp_path / "out.jsonl")
    assert all(name in caught.value.message for name in row)
    assert "-key" in (caught.value.hint or "")
    assert not (tmp_path / "out.jsonl").exists()


@pytest.mark.parametrize(
    ("response", "answer", "expected"),
    [
        ("so it is $\\frac{1}{2}$", "0.5", 1.0),
        ("The answer is \\boxed{72}.", "48+24 = 72\n#### 72", 1.0),
        ("\\boxed{x^2 + 2x + 1}", "$(x+1)^2$", 1.0),
        ("\\boxed{73}", "72", 0.0),
        ("<think>maybe 72</think> It is 71.", "72", 0.0),
        ("no number at all", "72", 0.0),
        ("", "72", 0.0),
        ("\\boxed{1,234}", 1234, 1.0),
        ("\\boxed{\\{1, 2\\}}", "$\\{2, 1\\}$", 1.0),
    ],
)
def test_answers_are_compared_as_mathematics(response: str, answer: Any, expected: float) -> None:
    assert maths.reward("", response, answer) == expected


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
