"""The problems of docs/language_model.md: two-term sums and differences of one or two digits, by reasoning-gym.

    pip install --no-deps reasoning-gym==0.1.25
    python benchmarks/smollm2_problems.py FOLDER

FOLDER gets train.jsonl, validation.jsonl and reward.py, which the studies in benchmarks/data/smollm2 name.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path

VALIDATION, TRAINING = 256, 2691
REWARD = """import re


def reward(prompt, response, answer):
    found = re.search(r"-?\\d+", response)
    return float(found is not None and found.group() == answer)
"""


def line(expression: str, answer: str) -> str:
    """One problem, whose answer the assistant has begun."""
    prompt = f"<|im_start|>user\nCalculate {expression}.<|im_end|>\n<|im_start|>assistant\n{expression} = "
    return json.dumps({"id": expression, "prompt": prompt, "answer": answer}) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the files."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("folder", type=Path)
    folder: Path = parser.parse_args(arguments).folder
    digits = {"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 2}
    drawn = importlib.import_module("reasoning_gym").create_dataset("chain_sum", size=6000, seed=42, **digits)
    answers: dict[str, str] = {}
    for row in drawn:
        answers.setdefault(row["metadata"]["expression"], row["answer"])
    lines = [line(*item) for item in answers.items()][: VALIDATION + TRAINING]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "validation.jsonl").write_text("".join(lines[:VALIDATION]), encoding="utf-8")
    (folder / "train.jsonl").write_text("".join(lines[VALIDATION:]), encoding="utf-8")
    (folder / "reward.py").write_text(REWARD, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
