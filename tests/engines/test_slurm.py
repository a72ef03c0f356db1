"""Campaigns on a real Slurm of one node."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.engines.kills import Place, check, devices, survive, undisturbed

pytestmark = pytest.mark.slow
ENGINE = "SlurmEngine(SlurmSpec(partition='main', cpus=1))"


def test_ten_kills_while_runs_train_change_no_record(slurm: Path, tmp_path: Path) -> None:
    rng, expected = random.Random(0), undisturbed(tmp_path / "whole")
    places = [Place(tmp_path / f"kills{number}", ENGINE) for number in range(6)]
    for place in places[: survive(places, 10, rng, 3)]:
        check(place, expected)
        assert devices(place) <= {":0", ":1"}
