"""Programs that launch scripts carry beside a training framework: standard library only, Python 3.10 or newer.

A script writes those that it needs into the run folder, where they import each other by their bare names.
"""

from __future__ import annotations

from importlib import resources


def program(name: str, package: str = __name__) -> str:
    """The text of the program `name`, one of these or one that `package` ships."""
    return resources.files(package).joinpath(name).read_text(encoding="utf-8")
