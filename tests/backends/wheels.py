"""Wheels of real frameworks whose own files the tests run, without installing them or their dependencies.

A wheel is downloaded once with pip into the user's cache folder. A missing network is an error: a test that passes
without the real thing would say nothing.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

ANY_LINUX = ("--implementation=cp", "--python-version=3.11", "--abi=cp311", "--platform=manylinux1_x86_64")
"""For a wheel that is marked for one platform and holds Python only."""


def cached_wheel(name: str, version: str, *options: str) -> Path:
    """The wheel, downloaded on the first call of all test runs of this user."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "isocompute-tests"
    cache.mkdir(parents=True, exist_ok=True)
    found = sorted(cache.glob(f"{name}-{version}-*.whl"))
    if found:
        return found[0]
    with tempfile.TemporaryDirectory(dir=cache) as folder:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", *options]
        subprocess.run([*command, "--dest", folder, f"{name}=={version}"], check=True)
        (wheel,) = Path(folder).glob("*.whl")
        return wheel.replace(cache / wheel.name)
