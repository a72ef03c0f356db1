"""Write the rows of one OpenRLHF run.

    python3 prepare_rows.py RUN_FOLDER        (after claim_folder.py)

A row is {"input": prompt, "label": text, "datasource": split}; the label is the JSON text of {"id", "split", "answer"},
which the reward wrapper decodes. Evaluation sets are the validation problems, further sets, and `train_probe`: a fixed
subset of the training problems, which shows how much of a gain is memorisation. OpenRLHF identifies evaluation sets by
the text of their prompts, so no prompt may be in two of them.
"""

from __future__ import annotations

import hashlib
import json
import sys
from typing import Any

import problem_rows
from problem_rows import Problem, Sets
from run_files import InputError

PROBE = "train_probe"


def row(problem: Problem, split: str) -> dict[str, Any]:
    """A problem in OpenRLHF's form."""
    label = json.dumps({"id": problem.id, "split": split, "answer": problem.answer})
    return {"input": problem.prompt, "label": label, "datasource": split}


def completed(request: dict[str, Any], train: list[Problem], sets: Sets) -> Sets:
    """The evaluation sets and the training probe.

    Raises:
        InputError: OpenRLHF would confuse two sets, or cannot use a prompt.
    """
    check_apart(sets)
    sets = {**sets, PROBE: probe_subset(train, request["probe_problems"], sets)}
    for problem in (*train, *(problem for problems in sets.values() for problem in problems)):
        if not request["chat_template"]:
            problem_rows.require_text(problem)
        if any("<image>" in message["content"] for message in problem.messages):
            raise InputError(
                f"the prompt of problem {problem.id!r} holds '<image>', which OpenRLHF would replace by a picture"
            )
    return sets


def plain(problem: Problem) -> str:
    """Text that is equal for prompts that are equal after OpenRLHF applies its template."""
    messages = problem.messages
    if len(messages) == 1 and messages[0]["role"] == "user":
        return messages[0]["content"]
    return json.dumps(messages, sort_keys=True)


def check_apart(sets: Sets) -> None:
    """Refuse evaluation sets that share a prompt: OpenRLHF would count it in one of them only."""
    owner: dict[str, str] = {}
    for name, problems in sets.items():
        for problem in problems:
            other = owner.setdefault(plain(problem), name)
            if other != name:
                raise InputError(
                    f"evaluation sets {other} and {name} share the prompt of problem {problem.id!r}; accepted: sets "
                    "without common prompts, because OpenRLHF tells them apart by the prompt"
                )


def probe_subset(train: list[Problem], size: int, sets: Sets) -> list[Problem]:
    """A fixed subset of the training problems in file order, independent of the seed."""
    taken = {plain(problem) for problems in sets.values() for problem in problems}
    free = [index for index, problem in enumerate(train) if plain(problem) not in taken]
    free.sort(key=lambda index: hashlib.sha256(f"probe:{train[index].id}".encode()).digest())
    return [train[index] for index in sorted(free[:size])]


def main(argv: list[str]) -> int:
    """Prepare the run folder named on the command line; 0 on success, 2 where its input cannot be used."""
    return problem_rows.main(argv, row, completed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
