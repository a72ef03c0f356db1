"""`isocompute stop`: end runs of a study, and what starts them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from isocompute_sdk.cli.shared import options as opt
from isocompute_sdk.cli.shared.output import emit_json, say
from isocompute_sdk.errors import RecordError, SpecError


def stop(
    folder: Annotated[Path, typer.Argument(help="Folder of a run, a study or a campaign; or the study file (YAML).")],
    run: Annotated[list[str] | None, opt.option("Name of a run to end; repeatable.", None, "--run")] = None,
    json: opt.Json = False,
) -> None:
    """End runs on this machine, Slurm or Ray: SIGTERM, and SIGKILL after 15 seconds. `isocompute run` resumes them.

    Also ends runs left over from an earlier `isocompute run`, queued runs, and an active `isocompute run` on this
    machine. With --run, that `isocompute run` continues and skips the named runs.

    Examples:
        isocompute stop runs/quick

        isocompute stop study.yaml --run n8-bp32-seed0
    """
    from isocompute_sdk.campaigns.control import controller_of
    from isocompute_sdk.campaigns.executors import stop_runs, stop_study
    from isocompute_sdk.run_folders import store
    from isocompute_sdk.specs import load_study
    from isocompute_sdk.training.backend import run_folder

    loaded = load_study(folder) if folder.is_file() else None
    top = folder if loaded is None else Path(loaded.output_dir) / loaded.name
    if loaded is not None and loaded.designed is None:
        places = [Path(run_folder(one)) for one in loaded.expand()]
    else:
        try:
            places = list(store.find_runs(top))
        except RecordError:
            if controller_of(top) is None:
                raise
            places = []  # Its first runs are being chosen.
    names = [place.name for place in places]
    strangers = sorted(set(run or ()) - set(names))
    if strangers:
        raise SpecError(
            f"--run {strangers[0]}: no such run in {folder}; it has: {', '.join(names)}",
            "Use the name of a run: `isocompute status` lists them.",
        )
    chosen = [place for place in places if place.is_dir() and (not run or place.name in run)]
    stopped = stop_runs(chosen) if run else stop_study(top, chosen)
    if json:
        parts = {name: [str(place) for place in part] for name, part in vars(stopped).items()}
        emit_json({"kind": "stop", **parts, "controllers": [one.pid for one in stopped.controllers]})
    else:
        for place in stopped.ended:
            say(f"{place.name} ended")
        for one in stopped.controllers:
            say(f"isocompute run ended: {one.describe()}")
        if not any(vars(stopped).values()):
            say(f"no run is active in {folder}")
    if stopped.foreign:
        raise RecordError(
            f"{', '.join(place.name for place in stopped.foreign)}: not started by isocompute run, or started on "
            f"another machine",
            "End it where it was started, e.g. with Ctrl-C, or run isocompute stop there.",
        )
    if stopped.unanswered:
        raise RecordError(
            f"{', '.join(place.name for place in stopped.unanswered)}: the engine that has the run does not answer",
            "Try again later. No isocompute run starts it in the meantime.",
        )
