"""From a problem file to the exact rows of a run, and what is said about files that cannot be used."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from isocompute_openrlhf import payload
from tests.backends.openrlhf.inputs import read
from tests.backends.programs import load

Prepare = Callable[..., Path]
problem_rows, prepare_rows = load("problem_rows"), load("prepare_rows", payload)


def test_the_seed_fixes_the_order() -> None:
    first = list(problem_rows.epoch_orders(50, 100, 3))
    assert first == list(problem_rows.epoch_orders(50, 100, 3))
    assert first != list(problem_rows.epoch_orders(50, 100, 4))
    assert first[:50] != first[50:]
    assert list(problem_rows.epoch_orders(6, 6, 0)) == [2, 3, 1, 0, 5, 4]  # on Python 3.10 to 3.13 alike


@pytest.mark.parametrize("answer", ["text", 7, 1.5, None, True, ["a", 1], {"value": "x", "unit": "m"}, "ü\n\"'"])
def test_answers_of_any_json_type_arrive_as_they_are(prepare: Prepare, answer: Any) -> None:
    folder = prepare([{"prompt": "a", "answer": answer}])
    assert json.loads(read(folder / "train_rows.jsonl")[0]["label"])["answer"] == answer


def test_a_bad_problem_file_and_a_prompt_that_openrlhf_would_change_are_refused(prepare: Prepare) -> None:
    with pytest.raises(problem_rows.ProblemFileError, match=r"train\.jsonl:2"):
        prepare('{"prompt": "a", "answer": "b"}\n{"prompt": "a"}\n')
    with pytest.raises(problem_rows.InputError, match="<image>"):
        prepare('{"prompt": "see <image>", "answer": "b"}\n')
