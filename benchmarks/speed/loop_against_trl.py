"""Rollouts per second of the whole loop, the runner of this package against TRL's GRPOTrainer.

Both train the same weights on the same problems: sampling, rewards, advantages and one optimiser step per batch, on one
CPU thread. By default the built-in task, 32 problems x 16 rollouts x 8 new tokens in float32; --task names a folder
with another model/, train.jsonl, validation.jsonl (with answers) and reward.py. Each measurement is a process of its
own; they take turns. Steps before the warm-up is over are not counted. Beside wall-clock time stands the processor
time of the process, which says more where other work shares the cores (the process that calls the reward function, a
few milliseconds a step, is not in it).
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path

from workload import ROOT, make_task, prepare_run, start

MODES = ("TRL", "merging off", "merging on", "before")


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, help="where the task is kept for the next time")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=40, help="optimiser steps that are measured")
    parser.add_argument("--warm-up", type=int, default=5, help="optimiser steps before")
    parser.add_argument("--problems", type=int, default=32)
    parser.add_argument("--group", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=8, help="most new tokens")
    parser.add_argument("--rate", type=float, default=4e-4, help="learning rate at 1,024 rollouts; square-root rule")
    parser.add_argument("--dtype", default="float32", help="number format of the model")
    parser.add_argument("--rows", type=int, help="most rollouts of a backward pass of TRL; by default the whole batch")
    parser.add_argument("--task", type=Path, help="folder of another task")
    parser.add_argument("--before", type=Path, help="checkout of an earlier commit, for the mode `before`")
    parser.add_argument("--modes", nargs="+", choices=MODES, default=MODES[:3])
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = (options.folder or Path(temporary)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        task = make_task(folder) if options.task is None else options.task.resolve()
        wall: dict[str, list[float]] = {mode: [] for mode in options.modes}
        processor: dict[str, list[float]] = {mode: [] for mode in options.modes}
        for number in range(options.rounds):
            for mode in options.modes:
                seconds = measure(mode, task, folder / "run", options)
                if options.task is None and seconds["length"] != options.tokens:
                    raise SystemExit(f"{mode}: responses of {seconds['length']} tokens; {options.tokens} were wanted")
                rollouts = options.steps * options.problems * options.group
                wall[mode].append(rollouts / seconds["seconds"])
                processor[mode].append(rollouts / seconds["cpu_seconds"])
                told = f"{wall[mode][-1]:,.1f} rollouts/s, {processor[mode][-1]:,.1f} per cpu-second"
                told += f", {seconds['cpu_seconds'] / options.steps:.2f} cpu-seconds a step"
                sys.stderr.write(f"round {number + 1}, {mode}: {told}\n")
    sys.stdout.write(f"rollouts per second\n{table(wall)}rollouts per cpu-second\n{table(processor)}")


def measure(mode: str, task: Path, folder: Path, options: argparse.Namespace) -> dict[str, float]:
    """Seconds, and processor seconds, that the measured steps took in one process."""
    if mode == "TRL":
        shape = [options.steps, options.warm_up, options.problems, options.group, options.tokens]
        rate = options.rate * (options.problems * options.group / 1024) ** 0.5
        arguments = ["trl_loop.py", str(task), *map(str, shape), str(rate), options.dtype]
        arguments.append(str(min(options.rows or options.problems * options.group, options.problems * options.group)))
    else:
        prepare_run(
            task,
            folder,
            steps=options.warm_up + options.steps,
            group_size=options.group,
            problems=options.problems,
            recipe={"max_response_tokens": options.tokens, "learning_rate_anchor": options.rate, "warmup_steps": 0},
            options={"merge_duplicates": mode != "merging off", "dtype": options.dtype},
        )
        arguments = ["our_loop.py", str(folder), str(options.warm_up)]
    worker, *rest = arguments
    root = options.before.resolve() if mode == "before" else ROOT
    printed = start([str(root / "benchmarks" / "speed" / worker), *rest], task, root)
    return json.loads(printed.splitlines()[-1])


def table(speeds: dict[str, list[float]]) -> str:
    """Rollouts per second per round, their median, and its ratio to TRL's."""
    rounds = len(next(iter(speeds.values())))
    head = "".join(f" round {i + 1} |" for i in range(rounds))
    lines = [f"| loop |{head} median | x TRL |", "|---|" + "---|" * (rounds + 2)]
    peer = statistics.median(speeds["TRL"]) if "TRL" in speeds else None
    for mode, values in speeds.items():
        cells = "".join(f" {value:,.1f} |" for value in values)
        ratio = "" if peer is None else f"{statistics.median(values) / peer:.2f}"
        lines.append(f"| {mode} |{cells} {statistics.median(values):,.1f} | {ratio} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
