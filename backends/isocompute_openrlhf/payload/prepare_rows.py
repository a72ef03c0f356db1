"""Write the rows of one OpenRLHF run.

    python3 prepare_rows.py RUN_FOLDER        (after claim_folder.py)

A row is {"input": prompt, "label": text, "datasource": split}; the label is the JSON text of {"id", "split", "answer"},
which the reward wrapper decodes.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import problem_rows
from problem_rows import Problem, Sets
from run_files import InputError


def row(problem: Problem, split: str) -> dict[str, Any]:
    """A problem in OpenRLHF's form."""
    label = json.dumps({"id": problem.id, "split": split, "answer": problem.answer})
    return {"input": problem.prompt, "label": label, "datasource": split}


def completed(request: dict[str, Any], train: list[Problem], sets: Sets) -> Sets:
    """The evaluation sets as they are.

    Raises:
        InputError: OpenRLHF cannot use a prompt.
    """
    for problem in (*train, *(problem for problems in sets.values() for problem in problems)):
        if not request["chat_template"]:
            problem_rows.require_text(problem)
        if any("<image>" in message["content"] for message in problem.messages):
            raise InputError(
                f"the prompt of problem {problem.id!r} holds '<image>', which OpenRLHF would replace by a picture"
            )
    return sets


def main(argv: list[str]) -> int:
    """Prepare the run folder named on the command line; 0 on success, 2 where its input cannot be used."""
    return problem_rows.main(argv, row, completed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
