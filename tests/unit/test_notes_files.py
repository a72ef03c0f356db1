"""Files are replaced in one step, whatever happens; notes keep their numbers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from isocompute_sdk import IsoComputeError, Note, files
from isocompute_sdk.documents import Document
from isocompute_sdk.notes import unique

DOCUMENT = Document("note", 1, Note)

DYING = """
import os, signal, sys
from pathlib import Path
from isocompute_sdk import files

def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)

def dies_after(step):
    def act(*arguments, **options):
        step(*arguments, **options)
        die()
    return act

target, moment = sys.argv[1:]
if moment == "half written":
    files.write_with(target, lambda temporary: (temporary.write_text('{"round"'), die()))
elif moment == "written":
    os.fsync = die
elif moment == "on disk":
    os.fsync = dies_after(os.fsync)
elif moment == "before the move":
    Path.replace = die
else:
    Path.replace = dies_after(Path.replace)
files.write_text(target, '{"round": 1}')
"""


@pytest.mark.parametrize("moment", ["half written", "written", "on disk", "before the move", "moved"])
def test_a_kill_leaves_the_old_file_or_the_new_one(tmp_path: Path, moment: str) -> None:
    target = tmp_path / "state.json"
    files.write_text(target, '{"round": 0}')
    died = subprocess.run([sys.executable, "-c", DYING, str(target), moment], check=False)
    assert died.returncode == -signal.SIGKILL
    assert json.loads(target.read_text()) == {"round": int(moment == "moved")}


def test_a_write_that_fails_leaves_the_old_file_and_no_rubbish(tmp_path: Path) -> None:
    target = tmp_path / "plan.json"
    files.write_text(target, "old")

    def fail(temporary: Path) -> None:
        temporary.write_text("half")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        files.write_with(target, fail)
    with pytest.raises(KeyboardInterrupt):
        files.write_with(target, lambda _: (_ for _ in ()).throw(KeyboardInterrupt()))
    assert target.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["plan.json"]


def test_folders_are_created_and_modes_follow_the_umask(tmp_path: Path) -> None:
    umask = os.umask(0o022)
    try:
        plain = files.write_text(tmp_path / "a" / "b" / "x.txt", "text")
        script = files.write_text(tmp_path / "a" / "run.sh", "#!/bin/sh\n", executable=True)
    finally:
        os.umask(umask)
    assert plain.read_text(encoding="utf-8") == "text"
    assert plain.stat().st_mode & 0o777 == 0o644
    assert script.stat().st_mode & 0o777 == 0o755


def test_the_temporary_file_keeps_the_suffix_and_the_folder(tmp_path: Path) -> None:
    seen: list[Path] = []

    def write(temporary: Path) -> None:
        seen.append(temporary)
        temporary.write_text("x")

    files.write_with(tmp_path / "figure.svg", write)
    assert seen[0].suffix == ".svg"
    assert seen[0].parent == tmp_path
    assert seen[0].name.startswith(".")


def test_a_pipe_and_an_open_file_are_written_to_and_stay_what_they_are(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.json"
    os.mkfifo(pipe)
    # Both ends, so that opening it waits for nobody.
    ends = os.open(pipe, os.O_RDWR)
    try:
        files.write_text(pipe, "through")
        assert pipe.is_fifo()
        assert os.read(ends, 100) == b"through"
    finally:
        os.close(ends)
    with (tmp_path / "out.txt").open("w") as out:
        out.write("before ")
        out.flush()
        files.write_text(f"/proc/self/fd/{out.fileno()}", "after")
    assert (tmp_path / "out.txt").read_text() == "before after"


def test_what_a_link_leads_to_is_replaced_and_the_link_stays(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    link = tmp_path / "plan.json"
    link.symlink_to(tmp_path / "store" / "plan.json")
    for text in ("first", "second"):
        assert files.write_text(link, text) == link
        assert link.is_symlink()
        assert (tmp_path / "store" / "plan.json").read_text() == text
    assert [path.name for path in (tmp_path / "store").iterdir()] == ["plan.json"]


@pytest.mark.parametrize("path", [".", "folder"])
def test_a_folder_is_not_replaced_by_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    with pytest.raises(IsoComputeError, match="Is a directory"):
        DOCUMENT.save(path, Note("code", "info", "text"))


def test_notes_survive_json_and_repeats_are_dropped_in_order() -> None:
    a = Note("extrapolation-beyond-3x", "warning", "target is 4x", {"ratio": 4.0})
    b = Note("near-tie", "info", "two are alike")
    assert Note(**json.loads(json.dumps(a.to_dict()))) == a
    assert unique([a, b, Note(a.code, "info", a.message), b, a]) == (a, b)
    other = Note(a.code, a.severity, "target is 5x", {"ratio": 5.0})
    assert unique([a, other]) == (a, other)
