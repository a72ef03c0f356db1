"""Command line: `python -m isocompute_torch.tasks FOLDER --family mul31 --set easy --seed 0`."""

from __future__ import annotations

import argparse
import json
import sys

from isocompute_sdk.errors import IsoComputeError
from isocompute_torch.tasks import FAMILIES, prepare
from isocompute_torch.tasks.folder import KINDS


def main(arguments: list[str] | None = None) -> int:
    """Make one task, or reuse it, and print its measurements; 0 on success, 2 on unusable arguments or folder."""
    parser = argparse.ArgumentParser(
        prog="python -m isocompute_torch.tasks",
        description="Make generated arithmetic problems, a reward function and a tiny base model.",
    )
    parser.add_argument("folder", help="new folder, or the folder of this task")
    families = f"{', '.join(FAMILIES)}, or several joined with + (default: %(default)s)"
    parser.add_argument("--family", default="mul31", help=families)
    parser.add_argument("--set", dest="kind", choices=KINDS, default="easy", help="difficulty (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="seed of every random choice (default: %(default)s)")
    options = parser.parse_args(arguments)
    try:
        task = prepare(options.folder, options.family, options.kind, options.seed)
    except (IsoComputeError, OSError) as error:
        sys.stderr.write(f"{parser.prog}: {error}\n")
        return 2
    sys.stdout.write(f"{options.folder}: {json.dumps(task['measured'])}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
