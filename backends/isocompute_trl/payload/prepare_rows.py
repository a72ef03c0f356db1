"""Write the rows of one TRL run and try the reward function on them.

    python3 prepare_rows.py RUN_FOLDER        (after claim_folder.py)

A row is {"prompt": text or messages, "problem": id, "split", "question": text, "answer": JSON text}. TRL hands all
columns but the prompt to the reward function.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import problem_rows


def row_maker(chat_template: bool) -> problem_rows.Row:
    """How a problem becomes a row: a list of messages goes through the chat template, text is taken as it stands."""

    def row(problem: problem_rows.Problem, split: str) -> dict[str, Any]:
        messages = problem.messages
        if not chat_template:
            problem_rows.require_text(problem)
        return {
            "prompt": messages if chat_template else problem.prompt,
            "problem": problem.id,
            "split": split,
            "question": messages[-1]["content"],
            "answer": json.dumps(problem.answer),
        }

    return row


def asked(row: dict[str, Any]) -> tuple[str, str, Any]:
    """Id, question and answer of a row."""
    return row["problem"], row["question"], json.loads(row["answer"])


def main(argv: list[str]) -> int:
    """Prepare the run folder named on the command line; 0 on success, 2 where its input cannot be used."""
    if len(argv) != 1:
        sys.stderr.write("usage: prepare_rows.py RUN_FOLDER\n")
        return 2
    request = json.loads((Path(argv[0]) / "request.json").read_text(encoding="utf-8"))
    return problem_rows.main(argv, row_maker(request["chat_template"]), asked=asked)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
