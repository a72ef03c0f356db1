"""Write the rows of one OpenRLHF run, once the reward function is tried.

    python3 prepare_rows.py RUN_FOLDER        (after claim_folder.py)

A row is {"input": prompt, "label": text, "datasource": split}; the label is the JSON text of {"id", "split", "answer"},
which the reward wrapper decodes.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import problem_rows
from run_files import InputError


def row(problem: problem_rows.Problem, split: str, _: dict[str, Any]) -> dict[str, Any]:
    """A problem in OpenRLHF's form."""
    if any("<image>" in message["content"] for message in problem.messages):
        raise InputError(
            f"the prompt of problem {problem.id!r} holds '<image>', which OpenRLHF would replace by a picture"
        )
    label = json.dumps({"id": problem.id, "split": split, "answer": problem.answer})
    return {"input": problem.prompt, "label": label, "datasource": split}


if __name__ == "__main__":
    sys.exit(problem_rows.main(sys.argv[1:], row))
