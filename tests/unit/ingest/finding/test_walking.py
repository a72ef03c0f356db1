"""Folders of runs that are put together from links."""

from __future__ import annotations

import os
from pathlib import Path

from isocompute_sdk.ingest import diagnose
from isocompute_sdk.ingest.paths import files_below
from isocompute_sdk.records import RunSet
from tests.unit.ingest.log_files import OPENRLHF, write_events


def names(root: Path) -> list[str]:
    return sorted(str(file.relative_to(root)) for file in files_below(root))


def test_a_run_behind_a_link_is_a_run_like_any_other(tmp_path: Path) -> None:
    write_events(tmp_path / "disk" / "one", range(1, 41), OPENRLHF)
    (tmp_path / "disk" / "table.csv").write_text("n,bp,step,avg@4\n8,32,0,0.5\n8,32,10,0.6\n")
    runs = tmp_path / "runs"
    runs.mkdir()
    (runs / "n8_bp32").symlink_to(tmp_path / "disk" / "one")
    (runs / "other.csv").symlink_to(tmp_path / "disk" / "table.csv")
    assert [finding.name for finding in diagnose(runs).runs] == ["n8-bp32-seed0", "n8_bp32"]
    assert RunSet.read(runs, group_size=8, problems_per_batch=32).run_ids == ("n8_bp32",)


def test_what_several_names_lead_to_is_read_once_by_the_name_that_is_no_link(tmp_path: Path) -> None:
    write_events(tmp_path / "run-1", range(1, 41), OPENRLHF)
    (tmp_path / "a-latest").symlink_to("run-1")
    (tmp_path / "z.csv").write_text("")
    (tmp_path / "a.csv").symlink_to("z.csv")
    assert {Path(name).parts[0] for name in names(tmp_path)} == {"run-1", "z.csv"}


def test_circles_hidden_names_and_links_to_nowhere_are_left_out(tmp_path: Path) -> None:
    root = tmp_path / "runs"
    (root / "a" / ".hidden").mkdir(parents=True)
    for file in ("a/log.csv", "a/.secret.csv", "a/.hidden/log.csv"):
        (root / file).write_text("")
    (tmp_path / "beside.csv").write_text("")
    (root / "a" / "up").symlink_to("..")
    (root / "above").symlink_to(os.pardir)
    (root / "gone").symlink_to("nowhere")
    assert names(root) == ["a/log.csv"]
