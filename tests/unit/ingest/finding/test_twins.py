"""One run that two loggers wrote counts once."""

from __future__ import annotations

from pathlib import Path

import pytest

from isocompute_sdk.ingest import diagnose, propose, read_mapped
from tests.unit.ingest.log_files import Tags, write_events, write_hydra, write_verl

VERL: Tags = {
    "training/global_step": float,
    "critic/score/mean": lambda step: 0.5,
    "val-core/gsm/acc/mean@4": lambda step: 0.5 + step / 1000 if step % 10 == 0 else None,
}
"""What `write_verl` logs, as veRL's TensorBoard logger has it: in single precision."""


@pytest.fixture
def logged_twice(tmp_path: Path) -> Path:
    write_verl(tmp_path / "n8_bp32.jsonl", range(61))
    write_events(tmp_path / "tensorboard_log" / "project" / "n8_bp32", range(61), VERL)
    return tmp_path


def test_a_run_in_two_logs_is_proposed_once_and_the_doctor_says_so(logged_twice: Path) -> None:
    mapping = propose(logged_twice, set={"n": 8, "bp": 32})
    assert sorted(run.skip for run in mapping.runs.values()) == [False, True]
    confirmed = mapping.replace(searched=(str(logged_twice),))
    assert len(read_mapped(logged_twice / "map.yaml", confirmed).run_ids) == 1
    (said,) = [problem for one in diagnose(logged_twice).runs for problem in one.problems if "two logs" in problem]
    assert said.startswith("its evaluations are those of 'n8_bp32'")


@pytest.mark.parametrize(("n", "problems"), [(16, 32), (8, 64)])
def test_another_configuration_is_another_run_whatever_it_measured(tmp_path: Path, n: int, problems: int) -> None:
    write_hydra(tmp_path / "a", 8, 32)
    write_verl(tmp_path / "a" / "log.jsonl", range(61))
    write_hydra(tmp_path / "b", n, problems)
    write_events(tmp_path / "b", range(61), VERL)
    assert not any(run.skip for run in propose(tmp_path).runs.values())


def test_a_flat_or_short_evaluation_proves_nothing(tmp_path: Path) -> None:
    write_verl(tmp_path / "n8_bp32.jsonl", range(21))
    write_events(tmp_path / "events" / "n8_bp32", range(21), VERL)
    assert not any(run.skip for run in propose(tmp_path).runs.values())
