"""Real engines on this machine. A test without its engine is skipped, and says how to install it."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import REPOSITORY
from tests.killing import undisturbed
from tests.random_kills import STUDY

LOCAL_SLURM = REPOSITORY / "scripts" / "local_slurm.sh"
LOCAL_RAY = Path(__file__).with_name("local_ray.py")
SLURM_COMMANDS = ("sbatch", "squeue", "scancel", "sinfo", "slurmctld", "slurmd", "munged")


@pytest.fixture(scope="session")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A Slurm of one node with eight cores and two GPUs that are none; returns its folder."""
    missing = [name for name in SLURM_COMMANDS if shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin") is None]
    if missing:
        pytest.skip(f"Slurm is not installed ({', '.join(missing)}): as root, scripts/local_slurm.sh install")
    folder = tmp_path_factory.mktemp("slurm")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{os.environ['PATH']}:/usr/sbin")
        patch.setenv("SLURM_CONF", str(folder / "slurm.conf"))
        try:
            subprocess.run([LOCAL_SLURM, "start", folder], check=True, timeout=60)
            yield folder
            subprocess.run(["scancel", "--me"], check=True, timeout=60)
        finally:
            subprocess.run([LOCAL_SLURM, "stop", folder], check=True, timeout=60)


@pytest.fixture(scope="session")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Records of the study that nothing has disturbed."""
    return undisturbed(STUDY, tmp_path_factory.mktemp("whole"))


@dataclass
class RayCluster:
    """A Ray cluster of three nodes; it asks for a token."""

    process: subprocess.Popen[str]
    address: str

    def kill_node(self, number: int) -> None:
        """SIGKILL the raylet of a node."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{number}\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "killed\n"


@pytest.fixture(scope="module")
def ray_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RayCluster]:
    """A head without GPUs, and two nodes with four cores and two GPUs each that are none."""
    if find_spec("ray") is None or find_spec("aiohttp") is None:
        pytest.skip("Ray is not installed: pip install -c constraints.txt 'isocompute[ray]'")
    token = tmp_path_factory.mktemp("ray") / "token"
    token.write_text(secrets.token_hex(32))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_AUTH_MODE", "token")
        patch.setenv("RAY_AUTH_TOKEN_PATH", str(token))
        patch.delenv("RAY_ADDRESS", raising=False)
        with subprocess.Popen(
            [sys.executable, LOCAL_RAY, str(port)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            started: dict[str, Any] = json.loads(process.stdout.readline())
            yield RayCluster(process, started["address"])
            process.stdin.close()
            process.wait(60)
