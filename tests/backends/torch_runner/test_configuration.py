"""What run.json means: schedules, seeds, and when two starts are one run."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from isocompute_torch.configuration import derive_seed, load_configuration


@pytest.mark.parametrize(
    ("change", "same"),
    [
        ({"options": {"threads": 2, "merge_duplicates": False}}, True),
        ({"options": {"max_tokens_per_micro_batch": 50, "sampling_batch": 8}}, True),
        ({"output_dir": "elsewhere"}, True),
        ({"update_steps": 20}, True),
        ({"seed": 1}, False),
        ({"recipe": {"kl_coef": 0.1}}, False),
        ({"options": {"probe_problems": 3}}, False),
        ({"evaluation": {"samples": 8}}, False),
        ({"evaluation": {"count": 2, "samples": 4}}, True),
    ],
)
def test_the_identity_is_that_of_the_results(prepared: Callable[..., Path], change: dict[str, Any], same: bool) -> None:
    before = load_configuration(prepared()).identity()
    assert (load_configuration(prepared(**change)).identity() == before) is same


def test_every_purpose_and_step_has_a_seed_of_its_own() -> None:
    seeds = {derive_seed(seed, purpose, step) for seed in range(3) for purpose in ("a", "b") for step in range(50)}
    assert len(seeds) == 300
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert derive_seed(0, "rollouts", 1) == 3699509170653107421


def test_reading_a_run_folder_loads_no_torch(prepared: Callable[..., Path]) -> None:
    code = (
        "import sys; from isocompute_torch.configuration import load_configuration; "
        "from isocompute_sdk.run_folders import journal_records; load_configuration(sys.argv[1]); "
        "sys.exit(any(name in sys.modules for name in ('torch', 'transformers')))"
    )
    assert subprocess.run([sys.executable, "-c", code, str(prepared())], check=False).returncode == 0
