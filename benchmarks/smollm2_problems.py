"""The problems of docs/language_model.md, sums and differences by reasoning-gym, and lists to reverse.

    pip install --no-deps reasoning-gym==0.1.25
    python benchmarks/smollm2_problems.py FOLDER [--task easy|hard|long]

easy: "46 - 63 = ", two terms. hard: differences only. long: five numbers in reverse order, after three examples; its
reward is the share of numbers in their place.
FOLDER gets train.jsonl, validation.jsonl and reward.py, which the studies in benchmarks/data/smollm2 name.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

VALIDATION, TRAINING = 256, 2691
FIRST_INTEGER = """import re


def reward(prompt, response, answer):
    found = re.search(r"-?\\d+", response)
    return float(found is not None and found.group() == answer)
"""
SHARE_IN_PLACE = """import re


def reward(prompt, response, answer):
    wanted = answer.split(", ")
    given = re.findall(r"\\d+", response.split("\\n")[0])
    return sum(a == b for a, b in zip(wanted, given)) / len(wanted)
"""


def expressions(size: int, seed: int) -> dict[str, str]:
    """Distinct two-term expressions with their answers."""
    digits = {"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 2}
    drawn = importlib.import_module("reasoning_gym").create_dataset("chain_sum", size=size, seed=seed, **digits)
    answers: dict[str, str] = {}
    for row in drawn:
        answers.setdefault(row["metadata"]["expression"], row["answer"])
    return answers


def turn(question: str, start: str) -> str:
    """A question, and what the assistant has said of its answer."""
    return f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n{start}"


def line(question: str, prompt: str, answer: str) -> str:
    """One problem."""
    return json.dumps({"id": question, "prompt": prompt, "answer": answer}) + "\n"


def reversals() -> list[str]:
    """Lists of five numbers of two digits, after three examples."""
    draws = np.random.default_rng(44).integers(10, 100, size=(3 + VALIDATION + TRAINING, 5))
    lists = [(", ".join(map(str, row)), ", ".join(map(str, row[::-1]))) for row in draws.tolist()]
    examples = "".join(turn(question, f"{answer}<|im_end|>\n") for question, answer in lists[:3])
    return [line(question, examples + turn(question, ""), answer) for question, answer in lists[3:]]


def problems(task: str) -> list[str]:
    """The lines of one task."""
    if task == "long":
        return reversals()
    drawn = (expressions(6000, 42) if task == "easy" else expressions(20_000, 43)).items()
    return [
        line(question, turn(f"Calculate {question}.", f"{question} = "), answer)
        for question, answer in drawn
        if task == "easy" or " - " in question
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the files."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--task", choices=("easy", "hard", "long"), default="easy")
    given = parser.parse_args(arguments)
    folder: Path = given.folder
    lines = problems(given.task)[: VALIDATION + TRAINING]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "validation.jsonl").write_text("".join(lines[:VALIDATION]), encoding="utf-8")
    (folder / "train.jsonl").write_text("".join(lines[VALIDATION:]), encoding="utf-8")
    (folder / "reward.py").write_text(SHARE_IN_PLACE if given.task == "long" else FIRST_INTEGER, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
