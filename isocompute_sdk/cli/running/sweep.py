"""`isocompute sweep`: expand a study into runs and prepare a folder for each."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import Annotated

import typer

from isocompute_sdk.cli.running.problems import missing_files
from isocompute_sdk.cli.shared import options as opt
from isocompute_sdk.cli.shared.output import emit_json, say


def sweep(
    study: Annotated[Path, typer.Argument(help="Study file (YAML).")],
    dry_run: opt.DryRun = False,
    json: opt.Json = False,
) -> None:
    """Expand a study's grid and write one launch script per run.

    Examples:
        isocompute sweep specs/quick.yaml --dry-run

        isocompute sweep specs/paper_easy.yaml
    """
    from isocompute_sdk.specs import load_study
    from isocompute_sdk.training import registry

    loaded = load_study(study)
    runs = loaded.expand()
    # Every run is checked before the first file is written, so that no sweep is half prepared.
    backend = registry.load(loaded.backend)
    for run in runs:
        backend.script(run)
    prepared = [] if dry_run else [backend.prepare(run, Path(run.output_dir)) for run in runs]
    total = sum(run.rollouts for run in runs)
    if json:
        emit_json(
            {
                "kind": "sweep",
                "study": loaded.name,
                "rollouts": total,
                "runs": [run.model_dump(mode="json") for run in runs],
                "scripts": [str(launch.files[0]) for launch in prepared],
            }
        )
        return
    for run in runs:
        say(f"{run.run_id:<28} n = {run.group_size:<5} B_p = {run.problems_per_batch:<5} M = {run.update_steps:,}")
    say(f"{len(runs)} runs, {total:,} rollouts in all, backend {loaded.backend}")
    for launch in prepared[:1]:
        say(f"wrote {launch.files[0]} and {len(prepared) - 1} more")
        missing, command = missing_files(loaded, study)
        if missing:
            say(f"next: {command}   # writes {', '.join(missing)}")
        say(f"next: bash {quote(str(launch.files[0]))}")
