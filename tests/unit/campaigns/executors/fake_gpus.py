"""A machine with GPUs that are none: an `nvidia-smi` that lists names of its own."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest


def uuids(count: int, kind: str = "GPU") -> list[str]:
    """New UUIDs, so that tests that run at the same time never claim the same GPU."""
    return [f"{kind}-{uuid.uuid4()}" for _ in range(count)]


def listing(gpus: dict[str, list[str]]) -> str:
    """What `nvidia-smi -L` prints of GPUs and their MIG slices, by UUID."""
    lines: list[str] = []
    for index, (gpu, slices) in enumerate(gpus.items()):
        lines.append(f"GPU {index}: NVIDIA H100 80GB HBM3 (UUID: {gpu})")
        lines += [f"  MIG 1g.10gb     Device  {place}: (UUID: {one})" for place, one in enumerate(slices)]
    return "\n".join(lines) + "\n"


def install(monkeypatch: pytest.MonkeyPatch, folder: Path, printed: str, code: int = 0) -> None:
    """Put an `nvidia-smi` first on PATH that prints this, and unset CUDA_VISIBLE_DEVICES."""
    folder.mkdir(exist_ok=True)
    (folder / "printed").write_text(printed)
    program = folder / "nvidia-smi"
    program.write_text(f'#!/bin/sh\n[ "$1" = -L ] && cat {folder}/printed\nexit {code}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
