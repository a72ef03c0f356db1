"""request.json: what a run folder was asked to do, as the launch script writes it and as it is read back."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from isocompute_openrlhf.flags import VERSION
from isocompute_openrlhf.options import OpenRLHFOptions
from isocompute_openrlhf.payload.prepare_rows import ROW_FILES
from isocompute_openrlhf.placement import Placement
from isocompute_sdk.errors import RecordError, SpecError
from isocompute_sdk.specs import RunSpec

REQUEST = "request.json"
KIND = "openrlhf-run"


@dataclass(frozen=True)
class Request:
    """What a run folder was asked to do, and what its rows hold."""

    run: RunSpec
    gpus: int
    problems: dict[str, list[str]]
    """Evaluation set -> ids of its problems; empty before the rows were written."""
    n_problems: int | None
    """Distinct training problems, D; None before they were counted."""


def request_of(run: RunSpec, options: OpenRLHFOptions, placement: Placement) -> dict[str, object]:
    """What identifies the run: a later start in the same folder has to ask for the same.

    Options that only concern speed and memory are left out, so that a run can be resumed with others; the
    number of GPUs and the ZeRO stage are in, because a checkpoint can only be loaded with the same.
    """
    return {
        "kind": KIND,
        "schema_version": 1,
        "run_id": run.run_id,
        "backend": "openrlhf",
        "framework_version": VERSION,
        "model": run.model,
        "group_size": run.group_size,
        "problems_per_batch": run.problems_per_batch,
        "update_steps": run.update_steps,
        "seed": run.seed,
        "learning_rate": run.learning_rate,
        "recipe": run.recipe.model_dump(mode="json"),
        "evaluation": run.evaluation.model_dump(mode="json"),
        "data": run.data.model_dump(mode="json"),
        "validation_problems": run.evaluation.n_problems,
        "chat_template": options.chat_template,
        "evaluation_sets": options.evaluation_files(),
        "probe_problems": options.probe_problems,
        "nodes": placement.nodes,
        "gpus": placement.gpus,
        "zero_stage": options.zero_stage,
    }


def is_request(folder: Path) -> bool:
    """Whether the request in a folder is one of this backend; a damaged one is taken for it."""
    try:
        raw = json.loads((folder / REQUEST).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return True
    return isinstance(raw, dict) and raw.get("kind") == KIND


def read_request(folder: Path) -> Request:
    """The request that the launch script wrote.

    Raises:
        RecordError: it is damaged, or of another release.
    """
    path = folder / REQUEST
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
        version = raw["framework_version"]
        if version != VERSION:
            raise RecordError(
                f"{path}: the run is of OpenRLHF {version}; this release reads {VERSION}",
                "Read its TensorBoard folder instead: `isocompute ingest`.",
            )
        names = {name for name in RunSpec.model_fields if name in raw}
        run = RunSpec.model_validate({name: raw[name] for name in names})
        record = folder / "run.json"
        counted = json.loads(record.read_text(encoding="utf-8")).get("problems") if record.exists() else None
        n_problems = run.data.n_problems if counted is None else int(counted["train"])
        return Request(run, int(raw["gpus"]), _evaluated(folder), n_problems)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, SpecError) as error:
        if isinstance(error, RecordError):
            raise
        raise RecordError(
            f"{path} is not a request that a launch script wrote: {type(error).__name__} {error}",
            "Run launch.sh again in the same place; it writes the file anew.",
        ) from error


def _evaluated(folder: Path) -> dict[str, list[str]]:
    """Evaluation set -> ids of its problems, from the rows that OpenRLHF evaluates on."""
    path = folder / ROW_FILES["evaluation"]
    found: dict[str, list[str]] = {}
    if path.exists():
        for line in path.read_text(encoding="utf-8").splitlines():
            label = json.loads(json.loads(line)["label"])
            found.setdefault(label["split"], []).append(label["id"])
    return found
