"""Programs that launch scripts carry beside a training framework: standard library only, Python 3.10 or newer.

A script writes them into the run folder, where they import each other by their bare names.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib import resources

SHARED = ("run_files.py", "claim_folder.py", "problem_files.py", "problem_rows.py", "reward_calls.py")
"""Programs in every script."""


def program(name: str, package: str = __name__) -> str:
    """Text of the program `name` in `package`."""
    return resources.files(package).joinpath(name).read_text(encoding="utf-8")


def programs(package: str, own: Iterable[str]) -> dict[str, str]:
    """Name -> text of the shared programs and of the programs `own` of `package`."""
    return {name: program(name) for name in SHARED} | {name: program(name, package) for name in own}
