"""Which checkpoint a run goes on from after a stop at an awkward moment."""

from __future__ import annotations

from pathlib import Path

import pytest

from isocompute_openrlhf.payload import resume_point


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


def test_a_healthy_folder_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save(tmp_path / "_actor", "global_step10")
    save(tmp_path / "_actor", "global_step20")
    assert resume_point.main([str(tmp_path), "_actor"]) == 0
    assert latest(tmp_path / "_actor") == "global_step20"
    assert "goes on after update step 20" in capsys.readouterr().err


def test_a_half_written_checkpoint_is_passed_over(tmp_path: Path) -> None:
    save(tmp_path / "_actor", "global_step9")
    save(tmp_path / "_actor", "global_step10", complete=False)
    resume_point.main([str(tmp_path), "_actor"])
    assert latest(tmp_path / "_actor") == "global_step9"


def test_a_best_checkpoint_removed_before_the_next_was_saved_is_not_followed(tmp_path: Path) -> None:
    save(tmp_path / "_actor", "global_step40")
    (tmp_path / "_actor" / "latest").write_text("best_global_step50")
    resume_point.main([str(tmp_path), "_actor"])
    assert latest(tmp_path / "_actor") == "global_step40"


def test_at_the_same_step_the_best_checkpoint_is_taken(tmp_path: Path) -> None:
    save(tmp_path / "_actor", "best_global_step20")
    save(tmp_path / "_actor", "global_step20")
    save(tmp_path / "_actor", "global_step3")
    resume_point.main([str(tmp_path), "_actor"])
    assert latest(tmp_path / "_actor") == "best_global_step20"


def test_actor_and_critic_go_on_from_the_same_step(tmp_path: Path) -> None:
    for tag in ("global_step10", "global_step20"):
        save(tmp_path / "_actor", tag)
    save(tmp_path / "_critic", "global_step10")
    resume_point.main([str(tmp_path), "_actor", "_critic"])
    assert latest(tmp_path / "_actor") == latest(tmp_path / "_critic") == "global_step10"


def test_a_folder_without_a_complete_checkpoint_is_moved_aside(tmp_path: Path) -> None:
    for _ in range(2):
        save(tmp_path / "_actor", "global_step10", complete=False, latest=False)
        resume_point.main([str(tmp_path), "_actor", "_critic"])
        assert not (tmp_path / "_actor").exists()
    assert {path.name for path in tmp_path.iterdir()} == {"_actor.incomplete1", "_actor.incomplete2"}


def test_a_first_start_changes_nothing(tmp_path: Path) -> None:
    assert resume_point.main([str(tmp_path / "checkpoints"), "_actor"]) == 0
    assert not list(tmp_path.iterdir())
    assert resume_point.main(["only one argument"]) == 2
