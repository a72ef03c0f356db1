"""The documentation site builds without warnings from a clean state, and its checks find what is wrong."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def site(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the built pages."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "docs/build.py", "--output", str(folder)]
    done = subprocess.run(command, cwd=repository, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "html"


def test_every_page_of_the_documentation_is_in_the_site(site: Path, repository: Path) -> None:
    for folder in ("docs", "tutorials"):
        for page in (repository / folder).glob("*.md"):
            assert (site / folder / f"{page.stem}.html").is_file()
    assert (site / "index.html").is_file()
