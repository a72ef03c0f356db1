"""Write the rows of one TRL run, once the reward function is tried.

    python3 prepare_rows.py RUN_FOLDER        (after claim_folder.py)

A row is {"prompt": text or messages, "problem": id, "split", "question": text, "answer": JSON text}. TRL hands all
columns but the prompt to the reward function.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import problem_rows


def row(problem: problem_rows.Problem, split: str, request: dict[str, Any]) -> dict[str, Any]:
    """A problem in TRL's form: a list of messages goes through the chat template, text is taken as it stands."""
    return {
        "prompt": problem.messages if request["chat_template"] else problem.prompt,
        "problem": problem.id,
        "split": split,
        "question": problem.messages[-1]["content"],
        "answer": json.dumps(problem.answer),
    }


if __name__ == "__main__":
    sys.exit(problem_rows.main(sys.argv[1:], row))
