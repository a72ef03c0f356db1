"""Turn problem files into the rows of one run; each framework's prepare_rows.py imports this.

`main` reads request.json and inputs.json (claim_folder.py) in the run folder and writes there:

* train_rows.jsonl: problems_per_batch * update_steps rows. Whole epochs, each in its own seeded order, the last one
  cut short.
* evaluation_rows.jsonl: the validation problems in file order.
* started.json: the request with the digests of all inputs and outputs and the number of problems, written last. If it
  exists, the rows are only compared with it: a resumed run continues within the same rows.

Bad input ends with exit status 2 and one message that names the file, the line and what is accepted.
"""

from __future__ import annotations

import json
import random
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import reward_calls
from problem_files import Problem, ProblemFileError, read_problems
from run_files import ROW_FILES, STARTED, InputError, digest_of, hold, read_json, write_json, write_text

Row = Callable[[Problem, str, dict[str, Any]], dict[str, Any]]
"""Makes the framework's row from a problem, its split (train or validation) and the request; refuses what the framework
cannot use."""


def main(argv: list[str], row: Row) -> int:
    """Try the reward function on problems of the run folder named on the command line, and write its rows.

    Returns:
        0 on success, 2 on bad input.
    """
    try:
        hold(Path(argv[0]))
        prepare(Path(argv[0]), row)
    except (InputError, ProblemFileError, reward_calls.RewardFileError) as error:
        sys.stderr.write(f"prepare_rows: {error}\n")
        return 2
    return 0


def prepare(folder: Path, row: Row) -> None:
    """Write the rows and started.json, or check those of an earlier start.

    Raises:
        ProblemFileError: a problem file is malformed or ambiguous.
        RewardFileError: the reward function cannot be used.
        InputError: the rows of the earlier start were changed.
    """
    record = folder / STARTED
    request, inputs = read_json(folder / "request.json"), read_json(folder / "inputs.json")
    run = request["run"]
    keys = run["data"]["prompt_key"], run["data"]["answer_key"]
    train = uniform_prompts(read_problems(Path(inputs["train"]["path"]), "train", *keys))
    validation = read_problems(Path(inputs["validation"]["path"]), "validation", *keys)
    # Before anything is recorded, so that a reward function that fails may be corrected.
    check_reward(reward_calls.function_of(folder), (train[0], validation[0]))
    if record.exists():
        check_rows(folder, read_json(record)["outputs"])
        return
    # The first ones, so that every run of a sweep is evaluated on the same problems, independent of its seed.
    validation = uniform_prompts(validation[: run["evaluation"]["n_problems"]])
    if not request.get("chat_template", True):
        require_text([*train, *validation])
    report(run, train, validation)
    order = epoch_orders(len(train), run["problems_per_batch"] * run["update_steps"], run["seed"])
    rows = {
        "train": (row(train[i], "train", request) for i in order),
        "evaluation": (row(problem, "validation", request) for problem in validation),
    }
    outputs = {file: write_lines(folder / file, rows[kind]) for kind, file in ROW_FILES.items()}
    counts = {"train": len(train), "validation": len(validation)}
    write_json(record, {"request": request, "inputs": inputs, "outputs": outputs, "problems": counts})


def check_reward(function: Callable[..., Any], problems: Iterable[Problem]) -> None:
    """Score these problems with the right answer and with nothing as the response.

    Raises:
        RewardFileError: the function fails on both responses to a problem.
    """
    for problem in problems:
        errors: list[str] = []
        for response in (str(problem.answer), ""):
            try:
                reward_calls.as_float(function(problem.messages[-1]["content"], response, problem.answer))
            except Exception:
                errors.append(traceback.format_exc())
        if len(errors) == 2:
            raise reward_calls.RewardFileError(
                f"the reward function fails on problem {problem.id!r}, whether the response is its answer or empty; "
                f"every sample would score 0.0. {errors[0]}"
            )


def check_rows(folder: Path, outputs: dict[str, str]) -> None:
    """Refuse rows that differ from those of the first start."""
    for name, digest in outputs.items():
        if not (folder / name).is_file() or digest_of(folder / name) != digest:
            raise InputError(f"{name} in {str(folder)!r} was changed or removed since the run started")


def require_text(problems: list[Problem]) -> None:
    """Refuse lists of messages where no chat template is applied."""
    for problem in problems:
        if not isinstance(problem.prompt, str):
            raise InputError(
                f"problem {problem.id!r} is a list of messages, but the option chat_template is off; accepted then: "
                "prompts that are text"
            )


def uniform_prompts(problems: list[Problem]) -> list[Problem]:
    """Make all prompts message lists if one is: a column of mixed types cannot be loaded."""
    if all(isinstance(problem.prompt, str) for problem in problems):
        return problems
    return [Problem(problem.id, problem.messages, problem.answer) for problem in problems]


def epoch_orders(problems: int, rows: int, seed: int) -> Iterator[int]:
    """Problem indices of `rows` rows: every epoch has each problem once, in its own seeded order."""
    for epoch in range(-(-rows // problems)):
        order = list(range(problems))
        random.Random(f"{seed}:{epoch}").shuffle(order)
        yield from order[: rows - epoch * problems]


def report(run: dict[str, Any], train: list[Problem], validation: list[Problem]) -> None:
    """Warn on stderr about settings that are legal but probably not intended."""
    batch = run["problems_per_batch"]
    if len(train) < batch:
        warn(f"{len(train)} training problems for batches of {batch}: every batch repeats problems")
    stated = run["data"]["n_problems"]
    if stated is not None and stated != len(train):
        warn(f"the run was planned for {stated} training problems; the file holds {len(train)}")
    wanted = run["evaluation"]["n_problems"]
    if wanted is not None and len(validation) < wanted:
        warn(f"the validation file holds {len(validation)} problems; {wanted} were asked for")
    known = {json.dumps(problem.prompt) for problem in train}
    shared = sum(json.dumps(problem.prompt) in known for problem in validation)
    if shared:
        warn(f"{shared} of {len(validation)} validation prompts are also training prompts")


def write_lines(path: Path, rows: Iterable[dict[str, Any]]) -> str:
    """Replace a JSONL file in one step; returns the SHA-256 of what was written."""
    return write_text(path, (json.dumps(row) + "\n" for row in rows))


def warn(message: str) -> None:
    """One line on stderr; the run goes on."""
    sys.stderr.write(f"prepare_rows: warning: {message}\n")
