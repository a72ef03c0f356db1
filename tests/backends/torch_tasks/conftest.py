"""One real task, made once, and settings under which a task is made in a second."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from isocompute_torch.tasks import ModelShape, PreparedTask, TaskSettings, WarmUp, prepare


@pytest.fixture(autouse=True)
def offline_on_one_thread(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def finished_task(tmp_path_factory: pytest.TempPathFactory) -> PreparedTask:
    return prepare(tmp_path_factory.mktemp("task") / "hard", settings=hasty())


def hasty(**changes: Any) -> TaskSettings:
    """A hard set from a model of one layer that saw four batches: the shortest way to a whole task."""
    small, quick = ModelShape(32, 1, 16), WarmUp(pass_rate=0.0, max_steps=4, check_every=4)
    return TaskSettings(**{"kind": "hard", "shape": small, "warm_up": quick, **changes})


def contents(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
