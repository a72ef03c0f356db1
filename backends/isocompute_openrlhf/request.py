"""request.json of an OpenRLHF run: written by the launch script, read with its rows by the log reader."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from isocompute_openrlhf.flags import VERSION
from isocompute_sdk.errors import IsoComputeError, RecordError
from isocompute_sdk.files import parse_json
from isocompute_sdk.specs import RunSpec
from isocompute_sdk.training.framework import REQUEST, request_document
from isocompute_sdk.training.payload.run_files import ROW_FILES, STARTED

REQUEST_DOCUMENT = request_document("openrlhf")


@dataclass(frozen=True)
class RunInputs:
    """The run of a folder and its problems."""

    run: RunSpec
    gpus: int
    problems: dict[str, list[str]]
    """Evaluation set -> ids of its problems; empty before the rows are written."""
    n_problems: int | None
    """Distinct training problems, D; None before they are counted."""


def read_inputs(folder: Path) -> RunInputs:
    """The run and the problems of a folder that the launch script wrote.

    Raises:
        RecordError: a file is damaged, or the run is of another OpenRLHF release.
    """
    path = folder / REQUEST
    try:
        request = REQUEST_DOCUMENT.load(path)
        record = folder / STARTED
        counted = parse_json(record.read_text(encoding="utf-8")).get("problems") if record.exists() else None
        n_problems = request.run.data.n_problems if counted is None else int(counted["train"])
        evaluated = _evaluated(folder)
    except (IsoComputeError, OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise RecordError(
            f"{path} or the rows beside it are not what a launch script wrote: {error}", REQUEST_DOCUMENT.remedy
        ) from error
    if request.version != VERSION:
        raise RecordError(
            f"{path}: the run is of OpenRLHF {request.version}; this release reads {VERSION}",
            "Read its TensorBoard folder instead: `isocompute doctor`.",
        )
    return RunInputs(request.run, request.gpus, evaluated, n_problems)


def _evaluated(folder: Path) -> dict[str, list[str]]:
    """Evaluation set -> ids of its problems, from OpenRLHF's evaluation rows."""
    path = folder / ROW_FILES["evaluation"]
    found: dict[str, list[str]] = {}
    if path.exists():
        for line in path.read_text(encoding="utf-8").splitlines():
            label = parse_json(parse_json(line)["label"])
            found.setdefault(label["split"], []).append(label["id"])
    return found
