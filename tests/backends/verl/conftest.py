"""Runs for the veRL backend, and veRL's own configuration files."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from isocompute_sdk.specs import Data, Recipe, RunSpec
from isocompute_verl.flags import VERSION
from tests.backends.verl.composing import Composer
from tests.backends.wheels import cached_wheel


@pytest.fixture(scope="session")
def compose(tmp_path_factory: pytest.TempPathFactory) -> Composer:
    """veRL's real composition of overrides, from the configuration folder of its wheel."""
    folder = tmp_path_factory.mktemp("verl")
    with zipfile.ZipFile(cached_wheel("verl", VERSION)) as wheel:
        names = [name for name in wheel.namelist() if name.startswith("verl/trainer/config/")]
        wheel.extractall(folder, names)
    return Composer(folder / "verl" / "trainer" / "config")


@pytest.fixture(scope="session")
def make_run() -> Callable[..., RunSpec]:
    def make(**changes: Any) -> RunSpec:
        recipe = changes.pop("recipe", {})
        values: dict[str, Any] = {
            "run_id": "small",
            "model": "Qwen/Qwen2.5-7B-Instruct",
            "data": Data(train="train.jsonl", validation="validation.jsonl", reward="reward.py"),
            "recipe": recipe if isinstance(recipe, Recipe) else Recipe(**recipe),
            "group_size": 16,
            "problems_per_batch": 32,
            "update_steps": 100,
            "backend": "verl",
            "output_dir": "runs",
        }
        return RunSpec(**{**values, **changes})

    return make


@pytest.fixture
def write_inputs() -> Callable[[Path], None]:
    """Five training problems, four validation problems and a reward function."""

    def write(folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        for name, count in (("train", 5), ("validation", 4)):
            lines = [f'{{"id": "{name[0]}{i}", "question": "{i} + {i}?", "answer": {2 * i}}}\n' for i in range(count)]
            (folder / f"{name}.jsonl").write_text("".join(lines))
        (folder / "reward.py").write_text("def reward(prompt, response, answer):\n    return response == str(answer)\n")

    return write
