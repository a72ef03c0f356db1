"""Tutorials and pages run and show what comes out; every fault is shown by a test."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.documents.document import REPOSITORY, blocks, missing, printed, run_markdown, run_notebook

SLOW = {
    *("01_closed_loop", "08_easy_or_hard", "09_fixed_batch", "10_design_a_pilot"),
    *("11_entropy_collapse", "13_paper_figures", "14_wandb_export_to_verl"),
}
PACKAGES = {"02_write_a_backend", "03_add_a_log_format"}
"""Their files are installed and tested in tests/backends/third_party."""
TUTORIALS = sorted((REPOSITORY / "tutorials").glob("[0-9]*.md"))
PAGES = [path for name in ("start", "data_and_rewards") if (path := REPOSITORY / "docs" / f"{name}.md").exists()]
NOTEBOOKS = sorted((REPOSITORY / "tutorials").glob("*.ipynb"))


def marked(path: Path) -> object:
    return pytest.param(path, id=path.stem, marks=[pytest.mark.slow] if path.stem in SLOW else [])


@pytest.mark.parametrize("path", [marked(path) for path in (*TUTORIALS, *PAGES) if path.stem not in PACKAGES])
def test_a_document_runs_and_shows_what_comes_out(path: Path, tmp_path: Path) -> None:
    shown = run_markdown(path, tmp_path)
    assert shown, "nothing that is run is shown"
    for block, output in shown:
        number = None if "varies" in block.info else missing(block.content, output)
        assert number is None, f"{path.name}, line {block.line + 1}: {number} does not come out of\n{output}"


@pytest.mark.parametrize("path", [marked(path) for path in NOTEBOOKS])
def test_a_notebook_runs_and_shows_what_comes_out(path: Path, tmp_path: Path) -> None:
    before, after = run_notebook(path, tmp_path)
    for shown, cell in zip(before.cells, after.cells, strict=True):
        assert missing(printed(shown), printed(cell)) is None, printed(cell)
        pictures = [
            {kind for kind in one.get("data", {}) if kind.startswith("image/")} for one in shown.get("outputs", ())
        ]
        assert pictures == [
            {kind for kind in one.get("data", {}) if kind.startswith("image/")} for one in cell.get("outputs", ())
        ]


@pytest.mark.parametrize("path", [*TUTORIALS, *NOTEBOOKS, *PAGES], ids=lambda path: path.stem)
def test_no_document_names_a_folder_of_some_machine_or_is_large(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert len(text) < 500_000
    assert re.search("/(tmp|home|root)/", text) is None
    assert str(REPOSITORY) not in text


def test_numbers_that_do_not_come_out_are_found() -> None:
    output = "n = 256, reward 0.6371, 2,998,272 rollouts, 4e-06"
    assert missing("reward 0.64 of 2,998,272, 4e-06", output) is None
    assert missing("reward 0.66", output) == "0.66"
    assert missing("n = 257", output) == "257"
    assert missing("2,998,272 at n = 256", output) == "256"


def test_what_a_fence_is_follows_from_its_language_and_the_paragraph_above() -> None:
    text = "`a/b.py`: code.\n\n```python\nx\n```\n\nText.\n\n```python\ny\n```\n```bash no-run\nz\n```\n"
    assert [(block.file, block.example) for block in blocks(text)] == [("a/b.py", False), (None, True), (None, False)]


ROOT = Path(__file__).resolve().parents[2]
NAMED = re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", (ROOT / "docs/faults.md").read_text(encoding="utf-8"))


@pytest.mark.parametrize(("path", "name"), NAMED)
def test_a_fault_is_shown_by_a_test(path: str, name: str) -> None:
    assert f"def {name}(" in (ROOT / path).read_text(encoding="utf-8")
