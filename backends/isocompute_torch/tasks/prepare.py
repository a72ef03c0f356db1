"""A task on disk: made once, then reused; a folder never holds half a task.

The folder holds model/ (weights and tokenizer, as `save_pretrained` writes them), train.jsonl and validation.jsonl (one
`{"id", "prompt", "answer"}` per line), reward.py, and task.json with settings, measurements, package versions and a
digest of every file. Only making a task imports torch.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from isocompute_sdk.documents import Document
from isocompute_torch.failures import InputError
from isocompute_torch.tasks.problem_families import MAX_RESPONSE_TOKENS
from isocompute_torch.tasks.settings import (
    MODEL_FOLDER,
    REWARD_FILE,
    TRAIN_FILE,
    VALIDATION_FILE,
    Kind,
    TaskSettings,
)

if TYPE_CHECKING:
    from isocompute_torch.tasks.build import Progress

MANIFEST = "task.json"


@dataclass(frozen=True)
class Manifest:
    """Content of task.json."""

    settings: TaskSettings
    measured: dict[str, Any]
    versions: dict[str, str]
    """Versions of the packages that made the task."""
    files: dict[str, str]
    """sha256 of every other file, by its path in the folder."""


DOCUMENT = Document(
    "arithmetic-task", 1, Manifest, remedy="Remove the folder to make the task again, or use another folder."
)


@dataclass(frozen=True)
class PreparedTask:
    """Paths of a task, and the measurements of its base model."""

    folder: Path
    """The folder of the task."""
    settings: TaskSettings
    """Settings it was made from."""
    measured: dict[str, Any]
    """Sizes, pass rates and the length of the warm-up, as in task.json."""

    @property
    def model(self) -> Path:
        """Folder of the base model with its tokenizer."""
        return self.folder / MODEL_FOLDER

    @property
    def train(self) -> Path:
        """Training problems, one JSON object a line."""
        return self.folder / TRAIN_FILE

    @property
    def validation(self) -> Path:
        """Validation problems, which are in neither the warm-up nor the training set."""
        return self.folder / VALIDATION_FILE

    @property
    def reward(self) -> Path:
        """File with `reward(prompt, response, answer) -> float`."""
        return self.folder / REWARD_FILE

    @property
    def n_problems(self) -> int:
        """Number of training problems."""
        return int(self.measured["train"]["problems"])

    @property
    def base_rewards(self) -> dict[str, float]:
        """Expected reward of one sample of the base model on `train` and `validation`, exact.

        It predicts an evaluation at step 0 better than the avg@16 by which the problems were chosen.
        """
        return {name: float(self.measured[name]["pass_rate"]) for name in ("train", "validation")}

    @property
    def max_response_tokens(self) -> int:
        """`max_response_tokens` for a recipe: four digits and the end token."""
        return MAX_RESPONSE_TOKENS


def prepare(
    folder: str | Path,
    family: str = "mul31",
    kind: Kind = "easy",
    seed: int = 0,
    progress: Progress | None = None,
    *,
    settings: TaskSettings | None = None,
) -> PreparedTask:
    """Make a task in `folder`, or reuse the task in it if its settings are the same.

    Args:
        folder: folder of the task; it must be new, empty, or hold the same task.
        family: a name in `FAMILIES`, or several joined with `+`.
        kind: difficulty of the problems for the base model: easy, hard or mixed.
        seed: seed of every random choice; the same seed gives the same files.
        progress: called with a stage, the amount done and the total.
        settings: all settings, in place of family, kind and seed.

    Raises:
        SpecError: invalid settings.
        InputError: the folder holds something else, or a modified task.
        RunFailed: these settings give no task.
    """
    wanted = settings or TaskSettings(family=family, kind=kind, seed=seed)
    target = Path(folder)
    found = _existing(target, wanted)
    return found if found is not None else _make(target, wanted, progress or _no_progress)


def load(folder: str | Path) -> PreparedTask:
    """Read a prepared task.

    Raises:
        IsoComputeError: the folder holds no task, or its files were modified.
    """
    target = Path(folder)
    manifest = DOCUMENT.load(target / MANIFEST)
    check_files(target, manifest.files)
    return PreparedTask(target, manifest.settings, manifest.measured)


def _existing(target: Path, wanted: TaskSettings) -> PreparedTask | None:
    """The task in the folder; None if the folder is new or empty.

    Raises:
        InputError: the folder holds something else.
    """
    if not target.exists() or (target.is_dir() and not any(target.iterdir())):
        return None
    if not (target / MANIFEST).is_file():
        raise InputError(
            f"{target} holds no prepared task; accepted: a new or empty folder, or one with {MANIFEST}",
            "Use another folder.",
        )
    found = load(target)
    if found.settings != wanted:
        have, want = asdict(found.settings), asdict(wanted)
        differing = "; ".join(f"{key} {have[key]!r}, wanted {want[key]!r}" for key in want if have[key] != want[key])
        raise InputError(f"{target} holds a task with other settings: {differing}", "Use another folder.")
    return found


def _make(target: Path, settings: TaskSettings, progress: Progress) -> PreparedTask:
    """Make the task in memory, write it beside the folder, and rename it into place."""
    from isocompute_torch.tasks.build import build, versions, write

    task = build(settings, progress)
    progress("files", 0, 1)

    def make(partial: Path) -> None:
        write(task, partial)
        DOCUMENT.save(partial / MANIFEST, Manifest(settings, task.measured(), versions(), digests(partial)))

    make_whole(target, MANIFEST, make)
    progress("files", 1, 1)
    finished = _existing(target, settings)
    if finished is None:
        raise InputError(f"{target} was emptied while the task was being made", "Use another folder.")
    return finished


def make_whole(target: Path, manifest: str, make: Callable[[Path], None]) -> None:
    """Make a folder beside its place and rename it; if another process was first, its result is kept.

    Args:
        target: its place, missing or empty.
        manifest: a file that only a whole folder has.
        make: writes the files, `manifest` among them, into an empty folder.
    """
    beside = target.absolute().parent
    beside.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(dir=beside, prefix=f".{target.name}."))
    try:
        partial.chmod(0o755)
        make(partial)
        try:
            partial.rename(target)
        except OSError:
            if not (target / manifest).is_file():
                raise
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def digests(folder: Path) -> dict[str, str]:
    """Path of every file in a folder -> its sha256."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {path.relative_to(folder).as_posix(): digest_of(path) for path in files}


def check_files(folder: Path, files: Mapping[str, str]) -> None:
    """Refuse a folder whose files are not those with these digests.

    Raises:
        InputError: a file is missing or was changed.
    """
    for name, digest in files.items():
        path = folder / name
        if not path.is_file() or digest_of(path) != digest:
            what = "was changed after it was made" if path.is_file() else "is missing"
            raise InputError(f"{path} {what}", f"Remove {folder} to make it again, or use another folder.")


def digest_of(path: Path) -> str:
    """Sha256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _no_progress(stage: str, done: int, total: int) -> None:
    """Report nothing."""
