"""Campaigns on a real Ray cluster of three nodes."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.engines.conftest import RayCluster
from tests.engines.kills import Place, check, devices, survive, undisturbed

pytestmark = pytest.mark.slow


def engine(cluster: RayCluster) -> str:
    return f"RayEngine(RaySpec(address={cluster.address!r}))"


def test_ten_kills_while_runs_train_change_no_record(ray_cluster: RayCluster, tmp_path: Path) -> None:
    rng, expected = random.Random(0), undisturbed(tmp_path / "whole")
    places = [Place(tmp_path / f"kills{number}", engine(ray_cluster)) for number in range(6)]
    for place in places[: survive(places, 10, rng, 6)]:
        check(place, expected)
        assert devices(place) <= {f"node{node}:{gpu}" for node in (0, 1) for gpu in (0, 1)}
