"""Which files of the package a statement enters, with how many calls: `trace_files.py STATEMENT [--warm]`.

`trace_files.py "iso.read('runs.csv')" --warm` runs the statement once before it traces. Module bodies count as calls.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path
from types import FrameType

import isocompute_sdk as iso

ROOTS = (str(Path(iso.__file__).parent), str(Path(iso.__file__).parents[1] / "backends"))


def main() -> None:
    """Trace one statement and print the files that it entered."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("statement")
    parser.add_argument("--warm", action="store_true", help="run the statement once before it is traced")
    arguments = parser.parse_args()
    code = compile(arguments.statement, "statement", "exec")
    if arguments.warm:
        exec(code, {"iso": iso})
    calls: Counter[str] = Counter()

    def enter(frame: FrameType, event: str, argument: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(ROOTS):
            calls[frame.f_code.co_filename] += 1

    sys.setprofile(enter)
    try:
        exec(code, {"iso": iso})
    finally:
        sys.setprofile(None)
    lines = [f"{count:8} {Path(path).relative_to(Path(ROOTS[0]).parent)}" for path, count in calls.most_common()]
    sys.stdout.write("\n".join([*lines, f"{len(calls)} files, {calls.total()} calls", ""]))


if __name__ == "__main__":
    main()
