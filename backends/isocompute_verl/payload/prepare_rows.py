"""Write the rows of one veRL run, once the reward function is tried.

    python3 prepare_rows.py RUN_FOLDER        (after claim_folder.py)

A row is {"prompt": messages, "data_source": split, "reward_model": {"ground_truth": JSON text}, "extra_info":
{"index", "id", "question"}}.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import problem_rows


def row(problem: problem_rows.Problem, split: str, _: dict[str, Any]) -> dict[str, Any]:
    """A problem in veRL's form; every prompt is a chat, since veRL puts all of them through the chat template."""
    return {
        "prompt": problem.messages,
        "data_source": split,
        "reward_model": {"style": "rule", "ground_truth": json.dumps(problem.answer)},
        "extra_info": {"index": problem.id, "question": problem.messages[-1]["content"]},
    }


if __name__ == "__main__":
    sys.exit(problem_rows.main(sys.argv[1:], row))
