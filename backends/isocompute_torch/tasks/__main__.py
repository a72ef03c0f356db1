"""Command line: `python -m isocompute_torch.tasks FOLDER --family mul31 --set easy --seed 0`."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from isocompute_sdk.errors import IsoComputeError
from isocompute_torch.tasks.arithmetic import FAMILIES, KINDS, PreparedTask, prepare

if TYPE_CHECKING:
    from isocompute_torch.tasks.build import Progress


def main(arguments: list[str] | None = None) -> int:
    """Make one task, or reuse it, and print its measurements; 0 on success, 2 on unusable arguments or folder."""
    parser = argparse.ArgumentParser(
        prog="python -m isocompute_torch.tasks",
        description="Make generated arithmetic problems, a reward function and a tiny base model.",
    )
    parser.add_argument("folder", help="new folder, or the folder of this task")
    parser.add_argument(
        "--family", default="mul31", help=f"{', '.join(FAMILIES)}, or several joined with + (default: %(default)s)"
    )
    parser.add_argument(
        "--set", dest="kind", choices=KINDS, default="easy", help="difficulty of the problems (default: %(default)s)"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of every random choice (default: %(default)s)")
    options = parser.parse_args(arguments)
    try:
        task = prepare(options.folder, options.family, options.kind, options.seed, _stages())
    except (IsoComputeError, OSError) as error:
        sys.stderr.write(f"{parser.prog}: {error}\n")
        return 2
    sys.stdout.write(report(task))
    return 0


def report(task: PreparedTask) -> str:
    """The measurements, as text of a few lines."""
    measured = task.measured
    samples = f"avg@{task.settings.label_samples}"
    lines = [
        f"{task.folder}: {task.settings.family}, {task.settings.kind} set, seed {task.settings.seed}",
        f"model: {measured['parameters']:,} parameters, {measured['warm_up']['steps']} supervised steps, "
        f"pass rate {measured['pass_rate_of_all']:.3f} over all {measured['problems']:,} problems",
    ]
    lines += [
        f"{name}: {measured[name]['problems']:,} problems, {samples} {measured[name][samples]:.3f}, "
        f"pass rate {measured[name]['pass_rate']:.3f}"
        for name in ("train", "validation")
    ]
    return "\n".join(lines) + "\n"


def _stages() -> Progress:
    """Writes one line on stderr when a stage begins."""
    shown: set[str] = set()

    def show(stage: str, done: int, total: int) -> None:
        del done, total
        if stage not in shown:
            shown.add(stage)
            sys.stderr.write(f"{stage}\n")

    return show


if __name__ == "__main__":
    sys.exit(main())
