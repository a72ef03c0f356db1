"""Checkpoints that exist on disk, by the names that frameworks give their folders."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote

from isocompute_sdk.ingest.paths import Listing

NAMES = re.compile(r"(?:global_?step|checkpoint|ckpt|iter|step)[-_]?0*(\d+)(_hf)?", re.IGNORECASE)
"""veRL global_step_N, OpenRLHF global_stepN and global_stepN_hf, TRL checkpoint-N, slime iter_000N, prime-rl step_N."""
WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".distcp")
BESIDE = re.compile(r"(training_args|optim|scheduler|rng_state|extra_state|data\b).*")
"""Names of what a trainer saves beside the weights; they stay where the weights are gone."""


@dataclass(frozen=True)
class SavedCheckpoint:
    """One checkpoint on disk."""

    step: int
    """Update steps done."""
    path: Path
    loadable: Path | None
    """Folder that Hugging Face's loader takes as a model; None if the weights need converting first."""

    @property
    def convert(self) -> str | None:
        """Command that turns a sharded checkpoint of veRL into one that loads, in its folder `merged`; None if it loads
        already, and for other frameworks."""
        actor = self.path / "actor"
        if self.loadable is not None or not any(actor.glob("model_world_size_*.pt")):
            return None
        source, target = quote(str(actor)), quote(str(self.path / "merged"))
        return f"python -m verl.model_merger merge --backend fsdp --local_dir {source} --target_dir {target}"


def find_checkpoints(paths: Iterable[str | Path]) -> tuple[SavedCheckpoint, ...]:
    """Checkpoints by step; folders without weights are left out.

    Args:
        paths: files, folders and globs of logs. Below folders all are found; beside a file only those in its folder or
            in a folder of checkpoints there, since further down they belong to other runs.
    """
    found: dict[tuple[int, Path], list[Path]] = {}
    for path in dict.fromkeys(Path(path).absolute() for path in paths):
        root = path.parent if path.is_file() else path
        for file in Listing.of(root).files:
            folder, step = _checkpoint_of(file, root)
            if folder is None or step is None or file.suffix not in WEIGHTS or BESIDE.match(file.name):
                continue
            of_checkpoints = any(word in folder.parent.name.lower() for word in ("checkpoint", "ckpt"))
            beside = folder.parent == root or (folder.parent.parent == root and of_checkpoints)
            if not path.is_file() or beside:
                found.setdefault((step, folder), []).append(file)
    checkpoints: list[SavedCheckpoint] = []
    for (step, folder), files in found.items():
        # As Hugging Face saves a model: weights beside a configuration.
        weights = (file.parent for file in files if file.suffix in (".safetensors", ".bin"))
        loadable = next((place for place in weights if (place / "config.json").is_file()), None)
        checkpoints.append(SavedCheckpoint(step, folder, loadable))
    # Of two forms of one step the one that loads comes last, so that it is taken.
    return tuple(sorted(checkpoints, key=lambda one: (one.step, one.loadable is not None, str(one.path))))


def of_run(checkpoints: Sequence[SavedCheckpoint], run_id: str, run_ids: Sequence[str]) -> tuple[SavedCheckpoint, ...]:
    """Those of one run: all of them for the only run, else those below a folder with the run's name."""
    if len(run_ids) == 1:
        return tuple(checkpoints)
    return tuple(one for one in checkpoints if run_id in one.path.parts or run_id in str(one.path.parent))


def _checkpoint_of(file: Path, root: Path) -> tuple[Path | None, int | None]:
    """The outermost folder above a file, below the root or the root itself, that is named as a checkpoint."""
    for folder in reversed([file.parent, *file.parent.parents]):
        if folder == root or root in folder.parents:
            named = NAMES.fullmatch(folder.name)
            if named is not None:
                return folder, int(named.group(1))
    return None, None
