"""Runs that have learned nothing, and what ends a run early."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from isocompute_sdk.campaigns.carrying_out import EARLY_UPDATES, early_end, health_of, learned_nothing
from isocompute_sdk.errors import SpecError
from isocompute_sdk.training import registry

BACKEND = registry.load("simulator")


def write(folder: Path, rewards: Sequence[float], shares: Sequence[float] | None) -> Path:
    """A run with one update for each training reward, and shares of zero-variance groups if they are logged."""
    folder.mkdir()
    common = {"schema_version": 1, "run_id": folder.name, "attempt": 1, "tokens": 0, "wall_seconds": 0.0}
    records = [{**common, "kind": "run", "step": 0, "rollouts": 0, "group_size": 4, "problems_per_batch": 8, "seed": 0}]
    for step, reward in enumerate(rewards, start=1):
        metrics = {"train_reward": reward} | ({} if shares is None else {"zero_variance_share": shares[step - 1]})
        records.append({**common, "kind": "step", "step": step, "rollouts": 32 * step, "metrics": metrics})
    (folder / "metrics.jsonl").write_text("".join(json.dumps(one) + "\n" for one in records))
    return folder


@pytest.mark.parametrize(
    ("rewards", "shares", "idle"),
    [
        ([0.0] * 20, [1.0] * 20, True),
        ([1.0] * 20, [1.0] * 20, True),
        ([0.0] * 20, None, True),
        ([0.0] * 20, [1.0] * 19 + [0.9], False),
        ([0.0] * 19 + [0.1], None, False),
        ([1.0] * 20, None, False),
        ([0.0] * 3, [1.0] * 3, False),
    ],
)
def test_only_a_run_without_any_gradient_has_learned_nothing(
    tmp_path: Path, rewards: list[float], shares: list[float] | None, idle: bool
) -> None:
    folder = write(tmp_path / "one", rewards, shares)
    health = health_of(BACKEND, [folder, tmp_path / "not-begun"])
    assert learned_nothing(health) == (("one",) if idle else ())
    assert health.runs == 1


def test_a_run_ends_early_only_for_codes_that_were_asked_for_and_enough_updates(tmp_path: Path) -> None:
    begun = write(tmp_path / "begun", [0.0] * (EARLY_UPDATES - 1), None)
    idle = write(tmp_path / "idle", [0.0] * EARLY_UPDATES, None)
    assert early_end(BACKEND, idle, ()) is None
    looks = {folder: early_end(BACKEND, folder, ["nothing-learned"]) for folder in (begun, idle, tmp_path / "none")}
    words = {folder.name: look() for folder, look in looks.items() if look is not None}
    assert (words["begun"], words["none"]) == ("", "")
    assert "nothing-learned" in words["idle"]
    other = early_end(BACKEND, idle, ["kl-drift"])
    assert other is not None
    assert other() == ""


def test_an_unknown_code_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError):
        early_end(BACKEND, tmp_path, ["no-such-code"])
