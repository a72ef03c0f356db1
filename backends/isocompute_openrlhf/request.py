"""request.json: what a run folder was asked to do, as the launch script writes it and as it is read back."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from isocompute_openrlhf.flags import EARLIER_RELEASES, MISREAD_IN_PATHS, VERSION
from isocompute_openrlhf.options import OpenRLHFOptions
from isocompute_openrlhf.placement import Placement
from isocompute_sdk.errors import RecordError, SpecError
from isocompute_sdk.files import parse_json
from isocompute_sdk.specs import RunSpec
from isocompute_sdk.training.payload.run_files import ROW_FILES, STARTED

REQUEST = "request.json"
KIND = "openrlhf-run"
SCHEMA_VERSION = 1
FRAMEWORK = "OpenRLHF"
"""Its package, as messages write it; installers do not mind capitals."""


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
    """What the programs read; a later start in the same folder has to have the same `identity`.

    Options that only concern speed and memory are not part of it, so that a run can be resumed with others; the number
    of GPUs and the ZeRO stage are, because a checkpoint can only be loaded with the same.
    """
    own = {
        "chat_template": options.chat_template,
        "evaluation_sets": options.evaluation_files(),
        "probe_problems": options.probe_problems,
        "nodes": placement.nodes,
        "gpus": placement.gpus,
    }
    return {
        "kind": KIND,
        "schema_version": SCHEMA_VERSION,
        "framework": FRAMEWORK,
        "version": VERSION,
        "earlier_releases": EARLIER_RELEASES,
        "misread_in_paths": MISREAD_IN_PATHS,
        "run": run.model_dump(mode="json"),
        "identity": {
            **run.model_dump(mode="json", exclude={"options", "output_dir", "hardware"}),
            "version": VERSION,
            **own,
            "zero_stage": options.zero_stage,
        },
        **own,
    }


def read_request(folder: Path) -> Request:
    """The request that the launch script wrote.

    Raises:
        RecordError: it is damaged, or of another release.
    """
    path = folder / REQUEST
    try:
        raw = parse_json(path.read_text(encoding="utf-8"))
        version = raw["version"]
        if version != VERSION:
            raise RecordError(
                f"{path}: the run is of OpenRLHF {version}; this release reads {VERSION}",
                "Read its TensorBoard folder instead: `isocompute ingest`.",
            )
        run = RunSpec.model_validate(raw["run"])
        record = folder / STARTED
        counted = parse_json(record.read_text(encoding="utf-8")).get("problems") if record.exists() else None
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
            label = parse_json(parse_json(line)["label"])
            found.setdefault(label["split"], []).append(label["id"])
    return found
