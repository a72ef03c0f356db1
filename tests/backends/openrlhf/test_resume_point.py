"""Which checkpoint a run goes on from after a stop at an awkward moment."""

from __future__ import annotations

from pathlib import Path

import pytest

from isocompute_openrlhf import payload
from tests.backends.openrlhf.inputs import read
from tests.backends.programs import load

supervise = load("supervise", payload)


@pytest.fixture
def checkpoints(tmp_path: Path) -> Path:
    """The checkpoint folder of a run whose third start this is."""
    (tmp_path / "attempts.jsonl").write_text("{}\n" * 3)
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    return folder


def save(folder: Path, tag: str, *, complete: bool = True, latest: bool = True) -> None:
    """A checkpoint as OpenRLHF leaves it: `latest` by DeepSpeed, then metric.json as the last step."""
    (folder / tag).mkdir(parents=True)
    (folder / tag / "mp_rank_00_model_states.pt").write_bytes(b"")
    if latest:
        (folder / "latest").write_text(tag)
    if complete:
        (folder / tag / "metric.json").write_text("{}")


def latest(folder: Path) -> str:
    return (folder / "latest").read_text()


def test_a_half_written_checkpoint_is_passed_over(checkpoints: Path) -> None:
    save(checkpoints / "_actor", "global_step9")
    save(checkpoints / "_actor", "global_step10", complete=False)
    supervise.resume(checkpoints.parent, ["_actor"])
    assert latest(checkpoints / "_actor") == "global_step9"


def test_actor_and_critic_go_on_from_the_same_step(checkpoints: Path) -> None:
    for tag in ("global_step10", "global_step20"):
        save(checkpoints / "_actor", tag)
    save(checkpoints / "_critic", "global_step10")
    supervise.resume(checkpoints.parent, ["_actor", "_critic"])
    assert latest(checkpoints / "_actor") == latest(checkpoints / "_critic") == "global_step10"


def test_a_folder_without_a_complete_checkpoint_is_moved_aside(checkpoints: Path) -> None:
    for _ in range(2):
        save(checkpoints / "_actor", "global_step10", complete=False, latest=False)
        supervise.resume(checkpoints.parent, ["_actor", "_critic"])
        assert not (checkpoints / "_actor").exists()
    assert {path.name for path in checkpoints.iterdir()} == {"_actor.incomplete1", "_actor.incomplete2"}


def test_every_start_notes_the_step_it_goes_on_from(checkpoints: Path) -> None:
    save(checkpoints / "_actor", "global_step20")
    supervise.resume(checkpoints.parent, ["_actor"])
    assert read(checkpoints.parent / "resumed.jsonl") == [{"attempt": 3, "step": 20}]
