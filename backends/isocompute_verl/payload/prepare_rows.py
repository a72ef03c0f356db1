"""Write the rows of one veRL run and try the reward function on them.

    python3 prepare_rows.py RUN_FOLDER        (after claim_folder.py)

A row is {"prompt": messages, "data_source": split, "reward_model": {"ground_truth": JSON text}, "extra_info":
{"index", "id", "question"}}.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import problem_rows


def row(problem: problem_rows.Problem, split: str) -> dict[str, Any]:
    """A problem in veRL's form; every prompt is a chat, since veRL puts all of them through the chat template."""
    return {
        "prompt": problem.messages,
        "data_source": split,
        "reward_model": {"style": "rule", "ground_truth": json.dumps(problem.answer)},
        "extra_info": {"index": problem.id, "question": problem.messages[-1]["content"]},
    }


def main(argv: list[str]) -> int:
    """Prepare the run folder named on the command line; 0 on success, 2 where its input cannot be used."""
    return problem_rows.main(argv, row, asked=asked)


def asked(line: dict[str, Any]) -> tuple[str, str, Any]:
    """Id, question and answer of a row."""
    extra = line["extra_info"]
    return extra["index"], extra["question"], json.loads(line["reward_model"]["ground_truth"])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
