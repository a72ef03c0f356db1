"""The documentation site builds without warnings from a clean state, and everything public has its place in it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

import isocompute_sdk
from isocompute_sdk.cli.app import app
from isocompute_sdk.laws.catalogue import published_names
from isocompute_sdk.planning.plan_parts import VerdictKind
from isocompute_sdk.specs import Study, json_schema, load_study
from isocompute_sdk.specs.study import available, executor_type

pytestmark = pytest.mark.slow
"""The build takes half a minute; `.ci/run` has a stage of its own for it."""


@pytest.fixture(scope="module")
def site(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the built pages."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "docs/build.py", "--output", str(folder)]
    done = subprocess.run(command, cwd=repository, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "html"


def anchors(page: Path) -> set[str]:
    """Every `id` of a built page."""
    return set(re.findall(r'\bid="([^"]+)"', page.read_text(encoding="utf-8")))


def test_every_page_of_the_documentation_is_in_the_site(site: Path, repository: Path) -> None:
    for folder in ("docs", "tutorials"):
        for page in (repository / folder).glob("*.md"):
            assert (site / folder / f"{page.stem}.html").is_file()
    assert (site / "index.html").is_file()


def test_every_command_has_a_page_with_its_options(site: Path) -> None:
    from typer.main import get_command

    commands: dict[str, object] = get_command(app).commands  # pyright: ignore[reportAttributeAccessIssue]
    assert len(commands) > 10
    for name, command in commands.items():
        page = (site / "docs" / "reference" / "commands" / f"{name}.html").read_text(encoding="utf-8")
        words = set(re.findall(r'<span class="pre">([^<]+)</span>', page))
        flags = {flag for one in command.params for flag in one.opts if flag.startswith("--")}  # pyright: ignore
        assert flags <= words, name


def test_every_public_name_is_in_the_python_reference(site: Path) -> None:
    found = set[str]().union(*map(anchors, (site / "docs" / "reference" / "python").glob("*.html")))
    assert {f"isocompute_sdk.{name}" for name in isocompute_sdk.__all__} <= found


def test_every_key_of_a_study_has_an_anchor_and_every_value_an_example(site: Path, repository: Path) -> None:
    page = site / "docs" / "study_file.html"
    sections = {
        "Study": "study",
        "Allocation": "runs",
        "ProblemSource": "problems",
        **{name: name.lower() for name in ("Data", "Recipe", "Sweep", "Pilot", "Budget", "Hardware", "Throughput")},
        **{name: name.lower() for name in ("Evaluation", "Supervision")},
    }
    schema = json_schema(Study)
    classes = {"Study": schema, **schema["$defs"]}
    assert set(classes) == {*sections, "Measurement"}
    # Classes with a short form say so in anyOf, with the mapping last.
    mapped = {name: classes[name].get("anyOf", [classes[name]])[-1] for name in sections}
    keys = {sections[name]: set(mapped[name]["properties"]) - {"preset"} for name in sections}
    keys |= {f"executor-{name}": set(executor_type(name).model_fields) for name in available()}
    wanted = {f"{section}-{key}".replace("_", "-") for section, names in keys.items() for key in names}
    assert len(wanted) > 120
    assert wanted <= anchors(page)
    shown = re.sub(r"<[^>]+>", "", page.read_text(encoding="utf-8"))
    mappings = {*sections.values(), "executor", "measured"}
    for names in keys.values():
        assert [name for name in names - mappings if f"Example: {name}: " not in shown] == []


def test_every_example_study_loads(repository: Path) -> None:
    files = sorted((repository / "docs" / "examples").glob("*.yaml"))
    assert len(files) > 3
    for file in files:
        study = load_study(file)
        assert study.has_runs or study.designed is not None


def test_every_note_has_an_anchor(site: Path, repository: Path) -> None:
    source = (repository / "docs" / "notes.md").read_text(encoding="utf-8")
    first = [row.split("|")[1] for row in source.splitlines() if row.startswith("| `")]
    codes = {code for cell in first for code in re.findall(r"`([^`]+)`", cell)}
    assert len(codes) > 60
    assert codes <= anchors(site / "docs" / "notes.html")


def test_every_verdict_and_every_published_law_is_explained(site: Path) -> None:
    for page, words in (("planning", get_args(VerdictKind)), ("laws", published_names())):
        shown = set(
            re.findall(r'<span class="pre">([^<]+)</span>', (site / "docs" / f"{page}.html").read_text("utf-8"))
        )
        assert set(words) <= shown
