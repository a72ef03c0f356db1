"""The built wheel works where the repository is not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from ruamel.yaml import YAML


@pytest.fixture(scope="module")
def wheel(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", folder, repository],
        check=True,
        capture_output=True,
    )
    return next(folder.glob("*.whl"))


def test_the_wheel_holds_packages_data_and_templates_but_no_tests(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {
        "isocompute_sdk/py.typed",
        "isocompute_sdk/laws/data/published_laws.json",
        "isocompute_sdk/notes.md",
    } <= names
    assert {f"isocompute_{backend}/templates/launch.sh.j2" for backend in ("openrlhf", "torch", "trl", "verl")} <= names
    assert {"isocompute_sdk/training/payload/problem_rows.py", "isocompute_trl/payload/train.py"} <= names
    tops = {name.split("/")[0] for name in names}
    assert not tops & {"backends", "specs", "tests", "tutorials", "docs"}


def test_the_installed_wheel_plans_and_writes_a_script_outside_the_repository(wheel: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", site, wheel],
        check=True,
        capture_output=True,
    )
    code = (
        "import json, isocompute_sdk as iso; from isocompute_sdk.laws import measured_easy\n"
        "plan = iso.Planner(iso.published('qwen2.5-7b-instruct/guru-math-easy')).allocate('3M')\n"
        "columns, context = measured_easy()\n"
        "print(json.dumps([iso.__file__, plan.group_size, len(columns['n']), plan.launch_script()]))"
    )
    result = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(site)!r})\n{code}"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
        check=True,
    )
    where, group_size, rows, script = json.loads(result.stdout)
    assert Path(where).is_relative_to(site)
    assert (group_size, rows) == (512, 1081)
    assert "train_ppo_ray" in script


def test_the_citation_names_the_version_that_is_built(repository: Path, wheel: Path) -> None:
    citation = YAML(typ="safe").load(repository / "CITATION.cff")
    assert wheel.name.startswith(f"isocompute-{citation['version']}-")
