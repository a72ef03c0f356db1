"""The script as bash runs it: what it writes, in which order it starts programs, and with which arguments."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Callable
from importlib import resources
from pathlib import Path

import pytest

from isocompute_openrlhf import OpenRLHFBackend
from isocompute_sdk.specs import Hardware, RunSpec
from isocompute_sdk.training.payload import SHARED

MakeRun = Callable[..., RunSpec]
Record = Callable[[str, Path], list[list[str]]]

PROGRAMS = [("isocompute_sdk.training.payload", name) for name in SHARED]
PROGRAMS += [("isocompute_openrlhf.payload", name) for name in OpenRLHFBackend.PROGRAMS]


def training(calls: list[list[str]]) -> list[str]:
    """What OpenRLHF gets: the last program of a script is the one that supervises it."""
    supervisor, rest = calls[-1][0], calls[-1][calls[-1].index("--") + 1 :]
    assert supervisor.endswith("/supervise.py")
    assert rest[:3] == ["python3", "-m", "openrlhf.cli.train_ppo_ray"]
    return rest[3:]


@pytest.mark.parametrize(("package", "name"), PROGRAMS)
def test_the_programs_need_the_standard_library_of_python_3_10_only(package: str, name: str) -> None:
    source = (resources.files(package) / name).read_text()
    tree = ast.parse(source, feature_version=(3, 10))
    imported: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imported |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add((node.module or "").split(".")[0])
    assert imported <= sys.stdlib_module_names | {Path(neighbour).stem for _, neighbour in PROGRAMS}


def test_a_local_model_is_passed_by_its_full_path(make_run: MakeRun, record_script: Record, tmp_path: Path) -> None:
    work = tmp_path / "work"
    (work / "-my model").mkdir(parents=True)
    calls = record_script(OpenRLHFBackend().script(make_run(model="-my model")), work)
    assert training(calls)[0] == f"--actor.model_name_or_path={work}/-my model"


def test_too_few_visible_gpus_are_a_warning(make_run: MakeRun, tmp_path: Path) -> None:
    for name, text in {"python3": "exit 0", "nvidia-smi": "echo 'GPU 0: one'"}.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    for gpus, warned in ((8, True), (1, False)):
        script = OpenRLHFBackend().script(make_run(hardware=Hardware(gpus=gpus))).encode()
        finished = subprocess.run(
            ["bash"], input=script, cwd=tmp_path, env=environment, capture_output=True, check=True
        )
        assert (b"warning" in finished.stderr) == warned
