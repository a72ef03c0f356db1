"""Make the checkpoint folders of an OpenRLHF run loadable after a stop at any moment.

    python3 resume_point.py CHECKPOINT_FOLDER ENGINE [ENGINE ...]       (engines: _actor, _critic)

DeepSpeed resumes from the tag named in the file `latest`. After a kill that tag can be gone (a new best
checkpoint removes the old one before it is saved), can differ between actor and critic, or a folder can
exist without any complete checkpoint, which OpenRLHF then fails on at every start. OpenRLHF writes
metric.json into a checkpoint as the very last step, so its presence marks a complete one.

Points `latest` of every engine at the newest checkpoint that all engines completed. Without one, the folders are
renamed, so that training starts from the beginning. Nothing is deleted. Each start adds a line to resumed.jsonl beside
the checkpoint folder: the attempt and the update step from which it resumes.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

from run_files import attempt_of

TAG = re.compile(r"(?:best_)?global_step(\d+)\Z")


def complete_tags(folder: Path) -> dict[str, int]:
    """Update step of every complete checkpoint of one engine, by tag."""
    found = {path.parent.name: TAG.match(path.parent.name) for path in folder.glob("*/metric.json")}
    return {tag: int(match.group(1)) for tag, match in found.items() if match}


def newest_common(folders: list[Path]) -> tuple[str, int] | None:
    """Tag and step of the newest checkpoint that every engine completed; None without one."""
    tags = complete_tags(folders[0])
    for folder in folders[1:]:
        tags = {tag: step for tag, step in tags.items() if tag in complete_tags(folder)}
    if not tags:
        return None
    # Of two at the same step, best_ is the later one: it was saved after the evaluation at that step.
    tag = max(tags, key=lambda name: (tags[name], name.startswith("best_")))
    return tag, tags[tag]


def set_aside(folder: Path) -> None:
    """Rename a folder that holds no complete checkpoint to the first free name."""
    number = 1
    while folder.with_name(f"{folder.name}.incomplete{number}").exists():
        number += 1
    target = folder.with_name(f"{folder.name}.incomplete{number}")
    folder.rename(target)
    sys.stderr.write(f"resume_point: no complete checkpoint in {folder.name}; moved to {target.name}\n")


def point_latest(folder: Path, tag: str) -> None:
    """Write `tag` into the file `latest` in one step, unless it is there already."""
    latest = folder / "latest"
    if latest.is_file() and latest.read_text(encoding="utf-8").strip() == tag:
        return
    temporary = folder / "latest.tmp"
    temporary.write_text(tag, encoding="utf-8")
    temporary.replace(latest)


def note_start(run_folder: Path, step: int) -> None:
    """Record the update step from which this start resumes; claim_folder.py has numbered the start."""
    with (run_folder / "resumed.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps({"attempt": attempt_of(run_folder), "step": step}) + "\n")


def main(argv: list[str]) -> int:
    """Repair the folders named on the command line and print where training resumes."""
    if len(argv) < 2:
        sys.stderr.write("usage: resume_point.py CHECKPOINT_FOLDER ENGINE [ENGINE ...]\n")
        return 2
    folders = [Path(argv[0]) / engine for engine in argv[1:]]
    newest = newest_common(folders)
    note_start(Path(argv[0]).parent, 0 if newest is None else newest[1])
    if newest is None:
        for folder in folders:
            if folder.exists():
                set_aside(folder)
        sys.stderr.write("resume_point: training starts from the beginning\n")
        return 0
    tag, step = newest
    for folder in folders:
        point_latest(folder, tag)
    sys.stderr.write(f"resume_point: training goes on after update step {step} ({tag})\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
